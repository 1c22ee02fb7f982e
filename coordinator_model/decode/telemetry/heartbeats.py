"""Recognizes known heartbeat lines without parsing them. Nearly all lines are heartbeats.

All heartbeats of a member (on one connection, in one generation, with one answer) have the same text before the
correlation id, between it and the times, and after the times. So the first such line is parsed, and later ones are
recognized by looking up those pieces. That costs a third of any parser and gives the same result, for classic and
KIP-848 groups alike.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from coordinator_model.decode.source_row import SourceRow
from coordinator_model.decode.telemetry.fields import LATEST_MS
from coordinator_model.decode.telemetry.instants import instants
from coordinator_model.errors import HEARD
from coordinator_model.events import TELEMETRY_RANK, Event, Heartbeat

MAX_MEMBERS = 250_000
"""Lines remembered, at some 600 bytes each. If there are more, all are forgotten and learned again."""
MAX_BYTES = 256 * 1024 * 1024
"""Lines remembered, in bytes, because ids may be 32 KB long. If there are more, all are forgotten too."""
MAX_LINE_BYTES = 8 * 1024
"""A longer line is parsed each time."""
_NUMBER = rb"(?:0|[1-9]\d{0,8}+)\.\d{1,20}+"
_TIME = b"(" + _NUMBER + b")"
# No exponents: Java writes them only below a microsecond, which is finer than Kafka's clock, and beyond three hours.
TIMES = re.compile(
    rb",\"totalTimeMs\":" + _TIME + rb",\"requestQueueTimeMs\":" + _NUMBER + rb",\"localTimeMs\":" + _NUMBER +
    rb",\"remoteTimeMs\":" + _TIME + rb",\"throttleTimeMs\":(?:0|[1-9]\d{0,8}+)"
    rb",\"responseQueueTimeMs\":" + _TIME + rb",\"sendTimeMs\":" + _TIME
)  # fmt: skip


class Known(NamedTuple):
    """A parsed heartbeat: the texts before the correlation id and after the times, its key, and its index."""

    head: bytes
    tail: bytes
    key: bytes | None
    place: int
    """The index of its event in ``HeartbeatLines.said``."""


class KnownLines(NamedTuple):
    """Known lines: their numbers, the indexes of their events, and four times for each line.

    The times are the groups of ``TIMES``, in the order in which ``instants`` takes them: total, remote, response queue,
    send.
    """

    numbers: list[int]
    places: list[int]
    times: list[bytes]


class HeartbeatLines:
    """Remembers members' heartbeat lines. ``find`` recognizes known ones; ``learn`` adds parsed ones."""

    __slots__ = ("_bytes", "_known", "_pieces", "said")

    def __init__(self) -> None:
        self._known: dict[bytes, Known] = {}
        self._pieces: dict[bytes, bytes] = {}
        self._bytes = 0
        self.said: list[Heartbeat] = []
        """The parsed event of each known line. When all are forgotten, a new list begins."""

    def find(
        self, text: bytes, stops: Sequence[int], keys: Iterable[bytes | None], instants_ms: Iterable[int]
    ) -> KnownLines:
        """Find the known lines in ``text``.

        ``stops``: where each line begins, and the end of the last. ``keys`` and ``instants_ms`` are those of the lines'
        records.
        """
        known, find, starts, measure = self._known, text.find, text.startswith, TIMES.match
        numbers: list[int] = []
        places: list[int] = []
        all_times: list[bytes] = []
        lines = zip(stops, islice(stops, 1, None), keys, instants_ms, strict=False)
        for number, (start, end, key, at_ms) in enumerate(lines):
            middle = find(b',"clientId":', start, end)
            times = find(b',"totalTimeMs":', middle, end)
            if times < 0 or (found := known.get(text[middle:times])) is None:
                continue
            head, tail, its_key, place = found
            measured = measure(text, times, end)
            if measured is None or its_key != (key or None) or not 0 <= at_ms < LATEST_MS:
                continue
            rest = measured.end()
            same = starts(head, start) and end - rest == len(tail) and starts(tail, rest)
            if same and _is_number(text[start + len(head) : middle]):
                numbers.append(number)
                places.append(place)
                all_times += measured.groups()
        return KnownLines(numbers, places, all_times)

    def read(self, row: SourceRow, value: bytes) -> Heartbeat | None:
        """Return the event of a known line; None: it must be parsed."""
        found = self.find(value, (0, len(value)), (row.key,), (row.timestamp_ms,))
        if not found.numbers:
            return None
        said, at = self.said[found.places[0]], instants(row.timestamp_ms, map(float, found.times))
        where = (row.timestamp_ms, TELEMETRY_RANK, row.topic, row.partition, row.offset)
        what = (said.group, said.member_id, said.generation, said.error)
        times = (at.applied_ms, at.arrival_ms, said.broker, at.remote_ms, said.kip848)
        return tuple.__new__(Heartbeat, where + what + times)

    def learn(self, row: SourceRow, events: list[Event]) -> None:
        """Remember a parsed line, if it is an accepted heartbeat in the form in which Kafka writes them.

        Anybody may send heartbeats that are refused, under any number of ids.
        """
        if len(events) != 1 or type(said := events[0]) is not Heartbeat or (value := row.value) is None:
            return
        if said.error not in HEARD or len(value) > MAX_LINE_BYTES:
            return
        middle = value.find(b',"clientId":')
        times = value.find(b',"totalTimeMs":', middle)
        start = value.rfind(b'"correlationId":', 0, max(middle, 0)) + len(b'"correlationId":')
        measured = TIMES.match(value, max(times, 0))
        if middle < start or measured is None or not _is_number(value[start:middle]):
            return
        tail = value[measured.end() :]
        if b"TimeMs" in tail or b"\\" in tail:
            return  # if a field is there twice, its last value counts, and an escape can spell any field's name
        self._bytes += len(value)
        if len(self.said) >= MAX_MEMBERS or self._bytes > MAX_BYTES:
            self._known, self._pieces, self.said, self._bytes = {}, {}, [], len(value)
        head, tail, key = (self._pieces.setdefault(piece, piece) for piece in (value[:start], tail, row.key or b""))
        self._known[value[middle:times]] = Known(head, tail, key or None, len(self.said))
        self.said.append(said)


def _is_number(text: bytes) -> bool:
    """Tell whether a text is a natural number as JSON writes it."""
    return text.isdigit() and (text[0] != _ZERO or len(text) == 1) and len(text) <= _MAX_DIGITS


_ZERO = ord("0")
_MAX_DIGITS = 10

"""A line as a log shipper sends it, made the line that a broker's own appender sends: bare, and at its own instant.

A shipper sends a line of the broker's log file, ``[date] DEBUG Completed request:{json} (kafka.request.logger)``, as it
stands there or as a string in JSON of its own: ``{"message": line}``, ``{"log": line}``, ``{"event": {"original":
line}}``. Its record's timestamp says when it was shipped; when it was written its date says, in the brokers' zone. A
date that is far from that timestamp was read in the wrong zone, or shipped long after: such a line is not judged.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from coordinator_model.source_row import SourceRow
from coordinator_model.telemetry.fields import MAX_LINE_BYTES, BadField, parse_object

PREFIX = b"Completed request:"
SUFFIX = b" (kafka.request.logger)"
MAX_WRAPS = 2
"""How often a line is wrapped at most: in a container runtime's JSON, and in a shipper's."""
MAX_HEAD_BYTES = 256
"""Where a date stands before what was logged."""
MAX_APART_MS = 600_000
"""How long after it was written a line may be shipped; zones are at least a quarter of an hour apart."""
NOT_A_LINE = "not a line of the request log"
APART = "date more than ten minutes from the record's timestamp (is [kafka] telemetry_zone the brokers' zone?)"
DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DATE = re.compile(
    rb"(?<!\d)(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:Z|([+-])(\d\d):?(\d\d))?(?!\d)"
)

Zone = Callable[[int], Sequence[int]]
"""What a clock on the wall shows, in milliseconds as if it showed UTC, to the instant; two where it was set back."""


def utc(local_ms: int) -> Sequence[int]:
    """Read a clock that shows UTC."""
    return (local_ms,)


def is_bare(value: bytes) -> bool:
    """Tell whether a line is as a broker's own appender sends it."""
    return value.startswith(PREFIX)


def bare(row: SourceRow, zone: Zone = utc) -> SourceRow:
    """Return a row's line bare, at the instant of its own date if it has one. Raises ``BadField``, nothing else."""
    if row.value is None or is_bare(row.value):
        return row
    text = unwrapped(row.value)
    start = text.find(PREFIX)
    if start < 0:
        raise BadField(NOT_A_LINE)
    date = _date(text[max(0, start - MAX_HEAD_BYTES) : start])
    body = text[start:].rstrip().removesuffix(SUFFIX)
    if date is None:
        return row._replace(value=body)
    instants_ms = (_local_ms(date) - _own_zone_ms(date),) if _has_zone(date) else zone(_local_ms(date))
    written_ms = min(instants_ms, key=lambda at_ms: abs(at_ms - row.timestamp_ms))
    if written_ms < 0 or abs(written_ms - row.timestamp_ms) > MAX_APART_MS:
        raise BadField(APART)
    return row._replace(value=body, timestamp_ms=written_ms)


def needs_zone(row: SourceRow) -> bool:
    """Tell whether a row's instant depends on the brokers' zone. What cannot be read does not."""
    if row.value is None or is_bare(row.value):
        return False
    try:
        text = unwrapped(row.value)
    except BadField:
        return False
    start = max(0, text.find(PREFIX))
    date = _date(text[max(0, start - MAX_HEAD_BYTES) : start])
    return date is not None and not _has_zone(date)


def unwrapped(value: bytes) -> bytes:
    """Return the line in a shipper's JSON; what is no JSON is the line."""
    if len(value) > MAX_LINE_BYTES:
        raise BadField("line too long")
    for _ in range(MAX_WRAPS):
        if not value.startswith(b"{"):
            break
        lines = [line.encode("utf-8", "replace") for line in _strings(parse_object(value.decode("utf-8", "replace")))]
        if not lines:
            raise BadField(NOT_A_LINE)
        value = max(lines, key=lambda line: line.find(PREFIX))  # with what stands before it, where one has that
    return value


def _strings(envelope: dict[str, Any]) -> Iterator[str]:
    """Yield what may be the line."""
    event = envelope.get("event")
    original = event.get("original") if isinstance(event, dict) else None
    for text in (envelope.get("message"), envelope.get("log"), envelope.get("event.original"), original):
        if isinstance(text, str):
            yield text


def _date(head: bytes) -> "re.Match[bytes] | None":
    """Return the date nearest to what was logged: one before it is of a container runtime."""
    date = None
    for date in _DATE.finditer(head):  # noqa: B007 # the last
        pass
    return date


def _has_zone(date: "re.Match[bytes]") -> bool:
    return date[8] is not None or date[0].endswith(b"Z")


def _own_zone_ms(date: "re.Match[bytes]") -> int:
    if date[8] is None:
        return 0
    minutes = int(date[9]) * 60 + int(date[10])
    return (-minutes if date[8] == b"-" else minutes) * 60_000


def _local_ms(date: "re.Match[bytes]") -> int:
    """Return what the clock on the wall showed, as if it showed UTC; a second may be cut at any digit."""
    year, month, day, hour, minute, second = (int(date[n]) for n in range(1, 7))
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last = DAYS[month - 1] + (leap and month == 2) if 1 <= month <= 12 else 0
    if not 1 <= day <= last or hour > 23 or minute > 59 or second > 59:
        raise BadField("date: there is no such day or time")
    thousandths = int((date[7] or b"").ljust(3, b"0")[:3])
    return ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60_000 + second * 1_000 + thousandths


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01; years begin in March, so that the day that may be missing is the last."""
    if month < 3:
        year, month = year - 1, month + 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719_469

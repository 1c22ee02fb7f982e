"""Turns a line from a log shipper into the line that the broker's own appender sends: unwrapped, with its own date.

It reads lines of the request log and of the group coordinator's own log. A shipper sends a line of the broker's log
file, ``[date] DEBUG Completed request:{json} (kafka.request.logger)``, either unchanged or as a string in its own JSON:
``{"message": line}``, ``{"log": line}``, ``{"event": {"original": line}}``.

The record's timestamp says when the line was shipped. The line's date says when it was written, in the brokers' time
zone; a wrapped line without a date has the date of its wrapper. If the two are more than ten minutes apart the line is
rejected: the zone is wrong, or the line was shipped late. A line cannot be shipped before it was written, so a date
after the record's timestamp is accepted only if clock skew explains it.
"""

import json
import re
from calendar import monthrange, timegm
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from coordinator_model.decode.source_row import SourceRow
from coordinator_model.decode.telemetry.fields import MAX_LINE_BYTES, BadField, parse_object

PREFIX = b"Completed request:"
COORDINATOR_PREFIXES = (b"[GroupCoordinator ", b"[GroupMetadataManager ")
"""The beginnings of a group coordinator's lines: of the Java and the Scala coordinator, and of the latter's loading."""
_BEGIN = re.compile(rb"Completed request:|\[GroupCoordinator (?:id=)?\d|\[GroupMetadataManager brokerId=\d")
"""A line begins at the first match. Texts that clients choose, such as a group id, come later in the line."""
_LOGGER = re.compile(rb" \([\w.$]{1,256}\)\s*\Z")
"""The logger's name, which a layout may write after a line."""
MAX_WRAPS = 2
"""How many times a line may be wrapped: in a container runtime's JSON, and in a shipper's."""
MAX_HEAD_BYTES = 256
"""The date is searched for in this many bytes before the prefix."""
MAX_LATE_MS = 600_000
"""How long after it was written a line may be shipped. Zones are at least a quarter of an hour apart."""
MAX_SKEW_MS = 5_000
"""How far the broker's clock may be ahead of the clock of the record's timestamp."""
NOT_A_LINE = "not a line of the request log"
NO_DATE = "line has no date, and the shipper's JSON has no @timestamp, time or timestamp with a zone"
SEVERAL = "several lines in one record (the shipper has to send one record a line)"
NO_SUCH_DATE = "date: there is no such day or time"
LATE = (
    "date is more than ten minutes from the record's timestamp (is [kafka] telemetry_zone the brokers' zone, or was the"
    " line shipped late?)"
)
AHEAD = (
    "date is later than the record's timestamp (is [kafka] telemetry_zone the brokers' zone, or are the clocks wrong?)"
)
_DATE = re.compile(
    rb"(?<!\d)(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
    rb"(?P<zone>Z| ?(?P<sign>[+-])(?P<zone_hours>\d\d)(?::?(?P<zone_minutes>\d\d))?)?(?!\d)"
)
_JSON = json.JSONDecoder()

Date = re.Match[bytes]
"""A match of ``_DATE``."""
Zone = Callable[[int], Sequence[int]]
"""Maps a local time (milliseconds, read as if it were UTC) to the instants it can mean: two if it is in the hour in
which clocks were set back."""


def utc(local_ms: int) -> Sequence[int]:
    """Return the instant of a local time in UTC."""
    return (local_ms,)


def is_bare(value: bytes) -> bool:
    """Tell whether a line is as a broker's own appender sends it."""
    return value.startswith((PREFIX, *COORDINATOR_PREFIXES))


def is_coordinator_line(value: bytes) -> bool:
    """Tell whether a bare line is of the group coordinator's own log, not of the request log."""
    return value.startswith(COORDINATOR_PREFIXES)


def bare(row: SourceRow, zone: Zone = utc) -> SourceRow:
    """Return a row with its line bare, at the line's own date if it has one. Raises ``BadField``, nothing else."""
    if row.value is None or is_bare(row.value):
        return row
    text, wrappers = _unwrap(row.value)
    head, body = _head_and_body(text)
    date = _date(head) or _date_of(wrappers)
    if date is not None:
        return row._replace(value=_trimmed(body), timestamp_ms=_written_ms(date, zone, row.timestamp_ms))
    if wrappers:
        raise BadField(NO_DATE)
    return row._replace(value=_trimmed(body))


def needs_zone(row: SourceRow) -> bool:
    """Tell whether a row's instant depends on the brokers' zone. That of a row that cannot be read does not."""
    if row.value is None or is_bare(row.value):
        return False
    try:
        head, _ = _head_and_body(unwrapped(row.value))
    except BadField:
        return False
    date = _date(head)
    return date is not None and date["zone"] is None


def unwrapped(value: bytes) -> bytes:
    """Return the line inside a shipper's JSON. A value that is not JSON is returned as it is."""
    return _unwrap(value)[0]


def _unwrap(value: bytes) -> tuple[bytes, list[dict[str, Any]]]:
    """Return the line and the objects that it was wrapped in, the innermost first."""
    if len(value) > MAX_LINE_BYTES:
        raise BadField("line too long")
    wrappers: list[dict[str, Any]] = []
    while value.startswith(b"{") and len(wrappers) < MAX_WRAPS:
        wrappers.insert(0, parse_object(value.decode("utf-8", "replace")))
        lines = [line.encode("utf-8", "replace") for line in _strings(wrappers[0])]
        if not lines:
            raise BadField(NOT_A_LINE)
        value = max(lines, key=_begin)  # prefer a text that has something before the line, such as its date
    return value, wrappers


def _strings(wrapper: dict[str, Any]) -> Iterator[str]:
    """Yield the texts in a wrapper that may be the line."""
    event = wrapper.get("event")
    original = event.get("original") if isinstance(event, dict) else None
    for text in (wrapper.get("message"), wrapper.get("log"), wrapper.get("event.original"), original):
        if isinstance(text, str):
            yield text


def _head_and_body(text: bytes) -> tuple[bytes, bytes]:
    """Return the text before the line, and the text from its beginning on."""
    start = _begin(text)
    if start < 0:
        raise BadField(NOT_A_LINE)
    return text[max(0, start - MAX_HEAD_BYTES) : start], text[start:]


def _begin(text: bytes) -> int:
    """Return where a line begins; -1: there is none."""
    found = _BEGIN.search(text)
    return -1 if found is None else found.start()


def _trimmed(body: bytes) -> bytes:
    """Return the line without what a layout writes after it: the logger's name and the line break."""
    if is_coordinator_line(body):
        return _LOGGER.sub(b"", body, count=1) if _LOGGER.search(body) else body.rstrip(b"\r\n")
    text = body.decode("utf-8", "replace")
    try:
        _, end = _JSON.raw_decode(text, len(PREFIX))
    except (ValueError, RecursionError):
        return body  # the parser says what is wrong with it
    if PREFIX.decode() in text[end:]:
        raise BadField(SEVERAL)
    return text[:end].encode()


def _date(head: bytes) -> Date | None:
    """Return the last date before the prefix. An earlier date is that of a container runtime."""
    dates = list(_DATE.finditer(head))
    return dates[-1] if dates else None


def _date_of(wrappers: list[dict[str, Any]]) -> Date | None:
    """Return the date of the innermost wrapper that has one with a zone."""
    for wrapper in wrappers:
        for text in (wrapper.get("@timestamp"), wrapper.get("time"), wrapper.get("timestamp")):
            date = _DATE.fullmatch(text.encode("utf-8", "replace")) if isinstance(text, str) else None
            if date is not None and date["zone"] is not None:
                return date
    return None


def _written_ms(date: Date, zone: Zone, shipped_ms: int) -> int:
    """Return the instant of a date. If it can mean two, return the one nearer to when the line was shipped."""
    written_ms = min(_instants_ms(date, zone), key=lambda at_ms: abs(at_ms - shipped_ms))
    if written_ms < 0 or shipped_ms - written_ms > MAX_LATE_MS:
        raise BadField(LATE)
    if written_ms - shipped_ms > MAX_SKEW_MS:
        raise BadField(AHEAD)
    return written_ms


def _instants_ms(date: Date, zone: Zone) -> Sequence[int]:
    """Return the instants that a date can mean."""
    local_ms = _local_ms(date)
    return zone(local_ms) if date["zone"] is None else (local_ms - _own_zone_ms(date),)


def _local_ms(date: Date) -> int:
    """Return the local time, read as if it were UTC and cut to milliseconds."""
    year, month, day, hour, minute, second = (int(date[n]) for n in range(1, 7))
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= monthrange(year, month)[1]:
        raise BadField(NO_SUCH_DATE)
    if hour > 23 or minute > 59 or second > 59:
        raise BadField(NO_SUCH_DATE)
    thousandths = int((date["fraction"] or b"").ljust(3, b"0")[:3])
    return timegm((year, month, day, hour, minute, second)) * 1_000 + thousandths


def _own_zone_ms(date: Date) -> int:
    """Return how far the date's own zone is ahead of UTC."""
    hours, minutes = int(date["zone_hours"] or 0), int(date["zone_minutes"] or 0)
    if hours > 23 or minutes > 59:
        raise BadField(NO_SUCH_DATE)
    ahead_ms = (hours * 60 + minutes) * 60_000
    return -ahead_ms if date["sign"] == b"-" else ahead_ms

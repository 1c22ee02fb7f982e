"""Parsing of rows of Kafka: a row becomes events, a rejection, or nothing. Parsing never raises."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from coordinator_model.commit_block import METADATA_CHARACTERS
from coordinator_model.decode.records import Outcome, RecordType, decode
from coordinator_model.decode.records.schema import Fields
from coordinator_model.decode.source_row import OFFSETS, REPORTS, TELEMETRY, SourceRow
from coordinator_model.decode.telemetry.client_report import REPORT_START, parse_report
from coordinator_model.decode.telemetry.coordinator_log import parse_coordinator_line
from coordinator_model.decode.telemetry.fields import LATEST_MS, BadField
from coordinator_model.decode.telemetry.heartbeats import HeartbeatLines
from coordinator_model.decode.telemetry.pushed_metrics import ClientMetrics, MetricsReader, exported, unread
from coordinator_model.decode.telemetry.request_log import parse_line
from coordinator_model.decode.telemetry.shipped import Zone, bare, is_coordinator_line, utc
from coordinator_model.events import RECORD_RANK, TELEMETRY_RANK, Event, OffsetCommitted, RecordRead, Tick

__all__ = [
    "OFFSETS",
    "PARSERS",
    "REPORTS",
    "TELEMETRY",
    "RejectedRow",
    "RowParser",
    "SourceRow",
    "mute_line",
    "parse_row",
]

HEAD_BYTES = 96
"""How much of a rejected row the quarantine keeps."""
MAX_BROKER_BYTES = 256
"""A longer key is not a broker's."""
DETAIL_CHARACTERS = 150
"""How much of an error's text the quarantine keeps."""


class RejectedRow(NamedTuple):
    """A row that could not be read. It is counted, and kept with its first bytes. Other rows are not affected.

    ``reason`` is one of a few fixed texts, because it labels a counter. What depends on the row is in ``detail``.
    """

    source: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    reason: str
    head: bytes
    detail: str = ""


class RowParser:
    """``parse_row`` for many rows. It recognizes heartbeats like earlier ones, and does not parse them again."""

    def __init__(self, zone: Zone = utc, read_metrics: MetricsReader = unread) -> None:
        self._zone = zone
        self._read_metrics = read_metrics
        self._heartbeats = HeartbeatLines()

    def bare(self, row: SourceRow) -> SourceRow:
        """Return a row of telemetry with a bare line and the line's own instant, or unchanged if it cannot be read."""
        return bare_or_as_it_is(row, self._zone) if row.source == TELEMETRY else row

    def read(self, row: SourceRow) -> list[Event] | RejectedRow:
        """Return what ``parse_row`` returns."""
        line = self.bare(row)
        if row.source != TELEMETRY or line.value is None:
            return parse_row(row, self._zone, self._read_metrics)
        try:
            heartbeat = self._heartbeats.read(line, line.value)
        except Exception:  # noqa: BLE001 # the parser below says what is wrong with the row
            heartbeat = None
        if heartbeat is not None:
            return [heartbeat]
        events = parse_row(row, self._zone, self._read_metrics)
        if not isinstance(events, RejectedRow):
            self._heartbeats.learn(line, events)
        return events


def bare_or_as_it_is(row: SourceRow, zone: Zone) -> SourceRow:
    """Return a row of telemetry as a broker's appender sends it, or unchanged if that fails: ``parse_row`` says why."""
    try:
        return bare(row, zone)
    except Exception:  # noqa: BLE001 # whatever it is
        return row


def parse_row(row: SourceRow, zone: Zone = utc, read_metrics: MetricsReader = unread) -> list[Event] | RejectedRow:
    """Turn a row into events, oldest first. The list is empty if the row says nothing about a group.

    ``zone`` is the time zone of the dates in lines that were shipped from brokers' files. ``read_metrics`` reads the
    metrics that clients push.

    The group id "" is not a group: no client can join it, only old clients commit to it, and in reports it stands for
    brokers. Only a JoinGroup that was refused because of it (24) makes an event. An exception rejects this row only,
    because a fault in a reader must not end a job that reads millions of rows.
    """
    if not 0 <= row.timestamp_ms < LATEST_MS:
        return _rejected(row, "timestamp out of range")
    try:
        return PARSERS[row.source](row, zone, read_metrics)
    except BadField as bad:
        return _rejected(row, str(bad))
    except Exception as error:  # noqa: BLE001 # whatever it is
        return failed(row, error)


def mute_line(row: SourceRow) -> Tick | None:
    """Return a tick for a line that is not about a group, or cannot be read: it shows that its broker was alive.

    None: it is not a line of a broker's request log, or its key does not name a broker. Lines of the coordinator's own
    log are not used, because nothing follows from their absence.
    """
    value = row.value
    if row.source != TELEMETRY or value is None or value.startswith(REPORT_START) or is_coordinator_line(value):
        return None
    if not row.key or len(row.key) > MAX_BROKER_BYTES or not 0 <= row.timestamp_ms < LATEST_MS:
        return None
    return Tick(row.timestamp_ms, TELEMETRY_RANK, row.topic, row.partition, row.offset, "", row.key_text, None)


def _parse_report(row: SourceRow, _zone: Zone, read_metrics: MetricsReader) -> list[Event]:
    """Read what an application wrote. What it says about brokers does not count."""
    value = _value_of(row)
    if value.startswith(REPORT_START):
        return [parse_report(row, value)]
    return [*exported(row, _read_export(value, read_metrics))]


def _parse_line(row: SourceRow, zone: Zone, read_metrics: MetricsReader) -> list[Event]:
    """Read a broker's line, from a topic that only brokers may write to."""
    if _value_of(row).startswith(REPORT_START):
        raise BadField("a client's report, in a topic of the request log")
    row = bare(row, zone)
    line = row.value or b""
    if is_coordinator_line(line):
        return [*parse_coordinator_line(row, line)]
    return parse_line(row, line, read_metrics)


def _value_of(row: SourceRow) -> bytes:
    if row.value is None:
        raise BadField("no value")
    return row.value


def _read_export(value: bytes, read_metrics: MetricsReader) -> list[ClientMetrics]:
    """Read a record of an OpenTelemetry collector. Anything else is read as a client's report."""
    try:
        return read_metrics(value, None)
    except BadField as bad:
        raise BadField("not a client's report, in a topic of reports") from bad


def _parse_record(row: SourceRow, _zone: Zone, _read_metrics: MetricsReader) -> list[Event] | RejectedRow:
    record = decode(row.key, row.value)
    key, type_ = record.key, record.type
    if key is None or type_ is None or record.outcome not in (Outcome.DECODED, Outcome.TOMBSTONE):
        return _rejected(row, record.outcome.value, record.error or "")
    head = (row.timestamp_ms, RECORD_RANK, row.topic, row.partition, row.offset)
    if type_ in (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT):
        return [_commit(head, key, record.value)] if key["group"] else []
    group = key["group"] if "group" in key else key["groupId"]
    return [RecordRead(*head, group, type_, key, record.value)] if group else []


def _commit(head: tuple[int, int, str, int, int], key: Fields, value: Fields | None) -> OffsetCommitted:
    """Return a commit, or a tombstone if there is no value."""
    place = (key["group"], key["topic"], key["partition"])
    if value is None:
        return OffsetCommitted(*head, *place, tombstone=True)
    return OffsetCommitted(
        *head,
        *place,
        tombstone=False,
        committed_offset=value["offset"],
        commit_ms=value["commitTimestamp"],
        leader_epoch=value.get("leaderEpoch", -1),
        metadata=value["metadata"][:METADATA_CHARACTERS],
        topic_id=value.get("topicId"),
    )


def failed(row: SourceRow, error: Exception) -> RejectedRow:
    """Reject a row that our own code failed on."""
    return _rejected(row, f"failed: {type(error).__name__}", str(error))


def _rejected(row: SourceRow, reason: str, detail: str = "") -> RejectedRow:
    """Reject a row, with the first bytes of its key or its value, whichever says more about it."""
    start = (row.key if row.source == OFFSETS else row.value) or row.value or b""
    place = (row.source, row.topic, row.partition, row.offset, row.timestamp_ms)
    return RejectedRow(*place, reason, start[:HEAD_BYTES], detail[:DETAIL_CHARACTERS])


PARSERS: Mapping[str, Callable[[SourceRow, Zone, MetricsReader], list[Event] | RejectedRow]] = {
    OFFSETS: _parse_record,
    TELEMETRY: _parse_line,
    REPORTS: _parse_report,
}
"""Every source of rows of Kafka, and the function that parses them."""

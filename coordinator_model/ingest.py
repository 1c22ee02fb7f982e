"""The door of the core: a row of Kafka becomes events, a rejection, or nothing. Never raises."""

from typing import NamedTuple

from coordinator_model.events import RECORD_RANK, Event, OffsetCommitted, RecordRead, Tick
from coordinator_model.records import Outcome, RecordType, decode
from coordinator_model.source_row import OFFSETS, TELEMETRY, SourceRow
from coordinator_model.telemetry.client_report import REPORT_START, parse_report
from coordinator_model.telemetry.fields import LATEST_MS, BadField
from coordinator_model.telemetry.heartbeats import HeartbeatLines
from coordinator_model.telemetry.request_log import parse_line

__all__ = ["OFFSETS", "TELEMETRY", "Reader", "Rejected", "SourceRow", "ingest"]

HEAD_BYTES = 96
"""How much of a rejected row the quarantine keeps."""


class Rejected(NamedTuple):
    """A row that could not be read: counted, kept with its first bytes, never in the way of its neighbours."""

    source: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    reason: str
    head: bytes


class Reader:
    """``ingest`` for many rows: it knows a member's heartbeat again, and then need not read it."""

    def __init__(self) -> None:
        self._heartbeats = HeartbeatLines()

    def read(self, row: SourceRow) -> list[Event] | Rejected:
        """As ``ingest``, with the same answer."""
        value = row.value
        if row.source == OFFSETS or value is None:
            return ingest(row)
        heartbeat = self._heartbeats.read(row, value)
        if heartbeat is not None:
            return [heartbeat]
        events = ingest(row)
        if not isinstance(events, Rejected):
            self._heartbeats.learn(row, events)
        return events


def ingest(row: SourceRow) -> list[Event] | Rejected:
    """Turn a row into events, oldest first; an empty list where it says nothing about a group.

    The group id "" is none: Kafka lets nobody join it, only old clients commit to it, and here it means a broker.
    """
    if not 0 <= row.timestamp_ms < LATEST_MS:
        return _rejected(row, "timestamp out of range")
    if row.source == OFFSETS:
        return _ingest_record(row)
    value = row.value
    if value is None:
        return _rejected(row, "no value")
    try:
        events = [parse_report(row, value)] if value.startswith(REPORT_START) else parse_line(row, value)
        return [event for event in events if event.group or type(event) is Tick]
    except BadField as bad:
        return _rejected(row, str(bad))


def _ingest_record(row: SourceRow) -> list[Event] | Rejected:
    record = decode(row.key, row.value)
    key, type_ = record.key, record.type
    if key is None or type_ is None or record.outcome not in (Outcome.DECODED, Outcome.TOMBSTONE):
        return _rejected(row, f"{record.outcome.value}: {record.error}")
    head = (row.timestamp_ms, RECORD_RANK, row.topic, row.partition, row.offset)
    if type_ in (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT):
        commit = OffsetCommitted(*head, key["group"], key["topic"], key["partition"], row.value is None)
        return [commit] if commit.group else []
    group = key["group"] if "group" in key else key["groupId"]
    return [RecordRead(*head, group, type_, key, record.value)] if group else []


def _rejected(row: SourceRow, reason: str) -> Rejected:
    start = (row.value if row.source == TELEMETRY else row.key) or row.value or b""
    return Rejected(row.source, row.topic, row.partition, row.offset, row.timestamp_ms, reason, start[:HEAD_BYTES])

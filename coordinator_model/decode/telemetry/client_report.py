"""A consumer's own report of its poll age (``streaming/reporter`` sends it), format version 1.

No broker can see when an application last polled. A report has only ages, so the client's clock does not matter. Its
instant is by a broker's clock: the append time of a topic with ``message.timestamp.type=LogAppendTime``.
"""

from typing import Any

from coordinator_model.decode.source_row import SourceRow
from coordinator_model.decode.telemetry.fields import BadField, a_str, an_int, parse_object, str_or_none
from coordinator_model.events import TELEMETRY_RANK, ClientPoll

VERSION_FIELD = "group_monitor_reporter"
VERSION = 1


REPORT_START = b'{"' + VERSION_FIELD.encode() + b'"'
"""Distinguishes a report from a line of the request log."""


def parse_report(place: SourceRow, value: bytes) -> ClientPoll:
    """Read one report. Raises ``BadField``, nothing else."""
    report = parse_object(value.decode("utf-8", "replace"))
    if an_int(report, VERSION_FIELD) != VERSION:
        raise BadField("a reporter's format this monitor does not know")
    if not a_str(report, "group"):
        raise BadField("group: empty")
    return ClientPoll(
        place.timestamp_ms,
        TELEMETRY_RANK,
        place.topic,
        place.partition,
        place.offset,
        a_str(report, "group"),
        a_str(report, "member_id"),
        str_or_none(report, "instance_id"),
        a_str(report, "client_id"),
        _natural(report, "poll_age_ms"),
        _natural(report, "max_poll_interval_ms"),
        str_or_none(report, "client_host"),
    )


def _natural(report: dict[str, Any], name: str) -> int:
    number = an_int(report, name)
    if number < 0:
        raise BadField(f"{name}: negative")
    return number

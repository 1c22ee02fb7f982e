"""The message that every reporter sends, format version 1. ``report.schema.json`` in this folder describes it."""

from typing import Any, Final

TOPIC: Final = "group-client-telemetry"
FORMAT_VERSION: Final = 1
INTERVAL_S: Final = 1.0
LONGEST_AGE_MS: Final = 2**31 - 1  # the schema's maximum, 24 days; a higher age is reported as this one


def message(  # noqa: PLR0913 # the fields of the message
    *,
    group: str,
    member_id: str,
    instance_id: str | None,
    client_id: str,
    poll_age_ms: int,
    max_poll_interval_ms: int,
    session_timeout_ms: int | None,
    heartbeat_age_ms: int | None,
    software: str,
) -> dict[str, Any]:
    """Return one report. The version comes first: a reader recognizes a report by it."""
    return {
        "group_monitor_reporter": FORMAT_VERSION,
        "group": group,
        "member_id": member_id,
        "instance_id": instance_id,
        "client_id": client_id,
        "poll_age_ms": min(poll_age_ms, LONGEST_AGE_MS),
        "max_poll_interval_ms": max_poll_interval_ms,
        "session_timeout_ms": session_timeout_ms,
        "heartbeat_age_ms": None if heartbeat_age_ms is None else min(heartbeat_age_ms, LONGEST_AGE_MS),
        "software": software,
    }

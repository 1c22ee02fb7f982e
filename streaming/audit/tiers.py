"""What this cluster tells a monitor today, and what each further tier would add: told once, not a group."""

from collections.abc import Collection
from typing import Any

from streaming.kafka_config import Kafka


def tiers(kafka: Kafka, filled: Collection[str], *, records: bool) -> list[dict[str, Any]]:
    """Return the tiers; `filled` names the telemetry topics that hold records."""
    lines = any(topic in filled for topic in kafka.telemetry_topics)
    reports = any(topic in filled for topic in kafka.client_telemetry_topics)
    return [
        {
            "tier": "records",
            "has": records,
            "adds": "members, generations, assignments and timeouts, and who came and went; not why, nor who lives now",
            "command": "group-monitor doctor --acls",
        },
        {
            "tier": "request telemetry",
            "has": lines,
            "adds": "why a member went, heartbeats and headroom of each member, broken timeouts as they happen",
            "command": "group-monitor log4j2",
        },
        {
            "tier": "client reports",
            "has": reports,
            "adds": "when each application last polled: warnings before max.poll.interval.ms is over",
            "command": "group-monitor doctor --create-topics",
        },
    ]

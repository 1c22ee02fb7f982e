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
            "adds": "members, their assignments and timeouts, rebalances, who came and went; not why, nor who is alive",
            "command": "group-monitor doctor --acls",
        },
        {
            "tier": "request telemetry",
            "has": lines,
            "adds": "why a member went, its heartbeats, how close each is to its session timeout, and who exceeds it",
            "command": "group-monitor log4j2",
        },
        {
            "tier": "client reports",
            "has": reports,
            "adds": "when each application last polled: who is close to max.poll.interval.ms",
            "command": "group-monitor doctor --create-topics",
        },
    ]

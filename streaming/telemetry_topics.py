"""Requirements for the telemetry topics: settings, replicas, and the command that creates one.

By default Kafka keeps records for seven days. The line of a heartbeat is about 700 bytes before compression: 33,000
lines a second are 2 TB a day, and 14 TB in seven days.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.config.kafka import Kafka

TELEMETRY_TOPIC: Final = "group-telemetry"
LINE_BYTES: Final = 700
"""A request-log line of a heartbeat, before compression."""
RETENTION_MS: Final = 86_400_000
"""One day: `run` may be down this long and still learns everything that happened."""
_COMMON: Final = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)}
REQUEST_LOG_CONFIGS: Final[Mapping[str, str]] = {
    **_COMMON,
    "max.message.bytes": "16777216",  # like `max.request.size` in `log4j2`: large groups make large lines
    "message.timestamp.type": "CreateTime",  # a line's timestamp is that of the broker's log event
}
REPORT_CONFIGS: Final[Mapping[str, str]] = {
    **_COMMON,
    "message.timestamp.type": "LogAppendTime",  # a report's timestamp has to be a broker's
}


class Replication(NamedTuple):
    """How a topic is distributed over brokers."""

    partitions: int
    replication_factor: int


def replication_for(brokers: int) -> Replication:
    """Return the right values for a number of brokers: at least one partition for each."""
    return Replication(max(3, brokers), max(1, min(3, brokers)))


def wanted_configs(kafka: Kafka, topic: str, replicas: int) -> dict[str, str]:
    """Return the settings of a telemetry topic with a number of replicas, one of which may be down."""
    configs = REPORT_CONFIGS if topic in kafka.client_telemetry_topics else REQUEST_LOG_CONFIGS
    return {**configs, "min.insync.replicas": str(max(1, replicas - 1))}


def creation_command(kafka: Kafka, topic: str, brokers: int) -> str:
    """Return the `kafka-topics` command that creates a telemetry topic."""
    spread = replication_for(brokers)
    configs = wanted_configs(kafka, topic, spread.replication_factor)
    options = "".join(f" --config {name}={value}" for name, value in configs.items())
    return (
        f"kafka-topics --bootstrap-server {kafka.bootstrap_servers} --create --topic {topic} "
        f"--partitions {spread.partitions} --replication-factor {spread.replication_factor}{options}"
    )

"""What the telemetry topics have to be like: settings, replicas, and the command that makes one.

Kafka keeps a topic for seven days unless it is told otherwise. The line of a heartbeat is some 700 bytes before
compression: 33,000 lines a second are 2 TB a day, and 14 TB in seven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.kafka_config import Kafka

TELEMETRY_TOPIC: Final = "group-telemetry"
LINE_BYTES: Final = 700
"""A request-log line of a heartbeat, before compression."""
RETENTION_MS: Final = 86_400_000
"""A day: for so long `run` may be away and still learns all that happened."""
_COMMON: Final = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)}
REQUEST_LOG_CONFIGS: Final[Mapping[str, str]] = {
    **_COMMON,
    "max.message.bytes": "16777216",  # as `max.request.size` of the snippet: large groups make large lines
    "message.timestamp.type": "CreateTime",  # the instant of a line is that of the broker's log event
}
REPORT_CONFIGS: Final[Mapping[str, str]] = {
    **_COMMON,
    "message.timestamp.type": "LogAppendTime",  # the instant of a report has to be a broker's
}


class Replication(NamedTuple):
    """How a topic is spread over a number of brokers."""

    partitions: int
    replication_factor: int


def replication_for(brokers: int) -> Replication:
    """Return what is right for so many brokers: a partition for each at least."""
    return Replication(max(3, brokers), max(1, min(3, brokers)))


def wanted_configs(kafka: Kafka, topic: str, replicas: int) -> dict[str, str]:
    """Return the settings of one of the telemetry topics with so many replicas: one of them may be away."""
    configs = REPORT_CONFIGS if topic in kafka.client_telemetry_topics else REQUEST_LOG_CONFIGS
    return {**configs, "min.insync.replicas": str(max(1, replicas - 1))}


def creation_command(kafka: Kafka, topic: str, brokers: int) -> str:
    """Return the `kafka-topics` command that makes a telemetry topic."""
    spread = replication_for(brokers)
    configs = wanted_configs(kafka, topic, spread.replication_factor)
    options = "".join(f" --config {name}={value}" for name, value in configs.items())
    return (
        f"kafka-topics --bootstrap-server {kafka.bootstrap_servers} --create --topic {topic} "
        f"--partitions {spread.partitions} --replication-factor {spread.replication_factor}{options}"
    )

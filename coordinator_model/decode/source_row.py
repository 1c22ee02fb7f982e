"""A row as it is in Kafka, not parsed yet."""

from typing import NamedTuple

OFFSETS = "offsets"
TELEMETRY = "telemetry"
REPORTS = "reports"
CLUSTER = "cluster"
CLIENT_TOPICS = frozenset({"group-client-telemetry"})
"""The topics to which clients report, unless the configuration names others."""


class SourceRow(NamedTuple):
    """A row. ``timestamp_ms`` is the Kafka record's timestamp.

    ``source`` says who may have written the row: only brokers write to the topics of "offsets" and "telemetry", any
    application may write to those of "reports". It follows from the topic, never from the content. "cluster" is not
    from Kafka: its value is what the brokers' metadata said at that instant (``cluster_row``), and its topic is empty.
    """

    source: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def key_text(self) -> str:
        """The record key as text: in telemetry it names the broker."""
        return self.key.decode("utf-8", "replace") if self.key else ""

"""A row as it is in Kafka, not parsed yet."""

from typing import NamedTuple

OFFSETS = "offsets"
TELEMETRY = "telemetry"
REPORTS = "reports"
CLUSTER = "cluster"
CLIENT_TOPICS = frozenset({"group-client-telemetry"})
"""Where clients report unless the configuration names other topics."""


class SourceRow(NamedTuple):
    """``timestamp_ms`` is the Kafka record's timestamp.

    ``source`` says who may have written the row: "offsets" and "telemetry" are the brokers' own topics, "reports" is
    open to every application. The topic decides it, never the content. "cluster" is not from Kafka: its value is what
    the brokers' metadata said at that instant (``cluster_row``), and its topic is empty.
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

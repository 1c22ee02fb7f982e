"""A row as it lies in Kafka, before anybody has looked into it."""

from typing import NamedTuple

OFFSETS = "offsets"
TELEMETRY = "telemetry"


class SourceRow(NamedTuple):
    """``source`` is "offsets" or "telemetry"; ``timestamp_ms`` the Kafka record's timestamp."""

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

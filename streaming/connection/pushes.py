"""Whether a cluster's brokers accept the metrics that clients push (KIP-714), and ask for those about polls."""

from enum import Enum, auto
from typing import Final

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from streaming.client_metrics.plugin import LAST_POLL

PUSH_TELEMETRY: Final = 72
"""The API key. A broker offers this API if it has a plugin that accepts pushes."""
ALL_METRICS: Final = "*"


class Pushes(Enum):
    """What is known about a cluster's pushes."""

    NOT_TAKEN = auto()
    NOT_ASKED_FOR = auto()
    ASKED_FOR = auto()
    TAKEN = auto()
    """Brokers accept pushes; we may not see whether a subscription asks for them."""


def pushes(admin: KafkaAdminClient) -> Pushes:
    """Look at the APIs of the bootstrap broker, then ask for the subscriptions."""
    offered = admin._manager.broker_version_data.api_versions  # noqa: SLF001 # no public way
    if PUSH_TELEMETRY not in (offered or {}):
        return Pushes.NOT_TAKEN
    kind = ConfigResourceType.CLIENT_METRICS
    try:
        names = admin.list_config_resources([kind])["client_metrics"]
        found = (
            admin.describe_configs([ConfigResource(kind, name) for name in names])["client_metrics"] if names else {}
        )
    except KafkaError:
        return Pushes.TAKEN
    values = (subscription.get("metrics", {}).get("value") or "" for subscription in found.values())
    prefixes = [prefix.strip() for value in values for prefix in value.split(",")]
    tell = any(prefix and (prefix == ALL_METRICS or LAST_POLL.startswith(prefix)) for prefix in prefixes)
    return Pushes.ASKED_FOR if tell else Pushes.NOT_ASKED_FOR

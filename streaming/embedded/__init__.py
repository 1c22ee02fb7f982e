"""A real Kafka broker on this machine, for the demo, tests and experiments; it needs `make setup`, but no Docker.

`run` uses only ``fetch``, ``jars`` and ``java``: they find Java, and download and check jars.
"""

from streaming.embedded.cluster import EmbeddedCluster
from streaming.embedded.errors import EmbeddedBrokerError
from streaming.embedded.node import Node
from streaming.telemetry_topics import TELEMETRY_TOPIC

__all__ = ["TELEMETRY_TOPIC", "EmbeddedBrokerError", "EmbeddedCluster", "Node"]

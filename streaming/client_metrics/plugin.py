"""The broker's plugin and the `client-metrics` subscription: with both, brokers ask clients for metrics about polls.

A broker offers clients no subscription unless one of its `metric.reporters` accepts pushes. Our plugin accepts and
drops them. The jar is checked in, because a broker's machine may have no Java compiler; `compile_plugin` makes it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

PLUGIN_JAR: Final = Path(__file__).with_name("accept-pushes.jar")
PLUGIN_CLASS: Final = "kafkagroupmonitor.AcceptPushes"
REPORTERS: Final = f"org.apache.kafka.common.metrics.JmxReporter,{PLUGIN_CLASS}"
"""The value of `metric.reporters`. It includes Kafka's default, which a configured value replaces."""
SUBSCRIPTION: Final = "group-monitor"
LAST_POLL: Final = "org.apache.kafka.consumer.last.poll.seconds.ago"
"""A metric that is read. A subscription names prefixes of metrics."""
POLL_IDLE_RATIO: Final = "org.apache.kafka.consumer.poll.idle.ratio.avg"
"""librdkafka's only metric about polls: 0 if no poll began in the interval of the push."""
POLL_INTERVAL: Final = "org.apache.kafka.consumer.time.between.poll.max"
"""In milliseconds, of the last 30 to 60 s unless the client is configured otherwise. Java only, as the next one."""
HEARTBEAT_AGE: Final = "org.apache.kafka.consumer.coordinator.last.heartbeat.seconds.ago"
REBALANCE: Final = "org.apache.kafka.consumer.coordinator.rebalance"
"""The prefix of the metrics about rebalances; librdkafka has only those about their latency."""
ASSIGNED_PARTITIONS: Final = "org.apache.kafka.consumer.coordinator.assigned.partitions"
"""Java clients and librdkafka have it."""
METRICS: Final = (LAST_POLL, POLL_IDLE_RATIO, POLL_INTERVAL, HEARTBEAT_AGE, REBALANCE, ASSIGNED_PARTITIONS)
INTERVAL_MS: Final = 5_000
"""The push interval on the embedded broker. Kafka's default is five minutes."""


def subscription(interval_ms: int = INTERVAL_MS) -> Mapping[str, str]:
    """Return the configuration of the `client-metrics` resource."""
    return {"metrics": ",".join(METRICS), "interval.ms": str(interval_ms)}

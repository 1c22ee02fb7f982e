"""What makes brokers accept and ask for the metrics that tell of polls: a plugin, and a `client-metrics` subscription.

Kafka offers clients no subscription unless one of its `metric.reporters` takes pushes; ours takes them and drops them.
The jar is checked in, because a broker's machine may have no Java compiler; `compile_plugin` makes it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

PLUGIN_JAR: Final = Path(__file__).with_name("accept-pushes.jar")
PLUGIN_CLASS: Final = "kafkagroupmonitor.AcceptPushes"
REPORTERS: Final = f"org.apache.kafka.common.metrics.JmxReporter,{PLUGIN_CLASS}"
"""`metric.reporters` with Kafka's default, which a value of one's own replaces."""
SUBSCRIPTION: Final = "group-monitor"
LAST_POLL: Final = "org.apache.kafka.consumer.last.poll.seconds.ago"
"""A metric that is read; a subscription names prefixes."""
POLL_IDLE_RATIO: Final = "org.apache.kafka.consumer.poll.idle.ratio.avg"
"""The only one about polls that librdkafka has: 0 where no poll began in the interval of the push."""
POLL_INTERVAL: Final = "org.apache.kafka.consumer.time.between.poll.max"
"""In milliseconds, of the last 30 to 60 s unless the client is set otherwise; Java only, as what follows."""
HEARTBEAT_AGE: Final = "org.apache.kafka.consumer.coordinator.last.heartbeat.seconds.ago"
REBALANCE: Final = "org.apache.kafka.consumer.coordinator.rebalance"
"""How the names begin of what tells of rebalances; librdkafka has those of their latency."""
ASSIGNED_PARTITIONS: Final = "org.apache.kafka.consumer.coordinator.assigned.partitions"
"""Both have it."""
METRICS: Final = (LAST_POLL, POLL_IDLE_RATIO, POLL_INTERVAL, HEARTBEAT_AGE, REBALANCE, ASSIGNED_PARTITIONS)
INTERVAL_MS: Final = 5_000
"""Of the embedded broker. Kafka's default is five minutes."""


def subscription(interval_ms: int = INTERVAL_MS) -> Mapping[str, str]:
    """Return the configuration of the `client-metrics` resource."""
    return {"metrics": ",".join(METRICS), "interval.ms": str(interval_ms)}

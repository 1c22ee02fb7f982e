"""What makes brokers accept and ask for the metrics that tell of polls: a plugin, and a `client-metrics` subscription.

Kafka offers clients no subscription unless one of its `metric.reporters` takes pushes; ours takes them and drops them.
The jar is checked in, because who runs a broker may have no Java compiler; `compile_plugin` makes it.
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
INTERVAL_MS: Final = 5_000
"""Of the embedded broker. Kafka's default is five minutes."""


def subscription(interval_ms: int = INTERVAL_MS) -> Mapping[str, str]:
    """Return the configuration of the `client-metrics` resource."""
    return {"metrics": f"{LAST_POLL},{POLL_IDLE_RATIO}", "interval.ms": str(interval_ms)}

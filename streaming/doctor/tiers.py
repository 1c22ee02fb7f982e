"""What further sources of telemetry would add, and the command that switches each one on."""

from collections.abc import Iterator
from typing import Final

from streaming.client_metrics.plugin import SUBSCRIPTION, subscription
from streaming.config.kafka import Kafka
from streaming.connection.pushes import Pushes
from streaming.doctor.check import Check, ok
from streaming.log4j2 import Snippet, as_yaml
from streaming.log4j2_security import security_of
from streaming.telemetry_topics import TELEMETRY_TOPIC
from streaming.tiers import COORDINATOR_LOG, REQUEST_LOG

NAME: Final = "would add"
BELOW: Final = "printed below"


def would_add(tier: int, *, reports: bool, has_topic: bool, pushes: Pushes) -> Iterator[Check]:
    """Yield a line for each source that is missing.

    `tier`: the cluster's; `reports`: whether clients report; `has_topic`: whether there is a topic for their reports.
    """
    if tier < COORDINATOR_LOG:
        added = "why each member was removed, after the fact, without a cost per request"
        yield ok(NAME, f"tier 1, the coordinators' INFO lines: {added}: `group-monitor log4j2 --tier 1`")
    if tier < REQUEST_LOG:
        added = "which members are alive, the time left of each session, rebalances and violations as they happen"
        yield ok(NAME, f"tier 2, the request log: {added}: `group-monitor log4j2`, {BELOW}")
    if pushes in (Pushes.NOT_TAKEN, Pushes.NOT_ASKED_FOR):
        added = "how long ago Java clients polled, and which librdkafka clients hang, by tier 2"
        missing = "a plugin (docs/polls.md), then" if pushes is Pushes.NOT_TAKEN else "the brokers have a plugin;"
        yield ok(NAME, f"clients' pushed metrics: {added}: {missing} `{_subscribe()}`")
    if not reports:
        added = "when each application last polled, on top of any tier"
        missing = "" if has_topic else "`group-monitor doctor --create-topics`, then "
        yield ok(NAME, f"clients' reports: {added}: {missing}streaming.reporter (docs/polls.md)")


def _subscribe() -> str:
    metrics = subscription()["metrics"]
    alter = f"kafka-configs --alter --entity-type client-metrics --entity-name {SUBSCRIPTION}"
    return f"{alter} --add-config metrics=[{metrics}],interval.ms=30000"


def snippet(kafka: Kafka) -> str:
    """Return the log4j2 file of tier 2 for this cluster, as `group-monitor log4j2 --config` prints it."""
    topic = next(iter(kafka.telemetry_topics), TELEMETRY_TOPIC)
    return as_yaml(Snippet(kafka.bootstrap_servers, topic, properties=security_of(kafka)))

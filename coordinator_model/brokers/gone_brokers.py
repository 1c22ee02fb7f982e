"""Which brokers have left the cluster. A shard that kept them would report them as silent for ever."""

from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker

GONE_MS = 86_400_000
"""A broker that metadata does not list and that has been silent for this long has left the cluster. Metadata does not
list a broker that is down either, so this is longer than an outage that nobody has noticed yet."""


def forget_gone(clock: CoordinatorTracker) -> None:
    """Forget the brokers that have left: silent for long, by metadata's clock and by another broker's."""
    listed = {clock.coordinator, clock.leadership.leader, *clock.leadership.others}
    heard_ms = {
        name: max(broker.line_ms, *broker.read_ms.values(), 0) - broker.stepped_ms
        for name, broker in clock.brokers.items()
    }
    gone_ms = min(clock.leadership.named_ms, max(heard_ms.values(), default=0)) - GONE_MS
    for name, at_ms in heard_ms.items():
        if at_ms < gone_ms and name not in listed:
            del clock.brokers[name]

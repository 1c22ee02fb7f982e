"""How far the clocks that date events have stepped apart.

The instants of two clocks are compared only after one of them is converted: by what its clock has stepped more than the
other one. How far clocks differ that have never stepped is not known.
"""

from dataclasses import dataclass, field

from coordinator_model.brokers.one_clock import BrokerClock
from coordinator_model.events import Event, LeaderNamed


@dataclass(slots=True)
class SteppedClocks:
    """The clocks of one shard's brokers, and which of them is the coordinator's."""

    brokers: dict[str, BrokerClock] = field(default_factory=dict)
    coordinator: str | None = None

    def stepped_ms(self, broker: str) -> int:
        """Return how far a broker's clock has stepped."""
        clock = self.brokers.get(broker)
        return 0 if clock is None else clock.stepped_ms

    def apart_ms(self, broker: str) -> int:
        """Return how far a broker's clock is from the coordinator's, because one of them stepped."""
        return self.stepped_ms(broker) - self.stepped_ms(self.coordinator or "")

    @property
    def agree(self) -> bool:
        """Whether no broker's clock has stepped."""
        return not any(clock.stepped_ms for clock in self.brokers.values())

    def ahead_ms(self, event: Event) -> int:
        """Return how far the clock that dated an event has stepped away from the coordinator's.

        Metadata is dated by a clock that does not step.
        """
        if isinstance(event, LeaderNamed):
            return self.apart_ms("")
        return self.broker_ahead_ms(getattr(event, "broker", ""))

    def broker_ahead_ms(self, broker: str) -> int:
        """Return the same for what a broker dated. What names no broker, as a record, counts as the coordinator's."""
        return self.apart_ms(broker) if broker else 0

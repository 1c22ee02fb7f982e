"""Brokers that another has taken over from, and that go on answering as coordinators because they do not know it yet.

A broker learns from the controller that it leads no longer. Until it has, it answers clients as before: heartbeats are
accepted, members join and leave, and nothing of it is ever written. The next coordinator knows of none of that, so such
an answer restarts no session there. It ends with the first refusal, or with silence.
"""

from dataclasses import dataclass, field

GOES_ON_MS = 15_000
"""Longer without an answer it has stopped: one that comes after that is of a new term."""
MAX_FORMER = 16


@dataclass(slots=True)
class FormerCoordinators:
    """Of one shard."""

    answered_ms: dict[str, int] = field(default_factory=dict)
    """Broker to its last answer as a coordinator, which it is not."""
    contested_ms: int = 0
    """When one of them last answered so; 0: never."""

    def supersede(self, broker: str, at_ms: int) -> None:
        """Note that another broker has taken over from this one."""
        if len(self.answered_ms) >= MAX_FORMER and broker not in self.answered_ms:
            del self.answered_ms[min(self.answered_ms, key=lambda name: self.answered_ms[name])]
        self.answered_ms[broker] = at_ms

    def goes_on(self, broker: str, at_ms: int) -> bool:
        """Tell whether an answer is of one of them, that goes on."""
        last_ms = self.answered_ms.get(broker)
        if last_ms is None or at_ms - last_ms > GOES_ON_MS:
            self.answered_ms.pop(broker, None)
            return False
        self.answered_ms[broker] = max(last_ms, at_ms)
        self.contested_ms = max(self.contested_ms, at_ms)
        return True

    def reinstate(self, broker: str) -> None:
        """Believe a broker again: it has refused, or it coordinates."""
        self.answered_ms.pop(broker, None)

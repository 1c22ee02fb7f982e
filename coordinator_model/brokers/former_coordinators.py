"""Former coordinators: brokers that still answer although another broker has taken over.

A broker learns from the controller that it is no longer the leader. Until then it accepts heartbeats, joins and leaves,
but cannot write them. The new coordinator does not know about them, so they do not restart any session there. A broker
is no longer a former coordinator once it refuses a request, stops answering, or has answered for longer than a deposed
broker does. An answer that is given only after a record was written also ends it: the broker was elected again.
"""

from dataclasses import dataclass, field

GOES_ON_MS = 15_000
"""A former coordinator that has not answered for this long has stopped. A later answer belongs to a new term."""
LONGEST_MS = 60_000
"""A broker that still answers as the coordinator after this time coordinates again: a deposed one notices sooner."""
MAX_FORMER = 16
SURELY_AFTER_MS = 2_000
"""A request that a broker received this long after another took over surely came later, even if the clocks differ."""
MAX_ANNOUNCED = 256
"""How many groups are kept in ``announced``."""


@dataclass(slots=True)
class FormerCoordinators:
    """The former coordinators of one shard."""

    answered_ms: dict[str, int] = field(default_factory=dict)
    """By former coordinator: when it last answered."""
    superseded_ms: dict[str, int] = field(default_factory=dict)
    """By former coordinator: when another broker took over from it."""
    announced: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By group: the former coordinator that last answered its JoinGroups with a new generation, and that generation."""

    def supersede(self, broker: str, at_ms: int) -> None:
        """Note that another broker has taken over from this one."""
        if len(self.answered_ms) >= MAX_FORMER and broker not in self.answered_ms:
            self.reinstate(min(self.answered_ms, key=lambda name: self.answered_ms[name]))
        self.answered_ms[broker] = at_ms
        self.superseded_ms.setdefault(broker, at_ms)

    def note_answer(self, broker: str, at_ms: int) -> bool:
        """Note a broker's answer. Return whether the broker is a former coordinator that still answers."""
        last_ms = self.answered_ms.get(broker)
        if last_ms is None:
            return False
        if at_ms - last_ms > GOES_ON_MS or at_ms - self.superseded_ms[broker] > LONGEST_MS:
            self.reinstate(broker)
            return False
        self.answered_ms[broker] = max(last_ms, at_ms)
        return True

    def was_superseded_before(self, broker: str, arrival_ms: int) -> bool:
        """Tell whether another broker had surely taken over from this one when a request arrived."""
        since_ms = self.superseded_ms.get(broker)
        return since_ms is not None and arrival_ms >= since_ms + SURELY_AFTER_MS

    def announce(self, broker: str, group: str, generation: int, arrival_ms: int) -> None:
        """Note a generation that no record names, in the answer to a JoinGroup.

        It counts only if the broker had surely been replaced when the request arrived.
        """
        if not self.was_superseded_before(broker, arrival_ms):
            return
        self.announced[group] = (broker, generation)
        if len(self.announced) > MAX_ANNOUNCED:
            del self.announced[next(iter(self.announced))]

    def has_written(self, broker: str, group: str, generation: int) -> bool:
        """Tell whether a SyncGroup answered with 0 shows that a former coordinator was elected again.

        A member is synced once the record of its generation is in the log (``GroupMetadataManager.classicGroupSync``),
        and a deposed coordinator cannot write it.
        """
        return self.announced.get(group) == (broker, generation)

    def reinstate(self, broker: str) -> None:
        """Forget a broker, because it refused or is the coordinator again."""
        self.answered_ms.pop(broker, None)
        self.superseded_ms.pop(broker, None)
        self.announced = {group: told for group, told in self.announced.items() if told[0] != broker}

    def clear(self) -> None:
        """Forget all of them."""
        self.answered_ms.clear()
        self.superseded_ms.clear()
        self.announced.clear()

"""Heartbeats that a shard's coordinator accepted, of any group: proof that it answered, and so that its timers ran."""

from dataclasses import dataclass, field

STEP_MS = 100
"""At most one heartbeat is kept in this time."""
MOST = 600
"""Heartbeats kept per shard: those of a minute, which is far longer than any grace."""


@dataclass(slots=True)
class AcceptedHeartbeats:
    """The newest accepted heartbeats of one shard, thinned."""

    kept: list[tuple[int, int]] = field(default_factory=list)
    """(line instant, greatest arrival), oldest first."""

    @property
    def next_ms(self) -> int:
        """From when on the next heartbeat is kept."""
        return self.kept[-1][0] + STEP_MS if self.kept else 0

    @property
    def newest_arrival_ms(self) -> int:
        """The latest arrival of an accepted heartbeat; 0: none is known."""
        return self.kept[-1][1] if self.kept else 0

    def note(self, line_ms: int, arrival_ms: int) -> bool:
        """Note a heartbeat that arrived at ``arrival_ms``, with its line at ``line_ms``. Return whether it is kept."""
        if line_ms < self.next_ms:
            return False
        self.kept.append((line_ms, max(arrival_ms, self.newest_arrival_ms)))
        if len(self.kept) > MOST:
            del self.kept[: MOST // 2]
        return True

    def settled_ms(self, arrival_ms: int, grace_ms: int) -> int | None:
        """Return when the first heartbeat that arrived at ``arrival_ms`` or later is ``grace_ms`` old; None: none."""
        return next((line_ms + grace_ms for line_ms, best_ms in self.kept if best_ms >= arrival_ms), None)

    def settled_arrival_ms(self, at_ms: int, grace_ms: int) -> int:
        """Return the latest arrival among heartbeats whose line is ``grace_ms`` old at ``at_ms``; drop older ones."""
        while len(self.kept) > 1 and self.kept[1][0] <= at_ms - grace_ms:
            del self.kept[0]
        return self.kept[0][1] if self.kept and self.kept[0][0] <= at_ms - grace_ms else 0

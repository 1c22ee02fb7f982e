"""Which broker leads a shard according to metadata, and how to treat an answer that contradicts metadata.

In Kafka, the leader of a partition of the offsets topic is the coordinator of its groups. Metadata is fetched every few
seconds, so after a failover the new coordinator answers before metadata names it. Such an answer is *disputed*: the
coordinator is not moved until metadata agrees. Old metadata disputes nothing. The dispute also ends if the broker
answers as the coordinator for a minute while the leader that metadata names gives no answer.

Metadata is dated by the machine that fetched it, and answers by their brokers. So all instants here are those of the
other clocks: each broker's, less its steps (``BrokerClock.stepped_ms``). ``CoordinatorTracker`` converts them.
"""

from dataclasses import dataclass, field

from coordinator_model.brokers.coordinator_check import Proof
from coordinator_model.events import LeaderNamed

STALE_MS = 15_000
"""Three times the interval at which metadata is fetched. Older metadata disputes no answer."""
DISPUTE_MS = 60_000
UNLOGGED_AFTER_MS = 15_000
"""A leader whose telemetry key is unknown for this long has no request log: a probe makes two lines a second there."""
MAX_CLAIMS = 16


@dataclass(slots=True)
class Claim:
    """A broker's answers as the coordinator that contradict metadata."""

    first_ms: int
    last_ms: int
    blind_ms: int | None = None
    """The first answer that it may have given while it was loading."""
    sure_ms: int | None = None
    """The first answer that proves that it has loaded."""

    def moved(self, by_ms: int) -> "Claim":
        """Return the same answers by a clock that differs by ``by_ms``."""
        blind_ms, sure_ms = (at_ms if at_ms is None else at_ms + by_ms for at_ms in (self.blind_ms, self.sure_ms))
        return Claim(self.first_ms + by_ms, self.last_ms + by_ms, blind_ms, sure_ms)


@dataclass(slots=True)
class Leadership:
    """What metadata last said about one shard. ``named_ms`` 0: nothing yet."""

    named_ms: int = 0
    node: int = -1
    leader: str = ""
    """The leader's telemetry key; empty while it is unknown."""
    others: tuple[str, ...] = ()
    """Keys of brokers that are known not to lead."""
    unlogged_ms: int | None = None
    """Since when metadata names a leader whose telemetry key is unknown."""
    claims: dict[str, Claim] = field(default_factory=dict)
    epoch: int = -1
    """The leader epoch, or the next one if the leader has resigned since; -1: unknown."""
    replaced_ms: int = 0
    """When metadata last named the leader before this one."""
    resigned_ms: int = 0
    """When the leader that metadata names last answered that it does not coordinate (16)."""

    def name(self, event: LeaderNamed) -> bool | None:
        """Apply what metadata says now. Return whether the leader has changed; None: the metadata is outdated.

        Outdated metadata is ignored: it was fetched earlier, or from a broker that knows only an earlier leader epoch.
        """
        if self.named_ms - DISPUTE_MS <= event.order_ms < self.named_ms or self._is_outdated(event):
            return None
        if event.order_ms < self.named_ms:
            self._forget_instants()
        another = event.node != self.node
        if another:
            self.replaced_ms = self.named_ms
        if event.key or event.node != self.node:
            self.unlogged_ms = None
        if not event.key and self.unlogged_ms is None:
            self.unlogged_ms = event.order_ms
        self.named_ms, self.node, self.epoch = event.order_ms, event.node, event.epoch
        self.leader, self.others = event.key, tuple(event.others)
        return another

    def _forget_instants(self) -> None:
        """Forget the instants of an older monitor's state: they are by a coordinator's clock that had stepped ahead."""
        self.claims.clear()
        self.named_ms, self.unlogged_ms, self.replaced_ms, self.resigned_ms = 0, None, 0, 0

    def _is_outdated(self, event: LeaderNamed) -> bool:
        """Tell whether the epoch is outdated. An earlier epoch that comes much later means a recreated topic."""
        return 0 <= event.epoch < self.epoch and event.order_ms <= self.named_ms + DISPUTE_MS

    @property
    def unlogged(self) -> bool:
        """Whether the leader seems to have no request log."""
        return self.unlogged_ms is not None and self.named_ms >= self.unlogged_ms + UNLOGGED_AFTER_MS

    def resign(self, broker: str, at_ms: int, *, had_led: bool) -> None:
        """Note that a broker answered NOT_COORDINATOR (16).

        ``had_led``: it has answered as the coordinator before, so its leader epoch is over. Otherwise metadata may have
        named it before it knew itself that it leads.
        """
        if broker != self.leader:
            return
        if had_led and self.epoch >= 0 and self.resigned_ms <= self.named_ms:
            self.epoch += 1
        self.resigned_ms = max(self.resigned_ms, at_ms)

    def disputes(self, broker: str, proof: Proof, line_ms: int, leader_answered_ms: int) -> bool:
        """Tell whether metadata disputes an answer that only a coordinator gives. Remember a disputed answer."""
        if line_ms > self.named_ms + STALE_MS or broker not in self.others:
            return False  # metadata is unknown or old, or the broker has another key, such as a second listener
        if self.resigned_ms > self.named_ms:
            return False  # since then, the leader that metadata names has answered that it is not the coordinator
        claim = self._claim(broker, line_ms)
        claim.last_ms = max(claim.last_ms, line_ms)
        if proof is Proof.COORDINATES and claim.sure_ms is None:
            claim.sure_ms = line_ms
        elif proof is Proof.LEADS and claim.blind_ms is None:
            claim.blind_ms = line_ms
        return claim.last_ms - claim.first_ms < DISPUTE_MS or leader_answered_ms >= claim.first_ms

    def was_claimed(self, broker: str, at_ms: int) -> bool:
        """Tell whether a broker answered as the coordinator before an instant, so metadata was outdated then."""
        return broker in self.claims and self.claims[broker].first_ms < at_ms

    def take_claim(self, broker: str, at_ms: int) -> Claim | None:
        """Return and drop the claim of a broker that takes over; None: it has none, or only an outdated one."""
        claim = self.claim_of(broker, at_ms)
        self.claims.pop(broker, None)
        return claim

    def claim_of(self, broker: str, at_ms: int) -> Claim | None:
        """Return a broker's answers that contradict metadata; None: there are none, or only outdated ones."""
        claim = self.claims.get(broker)
        return None if claim is None or at_ms > claim.last_ms + STALE_MS else claim

    def _claim(self, broker: str, line_ms: int) -> Claim:
        """Return a broker's claim. If it has none, or its last answer is old, begin a new claim."""
        claim = self.claims.get(broker)
        if claim is None or line_ms > claim.last_ms + STALE_MS:
            if claim is None and len(self.claims) >= MAX_CLAIMS:
                del self.claims[min(self.claims, key=lambda name: self.claims[name].last_ms)]
            claim = self.claims[broker] = Claim(line_ms, line_ms)
        return claim

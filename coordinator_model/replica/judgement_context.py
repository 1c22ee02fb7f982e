"""What is needed of a shard to judge one of its groups."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from coordinator_model.added_partitions import Added
from coordinator_model.brokers.blindness import BlindWindow
from coordinator_model.brokers.leadership import STALE_MS, Claim
from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.thresholds import Thresholds


class Commits(Protocol):
    """When offsets of a group's partitions were last committed."""

    def get(self, place: tuple[str, int], /) -> int | None:
        """Return the instant of the last accepted offset commit of (topic, partition)."""


class JudgementContext(NamedTuple):
    """What is needed of the shard to judge one group when its coordinator's clock shows ``progress_ms``."""

    progress_ms: int
    broker: str
    timer_resets: Sequence[TimerReset]
    commits: Commits
    live_from_ms: int
    covered_since_ms: int
    proof_arrival_ms: int
    """When the newest of those heartbeats of the shard arrived whose lines are at least a grace old."""
    consumer_session_timeout_ms: int | None
    thresholds: Thresholds
    topic_partitions: Mapping[str, int] = MappingProxyType({})
    """Topic to its number of partitions, as far as the brokers were asked."""
    added_partitions: Added = MappingProxyType({})
    """Topic to the partitions that were added to it while it was watched."""
    stalled: bool = False
    """Whether the coordinator's telemetry stands still: then no member is known to be alive."""
    blind: Sequence[BlindWindow] = ()
    """When lines of the shard's coordinator are missing."""
    hole_is_open: bool = False
    """Whether it is not known yet if the latest hole in the coordinator's lines is a pause or missing lines."""
    by_records: bool = False
    """Whether records are all that is seen of the group's coordinator: no heartbeat and no leave is seen."""
    coordinates_ms: int = 0
    """When the newest accepted heartbeat of the shard arrived: its broker was still the coordinator then."""
    claims: Collection[Claim] = ()
    """The answers of brokers that answer as the coordinator although metadata names another broker."""
    last_gap_ms: tuple[int, int] = (0, 0)
    """The last gap in the coordinator's lines (``one_clock``): its last line before it and its first one after it."""
    dates_are_doubtful: bool = False
    """Whether records contradict the dates of a broker's lines (``LineDates.doubtful``)."""
    dates_are_far_apart: bool = False
    """Whether the dates of a line and a record of one event are far apart (``LineDates.are_far_apart``)."""
    off_by_ms: int = 0
    """How far the dates of the coordinator's lines may be off: several lines share one, or are in disorder."""
    reported: Mapping[str, str] = MappingProxyType({})
    """Findings about the group as a whole that its last report had, and how severe each was: what is reported goes on
    while nothing is known of the group."""

    @property
    def leave_grace_ms(self) -> int:
        """How long after a removal the line of the leave that explains it may be dated."""
        return self.thresholds.grace_ms + self.off_by_ms

    @property
    def waiting(self) -> bool:
        """Whether the last timer reset is still open: the coordinator has answered nothing since."""
        return bool(self.timer_resets) and self.timer_resets[-1].high_ms is None

    def disputed_until_ms(self, at_ms: int) -> int:
        """Return until when other brokers' answers around an instant make it doubtful who coordinates; 0: it is clear.

        Metadata contradicts them. If it still does after that time, it is right. The brokers' clocks may differ.
        """
        begun_ms = (claim.first_ms for claim in self.claims if abs(at_ms - claim.first_ms) < STALE_MS)
        return max((first_ms + STALE_MS for first_ms in begun_ms), default=0)

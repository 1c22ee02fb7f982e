"""The type of a departure."""

from dataclasses import dataclass, field

from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.phases import EndedPhase
from coordinator_model.states import Cause, Evidence

STALL_MS = 5_000
"""How long a request waits for a write that stalls before it is answered 15 (`offsets.commit.timeout.ms`)."""


@dataclass(slots=True)
class Departure:
    """A member that is gone, and what is known about the cause."""

    member: Member
    rule: str | None
    """The rule that reports the removal; None: it is explained, so nothing is reported."""
    cause: Cause
    evidence: Evidence
    removed_ms: int
    """When it was removed, as far as that is known: when an answer or a record first shows that it is gone."""
    deadline_ms: int | None
    """The deadline that the member missed; None: not judged yet, or the cause is unknown."""
    generation: int
    broker: str
    judge_after_ms: int
    """The removal is not judged before progress has reached this instant: a line that explains it may come late."""
    timer_reset_ms: int | None = None
    """When the coordinator's pause or move began, if that is the cause."""
    deadline_from_ms: int | None = None
    """Start of the interval in which the deadline lies, if no more is known; None: ``deadline_ms`` is exact."""
    deadline_until_ms: int | None = None
    """End of that interval."""
    judged: bool = True
    """Whether the removal has been judged, which is not done before ``judge_after_ms``."""
    judge_again: bool = False
    """Whether it is judged again if a move of its coordinator becomes known later: nothing explained it so far."""
    answered_by: str = ""
    """The broker whose answer no longer listed it, which was the coordinator then. Empty: a record no longer listed
    it."""
    touches_ms: list[int] = field(default_factory=list)
    """When its session timer may have been restarted before the removal, which is not certain."""
    phase: EndedPhase = field(default_factory=EndedPhase)
    """The join phase after which it was gone; empty if its group has no join phases."""
    found_ms: int = 0
    """When it was found gone. That is later than ``removed_ms`` if the unreported phase had removed it."""
    sync_timeout_ms: int | None = None
    """How much time it had to sync after it joined; None: it did not have to."""
    successor: str | None = None
    """The id of the static member that replaced it.

    The replacement explains the removal unless the session of this member had ended before.
    """
    may_be_retried: bool = False
    """Whether a timer that had removed the former member may have run again and removed this one."""
    lines_were_behind: bool = False
    """Whether the lines of that time came more than ``hold_ms`` later than the record that no longer lists it."""
    returned_ms: int | None = None
    returned_as: str | None = None
    """The member id under which it came back."""
    seen_generation: int | None = None
    """The last generation that lists it, if only records are read; None: answers are read too."""
    from_log: bool = False
    """Whether the coordinator's own log says why and when it was removed."""
    refuted_ms: int | None = None
    """When the coordinator's own log named another cause, of which the request log has no line."""

    @property
    def is_over(self) -> bool:
        """Whether it was reported and its incident is over: it is kept only to recognise the same removal."""
        return self.judged and self.rule is None and self.deadline_ms is not None

    @property
    def gone_ms(self) -> int:
        """When it was found gone. A line that is dated earlier only came late."""
        return max(self.removed_ms, self.found_ms)

    @property
    def answered_ms(self) -> int:
        """By when a leave that came before ``gone_ms`` has been answered, even if it waited for a stalled write."""
        return self.gone_ms + STALL_MS

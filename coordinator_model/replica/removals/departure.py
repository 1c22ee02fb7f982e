"""A member that is gone, and what is known of why."""

from dataclasses import dataclass, field

from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.phases import EndedPhase
from coordinator_model.states import Cause, Evidence

STALL_MS = 5_000
"""How long a request waits for a write that stalls before it is answered 15 (`offsets.commit.timeout.ms`)."""


@dataclass(slots=True)
class Departure:
    """A member that is gone, and what is known of why; ``rule`` None: explained, no incident."""

    member: Member
    rule: str | None
    cause: Cause
    evidence: Evidence
    removed_ms: int
    """The instant at which its absence became a fact."""
    deadline_ms: int | None
    generation: int
    broker: str
    judge_after_ms: int
    """Not judged before progress has come here: the explanation may trail."""
    timer_reset_ms: int | None = None
    """Where a coordinator's pause or move is the cause: when that began."""
    deadline_from_ms: int | None = None
    """The deadline lies between these two, where only that is known, as after a move; None: ``deadline_ms`` is it."""
    deadline_until_ms: int | None = None
    judged: bool = True
    """Whether it is known what the removal proves: not before ``judge_after_ms``."""
    judge_again: bool = False
    """Nothing known explained it; a move of its coordinator that becomes known later may."""
    answered_by: str = ""
    """The broker whose answer no longer had it: it was the coordinator then. Empty: a record no longer had it."""
    touches_ms: list[int] = field(default_factory=list)
    """Uncertain restarts of the session timer before the removal."""
    phase: EndedPhase = field(default_factory=EndedPhase)
    """The join phase that lost it, if its group has one."""
    found_ms: int = 0
    """When it was found gone, where that is later: an earlier phase had lost it."""
    sync_timeout_ms: int | None = None
    """How long it had to sync, once it had joined."""
    successor: str | None = None
    """The static member that came in its place: that explains its absence, unless it had gone before."""
    may_be_retried: bool = False
    """Whether the timer that removed the member's former self may have been tried again, and removed this one."""
    lines_were_behind: bool = False
    """Whether its record was applied long before the lines of its time: they came more than ``hold_ms`` late."""
    returned_ms: int | None = None
    returned_as: str | None = None
    """The member id under which it came back."""
    seen_generation: int | None = None
    """Where only records are read: the last generation that it is seen in; None: answers are seen too."""
    from_log: bool = False
    """Whether the coordinator's own log says why, and when it was removed."""
    refuted_ms: int | None = None
    """When that log was seen to name another cause, of which the request log has no line."""

    @property
    def gone_ms(self) -> int:
        """When it was found gone: a line of before then only trails."""
        return max(self.removed_ms, self.found_ms)

    @property
    def answered_ms(self) -> int:
        """By when a leave of before then is answered, though it had to wait for a write."""
        return self.gone_ms + STALL_MS

"""A member that is gone, and what is known of why."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator_model.replica.removals.phases import EndedPhase
from coordinator_model.states import Cause, Evidence

if TYPE_CHECKING:
    from coordinator_model.replica.group import Member

STALL_MS = 5_000
"""How long a request waits for a write that stalls before it is answered 15 (`offsets.commit.timeout.ms`)."""


@dataclass(slots=True)
class Departure:
    """A member that is gone, and what the replica holds of why; ``rule`` None: explained, no incident."""

    member: "Member"
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
    concluded: bool = True
    """False: what the removal proves is not known before ``judge_after_ms``."""
    unexplained: bool = False
    """Nothing known explained it as it was judged first."""
    told_by: str = ""
    """The broker whose answer told the absence: that it was the coordinator then. Empty: a record told it."""
    touches_ms: list[int] = field(default_factory=list)
    """Uncertain restarts of the session timer before the removal."""
    phase: EndedPhase = field(default_factory=EndedPhase)
    """The join phase that lost it, if its group has one."""
    found_ms: int = 0
    """When its absence was told, where that is later: of a phase before the one that told it."""
    sync_timeout_ms: int | None = None
    """How long it had to sync, once it had joined."""
    successor: str | None = None
    """The static member that came for its place: explains its absence unless it had gone before."""
    may_be_retried: bool = False
    """Whether the timer that removed the member's former self may have been tried again, and removed this one."""
    lines_were_behind: bool = False
    """Whether its record was applied long before the lines of its time: they came more than ``hold_ms`` late."""
    returned_ms: int | None = None
    returned_as: str | None = None
    """The member id under which it came back."""
    seen_generation: int | None = None
    """Where only records tell: the last generation that it is seen in; None: answers are seen too."""
    from_log: bool = False
    """Whether the coordinator's own log tells why, and when it was removed."""
    refuted_ms: int | None = None
    """When that log told of another cause, of which the request log has no line."""

    @property
    def gone_ms(self) -> int:
        """When its absence was told: a line of before then only trails."""
        return max(self.removed_ms, self.found_ms)

    @property
    def answered_ms(self) -> int:
        """By when a goodbye of before then is answered, though it had to wait for a write."""
        return self.gone_ms + STALL_MS

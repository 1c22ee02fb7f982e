"""A member that is gone, and what is known of the cause."""

from dataclasses import dataclass, field

from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.phases import EndedPhase
from coordinator_model.states import Cause, Evidence

STALL_MS = 5_000
"""How long a request waits for a write that stalls before it is answered 15 (`offsets.commit.timeout.ms`)."""


@dataclass(slots=True)
class Departure:
    """A member that is gone, and what is known of the cause.

    ``rule`` None: it is explained, so there is no incident.
    """

    member: Member
    rule: str | None
    cause: Cause
    evidence: Evidence
    removed_ms: int
    """When it was removed, as far as that is known: when an answer or a record first shows that it is gone."""
    deadline_ms: int | None
    generation: int
    broker: str
    judge_after_ms: int
    """It is not judged before progress has reached this instant: a line that explains it may come late."""
    timer_reset_ms: int | None = None
    """When the coordinator's pause or move began, if that is the cause."""
    deadline_from_ms: int | None = None
    """Start of the interval in which the deadline lies, if no more is known; None: ``deadline_ms`` is exact."""
    deadline_until_ms: int | None = None
    """End of that interval."""
    judged: bool = True
    """Whether the removal has been judged, which is not done before ``judge_after_ms``."""
    judge_again: bool = False
    """Nothing explained it so far, but a move of its coordinator that becomes known later may."""
    answered_by: str = ""
    """The broker whose answer no longer listed it, the coordinator then. Empty: a record no longer listed it."""
    touches_ms: list[int] = field(default_factory=list)
    """Uncertain restarts of the session timer before the removal."""
    phase: EndedPhase = field(default_factory=EndedPhase)
    """The join phase after which it was gone, if its group has join phases."""
    found_ms: int = 0
    """When it was found gone, if that is later than ``removed_ms``: it was already gone after an earlier phase."""
    sync_timeout_ms: int | None = None
    """How much time it had to sync after it joined; None: it did not have to."""
    successor: str | None = None
    """The id of the static member that replaced it.

    The replacement explains the removal unless its session had ended before.
    """
    may_be_retried: bool = False
    """Whether the timer that removed the member's former self may have been tried again, and removed this one."""
    lines_were_behind: bool = False
    """Whether the lines of that time came more than ``hold_ms`` later than the record that no longer lists it."""
    returned_ms: int | None = None
    returned_as: str | None = None
    """The member id under which it came back."""
    seen_generation: int | None = None
    """The last generation that lists it, where only records are read; None: answers are read too."""
    from_log: bool = False
    """Whether the coordinator's own log says why, and when it was removed."""
    refuted_ms: int | None = None
    """When the coordinator's log named another cause, of which the request log has no line."""

    @property
    def gone_ms(self) -> int:
        """When it was found gone. A line of before this instant only came late."""
        return max(self.removed_ms, self.found_ms)

    @property
    def answered_ms(self) -> int:
        """By when a leave of before ``gone_ms`` has been answered, even if it waited for a stalled write."""
        return self.gone_ms + STALL_MS

"""A removal that is to be judged, and the typed answers that a cause may give.

A cause is a pure function of a ``Case``. It answers ``Missed`` (the member missed a phase of the rebalance, or a timer
of its own), ``NotMissed`` (it did not, so only the end of its session can be why), or None: this cause does not tell,
and the next one is asked.
"""

from dataclasses import dataclass
from functools import cached_property

from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.removal_instant import context_before
from coordinator_model.replica.session_timer import JudgementContext, latest_deadline_ms
from coordinator_model.states import Cause


@dataclass(frozen=True, slots=True)
class Missed:
    """The member had to rejoin, sync or revoke by then, and did not."""

    deadline_ms: int


@dataclass(frozen=True, slots=True)
class NotMissed:
    """No phase of the rebalance has removed the member: its session has ended, or nothing known explains it."""


Answer = Missed | NotMissed | None


@dataclass(frozen=True, slots=True)
class RebalanceTimeout:
    """Verdict: the member did not rejoin, sync or revoke in time."""

    deadline_ms: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """Verdict: the member's session ended."""

    deadline_ms: int
    cause: Cause
    timer_reset_ms: int | None
    """Where a coordinator's pause or move is the cause: when that began."""
    deadline_from_ms: int | None
    deadline_until_ms: int | None
    """The deadline lies between these two, where only that is known; None: ``deadline_ms`` is it."""


Timeout = RebalanceTimeout | SessionExpired


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Verdict: no timeout explains the removal."""

    judge_again: bool = False
    """Whether a move of the coordinator that becomes known later may explain it."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Verdict: a timeout explains the removal, and a line that is missing may explain it better."""

    judge_again: bool


Verdict = RebalanceTimeout | SessionExpired | Unexplained | Uncertain


@dataclass(frozen=True)
class Case:
    """A removal, and what it is judged by. Causes only read it."""

    replica: GroupReplica
    departure: Departure
    together: list[Departure]
    """All whom the same generation lost, and the departure itself."""
    context: JudgementContext
    """With the timer resets only that can have come before the removal."""
    session_end_ms: int
    """When the member's session ended, if that is why it was removed: the possible instant nearest to the removal."""
    session_reset: TimerReset | None
    """The timer reset with which that session began, if one."""

    @property
    def member(self) -> Member:
        """The member that is gone."""
        return self.departure.member

    @property
    def removed_ms(self) -> int:
        """When its absence became a fact."""
        return self.departure.removed_ms

    @cached_property
    def dropped(self) -> list[Departure]:
        """Those whom the phase lost at the same instant."""
        return [d for d in self.together if d.removed_ms == self.removed_ms and d.successor is None]

    @cached_property
    def latest_ends_ms(self) -> dict[int, int]:
        """When the sessions of those dropped had ended at the latest, by the departure's ``id``; 0: not known."""
        return {id(d): self.latest_end_ms(d) or 0 for d in self.dropped}

    @property
    def own_latest_end_ms(self) -> int:
        """When the member's own session had ended at the latest; 0: not known."""
        return self.latest_end_ms(self.departure) or 0

    def latest_end_ms(self, departure: Departure) -> int | None:
        """Return when the session of one that was removed had ended at the latest."""
        return latest_deadline_ms(departure, context_before(departure, self.context))

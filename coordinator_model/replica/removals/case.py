"""The types of the judgement: a ``Case`` to be judged, the answers of a cause, and the verdicts.

A cause is a pure function of a ``Case``. It answers ``Missed`` (the member missed a deadline of a rebalance, or one of
its own), ``NotMissed`` (it missed none, so only the end of its session can explain the removal), or None (this cause
cannot tell, so the next one is asked).
"""

from dataclasses import dataclass

from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.together import Together
from coordinator_model.states import Cause


@dataclass(frozen=True, slots=True)
class Missed:
    """The member did not rejoin, sync or revoke by the deadline."""

    deadline_ms: int


@dataclass(frozen=True, slots=True)
class NotMissed:
    """No rebalance removed the member. Either its session ended, or nothing known explains the removal."""


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
    """When the coordinator's pause or move began, if that is the cause."""
    deadline_from_ms: int | None
    deadline_until_ms: int | None
    """The interval from ``deadline_from_ms`` to here is known to contain the deadline; None: ``deadline_ms`` is exact.
    """


Timeout = RebalanceTimeout | SessionExpired


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Verdict: no timeout explains the removal."""

    judge_again: bool = False
    """Whether the removal is judged again when a move of the coordinator becomes known."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Verdict: a timeout explains the removal, but a missing line may explain it better."""

    judge_again: bool
    """As in ``Unexplained``."""


Verdict = RebalanceTimeout | SessionExpired | Unexplained | Uncertain


@dataclass(frozen=True)
class Case:
    """A removal, with all that the causes may ask about it. Causes only read it."""

    replica: GroupReplica
    departure: Departure
    together: Together
    """All departures that the same generation showed, this one among them.

    Their judgement context has only the timer resets that can have come before the removal.
    """
    session_end_ms: int
    """When the member's session ended, if its end caused the removal: the possible instant nearest to the removal."""
    session_reset: TimerReset | None
    """The timer reset that began that session; None: no timer reset did."""

    @property
    def member(self) -> Member:
        """The member that is gone."""
        return self.departure.member

    @property
    def removed_ms(self) -> int:
        """When the member was removed, as far as that is known."""
        return self.departure.removed_ms

    @property
    def context(self) -> JudgementContext:
        """The judgement context, with only the timer resets that can have come before the removal."""
        return self.together.context

    @property
    def own_latest_end_ms(self) -> int:
        """The latest instant at which the member's own session can have ended; 0: not known."""
        return self.together.latest_end_ms(self.departure) or 0

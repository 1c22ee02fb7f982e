"""Timers of a KIP-848 group that ran and whose write timed out: they are retried and remove whom they find.

``CoordinatorTimerImpl`` schedules such a timer again half a second after its write failed, with the same operation. So
a timer that has removed a member removes it again by the same rule, even if it has joined again meanwhile.
"""

from collections.abc import Iterable

from coordinator_model.client import who
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.removals.departure import STALL_MS, Departure
from coordinator_model.replica.removals.leaves import CUT_MS
from coordinator_model.replica.removals.removal import RETRIED_MS
from coordinator_model.replica.session_timer import JudgementContext, session_timeout_ms
from coordinator_model.states import Cause

RETRY_MS = STALL_MS + 500
"""How long after a run whose write timed out a timer runs again: the write's timeout and the pause before the retry."""
SAME_STEP_MS = 50
"""How much later than it is due a timer may run."""


def may_be_any(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the removal is a retry of any timer that had run out before and whose write timed out.

    That may be a timer of the member itself, from before it was heard again or before its group changed its type, or a
    timer of the former member.
    """
    member, timeout_ms = departure.member, session_timeout_ms(departure.member, context)
    ran_ms = [seen.at_ms for seen in replica.violations if seen.client == who(member)]
    heard_ms = (member.last_heartbeat_ms, member.parked_heartbeat_ms)
    ran_ms += [at_ms + timeout_ms for at_ms in heard_ms if at_ms is not None and timeout_ms is not None]
    return _is_tried_again(departure, ran_ms)


def is_of_a_rebalance(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether the removal is a retry of a rebalance timer that had removed the member before."""
    name = who(departure.member)
    missed = (seen for seen in replica.violations if seen.client == name and seen.cause == Cause.REBALANCE_TIMEOUT)
    return _is_tried_again(departure, (seen.at_ms for seen in missed))


def _is_tried_again(departure: Departure, ran_ms: Iterable[int]) -> bool:
    late_ms = (departure.removed_ms - at_ms for at_ms in ran_ms)
    return departure.may_be_retried and any(
        0 < ms <= RETRIED_MS and (ms + CUT_MS) % RETRY_MS <= SAME_STEP_MS for ms in late_ms
    )

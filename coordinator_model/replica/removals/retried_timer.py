"""Timers of a KIP-848 group that ran, and whose write timed out: they are tried again, and remove whom they find.

``CoordinatorTimerImpl`` schedules such a timer anew half a second after its write failed, with the same operation. So
what removed a member once removes it again by the same rule, also where it has joined anew meanwhile.
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
"""How long after its last run a timer is tried again: its write's timeout, and the pause before another one."""
SAME_STEP_MS = 50
"""So much later than it is due a timer may run."""


def may_be_any(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a timer that had run out before was tried again and again up to a removal, of whatever it was.

    Its own timer of before it was heard again, or of a group that has changed its kind since; or its former self's.
    """
    member, timeout_ms = departure.member, session_timeout_ms(departure.member, context)
    ran_ms = [seen.at_ms for seen in replica.violations if seen.client == who(member)]
    heard_ms = (member.last_heartbeat_ms, member.parked_heartbeat_ms)
    ran_ms += [at_ms + timeout_ms for at_ms in heard_ms if at_ms is not None and timeout_ms is not None]
    return _is_tried_again(departure, ran_ms)


def is_of_a_rebalance(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether a timer was tried again that had removed the member before as it missed a rebalance."""
    name = who(departure.member)
    missed = (seen for seen in replica.violations if seen.client == name and seen.cause == Cause.REBALANCE_TIMEOUT)
    return _is_tried_again(departure, (seen.at_ms for seen in missed))


def _is_tried_again(departure: Departure, ran_ms: Iterable[int]) -> bool:
    late_ms = (departure.removed_ms - at_ms for at_ms in ran_ms)
    return departure.may_be_retried and any(
        0 < ms <= RETRIED_MS and (ms + CUT_MS) % RETRY_MS <= SAME_STEP_MS for ms in late_ms
    )

"""Timers of a KIP-848 group that ran and whose write timed out: they are retried, and remove the member they find.

``CoordinatorTimerImpl`` schedules such a timer again half a second after its write failed, with the same operation. So
a timer that has removed a member removes it again by the same rule, even if it has joined again meanwhile.
"""

from collections.abc import Iterable
from itertools import pairwise

from coordinator_model.client import who
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import STALL_MS, Departure
from coordinator_model.replica.removals.leaves import TRUNCATED_MS
from coordinator_model.replica.removals.removal import RETRIED_MS
from coordinator_model.replica.session_timer import session_timeout_ms
from coordinator_model.states import Cause

RETRY_BACKOFF_MS = 500
"""How long a timer waits after its write timed out, before it runs again."""
RETRY_MS = STALL_MS + RETRY_BACKOFF_MS
"""How long after a run whose write timed out a timer runs again."""
TIMER_LATE_MS = 50
"""How much later than it is due a timer may run."""
RETRY_LATE_MS = 2 * TIMER_LATE_MS
"""How much later than it is due a retry may run: two timers run before it, that of the write and that of the wait."""


def may_be_any(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the removal is a retry of any timer that had run out before and whose write timed out.

    That may be a timer of the member itself, from before it was heard again, from before it left and came back, or from
    before its group changed its type. It may also be a timer of the former member.
    """
    if _was_left_running(departure, context):
        return True
    member, timeout_ms = departure.member, session_timeout_ms(departure.member, context)
    ran_ms = [seen.at_ms for seen in replica.known_violations if seen.client == who(member)]
    if timeout_ms is not None:
        ran_ms += _session_ends_ms(member, timeout_ms) + _former_ends_ms(replica, member, timeout_ms)
    return _is_tried_again(replica, departure, ran_ms)


def _was_left_running(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the removal is a retry of a session timer that a downgrade left running.

    When that timer first ran is not known any more. But the member cannot have left: its heartbeat waited behind the
    stalled write, and a broker reads no other request on a connection until it has answered.
    """
    member, removed_ms, downgraded_ms = departure.member, departure.removed_ms, departure.phase.downgraded_ms
    if not member.is_classic_among_consumers or downgraded_ms is None or (member.joined_ms or 0) > downgraded_ms:
        return False
    last_ms = downgraded_ms + (session_timeout_ms(member, context) or 0) + RETRIED_MS
    waits_ms = removed_ms - (member.parked_heartbeat_ms or 0)
    return downgraded_ms + RETRY_MS <= removed_ms <= last_ms and 0 < waits_ms < STALL_MS


def _session_ends_ms(member: Member, timeout_ms: int) -> list[int]:
    heard_ms = (member.last_heartbeat_ms, member.previous_heartbeat_ms, member.parked_heartbeat_ms)
    return [at_ms + timeout_ms for at_ms in heard_ms if at_ms is not None]


def _former_ends_ms(replica: GroupReplica, member: Member, timeout_ms: int) -> list[int]:
    """Return when sessions ended from before the member left and came back.

    A leave that makes the group classic leaves the timer running. As the member comes back, a new timer replaces it.
    """
    lives = [*(leave.member for leave in replica.leaves if leave.member.member_id == member.member_id), member]
    return [
        end_ms
        for life, next_life in pairwise(lives)
        for end_ms in _session_ends_ms(life, timeout_ms)
        if next_life.joined_ms is None or end_ms <= next_life.joined_ms
    ]


def is_of_a_rebalance(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether the removal is a retry of a rebalance timer that had removed the member before.

    If another timer has removed the member since then, the retry is of that one.
    """
    name = who(departure.member)
    mine = (seen for seen in replica.known_violations if seen.client == name and seen.at_ms < departure.removed_ms)
    last = max(mine, key=lambda seen: seen.at_ms, default=None)
    if last is None or last.cause != Cause.REBALANCE_TIMEOUT:
        return False
    return _is_tried_again(replica, departure, (last.at_ms,))


def _is_tried_again(replica: GroupReplica, departure: Departure, ran_ms: Iterable[int]) -> bool:
    late_ms = (departure.removed_ms - at_ms for at_ms in ran_ms)
    due = any(0 < ms <= RETRIED_MS and (ms + TRUNCATED_MS) % RETRY_MS <= RETRY_LATE_MS for ms in late_ms)
    # The first answer that shows a stall may come after the removal.
    may_be_retried = departure.may_be_retried or replica.stalled_near(departure.removed_ms, RETRIED_MS)
    return may_be_retried and due and not _no_write_timed_out(replica, departure)


def _no_write_timed_out(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether the write of the timer's last run cannot have timed out: a heartbeat was accepted meanwhile.

    An answer waits for all that the coordinator wrote before it (``CoordinatorRuntime``). If a stall was seen, the
    heartbeat may have waited and been answered 0 as the stall ended: then it says nothing.
    """
    if replica.stalled_near(departure.removed_ms, RETRIED_MS):
        return False
    since_ms = departure.removed_ms - RETRY_MS + TIMER_LATE_MS
    until_ms = departure.removed_ms - RETRY_BACKOFF_MS - TIMER_LATE_MS
    members = (departure.member, *replica.members.values())
    heard_ms = (at_ms for m in members for at_ms in (m.last_heartbeat_ms, m.previous_heartbeat_ms))
    return any(since_ms < at_ms < until_ms for at_ms in heard_ms if at_ms is not None)

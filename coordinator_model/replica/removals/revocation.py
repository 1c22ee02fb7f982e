"""Cause: a rebalance timer of the member's own, in a KIP-848 group. Such a group has no join phase.

A member has to revoke the partitions that the coordinator takes from it. A classic member of such a group has to rejoin
and to sync. Each member has a timer of its own for that.
"""

from coordinator_model.brokers.leadership import STALE_MS
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals import retried_timer
from coordinator_model.replica.removals.case import Answer, Case, Missed, NotMissed
from coordinator_model.replica.removals.ended_phase import EARLY_MS
from coordinator_model.replica.session_timer import session_timeout_ms, unheard_since, when_awake_ms


def not_revoked(case: Case) -> Answer:
    """Answer for a member of a KIP-848 group: the timer that was due nearest to the removal removed it.

    That is its last rebalance timer, or its session timer. If its session timeout is not known, a rebalance timer that
    was due explains the removal best: a session that ended at that very instant would be a coincidence.
    """
    if not case.member.in_kip848_group:
        return None
    if _not_revoked_since_a_load(case) or _may_be_due_since_a_load(case) or _missed_one_before(case):
        return Missed(case.removed_ms)
    timers_ms = own_timers_ms(case.member, case.context)
    ran_ms = [when_awake_ms(at_ms, case.context, written_ms=case.removed_ms) for at_ms in timers_ms]
    timer_ms = max((at_ms for at_ms in ran_ms if at_ms <= case.removed_ms + EARLY_MS), default=None)  # none runs early
    if timer_ms is None or timer_ms > case.removed_ms >= case.session_end_ms >= case.removed_ms - EARLY_MS:
        return NotMissed()  # the session had ended, and this timer was not due yet
    nearest_ms = _late_ms(case)
    if session_timeout_ms(case.member, case.context) is not None:
        nearest_ms = min(nearest_ms, abs(case.session_end_ms - case.removed_ms))
    return Missed(timer_ms) if abs(case.removed_ms - timer_ms) < nearest_ms else NotMissed()


def _late_ms(case: Case) -> int:
    """Return how late a rebalance timer of a member may have run.

    If the records show that the member had not revoked, its timer has surely run. It may have run as the coordinator
    woke from a pause that is too short to be told from a busy coordinator. But if another broker had answered as the
    coordinator by then, that one may have removed the member, by a timer that began when it loaded the group.
    """
    thresholds = case.context.thresholds
    disputed = any(0 <= case.removed_ms - claim.first_ms < STALE_MS for claim in case.context.claims)
    return thresholds.progress_gap_ms if case.member.unrevoked and not disputed else thresholds.grace_ms


def own_timers_ms(member: Member, context: JudgementContext) -> list[int]:
    """Return by when a member of a KIP-848 group may have had to revoke, rejoin or sync.

    A coordinator that loads the group restarts the timers of revocations, but not those of joins and syncs
    (``GroupMetadataManager.onLoaded``). A timer that was due by the latest possible load may have run before it. A
    revocation's timer that was started before a static member left for a while (-2) does nothing, because that changes
    the member's epoch (``GroupMetadataManager.scheduleConsumerGroupRebalanceTimeout``). A classic member has such a
    timer only since a load (``GroupMetadataManager.maybeReconcile``).
    """
    loads = [reset for reset in context.timer_resets if reset.may_load]
    starts_ms = [
        since_ms
        for since_ms in (member.owes_since_ms, *member.may_owe_since_ms)
        if since_ms is not None and not any(reset.low_ms >= since_ms for reset in loads)
    ]
    if member.rebalance_timeout_ms is None and not member.client_id:
        return []  # its own record is not known: its leave may be dated before the record that names it now
    timeout_ms = member.rebalance_timeout_ms or 0
    if member.revoking_since_ms is not None:
        since = [reset for reset in loads if reset.low_ms >= member.revoking_since_ms]
        loaded_by_ms = max((reset.high_ms for reset in since if reset.high_ms is not None), default=None)
        was_due = loaded_by_ms is None or member.revoking_since_ms + timeout_ms <= loaded_by_ms
        if member.kip848 and member.away_ms is None and was_due:
            starts_ms.append(member.revoking_since_ms)
        if loaded_by_ms is not None:
            starts_ms.append(loaded_by_ms)
    return [since_ms + timeout_ms for since_ms in starts_ms]


def _not_revoked_since_a_load(case: Case) -> bool:
    """Tell whether the revocation timer removed a member that was not heard since its coordinator loaded the group.

    The load started the session timer and the revocation timer at once, so the shorter one removed the member.
    """
    member, timeout_ms = case.member, session_timeout_ms(case.member, case.context) or 0
    loads = [reset for reset in unheard_since(member, case.context.timer_resets) if reset.may_load]
    if not loads or member.revoking_since_ms is None or member.rebalance_timeout_ms is None:
        return False
    # By another broker's clock the record that started the revocation may seem younger than the load.
    moved = any(load.is_move for load in loads)
    old_enough = moved or member.revoking_since_ms <= case.removed_ms - member.rebalance_timeout_ms
    return old_enough and member.rebalance_timeout_ms < timeout_ms


def _may_be_due_since_a_load(case: Case) -> bool:
    """Tell whether the revocation timer of a living member, which a load restarted, may have been due at its removal.

    When the coordinator loaded the group is known only within an interval, so the timer was due within one, too.
    """
    member, spans = case.member, case.together.spans.of(case.departure)
    if member.revoking_since_ms is None or any(first_ms <= case.removed_ms + EARLY_MS for first_ms, _, _ in spans):
        return False  # its session may have ended
    began_ms = case.removed_ms - (member.rebalance_timeout_ms or 0)
    load = next((reset for reset in reversed(case.context.timer_resets) if reset.may_load), None)
    if load is None or load.high_ms is None:
        return False
    return max(load.low_ms, member.revoking_since_ms) - EARLY_MS <= began_ms <= load.high_ms


def _missed_one_before(case: Case) -> bool:
    """Tell whether a rebalance timer that had removed the member was retried, while its session cannot have ended."""
    alive = case.own_latest_end_ms > case.removed_ms + EARLY_MS
    return alive and retried_timer.is_of_a_rebalance(case.replica, case.departure)

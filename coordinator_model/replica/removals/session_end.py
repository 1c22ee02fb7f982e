"""The last cause: the member's session ended. When it ended, and whether a coordinator's pause or move is to blame."""

from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.poll_end import stopped_polling
from coordinator_model.replica.removals import retried_timer
from coordinator_model.replica.removals.case import Case, SessionExpired, Unexplained
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import LATE_MS
from coordinator_model.replica.removals.leaves import TRUNCATED_MS
from coordinator_model.replica.removals.removal_instant import (
    deadline_interval_ms,
    gone_between,
    had_restarted,
    may_have_restarted,
    restarted_end_ms,
)
from coordinator_model.replica.removals.revocation import own_timers_ms
from coordinator_model.replica.removals.together import Together
from coordinator_model.replica.session_timer import (
    TIMER_EARLY_MS,
    blamed_reset,
    lines_lost,
    removal_deadline_ms,
    session_timeout_ms,
    surely_gone_ms,
    unheard_since,
    when_awake_ms,
)
from coordinator_model.states import Cause

UNSEEN_DIVISOR = 2
"""If more than a session timeout, divided by this, lies between the apparent end of a member's session and its removal,
more than one of its heartbeats was not seen: clients usually send three or more in a session timeout."""


def possible_end(
    replica: GroupReplica, departure: Departure, together: Together
) -> tuple[int, TimerReset | None] | None:
    """Return when a member's session ended, if its end caused the removal, and the timer reset that began the session.

    None: nothing is known about its session.
    """
    context, went_ms = together.context, gone_between(departure, together, replica.leaves)
    end_ms, reset = removal_deadline_ms(departure, context, *went_ms)
    if departure.member.in_kip848_group:
        early = end_ms is not None and end_ms > departure.removed_ms
        early = early and not _is_of_its_own_timer(departure, context)
        if end_ms is None or (early and _start_is_unsure(replica, departure, context)):
            end_ms = departure.removed_ms  # nothing known about its session contradicts that it ended here
    return None if end_ms is None else (end_ms, reset)


def session_ended(case: Case, *, timed_out: bool) -> SessionExpired | Unexplained:
    """Judge by the session alone: either it had ended by the removal, or something unseen explains the removal.

    ``timed_out``: whether the join phase ended by its timeout. Then the record of an empty group dates no session.
    """
    member, removed_ms, context = case.member, case.removed_ms, case.context
    grace_ms, end_ms = context.thresholds.grace_ms, case.session_end_ms
    restarted_ms = None
    if not (timed_out or _emptied_by_another(case)):
        restarted_ms = restarted_end_ms(case.departure, case.together, case.replica.leaves)
    if restarted_ms is not None and case.together.once(had_restarted):
        end_ms = restarted_ms
    if surely_gone_ms(case.departure, context) < end_ms - (TIMER_EARLY_MS if member.in_kip848_group else grace_ms):
        return _unseen(case)  # a leave or a move of the coordinator was not seen
    if member.in_kip848_group and case.session_reset is None and removed_ms > end_ms + grace_ms:
        late = removed_ms - end_ms > (session_timeout_ms(member, context) or 0) // UNSEEN_DIVISOR
        if late or _may_be_revoking_since_a_load(member, context):
            return _unseen(case)  # it lived on unseen, so it may have left unseen too, or missed a revocation
        end_ms = removed_ms  # timers run in time, so only one heartbeat was not seen
    return _expired(case, end_ms, restarted_ms)


def _may_be_revoking_since_a_load(member: Member, context: JudgementContext) -> bool:
    """Tell whether a load that was not seen explains best why a static member that is away (-2) was removed late.

    It sends no heartbeats, so none was missed. If it had not revoked, a load starts its rebalance timer anew, and its
    session timer. The shorter one removes it.
    """
    timeout_ms = session_timeout_ms(member, context) or 0
    return member.away_ms is not None and member.unrevoked and (member.rebalance_timeout_ms or timeout_ms) < timeout_ms


def own_cause(member: Member) -> Cause:
    """Return why a session ended without a pause or move of the coordinator.

    A static member that exceeds its poll interval sends no leave. Its heartbeats stop, and only its client can say why.
    The same holds for a KIP-848 member whose application has to handle the revocation first (librdkafka with rebalance
    callbacks).
    """
    stays = member.instance_id is not None or member.kip848
    if stays and (member.poll_deadline_ms is not None or stopped_polling(member)):
        return Cause.POLL_INTERVAL
    return Cause.SESSION_OR_POLL if member.beats_in_poll else Cause.SESSION_TIMEOUT


def _expired(case: Case, end_ms: int, restarted_ms: int | None) -> SessionExpired:
    """Return the verdict that the session ended at ``end_ms``, or at ``restarted_ms`` if its timer restarted unseen.

    If only an interval is known, and an instant within it has been reported already, that instant stays.
    """
    timeout_ms, reset = session_timeout_ms(case.member, case.context), case.session_reset
    blamed = reset if reset is not None and reset.cause is not Cause.UNKNOWN else None
    if blamed is None or blamed.blamed_cause is None:
        blamed = blamed_reset(end_ms, timeout_ms, case.context.timer_resets) or blamed
    from_ms, until_ms = deadline_interval_ms(case.departure, end_ms, blamed, case.context)
    other_ms = end_ms if restarted_ms is None or not case.together.once(may_have_restarted) else restarted_ms
    if from_ms is None and abs(other_ms - end_ms) > case.context.thresholds.grace_ms:
        from_ms, until_ms = min(end_ms, other_ms), max(end_ms, other_ms)
    reported_ms = case.member.verdict_ms
    if reported_ms is not None and (from_ms or end_ms) <= reported_ms <= (until_ms or end_ms):
        end_ms = reported_ms
    cause = None if blamed is None else blamed.blamed_cause
    return SessionExpired(
        deadline_ms=end_ms,
        cause=cause or own_cause(case.member),
        timer_reset_ms=blamed.low_ms if blamed and cause else None,
        deadline_from_ms=from_ms,
        deadline_until_ms=until_ms,
    )


def _unseen(case: Case) -> Unexplained:
    """Return the verdict that something unseen caused the removal.

    If no lines were lost, that is a move of the coordinator which may become known.
    """
    return Unexplained(judge_again=not lines_lost(case.member, case.context))


def _emptied_by_another(case: Case) -> bool:
    """Tell whether something else than the end of this member's session may have ended the phase.

    That is a leave at the instant of the removal, or the end of the wait for a pending member (79).
    """
    pending = case.replica.pending
    waited_ms = (pending[name].until_ms for name in case.departure.phase.unjoined if name in pending)
    left_ms = (leave.applied_ms for leave in case.replica.leaves)
    given_up = any(abs(at_ms - case.removed_ms) <= LATE_MS for at_ms in waited_ms)
    return given_up or any(abs(at_ms - case.removed_ms) <= TRUNCATED_MS for at_ms in left_ms)


def _is_of_its_own_timer(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a rebalance timer of the member's own ran at its removal: that explains more than a retry."""
    removed_ms, due_ms = departure.removed_ms, own_timers_ms(departure.member, context)
    ran_ms = (when_awake_ms(at_ms, context, written_ms=removed_ms) for at_ms in due_ms)
    return any(abs(removed_ms - at_ms) <= TRUNCATED_MS for at_ms in ran_ms)


def _start_is_unsure(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a session may have ended before it seems due, because its start is not known well.

    That is so if the member was never heard and joined before telemetry was live, if a timer of the former member may
    have been retried, or if the coordinator has loaded the group since the member was heard, provided that the member
    joined at least a session timeout before its removal. Otherwise a removal before the session's end is a leave that
    was not seen.
    """
    member = departure.member
    if retried_timer.may_be_any(replica, departure, context):
        return True
    if member.session_from_ms is None:
        return departure.may_be_retried or (member.joined_ms or 0) < context.live_from_ms
    # No load knew of the member before it joined. The timer that a load starts runs for the group's session timeout,
    # but a classic member that is heard after the load goes by its own.
    timeouts_ms = (context.consumer_session_timeout_ms, session_timeout_ms(member, context))
    lasts_ms = min((timeout_ms for timeout_ms in timeouts_ms if timeout_ms), default=0)
    if (member.joined_ms or 0) + lasts_ms > departure.removed_ms + TIMER_EARLY_MS:
        return False
    return any(reset.may_load for reset in unheard_since(member, context.timer_resets))

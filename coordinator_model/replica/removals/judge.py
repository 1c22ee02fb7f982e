"""Judges removals once their grace has passed: which timeout each proves, and whether anything unseen may be why."""

from dataclasses import replace

from coordinator_model.replica.group import GroupReplica, Member
from coordinator_model.replica.poll_end import missed_cause, stopped_polling
from coordinator_model.replica.removals.departure import STALL_MS, Departure
from coordinator_model.replica.removals.departures import RETRIED_MS, count_violation, is_of_the_same
from coordinator_model.replica.removals.ended_phase import count_starter_in
from coordinator_model.replica.removals.leaves import CUT_MS
from coordinator_model.replica.removals.missed_phase import deadline_of_missed_phase_ms, own_timers_ms
from coordinator_model.replica.removals.phase_end import began_with
from coordinator_model.replica.removals.removal_instant import (
    after_a_move,
    before,
    deadline_interval_ms,
    emptied_ms,
    ends,
    expired_or_replaced,
    gone_between,
    may_have_started,
    may_precede,
    removed_with_one_alive,
)
from coordinator_model.replica.removals.uncertain import cause_is_uncertain, mark_unknown
from coordinator_model.replica.returns import who
from coordinator_model.replica.session_timer import (
    TIMER_EARLY_MS,
    JudgementContext,
    blamed_reset,
    deadlines,
    gone_by_ms,
    lines_lost,
    removal_deadline_ms,
    session_timeout_ms,
    unheard_since,
)
from coordinator_model.states import REBALANCE_TIMEOUT, SESSION_EXPIRED, Cause, Evidence

MOVE_KNOWN_MS = 20_000
"""How much later than a removal it may become known that another coordinator did it, whose predecessor went on."""
RETRY_MS = STALL_MS + 500
"""How long after its last run: its write's timeout, and the pause before another one."""
SAME_STEP_MS = 50
"""So much later than it is due a timer may run."""
UNSEEN_SHARE = 2
"""A member removed later than this share of its session after the session seems to end has sent more than one
heartbeat that was not seen: usual clients send three or more in a session."""


def judge_removals(replica: GroupReplica, context: JudgementContext) -> bool:
    """Judge the removals whose grace has passed: by now a goodbye that trails, or a coordinator's pause, is known."""
    if context.hole_is_open:
        return False
    due = [d for d in replica.departures if not d.concluded and d.judge_after_ms <= context.progress_ms]
    for departure in due:
        if _told_by_a_deposed_coordinator(departure, context):
            replica.departures.remove(departure)
            replica.revert_to_last_record(departure.gone_ms)
        elif _is_proven(replica, departure, context):
            _keep_proven(replica, departure)
        elif departure.concluded or departure.successor is None or expired_or_replaced(departure, context):
            mark_unknown(replica, departure, context)
        else:
            replica.departures.remove(departure)  # replaced
    return _explain_by_a_move(replica, context) or bool(due)


def _is_proven(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a removal proves a timeout, and nothing unseen may have been the cause; write into it which."""
    count_starter_in(replica, departure)
    context = _as_it_was_unknown(departure, context)
    together = [d for d in replica.departures if d.generation == departure.generation]
    if removed_with_one_alive(departure, together, context):
        if not _moved_before(departure, context):
            departure.unexplained = True
            return False
        context = after_a_move(departure, context)
    departure.concluded = _explain(replica, departure, together, before(departure, context))
    if departure.concluded and cause_is_uncertain(replica, departure, together, context):
        departure.unexplained = not lines_lost(departure.member, context)
        return False
    return departure.concluded


def _as_it_was_unknown(departure: Departure, context: JudgementContext) -> JudgementContext:
    """Return the context without what came after a coordinator had said that it knows no such member: it had gone."""
    member, session_ms = departure.member, session_timeout_ms(departure.member, context)
    if member.unknown_ms is None or member.clock_ms is None or session_ms is None:
        return context
    if max([member.clock_ms, *departure.touches_ms]) + session_ms > member.unknown_ms + CUT_MS:
        return context
    return replace(context, timer_resets=[r for r in context.timer_resets if r.low_ms <= member.unknown_ms])


def _keep_proven(replica: GroupReplica, departure: Departure) -> None:
    """Keep a timeout that is proven, in the place of an earlier one of the same member."""
    others = [d for d in replica.departures if d is not departure and d.concluded]
    earlier = [id(other) for other in others if is_of_the_same(other, departure)]
    replica.departures = [d for d in replica.departures if id(d) not in earlier]
    departure.concluded = True
    count_violation(replica, departure)


def _explain_by_a_move(replica: GroupReplica, context: JudgementContext) -> bool:
    """Judge again what nothing explained, where it is only known since that the coordinator had moved.

    By then a goodbye is answered that had to wait for its write.
    """
    found = False
    for number, departure in enumerate(replica.departures):
        answered_ms = departure.answered_ms + context.thresholds.grace_ms
        recent = answered_ms <= context.progress_ms <= departure.gone_ms + MOVE_KNOWN_MS
        if not (departure.unexplained and recent and _moved_before(departure, context)):
            continue
        again = replace(departure, rule=SESSION_EXPIRED, evidence=Evidence.OBSERVED, unexplained=False)
        replica.departures[number] = again
        if not _is_proven(replica, again, context):
            replica.departures[number] = departure
        else:
            found = True
            replica.unexplained_ms = None if replica.unexplained_ms == departure.gone_ms else replica.unexplained_ms
            count_violation(replica, again)
    return found


def _moved_before(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether another broker may have coordinated already as a member was removed, as is known since."""
    moves = (r for r in unheard_since(departure.member, context.timer_resets) if r.cause is Cause.COORDINATOR_MOVED)
    return any(may_precede(move, departure) for move in moves)


def _told_by_a_deposed_coordinator(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether another broker had taken over before the removal was told: it knows nothing of it."""
    moves = [r for r in context.timer_resets if r.cause is Cause.COORDINATOR_MOVED and r.broker != departure.told_by]
    return departure.told_by != "" and any(
        r.low_ms <= departure.gone_ms and (r.high_ms is None or departure.gone_ms <= r.high_ms) for r in moves
    )


def _explain(replica: GroupReplica, departure: Departure, together: list[Departure], context: JudgementContext) -> bool:
    """Write into a departure what its removal proves, beside those removed with it; False: nothing."""
    member, removed_ms = departure.member, departure.removed_ms
    timeout_ms = session_timeout_ms(member, context)
    deadline_ms, origin = removal_deadline_ms(departure, context, *gone_between(departure, together, context))
    timers_ms = own_timers_ms(member, context)
    if member.goes_alone and (
        deadline_ms is None or (deadline_ms > removed_ms and _may_be_early(replica, departure, context))
    ):
        deadline_ms = removed_ms  # what is known of its session does not say otherwise, so it ended here
    if deadline_ms is None or (
        departure.successor is not None and not _expired_before_replacement(replica, departure, together, context)
    ):
        return False
    missed_ms = deadline_of_missed_phase_ms(departure, deadline_ms, together, context)
    if missed_ms is not None:
        by_arithmetic = missed_ms in timers_ms
        early = missed_ms < deadline_ms - context.thresholds.grace_ms
        if early and not by_arithmetic and lines_lost(member, context):
            return False
        departure.rule, departure.deadline_ms = REBALANCE_TIMEOUT, missed_ms
        departure.cause = missed_cause(member, removed_ms)
        return True
    if not _emptied_by_another(replica, departure):
        deadline_ms = emptied_ms(departure, together, context) or deadline_ms
    gone_ms = min(gone_by_ms(member, context) or removed_ms, removed_ms)
    if gone_ms < deadline_ms - (TIMER_EARLY_MS if member.goes_alone else context.thresholds.grace_ms):
        departure.unexplained = not lines_lost(member, context)
        return False  # neither: a goodbye that we have not seen, or a coordinator that we have not
    if member.goes_alone and origin is None and removed_ms > deadline_ms + context.thresholds.grace_ms:
        if removed_ms - deadline_ms > (timeout_ms or 0) // UNSEEN_SHARE:
            departure.unexplained = not lines_lost(member, context)
            return False  # it lived on unseen, and so may its goodbye be
        deadline_ms = removed_ms  # a timer runs in time, so its last heartbeat was not seen
    blamed = origin if origin and origin.cause is not Cause.UNKNOWN else None
    blamed = blamed or blamed_reset(deadline_ms, timeout_ms, context.timer_resets)
    departure.cause = blamed.cause if blamed else own_cause(member)
    departure.deadline_ms, departure.timer_reset_ms = deadline_ms, blamed.low_ms if blamed else None
    departure.deadline_from_ms, departure.deadline_until_ms = deadline_interval_ms(departure, blamed, context)
    return True


def _expired_before_replacement(
    replica: GroupReplica, departure: Departure, together: list[Departure], context: JudgementContext
) -> bool:
    """Tell whether a static member's session had ended before its successor came: a replacement starts no rebalance.

    So where one began that nobody is seen to have started, it was the one whose session must have ended first.
    """
    if departure.member.fenced_ms is not None and departure.member.fenced_ms < departure.removed_ms:
        return False  # it was waiting for the others: nobody expires who waits
    spans = {id(d): deadlines(d, before(d, context)) for d in together}
    first_ms, last_ms = ends(spans[id(departure)])
    if last_ms <= departure.removed_ms:
        return True
    # Before its removal was recorded, a coordinator answered that it does not know the member.
    if (departure.member.unknown_ms or departure.removed_ms) < departure.removed_ms:
        return not _is_told(replica, departure)
    others = [span for d in together if d is not departure and (span := spans[id(d)])]
    if any(may_have_started(departure, span) and ends(span)[1] <= last_ms for span in others):
        return False
    return began_with(departure, first_ms)


def _emptied_by_another(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether another left as a member was removed, or an id given out was waited for: the record tells that."""
    waited = any(name in replica.pending for name in departure.phase.unjoined)
    return waited or any(abs(leave.applied_ms - departure.removed_ms) <= CUT_MS for leave in replica.leaves)


def _is_told(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether a removal since a member was last heard is told, which the log that was loaded then did not have."""
    name, heard_ms = who(departure.member), departure.member.clock_ms or 0
    return any(other == name and heard_ms < at_ms < departure.removed_ms for other, at_ms, _ in replica.violations)


def own_cause(member: Member) -> Cause:
    """Return why a session ended that no coordinator had a hand in.

    A static member sends no leave when it oversleeps its poll, its heartbeats only stop: only its client tells. Nor
    does one of KIP-848 whose application has to take the revocation first (librdkafka with rebalance callbacks).
    """
    stays = member.instance_id is not None or member.kip848
    if stays and (member.poll_deadline_ms is not None or stopped_polling(member)):
        return Cause.POLL_INTERVAL
    return Cause.SESSION_OR_POLL if member.beats_in_poll else Cause.SESSION_TIMEOUT


def _may_be_early(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a session may have ended before it seems due: its start is not known well.

    So where the member was never heard and came before we looked, or the timer of its former self may run again; or
    where its coordinator moved since. Else a removal before the end of the session is a goodbye that nobody saw.
    """
    member = departure.member
    if _is_retried(replica, departure, context):
        return True
    if member.clock_ms is None:
        return departure.may_be_retried or (member.joined_ms or 0) < context.live_from_ms
    return any(reset.may_load for reset in unheard_since(member, context.timer_resets))


def _is_retried(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a timer that had run out before, and whose write timed out, was tried again and again up to here.

    Its own timer of before it was heard again, or of a group that has changed its kind since; or its former self's.
    """
    member, timeout_ms = departure.member, session_timeout_ms(departure.member, context)
    ran_ms = [at_ms for other, at_ms, _ in replica.violations if other == who(member)]
    if member.last_heartbeat_ms is not None and timeout_ms is not None:
        ran_ms.append(member.last_heartbeat_ms + timeout_ms)
    late_ms = [departure.removed_ms - at_ms for at_ms in ran_ms]
    return departure.may_be_retried and any(
        0 < ms <= RETRIED_MS and (ms + CUT_MS) % RETRY_MS <= SAME_STEP_MS for ms in late_ms
    )

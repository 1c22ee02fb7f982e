"""Judges removals once their grace has passed: which timeout each proves, unless a missing line may explain it."""

from collections.abc import Callable

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.poll_end import missed_cause
from coordinator_model.replica.removals import replacement
from coordinator_model.replica.removals.case import (
    Answer,
    Case,
    Missed,
    RebalanceTimeout,
    SessionExpired,
    Timeout,
    Uncertain,
    Unexplained,
    Verdict,
)
from coordinator_model.replica.removals.coordinator_pause import due_in_a_pause
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.join_timeout import (
    may_show_alive_until_ms,
    not_rejoined,
    phase_was_extended,
    timed_out,
)
from coordinator_model.replica.removals.leaves import TRUNCATED_MS
from coordinator_model.replica.removals.phase_end import (
    kept_as_static,
    lived_to_its_end,
    removed_early,
    unknown_before_its_end,
)
from coordinator_model.replica.removals.removal import count_violation, is_about_to_end, is_found_twice, is_of_the_same
from coordinator_model.replica.removals.removal_instant import (
    after_a_move,
    removed_with_one_alive,
)
from coordinator_model.replica.removals.revocation import not_revoked, own_timers_ms
from coordinator_model.replica.removals.session_end import possible_end, session_ended
from coordinator_model.replica.removals.sync_timeout import not_synced
from coordinator_model.replica.removals.together import Shared, Together, context_before, may_precede
from coordinator_model.replica.removals.uncertain import Inference, cause_is_uncertain
from coordinator_model.replica.session_timer import lines_lost, moves_since_heard, session_timeout_ms
from coordinator_model.states import MEMBER_REMOVED, REBALANCE_TIMEOUT, SESSION_EXPIRED, Cause, Evidence

MOVE_KNOWN_MS = 20_000
"""How long after a removal it may still become known that another broker had taken over before it. Meanwhile the
deposed coordinator went on answering."""
MOVE_CHECK_MS = 1_000
"""How often a replacement is judged again until then: such a move may show that the replaced member had expired."""

CAUSES: tuple[Callable[[Case], Answer], ...] = (
    due_in_a_pause,
    not_revoked,
    not_synced,
    kept_as_static,
    phase_was_extended,
    unknown_before_its_end,
    lived_to_its_end,
    not_rejoined,
    removed_early,
)
"""The causes other than the end of the session, in the order in which they are asked; the first that answers decides.

1. A coordinator that wakes from a pause runs all timers that came due in it, in the order in which they were due. All
   other causes assume that timers run in time, so this one is asked before them.
2. KIP-848 groups have no join phase. Their members are judged by their own timers: no later cause is asked.
3. A member that joined has to sync before the next join phase begins, so this deadline comes before that phase's.
4. What is left is the join phase. No join phase removes a static member.
5. An extended phase dropped its dynamic members when its timeout ran out, some time before they are found gone. The
   causes below take these two instants for one, so this one is asked before them.
6. A member that the coordinator no longer knew before the phase ended was not removed by the phase's end.
7. If the end of another member's session began the phase, the phase's end shows when, and whose session went on.
8. Otherwise the phase's start and limit show whether it ended by its timeout, and for whom it had waited.
9. If they do not show that, a member that was removed before its session ended missed the phase. This cause always
   answers.

``NotMissed`` leaves one cause, the end of the session (``session_ended``).
"""


def judge_removals(replica: GroupReplica, context: JudgementContext) -> bool:
    """Judge the removals whose grace has passed: by then a late leave or a coordinator's pause is known.

    Return whether any removal was judged.
    """
    if context.hole_is_open:
        return False
    _wait_for_the_last(replica)
    shared, due = Shared(replica), _due(replica, context.progress_ms)
    for departure in due:
        if _waits_for_the_earlier(replica, departure, shared):
            departure.judge_after_ms = context.progress_ms + 1
        elif _is_of_a_disputed_coordinator(departure, context):
            departure.judge_after_ms = context.progress_ms + MOVE_CHECK_MS
        elif _is_of_a_deposed_coordinator(departure, context):
            replica.departures.remove(departure)
            replica.revert_to_last_record(departure.gone_ms)
            shared = Shared(replica)
        else:
            shared.note_starter(departure.phase)
            alive_until_ms = may_show_alive_until_ms(departure, shared.together(departure, context))
            if alive_until_ms is not None and context.progress_ms < alive_until_ms:
                departure.judge_after_ms = alive_until_ms
            else:
                _apply(replica, departure, judge(replica, departure, context, shared), context, shared)
    return _judge_again(replica, context, shared) or bool(due)


def _waits_for_the_earlier(replica: GroupReplica, departure: Departure, shared: Shared) -> bool:
    """Tell whether an earlier removal of the member has to be reported first, with the return that ended it."""
    own = shared.of_member(departure)
    return any(is_about_to_end(replica, d) and d.removed_ms < departure.removed_ms for d in own)


def _is_of_a_disputed_coordinator(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the answer that showed the removal is of a broker that was not known to be the coordinator then.

    If it is still not known to be, the removal is judged later.
    """
    return departure.answered_by != departure.broker and _a_move_may_become_known(departure, context)


def _due(replica: GroupReplica, progress_ms: int) -> list[Departure]:
    """Return the removals that may be judged."""
    return [d for d in replica.departures if not d.judged and d.judge_after_ms <= progress_ms]


def _wait_for_the_last(replica: GroupReplica) -> None:
    """Let static members that are replaced in one phase be judged together.

    Only their comparison shows whose session ended first.
    """
    replaced = [d for d in replica.departures if not d.judged and d.successor is not None]
    last_ms: dict[int, int] = {}
    for departure in replaced:
        last_ms[departure.generation] = max(last_ms.get(departure.generation, 0), departure.judge_after_ms)
    for departure in replaced:
        departure.judge_after_ms = last_ms[departure.generation]


def judge(replica: GroupReplica, departure: Departure, context: JudgementContext, shared: Shared) -> Verdict:
    """Return which timeout a removal proves, if one does and no missing line may explain the removal."""
    context = _until_it_was_unknown(departure, context)
    if removed_with_one_alive(departure, shared.together(departure, context), replica.leaves):
        if not _moved_before(departure, context):
            return Unexplained(judge_again=True)
        context = after_a_move(departure, context)
    elif departure.answered_by not in ("", departure.broker) or _was_shown_before_the_move(departure, context):
        # the broker that answered had loaded the group, though it was not known to be the coordinator
        context = after_a_move(departure, context)
    verdict = explain(replica, departure, shared.together(departure, context_before(departure, context)))
    if isinstance(verdict, Unexplained):
        return verdict
    unsure = _depends_on_an_unsure_hole(replica, departure, context, shared, verdict)
    if unsure or cause_is_uncertain(Inference(replica, departure, shared.together(departure, context), verdict)):
        return Uncertain(judge_again=not lines_lost(departure.member, context))
    return verdict


def _depends_on_an_unsure_hole(
    replica: GroupReplica, departure: Departure, context: JudgementContext, shared: Shared, verdict: Timeout
) -> bool:
    """Tell whether another timeout explains the removal if the timers did not restart in holes that may be no pauses.

    Nobody probed the coordinator in such a hole, or it may only have answered at its other listener.
    """
    sure = [reset for reset in context.timer_resets if reset.sure]
    if len(sure) == len(context.timer_resets):
        return False
    before = context_before(departure, context._replace(timer_resets=sure))
    other = explain(replica, departure, shared.together(departure, before))
    return isinstance(other, RebalanceTimeout | SessionExpired) and type(other) is not type(verdict)


def explain(replica: GroupReplica, departure: Departure, together: Together) -> Timeout | Unexplained:
    """Return the timeout that explains a removal best, given the removals together with it."""
    end = possible_end(replica, departure, together)
    if end is None or replacement.was_rolled_back(departure):
        return Unexplained()
    replaced = departure.successor is not None
    if replaced and not replacement.had_gone(replica, departure, together):
        return Unexplained()
    case = Case(replica, departure, together, *end)
    answer = next(answer for cause in CAUSES if (answer := cause(case)) is not None)
    if isinstance(answer, Missed):
        return _rebalance_timeout(case, answer)
    return session_ended(case, timed_out=together.once(timed_out))


def _rebalance_timeout(case: Case, missed: Missed) -> RebalanceTimeout | Unexplained:
    """Return the verdict for a deadline of a rebalance that was missed, unless a leave may be among lost lines."""
    early = missed.deadline_ms < case.session_end_ms - case.context.thresholds.grace_ms
    by_own_timer = missed.deadline_ms in own_timers_ms(case.member, case.context)
    if early and not by_own_timer and lines_lost(case.member, case.context):
        return Unexplained()
    return RebalanceTimeout(missed.deadline_ms, missed_cause(case.member, case.removed_ms))


def _apply(
    replica: GroupReplica, departure: Departure, verdict: Verdict, context: JudgementContext, shared: Shared
) -> None:
    """Write a verdict into the departure.

    The departure of a static member that was only replaced is dropped: the coordinator did not remove it. So is one
    that was reported already.
    """
    if is_found_twice(replica, departure):
        replica.departures = [other for other in replica.departures if other is not departure]
        return
    if isinstance(verdict, RebalanceTimeout | SessionExpired):
        _report(replica, departure, verdict)
        _drop_earlier(replica, departure, shared)
        return
    departure.judge_again = verdict.judge_again
    replaced = departure.successor is not None and isinstance(verdict, Unexplained)
    if not replaced or replacement.may_have_expired(departure, context):
        _mark_unknown(replica, departure, context)
    elif _a_move_may_become_known(departure, context):
        departure.judge_after_ms = context.progress_ms + MOVE_CHECK_MS
    else:
        replica.departures.remove(departure)


def _report(replica: GroupReplica, departure: Departure, timeout: Timeout) -> None:
    """Report a removal as the timeout that it proves."""
    if departure.rule == MEMBER_REMOVED and replica.unexplained_ms == departure.gone_ms:
        replica.unexplained_ms = None  # it is explained now: an earlier judgement had marked it
    departure.evidence, departure.cause, departure.deadline_ms = Evidence.OBSERVED, timeout.cause, timeout.deadline_ms
    if isinstance(timeout, RebalanceTimeout):
        departure.rule = REBALANCE_TIMEOUT
    else:
        departure.rule, departure.timer_reset_ms = SESSION_EXPIRED, timeout.timer_reset_ms
        departure.deadline_from_ms, departure.deadline_until_ms = timeout.deadline_from_ms, timeout.deadline_until_ms
    departure.judged, departure.judge_again = True, False
    count_violation(replica, departure)


def _mark_unknown(replica: GroupReplica, departure: Departure, context: JudgementContext) -> None:
    """Report the removal as ``member-removed``, cause unknown.

    Such a removal is a sign of lost lines, unless the coordinator moved since the member was last heard.
    """
    if not moves_since_heard(departure.member, context):
        replica.unexplained_ms = max(replica.unexplained_ms or 0, departure.gone_ms)
    departure.rule, departure.cause, departure.evidence = MEMBER_REMOVED, Cause.UNKNOWN, Evidence.INFERRED
    departure.deadline_ms = departure.timer_reset_ms = None
    departure.deadline_from_ms = departure.deadline_until_ms = None
    departure.judged = True
    count_violation(replica, departure)


def _drop_earlier(replica: GroupReplica, departure: Departure, shared: Shared) -> None:
    """Drop an earlier judged removal of the same member by the same rule."""
    earlier = [id(d) for d in shared.of_member(departure) if d.judged and is_of_the_same(d, departure)]
    if earlier:
        replica.departures = [d for d in replica.departures if id(d) not in earlier]


def _judge_again(replica: GroupReplica, context: JudgementContext, shared: Shared) -> bool:
    """Judge again the removals that nothing explained, if a move of the coordinator has become known since.

    This waits until a leave behind a stalled write would have been answered. Return whether a move explains any.
    """
    found = False
    for departure in list(replica.departures):
        answered_ms = departure.answered_ms + context.thresholds.grace_ms
        recent = answered_ms <= context.progress_ms <= departure.gone_ms + MOVE_KNOWN_MS
        due = departure.judge_again and recent and not _was_in_no_generation(departure)
        if not (due and _moved_before(departure, context)):
            continue
        shared.note_starter(departure.phase)
        verdict = judge(replica, departure, context, shared)
        if isinstance(verdict, RebalanceTimeout | SessionExpired):
            found = True
            _report(replica, departure, verdict)
    return found


def _until_it_was_unknown(departure: Departure, context: JudgementContext) -> JudgementContext:
    """Return the context without the timer resets after the member was answered 25, if its session had ended by then.

    The member was gone by that answer, so later timer resets say nothing about it. But a coordinator that has loaded
    the log since, and then showed the removal, had the member again: nothing that its predecessor wrote had removed it.
    """
    member, session_ms = departure.member, session_timeout_ms(departure.member, context)
    if member.unknown_ms is None or member.session_from_ms is None or session_ms is None:
        return context
    moves = (r for r in context.timer_resets if r.is_move and r.low_ms > member.unknown_ms)
    if any(move.broker == departure.answered_by for move in moves):
        return context
    if max([member.session_from_ms, *departure.touches_ms]) + session_ms > member.unknown_ms + TRUNCATED_MS:
        return context
    return context._replace(timer_resets=[r for r in context.timer_resets if r.low_ms <= member.unknown_ms])


def _was_in_no_generation(departure: Departure) -> bool:
    """Tell whether a classic member was in no known generation: a coordinator that loads the log does not have it."""
    return not departure.member.in_kip848_group and departure.member.generation is None


def _a_move_may_become_known(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the broker whose answer showed the removal is not known to be the coordinator yet.

    That broker restarted all session timers when it loaded the group. The move, once known, shows when that was, and so
    whether the member's session had ended.
    """
    waits = context.progress_ms < departure.gone_ms + MOVE_KNOWN_MS
    return waits and departure.answered_by not in ("", context.broker)


def _moved_before(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether another broker may already have been the coordinator when a member was removed, as is known now."""
    return any(may_precede(move, departure) for move in moves_since_heard(departure.member, context))


def _was_shown_before_the_move(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a static member's successor had sent its JoinGroup to the next coordinator before the move was seen.

    It waited there while the deposed coordinator still answered.
    """
    moves = (r for r in context.timer_resets if r.is_move)
    asked_next = any(r.broker == departure.answered_by and r.low_ms > departure.removed_ms for r in moves)
    return departure.successor is not None and asked_next


def _is_of_a_deposed_coordinator(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a deposed coordinator's answer showed the removal: the next coordinator knows nothing of it.

    A broker that has also written the generation was the coordinator, whatever metadata says: the next one loads that.
    """
    others = (r for r in context.timer_resets if r.broker != departure.answered_by)
    moves = [r for r in others if r.is_move]
    return departure.answered_by not in ("", departure.phase.written_by) and any(
        r.low_ms <= departure.gone_ms and (r.high_ms is None or departure.gone_ms <= r.high_ms) for r in moves
    )

"""Causes: what the end of a join phase proves about a member that is gone after it, if its timeout shows nothing."""

from coordinator_model.replica.removals.case import Answer, Case, Missed, NotMissed
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import EARLY_MS, ROUNDED_MS
from coordinator_model.replica.removals.phase_timeout import may_have_timed_out, too_young
from coordinator_model.replica.removals.removal_instant import alive_at_the_end, ends, may_have_ended, was_unknown
from coordinator_model.replica.session_timer import blindly_heard_ms, deadlines, gone_by_ms, session_timeout_ms


def kept_as_static(case: Case) -> Answer:
    """Answer for a static member: no join phase removes it."""
    return None if case.member.instance_id is None else NotMissed()


def unknown_before_its_end(case: Case) -> Answer:
    """Answer for a member that the coordinator no longer knew before the phase ended: it was gone by then.

    If it was heard just before, and its session cannot have ended, the phase's timeout dropped it. Then the coordinator
    waits once more for its static members, as in ``phase_was_extended``, but here nothing shows when the phase began.
    """
    gone_ms = gone_by_ms(case.member, case.context)
    if gone_ms is None or not was_unknown(case.departure, case.context):
        return None
    spans, grace_ms = deadlines(case.departure, case.context), case.context.thresholds.grace_ms
    heard = gone_ms - grace_ms <= (case.member.last_heartbeat_ms or 0) <= gone_ms
    alive = bool(spans) and ends(spans)[0] > gone_ms + grace_ms
    return Missed(gone_ms) if case.departure.phase.static_in and heard and alive else NotMissed()


def lived_to_its_end(case: Case) -> Answer:
    """Answer if the end of another member's session began the phase, and this one's cannot have ended in the phase."""
    alive = case.together.once(alive_at_the_end)
    lived = alive is not None and id(case.departure) in alive[1]
    return Missed(case.removed_ms) if lived else None


def removed_early(case: Case) -> Answer:
    """Answer by the session alone: a member that was removed before its session ended missed the phase.

    It did not if the phase was too short to end by its timeout. After a move of the coordinator the answer is
    ``NotMissed`` too, because the ends of sessions are not known well enough.
    """
    departure, context = case.departure, case.context
    had_ended = may_have_ended(departure, context, departure.removed_ms)
    if too_young(departure, context) or _began_as_it_ended(departure) or had_ended:
        return NotMissed()
    if may_have_timed_out(departure) and _was_alive(case):
        return Missed(case.removed_ms)
    spans, earliest_ms = deadlines(departure, context), case.session_end_ms - context.thresholds.grace_ms
    dated = (origin is None or blindly_heard_ms(case.member, origin) for _, _, origin in spans)
    if may_have_timed_out(departure) and all(dated):
        earliest_ms = max(earliest_ms, ends(spans)[0] - EARLY_MS)  # no timer runs before its time
    return Missed(case.removed_ms) if case.removed_ms < earliest_ms else NotMissed()


def _was_alive(case: Case) -> bool:
    """Tell whether a commit shows that the session went on as the phase ended: no timer runs before its time.

    If the commit was a transaction's, the session had ended earlier. But that would have ended the phase at once,
    because all others had joined. A phase that was due is likelier than a transaction whose timer also ran late.
    """
    departure, removed_ms, phase = case.departure, case.removed_ms, case.departure.phase
    lasts_ms = max(departure.touches_ms, default=0) + (session_timeout_ms(case.member, case.context) or 0)
    if lasts_ms <= removed_ms + ROUNDED_MS or phase.joins.last_ms is None:
        return False
    alone = len(case.together.dropped) == 1 and not phase.unjoined
    before = [span for span in case.together.spans.of(departure) if span[0] <= removed_ms]
    return alone and all(phase.joins.last_ms <= first and last < removed_ms - EARLY_MS for first, last, _ in before)


def _began_as_it_ended(departure: Departure) -> bool:
    """Tell whether nothing shows that the join phase began before the record that shows its end.

    Then the phase's timer did not run out: if the only member leaves, the group is empty at once, and the line of that
    leave may be missing. But a phase that lasted exactly one timeout did begin, unseen, as the one after a downgrade
    from KIP-848 does.
    """
    phase, removed_ms = departure.phase, departure.removed_ms
    if departure.answered_by != "" or phase.started is None:
        return False
    lasted_a_timeout = abs(removed_ms - phase.began_after_ms - (phase.limit_ms or 0)) <= EARLY_MS
    return not phase.started.by and phase.started.at_ms >= removed_ms and not lasted_a_timeout

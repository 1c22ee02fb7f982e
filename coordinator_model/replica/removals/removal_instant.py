"""When a member was removed, as its join phase, the removals together with it, and the coordinator's moves show."""

from collections.abc import Iterable
from dataclasses import replace

from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.group import Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS
from coordinator_model.replica.removals.phase_timeout import too_young
from coordinator_model.replica.removals.phases import NEWCOMER, JoinPhase, PhaseStart
from coordinator_model.replica.removals.together import Together, context_before, may_precede
from coordinator_model.replica.session_timer import (
    AWAKE_BEFORE_LINE_MS,
    TIMER_EARLY_MS,
    UNSEEN_TERM_MS,
    Span,
    blindly_heard_ms,
    deadlines,
    due_while_paused,
    gone_by_ms,
    lines_lost,
    moves_since_heard,
    session_timeout_ms,
    unheard_since,
)
from coordinator_model.states import Cause


def gone_between(departure: Departure, together: Together, leaves: Iterable[Leave]) -> tuple[int, int]:
    """Return between which instants a member was removed.

    If only one session timer can have begun the phase, that timer ran out as the phase began. It is the member's own
    timer, or that of members whose timers started together with its own when their coordinator loaded the group.
    Otherwise only these are known: when the member was found gone, and which members were removed with it.
    """
    found_ms = (departure.removed_ms, _gone_by_ms(departure, together))
    phase = together.once(_phase_as_dated)
    if departure.answered_by not in ("", departure.broker):
        return found_ms  # the phase may be that of the coordinator that was known then
    if phase.started is None or phase.started.by or phase.started.at_ms >= departure.removed_ms:
        return found_ms  # a request began the phase, or no start of it was seen
    if (departure.member.session_from_ms or 0) > phase.started.at_ms:
        return found_ms  # heard since the phase began, so the end of its session did not begin the phase
    if phase.started.by == NEWCOMER and _may_have_gone_on(departure, phase.started, together.context):
        return found_ms  # the newcomer began the phase, unless the member's commits were a transaction's
    if any(_ended_as_it_began(leave, phase) for leave in leaves):
        return found_ms
    timers, waiting = together.once(_starters)
    if len(timers) != 1 or any(d is not departure for d in waiting):
        return found_ms
    [(began_with, starters_ms)], (own, own_ms) = timers, _timer(departure, together.context)
    if began_with != own:
        return found_ms
    longer_ms = own_ms - starters_ms
    return phase.began_after_ms + longer_ms, min(phase.started.at_ms + longer_ms, found_ms[1])


def _ended_as_it_began(leave: Leave, phase: JoinPhase) -> bool:
    """Tell whether the end of a former static member's session can have begun a phase in which its instance came back.

    The answer to one successor may come before the phase ends, because another one replaces it (82). So the removal may
    be judged by then, and is not among those that the phase's end showed.
    """
    session_from_ms, timeout_ms = leave.member.session_from_ms, leave.member.session_timeout_ms
    if leave.cause is not Cause.REPLACED or session_from_ms is None or timeout_ms is None:
        return False
    by_ms = min(leave.applied_ms, (phase.started_ms or 0) + EARLY_MS)
    return phase.began_after_ms <= session_from_ms + timeout_ms <= by_ms


def _may_have_gone_on(departure: Departure, start: PhaseStart, context: JudgementContext) -> bool:
    """Tell whether the member's session may have gone on as the phase began, because a touch restarted its timer."""
    touched_ms = max(departure.touches_ms, default=0)
    return touched_ms + (session_timeout_ms(departure.member, context) or 0) > start.at_ms + EARLY_MS


def _phase_as_dated(together: Together) -> JoinPhase:
    """Return the join phase. If its end shows when it began, that is its beginning."""
    lived = together.once(alive_at_the_end)
    if lived is None:
        return together.phase
    began_ms, _ = lived
    return replace(together.phase, began_after_ms=began_ms - LATE_MS, started=PhaseStart(began_ms, None))


def _starters(together: Together) -> tuple[set[tuple[int, int]], list[Departure]]:
    """Return the timers that can have begun the phase, and up to two of their departures that still had to sync.

    If none can, the next coordinator had loaded the group a little before its move was seen.
    """
    phase, lived = together.once(_phase_as_dated), together.once(alive_at_the_end)
    alive = set() if lived is None else lived[1]
    spans = [(d, together.spans.of(d)) for d in together.departures if id(d) not in alive]
    starters = [d for d, span in spans if d.sync_timeout_ms or not span or may_have_begun(phase, span)]
    if not starters:
        late_ms = (phase.started_ms or 0) + UNSEEN_TERM_MS
        soon = [d for d, span in spans if ends(span)[0] <= late_ms]
        starters = [d for d in soon if may_have_ended(d, together.context, phase.started_ms or 0)]
    return {_timer(d, together.context) for d in starters}, [d for d in starters if d.sync_timeout_ms][:2]


def deadline_interval_ms(
    departure: Departure, deadline_ms: int, blamed: TimerReset | None, context: JudgementContext
) -> tuple[int | None, int | None]:
    """Return the interval in which a session ended; None twice if the deadline is exact.

    It is not exact after a move: a deposed coordinator may go on answering, so the new coordinator may have loaded the
    group long before the move was seen, and a classic group shows a removal late. The same holds if a broker may have
    restarted: it loads its groups again. It is not exact either if the session was due just after the last line before
    a pause: the coordinator may have been paused already.
    """
    if blamed is None or departure.member.in_kip848_group:
        return None, None
    if blamed.woke_ms is not None:
        return _before_or_after_pause(departure, blamed, deadline_ms, context)
    if blamed.cause is not Cause.COORDINATOR_PAUSE and blamed not in moves_since_heard(departure.member, context):
        return None, None
    earliest_ms = _earliest_since(blamed, departure, context)
    return min(earliest_ms, deadline_ms), max(deadline_ms, departure.removed_ms)


def _before_or_after_pause(
    departure: Departure, pause: TimerReset, deadline_ms: int, context: JudgementContext
) -> tuple[int | None, int | None]:
    """Return when a session was due to end and when its coordinator woke, if the pause may have begun by then."""
    paused = due_while_paused(departure, context)
    due_ms, woke_ms = deadline_ms if paused is None else paused[1], pause.woke_ms or 0
    may_be_paused = pause.low_ms < due_ms <= pause.low_ms + AWAKE_BEFORE_LINE_MS
    return (due_ms, max(woke_ms, deadline_ms)) if may_be_paused else (None, None)


def may_have_ended(departure: Departure, context: JudgementContext, by_ms: int) -> bool:
    """Tell whether a session that began when a new coordinator loaded the group may have ended by an instant.

    The earliest possible load counts. The session had not ended if the member committed an offset less than one session
    timeout before that instant.
    """
    touched_ms = max(departure.touches_ms, default=0) + (session_timeout_ms(departure.member, context) or 0)
    if touched_ms > by_ms:
        return False
    return any(
        _earliest_since(move, departure, context) <= by_ms for move in moves_since_heard(departure.member, context)
    )


def _earliest_since(move: TimerReset, departure: Departure, context: JudgementContext) -> int:
    """Return the earliest possible end of a session that began when a new coordinator loaded the group.

    If the member was heard while that coordinator may have been loading, the session began then, or later.
    """
    loads_ms = max(move.low_ms if move.since_ms is None else move.since_ms, departure.member.joined_ms or 0)
    loads_ms = max(loads_ms, blindly_heard_ms(departure.member, move))
    return loads_ms + (session_timeout_ms(departure.member, context) or 0)


def removed_with_one_alive(departure: Departure, together: Together, leaves: Iterable[Leave]) -> bool:
    """Tell whether the record that removed a member also removed one that its coordinator had no reason to remove.

    That is a member that did not leave, whose session cannot have ended, and that cannot have missed the join phase: it
    is static, or the phase was too short. It may also be one that left only afterwards, by another broker's answer, or
    this member itself if it had left before.

    Then another coordinator wrote the record, so the known coordinator's heartbeats say nothing about the removals.
    """
    if departure.successor is not None or departure.answered_by:
        return False
    if any(_left_before(leave, departure) or _left_after(leave, departure, together.context) for leave in leaves):
        return True
    return not departure.member.in_kip848_group and any(d is not departure for d in together.once(_surely_alive))


def _surely_alive(together: Together) -> list[Departure]:
    """Return members that their coordinator had no reason to remove, but no more than two.

    The removal that is judged is one of them at most.
    """
    context, same = together.context, (d for d in together.dropped if not d.answered_by)
    kept = (d for d in same if not d.sync_timeout_ms and (d.member.instance_id is not None or too_young(d, context)))
    return [d for d in kept if _outlived(d, context) and not lines_lost(d.member, context)][:2]


def _left_before(leave: Leave, departure: Departure) -> bool:
    """Tell whether a leave of the departed member's own was accepted before its removal, but not written to the log.

    The broker that answered that leave was deposed: another coordinator had loaded the log, and removed the member once
    more.
    """
    own = leave.member.member_id == departure.member.member_id and leave.cause is not Cause.REPLACED
    heard_ms = departure.member.session_from_ms or 0
    return own and not departure.member.in_kip848_group and heard_ms < leave.applied_ms < departure.removed_ms


def _left_after(leave: Leave, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a leave is of a member that the record no longer listed, and came after the record.

    A coordinator other than the one that wrote the record answered that leave.
    """
    late_ms, generation = leave.applied_ms - departure.removed_ms, leave.member.generation
    listed = generation is None or generation >= departure.generation
    left = leave.cause is not Cause.REPLACED and not departure.member.in_kip848_group
    return left and not listed and TIMER_EARLY_MS < late_ms <= context.thresholds.grace_ms


def _outlived(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a session cannot have ended by the removal, if the coordinator was the one that was known then.

    A heartbeat answered 15 behind a stalled write restarted the timer: a member that is gone is answered 25 at once.
    """
    known = context._replace(timer_resets=[r for r in context.timer_resets if r.low_ms <= departure.removed_ms])
    spans, parked_ms = deadlines(departure, context_before(departure, known)), departure.member.parked_heartbeat_ms
    if not spans:
        return False
    first_ms = ends(spans)[0]
    if parked_ms is not None and parked_ms <= departure.removed_ms:
        first_ms = max(first_ms, parked_ms + (session_timeout_ms(departure.member, context) or 0))
    return first_ms > departure.removed_ms + context.thresholds.grace_ms


def after_a_move(departure: Departure, context: JudgementContext) -> JudgementContext:
    """Return the context as if the coordinator had moved by the removal, though the move was seen only afterwards."""
    low_ms = departure.removed_ms
    timer_resets = [
        replace(r, low_ms=low_ms, went_on=True) if r.is_move and r.low_ms > low_ms and may_precede(r, departure) else r
        for r in context.timer_resets
    ]
    return context._replace(timer_resets=timer_resets)


def restarted_end_ms(departure: Departure, together: Together, leaves: Iterable[Leave]) -> int | None:
    """Return when a session ended if the end of the last session emptied its group, and a load had begun them all.

    The coordinator writes the record of the empty group when that session ends, so the record dates all of them.
    ``had_restarted`` and ``may_have_restarted`` tell whether there was such a load.

    A member that left or was replaced in the phase before the load counts, too. Only the end of the phase is written,
    so the coordinator that loads the log has that member again. None: something else may have emptied the group.
    """
    timeout_ms = session_timeout_ms(departure.member, together.context)
    shown_later = departure.answered_by != "" or not _ended_with_the_last_session(departure)
    apart = len(together.dropped) != len(together.departures)
    if shown_later or apart or departure.member.in_kip848_group or timeout_ms is None:
        return None
    still_in = (leave for leave in leaves if _was_in_the_log(leave, departure))
    longest_ms = together.once(_longest_session_ms)
    longest_ms = max([longest_ms, *(leave.member.session_timeout_ms or 0 for leave in still_in)])
    return departure.removed_ms - longest_ms + timeout_ms


def _was_in_the_log(leave: Leave, departure: Departure) -> bool:
    """Tell whether the log still had a member that left or was replaced in the phase in which a group became empty.

    The deposed coordinator answered a replacement, whenever it came. It answered a leave only if that came before the
    load: later ones may be the new coordinator's.
    """
    member, removed_ms = leave.member, departure.removed_ms
    if member.generation is None or not departure.phase.began_after_ms <= leave.applied_ms <= removed_ms:
        return False
    before_the_load = leave.applied_ms <= removed_ms - (member.session_timeout_ms or 0)  # which began its session
    return leave.cause is Cause.REPLACED or (before_the_load and not member.awaiting_sync)


def _longest_session_ms(together: Together) -> int:
    return max(session_timeout_ms(d.member, together.context) or 0 for d in together.dropped)


def had_restarted(together: Together) -> bool:
    """Tell whether all session timers of a group that became empty had surely restarted unseen.

    If its record seems late, another coordinator had loaded the group. If it seems early for a member, that coordinator
    had loaded the group before its move was seen. The timers of other members may have run out by then all the same.
    """
    same, context = together.dropped, together.context
    outlived = [d for d in same if _outlived(d, context)]
    loaded = bool(outlived) and all(may_have_ended(d, context, d.removed_ms) for d in same)
    return _no_known_timer_ran(together) or loaded


def may_have_restarted(together: Together) -> bool:
    """Tell whether a group became empty later than its last session was due, or before one of them was.

    Timers run within milliseconds, and never early. A load that was not seen explains both. But a short pause of the
    coordinator explains the first as well: then the sessions that were due before the last one may have ended in time.
    A heartbeat whose line is dated too late explains the second. It is no sign of a load if the end of another session
    emptied the group.
    """
    last_ms, removed_ms = together.latest_ends_ms.values(), together.removed_ms
    spans = [own for own in map(together.spans.of, together.dropped) if own]
    late = max(last_ms) + LATE_MS < removed_ms
    early = any(ends(own)[0] > removed_ms + EARLY_MS for own in spans)
    ran = any(_overlap(own, removed_ms - EARLY_MS, removed_ms + EARLY_MS) for own in spans)
    return min(last_ms) > 0 and (late or (early and not ran))


def _no_known_timer_ran(together: Together) -> bool:
    """Tell whether a group became empty at an instant at which no known session can have ended.

    Each session can have ended before. If a touch is uncertain, it can also be due later.
    """
    same, thresholds = together.dropped, together.context.thresholds
    # In a pause this short nothing shows, and timers run late by up to its length. Which of several timers ran late is
    # not known. A group's only member has one timer, so the record dates that one.
    tolerance_ms = thresholds.grace_ms if len(same) == 1 else thresholds.progress_gap_ms
    known = [spans for spans in map(together.spans.of, same) if spans]
    before = all(any(last_ms + tolerance_ms < together.removed_ms for _, last_ms, _ in spans) for spans in known)
    ran = any(_overlap(spans, together.removed_ms - tolerance_ms, together.removed_ms + EARLY_MS) for spans in known)
    return before and not ran


def _ended_with_the_last_session(departure: Departure) -> bool:
    """Tell whether the end of a session ended the join phase that left a group empty.

    It did if it also began the phase. It also did if the start of the phase was seen and nobody had joined since: a
    member that joins stays in the group until the phase ends. But then the phase must not have been due: its timeout
    drops all members that have not joined. If members are in the new generation, they have joined, and the last of them
    ended the phase.
    """
    phase, removed_ms = departure.phase, departure.removed_ms
    if phase.ended is None or not phase.ended.emptied:
        return False
    if phase.started_ms == removed_ms:
        return True
    if phase.started is None or phase.started.at_ms >= removed_ms or phase.limit_ms is None:
        return False
    alone = phase.joins.first_ms is None and not phase.joins.skipped
    return alone and removed_ms < phase.began_after_ms + phase.limit_ms - EARLY_MS


def _timer(departure: Departure, context: JudgementContext) -> tuple[int, int]:
    """Return what identifies a session timer, and how long it lasts.

    The move of the coordinator that started it identifies the timer, so all timers that started with one move are the
    same here. Without such a move the departure identifies it.
    """
    moves = moves_since_heard(departure.member, context)
    with_move = bool(moves) and not _touched_since(departure, moves[0])
    return moves[0].low_ms if with_move else -id(departure), session_timeout_ms(departure.member, context) or 0


def _touched_since(departure: Departure, reset: TimerReset) -> bool:
    """Tell whether the member's session timer may have restarted once more after a timer reset of its shard."""
    return max(departure.touches_ms, default=reset.low_ms) > reset.low_ms


def _gone_by_ms(departure: Departure, together: Together) -> int:
    """Return by when a member was gone, if its session began when its coordinator loaded the group.

    The load started the timers of all members. Of those that were not heard since, the one with the longest timeout
    expired last, by the removal. The others had expired earlier by the difference of their timeouts.
    """
    context = together.context
    loads = [reset for reset in unheard_since(departure.member, context.timer_resets) if reset.may_load][:1]
    timeout_ms = session_timeout_ms(departure.member, context)
    if not loads or timeout_ms is None or _touched_since(departure, loads[0]):
        return departure.removed_ms
    unheard_ms = (longest_ms for reset, longest_ms in together.once(_longest_unheard_ms) if reset == loads[0])
    return departure.removed_ms - max(timeout_ms, *unheard_ms) + timeout_ms


def _longest_unheard_ms(together: Together) -> list[tuple[TimerReset, int]]:
    """Return the timer resets, each with the longest session timeout of the dropped members not heard since it."""
    resets = together.context.timer_resets
    longest_ms = {id(reset): 0 for reset in resets}
    for departure in together.dropped:
        timeout_ms = session_timeout_ms(departure.member, together.context) or 0
        for reset in unheard_since(departure.member, resets):
            longest_ms[id(reset)] = max(longest_ms[id(reset)], timeout_ms)
    return [(reset, longest_ms[id(reset)]) for reset in resets]


def alive_at_the_end(together: Together) -> tuple[int, set[int]] | None:
    """Return when the join phase began and which members were alive at its end, by ``id`` of the departures.

    None unless the end of another session began it. If a request began it, its first sign is that request.

    After a move of the coordinator the end of that session is known only within a span. The end of the phase dates it
    better: it came one rebalance timeout later, if neither the last JoinGroup nor the end of a session ended the phase.
    Members whose session may have lasted beyond the phase, because they committed, were alive.
    """
    phase, removed_ms = together.phase, together.removed_ms
    last_join_ms = phase.joins.last_ms
    if phase.limit_ms is None or phase.started is None or last_join_ms is None or last_join_ms >= removed_ms - LATE_MS:
        return None
    began_ms = removed_ms - phase.limit_ms
    if phase.static_in or not phase.began_after_ms <= began_ms <= phase.started.at_ms + EARLY_MS:
        return None
    if phase.started.by and abs(began_ms - phase.started.at_ms) <= EARLY_MS:
        return None
    spans = [(d, together.spans.of(d)) for d in together.dropped]
    if any(_overlap(own, removed_ms - LATE_MS, removed_ms + EARLY_MS) for _, own in spans):
        return None
    starters = [d for d, own in spans if _overlap(own, began_ms - LATE_MS, began_ms + EARLY_MS)]
    alive = {
        id(d)
        for d, own in spans
        if not d.member.in_kip848_group
        and d.member.instance_id is None
        and any(first_ms > removed_ms for first_ms, _, _ in own)
        and any(starter is not d for starter in starters[:2])
    }
    return (began_ms, alive) if alive else None


def was_unknown(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the coordinator answered that it knows no such member (25) before the removal was seen."""
    gone_ms = gone_by_ms(departure.member, context)
    return gone_ms is not None and gone_ms < departure.removed_ms - EARLY_MS


def _overlap(spans: list[Span], from_ms: int, until_ms: int) -> bool:
    """Tell whether one of the spans overlaps an interval."""
    return any(first_ms <= until_ms and last_ms >= from_ms for first_ms, last_ms, _ in spans)


def may_have_begun(phase: JoinPhase, spans: list[Span]) -> bool:
    """Tell whether the end of a session in one of these spans can have begun a join phase."""
    return _overlap(spans, phase.began_after_ms, (phase.started_ms or 0) + EARLY_MS)


def ends(spans: list[Span]) -> tuple[int, int]:
    """Return the first and the last instant of spans."""
    return min(first_ms for first_ms, _, _ in spans), max(last_ms for _, last_ms, _ in spans)

"""When a member's session ends, and how exactly that can be known.

Theory (``GroupMetadataManager.rescheduleClassicGroupMemberHeartbeat`` and ``scheduleConsumerGroupSessionTimeout``). The
coordinator keeps one session timer for each member. Some of its restarts are seen: accepted heartbeats, the end of a
join phase, the leader's sync. Some are uncertain: an accepted offset commit restarts the timer of a classic member, but
a transactional one looks the same and does not. Others are not seen: a coordinator that paused, restarted or moved
restarts all timers at some instant between two of its answers. So a deadline is a point, one of several points, or an
interval.

A member that is still listed is judged by the latest possible deadline, so that no living member is accused. A removal
proves that some deadline has passed. It is judged by the possible deadline nearest to it, or by the middle of an
interval that the group's rebalance bounds.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from coordinator_model.brokers.timer_reset import LONGEST_SESSION_MS, TimerReset
from coordinator_model.membership import partitions_of
from coordinator_model.replica.judgement_context import Commits, JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.states import Cause

SAME_START_MS = 10
"""How far apart the instants of a record and of its answer's line may be, though both belong to the same step."""
FIRST_ANSWER_MS = 200
"""How long before its line the first answer of a new coordinator may have been applied."""
TIMER_EARLY_MS = 250
"""How much earlier than a session's end the record of the removal may seem to be, in groups without join phases. No
timer runs before its time. But a heartbeat is applied at the beginning of its ``localTimeMs``, and its instant is taken
from the end: a difference of 151 ms was seen on a busy broker."""
AWAKE_BEFORE_LINE_MS = 500
"""How long a broker may run its timers before its first line after a pause, and after its last line before a pause: the
probe sends its next request within this time."""
USUAL_LOAD_MS = 10_000
"""If a loading coordinator answers heartbeats with 0 for longer than this, it is assumed to have loaded.

This only dates a session's end.
"""
UNSEEN_TERM_MS = 2_000
"""How long a deposed coordinator may have gone on, if none of its answers shows that it did."""


Span = tuple[int, int, TimerReset | None]
"""The first and the last instant at which a session can have ended, and the timer reset that began the session, if
any."""


class Session(NamedTuple):
    """One run of a member's session timer."""

    start_ms: int
    timeout_ms: int

    @property
    def end_ms(self) -> int:
        """When it runs out."""
        return self.start_ms + self.timeout_ms


def session_timeout_ms(member: Member, context: JudgementContext) -> int | None:
    """Return a member's session timeout; that of a KIP-848 member is the brokers' configuration. None: unknown."""
    if member.kip848 and member.session_timeout_ms is None:
        return context.consumer_session_timeout_ms
    return member.session_timeout_ms


def gone_by_ms(member: Member, context: JudgementContext) -> int | None:
    """Return when the coordinator answered that it does not know a member (25), unless another has taken over since.

    A deposed coordinator's answer says nothing either: it may go on after the next one has loaded the member.
    """
    unknown_ms = member.unknown_ms
    if unknown_ms is None:
        return None
    moves = (r for r in context.timer_resets if r.is_move)
    if any(r.high_ms is None or r.high_ms > unknown_ms or r.word_ms >= unknown_ms for r in moves):
        return None
    return unknown_ms


def surely_gone_ms(departure: Departure, context: JudgementContext) -> int:
    """Return by when a departed member was surely gone: its removal was seen, or its coordinator answered 25 before.

    A KIP-848 group writes a removal at once. So an earlier 25 is by another broker's clock and dates nothing.
    """
    if departure.member.in_kip848_group:
        return departure.removed_ms
    return min(gone_by_ms(departure.member, context) or departure.removed_ms, departure.removed_ms)


def is_covered(member: Member, context: JudgementContext) -> bool:
    """Tell whether telemetry covers a member: it was heard twice, at a usual interval, since coverage began."""
    last, previous = member.last_heartbeat_ms, member.previous_heartbeat_ms
    if last is None or previous is None or previous < context.covered_since_ms:
        return False
    timeout_ms = session_timeout_ms(member, context)
    return timeout_ms is not None and last - previous <= timeout_ms


def touches_ms(member: Member, commits: Commits, since_ms: int) -> list[int]:
    """Return the uncertain restarts ("touches") of a session timer after ``since_ms``.

    These are offset commits (not in KIP-848 groups) and the last heartbeat that was answered 15 behind a stalled
    write.
    """
    if not commits and member.parked_heartbeat_ms is None:
        return []
    found = [] if member.parked_heartbeat_ms is None else [member.parked_heartbeat_ms]
    if not member.in_kip848_group:
        found += commits_ms(member, commits)
    return [at_ms for at_ms in found if at_ms > since_ms]


def commits_ms(member: Member, commits: Commits) -> list[int]:
    """Return when offsets of a member's partitions were last committed."""
    last_ms = map(commits.get, partitions_of(member.assignment))
    return [at_ms for at_ms in last_ms if at_ms is not None]


def may_have_loaded_since(at_ms: int, context: JudgementContext) -> bool:
    """Tell whether a coordinator may have loaded the group since an instant: then it does not know who had to sync."""
    return any(reset.may_load and reset.low_ms >= at_ms for reset in context.timer_resets)


def unheard_since(member: Member, timer_resets: Sequence[TimerReset]) -> list[TimerReset]:
    """Return the timer resets since which the member has neither been heard nor joined, newest first.

    A heartbeat before the next coordinator's first certain answer does not count. It may have been answered by a
    deposed coordinator, or by a loading one, which accepts any heartbeat.
    """
    session_from_ms = member.session_from_ms if member.session_from_ms is not None else member.joined_ms
    return [r for r in reversed(timer_resets) if session_from_ms is None or session_from_ms <= _heard_from_ms(r)]


def moves_since_heard(member: Member, context: JudgementContext) -> list[TimerReset]:
    """Return the moves of the coordinator since which the member has neither been heard nor joined, newest first."""
    return [r for r in unheard_since(member, context.timer_resets) if r.is_move]


def is_heard(member: Member, timer_resets: Sequence[TimerReset]) -> bool:
    """Tell whether a member was heard since all timer resets: then its session began with its last heartbeat."""
    return not timer_resets or not unheard_since(member, timer_resets)


def _heard_from_ms(reset: TimerReset) -> float:
    """Return the instant after which a member has to be heard to have been heard since a timer reset.

    A heartbeat that is dated between the last line before a pause and the end of the pause was applied before the
    pause: its line only came late.
    """
    if reset.woke_ms is not None:
        return max(reset.low_ms, reset.woke_ms - FIRST_ANSWER_MS)
    if not reset.may_load or (reset.cause is Cause.COORDINATOR_PAUSE and reset.blind_ms is None):
        return reset.low_ms
    if reset.high_ms is None:
        unheard = reset.blind_ms is not None or reset.is_move
        return inf if unheard else reset.low_ms
    word_ms = reset.word_ms if reset.word_ms < reset.high_ms else 0
    # Until its first certain answer, a broker that may be loading accepts any heartbeat. Who gets that answer is heard.
    first_ms = reset.high_ms - (FIRST_ANSWER_MS if reset.blind_ms is None else 1)
    return max(reset.low_ms, word_ms, first_ms)


def latest_session(member: Member, context: JudgementContext) -> Session | None:
    """Return the latest session that a member can be in; None while a timer reset is open.

    None too if no restart of its timer or no timeout is known. A pause counts as a restart, though the coordinator's
    timers may have run on: what looks like a pause may be lost telemetry, in which the member was heard.
    """
    session_from_ms, timeout_ms = member.session_from_ms, session_timeout_ms(member, context)
    if session_from_ms is None or timeout_ms is None:
        return None
    session = Session(session_from_ms, _timeout_from_ms(member, session_from_ms, timeout_ms))
    for reset in unheard_since(member, context.timer_resets):
        if reset.high_ms is None:
            return None
        if reset.high_ms > session.start_ms:
            after = Session(reset.high_ms, _timeout_after_ms(member, reset, timeout_ms, context))
            # a heartbeat since the earliest possible load counts if the member's own, longer timeout ends later
            longer = session.start_ms > reset.low_ms and session.end_ms > after.end_ms
            session = session if longer else after
    touched = touches_ms(member, context.commits, session.start_ms)
    if _is_claim_confirmed(member, context):
        # as above, the member's own timeout may be the longer one
        touched += [at_ms for at_ms in (member.claimed_ms or 0,) if at_ms + timeout_ms > session.end_ms]
    touched_ms = max(touched, default=None)
    return session if touched_ms is None else Session(touched_ms, timeout_ms)


def _is_claim_confirmed(member: Member, context: JudgementContext) -> bool:
    """Tell whether the coordinator had moved before a disputed heartbeat: then the new coordinator accepted it.

    A heartbeat is disputed if metadata named another broker as the coordinator when it was accepted. If no coordinator
    was known before it, the first one that became known had accepted it.
    """
    moves = [reset for reset in context.timer_resets if reset.is_move]
    if member.claimed_ms is None or not context.broker:
        return False
    return moves[-1].low_ms <= member.claimed_ms if moves else member.claimed_ms <= context.covered_since_ms


def _timeout_from_ms(member: Member, start_ms: int, timeout_ms: int) -> int:
    """Return how long a session lasts that began with a known restart of the timer.

    The first session of a static successor lasts as long as the former member's: the timer is started before the
    successor's own timeout is set (``GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin``).
    """
    lent_ms, from_ms = member.lent_timeout_ms, member.lent_from_ms
    return lent_ms if lent_ms is not None and abs(start_ms - (from_ms or 0)) <= SAME_START_MS else timeout_ms


def _timeout_after_ms(member: Member, reset: TimerReset, timeout_ms: int, context: JudgementContext) -> int:
    """Return how long a session lasts that began with a timer reset.

    A coordinator that loads a KIP-848 group uses the group's session timeout for its classic members too, until they
    are heard (``GroupMetadataManager.onLoaded``).
    """
    if reset.may_load and member.is_classic_among_consumers:
        return context.consumer_session_timeout_ms or timeout_ms
    return timeout_ms


def unseen_from_ms(member: Member, session: Session | None, context: JudgementContext) -> int | None:
    """Return the instant from which it is unknown whether a member that was heard is alive, if it stays silent.

    That is ``settled_after_ms`` after the end of its latest ``session``, if its coordinator is the one that is known.
    If a timer reset is still open, its earliest instant counts. None: it was never heard, or its timeout is unknown.
    """
    timeout_ms = session_timeout_ms(member, context)
    if member.last_heartbeat_ms is None or timeout_ms is None:
        return None
    if session is None:
        resets_ms = (r.low_ms for r in unheard_since(member, context.timer_resets))
        session = Session(max([member.last_heartbeat_ms, *resets_ms]), timeout_ms)
    return session.end_ms + context.thresholds.settled_after_ms


def removal_deadline_ms(
    departure: Departure, context: JudgementContext, since_ms: int, by_ms: int
) -> tuple[int | None, TimerReset | None]:
    """Return the possible deadline nearest to a removal, and the timer reset that it comes from, if any.

    The member was removed between ``since_ms`` and ``by_ms``. If the deadline is only known to lie in an interval
    within these, the middle is returned, so that the error is at most half of it. A deadline after the removal counts
    only if no other is possible. A KIP-848 group writes a removal as the session ends, so there the deadline is the
    possible instant nearest to the removal.
    """
    removed_ms, spans = min(surely_gone_ms(departure, context), by_ms), deadlines(departure, context)
    touched_ms = max(departure.touches_ms, default=0)
    nearest = [(min(max(removed_ms, span[0]), span[1]), span) for span in spans]
    latest_ms = removed_ms + context.thresholds.grace_ms
    possible = [pair for pair in nearest if pair[0] <= latest_ms] or nearest
    if not possible:
        return None, None
    deadline_ms, (first_ms, _, origin) = min(possible, key=lambda pair: abs(pair[0] - removed_ms))
    begin_ms = max(first_ms, since_ms, touched_ms)
    if begin_ms <= LONGEST_SESSION_MS or departure.member.in_kip848_group:
        return deadline_ms, origin  # in the first case it is not known since when it was a member
    return (begin_ms + deadline_ms) // 2 if begin_ms < deadline_ms <= by_ms else deadline_ms, origin


def latest_deadline_ms(departure: Departure, context: JudgementContext) -> int | None:
    """Return the latest possible deadline of a departed member's session; None: none is known."""
    return max((last_ms for _, last_ms, _ in deadlines(departure, context)), default=None)


def deadlines(departure: Departure, context: JudgementContext) -> list[Span]:
    """Return the spans in which a departed member's session can have ended.

    A timer that is due while the coordinator is paused runs when the coordinator wakes. If the record of the removal is
    older than the first line after the pause, the coordinator was awake by the time of the record.

    A timer that was due before the member's last touch did not run: otherwise the commit would have been refused, or
    the heartbeat answered 25. That also holds for a coordinator that woke and took the commit before it ran its timers.
    """
    removed_ms, touched_ms = departure.removed_ms, max(departure.touches_ms, default=0)
    ends = _due(departure, context)
    ends = _without_restarted([span for span in ends if span[1] >= touched_ms] or ends, departure, context)
    for pause in unheard_since(departure.member, context.timer_resets):
        if pause.woke_ms is not None and _is_over(pause, removed_ms):
            woke_ms, at_once = min(pause.woke_ms, removed_ms), is_written_at_once(departure)
            ends = [_moved_to_waking(span, pause, woke_ms, written_at_once=at_once) for span in ends]
    return ends


def _due(departure: Departure, context: JudgementContext) -> list[Span]:
    """Return the spans in which the session timer was due, as if the coordinator had not been paused.

    If none of them explains the removal, another broker had loaded the group before the deposed one's last answer.
    """
    timer_resets = [reset for reset in context.timer_resets if reset.low_ms <= departure.removed_ms]
    ends = _due_after(departure, context, timer_resets)
    explained = any(_explains(span, departure, context.thresholds.grace_ms) for span in ends)
    return ends if explained else ends + _due_since_before(departure, context)


def _explains(span: Span, departure: Departure, grace_ms: int) -> bool:
    """Tell whether a session that ended in a span explains a removal. A KIP-848 group writes a removal at once."""
    first_ms, last_ms, _ = span
    if not departure.member.in_kip848_group:
        return first_ms <= departure.removed_ms + grace_ms
    return first_ms - TIMER_EARLY_MS <= departure.removed_ms <= last_ms + grace_ms


def _due_since_before(departure: Departure, context: JudgementContext) -> list[Span]:
    """Return when a session ended, if a new coordinator loaded the group before the deposed one's last answer.

    Unless something shows that the deposed coordinator went on for longer, it went on for ``UNSEEN_TERM_MS`` at most.
    """
    timeout_ms = session_timeout_ms(departure.member, context)
    for move in unheard_since(departure.member, context.timer_resets):
        if timeout_ms is None or move.since_ms is None:
            continue
        lasts_ms = _timeout_after_ms(departure.member, move, timeout_ms, context)
        removed_ms = surely_gone_ms(departure, context)
        first_ms = max(earliest_load_ms(move, departure), departure.member.joined_ms or 0)
        first_ms = max(first_ms, blindly_heard_ms(departure.member, move))
        if first_ms <= removed_ms - lasts_ms < move.low_ms:
            return [(first_ms + lasts_ms, departure.removed_ms, move)]
    return []


def earliest_load_ms(move: TimerReset, departure: Departure) -> int:
    """Return the earliest instant at which the coordinator that took over with a move can have loaded the group.

    If anything shows that the deposed coordinator went on unaware for longer, that is ``since_ms``. The new
    coordinator's answer 25 may show it. Otherwise the deposed one went on for ``UNSEEN_TERM_MS`` at most.
    """
    if move.since_ms is None:
        return move.low_ms
    if move.went_on or _shows_that_it_went_on(departure.member, move) or move.low_ms > departure.removed_ms:
        return move.since_ms
    return max(move.since_ms, move.low_ms - UNSEEN_TERM_MS)


def _shows_that_it_went_on(member: Member, move: TimerReset) -> bool:
    """Tell whether the new coordinator's answer 25 shows that the deposed one had gone on unaware.

    By that answer a session that began with the load of the group had ended, so the load was a session timeout earlier.
    The answer shows that if it is the new coordinator's first. A later one shows it only for a static member, because
    no join phase removes that.
    """
    if member.unknown_ms is None or move.high_ms is None:
        return False
    return member.unknown_ms == move.high_ms or (member.instance_id is not None and member.unknown_ms > move.high_ms)


def _due_after(departure: Departure, context: JudgementContext, timer_resets: Sequence[TimerReset]) -> list[Span]:
    """Return the spans in which the session timer was due, with the given timer resets.

    If a member was never seen, the coordinator may have heard it at any instant between its join and the start of
    telemetry. Then every deadline up to ``live_from_ms`` plus the timeout is possible.
    """
    member = departure.member
    timeout_ms = session_timeout_ms(member, context)
    if timeout_ms is None:
        return []
    ends: list[Span] = []
    too_late = _lost_too_late(departure, timeout_ms, context)
    came_ms = min(member.joined_ms or 0, member.session_from_ms or 0)  # a member has no timer before it joins
    since_ms = departure.removed_ms
    for reset in unheard_since(member, timer_resets):
        if reset.woke_ms is not None or reset in too_late:
            continue
        blindly_ms = blindly_heard_ms(member, reset)
        by_ms = loaded_by_ms(reset, departure)
        went_on = by_ms < reset.low_ms  # the deposed coordinator answered for longer than it coordinated
        low_ms = max(earliest_load_ms(reset, departure) if went_on else reset.low_ms, came_ms, blindly_ms)
        high_ms = max(low_ms, by_ms)
        if blindly_ms - (reset.blind_ms or 0) > USUAL_LOAD_MS and blindly_ms == low_ms:
            high_ms = low_ms  # answered for so long, the coordinator had loaded the group by then
        lasts_ms = _timeout_after_ms(member, reset, timeout_ms, context)
        ends.append((low_ms + lasts_ms, high_ms + lasts_ms, reset))
        own_ms = blindly_ms + timeout_ms  # if the group was loaded by that heartbeat, the member's own timeout counts
        if blindly_ms and lasts_ms != timeout_ms:
            ends.append((own_ms, own_ms, reset))
        since_ms = min(since_ms, low_ms)
        if reset.is_move:
            break  # the new coordinator knows nothing of the timers before it
    else:
        session_from_ms = member.session_from_ms
        if session_from_ms is None and (member.joined_ms or 0) >= context.live_from_ms:
            session_from_ms = member.joined_ms
        if session_from_ms is None:
            since_ms = member.joined_ms or 0
            ends.append((since_ms + timeout_ms, max(since_ms, context.live_from_ms) + timeout_ms, None))
        else:
            since_ms = min(since_ms, session_from_ms)
            end_ms = session_from_ms + _timeout_from_ms(member, session_from_ms, timeout_ms)
            ends.append((end_ms, end_ms, None))
    touched = [at_ms + timeout_ms for at_ms in departure.touches_ms if at_ms > since_ms]
    return ends + [(end_ms, end_ms, None) for end_ms in touched]


def _without_restarted(ends: list[Span], departure: Departure, context: JudgementContext) -> list[Span]:
    """Leave out an end from before a heartbeat behind a stalled write, if the end after that explains the removal.

    The heartbeat had restarted the timer: of a member that is gone the coordinator knows nothing, so it answers 25 at
    once (``GroupMetadataManager.classicGroupHeartbeat``). If its end came too late, the broker may have been deposed.
    """
    parked_ms, timeout_ms = departure.member.parked_heartbeat_ms, session_timeout_ms(departure.member, context)
    if parked_ms is None or timeout_ms is None or parked_ms + timeout_ms > departure.removed_ms:
        return ends
    return [span for span in ends if span[2] is not None or span[1] >= parked_ms + timeout_ms] or ends


def loaded_by_ms(reset: TimerReset, departure: Departure) -> int:
    """Return the latest instant at which a coordinator can have restarted the session timers with a timer reset.

    A new coordinator that let a JoinGroup wait for the end of the join phase had loaded the group when that arrived: a
    loading one refuses it at once (14, ``CoordinatorRuntime.withActiveContextOrThrow``).
    """
    by_ms, phase = departure.removed_ms if reset.high_ms is None else reset.high_ms, departure.phase
    first_ms = None if phase.joins.skipped else phase.joins.first_ms
    moved = reset.is_move and reset.broker == departure.answered_by
    ended_since = phase.ended is not None and phase.ended.at_ms > reset.low_ms
    return min(by_ms, first_ms) if moved and ended_since and first_ms is not None else by_ms


def _lost_too_late(departure: Departure, timeout_ms: int, context: JudgementContext) -> list[TimerReset]:
    """Return the losses of lines that began after the member's session had ended: they hide none of its heartbeats."""
    member = departure.member
    if member.session_from_ms is None:
        return []
    too_late: list[TimerReset] = []
    end_ms = max([member.session_from_ms, *departure.touches_ms]) + timeout_ms
    for reset in reversed(unheard_since(member, context.timer_resets)):
        if reset.cause is Cause.UNKNOWN and reset.low_ms > end_ms:
            too_late.append(reset)
        else:
            end_ms = max(end_ms, (departure.removed_ms if reset.high_ms is None else reset.high_ms) + timeout_ms)
    return too_late


def blindly_heard_ms(member: Member, reset: TimerReset) -> int:
    """Return when a coordinator that may still have been loading last accepted a heartbeat of the member; 0: never.

    If it had loaded the group, the session began with that heartbeat, otherwise later. A heartbeat that is no later
    than the former coordinator's last answer was accepted by that one.
    """
    heard_ms, blind_ms = member.last_heartbeat_ms or 0, reset.blind_ms
    blindly = blind_ms is not None and heard_ms >= blind_ms - SAME_START_MS and heard_ms > reset.word_ms
    return heard_ms if blindly else 0


def due_while_paused(departure: Departure, context: JudgementContext) -> tuple[TimerReset, int] | None:
    """Return the pause of the coordinator in which a departed member's session ran out, and when it was due."""
    due_ms = max((last_ms for _, last_ms, _ in _due(departure, context)), default=None)
    if due_ms is None:
        return None
    removed_ms, at_once = departure.removed_ms, is_written_at_once(departure)
    pauses = (p for p in unheard_since(departure.member, context.timer_resets) if _is_over(p, removed_ms))
    return next(((pause, due_ms) for pause in pauses if pause.delays(due_ms, written_at_once=at_once)), None)


def is_written_at_once(departure: Departure) -> bool:
    """Tell whether the timer that removed a member wrote a record at once.

    A KIP-848 group writes every removal. A classic group writes only that it is empty, when its last member is gone. If
    the sessions of several members ended then, it is not known which was the last.
    """
    ended = departure.phase.ended
    return departure.member.in_kip848_group or (ended is not None and ended.emptied)


def when_awake_ms(due_ms: int, context: JudgementContext, *, written_ms: int | None = None) -> int:
    """Return when a timer ran: if it was due while the coordinator was paused, when the coordinator woke.

    ``written_ms``: when a KIP-848 group wrote the removal. It does that at once, so the coordinator was awake then.
    """
    pauses = (p for p in context.timer_resets if p.delays(due_ms, written_at_once=written_ms is not None))
    return next((p.woke_ms or due_ms for p in pauses if written_ms is None or _is_over(p, written_ms)), due_ms)


def _is_over(pause: TimerReset, removed_ms: int) -> bool:
    """Tell whether a pause of the coordinator was over by a removal. If not, it delayed none of the timers until then.

    The record of the removal may be older than the first line after the pause.
    """
    return pause.woke_ms is not None and pause.woke_ms <= removed_ms + AWAKE_BEFORE_LINE_MS


def _moved_to_waking(span: Span, pause: TimerReset, woke_ms: int, *, written_at_once: bool) -> Span:
    """Move deadlines that passed while the coordinator was paused to the instant at which it woke."""
    first_ms, last_ms, origin = span
    moved_ms = [
        woke_ms if pause.delays(at_ms, written_at_once=written_at_once) and at_ms < woke_ms else at_ms
        for at_ms in (first_ms, last_ms)
    ]
    return span if moved_ms == [first_ms, last_ms] else (moved_ms[0], moved_ms[1], origin or pause)


def lines_lost(member: Member, context: JudgementContext) -> bool:
    """Tell whether lines were lost since the member was last heard: its leave may be among them."""
    return any(reset.cause is Cause.UNKNOWN for reset in unheard_since(member, context.timer_resets))


def blamed_reset(
    deadline_ms: int | None, timeout_ms: int | None, timer_resets: Iterable[TimerReset]
) -> TimerReset | None:
    """Return the pause or move that explains the end of a session: it was at most one session timeout earlier.

    One that is surely the coordinator's comes first.
    """
    if deadline_ms is None or timeout_ms is None:
        return None
    explaining: list[TimerReset] = []
    for reset in timer_resets:
        end_ms = reset.high_ms if reset.high_ms is not None else deadline_ms
        if reset.cause is not Cause.UNKNOWN and reset.low_ms <= deadline_ms <= end_ms + timeout_ms:
            explaining.append(reset)
    return min(explaining, key=lambda reset: reset.blamed_cause is None, default=None)

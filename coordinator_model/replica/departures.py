"""A member goes: what its removal proves (design, section 3: judged by consequence first)."""

from dataclasses import replace

from coordinator_model.events import JoinAnswered
from coordinator_model.replica import join_phase
from coordinator_model.replica.group import (
    LEAVE_MEMORY_MS,
    MAX_DEPARTURES,
    MAX_LEAVES,
    STALL_MS,
    Departure,
    GroupReplica,
    Leave,
    Member,
)
from coordinator_model.replica.missed_phase import deadline_of_missed_phase_ms, own_timers_ms
from coordinator_model.replica.poll_end import missed_cause, stopped_polling
from coordinator_model.replica.removal_instant import (
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
    touches_ms,
    unheard_since,
)
from coordinator_model.replica.unexplained import cause_is_uncertain, mark_unknown, told_by_records
from coordinator_model.states import MEMBER_REMOVED, REBALANCE_TIMEOUT, SESSION_EXPIRED, Cause, Evidence

MOVE_TOLD_MS = 20_000
"""How much later than a removal it may be told that another coordinator did it, whose predecessor went on answering."""
MOVE_ASKED_MS = 1_000
"""How often it is asked meanwhile whether that has been told."""
MAX_PARKED = 16
"""Heartbeats kept a member that waited behind a stalled write."""
RETRIED_MS = 60_000
"""How long a timer whose write fails may be tried again (``CoordinatorTimerImpl``), and remove a member's next self."""
RETRY_MS = STALL_MS + 500
"""How long after its last run: its write's timeout, and the pause before another one."""
SAME_STEP_MS = 50
"""So much later than it is due a timer may run."""
UNSEEN_SHARE = 2
"""A member removed later than this share of its session after the session seems to end has sent more than one
heartbeat that was not seen: usual clients send three or more in a session."""
CUT_MS = 2
"""What comes right after an answer on its connection may seem that much earlier: a line's instant is cut to a
millisecond, and the times that are taken off it are rounded."""
POLL_REASONS = ("poll timeout has expired",)
"""KIP-800 reason of Java consumers and Connect workers (kafka-facts 4.6)."""
ADMIN_REASON = "member was removed by an admin"


def leave_cause(reason: str | None) -> Cause:
    """Read the cause from a LeaveGroup reason; none given, or another one: it left."""
    if reason and any(text in reason for text in POLL_REASONS):
        return Cause.POLL_INTERVAL
    if reason and ADMIN_REASON in reason:
        return Cause.ADMIN
    return Cause.LEFT


def is_known_leave(replica: GroupReplica, member_id: str, applied_ms: int) -> bool:
    """Tell whether this goodbye has been applied: its row came twice."""
    return any(leave.member.member_id == member_id and leave.applied_ms == applied_ms for leave in replica.leaves)


def came_after(arrival_ms: int, leave: Leave) -> bool:
    """Tell whether a request came after this goodbye was answered, both on one connection.

    librdkafka's KIP-848 consumer leaves (-1) only when its application polls again, and joins (0) with the answer.
    """
    return leave.applied_ms - CUT_MS <= arrival_ms


def remember_leave(replica: GroupReplica, leave: Leave) -> None:
    """Keep a goodbye, drop what is too old or too many."""
    horizon_ms = leave.applied_ms - LEAVE_MEMORY_MS
    replica.leaves = [old for old in replica.leaves if old.applied_ms >= horizon_ms][-(MAX_LEAVES - 1) :]
    replica.leaves.append(leave)


def depart(
    replica: GroupReplica,
    member: Member,
    removed_ms: int,
    context: JudgementContext,
    told_by: str = "",
    successor: JoinAnswered | None = None,
) -> None:
    """Take a member out of the replica because its absence has become a fact, told by a broker's answer or a record."""
    replica.save_last_record()
    if _never_loaded(replica, member, context):
        replica.members.pop(member.member_id, None)
        loaded = [m for m in replica.recorded if m.instance_id is not None and m.instance_id == member.instance_id]
        if not loaded:
            return
        member = loaded[0]
    if heard_since(member, replica.undelivered_leaves.get(member.member_id), context):
        del replica.undelivered_leaves[member.member_id]
    said_goodbye = _said_goodbye(replica, member, removed_ms, context.thresholds.grace_ms)
    if not said_goodbye and member.replaced_ms is not None:
        remember_leave(replica, Leave(member, member.replaced_ms, Cause.REPLACED, None))
    elif not said_goodbye and context.by_records:
        if removed_ms >= context.live_from_ms:
            _depart_unseen(replica, told_by_records(replica, member, removed_ms))
    elif (
        not said_goodbye
        and member.member_id not in replica.logged
        and _is_witnessed(replica, member, removed_ms, context)
    ):
        add_departure(replica, _departure(replica, member, removed_ms, context, told_by, successor))
    elif not said_goodbye and removed_ms >= context.live_from_ms:
        replica.unexplained.append(_departure(replica, member, removed_ms, context, told_by, successor))
    replica.members.pop(member.member_id, None)


def _depart_unseen(replica: GroupReplica, departure: Departure) -> None:
    """Keep a departure of which only a record tells; one whose poll was overdue has left for that."""
    if departure.cause is Cause.POLL_INTERVAL:
        remember_leave(replica, Leave(departure.member, departure.removed_ms, departure.cause, None))
    add_departure(replica, departure)


def _never_loaded(replica: GroupReplica, member: Member, context: JudgementContext) -> bool:
    """Tell whether a member joined a generation that was never written, before the coordinator moved.

    The next one loaded the log, so the member was never in there: nobody removed it, but perhaps the former self of a
    static one. Of whom a record has told that another came in its place, the log had it.
    """
    if replica.recorded_generation is None or any(m.member_id == member.member_id for m in replica.recorded):
        return False
    if any(leave.member is member and leave.cause is Cause.REPLACED for leave in replica.leaves):
        return False
    return any(reset.cause is Cause.COORDINATOR_MOVED for reset in unheard_since(member, context.timer_resets))


def _departure(
    replica: GroupReplica,
    member: Member,
    removed_ms: int,
    context: JudgementContext,
    told_by: str,
    successor: JoinAnswered | None,
) -> Departure:
    """Keep what is known of a removal by the time it is told: of the phase that lost the member, before all."""
    told_ms = removed_ms if successor is None else successor.answer_ms
    phase, generation, found_ms = replica.phase, replica.generation, removed_ms
    missed = replica.unreported_phase
    if missed is not None and join_phase.stayed(missed, member):
        missed = None
    if missed is not None:
        phase, generation, removed_ms = missed, missed.generation, missed.ended_ms
    before = replica.departures[-1] if replica.departures else None
    if before is not None and (before.removed_ms, before.generation) == (removed_ms, generation):
        limit_ms, static_in, unjoined = before.phase.limit_ms, before.static_in, list(before.unjoined)  # of one phase
    else:
        limit_ms = phase.limit_ms or join_phase.timeout_ms(replica, phase, removed_ms, context)
        static_in = join_phase.static_in(replica, phase)
        unjoined = join_phase.unjoined(replica, generation, removed_ms) if missed is None else list(missed.unjoined)
    return Departure(
        member=member,
        rule=SESSION_EXPIRED,
        cause=Cause.UNKNOWN,
        evidence=Evidence.OBSERVED,
        removed_ms=removed_ms,
        deadline_ms=None,
        generation=generation,
        broker=context.broker,
        judge_after_ms=max(told_ms, context.progress_ms) + context.thresholds.grace_ms + _stall_ms(replica, member),
        concluded=False,
        told_by=told_by,
        touches_ms=[at_ms for at_ms in _touches_ms(member, context) if at_ms <= removed_ms],
        phase=replace(phase, limit_ms=limit_ms, unanswered=[], unjoined=[]),
        found_ms=found_ms,
        sync_timeout_ms=join_phase.sync_timeout_ms(replica, member, removed_ms),
        static_in=static_in,
        unjoined=unjoined,
        successor=successor.member_id if successor is not None else None,
        lines_were_behind=removed_ms - context.progress_ms > context.thresholds.hold_ms,
        may_be_retried=_may_be_retried(replica, member, removed_ms),
    )


def _touches_ms(member: Member, context: JudgementContext) -> list[int]:
    """Return the uncertain restarts of a departed member's session timer."""
    claimed = [] if member.claimed_ms is None else [member.claimed_ms]
    return touches_ms(member, context.commits, 0) + claimed


def _may_be_retried(replica: GroupReplica, member: Member, removed_ms: int) -> bool:
    """Tell whether a timer that removed a member's former self may have been tried again, as its write had failed."""
    if replica.stalled_ms is not None and abs(removed_ms - replica.stalled_ms) <= RETRIED_MS:
        return True
    name, since_ms = who(member), removed_ms - RETRIED_MS
    proven = (mark[:2] for mark in replica.violations if mark[2] != Cause.UNKNOWN)
    return any(name == other and since_ms <= at_ms < removed_ms for other, at_ms in proven)


def _said_goodbye(replica: GroupReplica, member: Member, removed_ms: int, grace_ms: int) -> bool:
    """Tell whether a goodbye explains a removal."""
    own = (leave for leave in replica.leaves if leave.member.member_id == member.member_id)
    said = (leave.applied_ms for leave in own if leave.cause is not Cause.REPLACED)
    return any(abs(said_ms - removed_ms) <= grace_ms for said_ms in said)


def heard_since(member: Member, said_ms: int | None, context: JudgementContext) -> bool:
    """Tell whether a member was heard after it said goodbye to no coordinator, whose clock may be another."""
    return said_ms is not None and (member.last_heartbeat_ms or 0) > said_ms + context.thresholds.grace_ms


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
        elif _may_be_told_to_have_moved(departure, context):
            departure.judge_after_ms = context.progress_ms + MOVE_ASKED_MS
        else:
            replica.departures.remove(departure)  # replaced
    return _explain_by_a_move(replica, context) or bool(due)


def _may_be_told_to_have_moved(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether another broker took a member's successor in than coordinates as far as is known yet.

    It has started all sessions anew as it loaded the group: when, and so whether one had ended, is told with the move.
    """
    waits = context.progress_ms < departure.gone_ms + MOVE_TOLD_MS
    return waits and departure.told_by not in ("", context.broker)


def _is_proven(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a removal proves a timeout, and nothing unseen may have been the cause; write into it which."""
    join_phase.count_starter_in(replica, departure)
    context = _as_it_was_unknown(departure, context)
    together = [d for d in replica.departures if d.generation == departure.generation]
    if removed_with_one_alive(departure, together, replica.leaves, context):
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
    earlier = [id(other) for other in others if _is_of_the_same(other, departure)]
    replica.departures = [d for d in replica.departures if id(d) not in earlier]
    departure.concluded = True
    _count_violation(replica, departure)


def _explain_by_a_move(replica: GroupReplica, context: JudgementContext) -> bool:
    """Judge again what nothing explained, where it is only known since that the coordinator had moved.

    By then a goodbye is answered that had to wait for its write.
    """
    found = False
    for number, departure in enumerate(replica.departures):
        answered_ms = departure.answered_ms + context.thresholds.grace_ms
        recent = answered_ms <= context.progress_ms <= departure.gone_ms + MOVE_TOLD_MS
        if not (departure.unexplained and recent and _moved_before(departure, context)) or _was_in_none(departure):
            continue
        again = replace(departure, rule=SESSION_EXPIRED, evidence=Evidence.OBSERVED, unexplained=False)
        replica.departures[number] = again
        if not _is_proven(replica, again, context):
            replica.departures[number] = departure
        else:
            found = True
            replica.unexplained_ms = None if replica.unexplained_ms == departure.gone_ms else replica.unexplained_ms
            _count_violation(replica, again)
    return found


def _was_in_none(departure: Departure) -> bool:
    """Tell whether a classic member was told of no generation: the next coordinator has loaded none that it was in."""
    return not departure.member.goes_alone and departure.member.generation is None


def _moved_before(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether another broker may have coordinated already as a member was removed, as is known since."""
    moves = (r for r in unheard_since(departure.member, context.timer_resets) if r.cause is Cause.COORDINATOR_MOVED)
    return any(may_precede(move, departure) for move in moves)


def _stall_ms(replica: GroupReplica, member: Member) -> int:
    """Return how much longer than a grace lines may trail: those of heartbeats that wait behind a stalled write.

    They tell a session that had ended from a join phase that was missed, which only dynamic members of the classic
    protocol do.
    """
    stalled = replica.stalled_ms is not None and replica.generation_since_ms - replica.stalled_ms <= STALL_MS
    return STALL_MS if stalled and not member.goes_alone and member.instance_id is None else 0


def parked_heartbeat(replica: GroupReplica, member_id: str, applied_ms: int, answer_ms: int) -> None:
    """Note a heartbeat answered 15 behind a stalled write: it may have restarted a session, also of one now gone."""
    replica.stalled_ms = max(replica.stalled_ms or 0, answer_ms)
    member = replica.members.get(member_id)
    if member is not None:
        member.parked_heartbeat_ms = max(member.parked_heartbeat_ms or 0, applied_ms)
        if member.is_classic_among_consumers and len(member.may_owe_since_ms) < MAX_PARKED:
            member.may_owe_since_ms = [*member.may_owe_since_ms, applied_ms]
    for departure in open_removals(replica, member_id, applied_ms):
        departure.member.parked_heartbeat_ms = max(departure.member.parked_heartbeat_ms or 0, applied_ms)
        departure.touches_ms.append(applied_ms)


def claim(replica: GroupReplica, member_id: str, applied_ms: int) -> None:
    """Note a heartbeat accepted by a broker that metadata does not name: it may coordinate already."""
    member = replica.members.get(member_id)
    if member is not None:
        member.claimed_ms = max(member.claimed_ms or 0, applied_ms)
    for departure in open_removals(replica, member_id, applied_ms):
        departure.touches_ms.append(applied_ms)


def open_removals(replica: GroupReplica, member_id: str, applied_ms: int) -> list[Departure]:
    """Return a member's removals that came after an instant and are not judged yet: a line of then only trails."""
    own = (d for d in replica.departures if d.member.member_id == member_id)
    return [d for d in own if not d.concluded and applied_ms <= d.gone_ms]


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
    by_own_timer = any(abs(removed_ms - timer_ms) <= CUT_MS for timer_ms in timers_ms)
    if member.goes_alone and (
        deadline_ms is None
        or (deadline_ms > removed_ms and not by_own_timer and _may_be_early(replica, departure, context))
    ):
        deadline_ms = removed_ms  # what is known of its session does not say otherwise, so it ended here
    if deadline_ms is None or (
        departure.successor is not None and not _expired_before_replacement(replica, departure, together, context)
    ):
        return False
    if _was_fenced(departure):
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


def _was_fenced(departure: Departure) -> bool:
    """Tell whether a member was answered 82 since it was heard: a stalled write took back that it replaced another."""
    fenced_ms, clock_ms = departure.member.fenced_ms, departure.member.clock_ms or 0
    return fenced_ms is not None and fenced_ms >= clock_ms and departure.successor is None


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
    return join_phase.began_with(departure, first_ms)


def _emptied_by_another(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether another left as a member was removed, or an id given out was waited for: the record tells that."""
    waited = any(name in replica.pending for name in departure.unjoined)
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


def _is_witnessed(replica: GroupReplica, member: Member, removed_ms: int, context: JudgementContext) -> bool:
    """Tell whether we would have seen a goodbye: telemetry live, and the member or its group seen alive before."""
    if not context.broker or removed_ms < context.live_from_ms:
        return False
    others = len(replica.members) - (member.member_id in replica.members)
    if member.clock_ms is not None or not others:
        return True
    return member.goes_alone or (replica.stable_seen_ms is not None and replica.stable_seen_ms >= context.live_from_ms)


def add_departure(replica: GroupReplica, departure: Departure) -> None:
    """Keep a departure; one of the same member and rule that is still open goes on as this one.

    One that is not judged yet is another: who came back and left at once had been removed before. Beyond the cap the
    oldest gives way.
    """
    others = [old for old in replica.departures if not (old.concluded and _is_of_the_same(old, departure))]
    replica.departures = others[-(MAX_DEPARTURES - 1) :]
    replica.departures.append(departure)
    if departure.concluded and departure.rule is not None:
        _count_violation(replica, departure)


def _is_of_the_same(one: Departure, other: Departure) -> bool:
    return (one.rule, one.member.member_id) == (other.rule, other.member.member_id)


def _count_violation(replica: GroupReplica, departure: Departure) -> None:
    replica.violations = replica.violations[-(MAX_DEPARTURES - 1) :]
    replica.violations.append((who(departure.member), departure.removed_ms, departure.cause.value))


def explained_by_leave(
    replica: GroupReplica, member_id: str, applied_ms: int, grace_ms: int, *, lost: bool = False
) -> Member | None:
    """Take back a removal that a trailing goodbye explains, the last of several; return the member as it was.

    ``lost``: it was answered 15 behind a stalled write. In a group of KIP-848 it explains only what it wrote itself:
    another coordinator, which has never heard of it, removes the member later.
    """
    for departure in reversed(replica.departures):
        if lost and departure.member.goes_alone and departure.removed_ms > applied_ms + grace_ms:
            continue
        same = departure.member.member_id == member_id and departure.rule in (
            SESSION_EXPIRED,
            REBALANCE_TIMEOUT,
            MEMBER_REMOVED,
        )
        if same and applied_ms <= departure.gone_ms + grace_ms:
            withdraw(replica, departure)
            return departure.member
    return None


def withdraw(replica: GroupReplica, departure: Departure) -> None:
    """Take back a departure, and its place among the violations."""
    replica.departures.remove(departure)
    mark = (who(departure.member), departure.removed_ms, departure.cause.value)
    if mark in replica.violations:
        replica.violations.remove(mark)

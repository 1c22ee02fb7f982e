"""A member is found gone: an answer or a record no longer lists it. Its removal is judged later, see ``judge``."""

from coordinator_model.client import who
from coordinator_model.events import JoinAnswered
from coordinator_model.replica.group import MAX_DEPARTURES, NO_RECORD, GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.notes import Violation
from coordinator_model.replica.reconciliation import KINDS
from coordinator_model.replica.removals.departure import STALL_MS, Departure
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS, ended_phase, sync_timeout_ms
from coordinator_model.replica.removals.join_phase import was_kept
from coordinator_model.replica.removals.leaves import (
    TRUNCATED_MS,
    has_left,
    heard_since,
    left_a_deposed_coordinator,
    remember_leave,
)
from coordinator_model.replica.session_timer import commits_ms, moves_since_heard, touches_ms
from coordinator_model.states import MEMBER_REMOVED, POLL_EXCEEDED, REBALANCE_TIMEOUT, SESSION_EXPIRED, Cause, Evidence

MAX_PARKED = 16
"""How many heartbeats that waited behind a stalled write are kept for one member."""
ONE_REMOVAL_MS = 1_000
"""A static member that two brokers find gone within this time was removed once."""
RETRIED_MS = 60_000
"""How long a timer whose write failed may be retried (``CoordinatorTimerImpl``).

A retry may remove the member's successor.
"""


def remove_member(
    replica: GroupReplica,
    member: Member,
    removed_ms: int,
    context: JudgementContext,
    answered_by: str = "",
    successor: JoinAnswered | None = None,
) -> None:
    """Take a member out of the replica: a broker's answer or a record no longer lists it.

    ``successor``: the JoinGroup of the static member that took its instance id, if one did.
    """
    replica.save_last_record()
    if _never_loaded(replica, member, context):
        replica.members.pop(member.member_id, None)
        recorded = replica.recorded.values()
        loaded = [m for m in recorded if m.instance_id is not None and m.instance_id == member.instance_id]
        if not loaded:
            return
        member = loaded[0]
    if heard_since(member, replica.undelivered_leaves.get(member.member_id), context):
        del replica.undelivered_leaves[member.member_id]
    if left_a_deposed_coordinator(replica, member, removed_ms):
        remember_leave(replica, Leave(member, removed_ms, Cause.LEFT, None))
    elif not has_left(replica, member, removed_ms, context.leave_grace_ms):
        _note_removal(replica, member, removed_ms, context, answered_by, successor)
    replica.members.pop(member.member_id, None)


def note_unwritten_removal(replica: GroupReplica, context: JudgementContext) -> None:
    """Note a member that did not sync in time, if its coordinator has died in the join phase that this began.

    A waiting SyncGroup was answered 27 when the time to sync was over, and only this member had not synced. No record
    names the member, so the next coordinator never had it, and shows no removal.
    """
    started, late = replica.phase.started, [m for m in replica.members.values() if m.awaiting_sync]
    if replica.recorded_generation is None:
        return  # it is not known what the log has
    if started is None or started.by or replica.phase.began_after_ms < started.at_ms - TRUNCATED_MS or len(late) != 1:
        return
    [member], limit_ms = late, sync_timeout_ms(replica, late[0], started.at_ms)
    late_ms = started.at_ms - (member.timer_reset_ms or 0) - (limit_ms or 0)
    unwritten = member.member_id not in replica.recorded and _is_witnessed(replica, member, started.at_ms, context)
    lived_on = (member.session_from_ms or 0) > started.at_ms
    lived_on = lived_on or has_left(replica, member, started.at_ms, context.leave_grace_ms)
    if unwritten and not lived_on and not context.by_records and -EARLY_MS <= late_ms <= LATE_MS:
        departure = _departure(replica, member, started.at_ms, context, "", None)
        departure.broker = replica.announced_by or departure.broker
        departure.phase.written_by = replica.announced_by
        add_departure(replica, departure)


def _note_removal(
    replica: GroupReplica,
    member: Member,
    removed_ms: int,
    context: JudgementContext,
    answered_by: str,
    successor: JoinAnswered | None,
) -> None:
    """Keep the removal of a member that is not known to have left.

    It is kept to be judged, or else until a line of the coordinator's own log explains it (``unexplained``).
    """
    if member.replaced_ms is not None:
        remember_leave(replica, Leave(member, member.replaced_ms, Cause.REPLACED, None))
    elif not answered_by and _is_reported_again(replica, member):
        return
    elif context.by_records:
        if removed_ms >= context.live_from_ms:
            _depart_unseen(replica, _known_from_records(replica, member, removed_ms))
        else:
            _count(replica, Violation(who(member), removed_ms, Cause.UNKNOWN.value))
    elif member.member_id not in replica.logged and _is_witnessed(replica, member, removed_ms, context):
        add_departure(replica, _departure(replica, member, removed_ms, context, answered_by, successor))
    else:
        _count(replica, Violation(who(member), removed_ms, Cause.UNKNOWN.value))
        if removed_ms >= context.live_from_ms:
            replica.unexplained.append(_departure(replica, member, removed_ms, context, answered_by, successor))


def _is_reported_again(replica: GroupReplica, member: Member) -> bool:
    """Tell whether the end of a member's session has been reported already, and the member was not heard since.

    A deposed coordinator removed the member and wrote nothing. The next coordinator loaded the log, which still has the
    member, and lets its session end once more. A KIP-848 group writes each removal, so it shows none twice.
    """
    own = (d for d in replica.departures if d.judged and d.member.member_id == member.member_id)
    reported = (d for d in own if d.rule == SESSION_EXPIRED or d.is_over)
    expired_ms = max((d.removed_ms for d in reported), default=0)
    return _heard_ms(member) < expired_ms and not member.in_kip848_group


def is_found_twice(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether a static member's removal was reported just before, and the member was not heard since.

    Two brokers answered as coordinators, and each answer showed that the member was gone. It was removed once.
    """
    member, removed_ms = departure.member, departure.removed_ms
    after_ms = max(_heard_ms(member), removed_ms - ONE_REMOVAL_MS)
    own = (seen for seen in replica.known_violations if seen.client == member.instance_id)
    return member.instance_id is not None and any(after_ms < seen.at_ms <= removed_ms for seen in own)


def _heard_ms(member: Member) -> int:
    """Return when a member was last heard, or else joined; 0: never."""
    return max(member.session_from_ms or 0, member.joined_ms or 0, member.claimed_ms or 0)


def _depart_unseen(replica: GroupReplica, departure: Departure) -> None:
    """Keep a departure that only a record shows. A member whose poll was overdue is assumed to have left for that."""
    if departure.cause is Cause.POLL_INTERVAL:
        remember_leave(replica, Leave(departure.member, departure.removed_ms, departure.cause, None))
    add_departure(replica, departure)


def _known_from_records(replica: GroupReplica, member: Member, removed_ms: int) -> Departure:
    """Return the departure of a member that only records show. They show after which generation it was gone."""
    overdue = member.poll_deadline_ms is not None
    return Departure(
        member=member,
        rule=POLL_EXCEEDED if overdue else MEMBER_REMOVED,
        cause=Cause.POLL_INTERVAL if overdue else Cause.UNKNOWN,
        evidence=Evidence.OBSERVED if overdue else Evidence.INFERRED,
        removed_ms=removed_ms,
        deadline_ms=member.poll_deadline_ms,
        generation=replica.generation,
        broker="",
        judge_after_ms=0,
        seen_generation=replica.generation if member.generation is None else min(member.generation, replica.generation),
    )


def _never_loaded(replica: GroupReplica, member: Member, context: JudgementContext) -> bool:
    """Tell whether a member joined a generation that had not been written when the coordinator moved.

    The next coordinator loaded the log. It did not find the member there, so it did not remove it. If the member is
    static, it may have removed the former member. A member that a record has shown to be replaced was in the log. If
    the log had no record of the group, the record that shows the removal goes on from the generation that was not
    written. A coordinator that had surely loaded by its predecessor's last answer counts as having the members that
    ``advance.take_over`` left.
    """
    if replica.recorded_generation in (None, NO_RECORD) or member.member_id in replica.recorded:
        return False
    if any(leave.member is member and leave.cause is Cause.REPLACED for leave in replica.leaves):
        return False
    return any(move.high_ms != move.low_ms for move in moves_since_heard(member, context))


def _is_witnessed(replica: GroupReplica, member: Member, removed_ms: int, context: JudgementContext) -> bool:
    """Tell whether a leave would have been seen: telemetry was live, and the member or its group was seen before."""
    if not context.broker or removed_ms < context.live_from_ms:
        return False
    others = len(replica.members) - (member.member_id in replica.members)
    if member.session_from_ms is not None or not others:
        return True
    return member.in_kip848_group or (
        replica.stable_seen_ms is not None and replica.stable_seen_ms >= context.live_from_ms
    )


def _departure(
    replica: GroupReplica,
    member: Member,
    removed_ms: int,
    context: JudgementContext,
    answered_by: str,
    successor: JoinAnswered | None,
) -> Departure:
    """Return what is known about a removal when the member is found gone, with the join phase in which it was removed.

    If the unreported phase dropped it, it was removed then, which is before it was found gone.
    """
    known_ms = removed_ms if successor is None else successor.answer_ms
    phase, generation, found_ms = replica.phase, replica.generation, removed_ms
    missed = replica.unreported_phase
    if missed is not None and missed.ended is not None and not was_kept(missed, member):
        phase, generation, removed_ms = missed, missed.ended.generation, missed.ended.at_ms
    stall_ms = _stall_ms(replica, member, successor)
    return Departure(
        member=member,
        rule=SESSION_EXPIRED,
        cause=Cause.UNKNOWN,
        evidence=Evidence.OBSERVED,
        removed_ms=removed_ms,
        deadline_ms=None,
        generation=generation,
        broker=context.broker,
        judge_after_ms=max(known_ms, context.progress_ms) + context.leave_grace_ms + stall_ms,
        judged=False,
        answered_by=answered_by,
        touches_ms=[at_ms for at_ms in _touches_ms(member, context) if at_ms <= removed_ms],
        phase=ended_phase(replica, phase, generation, removed_ms, context),
        found_ms=found_ms,
        sync_timeout_ms=None if _has_committed(member, context) else sync_timeout_ms(replica, member, removed_ms),
        successor=successor.member_id if successor is not None else None,
        lines_were_behind=removed_ms - context.progress_ms > context.thresholds.hold_ms,
        may_be_retried=_may_be_retried(replica, member, removed_ms),
    )


def _has_committed(member: Member, context: JudgementContext) -> bool:
    """Tell whether offsets of a member's partitions were committed since it joined: it had synced to know of them."""
    return any(at_ms > (member.timer_reset_ms or 0) for at_ms in commits_ms(member, context.commits))


def _touches_ms(member: Member, context: JudgementContext) -> list[int]:
    """Return when a departed member's session timer may have been restarted."""
    claimed = [] if member.claimed_ms is None else [member.claimed_ms]
    return touches_ms(member, context.commits, 0) + claimed


def _may_be_retried(replica: GroupReplica, member: Member, removed_ms: int) -> bool:
    """Tell whether a timer that had removed the former member may have been retried because its write failed."""
    if replica.stalled_near(removed_ms, RETRIED_MS):
        return True
    name, since_ms = who(member), removed_ms - RETRIED_MS
    mine = (seen for seen in replica.known_violations if seen.client == name)
    return any(since_ms <= seen.at_ms < removed_ms for seen in mine)


def _stall_ms(replica: GroupReplica, member: Member, successor: JoinAnswered | None) -> int:
    """Return how long, beyond the grace, the judgement waits for lines of heartbeats behind a stalled write.

    These lines distinguish the end of a session from a missed join phase, and from a replacement. So the removals of
    dynamic members of classic groups have to wait, and of static ones with a successor. Without one, only the end of
    its session removes a static member.
    """
    stalled = replica.stalled_ms is not None and replica.generation_since_ms - replica.stalled_ms <= STALL_MS
    waits = member.instance_id is None or successor is not None
    return STALL_MS if stalled and waits and not member.in_kip848_group else 0


def note_parked_heartbeat(replica: GroupReplica, member_id: str, applied_ms: int, answer_ms: int) -> None:
    """Note a heartbeat answered 15 behind a stalled write: it may have restarted the member's session timer.

    The member may be gone by now. If its removal was judged before this line came, without finding the cause, it is
    judged again: now it is known that the member was alive.
    """
    replica.note_stall(answer_ms)
    member = replica.members.get(member_id)
    if member is not None:
        member.parked_heartbeat_ms = max(member.parked_heartbeat_ms or 0, applied_ms)
        # The answer may come after the downgrade of a KIP-848 group. A timer from before it runs on.
        before_a_downgrade = not member.kip848 and applied_ms < (replica.phase.downgraded_ms or 0)
        may_owe = member.is_classic_among_consumers or before_a_downgrade
        if may_owe and len(member.may_owe_since_ms) < MAX_PARKED:
            member.may_owe_since_ms = [*member.may_owe_since_ms, applied_ms]
    unexplained = (d for d in replica.departures if d.judged and d.judge_again and d.member.member_id == member_id)
    late = [d for d in unexplained if applied_ms <= d.gone_ms <= answer_ms]
    for departure in late + open_removals(replica, member_id, applied_ms):
        departure.member.parked_heartbeat_ms = max(departure.member.parked_heartbeat_ms or 0, applied_ms)
        departure.touches_ms.append(applied_ms)
        departure.judged = False


def open_removals(replica: GroupReplica, member_id: str, applied_ms: int) -> list[Departure]:
    """Return the removals of a member that are not judged yet and that a line of this instant precedes."""
    own = (d for d in replica.departures if d.member.member_id == member_id)
    return [d for d in own if not d.judged and applied_ms <= d.gone_ms]


def add_departure(replica: GroupReplica, departure: Departure) -> None:
    """Keep a departure. It replaces an earlier judged one of the same member and rule.

    An earlier one that is not judged yet stays: it is another removal, of a member that came back and left at once. So
    does one whose incident is about to end. Beyond ``MAX_DEPARTURES`` the oldest is dropped.
    """
    others = [
        old
        for old in replica.departures
        if not (old.judged and is_of_the_same(old, departure)) or is_about_to_end(replica, old)
    ]
    replica.departures = others[-(MAX_DEPARTURES - 1) :]
    replica.departures.append(departure)
    if departure.judged and departure.rule is not None:
        count_violation(replica, departure)


def is_about_to_end(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether a reported removal's incident ends the next time that its group is evaluated: the member came back.

    In a KIP-848 group it is a member as soon as it is accepted.
    """
    return (
        departure.judged and departure.rule is not None and departure.returned_ms is not None and replica.type in KINDS
    )


def is_of_the_same(one: Departure, other: Departure) -> bool:
    """Tell whether two departures are of the same member, by the same rule."""
    return (one.rule, one.member.member_id) == (other.rule, other.member.member_id)


def count_violation(replica: GroupReplica, departure: Departure) -> None:
    """Count a violation, so that a recurring one is recognised, or a removal whose cause is unknown until now."""
    forget_unknown(replica, departure)
    _count(replica, _violation(departure))


def _count(replica: GroupReplica, violation: Violation) -> None:
    replica.violations = [*replica.violations[-(MAX_DEPARTURES - 1) :], violation]


def forget_unknown(replica: GroupReplica, departure: Departure) -> None:
    """Drop a removal that was counted while its cause was unknown."""
    unknown = _violation(departure)._replace(cause=Cause.UNKNOWN.value)
    replica.violations = [one for one in replica.violations if one != unknown]


def _violation(departure: Departure) -> Violation:
    return Violation(who(departure.member), departure.removed_ms, departure.cause.value)


def explain_by_leave(
    replica: GroupReplica, member_id: str, applied_ms: int, grace_ms: int, *, is_final: bool = True
) -> Member | None:
    """Withdraw the last removal that a late leave explains; return the member as it was. None: it explains no removal.

    A leave is not final if it was answered 15, or by another broker than the coordinator: the coordinator may have the
    member again. In a KIP-848 group such a leave explains only the removal that it wrote itself. Another coordinator,
    which does not know of the leave, made any later removal.
    """
    for departure in reversed(replica.departures):
        if not is_final and departure.member.in_kip848_group and departure.removed_ms > applied_ms + grace_ms:
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
    """Drop a departure and the violation that was counted for it."""
    replica.departures.remove(departure)
    violation = _violation(departure)
    if violation in replica.violations:
        replica.violations.remove(violation)

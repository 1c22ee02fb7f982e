"""Answered LeaveGroup requests of the classic protocol: which member left, and why.

Kafka's side is ``GroupMetadataManager.classicGroupLeave``.
"""

from coordinator_model.errors import Error
from coordinator_model.events import LeaveAnswered
from coordinator_model.replica.classic import prepare_rebalance
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.leaves import (
    TRUNCATED_MS,
    is_known_leave,
    leave_cause,
    poll_departure,
    remember_leave,
)
from coordinator_model.replica.removals.removal import add_departure, explain_by_leave, remove_member
from coordinator_model.replica.transitions import StateEvent
from coordinator_model.states import Cause, Evidence, GroupState, GroupType


def leave(replica: GroupReplica, event: LeaveAnswered, context: JudgementContext) -> None:
    """Apply a LeaveGroup, which the member's client or an admin sent.

    If it waited and was answered 15, it was applied too: only its answer was lost behind a stalled write.
    """
    lost = event.error == Error.COORDINATOR_NOT_AVAILABLE and event.remote_ms >= context.thresholds.stalled_write_ms
    if event.error == Error.UNKNOWN_MEMBER_ID:
        _remove_if_not_in_the_generation(replica, event, context)
    if (event.error != 0 and not lost) or is_known_leave(replica, event.member_id, event.applied_ms):
        return
    member = _leaver(replica, event, context, lost=lost)
    if member is None:
        return
    replica.save_last_record()
    replica.members.pop(member.member_id, None)
    member.connection = event.connection
    cause = _cause_of_leave(member, event.reason)
    left = Leave(member, event.applied_ms, cause, event.reason, broker=event.broker)
    remember_leave(replica, left)
    if cause is Cause.POLL_INTERVAL and event.applied_ms >= context.live_from_ms:
        add_departure(replica, poll_departure(left, replica, context, Evidence.OBSERVED, event.applied_ms))
    is_current = replica.type is GroupType.CLASSIC and event.applied_ms >= replica.state_since_ms
    if is_current and not _left_before(replica, member, event.applied_ms):
        rebalance_without(replica, member, event.applied_ms)


def _remove_if_not_in_the_generation(replica: GroupReplica, event: LeaveAnswered, context: JudgementContext) -> None:
    """Remove a member whose leave was answered 25, if no list of the newest generation's members was seen.

    The leader gets that list. If the leader is dead, and its coordinator dies too, nobody sees it. But a member of that
    generation is known until its session ends or it has not synced in time. So an earlier 25 shows that it is not one.
    """
    member, since_ms = replica.members.get(event.member_id), replica.generation_since_ms
    unlisted = replica.state is GroupState.COMPLETING_REBALANCE and replica.listed_generation != replica.generation
    if member is None or member.instance_id is not None or not unlisted or replica.announced_by != event.broker:
        return
    lasts_ms = min(member.session_timeout_ms or 0, member.rebalance_timeout_ms or 0)
    if since_ms <= event.applied_ms < since_ms + lasts_ms and (member.generation or -1) < replica.generation:
        remove_member(replica, member, since_ms, context, event.broker)


def _left_before(replica: GroupReplica, member: Member, at_ms: int) -> bool:
    """Tell whether a member left in the join phase before the current generation, whose member list lacks it.

    If no list was seen yet, a leave at the instant of the announcement shows that, too: it ended the phase. The
    instants of the two may be some milliseconds apart (``TRUNCATED_MS``).
    """
    listed, ended = replica.listed_generation == replica.generation, at_ms <= replica.generation_since_ms + TRUNCATED_MS
    return (listed or ended) and (member.generation or 0) < replica.generation


def _leaver(replica: GroupReplica, event: LeaveAnswered, context: JudgementContext, *, lost: bool) -> Member | None:
    """Return the member that left by a LeaveGroup; None if nobody is known to have left."""
    member = replica.members.get(event.member_id) or _by_instance(replica, event)
    if member is not None:
        is_late = member.joined_ms is not None and member.joined_ms > event.applied_ms
        return None if is_late else member  # the same id has joined again since
    gone = event.member_id or _departed_instance(replica, event.instance_id)
    # if the answer was lost, nothing shows that it was a member: a leave that came after its removal explains nothing
    member = explain_by_leave(replica, gone, event.applied_ms, TRUNCATED_MS if lost else context.leave_grace_ms)
    if member is None and not lost:
        member = Member(event.member_id, event.instance_id, event.client_id, event.client_host)
    return member


def _cause_of_leave(member: Member, reason: str | None) -> Cause:
    if member.poll_deadline_ms is not None:
        return Cause.POLL_INTERVAL
    cause = leave_cause(reason)
    return Cause.STATIC_LEFT if cause is Cause.LEFT and member.instance_id is not None else cause


def rebalance_without(replica: GroupReplica, member: Member, at_ms: int) -> None:
    """Begin a join phase after a leave. If no member is left, the group becomes Empty."""
    if replica.state not in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        return
    if replica.members:
        prepare_rebalance(replica, StateEvent.MEMBER_LEFT, at_ms, member.member_id)
    else:
        replica.enter(StateEvent.LAST_MEMBER_LEFT, at_ms)


def _by_instance(replica: GroupReplica, event: LeaveAnswered) -> Member | None:
    if event.instance_id is None:
        return None
    return next((m for m in replica.members.values() if m.instance_id == event.instance_id), None)


def _departed_instance(replica: GroupReplica, instance_id: str | None) -> str:
    """Return the member id of the last departed member with an instance id, which is all an admin names; "": none."""
    gone = (d.member for d in reversed(replica.departures) if d.member.instance_id is not None)
    return next((member.member_id for member in gone if member.instance_id == instance_id), "")

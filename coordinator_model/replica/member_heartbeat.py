"""Answered heartbeats of the protocols with no other requests: CONSUMER_, SHARE_ and STREAMS_GROUP_HEARTBEAT (KIP-848).

Epoch 0 joins, -1 leaves, -2 is a static member's leave until it returns. Any other epoch is a plain heartbeat. Records
show what became of the group. Only these lines show that a member lives, and that it left by itself.
"""

from dataclasses import replace

from coordinator_model.brokers.coordinator_check import REFUSALS, WAITED_MS
from coordinator_model.errors import Error
from coordinator_model.events import ConsumerHeartbeat
from coordinator_model.replica.classic import (
    is_gone,
    record_heartbeat,
)
from coordinator_model.replica.group import LEAVE_MEMORY_MS, MAX_UNANSWERED_JOINS, GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.modern import STATIC_LEAVE_EPOCH, derive_state, modern_member
from coordinator_model.replica.removals.leaves import (
    TRUNCATED_MS,
    came_after,
    heard_since,
    is_known_leave,
    poll_departure,
    remember_leave,
    remember_undelivered,
)
from coordinator_model.replica.removals.removal import add_departure, explain_by_leave, note_parked_heartbeat
from coordinator_model.replica.returns import came_back
from coordinator_model.states import Cause, Evidence

LEAVE_EPOCH = -1
ASKING_MS = 300_000
"""How long a client's first request to join is remembered while no coordinator accepts it."""


def heartbeat(replica: GroupReplica, event: ConsumerHeartbeat, context: JudgementContext) -> None:
    """Apply a KIP-848 heartbeat that joins, leaves, or moves to another epoch (the others are plain heartbeats)."""
    waited = event.remote_ms >= context.thresholds.stalled_write_ms
    if waited and event.error == 0:  # the stall ended in time
        replica.note_stall(event.applied_ms + event.remote_ms)
    if waited and event.error == Error.COORDINATOR_NOT_AVAILABLE:
        _behind_a_stalled_write(replica, event, context)
    elif event.error in REFUSALS:
        _to_no_coordinator(replica, event, context)
    elif (event.error == Error.UNKNOWN_MEMBER_ID and event.request_epoch > 0) or _is_of_no_such_group(event):
        _not_a_member(replica, event, context)
    elif event.error == 0 and event.request_epoch == LEAVE_EPOCH:
        _leave(replica, event, context)
    elif event.error == 0 and event.request_epoch >= 0:
        _still_here(replica, event, context)


def _is_of_no_such_group(event: ConsumerHeartbeat) -> bool:
    """Tell whether a member, even as it leaves, is told that there is no such KIP-848 group (69).

    The coordinator had removed its last KIP-848 member, and made the group classic.
    """
    return event.error == Error.GROUP_ID_NOT_FOUND and event.request_epoch not in (0, STATIC_LEAVE_EPOCH)


def _not_a_member(replica: GroupReplica, event: ConsumerHeartbeat, context: JudgementContext) -> None:
    """Note that the coordinator has removed a member (25, 69), though no record of that was read.

    The write of the record is stalled. It fails if the broker is no longer the leader and does not know it yet.
    """
    member = replica.members.get(event.member_id)
    if member is None or member.unknown_ms is not None or event.broker != context.broker:
        return
    if event.applied_ms > max(member.session_from_ms or 0, member.joined_ms or 0):
        member.unknown_ms = event.applied_ms


def _to_no_coordinator(replica: GroupReplica, event: ConsumerHeartbeat, context: JudgementContext) -> None:
    if event.request_epoch == LEAVE_EPOCH and _wrote_a_removal(replica, event):
        _leave(replica, event, context)
    elif event.request_epoch < 0:
        remember_undelivered(replica, event.member_id, event.applied_ms)  # its client does not send it again
    elif event.request_epoch == 0:
        _join_to_no_coordinator(replica, event)


def _wrote_a_removal(replica: GroupReplica, event: ConsumerHeartbeat) -> bool:
    """Tell whether a leave that was refused (16) after a wait has written a removal: one of its member and instant.

    A coordinator that is unloaded refuses all requests that wait for their records (``CoordinatorRuntime``). The next
    coordinator may have these records nevertheless.
    """
    own_ms = (d.removed_ms for d in replica.departures if d.member.member_id == event.member_id)
    unloaded = event.error == Error.NOT_COORDINATOR and event.remote_ms >= WAITED_MS
    return unloaded and any(abs(at_ms - event.applied_ms) <= TRUNCATED_MS for at_ms in own_ms)


def _still_here(replica: GroupReplica, event: ConsumerHeartbeat, context: JudgementContext) -> None:
    member = replica.members.get(event.member_id)
    if event.request_epoch == 0:  # its record came first, so the member is there already
        _come_back_after_poll(replica, event, context)
    if member is None and (event.epoch < replica.generation or is_gone(replica, event.member_id, event.applied_ms)):
        return  # a late line: its member has been removed since, which raises the group's epoch
    member = member or modern_member(replica, event.member_id, event.applied_ms)
    record_heartbeat(member, event.applied_ms)
    member.client_id, member.client_host = event.client_id, event.client_host
    member.connection, member.software = event.connection, event.software or member.software
    member.listener, member.principal = event.listener, event.principal
    member.instance_id = event.instance_id or member.instance_id
    if member.generation is None:  # each epoch is written before it is answered, and an answer's line may come late
        member.generation = event.epoch
    if event.rebalance_timeout_ms >= 0:
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
    if event.request_epoch == 0:
        member.asked_ms = replica.asking.pop(event.member_id, None)
        came_back(replica, member, event.applied_ms)


def _behind_a_stalled_write(replica: GroupReplica, event: ConsumerHeartbeat, context: JudgementContext) -> None:
    """Apply a heartbeat that waited and was answered 15: only its answer was lost, and a late write is not undone."""
    if event.request_epoch == LEAVE_EPOCH:
        _leave(replica, event, context)
    elif event.request_epoch >= 0:
        note_parked_heartbeat(replica, event.member_id, event.applied_ms, event.applied_ms + event.remote_ms)


def _leave(replica: GroupReplica, event: ConsumerHeartbeat, context: JudgementContext) -> None:
    if is_known_leave(replica, event.member_id, event.applied_ms):
        return
    present = replica.members.get(event.member_id)
    joined_ms = -1 if present is None or present.joined_ms is None else present.joined_ms
    former, is_final = None, event.error == 0 and context.broker in ("", event.broker)
    if present is None or joined_ms >= event.applied_ms or _is_back_by_another_clock(replica, present):
        # gone, or the same id has joined again since
        former = explain_by_leave(replica, event.member_id, event.applied_ms, context.leave_grace_ms, is_final=is_final)
    if former is None and joined_ms > event.applied_ms:
        return  # a late line, and there is no removal that it could explain
    member = former or present or _member(event)
    replica.undelivered_leaves.pop(event.member_id, None)
    # After a 15, its tombstones may still be lost. If another broker answered, they are in the log, and the member may
    # have come back since.
    if is_final and former is None:  # former: it has joined again
        replica.members.pop(event.member_id, None)
    member.connection = event.connection
    cause = Cause.LEFT if member.poll_deadline_ms is None else Cause.POLL_INTERVAL
    stays = event.member_id in replica.members
    left = Leave(replace(member) if stays else member, event.applied_ms, cause, None)
    remember_leave(replica, left)
    if cause is Cause.POLL_INTERVAL and event.applied_ms >= context.live_from_ms:
        add_departure(replica, poll_departure(left, replica, context, Evidence.OBSERVED, event.applied_ms))
    derive_state(replica, event.applied_ms)


def _is_back_by_another_clock(replica: GroupReplica, member: Member) -> bool:
    """Tell whether a member's records say that it joined before its last removal: two clocks differ.

    Records are applied in the order in which they were written, so it was removed before it joined.
    """
    own = (departure for departure in replica.departures if departure.member.member_id == member.member_id)
    return any(departure.removed_ms > (member.joined_ms or departure.removed_ms) for departure in own)


def _member(event: ConsumerHeartbeat) -> Member:
    return Member(event.member_id, event.instance_id, event.client_id, event.client_host, kip848=True)


def _join_to_no_coordinator(replica: GroupReplica, event: ConsumerHeartbeat) -> None:
    """Remember since when a client asks to join: it polled before that, and need not have polled since."""
    horizon_ms = event.arrival_ms - ASKING_MS
    replica.asking = {name: since_ms for name, since_ms in replica.asking.items() if since_ms >= horizon_ms}
    if len(replica.asking) < MAX_UNANSWERED_JOINS:
        replica.asking.setdefault(event.member_id, event.arrival_ms)


def _come_back_after_poll(replica: GroupReplica, event: ConsumerHeartbeat, context: JudgementContext) -> None:
    """Recognise an overdue poll: a leave (-1) and then epoch 0 under the same id (``AbstractHeartbeatRequestManager``).

    A static member leaves with -2 then. The record of its return was read before this line and replaced the former
    member. A leave that no coordinator accepted is known only from another broker's line, dated by that broker's clock.
    """
    said_ms = replica.undelivered_leaves.pop(event.member_id, None)
    for leave in replica.leaves:
        same = leave.member.member_id == event.member_id
        left = leave.cause is Cause.LEFT and came_after(event.arrival_ms, leave)
        returned = abs(leave.applied_ms - event.applied_ms) <= context.thresholds.grace_ms
        away = leave.cause is Cause.REPLACED and leave.member.away_ms is not None and returned
        if same and (left or away) and leave.may_be_late_poll:
            leave.cause = Cause.POLL_INTERVAL
            add_departure(replica, poll_departure(leave, replica, context, Evidence.INFERRED, event.applied_ms))
            return
    if said_ms is None or not -context.thresholds.grace_ms <= event.arrival_ms - said_ms <= LEAVE_MEMORY_MS:
        return
    member = replica.members.get(event.member_id) or _member(event)
    leave = Leave(replace(member), said_ms, Cause.POLL_INTERVAL, None)
    if leave.may_be_late_poll and not heard_since(member, said_ms, context):  # else it had come back before
        add_departure(replica, poll_departure(leave, replica, context, Evidence.INFERRED, event.applied_ms))

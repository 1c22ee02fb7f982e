"""Members that left, kept to explain a removal that is seen later, and to recognise a member that comes back."""

from coordinator_model.replica.group import LEAVE_MEMORY_MS, MAX_LEAVES, MAX_UNANSWERED_JOINS, GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.states import POLL_EXCEEDED, Cause, Evidence

TRUNCATED_MS = 2
"""How much earlier than an answer the next request on its connection may seem to come. A line's instant is truncated to
a millisecond, and the times that are subtracted from it are rounded."""
POLL_REASONS = ("poll timeout has expired",)
"""KIP-800 reason of Java consumers and Connect workers (``AbstractCoordinator``, ``WorkerCoordinator``)."""
ADMIN_REASON = "member was removed by an admin"


def leave_cause(reason: str | None) -> Cause:
    """Return the cause that a LeaveGroup's reason names. Without a known reason it is ``LEFT``."""
    if reason and any(text in reason for text in POLL_REASONS):
        return Cause.POLL_INTERVAL
    if reason and ADMIN_REASON in reason:
        return Cause.ADMIN
    return Cause.LEFT


def is_known_leave(replica: GroupReplica, member_id: str, applied_ms: int) -> bool:
    """Tell whether this leave has been applied already, because its line comes twice."""
    return any(leave.member.member_id == member_id and leave.applied_ms == applied_ms for leave in replica.leaves)


def came_after(arrival_ms: int, leave: Leave) -> bool:
    """Tell whether a request on the same connection came after this leave was answered.

    After an overdue poll, librdkafka's KIP-848 consumer leaves (-1) only when its application polls again. It joins (0)
    as soon as that is answered.
    """
    return leave.applied_ms - TRUNCATED_MS <= arrival_ms


def remember_leave(replica: GroupReplica, leave: Leave) -> None:
    """Keep a leave; drop those that are too old or too many."""
    horizon_ms = leave.applied_ms - LEAVE_MEMORY_MS
    replica.leaves = [old for old in replica.leaves if old.applied_ms >= horizon_ms][-(MAX_LEAVES - 1) :]
    replica.leaves.append(leave)


def has_left(replica: GroupReplica, member: Member, removed_ms: int, grace_ms: int) -> bool:
    """Tell whether a leave explains the removal of a member."""
    own = (leave for leave in replica.leaves if leave.member.member_id == member.member_id)
    left_ms = (leave.applied_ms for leave in own if leave.cause is not Cause.REPLACED)
    return any(abs(at_ms - removed_ms) <= grace_ms for at_ms in left_ms)


def left_a_deposed_coordinator(replica: GroupReplica, member: Member, removed_ms: int) -> bool:
    """Tell whether a leave that a deposed coordinator accepted, or refused as it was unloaded, removed the member.

    The broker was still the coordinator then: the record that no longer lists the member is of the same instant.
    """
    left_ms = replica.undelivered_leaves.get(member.member_id)
    return left_ms is not None and abs(left_ms - removed_ms) <= TRUNCATED_MS


def remember_undelivered(replica: GroupReplica, member_id: str, applied_ms: int) -> None:
    """Remember a leave that no coordinator is known to have accepted. Drop those that are too old or too many."""
    horizon_ms = applied_ms - LEAVE_MEMORY_MS
    kept = {name: said_ms for name, said_ms in replica.undelivered_leaves.items() if said_ms >= horizon_ms}
    if member_id in kept or len(kept) < MAX_UNANSWERED_JOINS:
        kept[member_id] = applied_ms
    replica.undelivered_leaves = kept


def heard_since(member: Member, left_ms: int | None, context: JudgementContext) -> bool:
    """Tell whether a member was heard after it sent a leave to a broker that was no coordinator.

    That broker's clock may differ, so only a heartbeat more than a grace later counts.
    """
    return left_ms is not None and (member.last_heartbeat_ms or 0) > left_ms + context.thresholds.grace_ms


def poll_departure(
    leave: Leave, replica: GroupReplica, context: JudgementContext, evidence: Evidence, decided_ms: int
) -> Departure:
    """Return the departure of a member that left because it did not poll in time.

    If its client has not reported when the poll interval ended, its leave dates the deadline.
    """
    return Departure(
        member=leave.member,
        rule=POLL_EXCEEDED,
        cause=Cause.POLL_INTERVAL,
        evidence=evidence,
        removed_ms=decided_ms,
        deadline_ms=leave.member.poll_deadline_ms or leave.member.away_ms or leave.applied_ms,
        generation=replica.generation,
        broker=context.broker,
        judge_after_ms=0 if context.by_records else decided_ms,  # records may be older than what a client reports
    )

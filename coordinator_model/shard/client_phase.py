"""Which phase of the protocol a member's client is in, as far as the coordinator's answers show it."""

from enum import StrEnum

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.modern import STATIC_LEAVE_EPOCH, is_reconciled
from coordinator_model.states import GroupState, GroupType


class ClientPhase(StrEnum):
    """The Java client's ``MemberState``, with fewer states."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    AWAITING_ASSIGNMENT = "awaiting-assignment"
    STABLE = "stable"


def client_phase(replica: GroupReplica, member: Member, context: JudgementContext) -> ClientPhase | None:
    """Return the phase; None: it is not known.

    A classic client sends no heartbeats while its JoinGroup is pending. So after an answer 27 the client is stable as
    long as its heartbeats go on, and joining once they stop. If only records are read, it is not known whether a client
    that the records show as stable still is.
    """
    phase = _phase(replica, member, context.progress_ms)
    return None if context.by_records and phase is ClientPhase.STABLE else phase


def _phase(replica: GroupReplica, member: Member, progress_ms: int) -> ClientPhase | None:
    if member.kip848:
        return _kip848(replica, member)
    if replica.type is not GroupType.CLASSIC:
        return None
    if member.awaiting_sync or _came_unsynced(replica, member):
        return ClientPhase.AWAITING_ASSIGNMENT
    if replica.state is not GroupState.PREPARING_REBALANCE:
        return ClientPhase.STABLE
    last_ms, previous_ms = member.last_heartbeat_ms, member.previous_heartbeat_ms
    if last_ms is None or previous_ms is None or last_ms < replica.state_since_ms:
        return None
    return ClientPhase.STABLE if progress_ms - last_ms <= 2 * (last_ms - previous_ms) else ClientPhase.JOINING


def _came_unsynced(replica: GroupReplica, member: Member) -> bool:
    """Tell whether a static member took its instance id in a stable group and has sent no SyncGroup yet."""
    came = member.connection is not None and (member.joined_ms or 0) > replica.generation_since_ms
    return came and member.synced_ms is None


def _kip848(replica: GroupReplica, member: Member) -> ClientPhase | None:
    if member.generation == STATIC_LEAVE_EPOCH:
        return ClientPhase.UNJOINED
    if member.state is None:
        return None
    reached = is_reconciled(member, replica.assignment_epoch)
    return ClientPhase.STABLE if reached else ClientPhase.AWAITING_ASSIGNMENT

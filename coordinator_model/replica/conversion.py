"""How a group changes its kind: by an upgrade, a downgrade, or a join into an empty group of another kind.

The coordinator does it in one atomic write: the tombstones of the old kind, then the records of the new one, all with
one timestamp (``GroupMetadataManager.convertToConsumerGroup`` and ``convertToClassicGroup``). So a tombstone alone does
not delete the group (``GroupReplica.mark_tombstoned``): more of the same write may follow. Only the member that causes
a downgrade is gone after it. No incident ends: the group lives on.
"""

from collections.abc import Collection

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.ended_phase import phase_limit_ms
from coordinator_model.replica.removals.removal import remove_member, withdraw
from coordinator_model.replica.session_timer import latest_session, moves_since_heard, session_timeout_ms, unheard_since
from coordinator_model.replica.transitions import StateEvent
from coordinator_model.states import GroupType

PROTOCOL_TYPES = {GroupType.CONSUMER: "consumer", GroupType.SHARE: "share", GroupType.STREAMS: "streams"}


def become(replica: GroupReplica, type_: GroupType, at_ms: int) -> None:
    """Give the group the type of the newest record.

    What is known about the members is kept in ``unconverted``, for those that records of the new kind name.
    """
    if replica.type is type_ and not replica.deleted and replica.ending_ms is None:
        return
    former = list(replica.members.values())
    replica.confirm_last_record()
    replica.unconverted = []
    if replica.type is not type_:
        replica.members, replica.unconverted = {}, former
        _forget_names(replica)
        replica.announced_by = ""
        replica.generation = -1  # each kind has its own count: a lower number does not mean a new incarnation
    replica.type, replica.deleted, replica.ending_ms = type_, False, None
    replica.unreported_phase = None
    replica.enter(StateEvent.CONVERTED, at_ms)
    replica.protocol_type = PROTOCOL_TYPES[type_]
    replica.protocol = replica.leader = None
    replica.assignment_epoch, replica.regexes = -1, {}


def dismiss_unconverted(replica: GroupReplica, now_ms: int, context: JudgementContext) -> None:
    """Drop the members that an upgrade did not name, once its write is over.

    The coordinator names all members that it has. A classic group writes a removal only at the end of the rebalance, so
    a member may have been removed before the upgrade. That is the case if its session had ended by then, if the
    coordinator no longer knew it (25), or if the join phase had ended: then its removal is noted. Any other member was
    only in the replica by mistake. If the coordinator's lines have just come back after a hole, this waits until it is
    known whether the coordinator was paused: a session may have ended as it woke, just before the upgrade.
    """
    upgraded_ms = replica.state_since_ms
    if replica.type not in PROTOCOL_TYPES or now_ms <= upgraded_ms or context.hole_is_open:
        return
    unnamed, replica.unconverted = replica.unconverted, []
    named = replica.members
    replica.members = named | {member.member_id: member for member in unnamed}  # their timeouts count for the phase
    phase_ended = _join_phase_has_ended(replica, upgraded_ms, context)
    gone = [member for member in unnamed if phase_ended or _had_gone(member, upgraded_ms, context)]
    replica.members = named | {member.member_id: member for member in gone}
    for member in gone:
        remove_member(replica, member, upgraded_ms, context)


def _had_gone(member: Member, upgraded_ms: int, context: JudgementContext) -> bool:
    """Tell whether a member's session had ended by the upgrade, or its coordinator no longer knew it (25).

    A session that was due while the coordinator was paused ends as it wakes, which may be just before the upgrade. A
    coordinator that has loaded the group since the member was heard had it from the log, so it was removed since.
    """
    session, timeout_ms = latest_session(member, context), session_timeout_ms(member, context)
    if member.unknown_ms is not None or (session is not None and session.end_ms <= upgraded_ms):
        return True
    if member.session_from_ms is None or timeout_ms is None:
        return False
    if moves_since_heard(member, context):
        return True
    due_ms = member.session_from_ms + timeout_ms
    return due_ms <= upgraded_ms and any(p.delays(due_ms) for p in unheard_since(member, context.timer_resets))


def _join_phase_has_ended(replica: GroupReplica, upgraded_ms: int, context: JudgementContext) -> bool:
    """Tell whether a join phase had ended by its timeout when a classic group was upgraded, but no answer showed it."""
    phase = replica.phase
    if phase.started_ms is None or phase.ended is not None:
        return False
    return phase.started_ms + (phase_limit_ms(replica, phase, upgraded_ms, context) or 0) <= upgraded_ms


def become_classic(replica: GroupReplica, listed: Collection[str]) -> None:
    """Make the group classic, as its record shows.

    Members that it lists are not gone, though tombstones of the same write name them. If a member has two tombstones
    of that millisecond, only the last is of this write: the member was removed before, and came back.
    """
    if replica.ending_ms is not None:
        gone = [d for d in replica.departures if d.removed_ms == replica.ending_ms]
        for departure in {d.member.member_id: d for d in gone if d.member.member_id in listed}.values():
            withdraw(replica, departure)
            replica.members[departure.member.member_id] = departure.member
    if replica.type in PROTOCOL_TYPES:
        replica.generation = -1
        _forget_names(replica)
    replica.unconverted = []
    replica.type, replica.deleted, replica.ending_ms = GroupType.CLASSIC, False, None


def _forget_names(replica: GroupReplica) -> None:
    """Forget what departed members owned.

    One kind names topics, the other topic ids, so it cannot be compared with what members own now.
    """
    for departure in replica.departures:
        departure.member.assignment = {}

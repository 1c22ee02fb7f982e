"""What no event says of a group: time has passed, and the group has been judged.

``replay`` takes an event; these take the rest. Between them they write all that is ever written into a replica, and
``tests/repository/test_one_writer.py`` holds that nobody else does.
"""

from collections.abc import Collection, Iterable, Mapping

from coordinator_model.replica.classic import rebalance_without
from coordinator_model.replica.coordinator_log import prove
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.heartbeat_interval import measure_again
from coordinator_model.replica.removals.judge import judge_removals
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.replica.transitions import StateEvent
from coordinator_model.states import Cause, GroupState, GroupType

Heard = tuple[str, int, int | None]
"""A member's id, its last heartbeat, and the one before it."""


def advance(replica: GroupReplica, context: JudgementContext) -> bool:
    """Write what is certain by ``context.progress_ms``, before the group is judged; return whether anything was."""
    return judge_removals(replica, context) | measure_again(replica, context) | prove(replica, context)


def conclude(
    replica: GroupReplica, expired_ms: Mapping[str, int | None], ended: Collection[tuple[str, str | None]]
) -> bool:
    """Write what the judgement of a group decides for good; return whether anything was.

    ``expired_ms``: the deadlines that members are found to have missed, by member id. A rebalance that starts a moment
    later must not change that. ``ended``: rule and member id of the departures that are over; one of the same member
    that has still to be judged is another. Of a deleted group nothing is needed any more.
    """
    spoken = [m for m in replica.members.values() if m.member_id in expired_ms and m.verdict_ms is None]
    for member in spoken:
        member.verdict_deadline_ms = expired_ms[member.member_id]
        member.verdict_session_from_ms = member.session_from_ms
    if ended:
        replica.departures = [
            d for d in replica.departures if not d.judged or (d.rule, d.member.member_id) not in ended
        ]
    if replica.deleted:
        replica.forget_all_but_incarnation()
    return bool(spoken or ended or replica.deleted)


def end_if_tombstoned(replica: GroupReplica) -> bool:
    """Mark a group deleted whose tombstone's write did not go on with a group of another kind; return whether it is."""
    if replica.ending_ms is None:
        return False
    replica.mark_deleted()
    return True


def take_over(replica: GroupReplica, answered_ms: int, at_ms: int) -> bool:
    """Let another coordinator have loaded a classic group from the log; return whether that changes anything.

    A rebalance is in no record, so the group is as it was before (``GroupMetadataManager.onLoaded``). What came after
    ``answered_ms``, when the predecessor last answered, the new coordinator has answered before it was named: who left
    it then is in the record, and has left.
    """
    rebalancing = replica.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
    if replica.type is not GroupType.CLASSIC or not rebalancing or replica.state_since_ms > answered_ms:
        return False
    replica.revert_to_last_record(at_ms)
    loaded = StateEvent.LOADED_WITH_MEMBERS if replica.members else StateEvent.LOADED_WITHOUT_MEMBERS
    replica.enter(loaded, at_ms)
    for leave in replica.leaves:
        member = replica.members.get(leave.member.member_id)
        if member is not None and leave.applied_ms > answered_ms and leave.cause is not Cause.REPLACED:
            replica.save_last_record()
            del replica.members[member.member_id]
            rebalance_without(replica, member, leave.applied_ms)
    return True


def take_heartbeats(replica: GroupReplica, heard: Iterable[Heard]) -> None:
    """Bring the members up to date with the heartbeats that the fast path took."""
    for member_id, last_ms, previous_ms in heard:
        member = replica.members.get(member_id)
        if member is not None:
            member.last_heartbeat_ms, member.previous_heartbeat_ms = last_ms, previous_ms

"""What changes a replica without an event: time passes, the group is judged, its coordinator moves.

``replay`` applies events; these functions apply everything else. Nothing outside this package writes to a replica:
``tests/repository/test_one_writer.py`` fails if a module does.
"""

from collections.abc import Collection, Iterable, Mapping

from coordinator_model.replica.coordinator_log import prove
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.heartbeat_interval import measure_again
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.leave import rebalance_without
from coordinator_model.replica.modern import derive_state
from coordinator_model.replica.removals.departure import STALL_MS, Departure
from coordinator_model.replica.removals.judge import judge_removals
from coordinator_model.replica.removals.removal import note_unwritten_removal
from coordinator_model.replica.session_timer import session_timeout_ms
from coordinator_model.states import SESSION_EXPIRED, Cause, GroupState, GroupType

Heard = tuple[str, int, int | None]
"""A member's id, its last heartbeat, and the one before it."""


def advance(replica: GroupReplica, context: JudgementContext) -> bool:
    """Write what is certain by ``context.progress_ms``, before the group is judged; return whether anything changed."""
    advanced = judge_removals(replica, context) | measure_again(replica, context) | prove(replica, context)
    return advanced | _lose_unwritten(replica, context)


def lost_by_ms(replica: GroupReplica, context: JudgementContext) -> int | None:
    """Return when a generation that no record names is lost, if nothing is heard of the group until then.

    As long as the coordinator goes on, the timers of the group run out. Its join phase ends at the longest rebalance
    timeout, and the sessions of members that are not heard end, at most one after the other. When nobody is left, the
    coordinator writes that. If it does not, another coordinator has loaded the group, though nothing showed that.
    None: the group has written its generation, or nothing can be concluded. If the last record lists members, the next
    coordinator lets their sessions end, and writes that.
    """
    rebalancing = replica.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
    unwritten = replica.type is GroupType.CLASSIC and rebalancing and replica.recorded_generation is not None
    unsure = context.by_records or context.waiting or context.stalled or not context.broker
    if not unwritten or unsure or replica.recorded or not replica.members:
        return None
    members = replica.members.values()
    heard = [(m.session_from_ms, m.joined_ms, m.synced_ms, m.claimed_ms, m.parked_heartbeat_ms) for m in members]
    heard_ms = max(at_ms or 0 for instants in heard for at_ms in instants)
    heard_ms = max(heard_ms, replica.state_since_ms, replica.stalled_ms or 0)
    heard_ms = max([heard_ms, *(pending.until_ms for pending in replica.pending.values())])
    session_ms = max(session_timeout_ms(member, context) or 0 for member in members)
    rebalance_ms = max(member.rebalance_timeout_ms or 0 for member in members)
    if not session_ms or not rebalance_ms:
        return None
    return heard_ms + 2 * (session_ms + rebalance_ms) + STALL_MS + context.thresholds.hold_ms


def _lose_unwritten(replica: GroupReplica, context: JudgementContext) -> bool:
    """Revert a group to its last record once its unwritten generation is lost; return whether it was reverted."""
    lost_ms = lost_by_ms(replica, context)
    if lost_ms is None or context.progress_ms < lost_ms or context.hole_is_open:
        return False
    replica.revert_to_last_record(lost_ms)
    return True


def conclude(
    replica: GroupReplica, expired_ms: Mapping[str, int | None], ended: Collection[tuple[str, str | None]]
) -> bool:
    """Write what the judgement of a group decides for good; return whether anything changed.

    ``expired_ms``: by member id, the deadlines that members are found to have missed. A rebalance that starts a moment
    later must not change that. ``ended``: rule and member id of the departures whose incidents are over. A departure
    that still has to be judged is another one, even if member and rule are the same, and stays. The departure of a
    member whose session ended stays too, without being reported, as long as the next coordinator may let that session
    end once more. So does each departure that still has to be compared with an unjudged one of the same generation.
    """
    expired = [m for m in replica.members.values() if m.member_id in expired_ms and m.verdict_ms is None]
    for member in expired:
        member.verdict_deadline_ms = expired_ms[member.member_id]
        member.verdict_session_from_ms = member.session_from_ms
    if ended:
        over = [d for d in replica.departures if d.judged and (d.rule, d.member.member_id) in ended]
        compared = {d.generation for d in replica.departures if not d.judged}
        forgotten = [id(d) for d in over if d.rule != SESSION_EXPIRED and not _is_compared(d, compared)]
        for departure in over:
            departure.rule = None
        kept = (d for d in replica.departures if d.is_over and not _is_compared(d, compared))
        forgotten += [id(d) for d in kept if not _may_end_again(replica, d)]
        replica.departures = [d for d in replica.departures if id(d) not in forgotten]
    return bool(expired or ended)


def _is_compared(departure: Departure, generations: Collection[int]) -> bool:
    """Tell whether a departure with a known deadline is of a generation in which another one is not judged yet."""
    return departure.deadline_ms is not None and departure.generation in generations


def _may_end_again(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether the log has a classic member that was not heard since a deposed coordinator let its session end."""
    member_id = departure.member.member_id
    member = replica.members.get(member_id) or replica.recorded.get(member_id)
    heard_ms = departure.removed_ms if member is None else member.session_from_ms or 0
    return heard_ms < departure.removed_ms and not departure.member.in_kip848_group


def end_if_tombstoned(replica: GroupReplica) -> bool:
    """Mark a group deleted if its tombstone was not followed by a group of another kind; return whether it was marked.

    Such a group would have come in the same write (see ``conversion``).
    """
    if replica.ending_ms is None:
        return False
    replica.mark_deleted()
    return True


def forget_reported(replica: GroupReplica) -> None:
    """Forget the removals that have been judged, so that none is reported again when the instants of a shard move."""
    replica.departures = [departure for departure in replica.departures if not departure.judged]


def take_over(
    replica: GroupReplica,
    answered_ms: int,
    at_ms: int,
    context: JudgementContext,
    claimed: tuple[str, int] | None = None,
) -> bool:
    """Apply that another coordinator has loaded a group from the log; return whether that changes anything.

    A rebalance is in no record, so a classic group is as it was before it (``GroupMetadataManager.onLoaded``). Nor is
    the removal of an empty KIP-848 group by a refused JoinGroup. A last leave that no record shows was answered 15: its
    record is not in the log that the next coordinator has loaded.
    ``answered_ms``: when the deposed coordinator last answered. Leaves after that were already answered by the new
    coordinator, so they are applied again to the group as the record has it.
    ``claimed``: the new coordinator, and since when it has answered although metadata named its predecessor. A
    generation that it has announced since then is the group's, though no record names it yet. Leaves that it has
    answered since then are applied again, too: the predecessor's clock may be ahead.
    """
    if replica.state is GroupState.DEAD and replica.state_since_ms <= answered_ms:
        derive_state(replica, at_ms)  # a group that has a tombstone stays Dead
        return replica.state is not GroupState.DEAD
    rebalancing = replica.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
    left_unwritten = replica.state is GroupState.EMPTY and bool(replica.recorded)
    unwritten = replica.type is GroupType.CLASSIC and (rebalancing or left_unwritten)
    if not unwritten or replica.state_since_ms > answered_ms:
        return False
    if claimed is not None and replica.announced_by == claimed[0] and replica.generation_since_ms >= claimed[1]:
        return False
    if replica.state is GroupState.PREPARING_REBALANCE:
        note_unwritten_removal(replica, context)
    if replica.recorded_generation is None:
        replica.note_loaded(at_ms)
    else:
        replica.revert_to_last_record(at_ms)
    for leave in replica.leaves:
        member = replica.members.get(leave.member.member_id)
        claims_it = claimed is not None and leave.broker == claimed[0] and leave.applied_ms >= claimed[1]
        counts = leave.applied_ms > answered_ms or claims_it
        if member is not None and counts and leave.cause is not Cause.REPLACED:
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

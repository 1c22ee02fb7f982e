"""An answered JoinGroup: no other line shows as much (``GroupMetadataManager.classicGroupJoin``).

It ends a join phase, lists all members to the leader, and replaces a static member or shows that its session had ended.
``refused_join`` has the JoinGroups that were not answered with 0, ``static_replacement`` whom a static member replaces.
"""

from coordinator_model.events import JoinAnswered
from coordinator_model.replica import answering_coordinator, join_lines
from coordinator_model.replica.assigned_work import STREAMS_PROTOCOL
from coordinator_model.replica.classic import (
    came_back_if_new,
    drop_unlisted,
    fill_from_join,
    is_gone,
    lend_session,
    member_of,
    prepare_rebalance,
    start_sync_timer,
)
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.member_blobs import fill_topics, from_base64
from coordinator_model.replica.refused_join import refused
from coordinator_model.replica.removals import join_phase
from coordinator_model.replica.removals.ended_phase import EARLY_MS
from coordinator_model.replica.removals.leaves import came_after, poll_departure
from coordinator_model.replica.removals.removal import add_departure
from coordinator_model.replica.static_replacement import replace_static
from coordinator_model.replica.transitions import StateEvent
from coordinator_model.states import Cause, Evidence, GroupState, GroupType

UUID_CHARS = 36


def join(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """Apply an accepted JoinGroup: the join phase is over, or a member rejoined a stable group."""
    if event.error != 0:
        refused(replica, event, context)
        return
    start_sync_timer(replica, event)
    if _is_late(replica, event) or answering_coordinator.is_deposed(replica, event):
        return
    join_lines.note_seen(replica, event.generation)
    if replica.type is GroupType.SIMPLE or replica.deleted:
        replica.type, replica.deleted = GroupType.CLASSIC, False
    if answering_coordinator.has_loaded_since(replica, event, context):
        _load_from_the_log(replica, event, context)
    is_new = replica.type is not GroupType.CLASSIC or event.generation != replica.generation
    if is_new and replica.type is GroupType.CLASSIC:
        _end_phase(replica, event, context)
    _take_protocol(replica, event, known=not is_new)
    if event.generation == replica.generation:
        join_phase.note_join_as_it_moved(replica, event, context)
        join_phase.note_sign(replica, event.generation, event.arrival_ms, event.member_id)
        join_phase.note_join(replica, event)
        if event.arrival_ms <= replica.generation_since_ms and replica.type is GroupType.CLASSIC:
            replica.announced_by = replica.announced_by or event.broker  # a record or a heartbeat was read first
    replica.pending.pop(event.member_id, None)
    _take_leader(replica, event)
    if not is_gone(replica, event.member_id, event.answer_ms) and not _was_removed_as_it_waited(replica, event):
        _let_in(replica, event, context)
    if _has_a_new_member_list(replica, event):
        replica.listed_generation = event.generation
        _apply_leaders_list(replica, event, context)
    _rebalance_if_one_left(replica, event)


def _load_from_the_log(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """Revert to the last record. A generation that the log lacks restarts no session at the coordinator that loads it.

    The deposed coordinator may have gone on with that generation until after the load.
    """
    announced_ms = replica.generation_since_ms
    replica.revert_to_last_record(event.answer_ms)
    moves = (r.low_ms for r in context.timer_resets if r.is_move and r.broker == event.broker)
    moved_ms = max(moves, default=event.answer_ms)
    for member in replica.members.values():
        if (member.timer_reset_ms or 0) >= announced_ms:
            member.timer_reset_ms = min(member.timer_reset_ms or 0, moved_ms)


def _is_late(replica: GroupReplica, event: JoinAnswered) -> bool:
    """Tell whether an answer is a late line of an earlier generation.

    In a KIP-848 group each member has an epoch of its own, which is lower than the group's until the next assignment
    is computed. So only a later epoch of the same member shows that the line is late. Its answers name no leader. In a
    classic group such an answer is of the KIP-848 group that it was before.
    """
    if replica.type is GroupType.CONSUMER:
        member = replica.members.get(event.member_id)
        return member is not None and event.generation < (member.generation or 0)
    before = event.answer_ms <= replica.generation_since_ms or not event.leader
    return event.generation < replica.generation and before


def _end_phase(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """End the join phase: an answer announces another generation."""
    if replica.state is not GroupState.PREPARING_REBALANCE:
        join_phase.begin_phase(replica, event.arrival_ms, event.member_id)
    skipped = event.generation > replica.generation + 1 > 0
    if skipped:
        join_phase.note_unseen_end(replica, event.answer_ms, context)
    replica.save_last_record(event.generation)
    join_phase.end_phase(replica, event.generation, event.answer_ms)
    if not skipped:
        _restart_unanswered(replica, event.answer_ms, context)
    replica.announced_by = event.broker
    replica.enter(StateEvent.GENERATION_ANNOUNCED, event.answer_ms)


def _restart_unanswered(replica: GroupReplica, at_ms: int, context: JudgementContext) -> None:
    """Restart the session timers of members that were in the phase and whose JoinGroup's answer was lost.

    The end of a phase restarts the timers of all that have joined (``GroupMetadataManager.completeClassicGroupJoin``).
    It does not if another coordinator has loaded the group since: that coordinator knows nothing of these JoinGroups.
    """
    phase = replica.phase
    loads = (r for r in context.timer_resets if r.may_load and r.may_come_after(phase.began_after_ms))
    if next(loads, None) is None:
        for member in (m for m in replica.members.values() if m.member_id in phase.unanswered):
            member.timer_reset_ms = max(member.timer_reset_ms or 0, at_ms)


def _take_protocol(replica: GroupReplica, event: JoinAnswered, *, known: bool) -> None:
    """Take the protocol that an answer names, unless its generation and thus its protocol is known already.

    The answer to a classic member of a KIP-848 group names the protocol that this member prefers. The coordinator
    chooses the group's protocol when the group becomes classic, which may be in the same write
    (``GroupMetadataManager.classicGroupJoinToConsumerGroup``).
    """
    replica.protocol_type = event.protocol_type or replica.protocol_type
    if not known or replica.protocol is None:
        replica.protocol = event.protocol or replica.protocol


def _take_leader(replica: GroupReplica, event: JoinAnswered) -> None:
    """Set the leader that an answer names, unless that member is gone by now."""
    leader = _leader(replica, event)
    if leader and not is_gone(replica, leader, _applied_ms(replica, event)):
        replica.leader = leader
        _name_the_leader(replica, event, leader)
        _count_the_leader_in(replica, event)


def _was_removed_as_it_waited(replica: GroupReplica, event: JoinAnswered) -> bool:
    """Tell whether a member of a KIP-848 group was removed or replaced while its JoinGroup waited for a write."""
    gone_ms = [d.removed_ms for d in replica.departures if d.member.member_id == event.member_id]
    gone_ms += [leave.applied_ms for leave in replica.leaves if leave.member.member_id == event.member_id]
    gone = event.generation < replica.generation or any(event.arrival_ms <= ms <= event.answer_ms for ms in gone_ms)
    return gone and replica.type is GroupType.CONSUMER and event.member_id not in replica.members


def _let_in(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """Add the member that joined to the generation. It replaces the former holder of its instance id."""
    replica.rolled_back_replacements.pop(event.instance_id or "", None)
    former = replace_static(replica, event, context)
    member = member_of(replica, event.member_id, event.answer_ms)
    if member.generation != event.generation or replica.type is GroupType.CONSUMER:
        member.timer_reset_ms = max(member.timer_reset_ms or 0, _applied_ms(replica, event))
    if former and _is_into_a_stable_group(replica, event):
        lend_session(former[0], member, event.arrival_ms)
    member.awaiting_sync = not (_replaced_when_stable(replica, event) or _has_synced(replica, member, event, context))
    member.generation = event.generation
    member.streams = replica.protocol == STREAMS_PROTOCOL
    fill_from_join(member, event, with_timeouts=not _is_unchanged_rejoin(replica, event))
    _recognise_overdue_poll(replica, event, context)
    came_back_if_new(replica, member)


def _has_synced(replica: GroupReplica, member: Member, event: JoinAnswered, context: JudgementContext) -> bool:
    """Tell whether a member's SyncGroup of this generation is known: the line of its JoinGroup may be late.

    The instant of that line may be inexact too. So once the generation's record is read, it may be dated after the
    SyncGroup. A SyncGroup from before the generation does not count: 27, and then a JoinGroup, is the ordinary course.
    """
    synced_ms = member.synced_ms or 0
    stored = replica.recorded_generation is None and synced_ms >= replica.generation_since_ms
    by_ms = synced_ms + context.thresholds.grace_ms if stored else synced_ms
    return member.generation == event.generation and event.answer_ms < by_ms


def _applied_ms(replica: GroupReplica, event: JoinAnswered) -> int:
    """Return the instant at which a JoinGroup was applied.

    A join into a stable classic group is a replacement. It is applied when it arrives, but answered only once its
    record is written. Its answer names the leader at the time of its arrival.
    """
    return event.arrival_ms if _is_into_a_stable_group(replica, event) else event.answer_ms


def _is_into_a_stable_group(replica: GroupReplica, event: JoinAnswered) -> bool:
    stable = replica.type is GroupType.CLASSIC and replica.state is GroupState.STABLE
    return stable and event.arrival_ms > replica.generation_since_ms


def _replaced_when_stable(replica: GroupReplica, event: JoinAnswered) -> bool:
    """Tell whether a static member took over its instance id in a stable group, where it owes no SyncGroup.

    Only those that were in the announced generation owe one (``GroupMetadataManager.schedulePendingSync``).
    """
    takes_over = event.instance_id is not None and not event.request_member_id
    since_announced_ms = event.arrival_ms - replica.generation_since_ms
    return takes_over and since_announced_ms > EARLY_MS and _is_into_a_stable_group(replica, event)


def _is_unchanged_rejoin(replica: GroupReplica, event: JoinAnswered) -> bool:
    """Tell whether a member of the generation joined again with nothing changed, and so was answered at once."""
    again = event.request_member_id == event.member_id and event.generation == replica.generation
    return replica.type is GroupType.CLASSIC and again and event.arrival_ms > replica.generation_since_ms


def _rebalance_if_one_left(replica: GroupReplica, event: JoinAnswered) -> None:
    """Enter the next join phase if a member of the generation has left since its announcement.

    The line of that leave was read before this one.
    """
    if replica.state is not GroupState.COMPLETING_REBALANCE or event.generation != replica.generation:
        return
    let_in = {event.member_id, *(member_id for member_id, _, _ in event.members)}
    since = [leave for leave in replica.leaves if leave.applied_ms >= event.answer_ms]
    left = [leave for leave in since if leave.cause is not Cause.REPLACED and leave.member.member_id in let_in]
    if left:
        prepare_rebalance(replica, StateEvent.MEMBER_LEFT, left[0].applied_ms, left[0].member.member_id)


def _leader(replica: GroupReplica, event: JoinAnswered) -> str:
    """Return the leader. Before JoinGroup v9 a static leader that came back is named by its former id (KIP-814)."""
    if event.instance_id is None or event.leader == event.member_id:
        return event.leader
    gone = [leave.member for leave in replica.leaves if leave.cause is Cause.REPLACED]
    former = [m.member_id for m in [*gone, *replica.members.values()] if m.instance_id == event.instance_id]
    return event.member_id if event.leader in former else event.leader


def _name_the_leader(replica: GroupReplica, event: JoinAnswered, leader: str) -> None:
    """Note the id of a member whose own JoinGroup's answer was lost, if another answer names it as leader.

    It led as the generation was announced, and may have left before this answer.
    """
    if leader in replica.members or leader == event.member_id or is_gone(replica, leader, replica.generation_since_ms):
        return
    member = _named(replica, leader, event.answer_ms)
    if member is not None:
        member.generation, member.timer_reset_ms = event.generation, _applied_ms(replica, event)


def _named(replica: GroupReplica, member_id: str, at_ms: int) -> Member | None:
    """Create a member whose JoinGroup's answer was lost, now that another answer shows its id; None: it is not known.

    A member id is the instance id, or for a dynamic member the client id, followed by a hyphen and a uuid
    (``ClassicGroup.generateMemberId``).
    """
    before_uuid = member_id[: -len("-") - UUID_CHARS]
    lost = replica.unanswered_joins.get(before_uuid)
    if lost is None:
        return None
    member = member_of(replica, member_id, at_ms)
    member.session_timeout_ms, member.rebalance_timeout_ms = lost.session_timeout_ms, lost.rebalance_timeout_ms
    member.instance_id, member.client_id, member.client_host = lost.instance_id, lost.client_id, lost.client_host
    if member.instance_id is not None:  # with one client id, the answers to more than one member may have been lost
        del replica.unanswered_joins[before_uuid]
    return member


def _count_the_leader_in(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note that the leader is in the new generation, as another member's answer shows: its own may have been lost."""
    leader = replica.members.get(replica.leader or "")
    if leader is None or leader.member_id == event.member_id or event.generation != replica.generation:
        return
    if (leader.generation or 0) < event.generation:
        leader.generation = event.generation
        if not _is_into_a_stable_group(replica, event):
            leader.awaiting_sync, leader.timer_reset_ms = True, max(leader.timer_reset_ms or 0, event.answer_ms)


def _recognise_overdue_poll(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """Recognise an overdue poll: a leave without a reason, and then a join on the same connection."""
    for leave in replica.leaves:
        silent = leave.cause is Cause.LEFT and not leave.reason and leave.member.instance_id is None
        same = leave.member.connection == event.connection and came_after(event.arrival_ms, leave)
        if silent and same and leave.may_be_late_poll:
            leave.cause = Cause.POLL_INTERVAL
            add_departure(replica, poll_departure(leave, replica, context, Evidence.INFERRED, event.answer_ms))
            return


def _has_a_new_member_list(replica: GroupReplica, event: JoinAnswered) -> bool:
    """Tell whether an answer has the member list of a generation whose list is not known yet.

    A KIP-848 group has no leader. An answer with a list shows that its coordinator made it a classic group, and the
    record of that shows the members (``GroupMetadataManager.convertToClassicGroup``). A deposed coordinator writes no
    such record.
    """
    new = bool(event.members) and replica.listed_generation != event.generation
    return new and replica.type is not GroupType.CONSUMER


def _must_sync_first(replica: GroupReplica, member: Member) -> bool:
    """Tell whether the sync timeout would remove a static member that missed a join phase before its session ends.

    It has to sync as all members do, within the longest rebalance timeout (``GroupMetadataManager.expirePendingSync``).
    """
    limits_ms = [other.rebalance_timeout_ms or 0 for other in replica.members.values()]
    return 0 < max(limits_ms, default=0) < (member.session_timeout_ms or 0)


def _apply_leaders_list(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """Apply the leader's member list: unlisted members were dropped, and every listed member's timer restarted.

    The timers restarted when the phase ended. A leader whose answer was lost gets the list when it asks again, which
    may be much later.
    """
    completed_ms = min(event.answer_ms, replica.generation_since_ms)
    came_since = {m.member_id for m in replica.members.values() if (m.joined_ms or 0) > event.answer_ms}
    listed = {member_id for member_id, _, _ in event.members} | came_since
    instances = {instance_id for _, instance_id, _ in event.members}
    drop_unlisted(replica, listed, instances, replica.generation_since_ms, context, event.broker)
    for member_id, instance_id, metadata in event.members:
        if is_gone(replica, member_id, event.answer_ms):
            continue  # it has left or was replaced since, and that line was read first
        member = replica.members.get(member_id) or _named(replica, member_id, event.answer_ms)
        member = member or member_of(replica, member_id, event.answer_ms)
        member.instance_id = instance_id or member.instance_id  # before JoinGroup v5 the list has none
        if member.generation != event.generation:
            member.generation = event.generation
            member.timer_reset_ms = max(member.timer_reset_ms or 0, completed_ms)
            member.awaiting_sync = instance_id is None or member.awaiting_sync or _must_sync_first(replica, member)
        if event.protocol_type == "consumer":
            fill_topics(member, from_base64(metadata))
        came_back_if_new(replica, member)

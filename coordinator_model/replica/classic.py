"""The classic protocol: type-2 records and answered heartbeats. See ``join``, ``sync`` and ``leave`` for the others.

Kafka's side is ``GroupMetadataManager.classicGroup…`` and ``ClassicGroup``. What only the coordinator knows is inferred
as closely as the answers allow. One heartbeat answered 27 puts the whole group in PreparingRebalance, until a JoinGroup
is answered with a higher generation. The leader's member list shows who was dropped. The answer to the leader's
SyncGroup, or the record, makes the group Stable.
"""

from functools import partial
from typing import Any

from coordinator_model.errors import HEARD, Error
from coordinator_model.events import Heartbeat, JoinAnswered, RecordRead, SyncAnswered
from coordinator_model.replica import join_lines, recorded, rolled_back_replacement, waiting_syncs
from coordinator_model.replica.assigned_work import STREAMS_PROTOCOL, assigned_work
from coordinator_model.replica.conversion import PROTOCOL_TYPES, become_classic
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.member_blobs import fill_blobs, fill_topics, from_base64
from coordinator_model.replica.removals import join_phase
from coordinator_model.replica.removals.ended_phase import ROUNDED_MS
from coordinator_model.replica.removals.leaves import TRUNCATED_MS, remember_leave
from coordinator_model.replica.removals.phases import JoinsSeen
from coordinator_model.replica.removals.removal import (
    note_parked_heartbeat,
    open_removals,
    remove_member,
)
from coordinator_model.replica.returns import came_back
from coordinator_model.replica.session_timer import may_have_loaded_since
from coordinator_model.replica.transitions import StateEvent
from coordinator_model.states import Cause, GroupState, GroupType


def read_record(replica: GroupReplica, event: RecordRead, context: JudgementContext) -> None:
    """Apply a GroupMetadata record: the whole group as it was at the leader's sync, or empty."""
    value, at_ms = event.value, event.order_ms
    if value is None:
        _delete(replica, at_ms)
        return
    generation = value["generation"]
    downgrade = replica.type in PROTOCOL_TYPES
    if replica.generation_since_ms > at_ms and generation < replica.generation:
        return  # a late record of an earlier generation: a later one has been answered since
    if recorded.writer_had_loaded(replica, value):
        recorded.revert_to_loaded(replica, value, at_ms)
    replacement = recorded.is_written_again(replica, generation)
    listed = {item["memberId"]: item for item in value["members"]}
    replica.unexpected += len(value["members"]) - len(listed)
    become_classic(replica, set(listed))
    recorded.count_if_lower(replica, generation)
    removed_ms = at_ms if generation == replica.generation else _end_recorded_phase(replica, value, at_ms, context)
    recorded.drop_found_gone(replica, value, set(listed))
    if replacement:
        recorded.restore_loaded(replica, listed)
    replica.protocol_type = value["protocolType"] or None
    replica.protocol, replica.leader = value["protocol"], value["leader"]
    gone = [member for member in replica.members.values() if member.member_id not in listed]
    former = {member.instance_id: member for member in gone if member.instance_id is not None}
    drop_unlisted(replica, set(listed), {i.get("groupInstanceId") for i in listed.values()}, removed_ms, context)
    # The end of the join phase restarted all timers, whichever broker answered; a replacement restarts only that of the
    # successor, when it comes. The record was written after that, so a later instant comes from a wrong clock.
    completed_ms = -1 if replacement or downgrade else value.get("currentStateTimestamp", -1)
    timer_reset_ms = min(completed_ms, at_ms) if completed_ms > 0 else at_ms
    for member_id, item in listed.items():
        member = member_of(replica, member_id, at_ms)
        recorded.drop_replaced(replica, member, item)
        _fill_from_record(replica, member, item)
        member.generation = generation if context.by_records else member.generation
        if at_ms >= context.live_from_ms and (member.session_from_ms is None or not replacement):
            member.timer_reset_ms = max(member.timer_reset_ms or 0, timer_reset_ms)
        if replacement:
            lend_session(former.get(member.instance_id or ""), member, at_ms)
        came_back_if_new(replica, member)
    _note_stored(replica, generation, at_ms, by_leader=not (replacement or downgrade))
    replica.confirm_last_record()
    _enter_recorded(replica, at_ms, downgrade=downgrade)
    if replacement and replica.rolled_back_replacements:
        for successor in [m for m in replica.members.values() if m.joined_ms == at_ms]:
            rolled_back_replacement.read(replica, successor, at_ms)


def _note_stored(replica: GroupReplica, generation: int, at_ms: int, *, by_leader: bool) -> None:
    """Note that the leader has synced if its SyncGroup stored the record that was written at an instant."""
    leader = replica.members.get(replica.leader or "")
    if by_leader and leader is not None:
        leader.generation, leader.synced_ms = generation, max(leader.synced_ms or 0, at_ms)


def _end_recorded_phase(replica: GroupReplica, value: dict[str, Any], at_ms: int, context: JudgementContext) -> int:
    """End the join phase that led to a record's generation; return when it ended."""
    if replica.state is not GroupState.PREPARING_REBALANCE:
        join_phase.begin_phase(replica, at_ms)  # no line showed its start: ``replica.phase`` is an earlier one
    elif value["generation"] > replica.generation + 1:
        join_phase.note_unseen_end(replica, at_ms, context)
    completed_ms, ended_ms = value.get("currentStateTimestamp", -1), at_ms
    if replica.phase.began_after_ms <= completed_ms < at_ms and not context.by_records:
        ended_ms = completed_ms  # the join phase ended then, which no answer has shown yet
    join_phase.end_phase(replica, value["generation"], ended_ms, emptied=not value["members"])
    replica.state_since_ms = at_ms  # if it was Stable before too, there was a rebalance that no answer showed
    return ended_ms


def _enter_recorded(replica: GroupReplica, at_ms: int, *, downgrade: bool) -> None:
    """Enter the state that a record shows. After a downgrade from KIP-848 the group then begins a join phase.

    It does not if the last KIP-848 member was static and came back with the classic protocol.
    """
    replica.enter(StateEvent.RECORD_WITH_MEMBERS if replica.members else StateEvent.RECORD_WITHOUT_MEMBERS, at_ms)
    came_back = any(member.joined_ms == at_ms for member in replica.members.values())
    if downgrade and replica.members and not came_back:
        prepare_rebalance(replica, StateEvent.DOWNGRADED, at_ms)
        replica.phase.began_after_ms = at_ms  # JoinGroups before that were sent to a group of another kind


def _delete(replica: GroupReplica, at_ms: int) -> None:
    if replica.type is not GroupType.CLASSIC and replica.type is not GroupType.SIMPLE:
        return  # the group was upgraded: this ends its classic records only
    replica.mark_tombstoned(at_ms)


def drop_unlisted(
    replica: GroupReplica,
    listed: set[str],
    instances: set[str | None],
    at_ms: int,
    context: JudgementContext,
    answered_by: str = "",
) -> None:
    """Remove the members that the coordinator no longer lists. A static member with a successor was replaced.

    If a record is the first to show the successor, the successor had joined in the join phase of the record's
    generation.
    """
    gone = [member for member in replica.members.values() if member.member_id not in listed]
    join_phase.forget_phase_unless_timed_out(replica, context)
    if replica.unreported_phase is not None:
        # those that it dropped come first: their timeouts do not extend the next phase
        gone = sorted(gone, key=partial(join_phase.was_kept, replica.unreported_phase))
    replaced_ms = replica.generation_since_ms if replica.state is GroupState.COMPLETING_REBALANCE else at_ms
    for member in gone:
        if member.kip848:
            del replica.members[member.member_id]
        elif (
            member.instance_id is not None
            and member.instance_id in instances
            and member.member_id not in replica.logged  # it was gone before its successor came
        ):
            del replica.members[member.member_id]
            remember_leave(replica, Leave(member, replaced_ms, Cause.REPLACED, None))
        else:
            remove_member(replica, member, at_ms, context, answered_by)
    replica.unreported_phase = None  # every member is known now


def member_of(replica: GroupReplica, member_id: str, at_ms: int) -> Member:
    """Return a member; create it if it is not known."""
    member = replica.members.get(member_id)
    if member is None:
        member = replica.members[member_id] = Member(member_id, joined_ms=at_ms)
    return member


def lend_session(former: Member | None, successor: Member, came_ms: int) -> None:
    """Note that a static successor's first session in a stable group lasts as long as its predecessor's timeout.

    A record of before ``live_from_ms`` shows that too: the session may still go on when telemetry begins.
    """
    if former is not None and former.session_timeout_ms != successor.session_timeout_ms:
        successor.lent_timeout_ms, successor.lent_from_ms = former.session_timeout_ms, came_ms


def came_back_if_new(replica: GroupReplica, member: Member) -> None:
    """Note that a member that joined with this generation came back, if it had departed."""
    if member.joined_ms is not None and member.joined_ms >= replica.generation_since_ms:
        came_back(replica, member, member.joined_ms)


def _fill_from_record(replica: GroupReplica, member: Member, item: dict[str, Any]) -> None:
    member.instance_id = item.get("groupInstanceId")
    member.client_id = item["clientId"]
    member.client_host = item["clientHost"].removeprefix("/")
    member.session_timeout_ms = item["sessionTimeout"]
    rebalance_timeout_ms = item.get("rebalanceTimeout", -1)
    member.rebalance_timeout_ms = rebalance_timeout_ms if rebalance_timeout_ms >= 0 else item["sessionTimeout"]
    member.kip848, member.state = False, None
    member.target, member.revoking_since_ms = {}, None
    member.streams = replica.protocol == STREAMS_PROTOCOL
    member.tasks = assigned_work(replica.protocol_type, replica.protocol, item["subscription"], item["assignment"])
    fill_blobs(member, item["subscription"], item["assignment"], replica.protocol_type)


def fill_from_join(member: Member, event: JoinAnswered, *, with_timeouts: bool = True) -> None:
    """Take what a JoinGroup says about its member. It may leave out the instance id, which the member id implies."""
    member.instance_id = event.instance_id or member.instance_id
    member.client_id, member.client_host = event.client_id, event.client_host
    member.connection, member.software = event.connection, event.software
    member.listener, member.principal, member.rejoin_reason = event.listener, event.principal, event.reason
    if with_timeouts or member.session_timeout_ms is None:
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
    member.beats_in_poll = event.api_version == 0
    if event.protocol_type == "consumer":
        fill_topics(member, from_base64(event.subscription))


def heartbeat(replica: GroupReplica, event: Heartbeat, context: JudgementContext) -> None:
    """Apply an answered heartbeat of either protocol; only 0 and 27 restart the session timer."""
    member = replica.members.get(event.member_id)
    stalled = event.error == Error.COORDINATOR_NOT_AVAILABLE and event.remote_ms >= context.thresholds.stalled_write_ms
    if stalled:
        answer_ms = event.applied_ms + event.remote_ms
        note_parked_heartbeat(replica, event.member_id, event.applied_ms, answer_ms)
        rolled_back_replacement.revert_behind(replica, event.broker, event.applied_ms, answer_ms)
        return
    if event.error not in HEARD:
        if not event.kip848:
            _refused(replica, member, event, context)
        return
    if member is None or _was_sent_before_it_came_back(replica, member, event):
        for departure in open_removals(replica, event.member_id, event.applied_ms):
            record_heartbeat(departure.member, event.applied_ms)
        if member is not None or not _shows_a_member(replica, event, context):
            return
        replica.save_last_record()
        member = replica.members[event.member_id] = Member(event.member_id, joined_ms=None, kip848=event.kip848)
    record_heartbeat(member, event.applied_ms)
    since = event.applied_ms > replica.generation_since_ms and not event.kip848
    if since and event.generation == replica.recorded_generation and event.generation < replica.generation:
        replica.revert_to_last_record(event.applied_ms)  # only a coordinator that loaded the log accepts this
    if event.kip848:  # each epoch is written before it is answered, and an answer's line may come late
        member.generation = event.generation if member.generation is None else member.generation
        return
    _classic_heartbeat(replica, member, event, context)


def _was_sent_before_it_came_back(replica: GroupReplica, member: Member, event: Heartbeat) -> bool:
    """Tell whether a classic member of a KIP-848 group sent a heartbeat before it was removed and joined again.

    It keeps its id then. All that may happen within one millisecond, and records are read before lines. The coordinator
    accepts no other epoch than the member's (``GroupMetadataManager.classicGroupHeartbeatToConsumerGroup``).
    """
    before = event.applied_ms <= (member.joined_ms or 0) and event.generation < (member.generation or 0)
    return before and not event.kip848 and replica.type is GroupType.CONSUMER


def _shows_a_member(replica: GroupReplica, event: Heartbeat, context: JudgementContext) -> bool:
    """Tell whether an accepted heartbeat shows that its sender, which is not known, is a member.

    A coordinator that loads the log answers 0 to anybody. A librdkafka that rejoins names no member.
    """
    blind = context.waiting and event.error == 0 and not event.kip848 and replica.state is not GroupState.UNKNOWN
    gone = is_gone(replica, event.member_id, event.applied_ms) or event.generation < replica.generation
    return bool(event.member_id) and not (blind or gone or _is_of_a_deposed_coordinator(replica, event))


def _is_of_a_deposed_coordinator(replica: GroupReplica, event: Heartbeat) -> bool:
    """Tell whether the last record shows that a heartbeat's member is not in the generation that it names.

    The group became empty in that generation, or the member was replaced, or it was removed and the group became
    classic: then a KIP-848 heartbeat is answered 69. A deposed coordinator, which does not know of that record, accepts
    such a heartbeat, and so does a coordinator that loads the log.
    """
    by_record = replica.type is GroupType.CLASSIC and replica.recorded_generation is None
    if not by_record or not 0 < event.generation == replica.generation:
        return False
    return replica.state is GroupState.EMPTY or event.kip848 or _was_replaced(replica, event)


def _was_replaced(replica: GroupReplica, event: Heartbeat) -> bool:
    """Tell whether a member of a stable group has replaced the static member that sent a heartbeat."""
    instances = {member.instance_id for member in replica.members.values()}
    return replica.state is GroupState.STABLE and any(
        leave.cause is Cause.REPLACED and leave.member.instance_id in instances
        for leave in replica.leaves
        if leave.member.member_id == event.member_id
    )


def _classic_heartbeat(replica: GroupReplica, member: Member, event: Heartbeat, context: JudgementContext) -> None:
    if _was_answered_before_the_downgrade(replica, event):
        start_rejoin_timer(member, event.applied_ms)
        return
    if event.generation < (member.generation or 0) and event.applied_ms < (member.timer_reset_ms or 0):
        return  # the heartbeat waited for a write, and its member has joined another generation since
    if replica.type is GroupType.SIMPLE:
        replica.type = GroupType.CLASSIC
    classic = replica.type is GroupType.CLASSIC
    unsure = context.waiting or context.disputed_until_ms(event.applied_ms) > 0
    if classic and event.generation > replica.generation and unsure:
        # a coordinator that loads the log answers 0 to any generation, and a deposed one to its own: never stored
        return
    member.generation = event.generation
    if not classic:
        if event.error == Error.REBALANCE_IN_PROGRESS:
            start_rejoin_timer(member, event.applied_ms)
        return
    if event.generation > replica.generation:  # its JoinGroups came before telemetry, or their lines are missing
        since_ms = max(replica.generation_since_ms, replica.stable_seen_ms or 0)
        join_lines.note_unseen(replica, event.applied_ms, since_ms, context)
        replica.generation, replica.generation_since_ms, replica.announced_by = event.generation, event.applied_ms, ""
        replica.joins = JoinsSeen(last_ms=replica.joins.last_ms, skipped=True)
        replica.enter(StateEvent.HEARTBEAT_ACCEPTED, event.applied_ms)
    _take_state(replica, event, context)


def _was_answered_before_the_downgrade(replica: GroupReplica, event: Heartbeat) -> bool:
    """Tell whether a classic member was told to rejoin (27) by its KIP-848 group, just before that became classic.

    A classic group refuses every generation but its own (22, ``GroupMetadataManager.validateClassicGroupHeartbeat``).
    """
    downgraded_ms = replica.phase.downgraded_ms if replica.type is GroupType.CLASSIC else None
    told = event.error == Error.REBALANCE_IN_PROGRESS and event.generation < replica.generation
    return told and downgraded_ms is not None and event.applied_ms <= downgraded_ms + ROUNDED_MS


def start_rejoin_timer(member: Member, since_ms: int) -> None:
    """Note that a classic member of a KIP-848 group has to rejoin (27): its timer starts with the first such answer."""
    if member.owes_since_ms is None:
        member.owes_since_ms = since_ms


def start_sync_timer(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note that a classic member of a KIP-848 group has to sync: its timer starts as its JoinGroup is answered.

    Such an answer names no leader. If the JoinGroup waited for a write, the group may have become classic meanwhile.
    The timer runs on, and removes the member if the group is a KIP-848 group when it runs out
    (``GroupMetadataManager.classicGroupJoinToConsumerGroup``).
    """
    member = replica.members.get(event.member_id)
    if member is not None and not event.leader and event.answer_ms >= (member.synced_ms or 0):
        member.owes_since_ms, member.may_owe_since_ms = event.answer_ms, []


def _refused(replica: GroupReplica, member: Member | None, event: Heartbeat, context: JudgementContext) -> None:
    """Apply a refused heartbeat: 25 shows that the member was gone by then.

    A 22 for the newest generation, from a broker that did not announce it, shows that this broker has loaded the log,
    which lacks the generation. From the broker that announced it, it shows that a later generation has been formed.
    """
    elsewhere = replica.is_announced_elsewhere(event.broker) and event.generation == replica.generation
    if event.error == Error.ILLEGAL_GENERATION and elsewhere and event.applied_ms > replica.generation_since_ms:
        replica.revert_to_last_record(event.applied_ms)
    elif event.error == Error.ILLEGAL_GENERATION and _outlived_the_phase(replica, member, event):
        join_phase.note_ended(replica, event.member_id)
    if event.error != Error.UNKNOWN_MEMBER_ID:
        return
    if member is not None:
        note_unknown_member(replica, member, event.generation, event.applied_ms, context)
    for departure in replica.departures:
        if departure.member.member_id == event.member_id and departure.member.unknown_ms is None:
            departure.member.unknown_ms = event.applied_ms


def _outlived_the_phase(replica: GroupReplica, member: Member | None, event: Heartbeat) -> bool:
    """Tell whether a heartbeat answered 22 is of a static member that was kept as the current join phase ended."""
    static = member is not None and member.instance_id is not None and member.unknown_ms is None
    rebalances = replica.type is GroupType.CLASSIC and replica.state is GroupState.PREPARING_REBALANCE
    since = event.applied_ms > replica.phase.began_after_ms and event.generation == replica.generation
    return static and rebalances and since


def note_unknown_member(
    replica: GroupReplica, member: Member, generation: int, at_ms: int, context: JudgementContext
) -> None:
    """Note an answer 25: the member is gone, whatever generation its request names.

    The coordinator checks the member first, then the generation (``ClassicGroup.validateMember``). If the request names
    the current generation, the removal began the next join phase. A KIP-848 group has no join phases.
    """
    if at_ms < (member.session_from_ms or 0) or at_ms <= (member.joined_ms or 0):
        return
    if member.unknown_ms is None:
        member.unknown_ms = at_ms
    if generation != replica.generation or member.in_kip848_group:
        return
    waiting_syncs.take_back(replica, member, at_ms, context)
    if replica.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE) and len(replica.members) > 1:
        prepare_rebalance(replica, StateEvent.MEMBER_UNKNOWN, at_ms)
    else:
        join_phase.note_sign(replica, replica.generation + 1, at_ms)


def record_heartbeat(member: Member, applied_ms: int) -> bool:
    """Note an accepted heartbeat, unless a later one is known. Return whether anything but its instant changed.

    A heartbeat also shows that the coordinator knows the member again. The second one shows the member's heartbeat
    interval, unless the session timer was restarted in between.
    """
    known_again = member.unknown_ms is not None and applied_ms > member.unknown_ms
    if known_again:
        member.unknown_ms = None
    last_ms = member.last_heartbeat_ms
    if last_ms is not None and applied_ms <= last_ms:
        return known_again
    member.previous_heartbeat_ms, member.last_heartbeat_ms = last_ms, applied_ms
    if (
        last_ms is None
        or member.heartbeat_interval_ms is not None
        or last_ms < (member.timer_reset_ms or 0) < applied_ms
    ):
        return known_again
    member.heartbeat_interval_ms = applied_ms - last_ms
    return True


def is_gone(replica: GroupReplica, member_id: str, applied_ms: int) -> bool:
    """Tell whether a member is known to have gone after an instant, so that a line of this instant is late.

    A coordinator that wakes from a pause may answer a member's heartbeat and replace the member within one millisecond.
    """
    return any(d.member.member_id == member_id and d.gone_ms >= applied_ms for d in replica.departures) or any(
        leave.member.member_id == member_id and leave.applied_ms + _truncated_ms(leave) >= applied_ms
        for leave in replica.leaves
    )


def _truncated_ms(leave: Leave) -> int:
    """Return how much later than a leave a line of the member may seem to come that was written before it."""
    return TRUNCATED_MS if leave.cause is Cause.REPLACED and not leave.member.kip848 else 0


def _take_state(replica: GroupReplica, event: Heartbeat, context: JudgementContext) -> None:
    """Take the state of the group that a heartbeat's answer shows: 27 in a join phase, 0 after it."""
    if event.generation != replica.generation:
        return
    if event.error == Error.REBALANCE_IN_PROGRESS:
        if event.applied_ms >= replica.state_since_ms:
            prepare_rebalance(replica, StateEvent.REBALANCE_IN_PROGRESS, event.applied_ms)
        elif replica.state is GroupState.PREPARING_REBALANCE:  # its line is late: it may be an earlier sign
            join_phase.note_sign(replica, replica.generation + 1, event.applied_ms)
        return
    behind = replica.state in (GroupState.PREPARING_REBALANCE, GroupState.EMPTY, GroupState.UNKNOWN)
    if behind and event.applied_ms > replica.state_since_ms:
        # a heartbeat is answered 0 only in CompletingRebalance and Stable: a new coordinator fell back to its log
        if replica.recorded_generation == event.generation and may_have_loaded_since(replica.state_since_ms, context):
            replica.revert_to_last_record(event.applied_ms)
        replica.enter(StateEvent.HEARTBEAT_ACCEPTED, event.applied_ms)
    if replica.state is GroupState.STABLE:
        replica.stable_seen_ms = event.applied_ms
        join_lines.note_if_unseen(replica, context)


def prepare_rebalance(replica: GroupReplica, event: StateEvent, at_ms: int, by: str | None = None) -> None:
    """Enter the join phase, or note a sign of the current one; ``by``: the member whose leave or join began it."""
    if replica.state is GroupState.COMPLETING_REBALANCE:
        waiting_syncs.end(replica, at_ms)
    if replica.state is not GroupState.PREPARING_REBALANCE:
        join_phase.begin_phase(replica, at_ms, by)
    else:
        join_phase.note_sign(replica, replica.generation + 1, at_ms, by)
    replica.enter(event, at_ms)


def note_fenced(replica: GroupReplica, event: JoinAnswered | SyncAnswered, member_id: str) -> None:
    """Note an answer 82 to a static member's JoinGroup or SyncGroup: another member has its instance id now.

    The answer says nothing if the request names an instance id that is not the member's. If the broker did not announce
    the newest generation, it may have loaded the log. Only a generation that the log lacks is lost then, so the replica
    is reverted. If the newest one was written, it is not: this coordinator answered the leaves since then.
    """
    member = replica.members.get(member_id)
    if event.error != Error.FENCED_INSTANCE_ID or member is None or event.instance_id != member.instance_id:
        return
    if member.fenced_ms is None or member.fenced_ms < (member.session_from_ms or 0):
        member.fenced_ms = event.arrival_ms  # a later request of the fenced member says nothing new
    written = replica.recorded_generation == replica.generation
    elsewhere = replica.is_announced_elsewhere(event.broker) and event.arrival_ms > replica.generation_since_ms
    if elsewhere and not written:
        replica.revert_to_last_record(event.arrival_ms)

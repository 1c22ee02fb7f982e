"""SyncGroup: what its answers tell about the assignment, the session timers and the next join phase.

A SyncGroup waits at the coordinator until the leader's assignment is stored
(``GroupMetadataManager.classicGroupSyncToClassicGroup``).
"""

from coordinator_model.errors import Error
from coordinator_model.events import SyncAnswered, parked_ms
from coordinator_model.replica import divergence, join_lines, rolled_back_replacement, waiting_syncs
from coordinator_model.replica.classic import note_fenced, note_unknown_member, prepare_rebalance, start_rejoin_timer
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.member_blobs import from_base64, read_assignment
from coordinator_model.replica.removals import join_phase
from coordinator_model.replica.removals.departure import STALL_MS
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS, ROUNDED_MS
from coordinator_model.replica.removals.leaves import TRUNCATED_MS
from coordinator_model.replica.transitions import StateEvent
from coordinator_model.states import Evidence, GroupState, GroupType

NOT_WRITTEN = (Error.UNKNOWN_SERVER_ERROR, Error.COORDINATOR_NOT_AVAILABLE)
ENDS_A_WAIT = (*NOT_WRITTEN, Error.REBALANCE_IN_PROGRESS)
"""Answers to a parked SyncGroup with which the coordinator restarts its member's session timer, as it does with 0. The
session may have ended meanwhile, which the coordinator ignored (``GroupMetadataManager.propagateAssignment``)."""


def sync(replica: GroupReplica, event: SyncAnswered, context: JudgementContext) -> None:
    """Apply an answered SyncGroup. It restarts the session timer if it was parked, not if it was answered at once."""
    member = replica.members.get(event.member_id)
    if event.error != 0 or member is None:
        _refused_sync(replica, event, member, context)
        return
    if replica.type is GroupType.CLASSIC and event.generation != replica.generation:
        return
    join_lines.note_if_unseen(replica, context)
    _note_written(replica, event)
    stores = event.from_leader and (member.awaiting_sync or replica.state is GroupState.COMPLETING_REBALANCE)
    after_ms = event.arrival_ms - replica.state_since_ms
    waited = member.awaiting_sync and after_ms <= STALL_MS and _waited_for_the_leader(replica, event, after_ms)
    member.awaiting_sync, member.synced_ms = False, event.answer_ms
    member.generation = event.generation
    if replica.type is not GroupType.CLASSIC:
        member.timer_reset_ms = max(member.timer_reset_ms or 0, event.answer_ms)
        member.owes_since_ms, member.may_owe_since_ms = None, []
        return
    if replica.state is GroupState.COMPLETING_REBALANCE and event.answer_ms >= replica.state_since_ms:
        replica.enter(StateEvent.ASSIGNMENT_STORED, event.answer_ms)
    # A leader that syncs again is answered at once, from Stable. A record is dated before it is stored.
    # A group that another coordinator loaded as Stable (INFERRED) answers at once, even in the same millisecond.
    if stores or waited or after_ms < 0 or (after_ms == 0 and replica.state_evidence is Evidence.OBSERVED):
        member.timer_reset_ms = max(member.timer_reset_ms or 0, event.answer_ms)
    if stores:
        waiting_syncs.end(replica, event.answer_ms)
    if replica.protocol_type == "consumer":
        _take_assignment(replica, member, event)


def _note_written(replica: GroupReplica, event: SyncAnswered) -> None:
    """Note that the broker whose answer showed removals has also written the generation: it answers the leader with 0.

    ``deposed_sync`` does the same for a broker that is known to be deposed.
    """
    if event.from_leader:
        for departure in replica.departures:
            earlier = departure.generation <= event.generation and not departure.judged
            if departure.answered_by == event.broker and earlier:
                departure.phase.written_by = event.broker


def _waited_for_the_leader(replica: GroupReplica, event: SyncAnswered, after_ms: int) -> bool:
    """Tell whether a SyncGroup was parked: for long, or until the leader's was answered, which it came before.

    ``after_ms``: how long after the group entered its state the SyncGroup arrived.
    """
    leader = replica.members.get(replica.leader or "")
    stored_ms = 0 if leader is None else leader.timer_reset_ms or 0
    with_the_leader = event.arrival_ms < stored_ms and abs(event.answer_ms - stored_ms) <= ROUNDED_MS
    return with_the_leader or parked_ms(event) > (LATE_MS if after_ms > EARLY_MS else 2 * EARLY_MS)


def _take_assignment(replica: GroupReplica, member: Member, event: SyncAnswered) -> None:
    """Take the assignment from a SyncGroup's answer, and compare it with the one that is known."""
    answered, left_out = read_assignment(from_base64(event.assignment))
    if not member.assignment:
        member.assignment, member.partitions_left_out = answered, left_out
    elif answered != member.assignment:
        divergence.note_assignment(replica, member, event.answer_ms)


def _refused_sync(replica: GroupReplica, event: SyncAnswered, member: Member | None, context: JudgementContext) -> None:
    """Apply a SyncGroup that was refused, or whose member is not known."""
    note_fenced(replica, event, event.member_id)
    if event.error in ENDS_A_WAIT and _is_of_another_coordinators_generation(replica, event):
        return
    _rebalance_if_not_stored(replica, event)
    if event.error == Error.COORDINATOR_NOT_AVAILABLE:
        rolled_back_replacement.revert_behind(replica, event.broker, event.arrival_ms, event.answer_ms)
    if member is None:
        return
    if event.error == Error.FENCED_INSTANCE_ID:
        rolled_back_replacement.revert_if_timed_out(replica, member, event)
    if _starts_a_rejoin_timer(member, event):
        start_rejoin_timer(member, event.arrival_ms)
    if event.error in ENDS_A_WAIT and _had_waited(replica, member, event, context):
        member.timer_reset_ms = max(member.timer_reset_ms or 0, event.answer_ms)
        if not waiting_syncs.waits_on(event):
            waiting_syncs.end(replica, event.answer_ms)
        _rebalance_if_cut_off(replica, event)
    elif event.error == Error.REBALANCE_IN_PROGRESS and not context.waiting:
        _note_told_to_rejoin(replica, member, event)
    if event.error == Error.UNKNOWN_MEMBER_ID and not member.in_kip848_group:
        note_unknown_member(replica, member, event.generation, event.answer_ms, context)


def _starts_a_rejoin_timer(member: Member, event: SyncAnswered) -> bool:
    """Tell whether a KIP-848 group told a classic member to rejoin (27).

    An upgrade answers the SyncGroups that wait in the classic group with 27, too, and restarts the session timers, but
    starts no other timer (``GroupMetadataManager.convertToConsumerGroup``).
    """
    told = member.is_classic_among_consumers and event.error == Error.REBALANCE_IN_PROGRESS
    return told and event.arrival_ms >= (member.timer_reset_ms or 0)


def _had_waited(replica: GroupReplica, member: Member, event: SyncAnswered, context: JudgementContext) -> bool:
    """Tell whether a SyncGroup was parked, perhaps only for the instant in which the coordinator woke from a pause.

    It was, if the session of its member had been due in the pause: otherwise the answer would be 25, because the timer
    would have removed the member.
    """
    due_ms = (member.session_from_ms or event.arrival_ms) + (member.session_timeout_ms or 0)
    paused = any(r.low_ms <= due_ms < event.arrival_ms <= (r.high_ms or event.arrival_ms) for r in context.timer_resets)
    waits = event.error == Error.REBALANCE_IN_PROGRESS and replica.state is GroupState.COMPLETING_REBALANCE and paused
    return parked_ms(event) > EARLY_MS or (waits and event.generation == replica.generation and member.awaiting_sync)


def _is_of_another_coordinators_generation(replica: GroupReplica, event: SyncAnswered) -> bool:
    """Tell whether a SyncGroup is of another generation that has the same number, from a deposed coordinator.

    It arrived there before the next coordinator announced the group's generation.
    """
    elsewhere = replica.is_announced_elsewhere(event.broker) and event.generation == replica.generation
    return elsewhere and event.arrival_ms < replica.generation_since_ms


def _rebalance_if_cut_off(replica: GroupReplica, event: SyncAnswered) -> None:
    """Begin the next join phase: it began at the instant at which a parked SyncGroup was answered 27.

    If a session was due earlier, it did not begin the phase, or a busy coordinator ran its timer late.
    """
    its_own = replica.type is GroupType.CLASSIC and event.generation == replica.generation
    if its_own and event.error == Error.REBALANCE_IN_PROGRESS and replica.state is GroupState.COMPLETING_REBALANCE:
        prepare_rebalance(replica, StateEvent.REBALANCE_IN_PROGRESS, event.answer_ms)
        replica.phase.began_after_ms = max(replica.phase.began_after_ms, event.answer_ms - TRUNCATED_MS)


def _note_told_to_rejoin(replica: GroupReplica, member: Member, event: SyncAnswered) -> None:
    """Note a SyncGroup that was answered 27 at once: the next join phase had begun by then, with its member.

    The coordinator checks member and generation first (``GroupMetadataManager.classicGroupSyncToClassicGroup``).
    """
    if replica.type is not GroupType.CLASSIC or event.generation != replica.generation:
        return
    member.synced_ms = max(member.synced_ms or 0, event.answer_ms)
    since = event.arrival_ms >= replica.state_since_ms
    if replica.state is GroupState.PREPARING_REBALANCE:
        join_phase.note_sign(replica, replica.generation + 1, event.arrival_ms)
    elif since and replica.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(replica, StateEvent.REBALANCE_IN_PROGRESS, event.arrival_ms)


def _rebalance_if_not_stored(replica: GroupReplica, event: SyncAnswered) -> None:
    """Begin the next join phase if the leader's assignment could not be written (15, -1).

    A 16 begins no phase: the coordinator has unloaded the group, so nobody could take part (``CoordinatorRuntime``). An
    assignment that was stored too late is in the log nevertheless, and its record may have been read first. A record
    that does not list the leader was written by another coordinator. A KIP-848 group has no leader: a coordinator that
    took an assignment from a member of it was deposed.
    """
    its_own = replica.type is GroupType.CLASSIC and event.from_leader and event.generation == replica.generation
    stored_ms = replica.state_since_ms + ROUNDED_MS
    read_first = replica.state is GroupState.STABLE and event.arrival_ms <= stored_ms < event.answer_ms
    waits = replica.state is GroupState.COMPLETING_REBALANCE or (read_first and event.member_id in replica.members)
    if event.error in NOT_WRITTEN and its_own and waits:
        prepare_rebalance(replica, StateEvent.ASSIGNMENT_NOT_STORED, event.answer_ms, event.member_id)

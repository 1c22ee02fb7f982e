"""Applies events to a group's replica, for the live run, after a restart, in the replay command and in the tests.

Every event goes through ``replay``, with four exceptions. ``plain_heartbeat`` applies a heartbeat that only restarts
its member's session timer: then the group need not be judged. ``disputed_heartbeat``, ``deposed_leave`` and
``deposed_sync`` apply what was accepted by a broker that may not be the coordinator.
"""

from typing import NamedTuple, assert_never

from coordinator_model.decode.records import RecordType
from coordinator_model.events import (
    Answer,
    ClientPoll,
    ClientSeen,
    CommitRefused,
    ConsumerHeartbeat,
    CoordinatorLine,
    Heartbeat,
    JoinAnswered,
    LeaveAnswered,
    MetricsExported,
    MetricsPushed,
    OffsetCommitted,
    RecordRead,
    SyncAnswered,
)
from coordinator_model.replica import (
    classic,
    client_report,
    conversion,
    coordinator_log,
    divergence,
    join,
    leave,
    left_alive,
    member_heartbeat,
    metrics_push,
    modern,
    rebalances,
    refusals,
    rolled_back_replacement,
    sync,
    zombies,
)
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.leaves import TRUNCATED_MS, remember_undelivered
from coordinator_model.replica.removals.removal import open_removals
from coordinator_model.replica.session_timer import SAME_START_MS
from coordinator_model.replica.transitions import StateEvent
from coordinator_model.states import GroupState, GroupType

__all__ = ["GroupEvent", "Heard", "deposed_leave", "deposed_sync", "disputed_heartbeat", "plain_heartbeat", "replay"]

GroupEvent = (
    RecordRead
    | OffsetCommitted
    | Heartbeat
    | JoinAnswered
    | SyncAnswered
    | LeaveAnswered
    | ConsumerHeartbeat
    | CommitRefused
    | ClientPoll
    | ClientSeen
    | MetricsPushed
    | MetricsExported
    | CoordinatorLine
)


def replay(replica: GroupReplica, event: GroupEvent, context: JudgementContext) -> None:
    """Apply one event. Whatever records and answers show is adopted, even if it contradicts the replica."""
    if replica.ending_ms is not None and event.order_ms > replica.ending_ms:
        replica.mark_deleted()
    if replica.set_aside is not None and replica.set_aside.resumed_ms is None:
        replica.set_aside = replica.set_aside._replace(resumed_ms=max(event.order_ms, context.progress_ms))
    if replica.unconverted:
        conversion.dismiss_unconverted(replica, event.order_ms, context)
    if replica.rolled_back_replacements:
        rolled_back_replacement.load(replica, context)
    generation, members = replica.generation, divergence.expected(replica, event)
    _apply(replica, event, context)
    if replica.joining and isinstance(event, RecordRead):
        coordinator_log.miss(replica, event, context)
    if replica.unexplained or replica.logged:
        coordinator_log.explain(replica, event.order_ms, context)
    divergence.note(replica, members, event.order_ms)
    rebalances.note(replica, generation, event.order_ms)
    refusals.note(replica, event, context.thresholds.resolve_after_ms)


class Heard(NamedTuple):
    """A member whose heartbeat was applied."""

    member: Member
    told_more: bool
    """Whether the heartbeat showed anything besides its instant."""


def plain_heartbeat(replica: GroupReplica, event: Heartbeat) -> Heard | None:
    """Apply an accepted heartbeat of a stable group. None: its member is unknown in this generation, ``replay`` it."""
    member = replica.members.get(event.member_id)
    if member is None:
        return None
    is_named = member.generation is None and event.generation == replica.generation
    if is_named:
        member.generation = event.generation
    if member.generation != event.generation:
        return None
    told_more = classic.record_heartbeat(member, event.applied_ms)
    return Heard(member, is_named or told_more)


def disputed_heartbeat(replica: GroupReplica, event: Heartbeat) -> None:
    """Note a heartbeat accepted by a broker that may already be the coordinator, although metadata does not name it."""
    # or the last record's member: an answer of the broker that metadata names may no longer list it
    member = replica.members.get(event.member_id) or replica.recorded.get(event.member_id)
    if member is not None:
        member.claimed_ms = max(member.claimed_ms or 0, event.applied_ms)
    for departure in open_removals(replica, event.member_id, event.applied_ms):
        departure.touches_ms.append(event.applied_ms)


def deposed_leave(replica: GroupReplica, event: LeaveAnswered, context: JudgementContext) -> None:
    """Note a LeaveGroup that a deposed coordinator accepted. Only a record shows whether it was still the coordinator.

    A record of the same instant that no longer lists the member shows that: its join phase ended with this leave.
    """
    removed = [d for d in replica.departures if d.member.member_id == event.member_id]
    if removed and abs(removed[-1].removed_ms - event.applied_ms) <= TRUNCATED_MS:
        leave.leave(replica, event, context)
    elif event.member_id in replica.members:
        remember_undelivered(replica, event.member_id, event.applied_ms)


def deposed_sync(replica: GroupReplica, event: SyncAnswered, context: JudgementContext) -> None:
    """Note who wrote the record of a generation: a deposed coordinator has accepted the leader's assignment for it.

    That is answered 0 only once the record is in the log (``GroupMetadataManager.classicGroupSync``), so the broker was
    still the coordinator: only its clock is ahead of metadata. The next coordinator loaded the group after that record,
    so all sessions began anew with that load.
    """
    ended = replica.phase.ended
    if ended is None or replica.state is not GroupState.STABLE or event.generation != ended.generation:
        return
    for phase in replica.ended_phases:
        if phase.ended == ended:
            phase.written_by = event.broker
    moved_ms = max((reset.low_ms for reset in context.timer_resets if reset.is_move), default=ended.at_ms)
    for member in replica.members.values():
        if abs((member.timer_reset_ms or 0) - ended.at_ms) <= SAME_START_MS:
            member.timer_reset_ms = min(ended.at_ms, moved_ms)


def _apply(replica: GroupReplica, event: GroupEvent, context: JudgementContext) -> None:
    match event:
        case Heartbeat() | JoinAnswered() | SyncAnswered() | LeaveAnswered() | ConsumerHeartbeat():
            _answer(replica, event, context)
        case RecordRead():
            _record(replica, event, context)
        case CommitRefused():
            zombies.note(replica, event, context.thresholds.resolve_after_ms)
        case OffsetCommitted():
            _commit(replica, event)
        case CoordinatorLine():
            coordinator_log.tell(replica, event)
        case ClientPoll():
            client_report.report(replica, event, context)
        case ClientSeen():
            left_alive.seen(replica, event)
        case MetricsPushed() | MetricsExported():
            metrics_push.push(replica, event, context)
        case _:
            assert_never(event)


def _answer(replica: GroupReplica, event: Answer, context: JudgementContext) -> None:
    match event:
        case Heartbeat():
            classic.heartbeat(replica, event, context)
        case JoinAnswered():
            join.join(replica, event, context)
        case SyncAnswered():
            sync.sync(replica, event, context)
        case LeaveAnswered():
            leave.leave(replica, event, context)
        case ConsumerHeartbeat():
            member_heartbeat.heartbeat(replica, event, context)
        case _:
            assert_never(event)


def _record(replica: GroupReplica, event: RecordRead, context: JudgementContext) -> None:
    coordinator_log.refute(replica, event)
    if event.record_type == RecordType.GROUP_METADATA:
        classic.read_record(replica, event, context)
    else:
        modern.read_record(replica, event, context)


def _commit(replica: GroupReplica, event: OffsetCommitted) -> None:
    """Apply an offset commit or its tombstone.

    A commit makes a group exist. The tombstone of the last offset ends a group without members: only since 4.0 does
    Kafka also write a tombstone of such a group. The shard keeps commits as signs of life, by partition.
    """
    if event.tombstone:
        if replica.type is GroupType.SIMPLE and not replica.deleted:
            replica.mark_tombstoned(event.order_ms)
            replica.mark_deleted()
    elif replica.state is GroupState.UNKNOWN or replica.deleted:
        if replica.deleted:
            replica.deleted, replica.type = False, GroupType.SIMPLE
        replica.enter(StateEvent.OFFSETS_COMMITTED, event.order_ms)

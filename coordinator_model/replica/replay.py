"""One group, replayed. ``replay`` is the only writer: live run, restart, the replay command and the tests share it."""

from coordinator_model.events import (
    ClientPoll,
    ConsumerHeartbeat,
    Heartbeat,
    JoinAnswered,
    LeaveAnswered,
    OffsetCommitted,
    RecordRead,
    SyncAnswered,
)
from coordinator_model.liveness import Scene
from coordinator_model.records import RecordType
from coordinator_model.replica import (
    classic,
    conversion,
    divergence,
    join,
    member_heartbeat,
    modern,
    rebalances,
    refusals,
    taken_back,
)
from coordinator_model.replica.departures import SESSION_EXPIRED, add_departure, own_cause
from coordinator_model.replica.group import GroupReplica, Member
from coordinator_model.states import Cause, Evidence, GroupState

__all__ = ["GroupEvent", "replay"]

GroupEvent = (
    RecordRead
    | OffsetCommitted
    | Heartbeat
    | JoinAnswered
    | SyncAnswered
    | LeaveAnswered
    | ConsumerHeartbeat
    | ClientPoll
)


def replay(replica: GroupReplica, event: GroupEvent, scene: Scene) -> None:
    """Apply one event. A witness, not the owner: whatever the log says is adopted, nothing is raised."""
    if replica.ending_ms is not None and event.order_ms > replica.ending_ms:
        replica.finish()
    if replica.recorded:
        conversion.dismiss_unnamed(replica, event.order_ms, scene)
    if replica.taken_back:
        taken_back.load(replica, scene)
    generation, members = replica.generation, divergence.expected(replica, event)
    _apply(replica, event, scene)
    divergence.note(replica, members, event.order_ms)
    rebalances.note(replica, generation, event.order_ms)
    refusals.note(replica, event)


def _apply(replica: GroupReplica, event: GroupEvent, scene: Scene) -> None:
    match event:
        case Heartbeat():
            classic.heartbeat(replica, event, scene)
        case RecordRead():
            if event.record_type == RecordType.GROUP_METADATA:
                classic.read_record(replica, event, scene)
            else:
                modern.read_record(replica, event, scene)
        case JoinAnswered():
            join.join(replica, event, scene)
        case SyncAnswered():
            classic.sync(replica, event)
        case LeaveAnswered():
            classic.leave(replica, event, scene)
        case ConsumerHeartbeat():
            member_heartbeat.heartbeat(replica, event, scene)
        case OffsetCommitted():
            _commit(replica, event)
        case ClientPoll():
            _client_poll(replica, event, scene)


def _commit(replica: GroupReplica, event: OffsetCommitted) -> None:
    """An offset makes a group exist; as a sign of life the shard keeps its instant by partition."""
    if replica.state is GroupState.UNKNOWN and not event.tombstone:
        replica.enter(GroupState.EMPTY, event.order_ms, Evidence.OBSERVED)


def _client_poll(replica: GroupReplica, event: ClientPoll, scene: Scene) -> None:
    """Take a client's own poll age: past its limit, it has broken it, whether it is still in or has just left."""
    member = replica.members.get(event.member_id)
    if member is not None:
        member.poll_age_ms, member.poll_reported_ms = _poll_age_ms(event, member), event.order_ms
        member.max_poll_interval_ms = event.max_poll_interval_ms
        member.poll_deadline_ms = _poll_deadline_ms(event, member)
        told_ms = event.order_ms if member.poll_told_ms is None else member.poll_told_ms
        member.poll_told_ms = None if member.poll_deadline_ms is None else told_ms
        return
    for departure in replica.departures:
        if departure.member.member_id == event.member_id and departure.rule == SESSION_EXPIRED:
            deadline_ms = _poll_deadline_ms(event, departure.member)
            if deadline_ms is None:
                continue
            departure.member.poll_deadline_ms = deadline_ms
            if departure.cause is Cause.SESSION_TIMEOUT:
                departure.cause = own_cause(departure.member)
    for leave in replica.leaves:
        if leave.member.member_id == event.member_id and leave.cause is Cause.LEFT:
            deadline_ms = _poll_deadline_ms(event, leave.member)
            if deadline_ms is None:
                return
            leave.cause = Cause.POLL_INTERVAL
            leave.member.poll_deadline_ms = deadline_ms
            if event.order_ms >= scene.live_from_ms:
                add_departure(
                    replica,
                    classic.poll_departure(leave, replica, scene, Evidence.OBSERVED, event.order_ms),
                )
            return


def _poll_age_ms(event: ClientPoll, member: Member) -> int:
    """How long ago it polled: at the earliest when it joined, for a client gets a member id from within a poll.

    kafka-python names its new id before it counts that poll (``ConsumerCoordinator.poll``: ``ensure_active_group``,
    then ``poll_heartbeat``), so who rejoins after a breach reports the old age with the new id.
    """
    return event.poll_age_ms if member.joined_ms is None else min(event.poll_age_ms, event.order_ms - member.joined_ms)


def _poll_deadline_ms(event: ClientPoll, member: Member) -> int | None:
    """When its poll interval ended; None while it has not."""
    overdue_ms = _poll_age_ms(event, member) - event.max_poll_interval_ms
    return event.order_ms - overdue_ms if overdue_ms > 0 else None

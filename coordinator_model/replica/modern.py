"""Groups whose every step is in the log: KIP-848 consumer groups, and share and streams groups.

The group's state is derived, never stored. A group without members is Empty. If its group epoch is ahead of its
assignment epoch it is Assigning. If a member is not yet stable at the assignment epoch it is Reconciling, otherwise
Stable. A removal writes tombstones at the instant at which it happens. Only the answer to a heartbeat shows whether the
member left (-1).

The three kinds write nearly the same records, under record types of their own. Share groups revoke nothing, so they are
only Empty or Stable. Streams groups assign tasks, and are NotReady while their topology is not validated.
"""

from collections.abc import Callable
from typing import Any

from coordinator_model.decode.records import RecordType
from coordinator_model.events import RecordRead
from coordinator_model.replica.conversion import become
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Assignment, Member
from coordinator_model.replica.removals.leaves import remember_leave
from coordinator_model.replica.removals.removal import remove_member, withdraw
from coordinator_model.replica.returns import came_back
from coordinator_model.replica.transitions import StateEvent
from coordinator_model.states import Cause, GroupType, MemberState

MEMBER_STATES = {
    GroupType.CONSUMER: (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED),
    GroupType.SHARE: (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED),
    GroupType.STREAMS: (MemberState.UNKNOWN, MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED),
}
"""What the numbers of states in records 8, 14 and 22 mean; in streams groups they begin at 1."""
STATIC_LEAVE_EPOCH = -2
UNVALIDATED = -1
"""No topology is validated, or the broker is older than 4.2 and does not write it."""
TASKS = ("active", "standby", "warmup")


def read_record(replica: GroupReplica, event: RecordRead, context: JudgementContext) -> None:
    """Apply a record of types 3 to 23."""
    type_ = RecordType(event.record_type)
    if type_ in _MEMBERS:
        _read_member(replica, _MEMBERS[type_], event, context)
    elif type_ in _READERS:
        kind, read = _READERS[type_]
        read(replica, kind, event)
    derive_state(replica, event.order_ms)


def _read_epoch(replica: GroupReplica, type_: GroupType, event: RecordRead) -> None:
    value, at_ms = event.value, event.order_ms
    if value is not None:
        become(replica, type_, at_ms)
        if value["epoch"] < replica.generation and value["epoch"] <= 2:
            replica.begin_again()  # its tombstone was compacted away
        replica.generation, replica.generation_since_ms = value["epoch"], at_ms
        replica.validated_topology_epoch = value.get("validatedTopologyEpoch", UNVALIDATED)
    elif replica.type is type_:
        replica.mark_tombstoned(at_ms)


def _read_assignment_epoch(replica: GroupReplica, type_: GroupType, event: RecordRead) -> None:
    if event.value is not None:
        become(replica, type_, event.order_ms)
    if replica.type is type_:
        replica.assignment_epoch = -1 if event.value is None else event.value["assignmentEpoch"]


def _read_member(replica: GroupReplica, type_: GroupType, event: RecordRead, context: JudgementContext) -> None:
    value, at_ms, member_id = event.value, event.order_ms, event.key["memberId"]
    if value is None:
        member = replica.members.get(member_id)
        if member is not None and replica.type is type_:
            remove_member(replica, member, at_ms, context)
        return
    become(replica, type_, at_ms)
    member = modern_member(replica, member_id, at_ms)
    member.instance_id = value.get("instanceId")
    member.client_id = value["clientId"]
    member.client_host = value["clientHost"].removeprefix("/")
    member.subscribed = sorted(value.get("subscribedTopicNames", []))
    member.topic_regex = value.get("subscribedTopicRegex") or None
    member.topics = _topics(replica, member)
    if value.get("rebalanceTimeoutMs", -1) >= 0:
        member.rebalance_timeout_ms = value["rebalanceTimeoutMs"]
    classic = value.get("classicMemberMetadata")
    is_classic = isinstance(classic, dict) and bool(classic.get("supportedProtocols"))
    member.kip848 = not is_classic
    member.session_timeout_ms = classic["sessionTimeoutMs"] if isinstance(classic, dict) and is_classic else None
    _end_predecessor(replica, member, at_ms)
    if member.joined_ms == at_ms:
        came_back(replica, member, at_ms)


def _topics(replica: GroupReplica, member: Member) -> list[str]:
    """Return what a member reads: the topics it names, and those that its regular expression was resolved to."""
    resolved = replica.regexes.get(member.topic_regex, []) if member.topic_regex else []
    return sorted({*member.subscribed, *resolved})


def _read_regex(replica: GroupReplica, type_: GroupType, event: RecordRead) -> None:
    """Apply record 16: the coordinator resolves a regular expression after a join, and again when topics change."""
    regex = event.key["regularExpression"]
    if event.value is None:
        replica.regexes.pop(regex, None)
        return
    become(replica, type_, event.order_ms)
    replica.regexes[regex] = sorted(event.value["topics"])
    for member in replica.members.values():
        if member.topic_regex == regex:
            member.topics = _topics(replica, member)


def _end_predecessor(replica: GroupReplica, member: Member, at_ms: int) -> None:
    """Withdraw the departure of a static member that has only returned: nobody was removed.

    The coordinator writes the tombstones of the former member and the records of the new one in one batch. Both have
    the same id if only the poll had expired (-2, then 0). A removal is different: it raises the group epoch before
    another member comes. Or the removed member was the last KIP-848 one: then the group is downgraded
    (``GroupMetadataManager.convertToClassicGroup``), and another member's request may upgrade it in the same instant.
    """
    if member.instance_id is None or replica.phase.downgraded_ms == at_ms:
        return
    for departure in list(replica.departures):
        same = departure.member.instance_id == member.instance_id and departure.generation == replica.generation
        if same and departure.removed_ms == at_ms:
            withdraw(replica, departure)
            remember_leave(replica, Leave(departure.member, at_ms, Cause.REPLACED, None))


def modern_member(replica: GroupReplica, member_id: str, at_ms: int) -> Member:
    """Return a member; create it with the first of its records, in whatever order compaction left them.

    A group that has just changed its kind keeps what was known about its members (see ``conversion``). The change
    restarts their session timers (``GroupMetadataManager.convertToConsumerGroup``).
    """
    member = replica.members.get(member_id)
    if member is None:
        former = next((m for m in replica.unconverted if m.member_id == member_id), None)
        if former is not None:
            replica.unconverted.remove(former)
            former.timer_reset_ms = max(former.timer_reset_ms or 0, at_ms)
        member = former or Member(member_id, joined_ms=at_ms, kip848=True)
        _keep_own_timers(member, former or _gone_as_classic(replica, member_id), at_ms)
        replica.members[member_id] = member
    return member


def _keep_own_timers(member: Member, former: Member | None, at_ms: int) -> None:
    """Let a member have the rebalance timers that its former self had in the group of consumers before a downgrade.

    Nobody cancels them, not even as the member goes while the group is classic. They remove whoever has its id as they
    run out. One that ran out while the group was classic had no effect.
    """
    if former is None:
        return
    began_ms = at_ms - (former.rebalance_timeout_ms or 0)
    owes_ms = former.owes_since_ms
    member.owes_since_ms = owes_ms if owes_ms is not None and owes_ms > began_ms else None
    member.may_owe_since_ms = [since_ms for since_ms in former.may_owe_since_ms if since_ms > began_ms]


def _gone_as_classic(replica: GroupReplica, member_id: str) -> Member | None:
    """Return the member that had this id until lately, if it went while the group was classic."""
    gone = [(d.removed_ms, d.member) for d in replica.departures if d.member.member_id == member_id]
    gone += [(leave.applied_ms, leave.member) for leave in replica.leaves if leave.member.member_id == member_id]
    _, last = max(gone, key=lambda one: one[0], default=(0, None))
    return None if last is None or last.in_kip848_group else last


def _read_target(replica: GroupReplica, type_: GroupType, event: RecordRead) -> None:
    if event.value is None:
        return  # the tombstone of its member record, in the same write, removes it
    become(replica, type_, event.order_ms)
    member = modern_member(replica, event.key["memberId"], event.order_ms)
    if type_ is GroupType.STREAMS:
        member.target = _by_subtopology(event.value["activeTasks"])
    else:
        member.target = _by_topic(event.value["topicPartitions"])


def _read_current(replica: GroupReplica, type_: GroupType, event: RecordRead) -> None:
    value = event.value
    if value is None:
        return  # the tombstone of its member record removes it
    become(replica, type_, event.order_ms)
    member = modern_member(replica, event.key["memberId"], event.order_ms)
    before = (member.generation, member.state, member.revoking, member.assignment)
    if type_ is GroupType.CONSUMER and replica.generation < 0:
        _begin_unwritten(replica, value["memberEpoch"])
    member.generation, member.state = value["memberEpoch"], _member_state(type_, value["state"])
    if type_ is GroupType.STREAMS:
        member.revoking = _by_subtopology(value["activeTasksPendingRevocation"])
        member.assignment = _together(_by_subtopology(value["activeTasks"]), member.revoking)
        member.tasks = {name: held for name in TASKS if (held := _by_subtopology(value[f"{name}Tasks"]))}
    else:
        member.revoking = _by_topic(value.get("partitionsPendingRevocation", []))
        member.assignment = _together(_by_topic(value["assignedPartitions"]), member.revoking)
    if member.generation != STATIC_LEAVE_EPOCH:
        member.away_ms = None
    elif member.away_ms is None:
        member.away_ms = event.order_ms
    if not member.unrevoked:
        member.revoking_since_ms = None
    elif before != (member.generation, member.state, member.revoking, member.assignment):
        member.revoking_since_ms = event.order_ms


def _begin_unwritten(replica: GroupReplica, member_epoch: int) -> None:
    """Take a group's epoch from a member's epoch if no group epoch was written.

    From 4.3 on, a group begins at epoch 1, which is not written. It stays there as long as nothing is to be assigned,
    for example because a regular expression matches no topic.
    """
    if member_epoch > 0:
        replica.generation = replica.assignment_epoch = member_epoch


def _member_state(type_: GroupType, number: int) -> MemberState:
    known = MEMBER_STATES[type_]
    return known[number] if 0 <= number < len(known) else MemberState.UNKNOWN


def _by_topic(rows: list[dict[str, Any]]) -> Assignment:
    return {row["topicId"]: list(row["partitions"]) for row in rows}


def _together(kept: Assignment, revoking: Assignment) -> Assignment:
    """Return what a member owns.

    Until it has given up a partition, no other member gets it. A describe of the group shows the same.
    """
    return {name: sorted({*kept.get(name, ()), *revoking.get(name, ())}) for name in kept.keys() | revoking.keys()}


def _by_subtopology(rows: list[dict[str, Any]]) -> Assignment:
    return {row["subtopologyId"]: list(row["partitions"]) for row in rows}


def _read_topology(replica: GroupReplica, type_: GroupType, event: RecordRead) -> None:
    if event.value is None:
        replica.topology_epoch = None
        return
    become(replica, type_, event.order_ms)
    replica.topology_epoch = event.value["epoch"]


_MEMBERS = {
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: GroupType.CONSUMER,
    RecordType.SHARE_GROUP_MEMBER_METADATA: GroupType.SHARE,
    RecordType.STREAMS_GROUP_MEMBER_METADATA: GroupType.STREAMS,
}
RecordReader = Callable[[GroupReplica, GroupType, RecordRead], None]
_READERS: dict[RecordType, tuple[GroupType, RecordReader]] = {
    RecordType.CONSUMER_GROUP_METADATA: (GroupType.CONSUMER, _read_epoch),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: (GroupType.CONSUMER, _read_assignment_epoch),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: (GroupType.CONSUMER, _read_target),
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: (GroupType.CONSUMER, _read_current),
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: (GroupType.CONSUMER, _read_regex),
    RecordType.SHARE_GROUP_METADATA: (GroupType.SHARE, _read_epoch),
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: (GroupType.SHARE, _read_assignment_epoch),
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: (GroupType.SHARE, _read_target),
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: (GroupType.SHARE, _read_current),
    RecordType.STREAMS_GROUP_METADATA: (GroupType.STREAMS, _read_epoch),
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: (GroupType.STREAMS, _read_assignment_epoch),
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: (GroupType.STREAMS, _read_target),
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: (GroupType.STREAMS, _read_current),
    RecordType.STREAMS_GROUP_TOPOLOGY: (GroupType.STREAMS, _read_topology),
}
"""Types 4 and 15 (topics of the group, initialisation of share partitions) are missing: they show no member or state.
"""


def derive_state(replica: GroupReplica, at_ms: int) -> None:
    """Derive the state from epochs and members, as the coordinator does (``ModernGroup.maybeUpdateGroupState``)."""
    if replica.type not in MEMBER_STATES or replica.deleted or replica.ending_ms is not None:
        return
    if not replica.members:
        event = StateEvent.NO_MEMBERS
    elif replica.type is GroupType.SHARE:
        event = StateEvent.ALL_RECONCILED
    elif replica.type is GroupType.STREAMS and not _is_ready(replica):
        event = StateEvent.TOPOLOGY_NOT_VALIDATED
    elif replica.generation > replica.assignment_epoch:
        event = StateEvent.EPOCH_AHEAD
    elif all(is_reconciled(member, replica.assignment_epoch) for member in replica.members.values()):
        event = StateEvent.ALL_RECONCILED
    else:
        event = StateEvent.NOT_RECONCILED
    replica.enter(event, at_ms)


def is_reconciled(member: Member, assignment_epoch: int) -> bool:
    """Tell whether a member has reached its target; a static one that is away for a while (-2) has not."""
    return member.state == MemberState.STABLE and member.generation == assignment_epoch


def _is_ready(replica: GroupReplica) -> bool:
    """Tell whether a streams group's topology is validated.

    A broker older than 4.2 does not write that: the topology is validated once tasks are assigned.
    """
    if replica.validated_topology_epoch == UNVALIDATED:
        return any(member.target or member.assignment for member in replica.members.values())
    return replica.topology_epoch == replica.validated_topology_epoch

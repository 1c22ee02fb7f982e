"""Which member waits for which while a group of the newer kinds reconciles, and the fields that show it.

A member is UNREVOKED while it owns what it has to give up: the member that is to get it waits. A member is UNRELEASED
while it waits (``CurrentAssignmentBuilder``). A partition is owned until its owner's record drops it. In a compacted
log two records may claim one partition: the larger member epoch wins, as in ``ConsumerGroup.addPartitionEpochs`` since
KAFKA-19862.
"""

from typing import Any

from coordinator_model.membership import Partition, partitions_of
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Assignment, Member
from coordinator_model.states import GroupState, GroupType

KINDS = (GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS)


def owners(replica: GroupReplica) -> dict[Partition, Member]:
    """Return who owns each partition."""
    owned: dict[Partition, Member] = {}
    for member in replica.members.values():
        for partition in partitions_of(member.assignment):
            holder = owned.get(partition)
            if holder is None or (member.generation or 0) > (holder.generation or 0):
                owned[partition] = member
    return owned


def waits(replica: GroupReplica) -> dict[str, dict[str, list[Partition]]]:
    """Return, by waiting member and by the member that it waits for, the partitions that it waits for."""
    if replica.state is not GroupState.RECONCILING or replica.type is GroupType.SHARE:
        return {}  # a share group's partitions have no single owner
    owned = owners(replica)
    waiting: dict[str, dict[str, list[Partition]]] = {}
    for member in replica.members.values():
        for partition in partitions_of(member.target):
            holder = owned.get(partition, member)
            if holder is not member:
                waiting.setdefault(member.member_id, {}).setdefault(holder.member_id, []).append(partition)
    return waiting


def group_fields(replica: GroupReplica) -> dict[str, Any]:
    """Return the fields that only groups of the newer kinds have; none for others."""
    if replica.type not in KINDS:
        return {}
    shown: dict[str, Any] = {"assignment_epoch": replica.assignment_epoch}
    if replica.type is GroupType.STREAMS:
        shown["topology_epoch"] = replica.topology_epoch
    return shown


def member_fields(replica: GroupReplica, waiting: dict[str, dict[str, list[Partition]]]) -> dict[str, dict[str, Any]]:
    """Return the same for the group's members, by id; ``waiting`` is what ``waits`` returned."""
    if replica.type not in KINDS:
        return {}
    return {
        member.member_id: {
            "state": member.state,
            "protocol": "consumer" if member.kip848 else "classic",
            "target": shown_assignment(member.target),
            "revoking": shown_assignment(member.revoking),
            "revoke_deadline_ms": member.revoke_deadline_ms,
            "waits_for": [
                {"member_id": holder, "partitions": [list(partition) for partition in sorted(partitions)]}
                for holder, partitions in sorted(waiting.get(member.member_id, {}).items())
            ],
            "topic_regex": member.topic_regex,
        }
        for member in replica.members.values()
    }


def shown_assignment(assignment: Assignment) -> list[dict[str, Any]]:
    """Return an assignment in the form in which it is shown."""
    return [{"topic": topic, "partitions": partitions} for topic, partitions in sorted(assignment.items())]

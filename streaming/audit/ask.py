"""The groups and topics that the brokers report now. Each request only reads, and none creates a topic.

A broker lists the groups that it coordinates. So no request asks for a coordinator (FindCoordinator): on a cluster
without groups, it would create the offsets topic.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.errors import GroupAuthorizationFailedError, KafkaError, for_code

from coordinator_model.decode.member_protocol import assignment, subscription
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.states import Evidence, GroupState, GroupType
from streaming.audit.schemas import ConsumerGroupDescribeRequest
from streaming.connection.brokers import describe_cluster
from streaming.connection.pushes import Pushes, pushes

TIMEOUT_MS: Final = 8_000
AT_ONCE: Final = 100
"""Groups described in one request."""
CONSUMER_PROTOCOL: Final = "consumer"


@dataclass(slots=True)
class Told:
    """What the brokers reported; ``problems``: what they did not report, and why."""

    cluster_id: str = ""
    brokers: list[int] = field(default_factory=list)
    groups: dict[str, "ToldGroup"] = field(default_factory=dict)
    topic_partitions: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    is_incomplete: bool = False
    """Whether at least one broker did not list its groups."""
    pushes: Pushes = Pushes.NOT_TAKEN


@dataclass(slots=True)
class ToldGroup:
    """A group as its coordinator lists it; ``members`` is None if it was not described."""

    type: str
    state: str
    protocol_type: str
    members: list[Member] | None = None
    protocol: str = ""
    old: list[str] = field(default_factory=list)
    """Members whose subscription has version 0."""


class _Admin(KafkaAdminClient):  # type: ignore[misc]  # kafka-python has no types
    """An admin client that does not parse members' bytes: clients choose them, and the core parses without raising."""

    def _describe_groups_process_response(self, response: Any) -> dict[str, Any]:
        return {group.group_id: group for group in response.groups}

    def describe_consumers(self, groups: list[str], broker: int) -> dict[str, Any]:
        """Describe KIP-848 groups, as `describe_groups` does classic ones."""
        return self._describe_groups_process_response(self._manager.run(self._ask_of_consumers, groups, broker))

    async def _ask_of_consumers(self, groups: list[str], broker: int) -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations=False)
        return await self._manager.send(request, node_id=broker)


def ask(client: Mapping[str, Any], deadline_s: float) -> Told:
    """Ask all brokers, and describe their groups until `deadline_s` (monotonic)."""
    told = Told()
    with closing(_Admin(**{**client, "request_timeout_ms": TIMEOUT_MS, "bootstrap_timeout_ms": TIMEOUT_MS})) as admin:
        described = describe_cluster(admin)
        told.pushes = pushes(admin)
        told.cluster_id = str(described["cluster_id"])
        told.brokers = sorted(broker["broker_id"] for broker in described["brokers"])
        told.topic_partitions = {
            topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics() if topic["name"]
        }
        for broker in told.brokers:
            try:
                _ask_broker(admin, broker, told, deadline_s)
            except KafkaError as error:
                told.is_incomplete = True
                told.problems.append(f"broker {broker} did not list its groups: {type(error).__name__}")
    return told


def _ask_broker(admin: _Admin, broker: int, told: Told, deadline_s: float) -> None:
    listed = admin.list_groups(broker_ids=[broker])
    groups = {
        group["group_id"]: ToldGroup(
            (group.get("group_type") or "").lower(), group.get("group_state") or "", group["protocol_type"]
        )
        for group in listed
    }
    told.groups |= groups
    classic = [name for name, group in groups.items() if group.type in ("", "classic")]
    consumers = [name for name, group in groups.items() if group.type == "consumer"]
    for describe, names in ((admin.describe_groups, classic), (admin.describe_consumers, consumers)):
        for start in range(0, len(names), AT_ONCE):
            if time.monotonic() >= deadline_s:
                told.problems.append(f"broker {broker}: there was no time to describe all of its groups")
                return
            _note(groups, describe(names[start : start + AT_ONCE], broker), told)


def _note(groups: Mapping[str, ToldGroup], described: Mapping[str, Any], told: Told) -> None:
    refused: Counter[str] = Counter()
    for name, answer in described.items():
        if answer.error_code:
            refused[for_code(answer.error_code).__name__] += 1
            continue
        group = groups[name]
        group.state = answer.group_state or group.state
        if group.type == "consumer":
            group.protocol = answer.assignor_name
            group.members = [_consumer(member) for member in answer.members]
        else:
            group.protocol = answer.protocol_data or ""
            group.members = [_classic(member, group) for member in answer.members]
    for error, groups_refused in refused.items():
        hint = " (Describe on the group is needed)" if error == GroupAuthorizationFailedError.__name__ else ""
        told.problems.append(f"groups that could not be described: {groups_refused}, {error}{hint}")


def _classic(told: Any, group: ToldGroup) -> Member:
    member = Member(told.member_id, told.group_instance_id, told.client_id, told.client_host.removeprefix("/"))
    if group.protocol_type == CONSUMER_PROTOCOL:
        asked = subscription(bytes(told.member_metadata or b""))
        member.topics = sorted(asked.topics) if asked else []
        member.assignment = _held(assignment(bytes(told.member_assignment or b"")) or ())
        if asked is not None and asked.version == 0:
            group.old.append(told.member_id)
    return member


def _consumer(told: Any) -> Member:
    """Return a member of a KIP-848 group. If it subscribes by pattern, only topics assigned to it are known."""
    member = Member(told.member_id, told.instance_id, told.client_id, told.client_host.removeprefix("/"), kip848=True)
    held = [(owned.topic_name, tuple(owned.partitions)) for owned in told.assignment.topic_partitions]
    member.assignment = _held(held)
    member.topics = sorted({*told.subscribed_topic_names, *member.assignment})
    return member


def replica_of(name: str, group: ToldGroup) -> GroupReplica:
    """Return a replica of a described group: members, topics and assignment; brokers do not report timeouts."""
    type_ = GroupType.CONSUMER if group.type == "consumer" else GroupType.CLASSIC
    replica = GroupReplica(name, type_, _state(group.state), Evidence.OBSERVED)
    replica.protocol_type, replica.protocol = group.protocol_type, group.protocol
    replica.members = {member.member_id: member for member in group.members or ()}
    return replica


def _state(name: str) -> GroupState:
    return next((state for state in GroupState if state.value == name), GroupState.UNKNOWN)


def _held(pairs: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, list[int]]:
    held: dict[str, list[int]] = {}
    for topic, partitions in pairs:
        held.setdefault(topic, []).extend(partitions)
    return held

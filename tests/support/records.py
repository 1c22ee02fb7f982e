"""Records of ``__consumer_offsets`` as bytes, checked against Kafka's own byte vectors: one encoder for all tests.

Nothing here uses the decoder under test: shared code would hide an error that both have.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

NO_TAGS = b"\0"


# ---------------------------------------------------------------------------------------------- primitives


def int16(number: int) -> bytes:
    return struct.pack(">h", number)


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def int64(number: int) -> bytes:
    return struct.pack(">q", number)


def string(text: str | None) -> bytes:
    """An int16 length and UTF-8; -1 is null."""
    if text is None:
        return int16(-1)
    raw = text.encode()
    return int16(len(raw)) + raw


def data(raw: bytes) -> bytes:
    return int32(len(raw)) + raw


def array(items: Sequence[bytes]) -> bytes:
    return int32(len(items)) + b"".join(items)


def int32_array(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def compact_string(text: str | None) -> bytes:
    """A uvarint of length + 1 and UTF-8; 0 is null."""
    if text is None:
        return uvarint(0)
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def compact_array(items: Sequence[bytes]) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def compact_data(raw: bytes) -> bytes:
    return uvarint(len(raw) + 1) + raw


def tags(*tagged: tuple[int, bytes]) -> bytes:
    """Tagged fields, by number."""
    return uvarint(len(tagged)) + b"".join(uvarint(n) + uvarint(len(raw)) + raw for n, raw in tagged)


# ---------------------------------------------------------------------------------------------- ConsumerProtocol


def subscription(topics: Iterable[str], owned: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """Subscription v0; v1 if it says which partitions the member owns, as cooperative clients do."""
    out = array([string(topic) for topic in topics]) + int32(-1)
    if owned is None:
        return int16(0) + out
    return int16(1) + out + array([string(topic) + int32_array(ps) for topic, ps in sorted(owned.items())])


def assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Assignment v0. If the leader sent none, the broker does not write this but zero bytes."""
    listed = [string(topic) + int32_array(ps) for topic, ps in sorted(partitions.items())]
    return int16(0) + array(listed) + int32(-1)


# ---------------------------------------------------------------------------------------------- keys


def commit_key(group: str, topic: str, partition: int) -> bytes:
    return int16(1) + string(group) + string(topic) + int32(partition)


def key(record_type: int, group: str, member_id: str | None = None) -> bytes:
    """The key of a record about a group, or about one of its members."""
    return int16(record_type) + string(group) + (b"" if member_id is None else string(member_id))


# ---------------------------------------------------------------------------------------------- classic values


@dataclass(frozen=True)
class ListedMember:
    """A member as GroupMetadata lists it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


def commit_value(
    offset: int, at_ms: int, *, leader_epoch: int = -1, metadata: str = "", topic_id: UUID | None = None
) -> bytes:
    """OffsetCommitValue v3, or v4 if it names the topic's id, as Kafka 4.1 writes it."""
    if topic_id is None and not metadata:  # in one go: benchmarks write thousands a second
        return struct.pack(">hqihq", 3, offset, leader_epoch, 0, at_ms)
    if topic_id is None:
        return int16(3) + int64(offset) + int32(leader_epoch) + string(metadata) + int64(at_ms)
    head = int16(4) + int64(offset) + int32(leader_epoch) + compact_string(metadata) + int64(at_ms)
    return head + tags((0, topic_id.bytes))


def group_metadata(
    protocol_type: str,
    generation: int,
    protocol: str | None,
    leader: str | None,
    state_ms: int,
    members: Sequence[ListedMember],
    version: int = 3,
) -> bytes:
    """GroupMetadataValue v0-v3; which one a broker writes depends on its metadata version."""
    head = int16(version) + string(protocol_type) + int32(generation) + string(protocol) + string(leader)
    if version >= 2:
        head += int64(state_ms)
    return head + array([_listed(member, version) for member in members])


def _listed(member: ListedMember, version: int) -> bytes:
    out = string(member.member_id)
    if version >= 3:
        out += string(member.instance_id)
    out += string(member.client_id) + string(member.client_host)
    if version >= 1:
        out += int32(member.rebalance_timeout_ms)
    return out + int32(member.session_timeout_ms) + data(member.subscription) + data(member.assignment)


# ---------------------------------------------------------------------------------------------- KIP-848 values


def group_epoch(epoch: int) -> bytes:
    """ConsumerGroupMetadataValue (type 3), no metadata hash."""
    return int16(0) + int32(epoch) + NO_TAGS


def target_epoch(epoch: int) -> bytes:
    """ConsumerGroupTargetAssignmentMetadataValue (type 6)."""
    return int16(0) + int32(epoch) + NO_TAGS


def classic_part(session_ms: int) -> bytes:
    """What a consumer group's member record has about a member that uses the classic protocol."""
    protocol = compact_string("range") + compact_data(b"\0\1") + NO_TAGS
    return b"\1" + int32(session_ms) + compact_array([protocol]) + NO_TAGS


def member_metadata(
    client_id: str,
    client_host: str,
    topics: Iterable[str],
    rebalance_timeout_ms: int,
    instance_id: str | None = None,
    *,
    regex: str | None = "",
    classic: bytes = b"\0",
) -> bytes:
    """ConsumerGroupMemberMetadataValue (type 5); a KIP-848 member's classic part is null: tag 0, one byte, zero."""
    return (
        int16(0)
        + compact_string(instance_id)
        + compact_string(None)
        + compact_string(client_id)
        + compact_string(client_host)
        + compact_array([compact_string(topic) for topic in sorted(topics)])
        + compact_string(regex)
        + int32(rebalance_timeout_ms)
        + compact_string(None)
        + tags((0, classic))
    )


def resolved_regex(topics: Iterable[str]) -> bytes:
    """ConsumerGroupRegularExpressionValue (type 16): hash, version and timestamp are zero."""
    return int16(0) + compact_array([compact_string(topic) for topic in topics]) + int64(0) + int64(0) + NO_TAGS


def by_topic_id(partitions: Mapping[UUID, Sequence[int]]) -> bytes:
    """Partitions by topic; a topic without partitions is left out."""
    items = [
        topic_id.bytes + compact_array([int32(p) for p in ps]) + NO_TAGS
        for topic_id, ps in sorted(partitions.items())
        if ps
    ]
    return compact_array(items)


def target(partitions: Mapping[UUID, Sequence[int]]) -> bytes:
    """ConsumerGroupTargetAssignmentMemberValue (type 7)."""
    return int16(0) + by_topic_id(partitions) + NO_TAGS


def current(
    epoch: int,
    previous_epoch: int,
    state: int,
    assigned: Mapping[UUID, Sequence[int]],
    pending_revocation: Mapping[UUID, Sequence[int]],
) -> bytes:
    """ConsumerGroupCurrentMemberAssignmentValue (type 8), before assignment epochs (4.3)."""
    head = int16(0) + int32(epoch) + int32(previous_epoch) + struct.pack(">b", state)
    return head + by_topic_id(assigned) + by_topic_id(pending_revocation) + NO_TAGS


# ---------------------------------------------------------------------------------------------- share groups


def share_member(client_id: str, client_host: str, topics: Iterable[str]) -> bytes:
    """ShareGroupMemberMetadataValue (type 10)."""
    names = compact_string(None) + compact_string(client_id) + compact_string(client_host)
    return int16(0) + names + compact_array([compact_string(topic) for topic in topics]) + NO_TAGS


def hashed_epoch(epoch: int, *, validated: int | None = None) -> bytes:
    """ShareGroupMetadataValue (11) and StreamsGroupMetadataValue (17), which may name a validated topology."""
    tagged = [] if validated is None else [(0, int32(validated))]
    return int16(0) + int32(epoch) + int64(7) + tags(*tagged)


def share_current(epoch: int, previous_epoch: int, state: int, assigned: Mapping[UUID, Sequence[int]]) -> bytes:
    """ShareGroupCurrentMemberAssignmentValue (type 14)."""
    return int16(0) + int32(epoch) + int32(previous_epoch) + struct.pack(">b", state) + by_topic_id(assigned) + NO_TAGS


# ---------------------------------------------------------------------------------------------- streams groups


def streams_member(client_id: str, client_host: str, rebalance_timeout_ms: int, process_id: str) -> bytes:
    """StreamsGroupMemberMetadataValue (type 19) of topology epoch 1, with neither endpoint nor client tags."""
    names = compact_string(None) + compact_string(None) + compact_string(client_id) + compact_string(client_host)
    topology = int32(rebalance_timeout_ms) + int32(1) + compact_string(process_id)
    return int16(0) + names + topology + b"\xff" + compact_array([]) + NO_TAGS


def tasks(partitions: Sequence[int], *, epochs: bool = True) -> bytes:
    """Tasks of subtopology 0, as records 21 (without epochs) and 22 list them."""
    if not partitions:
        return compact_array([])
    numbers = compact_array([int32(number) for number in partitions])
    return compact_array([compact_string("0") + numbers + (tags((0, b"\0")) if epochs else NO_TAGS)])


def streams_target(active: Sequence[int]) -> bytes:
    """StreamsGroupTargetAssignmentMemberValue (type 21): active tasks only."""
    return int16(0) + tasks(active, epochs=False) + tasks(()) + tasks(()) + NO_TAGS


def streams_current(
    epoch: int,
    previous_epoch: int,
    state: int,
    active: Sequence[int],
    standby: Sequence[int] = (),
    revoking: Sequence[int] = (),
) -> bytes:
    """StreamsGroupCurrentMemberAssignmentValue (type 22), without warm-up tasks."""
    held = tasks(active) + tasks(standby) + tasks(()) + tasks(revoking) + tasks(()) + tasks(())
    return int16(0) + int32(epoch) + int32(previous_epoch) + struct.pack(">b", state) + held + NO_TAGS


def topology(epoch: int) -> bytes:
    """StreamsGroupTopologyValue (type 23) without subtopologies."""
    return int16(0) + int32(epoch) + compact_array([]) + NO_TAGS

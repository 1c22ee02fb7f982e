"""Records of ``__consumer_offsets`` as bytes, written from kafka-facts 1.2-1.4 and its byte vectors.

Nothing here looks at the decoder under test: what both get wrong alike, a common source would hide.
"""

import base64
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


# ---------------------------------------------------------------------------------------------- ConsumerProtocol


def subscription(topics: Iterable[str]) -> bytes:
    """Subscription v0."""
    return int16(0) + array([string(topic) for topic in topics]) + int32(-1)


def assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Assignment v0; zero bytes, not this, is what the broker writes where the leader sent none."""
    listed = [string(topic) + array([int32(p) for p in ps]) for topic, ps in sorted(partitions.items())]
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


def commit_value(offset: int, at_ms: int) -> bytes:
    """OffsetCommitValue v3."""
    return int16(3) + int64(offset) + int32(-1) + string("") + int64(at_ms)


def group_metadata(
    protocol_type: str,
    generation: int,
    protocol: str | None,
    leader: str | None,
    state_ms: int,
    members: Sequence[ListedMember],
    version: int = 3,
) -> bytes:
    """GroupMetadataValue v0-v3: what brokers write, each as old as its metadata version."""
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


def uuid_text(topic_id: UUID) -> str:
    """Kafka's text form: base64url without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def group_epoch(epoch: int) -> bytes:
    """ConsumerGroupMetadataValue (type 3), no metadata hash."""
    return int16(0) + int32(epoch) + NO_TAGS


def target_epoch(epoch: int) -> bytes:
    """ConsumerGroupTargetAssignmentMetadataValue (type 6)."""
    return int16(0) + int32(epoch) + NO_TAGS


def member_metadata(
    client_id: str, client_host: str, topics: Iterable[str], rebalance_timeout_ms: int, instance_id: str | None = None
) -> bytes:
    """ConsumerGroupMemberMetadataValue (type 5) of a KIP-848 member: a null classic part is tag 0, one byte, zero."""
    return (
        int16(0)
        + compact_string(instance_id)
        + compact_string(None)
        + compact_string(client_id)
        + compact_string(client_host)
        + compact_array([compact_string(topic) for topic in sorted(topics)])
        + compact_string("")
        + int32(rebalance_timeout_ms)
        + compact_string(None)
        + bytes([1, 0, 1, 0])
    )


def _by_id(partitions: Mapping[UUID, Sequence[int]]) -> bytes:
    items = [
        topic_id.bytes + compact_array([int32(p) for p in ps]) + NO_TAGS
        for topic_id, ps in sorted(partitions.items())
        if ps
    ]
    return compact_array(items)


def target(partitions: Mapping[UUID, Sequence[int]]) -> bytes:
    """ConsumerGroupTargetAssignmentMemberValue (type 7)."""
    return int16(0) + _by_id(partitions) + NO_TAGS


def current(
    epoch: int,
    previous_epoch: int,
    state: int,
    assigned: Mapping[UUID, Sequence[int]],
    pending_revocation: Mapping[UUID, Sequence[int]],
) -> bytes:
    """ConsumerGroupCurrentMemberAssignmentValue (type 8), before assignment epochs (4.3)."""
    head = int16(0) + int32(epoch) + int32(previous_epoch) + struct.pack(">b", state)
    return head + _by_id(assigned) + _by_id(pending_revocation) + NO_TAGS

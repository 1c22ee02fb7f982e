"""What a classic member's blobs say: the topics that it subscribes to, and the partitions that are assigned to it.

Its client and its group's leader write them, so they may contain anything. Only consumers' blobs are read; those of
other protocols stay opaque.
"""

import base64
import binascii

from coordinator_model.decode.member_protocol import TopicPartitions, assignment, subscription
from coordinator_model.replica.member import Assignment, Member

MAX_PARTITIONS_SHOWN = 4_096
"""How many partitions are kept for each member; a blob from an unknown client could name millions."""


def fill_blobs(member: Member, subscribed: bytes, assigned: bytes, protocol_type: str | None) -> None:
    """Read topics and partitions if the protocol type is ``consumer``; other protocols' blobs stay opaque."""
    member.revoking = {}
    if protocol_type != "consumer":
        member.topics, member.assignment, member.partitions_left_out = [], {}, 0
        return
    member.assignment, member.partitions_left_out = read_assignment(assigned)
    wanted = subscription(subscribed)
    if wanted is not None:
        member.topics, member.revoking = sorted(wanted.topics), _taken_away(wanted.owned, member.assignment)


def fill_topics(member: Member, subscribed: bytes) -> None:
    """Read what a consumer subscribes to; a blob that cannot be read changes nothing."""
    wanted = subscription(subscribed)
    if wanted is not None:
        member.topics = sorted(wanted.topics)


def read_assignment(blob: bytes) -> tuple[Assignment, int]:
    """Return a ConsumerProtocol assignment, and how many partitions exceed the bound; empty if it cannot be read."""
    return _bounded(assignment(blob) or ())


def _bounded(listed: TopicPartitions) -> tuple[Assignment, int]:
    result: Assignment = {}
    room, left_out = MAX_PARTITIONS_SHOWN, 0
    for topic, partitions in listed:
        kept = list(partitions)[:room]
        room -= len(kept)
        left_out += len(partitions) - len(kept)
        result.setdefault(topic, []).extend(kept)
    return result, left_out


def _taken_away(owned: TopicPartitions, assigned: Assignment) -> Assignment:
    """Return the partitions that a member says it owns and that its assignment lacks."""
    listed, _ = _bounded(owned)
    lost = {topic: sorted(set(partitions).difference(assigned.get(topic, ()))) for topic, partitions in listed.items()}
    return {topic: partitions for topic, partitions in lost.items() if partitions}


def from_base64(text: str) -> bytes:
    """Decode base64; return no bytes if the text is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""

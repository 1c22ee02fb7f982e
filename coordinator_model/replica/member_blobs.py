"""What a classic member's blobs say: the topics that it subscribes to, and the partitions that are assigned to it.

Its client and its group's leader write them, so they may contain anything. Only consumers' blobs are read; those of
other protocols stay opaque.
"""

import base64
import binascii

from coordinator_model.decode.member_protocol import assignment, subscription
from coordinator_model.replica.member import Assignment, Member

MAX_PARTITIONS_SHOWN = 4_096
"""How many partitions are kept for each member; a blob from an unknown client could name millions."""


def fill_blobs(member: Member, subscribed: bytes, assigned: bytes, protocol_type: str | None) -> None:
    """Read topics and partitions if the protocol type is ``consumer``; other protocols' blobs stay opaque."""
    if protocol_type != "consumer":
        member.topics, member.assignment, member.partitions_left_out = [], {}, 0
        return
    fill_topics(member, subscribed)
    member.assignment, member.partitions_left_out = read_assignment(assigned)


def fill_topics(member: Member, subscribed: bytes) -> None:
    """Read what a consumer subscribes to; a blob that cannot be read changes nothing."""
    wanted = subscription(subscribed)
    if wanted is not None:
        member.topics = sorted(wanted.topics)


def read_assignment(blob: bytes) -> tuple[Assignment, int]:
    """Return a ConsumerProtocol assignment, and how many partitions exceed the bound; empty if it cannot be read."""
    result: Assignment = {}
    room, left_out = MAX_PARTITIONS_SHOWN, 0
    for topic, partitions in assignment(blob) or ():
        kept = list(partitions)[:room]
        room -= len(kept)
        left_out += len(partitions) - len(kept)
        result.setdefault(topic, []).extend(kept)
    return result, left_out


def from_base64(text: str) -> bytes:
    """Decode base64; return no bytes if the text is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""

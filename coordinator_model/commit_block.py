"""Offset commits as columns. Nearly all records of the offsets topic are commits, so they are not made into objects.

A block has the newest commits of the partitions of one operator key in one batch. A partition has one row. It has more
if group records come between its commits, because each of those may end a session that an earlier commit had extended.
Rows are in the order of the offsets topic.
"""

import struct
from array import array
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from coordinator_model.events import OffsetCommitted

NO_OFFSET = -(2**63)
"""The committed offset of a row that is a tombstone."""
LEAST_OFFSET = NO_OFFSET + 1
"""A client that commits ``NO_OFFSET`` itself gets this offset instead."""
METADATA_CHARACTERS = 64
"""How much of a commit's metadata is kept."""
MAX_TEXT_BYTES = 0x7FFF
"""The longest text of a key. Bytes that are not valid UTF-8 get longer when they are decoded and encoded again."""
_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
PARTITION_BYTES = _PARTITION.size
"""The size of the partition number at the end of a key."""


class CommitBlock(NamedTuple):
    """Commits of one partition of the offsets topic, one column for each field; all columns have the same length.

    ``keys`` are the records' keys without their version: group, topic and partition as Kafka writes them (``place_of``
    reads one). ``offsets`` are the committed offsets (``NO_OFFSET``: a tombstone), ``commit_ms`` the instants in the
    values, ``record_ms`` the records' timestamps, ``record_offsets`` the records' own offsets, ``counts`` how many
    commits each row stands for. ``topic_ids`` holds 16 bytes, or is empty where the commit has no topic id (before
    Kafka 4.1). ``metadata`` maps row numbers to the first characters of the commit's metadata, if it is not empty.
    """

    keys: tuple[bytes, ...]
    record_offsets: "array[int]"
    record_ms: "array[int]"
    offsets: "array[int]"
    commit_ms: "array[int]"
    leader_epochs: "array[int]"
    counts: "array[int]"
    topic_ids: tuple[bytes, ...]
    metadata: Mapping[int, str]

    def as_tuple(self) -> tuple[Any, ...]:
        """Return the columns in a form that ``marshal`` can write. ``of_tuple`` takes what ``marshal`` reads back."""
        return tuple(self)

    @classmethod
    def of_tuple(cls, columns: tuple[Any, ...]) -> "CommitBlock":
        """Make a block of columns. Bytes are int64 numbers: ``marshal`` reads an ``array`` back as bytes."""
        return cls._make(array("q", column) if type(column) is bytes else column for column in columns)

    @classmethod
    def of_events(cls, events: Iterable[OffsetCommitted]) -> "CommitBlock":
        """Make a block of commits of one partition of the offsets topic: one row each, in the order of the topic."""
        rows = sorted(events, key=lambda event: event.offset)
        ids = (event.topic_id for event in rows)
        return cls(
            tuple(key_of(event.group, event.committed_topic, event.committed_partition) for event in rows),
            array("q", (event.offset for event in rows)),
            array("q", (event.order_ms for event in rows)),
            array("q", (NO_OFFSET if event.tombstone else max(event.committed_offset, LEAST_OFFSET) for event in rows)),
            array("q", (event.commit_ms for event in rows)),
            array("q", (event.leader_epoch for event in rows)),
            array("q", [1]) * len(rows),
            tuple(b"" if topic_id is None else urlsafe_b64decode(topic_id + "==") for topic_id in ids),
            {number: event.metadata for number, event in enumerate(rows) if event.metadata},
        )


def key_of(group: str, topic: str, partition: int) -> bytes:
    """Return the key of a partition's commits, without the version."""
    texts = (text.encode("utf-8", "replace")[:MAX_TEXT_BYTES] for text in (group, topic))
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts) + _PARTITION.pack(partition)


def key_end(joined: bytes, start: int) -> int:
    """Return where the key that starts at ``start`` ends."""
    topic = start + 2 + _LENGTH.unpack_from(joined, start)[0]
    return int(topic + 2 + _LENGTH.unpack_from(joined, topic)[0] + _PARTITION.size)


def head_of(key: bytes) -> bytes:
    """Return the part of a complete key that holds its group. ``group_in`` reads the group from it, too."""
    return key[: 2 + (key[0] << 8 | key[1])]


def group_in(key: bytes) -> str:
    """Read only the group of a key, which is known to be complete."""
    return key[2 : 2 + (key[0] << 8 | key[1])].decode("utf-8", "replace")


def place_of(key: bytes) -> tuple[str, str, int]:
    """Read the group, topic and partition of a key, which is known to be complete."""
    group_end = 2 + _LENGTH.unpack_from(key)[0]
    topic_end = group_end + 2 + _LENGTH.unpack_from(key, group_end)[0]
    group, topic = key[2:group_end], key[group_end + 2 : topic_end]
    return group.decode("utf-8", "replace"), topic.decode("utf-8", "replace"), _PARTITION.unpack_from(key, topic_end)[0]

"""Which partition of ``__consumer_offsets`` a group lives in (Kafka's ``GroupCoordinatorService.partitionFor``)."""

from collections.abc import Iterable
from functools import lru_cache

DEFAULT_PARTITIONS = 50
"""``offsets.topic.num.partitions`` as Kafka ships it."""
REMEMBERED_CHARACTERS = 256
"""A longer id is hashed each time: it may have 32,767 bytes, and a stranger has as many of them as it likes."""


def java_string_hash(text: str) -> int:
    """Return ``String.hashCode()``: 32 bit signed, over UTF-16 code units (a surrogate pair counts as two)."""
    value: int = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def shard_of(group: str, partitions: int) -> int:
    """Return the partition of a group."""
    return _remembered(group, partitions) if len(group) <= REMEMBERED_CHARACTERS else _shard_of(group, partitions)


def shard_of_hash(java_hash: int, partitions: int) -> int:
    """Return the partition of a group by its hash; ``Utils.abs`` maps Integer.MIN_VALUE to 0."""
    return 0 if java_hash == -0x8000_0000 else abs(java_hash) % partitions


def _shard_of(group: str, partitions: int) -> int:
    return shard_of_hash(java_string_hash(group), partitions)


# Asked for each event but known heartbeats, and dearer than the rest of routing it. Strangers fill it with ids that
# never come again: it may be no larger than some megabytes.
_remembered = lru_cache(maxsize=2**14)(_shard_of)


def infer_partitions(placements: Iterable[tuple[str, int]]) -> int | None:
    """Return how many partitions the offsets topic must have, seen ``(group, partition)`` pairs of its records.

    The default of 50 where it explains every pair, else the smallest number that does; None, unknown, where there is
    no pair or no number that explains them.
    """
    pairs = set(placements)
    if not pairs:
        return None
    lowest: int = max(partition for _, partition in pairs) + 1
    candidates: list[int] = [DEFAULT_PARTITIONS, *range(lowest, max(lowest, 1_000) + 1)]
    for candidate in candidates:
        if candidate >= lowest and all(shard_of(group, candidate) == partition for group, partition in pairs):
            return candidate
    return None

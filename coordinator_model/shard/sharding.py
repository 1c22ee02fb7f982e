"""The partition of ``__consumer_offsets`` of each group, as in Kafka's ``GroupCoordinatorService.partitionFor``."""

from collections.abc import Iterable
from functools import lru_cache

DEFAULT_PARTITIONS = 50
"""Kafka's default of ``offsets.topic.num.partitions``."""
REMEMBERED_CHARACTERS = 256
"""Longer ids are not cached. An id may have 32,767 bytes, and clients choose their ids, so a cache of long ids could
grow without a useful bound."""


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


# Every event except a known member's heartbeat needs this, and the hash costs more than the rest of the routing.
# Clients can send ids that are never used again, so the cache is limited to some megabytes.
_remembered = lru_cache(maxsize=2**14)(_shard_of)


def infer_partitions(placements: Iterable[tuple[str, int]]) -> int | None:
    """Infer the number of partitions of the offsets topic from ``(group, partition)`` pairs of its records.

    Return the default of 50 if it maps every group to the partition where it was found, otherwise the smallest number
    that does. None: there is no pair, or no number up to 1,000 fits all pairs.
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

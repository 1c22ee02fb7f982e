"""Partitions that were added to topics while the monitor watched: consumers notice them only after a while."""

from collections.abc import Mapping
from typing import NamedTuple

NOTICED_AFTER_MS = 300_000
"""Consumers look for new partitions this often (``metadata.max.age.ms``, its default), and then rebalance."""


class AddedPartitions(NamedTuple):
    """The partitions that were last added to a topic: its first new one, and when they should have owners."""

    first: int
    owned_by_ms: int


Added = Mapping[str, AddedPartitions]
"""By topic."""


def added_partitions(before: Mapping[str, int], now: Mapping[str, int], at_ms: int) -> dict[str, AddedPartitions]:
    """Compare two counts of all topics' partitions. ``at_ms``: when the second was taken. Empty: there was no first."""
    grown = {topic: before.get(topic, 0) for topic, count in now.items() if before and count > before.get(topic, 0)}
    return {topic: AddedPartitions(first, at_ms + NOTICED_AFTER_MS) for topic, first in grown.items()}

"""Which lines are lost: retention deleted them before they were read, or their topic was recreated."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from coordinator_model.brokers.line_clocks import Sifted
from coordinator_model.shard.batch import OffsetsRead, Place
from coordinator_model.shard.shard_memory import ShardMemory


def lost_lines(
    memory: ShardMemory, sifted: Sifted, read: Iterable[OffsetsRead], recreated: AbstractSet[Place]
) -> dict[str, int]:
    """Return the brokers that write to a partition with missing lines, each with the instant of its first line now."""
    places = recreated | _gaps(memory, read, recreated)
    lost: dict[str, int] = {}
    if not places:
        return lost
    for lines in sifted.lines:
        for line in lines:
            if line[2:4] in places and line.broker in memory.clock.brokers:
                lost[line.broker] = min(line.order_ms, lost.get(line.broker, line.order_ms))
    return lost


def _gaps(memory: ShardMemory, read: Iterable[OffsetsRead], recreated: AbstractSet[Place]) -> set[Place]:
    """Note which offsets were read. Return the partitions in which offsets are missing since the last batch."""
    gaps = set()
    for topic, partition, first, last in sorted(read):
        place = (topic, partition)
        known = memory.read_to.get(place)
        if place in recreated and (known is None or first <= known):
            known = None
        if known is not None and first > known + 1:
            gaps.add(place)
        memory.read_to[place] = last if known is None else max(last, known)
    return gaps

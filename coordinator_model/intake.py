"""What of a batch may be applied now, and in which order.

Rows of one key come from several sources, each in its own order and with its own delay. They are applied in the
coordinator's time order: what is newer than the slowest live source has been read is held back, at most ``hold_ms``.
What was read before is a duplicate.
"""

from collections.abc import Collection, Iterable
from operator import itemgetter
from typing import NamedTuple

from coordinator_model.events import ClientPoll, Event, Heartbeat, OffsetCommitted, RecordRead
from coordinator_model.hot import FAR_MS
from coordinator_model.shard_memory import ShardMemory

_WITHOUT_BROKER = frozenset({RecordRead, OffsetCommitted, ClientPoll})
_order = itemgetter(0, 1, 2, 3, 4)


class Taken(NamedTuple):
    """Events to apply, in order, and how many were duplicates."""

    events: list[Event]
    duplicates: int


def take(
    memory: ShardMemory,
    events: Iterable[Event],
    hold_ms: int,
    *,
    wall_ms: int | None,
    records_read_ms: int,
    final: bool,
) -> Taken:
    """Sort a batch with what was held, without what came before, and hold what is too new.

    ``records_read_ms``: up to which instant the records have been read. ``final``: nothing waits.
    """
    fresh, lines, duplicates = _unseen(memory, events)
    clock = memory.clock
    for (broker, topic, partition), line_ms in lines.items():
        clock.read(broker, f"{topic}/{partition}", line_ms)
    batch = memory.held + fresh
    batch.sort(key=_order)
    latest_ms = max(lines.values(), default=batch[-1][0] if batch else 0)
    if wall_ms is not None:
        latest_ms = _present_ms(memory, wall_ms, lines.values())
    lines_ms = clock.frontier_ms(hold_ms) if clock.brokers and not final else FAR_MS
    frontier_ms = max(min(lines_ms, records_read_ms), latest_ms - hold_ms)
    cut = len(batch)
    while cut and batch[cut - 1][0] > frontier_ms:
        cut -= 1
    memory.held = batch[cut:]
    return Taken(batch[:cut], duplicates)


def _unseen(memory: ShardMemory, events: Iterable[Event]) -> tuple[list[Event], dict[tuple[str, str, int], int], int]:
    """Return what was not read before, the newest line by (broker, topic, partition), and the number of duplicates."""
    seen, newest = memory.offsets, dict(memory.offsets)
    fresh: list[Event] = []
    lines: dict[tuple[str, str, int], int] = {}
    duplicates = 0
    line, source = ("", "", -1), ("", -1)
    seen_offset = newest_offset = line_ms = -1
    for event in events:
        order_ms, _, topic, partition, offset, *_ = event
        if partition != source[1] or topic != source[0]:
            newest[source] = newest_offset
            source = (topic, partition)
            seen_offset = seen.get(source, -1)
            newest_offset = newest.get(source, -1)
        if offset <= seen_offset:
            duplicates += 1
            continue
        if offset > newest_offset:
            newest_offset = offset
        fresh.append(event)
        if type(event) is Heartbeat:
            broker = event[11]
        elif type(event) in _WITHOUT_BROKER:
            continue
        else:
            broker = event.broker  # type: ignore[union-attr]
        if broker != line[0] or line[2] != partition or line[1] != topic:
            lines[line] = line_ms
            line = (broker, topic, partition)
            line_ms = lines.get(line, 0)
        if order_ms > line_ms:
            line_ms = order_ms
    newest[source], lines[line] = newest_offset, line_ms
    newest.pop(("", -1), None)
    lines.pop(("", "", -1), None)
    memory.offsets = newest
    return fresh, lines, duplicates


def _present_ms(memory: ShardMemory, wall_ms: int, lines_ms: Collection[int]) -> int:
    """Return the present as the brokers have it in what is read: their newest line, and the time since it came.

    A job that catches up reads the records of an hour beside the lines of a minute, and the wall clock is ahead of
    both: only how long no line came makes a source late, or telemetry stalled.
    """
    if lines_ms:
        memory.lag_ms = wall_ms - max(lines_ms)
    return wall_ms - memory.lag_ms

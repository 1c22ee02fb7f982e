"""What of a batch may be applied now, and in which order.

Rows of one key come from several sources, each in its own order and with its own delay. They are applied in the
coordinator's time order: what is newer than the slowest live source has been read is held back, at most ``hold_ms``.
What was read before is a duplicate.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from coordinator_model.events import ClientPoll, Event, Heartbeat, LeaderNamed, OffsetCommitted, RecordRead
from coordinator_model.heartbeat_block import HeartbeatBlock, order
from coordinator_model.hot import FAR_MS
from coordinator_model.leadership import STALE_MS
from coordinator_model.shard_memory import ShardMemory
from coordinator_model.ticks import Source

_WITHOUT_BROKER = (RecordRead, OffsetCommitted, ClientPoll, LeaderNamed)


class Taken(NamedTuple):
    """What may be applied: heartbeats, and the other events in order; and how many were duplicates."""

    heartbeats: HeartbeatBlock
    events: list[Event]
    duplicates: int


def take(
    memory: ShardMemory,
    events: Iterable[Event],
    blocks: Iterable[HeartbeatBlock],
    hold_ms: int,
    *,
    wall_ms: int | None,
    records_read_ms: int,
    final: bool,
) -> Taken:
    """Sort a batch with what was held, without what came before, and hold what is too new.

    ``records_read_ms``: up to which instant the records have been read. ``final``: nothing waits.
    """
    fresh = _Fresh(memory.offsets)
    for block in blocks:
        fresh.add_block(block)
    fresh.add(events)
    memory.offsets, lines, clock = fresh.newest, fresh.lines, memory.clock
    for (broker, topic, partition), line_ms in lines.items():
        clock.read(broker, f"{topic}/{partition}", line_ms)
    heartbeats = HeartbeatBlock.joined([memory.held_heartbeats, *fresh.blocks])
    present_ms = None if wall_ms is None else _present_ms(memory, wall_ms, lines.values())
    named = fresh.named if wall_ms is None else _as_read(fresh.named, memory.lag_ms)
    others = sorted([*memory.held, *fresh.others, *named], key=order)
    latest_ms = max(lines.values(), default=max(_last_ms(heartbeats), others[-1][0] if others else 0))
    if present_ms is not None:
        latest_ms = present_ms
    lines_ms = clock.frontier_ms(hold_ms) if clock.brokers and not final else FAR_MS
    frontier_ms = max(min(lines_ms, records_read_ms), latest_ms - hold_ms)
    cut = len(others)
    while cut and others[cut - 1][0] > frontier_ms:
        cut -= 1
    until = heartbeats.until(frontier_ms)
    memory.held, memory.held_heartbeats = others[cut:], heartbeats.cut(until, heartbeats.length)
    return Taken(heartbeats.cut(0, until), others[:cut], fresh.duplicates)


def _last_ms(heartbeats: HeartbeatBlock) -> int:
    return heartbeats.row(heartbeats.length - 1).order_ms if heartbeats.length else 0


class _Fresh:
    """What of a batch was not read before; the newest line by source, and the newest offset by topic and partition."""

    def __init__(self, seen: dict[tuple[str, int], int]) -> None:
        self._seen = seen
        self.newest = dict(seen)
        self.blocks: list[HeartbeatBlock] = []
        self.others: list[Event] = []
        self.named: list[LeaderNamed] = []
        self.lines: dict[Source, int] = {}
        self.duplicates = 0

    def add_block(self, block: HeartbeatBlock) -> None:
        """Take the heartbeats of one source."""
        (broker, topic, partition), *others = block.sources()
        least, greatest = block.offset_span()
        if others or least <= self._seen.get((topic, partition), -1):
            self.add(block.rows())
            return
        self.newest[topic, partition] = max(self.newest.get((topic, partition), -1), greatest)
        self._line((broker, topic, partition), _last_ms(block))
        self.blocks.append(block)

    def add(self, events: Iterable[Event]) -> None:
        """Take events one by one."""
        heartbeats: list[Heartbeat] = []
        for event in events:
            order_ms, _, topic, partition, offset, *_ = event
            source = (topic, partition)
            if offset <= self._seen.get(source, -1):
                self.duplicates += type(event) is not LeaderNamed  # said again each time, until something else is
                continue
            if offset > self.newest.get(source, -1):
                self.newest[source] = offset
            if type(event) is Heartbeat:
                heartbeats.append(event)
            elif type(event) is LeaderNamed:
                self.named.append(event)
            else:
                self.others.append(event)
            if not isinstance(event, _WITHOUT_BROKER):
                self._line((event.broker, topic, partition), order_ms)
        self.blocks.append(HeartbeatBlock.of_events(sorted(heartbeats, key=order)))

    def _line(self, source: Source, at_ms: int) -> None:
        if at_ms > self.lines.get(source, 0):
            self.lines[source] = at_ms


def _present_ms(memory: ShardMemory, wall_ms: int, lines_ms: Collection[int]) -> int:
    """Return the present as the brokers have it in what is read: their newest line, and the time since it came.

    A job that catches up reads the records of an hour beside the lines of a minute, and the wall clock is ahead of
    both: only how long no line came makes a source late, or telemetry stalled.
    """
    if lines_ms:
        memory.lag_ms = wall_ms - max(lines_ms)
    return wall_ms - memory.lag_ms


def _as_read(named: list[LeaderNamed], lag_ms: int) -> list[LeaderNamed]:
    """Return what metadata says, asked by this machine's clock, as of what was read then; nothing while catching up.

    What metadata says now is no word on answers of an hour ago.
    """
    if lag_ms > STALE_MS:
        return []
    return [event._replace(order_ms=event.order_ms - lag_ms) for event in named]

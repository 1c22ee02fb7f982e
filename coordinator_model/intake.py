"""What of a batch may be applied now, and in which order.

Rows of one key come from several sources, each in its own order and with its own delay. They are applied in the
coordinator's time order: what is newer than the slowest live source has been read is held back, at most ``hold_ms``.
What was read before is a duplicate, and a line whose instant cannot be is left out (``line_clocks``).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from coordinator_model.events import (
    BrokerLine,
    ClientPoll,
    Event,
    Heartbeat,
    LeaderNamed,
    OffsetCommitted,
    RecordRead,
)
from coordinator_model.heartbeat_block import HeartbeatBlock, order
from coordinator_model.hot import FAR_MS
from coordinator_model.leadership import STALE_MS
from coordinator_model.line_clocks import Item, Sifted, Step, sift
from coordinator_model.shard_memory import ShardMemory


class Part(NamedTuple):
    """What may be applied after a step of the coordinator's clock, if any: heartbeats, and other events in order."""

    step: Step | None
    heartbeats: HeartbeatBlock
    events: list[Event]


class Taken(NamedTuple):
    """The parts of a batch, one after the other: nearly always one; and what is not applied.

    ``steps``: of all brokers' clocks. ``misdated``: lines whose instant cannot be.
    """

    parts: list[Part]
    steps: list[Step]
    misdated: list[Event]
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
    memory.offsets = fresh.newest
    present_ms = _present_ms(memory, wall_ms)
    sifted = sift(memory.clock, memory.doubts, fresh.items, present_ms, hold_ms, final=final)
    _note_read(memory, sifted, wall_ms)
    latest_ms, misdated = _latest_ms(memory, sifted, wall_ms), list[Event](sifted.misdated)
    named = fresh.named if wall_ms is None else _as_read(fresh.named, memory.lag_ms or 0)
    others = _parted([*fresh.others, *_polled(fresh.polls, latest_ms, hold_ms, misdated), *named], sifted.parted_by)
    parts: list[Part] = []
    for step, lines, whole, rest in zip([None, *sifted.parted_by], sifted.lines, sifted.blocks, others, strict=True):
        ready = _Ready(memory, lines, whole, rest)
        if len(parts) == len(sifted.parted_by) and not final:
            ready.hold_back(memory, _frontier_ms(memory, ready, latest_ms, records_read_ms, hold_ms), hold_ms)
        parts.append(Part(step, ready.heartbeats, ready.others))
    return Taken(parts, sifted.steps, misdated, fresh.duplicates)


class _Ready:
    """What may be applied: what was held, and what came, in order. Afterwards nothing is held."""

    def __init__(
        self, memory: ShardMemory, lines: Iterable[BrokerLine], blocks: Iterable[HeartbeatBlock], rest: Iterable[Event]
    ) -> None:
        beats: list[Heartbeat] = []
        others = list(memory.held)
        for line in lines:
            (beats if type(line) is Heartbeat else others).append(line)  # type: ignore[arg-type] # of its own type
        others.extend(rest)
        loose = HeartbeatBlock.of_events(sorted(beats, key=order))
        self.heartbeats = HeartbeatBlock.joined([memory.held_heartbeats, *blocks, loose])
        self.others = sorted(others, key=order)
        memory.held, memory.held_heartbeats = [], HeartbeatBlock.of_events(())

    def hold_back(self, memory: ShardMemory, frontier_ms: int, hold_ms: int) -> None:
        """Hold what is newer than an instant, but for brokers whose clock is apart from the coordinator's."""
        cut = len(self.others)
        while cut and self.others[cut - 1][0] > frontier_ms:
            cut -= 1
        astray: list[Event] = []
        memory.held = []
        for event in self.others[cut:]:
            (astray if memory.clock.is_apart(event, hold_ms) else memory.held).append(event)
        self.others[cut:] = astray
        until = self.heartbeats.until(frontier_ms)
        memory.held_heartbeats = self.heartbeats.cut(until, self.heartbeats.length)
        self.heartbeats = self.heartbeats.cut(0, until)


def _frontier_ms(memory: ShardMemory, ready: _Ready, latest_ms: int, records_read_ms: int, hold_ms: int) -> int:
    """Return up to which instant events may be applied."""
    if not latest_ms:
        newest = ready.others[-1][0] if ready.others else 0
        latest_ms = max(newest, ready.heartbeats.place(-1)[0] if ready.heartbeats.length else 0)
    lines_ms = memory.clock.frontier_ms(hold_ms) if memory.clock.brokers else FAR_MS
    return max(min(lines_ms, records_read_ms), latest_ms - hold_ms)


def _note_read(memory: ShardMemory, sifted: Sifted, wall_ms: int | None) -> None:
    """Note how far the brokers have been read, and how far this machine's clock is ahead of that."""
    clock = memory.clock
    for step in sifted.steps:
        clock.restart_reading(step.broker, step.total_ms)
    for (broker, topic, partition), line_ms in sifted.newest.items():
        clock.read(broker, f"{topic}/{partition}", line_ms)
    if wall_ms is not None and sifted.newest:
        newest_ms = max(at_ms - clock.stepped_ms(broker) for (broker, *_), at_ms in sifted.newest.items())
        memory.lag_ms = wall_ms - newest_ms


def _present_ms(memory: ShardMemory, wall_ms: int | None) -> int | None:
    """Return the present as the brokers have it; None where it is not known, or this machine is catching up."""
    if wall_ms is None or memory.lag_ms is None or memory.lag_ms > STALE_MS:
        return None
    return wall_ms - memory.lag_ms


def _latest_ms(memory: ShardMemory, sifted: Sifted, wall_ms: int | None) -> int:
    """Return the present as the coordinator has it in what is read: its newest line, and the time since it came.

    A job that catches up reads the records of an hour beside the lines of a minute, and the wall clock is ahead of
    both: only how long no line came makes a source late, or telemetry stalled. 0: there is none.
    """
    ahead_ms = memory.clock.stepped_ms(memory.clock.coordinator or "")
    if wall_ms is not None:
        return wall_ms - (memory.lag_ms or 0) + ahead_ms
    lines = [at_ms - memory.clock.stepped_ms(broker) for (broker, *_), at_ms in sifted.newest.items()]
    return max(lines) + ahead_ms if lines else 0


def _polled(polls: Iterable[ClientPoll], latest_ms: int, hold_ms: int, misdated: list[Event]) -> list[Event]:
    """Return the clients' reports without those from the future: they would wait for it."""
    believed: list[Event] = []
    for poll in polls:
        future = latest_ms and poll.order_ms > latest_ms + hold_ms
        (misdated if future else believed).append(poll)
    return believed


def _parted(events: list[Event], steps: Sequence[Step]) -> list[list[Event]]:
    """Divide events other than lines by the coordinator's steps; its records step with it.

    Ahead, an instant tells; back, only records of a partition whose instants go back: else they were before.
    """
    parts: list[list[Event]] = [[] for _ in range(len(steps) + 1)]
    if not steps:
        return [events]
    reached, newest_ms = 0, 0
    for event in sorted(events, key=lambda event: event[2:5]):
        if not isinstance(event, RecordRead | OffsetCommitted):
            parts[-1].append(event)
            continue
        while reached < len(steps) and _is_after(event.order_ms, newest_ms, steps[reached]):
            reached, newest_ms = reached + 1, 0
        newest_ms = max(newest_ms, event.order_ms)
        parts[reached].append(event)
    return parts


def _is_after(at_ms: int, newest_ms: int, step: Step) -> bool:
    middle_ms = (step.from_ms + step.to_ms) // 2
    if step.to_ms >= step.from_ms:
        return at_ms > middle_ms
    return newest_ms > middle_ms >= at_ms


def _as_read(named: list[LeaderNamed], lag_ms: int) -> list[LeaderNamed]:
    """Return what metadata says, asked by this machine's clock, as of what was read then; nothing while catching up.

    What metadata says now is no word on answers of an hour ago.
    """
    if lag_ms > STALE_MS:
        return []
    return [event._replace(order_ms=event.order_ms - lag_ms) for event in named]


class _Fresh:
    """What of a batch was not read before, by kind, and the newest offset by topic and partition."""

    def __init__(self, seen: dict[tuple[str, int], int]) -> None:
        self._seen = seen
        self.newest = dict(seen)
        self.items: list[Item] = []
        """Lines, and heartbeats as blocks."""
        self.others: list[Event] = []
        self.named: list[LeaderNamed] = []
        self.polls: list[ClientPoll] = []
        self.duplicates = 0

    def add_block(self, block: HeartbeatBlock) -> None:
        """Take the heartbeats of one source."""
        (_, topic, partition), *others = block.sources()
        least, greatest = block.offset_span()
        if others or least <= self._seen.get((topic, partition), -1):
            self.add(block.rows())
            return
        self.newest[topic, partition] = max(self.newest.get((topic, partition), -1), greatest)
        self.items.append(((topic, partition, least), block))

    def add(self, events: Iterable[Event]) -> None:
        """Take events one by one."""
        for event in events:
            _, _, topic, partition, offset, *_ = event
            source = (topic, partition)
            if offset <= self._seen.get(source, -1):
                self.duplicates += type(event) is not LeaderNamed  # said again each time, until something else is
                continue
            if offset > self.newest.get(source, -1):
                self.newest[source] = offset
            if isinstance(event, RecordRead | OffsetCommitted):
                self.others.append(event)
            elif isinstance(event, LeaderNamed):
                self.named.append(event)
            elif isinstance(event, ClientPoll):
                self.polls.append(event)
            else:
                self.items.append(((topic, partition, offset), event))

"""Which events of a batch may be applied now, and in which order.

The events of one key come from several sources, each in its own order and with its own delay. They are applied in the
order of the coordinator's time. An event newer than the slowest live source has been read is held back, for ``hold_ms``
at most. An event that was read before is a duplicate. A line whose instant is impossible is left out (``line_clocks``).
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import NamedTuple

from coordinator_model.brokers.leadership import STALE_MS
from coordinator_model.brokers.line_clocks import Item, Sifted, Step, sift
from coordinator_model.commit_block import CommitBlock
from coordinator_model.events import (
    FAR_MS,
    BrokerLine,
    ClientWord,
    CoordinatorLine,
    Event,
    Heartbeat,
    LeaderNamed,
    OffsetCommitted,
    RecordRead,
)
from coordinator_model.heartbeat_block import HeartbeatBlock, order
from coordinator_model.shard.commit_times import COMMIT_MEMORY_MS, CommitRow, fresh_rows, now_read, rows_of
from coordinator_model.shard.shard_memory import ShardMemory

Place = tuple[str, int]
"""Topic and partition."""

LATE_MS = 60_000
"""How much later than clients' reports lines may come. The reports wait so long for them, not longer."""


class Part(NamedTuple):
    """The events between two steps of the coordinator's clock that may be applied.

    Heartbeats, offset commits and other events are three sequences, each in order.
    """

    step: Step | None
    heartbeats: HeartbeatBlock
    events: list[Event]
    commits: list[CommitRow]

    @property
    def last_ms(self) -> int:
        """The newest instant of its events and commits, heartbeats apart; 0: there is none."""
        return max(self.events[-1][0] if self.events else 0, self.commits[-1][0] if self.commits else 0)


class Taken(NamedTuple):
    """The parts of a batch in order, nearly always one, and what is not applied.

    ``steps``: the steps of all brokers' clocks. ``misdated``: lines whose instant is impossible. ``lost``: brokers with
    missing lines, and the first instant after the loss. ``committed``: how many offset commits came. ``future``: how
    many were left out because their instants are far in the future.
    """

    parts: list[Part]
    steps: list[Step]
    misdated: list[Event]
    duplicates: int
    lost: dict[str, int]
    committed: int
    future: int


class OffsetsRead(NamedTuple):
    """A range of offsets of a telemetry partition, all of which were read."""

    topic: str
    partition: int
    first: int
    last: int


class Batch(NamedTuple):
    """What came for a shard: events, heartbeats and commits as blocks, and how far the sources have been read.

    ``records_read_ms``: the instant up to which records have been read. ``read``: the offsets of telemetry that were
    read, for all shards. ``final``: nothing more comes.
    """

    events: Iterable[Event]
    heartbeats: Iterable[HeartbeatBlock] = ()
    wall_ms: int | None = None
    records_read_ms: int = FAR_MS
    read: Iterable[OffsetsRead] = ()
    final: bool = False
    commits: Iterable[CommitBlock] = ()


def take(memory: ShardMemory, batch: Batch, hold_ms: int) -> Taken:
    """Sort a batch together with what was held back, without duplicates, and hold back what is too new."""
    wall_ms, final = batch.wall_ms, batch.final
    fresh = _Fresh(memory)
    for block in batch.heartbeats:
        fresh.add_block(block)
    fresh.add(batch.events)
    fresh.add_commits(batch.commits)
    present_ms = _present_ms(memory, wall_ms)
    sifted = sift(memory.clock, memory.doubts, fresh.items, present_ms, hold_ms, final=final)
    recreated = fresh.recreated(sifted)
    lost = _lost(memory, sifted, recreated, _gaps(memory, batch.read, recreated))
    _note_read(memory, sifted, wall_ms)
    fresh.note_offsets(memory, sifted, recreated)
    newest_ms = max([0, *(row[0] for row in fresh.commits), *(event.order_ms for event in fresh.others)])
    latest_ms, misdated = _latest_ms(memory, sifted, wall_ms), list[Event](sifted.misdated)
    named = fresh.named if wall_ms is None else _as_read(fresh.named, memory.behind_ms or 0)
    polls = _believed(fresh.polls, latest_ms and latest_ms + _late_ms(memory), hold_ms, misdated)
    logged = _believed(fresh.logged, max(latest_ms, newest_ms) if latest_ms else 0, hold_ms, misdated)
    others = _parted([*fresh.others, *polls, *logged, *named], sifted.parted_by)
    commits = _parted_commits(fresh.commits, sifted.parted_by)
    steps = [None, *sifted.parted_by]
    # Both clocks: while the job catches up, lines are behind, and brokers' clocks may be ahead of this machine's.
    credible_ms = FAR_MS if wall_ms is None else max(latest_ms, wall_ms) + COMMIT_MEMORY_MS
    parts: list[Part] = []
    future = 0
    for step, lines, whole, rest, rows in zip(steps, sifted.lines, sifted.blocks, others, commits, strict=True):
        ready = _Ready(memory, lines, whole, rest, rows)
        if len(parts) == len(sifted.parted_by) and not final:
            ready.hold_back(memory, _watermark_ms(memory, ready, latest_ms, batch.records_read_ms, hold_ms), hold_ms)
            future += _leave_out_future(memory, credible_ms)
        parts.append(Part(step, ready.heartbeats, ready.others, ready.commits))
    return Taken(parts, sifted.steps, misdated, fresh.duplicates, lost, fresh.committed, future)


class _Ready:
    """What was held back and what came now, in order. Making one leaves nothing held back in the memory."""

    def __init__(
        self,
        memory: ShardMemory,
        lines: Iterable[BrokerLine],
        blocks: Iterable[HeartbeatBlock],
        rest: Iterable[Event],
        commits: list[CommitRow],
    ) -> None:
        beats: list[Heartbeat] = []
        others = list(memory.held)
        for line in lines:
            (beats if type(line) is Heartbeat else others).append(line)  # type: ignore[arg-type] # of its own type
        others.extend(rest)
        loose = HeartbeatBlock.of_events(sorted(beats, key=order))
        self.heartbeats = HeartbeatBlock.joined([memory.held_heartbeats, *blocks, loose])
        self.others = sorted(others, key=order)
        self.commits = sorted(memory.held_commits + commits)
        memory.held, memory.held_heartbeats, memory.held_commits = [], HeartbeatBlock.of_events(()), []

    def hold_back(self, memory: ShardMemory, watermark_ms: int, hold_ms: int) -> None:
        """Hold back what is newer than an instant, except events of brokers whose clock differs from the coordinator's.

        Their instants say nothing about the coordinator's time, so these events are applied at once.
        """
        cut = len(self.others)
        while cut and self.others[cut - 1][0] > watermark_ms:
            cut -= 1
        of_other_clocks: list[Event] = []
        memory.held = []
        for event in self.others[cut:]:
            (of_other_clocks if memory.clock.is_apart(event, hold_ms) else memory.held).append(event)
        self.others[cut:] = of_other_clocks
        until = self.heartbeats.until(watermark_ms)
        memory.held_heartbeats = self.heartbeats.cut(until, self.heartbeats.length)
        self.heartbeats = self.heartbeats.cut(0, until)
        cut = bisect_right(self.commits, watermark_ms, key=itemgetter(0))
        memory.held_commits = self.commits[cut:]
        del self.commits[cut:]


def _leave_out_future(memory: ShardMemory, credible_ms: int) -> int:
    """Hold no commit that is later than an instant; return how many there were: they would be held until it comes."""
    kept = bisect_right(memory.held_commits, credible_ms, key=itemgetter(0))
    future = len(memory.held_commits) - kept
    del memory.held_commits[kept:]
    return future


def _watermark_ms(memory: ShardMemory, ready: _Ready, latest_ms: int, records_read_ms: int, hold_ms: int) -> int:
    """Return up to which instant events may be applied."""
    if not latest_ms:
        newest = ready.others[-1][0] if ready.others else 0
        committed_ms = ready.commits[-1][0] if ready.commits else 0
        latest_ms = max(newest, committed_ms, ready.heartbeats.place(-1)[0] if ready.heartbeats.length else 0)
    lines_ms = memory.clock.watermark_ms(hold_ms) if memory.clock.brokers else FAR_MS
    return max(min(lines_ms, records_read_ms), latest_ms - hold_ms)


def _note_read(memory: ShardMemory, sifted: Sifted, wall_ms: int | None) -> None:
    """Note how far the brokers have been read, and how far that is behind this machine's clock."""
    clock = memory.clock
    for step in sifted.steps:
        clock.restart_reading(step.broker, step.total_ms)
    for (broker, topic, partition), line_ms in sifted.newest.items():
        clock.read(broker, f"{topic}/{partition}", line_ms)
    if wall_ms is not None and sifted.newest:
        newest_ms = max(at_ms - clock.stepped_ms(broker) for (broker, *_), at_ms in sifted.newest.items())
        memory.behind_ms = wall_ms - newest_ms


def _present_ms(memory: ShardMemory, wall_ms: int | None) -> int | None:
    """Return the present on the brokers' clocks; None where it is not known, or the job is catching up."""
    if wall_ms is None or memory.behind_ms is None or memory.behind_ms > STALE_MS:
        return None
    return wall_ms - memory.behind_ms


def _latest_ms(memory: ShardMemory, sifted: Sifted, wall_ms: int | None) -> int:
    """Return the instant that the sources have reached on the coordinator's clock; 0: no line has come.

    That is the newest line, plus the time that has passed since it came. While the job catches up, the wall clock is
    ahead of everything that is read. So only the time without a line makes a source late, or telemetry stalled.
    """
    ahead_ms = memory.clock.stepped_ms(memory.clock.coordinator or "")
    if wall_ms is not None:
        return wall_ms - (memory.behind_ms or 0) + ahead_ms
    lines = [at_ms - memory.clock.stepped_ms(broker) for (broker, *_), at_ms in sifted.newest.items()]
    return max(lines) + ahead_ms if lines else 0


def _late_ms(memory: ShardMemory) -> int:
    """Return how late lines may be beside clients' reports, which come by another topic and wait for them.

    0 while the job catches up: then nobody knows whether the lines are late or this machine's clock is wrong.
    """
    behind_ms = memory.behind_ms or 0
    return behind_ms if 0 < behind_ms <= LATE_MS else 0


def _believed(told: Iterable[Event], latest_ms: int, hold_ms: int, misdated: list[Event]) -> list[Event]:
    """Return the events that are not from the future; add those that are to ``misdated``.

    These events move no clock, so one from the future would be held back until its instant has come.
    """
    believed: list[Event] = []
    for event in told:
        future = latest_ms and event.order_ms > latest_ms + hold_ms
        (misdated if future else believed).append(event)
    return believed


def _parted(events: list[Event], steps: Sequence[Step]) -> list[list[Event]]:
    """Divide events other than lines among the parts between the coordinator's steps.

    The instants of its records step with its clock. All other events go to the last part.
    """
    parts: list[list[Event]] = [[] for _ in range(len(steps) + 1)]
    if not steps:
        return [events]
    reached, newest_ms = 0, 0
    for event in sorted(events, key=lambda event: event[2:5]):
        if not isinstance(event, RecordRead):
            parts[-1].append(event)
            continue
        while reached < len(steps) and _is_after(event.order_ms, newest_ms, steps[reached]):
            reached, newest_ms = reached + 1, 0
        newest_ms = max(newest_ms, event.order_ms)
        parts[reached].append(event)
    return parts


def _parted_commits(rows: list[CommitRow], steps: Sequence[Step]) -> list[list[CommitRow]]:
    """Divide commits in the same way."""
    if not steps:
        return [rows]
    parts: list[list[CommitRow]] = [[] for _ in range(len(steps) + 1)]
    reached, newest_ms = 0, 0
    for row in sorted(rows, key=itemgetter(1)):
        while reached < len(steps) and _is_after(row[0], newest_ms, steps[reached]):
            reached, newest_ms = reached + 1, 0
        newest_ms = max(newest_ms, row[0])
        parts[reached].append(row)
    return parts


def _is_after(at_ms: int, newest_ms: int, step: Step) -> bool:
    """Tell whether a record was written after a step; ``newest_ms`` is the newest instant of the records before it.

    After a step ahead its instant is enough to tell. After a step back the instants of the records must go back too:
    an old instant alone may be of before the step.
    """
    middle_ms = (step.from_ms + step.to_ms) // 2
    if step.to_ms >= step.from_ms:
        return at_ms > middle_ms
    return newest_ms > middle_ms >= at_ms


def _as_read(named: list[LeaderNamed], behind_ms: int) -> list[LeaderNamed]:
    """Return the leaders that metadata named, dated by how far lines had been read then; none while catching up.

    Their instants are of this machine's clock, and current metadata cannot dispute answers of an hour ago.
    """
    if behind_ms > STALE_MS:
        return []
    return [event._replace(order_ms=event.order_ms - behind_ms) for event in named]


def _gaps(memory: ShardMemory, read: Iterable[OffsetsRead], recreated: AbstractSet[Place]) -> set[Place]:
    """Return the partitions of telemetry with missing offsets since the last batch, which retention has deleted."""
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


def _lost(
    memory: ShardMemory, sifted: Sifted, recreated: AbstractSet[Place], gaps: AbstractSet[Place]
) -> dict[str, int]:
    """Return the brokers that write to a partition with missing lines, each with the first instant of its lines now."""
    lost: dict[str, int] = {}
    if not recreated and not gaps:
        return lost
    for lines in sifted.lines:
        for line in lines:
            if line[2:4] in recreated | gaps and line.broker in memory.clock.brokers:
                lost[line.broker] = min(line.order_ms, lost.get(line.broker, line.order_ms))
    return lost


class _Fresh:
    """The events of a batch that were not read before, by kind.

    Where a topic was recreated or cut short, its offsets begin again. So an event at an offset that was read is new if
    it is newer than all that was read of that partition.
    """

    def __init__(self, memory: ShardMemory) -> None:
        self._seen, self._newest_ms, self._clock = memory.offsets, memory.newest_ms, memory.clock
        self._greatest: dict[Place, int] = {}
        self._again: dict[Place, dict[int, Event]] = {}
        """Events at offsets that were read, which are newer than all that was read of their partition."""
        self.items: list[Item] = []
        """Lines, and heartbeats as blocks."""
        self.others: list[Event] = []
        self.named: list[LeaderNamed] = []
        self.polls: list[ClientWord] = []
        self.logged: list[CoordinatorLine] = []
        self.commits: list[CommitRow] = []
        self.committed = 0
        self.duplicates = 0

    def add_block(self, block: HeartbeatBlock) -> None:
        """Take the heartbeats of one source."""
        (_, topic, partition), *others = block.sources()
        least, greatest = block.offset_span()
        place = (topic, partition)
        if others or least <= self._seen.get(place, -1):
            self.add(block.rows())
            return
        self._greatest[place] = max(self._greatest.get(place, -1), greatest)
        self.items.append(((topic, partition, least), block))

    def add_commits(self, blocks: Iterable[CommitBlock]) -> None:
        """Take offset commits."""
        for block in blocks:
            self.committed += sum(block.counts)
            self.commits += rows_of(block)

    def add(self, events: Iterable[Event]) -> None:
        """Take events: each by its kind, commits as one block."""
        commits: list[OffsetCommitted] = []
        for event in events:
            if isinstance(event, OffsetCommitted):
                commits.append(event)
                continue
            if not self._is_new(event):
                continue
            if isinstance(event, RecordRead):
                self.others.append(event)
            elif isinstance(event, LeaderNamed):
                self.named.append(event)
            elif isinstance(event, ClientWord):
                self.polls.append(event)
            elif isinstance(event, CoordinatorLine):
                self.logged.append(event)
            else:
                self.items.append((event[2:5], event))
        if commits:
            self.add_commits([CommitBlock.of_events(commits)])

    def _is_new(self, event: Event) -> bool:
        """Note the offset of an event, and tell whether the event was not read before."""
        order_ms, _, topic, partition, offset, *_ = event
        place = (topic, partition)
        if offset > self._seen.get(place, -1):
            self._greatest[place] = max(offset, self._greatest.get(place, -1))
            return True
        if type(event) is LeaderNamed:  # a leader is named in each batch, at the same offset until it changes
            return False
        apart_ms = self._clock.stepped_ms(getattr(event, "broker", ""))
        if order_ms - apart_ms <= self._newest_ms.get(place, FAR_MS):
            self.duplicates += 1
            return False
        self._again.setdefault(place, {})[offset] = event
        return True

    def recreated(self, sifted: Sifted) -> set[Place]:
        """Return the partitions whose offsets begin again: one event at an offset that was read is credible."""
        doubted = {line[2:5] for line in sifted.misdated} | {line[2:5] for line in sifted.waiting}
        return {place for place, events in self._again.items() if any(e[2:5] not in doubted for e in events.values())}

    def note_offsets(self, memory: ShardMemory, sifted: Sifted, recreated: AbstractSet[Place]) -> None:
        """Note the offsets and instants that were read now, and leave out commits that were read before."""
        read_to, rows = memory.commits_read, len(self.commits)
        self.commits = fresh_rows(self.commits, read_to)
        self.duplicates += rows - len(self.commits)
        memory.commits_read = now_read(self.commits, read_to)
        memory.offsets = self._seen | self._greatest | {place: max(self._again[place]) for place in recreated}
        newest_ms = memory.newest_ms
        for (broker, topic, partition), at_ms in sifted.newest.items():
            here_ms = at_ms - memory.clock.stepped_ms(broker)
            newest_ms[topic, partition] = max(here_ms, newest_ms.get((topic, partition), 0))
        for event in self.others:
            place = (event[2], event[3])
            newest_ms[place] = max(event[0], newest_ms.get(place, 0))

"""When each partition was last committed. A commit is a sign of life of the partition's owner.

Nearly all records of the offsets topic are offset commits. So here they are rows of a block, not events: a commit of a
known partition costs a lookup in a dict and a write to an array. A partition has a slot while its newest commit is
younger than ``COMMIT_MEMORY_MS``. A simple group has no records but commits, and ends when its last commit is deleted
by a tombstone. So the partitions of simple groups are kept separately, each as long as it has a commit.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from coordinator_model.brokers.timer_reset import LONGEST_SESSION_MS
from coordinator_model.commit_block import NO_OFFSET, CommitBlock, key_of

COMMIT_MEMORY_MS = LONGEST_SESSION_MS
"""A session that an older offset commit restarted has ended by now, or was restarted again."""
SWEEP_EVERY_MS = 60_000
"""How often old commits are dropped. The commit index has to be written again each time."""
CommitRow = tuple[int, int, bytes, bool]
"""A record's instant, its offset, its key without the version, and whether it is a tombstone. Rows sort by instant."""


class ReadTo(NamedTuple):
    """How far commits were read, by offset and by instant."""

    offset: int = -1
    at_ms: int = 0


NOTHING_READ = ReadTo()


def rows_of(block: CommitBlock) -> Iterable[CommitRow]:
    """Return the rows of a block, as the shard applies them."""
    return zip(block.record_ms, block.record_offsets, block.keys, map(NO_OFFSET.__eq__, block.offsets), strict=True)


class CommitTimes:
    """The last commits of one shard's partitions, by the key of their records."""

    __slots__ = ("_free", "index", "last", "simple", "slots", "swept_ms")

    def __init__(self) -> None:
        self.slots: dict[bytes, int] = {}
        self.last = array("q")
        self.simple: dict[str, set[bytes]] = {}
        """By simple group: the keys of the partitions for which it has a commit."""
        self.swept_ms = 0
        self.index: bytes | None = None
        """Slots and simple groups as ``snapshot`` last wrote them; None: they have changed since then."""
        self._free: list[int] = []

    def take(self, rows: Iterable[CommitRow]) -> Iterator[CommitRow]:
        """Note when partitions were committed. Yield tombstones, and the rows of partitions without a slot."""
        slots, last = self.slots, self.last
        for row in rows:
            record_ms, _, key, gone = row
            slot = slots.get(key)
            if slot is None or gone:
                yield row
            elif record_ms > last[slot]:
                last[slot] = record_ms

    def add(self, key: bytes, record_ms: int) -> None:
        """Give a partition a slot."""
        if self._free:
            slot = self._free.pop()
            self.last[slot] = record_ms
        else:
            slot = len(self.last)
            self.last.append(record_ms)
        self.slots[key] = slot
        self.index = None

    def drop(self, key: bytes) -> None:
        """Free a partition's slot, if it has one."""
        slot = self.slots.pop(key, None)
        if slot is not None:
            self._free.append(slot)
            self.index = None

    def begin_simple(self, group: str) -> None:
        """Start keeping the partitions of a group, because it is a simple group."""
        self.simple[group] = set()
        self.index = None

    def end_simple(self, group: str) -> None:
        """Stop keeping the partitions of a group, because it is gone or has members."""
        if self.simple.pop(group, None) is not None:
            self.index = None

    def keep_simple(self, group: str, key: bytes) -> None:
        """Keep a partition of a simple group."""
        keys = self.simple.get(group)
        if keys is not None and key not in keys:
            keys.add(key)
            self.index = None

    def drop_simple(self, group: str, key: bytes) -> bool:
        """Drop a partition of a simple group. Return whether it was the group's last partition."""
        keys = self.simple.get(group)
        if keys is None or key not in keys:
            return False
        keys.remove(key)
        self.index = None
        return not keys

    def of_group(self, group: str, progress_ms: int) -> "GroupCommits":
        """Return a group's newest commits that still matter at an instant. Older ones are swept later, or never."""
        return GroupCommits(group, self, progress_ms - COMMIT_MEMORY_MS)

    def rebase(self, delta_ms: int) -> None:
        """Move all instants along with the coordinator's clock."""
        self.last = array("q", [at_ms + delta_ms for at_ms in self.last])
        self.swept_ms += delta_ms

    def sweep(self, progress_ms: int) -> None:
        """Forget the partitions whose last commit is too old to matter, at most once in ``SWEEP_EVERY_MS``."""
        if abs(progress_ms - self.swept_ms) < SWEEP_EVERY_MS:
            return
        self.swept_ms, horizon_ms = progress_ms, progress_ms - COMMIT_MEMORY_MS
        for key in [key for key, slot in self.slots.items() if self.last[slot] <= horizon_ms]:
            self.drop(key)

    def pack(self) -> None:
        """Put the slots in the order of their keys, and remove free slots."""
        self.last = array("q", map(self.last.__getitem__, self.slots.values()))
        self.slots = {key: slot for slot, key in enumerate(self.slots)}
        self._free.clear()


class GroupCommits:
    """The newest commits of one group, by topic and partition."""

    __slots__ = ("_group", "_horizon_ms", "_times")

    def __init__(self, group: str, times: CommitTimes, horizon_ms: int) -> None:
        self._group, self._times, self._horizon_ms = group, times, horizon_ms

    def __bool__(self) -> bool:
        return bool(self._times.slots)

    def get(self, place: tuple[str, int]) -> int | None:
        """Return when a partition was last committed; None: not within ``COMMIT_MEMORY_MS``."""
        slot = self._times.slots.get(key_of(self._group, *place))
        last_ms = None if slot is None else self._times.last[slot]
        return None if last_ms is None or last_ms <= self._horizon_ms else last_ms


class CommitQueue:
    """The commits of a part of a batch that have not been applied yet, in order."""

    __slots__ = ("_done", "_rows")

    def __init__(self, rows: Sequence[CommitRow] = ()) -> None:
        self._rows, self._done = rows, 0

    def before(self, place: tuple[Any, ...]) -> Sequence[CommitRow]:
        """Return the next commits before a place, which is ``(instant, offset)`` or ``(instant,)``."""
        start = self._done
        if start == len(self._rows) or self._rows[start] >= place:
            return ()
        self._done = bisect_left(self._rows, place, start)
        return self._rows[start : self._done]


def fresh_rows(rows: list[CommitRow], read_to: ReadTo) -> list[CommitRow]:
    """Return the rows that were not read before. A recreated topic has lower offsets, with newer instants."""
    if all(offset > read_to.offset for _, offset, _, _ in rows):
        return rows
    return [row for row in rows if row[1] > read_to.offset or row[0] > read_to.at_ms]


def now_read(rows: list[CommitRow], read_to: ReadTo, credible_ms: int) -> ReadTo:
    """Return how far commits have been read, after these rows. Instants after ``credible_ms`` do not count."""
    if not rows:
        return read_to
    offsets, newest_ms = [row[1] for row in rows], max(rows, key=itemgetter(0))[0]
    if newest_ms > credible_ms:
        newest_ms = max((row[0] for row in rows if row[0] <= credible_ms), default=0)
    again = min(offsets) <= read_to.offset
    return ReadTo(max(offsets) if again else max(read_to.offset, *offsets), max(newest_ms, read_to.at_ms))

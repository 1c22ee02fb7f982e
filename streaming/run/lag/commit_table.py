"""The newest commits of every partition: one column per fact, and one row ("slot") per partition of a group.

240,000 partitions take a few megabytes of numbers here; they would be millions of Python objects. A batch's commits are
applied by operations on whole columns; only a new partition is handled by itself. A slot is in use as long as it has a
commit or an owner.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np

from coordinator_model.commit_block import NO_OFFSET, PARTITION_BYTES, CommitBlock, key_of, place_of
from coordinator_model.events import FAR_MS
from coordinator_model.lag.partition import MIN_DISTANCE_MS, WINDOW
from coordinator_model.lag.window import AHEAD_MS
from streaming.run.lag.names import Names

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]
Int8s = np.ndarray[Any, np.dtype[np.int8]]
EndsOf = Callable[[Int32s, Int32s, Int64s], Int64s]
"""From topic numbers, partition numbers and instants to end offsets known at those instants, else `NO_OFFSET`."""

NOBODY = -1
SHARED = -2
"""The owner of a partition of a share group: any number of members."""
FIRST_CAPACITY = 1_024
COLUMNS: dict[str, tuple[type[np.signedinteger[Any]], int]] = {
    "group": (np.int32, NOBODY),
    "topic": (np.int32, NOBODY),
    "partition": (np.int32, 0),
    "topic_id": (np.int32, 0),
    "leader_epoch": (np.int32, -1),
    "record_offset": (np.int64, -1),
    "owner": (np.int32, NOBODY),
    "since_ms": (np.int64, 0),
    "head": (np.int8, 0),
    "filled": (np.int8, 0),
}
"""By name: the type, and the value in a free slot."""
WINDOWS = ("offsets", "at_ms", "ends")
_KEPT = tuple(name for name in COLUMNS if name not in ("group", "topic", "partition"))  # these are in the key


class Windows(NamedTuple):
    """The commits of some slots, one row each, oldest first; only the last `filled` entries of a row are commits."""

    offsets: Int64s
    at_ms: Int64s
    ends: Int64s
    filled: Int8s


class _Rows(NamedTuple):
    """Rows of blocks; `numbers` are their positions among all rows of the batch, `topic_ids` the numbers of the ids."""

    slots: Int64s
    numbers: Int64s
    offsets: Int64s
    record_ms: Int64s
    record_offsets: Int64s
    leader_epochs: Int64s
    counts: Int64s
    topic_ids: Int64s

    def take(self, chosen: Int64s) -> "_Rows":
        return _Rows(*(column[chosen] for column in self))


class CommitTable:
    """The columns and slots; `groups` and `topics` give numbers to the names in use."""

    group: Int32s
    topic: Int32s
    partition: Int32s
    topic_id: Int32s
    leader_epoch: Int32s
    record_offset: Int64s
    owner: Int32s
    since_ms: Int64s
    head: Int8s
    filled: Int8s
    offsets: Int64s
    at_ms: Int64s
    ends: Int64s

    def __init__(self) -> None:
        self.groups, self.topics = Names(), Names()
        self.topic_ids: list[bytes] = [b""]
        """By number; 0: the commit has no topic id."""
        self._id_numbers = {b"": 0}
        self.metadata: dict[int, str] = {}
        self.commits: dict[str, int] = {}
        """The number of commits of each group so far."""
        self._slots: dict[bytes, int] = {}
        self._keys: list[bytes] = []
        self._free: list[int] = []
        self._of_group: dict[int, list[int]] = {}
        self._stale: set[int] = set()
        """The numbers of groups whose list in `_of_group` still contains freed slots."""
        for name, (kind, nothing) in COLUMNS.items():
            setattr(self, name, np.full(FIRST_CAPACITY, nothing, kind))
        for name in WINDOWS:
            setattr(self, name, np.full((FIRST_CAPACITY, WINDOW), NO_OFFSET, np.int64))

    def __len__(self) -> int:
        return len(self._slots)

    # ------------------------------------------------------------------ commits

    def apply(self, blocks: Sequence[CommitBlock], ends_of: EndsOf, read_ms: int = FAR_MS) -> set[str]:
        """Apply a batch's commits, their blocks in any order; return the groups that have new ones.

        For each partition the newest record offset wins: a row that is not newer than what is known changes nothing.
        ``read_ms``: when they were read; a commit with a later timestamp counts as of then.
        """
        rows = self._new_rows(blocks)
        rows = rows._replace(record_ms=np.where(rows.record_ms > read_ms + AHEAD_MS, read_ms, rows.record_ms))
        if not len(rows.slots):
            return set()
        groups = self._count(rows)
        for turn in _turns(rows.slots):
            self._append(rows.take(turn), ends_of)
        self._note_metadata(blocks, rows.take(turn))
        self.free_unused(rows.slots[turn])
        return groups

    def _count(self, rows: _Rows) -> set[str]:
        numbers, of_row = np.unique(self.group[rows.slots], return_inverse=True)
        groups = [self.groups[number] for number in numbers.tolist()]
        counts = np.bincount(of_row, rows.counts).astype(np.int64).tolist()
        for group, count in zip(groups, counts, strict=True):
            self.commits[group] = self.commits.get(group, 0) + count
        return set(groups)

    def _new_rows(self, blocks: Sequence[CommitBlock]) -> _Rows:
        """Return the rows that are newer than what is known, by slot, then by record offset."""
        ids = list(chain.from_iterable(block.topic_ids for block in blocks))
        rows = _joined(blocks, [self._number_of(topic_id) for topic_id in ids] if any(ids) else [0] * len(ids))
        keys = list(chain.from_iterable(block.keys for block in blocks))
        slots = rows._replace(slots=self._slots_of(keys, rows.offsets != NO_OFFSET))
        new = np.flatnonzero((slots.slots >= 0) & (rows.record_offsets > self.record_offset[slots.slots]))
        return slots.take(new[np.lexsort((rows.record_offsets[new], slots.slots[new]))])

    def _slots_of(self, keys: Sequence[bytes], is_commit: np.ndarray[Any, np.dtype[np.bool_]]) -> Int64s:
        """Return the slot of each key, creating it if there is none yet; a tombstone alone creates none (-1)."""
        found = self._found(keys)
        unknown = found < 0
        new = dict.fromkeys(keys[index] for index in np.flatnonzero(unknown & is_commit).tolist())
        self._make_all(list(new))
        return self._found(keys) if unknown.any() else found

    def _found(self, keys: Sequence[bytes]) -> Int64s:
        return np.fromiter(map(self._slots.get, keys, repeat(-1)), np.int64, len(keys))

    def _number_of(self, topic_id: bytes) -> int:
        number = self._id_numbers.get(topic_id)
        if number is None:
            number = self._id_numbers[topic_id] = len(self.topic_ids)
            self.topic_ids.append(topic_id)
        return number

    def _append(self, rows: _Rows, ends_of: EndsOf) -> None:
        """Apply at most one row per slot, as `coordinator_model.lag.window.extended` does with one commit.

        The window starts again if the topic id shows that the topic was recreated under the same name.
        """
        slots, head, known_id = rows.slots, self.head[rows.slots], self.topic_id[rows.slots]
        is_another = (known_id > 0) & (rows.topic_ids > 0) & (known_id != rows.topic_ids)
        filled = np.where(is_another, 0, self.filled[slots])
        newest_ms = self.at_ms[slots, head]
        replaces = (filled > 1) & (newest_ms - self.at_ms[slots, head - 1] < MIN_DISTANCE_MS)
        at_ms = np.where(filled > 0, np.maximum(rows.record_ms, newest_ms), rows.record_ms)
        head = np.where(replaces, head, (head + 1) % WINDOW)
        filled = np.where(replaces, filled, np.minimum(filled + 1, WINDOW))
        self.head[slots] = head
        is_commit = rows.offsets != NO_OFFSET
        self.filled[slots] = np.where(is_commit, filled, 0)
        self.offsets[slots, head] = rows.offsets
        self.at_ms[slots, head] = at_ms
        self.ends[slots, head] = ends_of(self.topic[slots], self.partition[slots], at_ms)
        self.record_offset[slots] = rows.record_offsets
        self.leader_epoch[slots] = rows.leader_epochs
        topic_ids = np.where(rows.topic_ids > 0, rows.topic_ids, known_id)
        self.topic_id[slots] = np.where(is_commit, topic_ids, 0)

    def _note_metadata(self, blocks: Sequence[CommitBlock], newest: _Rows) -> None:
        """Store the metadata of the newest commits; most have none."""
        starts = np.cumsum([0, *(len(block.keys) for block in blocks)]).tolist()
        texts = {
            start + row: text
            for start, block in zip(starts, blocks, strict=False)
            for row, text in block.metadata.items()
        }
        if texts or self.metadata:
            for slot, index in zip(newest.slots.tolist(), newest.numbers.tolist(), strict=True):
                if index in texts:
                    self.metadata[slot] = texts[index]
                else:
                    self.metadata.pop(slot, None)

    # ------------------------------------------------------------------ slots

    def slots_for(self, group: str, topic: str, partitions: Iterable[int]) -> list[int]:
        """Return the slots of partitions of a topic, creating them if needed."""
        head = key_of(group, topic, 0)[:-PARTITION_BYTES]
        keys = [head + number.to_bytes(PARTITION_BYTES, "big") for number in partitions]
        slots = list(map(self._slots.get, keys))
        if None in slots:
            self._make_all(list(dict.fromkeys(key for key in keys if key not in self._slots)))
            slots = list(map(self._slots.get, keys))
        return slots  # type: ignore[return-value] # each has one now

    def slots_of(self, group: str) -> Int64s:
        """Return the slots of a group."""
        number = self.groups.get(group)
        if number < 0:
            return np.empty(0, np.int64)
        if number in self._stale:
            self._stale.remove(number)
            self._of_group[number] = [*{slot for slot in self._of_group[number] if self.group[slot] == number}]
        return np.array(self._of_group[number], np.int64)

    def windows(self, slots: Int64s) -> Windows:
        """Return the commits of some slots."""
        at = (self.head[slots][:, None] + 1 + np.arange(WINDOW)) % WINDOW
        rows = slots[:, None]
        return Windows(self.offsets[rows, at], self.at_ms[rows, at], self.ends[rows, at], self.filled[slots])

    def newest(self, slots: Int64s) -> Int64s:
        """Return the offsets committed last, or `NO_OFFSET` if there is no commit."""
        return np.where(self.filled[slots] > 0, self.offsets[slots, self.head[slots]], NO_OFFSET)

    def newest_ms(self, slots: Int64s) -> Int64s:
        """Return when these were committed; the value is meaningless if there is no commit."""
        return self.at_ms[slots, self.head[slots]]

    def forget(self, group: str, until_ms: int) -> None:
        """Forget the commits of a group that was deleted at an instant, except those made since."""
        slots = self.slots_of(group)
        slots = slots[self.newest_ms(slots) <= until_ms]
        self.filled[slots] = 0
        self.free_unused(slots)

    def free_unused(self, slots: Int64s) -> None:
        """Free those of the slots that have no commit and no owner."""
        unused = slots[(self.filled[slots] == 0) & (self.owner[slots] == NOBODY)]
        for slot in dict.fromkeys(unused.tolist()):
            self._drop(slot)

    def _make_all(self, keys: Sequence[bytes]) -> None:
        """Create slots for keys that have none; after a start these are hundreds of thousands."""
        if not keys:
            return
        free = [self._free.pop() for _ in range(min(len(keys), len(self._free)))]
        first = len(self._keys)
        self._make_at(keys, [*free, *range(first, first + len(keys) - len(free))])

    def _make_at(self, keys: Sequence[bytes], slots: Sequence[int]) -> None:
        beyond = max(slots, default=-1) + 1 - len(self._keys)
        self._keys.extend(repeat(b"", beyond))
        if len(self._keys) > len(self.group):
            self._grow(max(len(self._keys), len(self.group) * 3 // 2))
        self._slots.update(zip(keys, slots, strict=True))
        of_topic: dict[bytes, list[int]] = {}
        for key, slot in zip(keys, slots, strict=True):
            self._keys[slot] = key
            of_topic.setdefault(key[:-PARTITION_BYTES], []).append(slot)
        for own in of_topic.values():
            group, topic, _ = place_of(self._keys[own[0]])
            number = self.groups.use(group, len(own))
            self._of_group.setdefault(number, []).extend(own)
            self.group[own], self.topic[own] = number, self.topics.use(topic, len(own))
        partitions = b"".join([key[-PARTITION_BYTES:] for key in keys])
        self.partition[list(slots)] = np.frombuffer(partitions, ">i4")

    def _drop(self, slot: int) -> None:
        del self._slots[self._keys[slot]]
        self._keys[slot] = b""
        number = int(self.group[slot])
        group = self.groups[number]
        self._stale.add(number)
        if self.groups.release(number):
            self.commits.pop(group, None)
            del self._of_group[number]
            self._stale.remove(number)
        self.topics.release(int(self.topic[slot]))
        self.metadata.pop(slot, None)
        for name, (_, nothing) in COLUMNS.items():
            getattr(self, name)[slot] = nothing
        self._free.append(slot)

    def _grow(self, capacity: int) -> None:
        more = capacity - len(self.group)
        for name, (kind, nothing) in COLUMNS.items():
            setattr(self, name, np.concatenate([getattr(self, name), np.full(more, nothing, kind)]))
        for name in WINDOWS:
            rows = np.full((more, WINDOW), NO_OFFSET, np.int64)
            setattr(self, name, np.concatenate([getattr(self, name), rows]))

    # ------------------------------------------------------------------ kept over a restart

    def dump(self) -> dict[str, Any]:
        """Return the whole content in a form that `marshal` can write."""
        slots = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        columns = {name: getattr(self, name)[slots].tobytes() for name in (*_KEPT, *WINDOWS)}
        place = {slot: index for index, slot in enumerate(slots.tolist())} if self.metadata else {}
        metadata = {place[slot]: text for slot, text in self.metadata.items()}
        return {
            "keys": list(self._slots),
            "columns": columns,
            "topic_ids": self.topic_ids,
            "metadata": metadata,
            "commits": self.commits,
        }

    @classmethod
    def load(cls, kept: dict[str, Any]) -> "CommitTable":
        """Return the table that was dumped."""
        table = cls()
        table._make_all(kept["keys"])
        count = len(kept["keys"])
        for name in _KEPT:
            getattr(table, name)[:count] = np.frombuffer(kept["columns"][name], COLUMNS[name][0])
        for name in WINDOWS:
            getattr(table, name)[:count] = np.frombuffer(kept["columns"][name], np.int64).reshape(count, WINDOW)
        for topic_id in kept["topic_ids"]:
            table._number_of(topic_id)
        table.metadata, table.commits = dict(kept["metadata"]), dict(kept["commits"])
        return table


def _joined(blocks: Sequence[CommitBlock], topic_ids: list[int]) -> _Rows:
    """Return all rows of the blocks; their slots are still to be filled in."""
    names = ("offsets", "record_ms", "record_offsets", "leader_epochs", "counts")
    columns = [
        np.concatenate([np.empty(0, np.int64), *(np.asarray(getattr(b, n), np.int64) for b in blocks)]) for n in names
    ]
    numbers = np.arange(len(columns[0]))
    return _Rows._make([numbers, numbers, *columns, np.array(topic_ids, np.int64)])


def _turns(slots: Int64s) -> Iterator[Int64s]:
    """Yield indexes into sorted slots, in turns: each slot at most once per turn, in order; the last has all slots."""
    firsts = np.flatnonzero(np.diff(slots, prepend=-1))
    after = np.append(firsts[1:], len(slots))
    before_last = np.repeat(after, after - firsts) - 1 - np.arange(len(slots))
    for rank in range(min(int(before_last.max()), WINDOW - 1), -1, -1):
        yield np.flatnonzero(before_last == rank)

"""The newest commits of every partition: one column per fact, and one row ("slot") per partition of a group.

240,000 partitions take a few megabytes of numbers here; they would be millions of Python objects. A batch's commits are
applied by operations on whole columns; only a new *pair* (a group and a topic) is handled by itself. A slot is in use
as long as it has a commit or an owner.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_model.commit_block import NO_OFFSET, PARTITION_BYTES, CommitBlock, key_of, place_of
from coordinator_model.events import FAR_MS
from coordinator_model.lag.partition import MIN_DISTANCE_MS, WINDOW
from coordinator_model.lag.window import AHEAD_MS
from streaming.run.lag.names import Names
from streaming.run.lag.slot_index import NO_SLOT, Int32s, Int64s, SlotIndex, distinct, place_numbers, split_numbers

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Int8s = np.ndarray[Any, np.dtype[np.int8]]
EndsOf = Callable[[Int32s, Int32s, Int64s], Int64s]
"""From topic numbers, partition numbers and instants to end offsets known at those instants, else `NO_OFFSET`."""

NOBODY = -1
SHARED = -2
"""The owner of a partition of a share group: any number of members."""
FIRST_CAPACITY = 1_024
COLUMNS: dict[str, tuple[type[np.signedinteger[Any]], int]] = {
    "pair": (np.int32, NOBODY),
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
_KEPT = tuple(name for name in COLUMNS if name not in ("pair", "group", "topic", "partition"))  # these are in the key


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


class Places(NamedTuple):
    """Partitions of groups: the keys of pairs, and for each partition the index of its pair, and its number."""

    pairs: Sequence[bytes]
    of_pair: Int64s
    partitions: Int32s

    @classmethod
    def of_keys(cls, keys: Sequence[bytes]) -> "Places":
        """Split whole keys."""
        # Everything is passed as buffers: `pa.array` and `to_numpy` would load pandas.
        ends, data = np.cumsum([0, *map(len, keys)]), b"".join(keys)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
        column = pa.Array.from_buffers(pa.large_binary(), len(keys), buffers)
        pairs = pc.binary_slice(column, 0, -PARTITION_BYTES).dictionary_encode()
        of_pair, numbers = pairs.indices.buffers()[1], pc.binary_slice(column, -PARTITION_BYTES).buffers()[2]
        return cls(
            pairs.dictionary.to_pylist(),
            np.frombuffer(of_pair or b"", np.int32, len(keys)).astype(np.int64),
            np.frombuffer(numbers or b"", ">i4", len(keys)).astype(np.int32),
        )


def pair_key(group: str, topic: str) -> bytes:
    """Return the key of a pair: what the keys of its partitions have in common."""
    return key_of(group, topic, 0)[:-PARTITION_BYTES]


class CommitTable:
    """The columns and slots; `groups` and `topics` give numbers to the names in use."""

    pair: Int32s
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
        self.groups: Names[str] = Names()
        self.topics: Names[str] = Names()
        self.topic_ids: list[bytes] = [b""]
        """By number; 0: the commit has no topic id."""
        self._id_numbers = {b"": 0}
        self.metadata: dict[int, str] = {}
        self.commits: dict[str, int] = {}
        """The number of commits of each group so far."""
        self._pairs: Names[bytes] = Names()
        """The keys of pairs."""
        self._index = SlotIndex()
        self._size = 0
        self._free: list[int] = []
        self._pairs_of: dict[int, set[int]] = {}
        """By group."""
        self._named: dict[int, tuple[int, int]] = {}
        """The group and the topic of each pair."""
        for name, (kind, nothing) in COLUMNS.items():
            setattr(self, name, np.full(FIRST_CAPACITY, nothing, kind))
        for name in WINDOWS:
            setattr(self, name, np.full((FIRST_CAPACITY, WINDOW), NO_OFFSET, np.int64))

    def __len__(self) -> int:
        return len(self._index)

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
        slots = rows._replace(slots=self.slots_for(Places.of_keys(keys), rows.offsets != NO_OFFSET))
        new = np.flatnonzero((slots.slots >= 0) & (rows.record_offsets > self.record_offset[slots.slots]))
        return slots.take(new[np.lexsort((rows.record_offsets[new], slots.slots[new]))])

    def _number_of(self, topic_id: bytes) -> int:
        number = self._id_numbers.get(topic_id)
        if number is None:
            number = self._id_numbers[topic_id] = len(self.topic_ids)
            self.topic_ids.append(topic_id)
        return number

    def _forget_unused_ids(self) -> None:
        """Forget the topic ids that no slot has any more, or there would be ever more where topics are recreated."""
        used, numbers = np.unique(np.append(self.topic_id, 0), return_inverse=True)
        self.topic_id = numbers[:-1].astype(np.int32)
        self.topic_ids = [self.topic_ids[number] for number in used.tolist()]
        self._id_numbers = {topic_id: number for number, topic_id in enumerate(self.topic_ids)}

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

    def slots_for(self, places: Places, is_needed: Flags | None = None) -> Int64s:
        """Return the slots of partitions, and create those that are needed (None: all); a missing one is `NO_SLOT`."""
        needed = places.of_pair if is_needed is None else places.of_pair[is_needed]
        pairs = np.array([self._pairs.get(key) for key in places.pairs], np.int64)
        for at in np.unique(needed[pairs[needed] < 0]).tolist():
            pairs[at] = self._new_pair(places.pairs[at])
        numbers = place_numbers(pairs[places.of_pair], places.partitions)
        slots = self._index.find(numbers)
        is_new = slots == NO_SLOT if is_needed is None else (slots == NO_SLOT) & is_needed
        if not is_new.any():
            return slots
        self._make(distinct(numbers[is_new]))
        return self._index.find(numbers)

    def slots_of(self, group: str) -> Int64s:
        """Return the slots of a group."""
        return self.slots_of_each([group])[0]

    def slots_of_each(self, groups: Sequence[str]) -> tuple[Int64s, Int64s]:
        """Return the slots of groups, one group after the other, and how many each has."""
        listed = [self._pairs_of.get(self.groups.get(group), ()) for group in groups]
        slots, sizes = self._index.of_pairs(np.array([*chain.from_iterable(listed)], np.int64))
        ends = np.cumsum([0, *map(len, listed)])
        return slots, np.diff(np.append(0, np.cumsum(sizes))[ends])

    def windows(self, slots: Int64s) -> Windows:
        """Return the commits of some slots."""
        at = (self.head[slots][:, None] + 1 + np.arange(WINDOW)) % WINDOW
        rows = slots[:, None]
        return Windows(self.offsets[rows, at], self.at_ms[rows, at], self.ends[rows, at], self.filled[slots])

    def newest(self, slots: Int64s) -> Int64s:
        """Return the offsets committed last, or `NO_OFFSET` if there is no commit."""
        return np.where(self.filled[slots] > 0, self.offsets[slots, self.head[slots]], NO_OFFSET)

    def committed_topics(self) -> set[str]:
        """Return the topics with commits. Another thread may call this, and may miss what changes meanwhile."""
        filled, topics = self.filled, self.topic
        size = min(len(filled), len(topics))
        numbers = np.unique(topics[:size][filled[:size] > 0]).tolist()
        return {name for number in numbers if number >= 0 and (name := self.topics.by_number[number]) is not None}

    def owned(self) -> Iterator[tuple[str, str, int]]:
        """Yield group, topic, and how many of its partitions the group's members own.

        Another thread may call this, and may miss what changes meanwhile.
        """
        owner, pair = self.owner, self.pair
        size = min(len(owner), len(pair))
        pairs, counts = np.unique(pair[:size][owner[:size] >= 0], return_counts=True)
        for number, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            of_group, of_topic = self._named.get(number, (NOBODY, NOBODY))
            group, topic = self.groups.by_number[of_group], self.topics.by_number[of_topic]
            if of_group != NOBODY and group is not None and topic is not None:
                yield group, topic, count

    def newest_ms(self, slots: Int64s) -> Int64s:
        """Return when these were committed; the value is meaningless if there is no commit."""
        return self.at_ms[slots, self.head[slots]]

    def forget(self, groups: Sequence[str], until_ms: Sequence[int]) -> None:
        """Forget the owners of groups that were deleted at instants, and their commits, except those made since."""
        slots, sizes = self.slots_of_each(groups)
        self.owner[slots] = NOBODY
        is_over = self.newest_ms(slots) <= np.repeat(np.array(until_ms, np.int64), sizes)
        self.filled[slots[is_over]] = 0
        self.free_unused(slots)

    def free_unused(self, slots: Int64s) -> None:
        """Free those of the slots that have no commit and no owner."""
        unused = distinct(slots[(self.filled[slots] == 0) & (self.owner[slots] == NOBODY)])
        if len(unused):
            self._drop(unused)

    def _new_pair(self, key: bytes) -> int:
        group, topic, _ = place_of(key + bytes(PARTITION_BYTES))
        pair, number = self._pairs.use(key), self.groups.use(group)
        self._pairs_of.setdefault(number, set()).add(pair)
        self._named[pair] = number, self.topics.use(topic)
        return pair

    def _make(self, places: Int64s) -> None:
        """Create slots for places, which are sorted and have none; after a start these are hundreds of thousands."""
        free = [self._free.pop() for _ in range(min(len(places), len(self._free)))]
        first, self._size = self._size, self._size + len(places) - len(free)
        if self._size > len(self.pair):
            self._grow(max(self._size, len(self.pair) * 3 // 2))
        slots = np.append(np.array(free, np.int64), np.arange(first, self._size))
        self._index.add(places, slots)
        self.pair[slots], self.partition[slots] = split_numbers(places)
        pairs, numbers = np.unique(self.pair[slots], return_inverse=True)
        named = np.array([self._named[pair] for pair in pairs.tolist()], np.int32)[numbers]
        self.group[slots], self.topic[slots] = named.T

    def _drop(self, slots: Int64s) -> None:
        pairs = np.unique(self.pair[slots]).astype(np.int64)
        self._index.remove(place_numbers(self.pair[slots], self.partition[slots]))
        for pair in pairs[self._index.of_pairs(pairs)[1] == 0].tolist():
            self._drop_pair(pair)
        for slot in slots.tolist() if self.metadata else ():
            self.metadata.pop(slot, None)
        for name, (_, nothing) in COLUMNS.items():
            getattr(self, name)[slots] = nothing
        self._free += slots.tolist()

    def _drop_pair(self, pair: int) -> None:
        self._pairs.release(pair)
        number, topic = self._named.pop(pair)
        group = self.groups[number]
        self._pairs_of[number].remove(pair)
        if self.groups.release(number):
            self.commits.pop(group, None)
            del self._pairs_of[number]
        self.topics.release(topic)

    def _grow(self, capacity: int) -> None:
        for name in (*COLUMNS, *WINDOWS):
            column = getattr(self, name)
            kind, nothing = COLUMNS.get(name, (np.int64, NO_OFFSET))
            grown = np.full((capacity, *column.shape[1:]), nothing, kind)
            grown[: len(column)] = column
            setattr(self, name, grown)

    # ------------------------------------------------------------------ kept over a restart

    def dump(self) -> dict[str, Any]:
        """Return the whole content in a form that `marshal` can write."""
        self._forget_unused_ids()
        slots = self._index.slots
        pairs, partitions = self._pairs.by_number, self.partition[slots].astype(">i4").tobytes()
        keys = [
            (pairs[pair] or b"") + partitions[at * PARTITION_BYTES : (at + 1) * PARTITION_BYTES]
            for at, pair in enumerate(self.pair[slots].tolist())
        ]
        columns = {name: getattr(self, name)[slots].tobytes() for name in (*_KEPT, *WINDOWS)}
        place = {slot: index for index, slot in enumerate(slots.tolist())} if self.metadata else {}
        metadata = {place[slot]: text for slot, text in self.metadata.items()}
        return {
            "keys": keys,
            "columns": columns,
            "topic_ids": self.topic_ids,
            "metadata": metadata,
            "commits": self.commits,
        }

    @classmethod
    def load(cls, kept: dict[str, Any]) -> "CommitTable":
        """Return the table that was dumped."""
        table = cls()
        slots = table.slots_for(Places.of_keys(kept["keys"]))
        for name in _KEPT:
            getattr(table, name)[slots] = np.frombuffer(kept["columns"][name], COLUMNS[name][0])
        for name in WINDOWS:
            getattr(table, name)[slots] = np.frombuffer(kept["columns"][name], np.int64).reshape(len(slots), WINDOW)
        for topic_id in kept["topic_ids"]:
            table._number_of(topic_id)
        table.metadata = {int(slots[at]): text for at, text in kept["metadata"].items()}
        table.commits = dict(kept["commits"])
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

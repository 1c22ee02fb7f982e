"""Conversion of columns to what the core judges: `PartitionLag` objects of some groups, at a round of end offsets."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from coordinator_model.commit_block import NO_OFFSET
from coordinator_model.decode.topic_ids import text_of
from coordinator_model.lag.partition import WINDOW, Commit, Owner, PartitionLag
from streaming.run.lag.commit_table import CommitTable
from streaming.run.lag.group_views import SeenGroup
from streaming.run.lag.rounds import History, Round
from streaming.run.lag.slot_index import Int32s, Int64s

_COLUMN = np.arange(WINDOW)
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Columns(NamedTuple):
    """For some slots: the round's offsets of their partitions, and which of their commits count at the round."""

    slots: Int64s
    topics: Int32s
    partitions: Int32s
    ends: Int64s
    starts: Int64s
    asked_ms: Int64s
    answered_since_ms: Int64s
    first: Int64s
    """`first` and `last`: the window's columns of the first and the last commit."""
    last: Int64s
    waits_since_ms: Int64s
    is_behind: Any
    """Whether messages wait, or that is not known."""


class Partitions:
    """What is known of the partitions of some groups; those that no longer exist are left out.

    The columns are sorted by group, topic and partition; objects are made for one group at a time.
    """

    def __init__(self, table: CommitTable, at: Round, history: History, groups: Sequence[SeenGroup]) -> None:
        self.table, self.at, self.groups = table, at, groups
        slots, sizes = table.slots_of_each([group.facts.group for group in groups])
        exists = _exist(table, at, slots)
        slots, of_group = slots[exists], np.repeat(np.arange(len(groups)), sizes)[exists]
        self.bounds = np.searchsorted(of_group, np.arange(len(groups) + 1))
        """The first row of each group, and the end of the last group."""
        ranks = _ranks(table, table.topic[slots])
        slots = slots[np.lexsort((table.partition[slots], ranks, of_group))]
        self.of_group = of_group
        """The number of each row's group."""
        self._texts: dict[int, str | None] = {0: None}
        self.windows = table.windows(slots)
        self.columns = _columns(table, at, history, slots, self.windows)
        outage_ends_ms = np.zeros(len(groups), np.int64)
        np.maximum.at(outage_ends_ms, of_group, self.columns.answered_since_ms)
        self.outage_ends_ms = outage_ends_ms.tolist()
        """Since when all leaders of each group's partitions have answered; 0: always."""

    def of(self, number: int) -> list[PartitionLag]:
        """Return the partitions of a group."""
        start, end = self.bounds[number : number + 2].tolist()
        return self._rows.partitions(self.groups[number].owners, start, end)

    def text_of(self, number: int) -> str | None:
        """Return the id of a topic by its number in the table."""
        if number not in self._texts:
            self._texts[number] = text_of(UUID(bytes=self.table.topic_ids[number]))
        return self._texts[number]

    @cached_property
    def _rows(self) -> "_Rows":
        return _Rows(self)


def _ranks(table: CommitTable, topics: Int32s) -> Int64s:
    """Return the rank of each topic in the order of the names."""
    distinct, places = np.unique(topics, return_inverse=True)
    names = [table.topics[number] for number in distinct.tolist()]
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks[places]


def _exist(table: CommitTable, at: Round, slots: Int64s) -> Flags:
    counts = at.counts_of(table.topics, table.topic[slots])
    exist: Flags = (counts < 0) | (table.partition[slots] < counts)
    return exist


def _columns(table: CommitTable, at: Round, history: History, slots: Int64s, windows: Any) -> Columns:
    topics, partitions = table.topic[slots], table.partition[slots]
    ends, starts, asked_ms, since_ms = at.offsets_of(table.topics, topics, partitions)
    first, last = _up_to(at.at_ms, windows)
    committed = windows.offsets[np.arange(len(slots)), last]
    waits = (windows.filled > 0) & (ends > committed)
    waits_since_ms = np.zeros(len(slots), np.int64)
    waits_since_ms[waits] = history.waits_since_ms(table.topics, topics[waits], partitions[waits], committed[waits])
    is_behind = waits | (ends == NO_OFFSET)
    return Columns(
        slots,
        topics,
        partitions,
        ends,
        starts,
        asked_ms,
        np.maximum(since_ms, 0),
        first,
        last,
        waits_since_ms,
        is_behind,
    )


def _up_to(at_ms: int, windows: Any) -> tuple[Int64s, Int64s]:
    """Return the columns of the first and the last commit that count at an instant: later ones do not.

    If all are later, all count: then a broker's clock is ahead.
    """
    first = (WINDOW - windows.filled).astype(np.int64)
    counts = ((first[:, None] <= _COLUMN) & (windows.at_ms <= at_ms)).sum(axis=1)
    return first, np.where(counts > 0, first + counts - 1, WINDOW - 1)


class _Rows:
    """Makes the objects from columns as lists, because a large cluster has hundreds of thousands of rows a minute."""

    def __init__(self, found: Partitions) -> None:
        table, columns, windows = found.table, found.columns, found.windows
        slots = columns.slots
        self._table, self._at, self._text_of = table, found.at, found.text_of
        places = columns.topics, columns.partitions, table.topic_id[slots], table.leader_epoch[slots]
        owners = table.owner[slots], table.since_ms[slots]
        asked = columns.ends, columns.starts, columns.asked_ms, columns.waits_since_ms
        commits = columns.first, columns.last, columns.is_behind, *windows[:3]
        self._columns = [column.tolist() for column in (slots, *places, *owners, *asked, *commits)]

    def partitions(self, owners: Sequence[Owner], start: int, end: int) -> list[PartitionLag]:
        """Return a group's partitions."""
        known: dict[tuple[int, int], Owner] = {}
        rows = zip(*[column[start:end] for column in self._columns], strict=True)
        return [self._partition(row, owners, known) for row in rows]

    def _partition(
        self, row: tuple[Any, ...], owners: Sequence[Owner], known: dict[tuple[int, int], Owner]
    ) -> PartitionLag:
        slot, number, partition, topic_number, epoch, owner, since_ms, ends, starts, asked_ms, waits_since_ms = row[:11]
        table, at = self._table, self._at
        topic, topic_id = table.topics[number], self._text_of(topic_number)
        place = at.places.get(topic)
        asked_id = None if place is None else place.topic_id
        if ends == NO_OFFSET or (topic_id and asked_id and topic_id != asked_id):
            ends = starts = asked_ms = None
        return PartitionLag(  # positional, because keyword arguments take twice as long
            topic,
            topic_id or asked_id,
            partition,
            _commits(*row[11:]),
            None if starts == NO_OFFSET else starts,
            ends,
            asked_ms,
            at.stable.get((topic, partition)) if at.stable else None,
            waits_since_ms or None,
            _owner(owner, since_ms, owners, known) if 0 <= owner < len(owners) else None,
            epoch,
            table.metadata.get(slot, ""),
        )


def _commits(
    first: int, last: int, is_behind: bool, offsets: list[int], at_ms: list[int], ends: list[int]
) -> tuple[Commit, ...]:
    """Return a window; if nothing waits, only its first and last commit, which suffice for the rate."""
    if first == WINDOW:
        return ()
    columns = range(first, last + 1) if is_behind or first == last else (first, last)
    return tuple([Commit(offsets[at], at_ms[at], None if ends[at] == NO_OFFSET else ends[at]) for at in columns])


def _owner(number: int, since_ms: int, owners: Sequence[Owner], known: dict[tuple[int, int], Owner]) -> Owner:
    owner = known.get((number, since_ms))
    if owner is None:
        owner = known[number, since_ms] = owners[number]._replace(since_ms=since_ms)
    return owner

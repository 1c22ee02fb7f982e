"""From columns to what the core judges: `PartitionLag` objects of some groups, at a round of end offsets."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from coordinator_model.commit_block import NO_OFFSET
from coordinator_model.decode.topic_ids import text_of
from coordinator_model.lag.partition import WINDOW, Commit, Owner, PartitionLag
from streaming.run.lag.commit_table import CommitTable, Int64s
from streaming.run.lag.group_views import SeenGroup
from streaming.run.lag.rounds import History, Round

_COLUMN = np.arange(WINDOW)


class GroupPartitions(NamedTuple):
    """A group's partitions; `outage_end_ms`: since when all of their leaders have answered, 0: always."""

    group: SeenGroup
    partitions: list[PartitionLag]
    outage_end_ms: int


class _Columns(NamedTuple):
    """Of some slots: what the round says of their partitions, and their commits up to it."""

    slots: Int64s
    ends: Int64s
    starts: Int64s
    asked_ms: Int64s
    answered_since_ms: Int64s
    first: Int64s
    """The columns of the window from the first commit up to the last one."""
    last: Int64s
    waits_since_ms: Int64s
    is_behind: Any
    """Whether messages wait, or nobody can say."""


def partitions_of(
    table: CommitTable, at: Round, history: History, groups: Sequence[SeenGroup]
) -> Iterator[GroupPartitions]:
    """Yield what is known of each group's partitions; those that do not exist any more are left out."""
    listed = [_existing(table, at, table.slots_of(group.facts.group)) for group in groups]
    slots = np.concatenate(listed) if listed else np.empty(0, np.int64)
    windows = table.windows(slots)
    columns = _columns(table, at, history, slots, windows)
    rows = _Rows(table, at, columns, windows)
    start = 0
    for group, own in zip(groups, listed, strict=True):
        end = start + len(own)
        outage_end_ms = int(columns.answered_since_ms[start:end].max(initial=0))
        yield GroupPartitions(group, rows.partitions(group.owners, start, end), outage_end_ms)
        start = end


def _existing(table: CommitTable, at: Round, slots: Int64s) -> Int64s:
    counts = at.counts_of(table.topics, table.topic[slots])
    return slots[(counts < 0) | (table.partition[slots] < counts)]


def _columns(table: CommitTable, at: Round, history: History, slots: Int64s, windows: Any) -> _Columns:
    topics, partitions = table.topic[slots], table.partition[slots]
    ends, starts, asked_ms, since_ms = at.offsets_of(table.topics, topics, partitions)
    first, last = _up_to(at.at_ms, windows)
    committed = windows.offsets[np.arange(len(slots)), last]
    waits = (windows.filled > 0) & (ends > committed)
    waits_since_ms = np.zeros(len(slots), np.int64)
    waits_since_ms[waits] = history.waits_since_ms(table.topics, topics[waits], partitions[waits], committed[waits])
    is_behind = waits | (ends == NO_OFFSET)
    return _Columns(slots, ends, starts, asked_ms, np.maximum(since_ms, 0), first, last, waits_since_ms, is_behind)


def _up_to(at_ms: int, windows: Any) -> tuple[Int64s, Int64s]:
    """Return the columns of the first and the last commit that count at an instant: none of later ones.

    Where all are later, all count: a broker's clock is ahead.
    """
    first = (WINDOW - windows.filled).astype(np.int64)
    counts = ((first[:, None] <= _COLUMN) & (windows.at_ms <= at_ms)).sum(axis=1)
    return first, np.where(counts > 0, first + counts - 1, WINDOW - 1)


class _Rows:
    """Makes the objects, from columns as lists."""

    def __init__(self, table: CommitTable, at: Round, columns: _Columns, windows: Any) -> None:
        slots = columns.slots
        self._table, self._at = table, at
        self._slots = slots.tolist()
        self._topics, self._partitions = table.topic[slots].tolist(), table.partition[slots].tolist()
        self._topic_ids, self._epochs = table.topic_id[slots].tolist(), table.leader_epoch[slots].tolist()
        self._owners, self._since_ms = table.owner[slots].tolist(), table.since_ms[slots].tolist()
        self._offsets, self._at_ms, self._ends = (column.tolist() for column in windows[:3])
        self._columns = [column.tolist() for column in columns[1:]]
        self._texts: dict[int, str | None] = {0: None}

    def partitions(self, owners: Sequence[Owner], start: int, end: int) -> list[PartitionLag]:
        """Return a group's partitions."""
        known: dict[tuple[int, int], Owner] = {}
        return [self._partition(row, self._owner(row, owners, known)) for row in range(start, end)]

    def _partition(self, row: int, owner: Owner | None) -> PartitionLag:
        ends, starts, asked_ms, _, _, _, waits_since_ms, is_behind = (column[row] for column in self._columns)
        topic = self._table.topics[self._topics[row]]
        topic_id, place = self._text(self._topic_ids[row]), self._at.places.get(topic)
        asked_id = None if place is None else place.topic_id
        if ends == NO_OFFSET or (topic_id and asked_id and topic_id != asked_id):
            ends = starts = asked_ms = None
        partition = self._partitions[row]
        return PartitionLag(
            topic=topic,
            topic_id=topic_id or asked_id,
            partition=partition,
            commits=self._commits(row, is_behind=is_behind),
            start_offset=None if starts == NO_OFFSET else starts,
            end_offset=ends,
            asked_ms=asked_ms,
            stable_offset=self._at.stable.get((topic, partition)) if self._at.stable else None,
            waits_since_ms=waits_since_ms or None,
            owner=owner,
            leader_epoch=self._epochs[row],
            metadata=self._table.metadata.get(self._slots[row], ""),
        )

    def _commits(self, row: int, *, is_behind: bool) -> tuple[Commit, ...]:
        """Return its window; where nothing waits, only its ends: they tell the rate, and nothing more is asked."""
        first, last = self._columns[4][row], self._columns[5][row]
        if first == WINDOW:
            return ()
        offsets, at_ms, ends = self._offsets[row], self._at_ms[row], self._ends[row]
        columns = range(first, last + 1) if is_behind or first == last else (first, last)
        return tuple([Commit(offsets[at], at_ms[at], None if ends[at] == NO_OFFSET else ends[at]) for at in columns])

    def _owner(self, row: int, owners: Sequence[Owner], known: dict[tuple[int, int], Owner]) -> Owner | None:
        number, since_ms = self._owners[row], self._since_ms[row]
        if not 0 <= number < len(owners):
            return None
        if (number, since_ms) not in known:
            known[number, since_ms] = owners[number]._replace(since_ms=since_ms)
        return known[number, since_ms]

    def _text(self, number: int) -> str | None:
        if number not in self._texts:
            self._texts[number] = text_of(UUID(bytes=self._table.topic_ids[number]))
        return self._texts[number]

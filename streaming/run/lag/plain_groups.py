"""Judges many groups at a time, by columns, if nothing can be wrong: in a first round these are nearly all groups.

A group is plain if all of its partitions are. A partition is plain if its lag is known and is zero, or if it is clear
that the core's rules cannot find it stalled. All other groups are left to the core, which is the reference: a test
compares this module with it (`tests/streaming/run/test_plain_groups.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress, pairwise
from typing import Any, NamedTuple

import numpy as np

from coordinator_model.commit_block import NO_OFFSET
from coordinator_model.group_report import NO_SHARD, GroupReport, JudgedBy
from coordinator_model.lag.columns import MAX_ROWS, history_of
from coordinator_model.lag.lag_context import FRESH_MS, LagContext
from coordinator_model.lag.partition import WINDOW, GroupFacts, Owner
from coordinator_model.lag.stall import ALIVE, Instant, Note
from coordinator_model.lag.status import ASKED_AFTER_MS, RECENT_MS, SHORT_WINDOW_MS, Status
from coordinator_model.lag.topic_sums import TopicSums, worst_sums
from coordinator_model.rules.lag_growing import LAG_GROWING, may_grow
from coordinator_model.rules.offsets_lost import OFFSETS_LOST
from coordinator_model.rules.partition_stalled import PARTITION_STALLED
from coordinator_model.states import GroupState, GroupType
from coordinator_model.thresholds import Thresholds
from streaming.run.lag.partition_facts import Partitions
from streaming.run.lag.slot_index import Int32s, Int64s

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Answer = tuple[dict[str, Any], GroupReport]
MAX_PLAIN_ROWS = 2**18
"""A group with more partitions is left to the core."""
MOST = 2**44
"""The sum of `MAX_PLAIN_ROWS` larger offsets might overflow."""
_COLUMN = np.arange(WINDOW)
_NUMBERS = tuple(map(str, range(MAX_ROWS)))
_OK, _UNKNOWN, _STARVED, _PAUSED = Status.OK.value, Status.UNKNOWN.value, Note.STARVED.value, Note.PAUSED.value


class Question(NamedTuple):
    """What a group is judged by besides its partitions: arguments of the core's `judge_group`."""

    facts: GroupFacts
    thresholds: Thresholds
    history: Sequence[tuple[int, int]]
    commits: int


def plain_answers(found: Partitions, questions: Sequence[Question]) -> Iterator[Answer | None]:
    """Yield for each group what `judge_group` would return if it is plain, else None."""
    rows = _Rows(found, questions)
    starts, ends = found.bounds[:-1], found.bounds[1:]
    exceptions = np.concatenate([[0], np.cumsum(~rows.is_plain)])
    plain = (exceptions[ends] == exceptions[starts]) & (ends > starts) & (ends - starts <= MAX_PLAIN_ROWS)
    listed = _Lists(rows) if plain.any() else None
    for number, (is_plain, question) in enumerate(zip(plain.tolist(), questions, strict=True)):
        owners = found.groups[number].owners
        if listed is None or not is_plain or len({owner.member_id for owner in owners}) < len(owners):
            yield None
        else:
            yield _PlainGroup(listed, question, owners, number).answer()


class _Rows:
    """All partitions of all groups, judged as columns."""

    def __init__(self, found: Partitions, questions: Sequence[Question]) -> None:
        self.found, self.columns, self.now_ms = found, found.columns, found.at.at_ms
        self._questions = questions
        at = np.arange(len(found.columns.slots))
        windows, last = found.windows, found.columns.last
        self.committed, self.committed_ms = windows.offsets[at, last], windows.at_ms[at, last]
        self.first_offsets = windows.offsets[at, np.minimum(found.columns.first, WINDOW - 1)]
        self.first_ms = windows.at_ms[at, np.minimum(found.columns.first, WINDOW - 1)]
        self.commits = last - found.columns.first + 1
        self.lag = np.maximum(np.where(self._is_known, found.columns.ends - self.committed, 0), 0)
        self.is_behind = self.lag > 0

    def _of_groups(self, values: Sequence[Any]) -> Any:
        """Return for each row the value of its group."""
        return np.array(values)[self.found.of_group]

    @cached_property
    def _is_known(self) -> Flags:
        """Whether the lag is known, and the log still has the next message to read."""
        columns, windows = self.columns, self.found.windows
        is_asked = (columns.ends >= 0) & (columns.ends < MOST) & (columns.asked_ms >= self.now_ms - FRESH_MS)
        is_held = (columns.starts >= 0) & (columns.starts <= self.committed) & (self.committed < MOST)
        is_beyond = (self.committed > columns.ends) & (columns.asked_ms > self.committed_ms + ASKED_AFTER_MS)
        is_share = self._of_groups([of.facts.type == GroupType.SHARE for of in self._questions])
        is_same = np.array([text is not None for text in self._ids], np.bool_)[self._id_numbers]
        is_committed = (windows.filled > 0) & (self.committed_ms > 0)
        known: Flags = is_committed & is_same & is_asked & is_held & ~is_beyond & ~is_share
        return known

    @property
    def is_plain(self) -> Flags:
        """Whether the partition is plain."""
        is_clear = (
            (~self._has_stopped | self.is_of_unknown_age) & ~self._went_back & (self.had_no_lag | self._saw_no_end)
        )
        plain: Flags = self._is_known & (~self.is_behind | (is_clear & (self.is_starved | self._goes_on)))
        return plain

    # ------------------------------------------------------------------ partitions with waiting messages

    @cached_property
    def _in_window(self) -> Flags:
        first, last = self.columns.first[:, None], self.columns.last[:, None]
        inside: Flags = (first <= _COLUMN) & (last >= _COLUMN)
        return inside

    @property
    def is_of_unknown_age(self) -> Flags:
        """Whether the core cannot say that it has stopped, because it is not known since when messages wait."""
        unknown: Flags = self._has_stopped & (self.columns.waits_since_ms == 0)
        return unknown

    @cached_property
    def _has_stopped(self) -> Flags:
        span_ms = self.committed_ms - self.first_ms
        span_ms = np.where(self.commits < WINDOW, np.maximum(span_ms, SHORT_WINDOW_MS), span_ms)
        waits_ms = self.columns.waits_since_ms
        waits_recently = (waits_ms > 0) & (self.now_ms - waits_ms <= RECENT_MS)
        is_over: Flags = self.now_ms - self.committed_ms > span_ms
        return is_over & ~waits_recently

    @cached_property
    def _went_back(self) -> Flags:
        offsets, inside = self.found.windows.offsets, self._in_window
        is_less: Flags = (offsets[:, 1:] < offsets[:, :-1]) & inside[:, 1:] & inside[:, :-1]
        back: Flags = np.any(is_less, axis=1)
        return back

    @cached_property
    def had_no_lag(self) -> Flags:
        """Whether the lag is known to have been zero at some commit in the window."""
        windows = self.found.windows
        ends_known = windows.ends != NO_OFFSET
        none: Flags = ((windows.ends <= windows.offsets) & ends_known & self._in_window).any(axis=1)
        return none

    @property
    def _saw_no_end(self) -> Flags:
        """Whether no commit has a known end offset, because all were read before there was a round."""
        ends_known = (self.found.windows.ends != NO_OFFSET) & self._in_window
        nothing: Flags = ~ends_known.any(axis=1)
        return nothing

    @cached_property
    def is_owned(self) -> Flags:
        """Whether a known member owns it."""
        owner = self.found.table.owner[self.columns.slots]
        owned: Flags = (owner >= 0) & (owner < self._of_groups([len(group.owners) for group in self.found.groups]))
        return owned

    @cached_property
    def is_starved(self) -> Flags:
        """Whether no member that should commit it is known to be alive."""
        groups = self.found.groups
        firsts = np.cumsum([0, *(len(group.owners) for group in groups)])[:-1].tolist()
        alive = np.array([owner.liveness == ALIVE for group in groups for owner in group.owners] or [False], np.bool_)
        owner = self.found.table.owner[self.columns.slots]
        places = np.where(self.is_owned, self._of_groups(firsts) + owner, 0)
        has_members = self._of_groups([of.facts.type != GroupType.SIMPLE for of in self._questions])
        starved: Flags = has_members & ~(self.is_owned & alive[places])
        return starved

    @property
    def _goes_on(self) -> Flags:
        """Whether the current owner has just committed it."""
        margins_ms = self._of_groups([of.thresholds.stall_margin_ms for of in self._questions])
        is_recent = self.now_ms < self.committed_ms + margins_ms
        by_owner = ~self.is_owned | (self.committed_ms >= self.found.table.since_ms[self.columns.slots])
        goes_on: Flags = is_recent & by_owner
        if self.found.at.stable:
            places = zip(self.columns.topics.tolist(), self.columns.partitions.tolist(), strict=True)
            names = self.found.table.topics
            asked = [(names[topic], partition) in self.found.at.stable for topic, partition in places]
            goes_on = np.logical_and(goes_on, np.logical_not(asked))
        return goes_on

    @property
    def is_paused(self) -> Flags:
        """Whether the same offset was committed repeatedly although messages wait."""
        intervals = self._of_groups([of.thresholds.stall_intervals for of in self._questions])
        earlier = np.maximum(self.columns.last - intervals, 0)
        same = self.found.windows.offsets[np.arange(len(earlier)), earlier] == self.committed
        paused: Flags = self.is_behind & ~self.is_starved & (self.commits > intervals) & same
        return paused

    @cached_property
    def is_ok(self) -> Flags:
        """Whether its status is OK; otherwise it is unknown."""
        ok: Flags = ~self.is_behind | (self.had_no_lag & ~self.is_of_unknown_age)
        return ok

    @cached_property
    def lag_ms(self) -> Int64s:
        """For how long, at least, the oldest message has waited; `NO_OFFSET`: not known."""
        waits_ms = self.columns.waits_since_ms
        behind_ms = np.where(waits_ms != 0, np.maximum(self.now_ms - waits_ms, 0), NO_OFFSET)
        return np.where(self.is_behind, behind_ms, 0)

    @property
    def is_waiting(self) -> Flags:
        """Whether messages wait for an owner that is not known to be alive."""
        waiting: Flags = self.is_behind & self.is_starved & self.is_owned
        return waiting

    @property
    def may_grow(self) -> Flags:
        """Whether messages wait, and are not known to have been read at some commit in the window."""
        growing: Flags = self.is_behind & ~self.had_no_lag
        return growing

    # ------------------------------------------------------------------ ids of topics

    @cached_property
    def _id_pairs(self) -> tuple[Int64s, Int64s]:
        table = self.found.table
        ids = len(table.topic_ids)
        pairs = self.columns.topics.astype(np.int64) * ids + table.topic_id[self.columns.slots]
        distinct, numbers = np.unique(pairs, return_inverse=True)
        return distinct, numbers

    @property
    def _id_numbers(self) -> Int64s:
        return self._id_pairs[1]

    @cached_property
    def _ids(self) -> list[str | None]:
        """By number: a topic's id; empty: not known; None: commits and brokers name different ids."""
        table, ids = self.found.table, []
        for pair in self._id_pairs[0].tolist():
            topic, number = divmod(pair, len(table.topic_ids))
            place = self.found.at.places.get(table.topics[topic])
            told, asked = self.found.text_of(number), None if place is None else place.topic_id
            ids.append(None if told and asked and told != asked else told or asked or "")
        return ids

    def topics(self, kept: "_Kept") -> tuple[list[list[Any]], list[int]]:
        """Return for each group its topics, each with its id, if it is known, and its number of kept rows.

        They are in one list; the second one says where those of each group begin, and where the last ones end.
        """
        topics, id_numbers = self.columns.topics[kept.rows], self._id_numbers[kept.rows]
        firsts, at = _firsts(topics, self.found.of_group[kept.rows]), np.arange(len(topics))
        has_id = np.array([bool(text) for text in self._ids], np.bool_)[id_numbers]
        with_id = np.minimum.reduceat(np.where(has_id, at, len(at)), firsts)  # the first row that has one
        with_id = np.where(with_id < len(at), with_id, firsts)
        ids = [self._ids[number] or None for number in id_numbers[with_id].tolist()]
        sizes = np.diff(firsts, append=len(at)).tolist()
        listed = [list(row) for row in zip(self._names(topics[firsts]), ids, sizes, strict=True)]
        return listed, np.searchsorted(firsts, kept.bounds).tolist()

    def _names(self, topics: Int32s) -> list[str]:
        return [self.found.table.topics[number] or "" for number in topics.tolist()]

    def topic_of_rows(self, start: int, end: int) -> list[str]:
        """Return the topic of each row."""
        return self._names(self.columns.topics[start:end])

    def sums(self, start: int, end: int) -> list[TopicSums]:
        """Return the sums of each topic of a group, as `topic_sums` does: no offset of a plain row is unknown."""
        own, topics = slice(start, end), self.columns.topics[start:end]
        firsts = _firsts(topics, topics * 0)
        columns = self.lag, self.committed, self.columns.starts, self.columns.ends
        lags, committed, starts, ends = (np.add.reduceat(column[own], firsts).tolist() for column in columns)
        lag_ms = np.maximum.reduceat(self.lag_ms[own], firsts).tolist()
        is_ok = np.logical_or.reduceat(self.is_ok[own], firsts).tolist()
        sizes = np.diff(firsts, append=len(topics)).tolist()
        rows = zip(self._names(topics[firsts]), sizes, lags, lag_ms, committed, starts, ends, is_ok, strict=True)
        return [
            TopicSums(name, size, lag, None if ms < 0 else ms, at, start, end, _OK if ok else _UNKNOWN, 0, 0)
            for name, size, lag, ms, at, start, end, ok in rows
        ]


def _firsts(topics: Int32s, of_group: Int64s | Int32s) -> Int64s:
    """Return the first row of each topic of each group."""
    is_first = np.ones(len(topics), np.bool_)
    is_first[1:] = (np.diff(topics) != 0) | (np.diff(of_group) != 0)
    return np.flatnonzero(is_first)


class _Kept(NamedTuple):
    """The rows that are listed: all rows of a group, or the worst of those of a large group."""

    rows: Any
    bounds: list[int]
    """The first row of each group among the kept ones, and the end of the last group."""

    @classmethod
    def of(cls, rows: _Rows) -> "_Kept":
        """Choose rows as `columns_of` does."""
        bounds = rows.found.bounds
        if (np.diff(bounds) <= MAX_ROWS).all():
            return cls(slice(None), bounds.tolist())
        chosen = [_worst(rows, start, end) for start, end in pairwise(bounds.tolist())]
        return cls(np.concatenate(chosen), np.cumsum([0, *map(len, chosen)]).tolist())


def _worst(rows: _Rows, start: int, end: int) -> Int64s:
    if end - start > MAX_ROWS:
        by_badness = np.lexsort((-rows.lag[start:end], ~rows.is_ok[start:end]))  # OK is worse than unknown
        return start + np.sort(by_badness[:MAX_ROWS])
    return np.arange(start, end)


class _Lists:
    """The kept rows as lists, one of each column for each group.

    Some columns are only summed up. Those that few groups need stay columns of all rows: `of` makes the list of a
    group.
    """

    def __init__(self, rows: _Rows) -> None:
        found, columns, table = rows.found, rows.columns, rows.found.table
        self.rows, self.now_ms, self.metadata, self.bounds = rows, rows.now_ms, table.metadata, found.bounds.tolist()
        self.is_waiting, self.may_grow = rows.is_waiting, rows.may_grow
        self.owners = np.where(rows.is_owned, table.owner[columns.slots], -1)
        self._kept = kept = _Kept.of(rows)
        self.slots = self._split(columns.slots) if table.metadata else []
        self.partition, self.committed = self._split(columns.partitions), self._split(rows.committed)
        self.committed_ms, self.starts = self._split(rows.committed_ms), self._split(columns.starts)
        self.ends, self.lag = self._split(columns.ends), self._split(rows.lag)
        self.lag_ms = self._split_known(rows.lag_ms, rows.lag_ms >= 0)
        notes = _chosen(None, _PAUSED, rows.is_paused[kept.rows])
        notes[(rows.is_behind & rows.is_starved)[kept.rows]] = _STARVED
        self.note, self.status = self._parts(notes), self._parts(_chosen(_UNKNOWN, _OK, rows.is_ok[kept.rows]))
        self.rate = self._parts(_rates(rows, kept))
        self.owner = self._split(self.owners)
        self.owned_since_ms = self._split_known(table.since_ms[columns.slots], rows.is_owned)
        epochs = table.leader_epoch[columns.slots]
        self.leader_epoch = self._split_known(epochs, epochs >= 0)
        topics, places = rows.topics(kept)
        self.topics = [topics[start:end] for start, end in pairwise(places)]
        self.total, self.owned = self._sums(rows.lag), self._sums(np.where(rows.is_owned, rows.lag, 0))
        self.is_owned, self.is_ok = self._sums(rows.is_owned), self._sums(rows.is_ok)
        asked_ms = np.zeros(len(found.groups), np.int64)
        np.maximum.at(asked_ms, found.of_group, columns.asked_ms)
        self.asked_ms = asked_ms.tolist()

    def _split(self, column: Any) -> list[list[Any]]:
        """Return a list of kept rows for each group."""
        return self._parts(column[self._kept.rows])

    def _split_known(self, column: Any, is_known: Flags) -> list[list[Any]]:
        """Return the same, with None where a value is not known."""
        return self._parts(_or_none(column[self._kept.rows], is_known[self._kept.rows]))

    def _parts(self, kept: Any) -> list[list[Any]]:
        values = kept.tolist()
        return [values[start:end] for start, end in pairwise(self._kept.bounds)]

    def of(self, number: int, column: Any) -> list[Any]:
        """Return all rows of one group."""
        values: list[Any] = column[self.bounds[number] : self.bounds[number + 1]].tolist()
        return values

    def _sums(self, column: Any) -> list[int]:
        """Return the sum of each group; those of several groups may overflow, but not their differences."""
        sums: list[int] = np.diff(np.append(0, np.cumsum(column, dtype=np.int64))[self.bounds]).tolist()
        return sums


def _or_none(values: Int64s | Int32s, is_known: Flags) -> Any:
    """Return as objects the values that are known, else None."""
    made = values.astype(object)
    made[~is_known] = None
    return made


def _chosen(otherwise: str | None, name: str, flags: Flags) -> Any:
    """Return as objects the name where a flag is set, else the other one."""
    return np.array([otherwise, name], object)[flags.astype(np.intp)]


def _rates(rows: _Rows, kept: _Kept) -> Any:
    """Return what `rate_of` returns for each kept row; Python's `round` is used, because numpy rounds differently."""
    columns = rows.committed, rows.first_offsets, rows.committed_ms, rows.first_ms, rows.commits
    committed, first_offsets, committed_ms, first_ms, commits = (column[kept.rows] for column in columns)
    spans = np.maximum(rows.now_ms, committed_ms) - first_ms
    is_known = (commits > 1) & (spans > 0) & (committed >= first_offsets)
    numbers = zip(*(of[is_known].tolist() for of in (committed, first_offsets, spans)), strict=True)
    rates = np.full(len(spans), None, object)
    rates[is_known] = [round((last - first) * 1_000 / span, 3) for last, first, span in numbers]
    return rates


class _PlainGroup:
    """One plain group, by its number among the groups."""

    def __init__(self, lists: _Lists, question: Question, owners: Sequence[Owner], number: int) -> None:
        self._lists, self._question, self._owners, self._number = lists, question, owners, number
        self._owner, total = lists.owner[number], lists.total[number]
        before = [(at_ms, lag) for at_ms, lag in question.history if at_ms < lists.now_ms]
        instant = Instant(question.facts, lists.now_ms, question.thresholds)
        read = lists.owned[number] if lists.is_owned[number] else total
        self._context = LagContext(instant, (), {}, total, read, before)

    def answer(self) -> Answer:
        """Return the group's `partitions` output, and its report."""
        facts = self._question.facts
        shown = {
            "kind": "partitions",
            "cluster": facts.cluster,
            "shard": NO_SHARD,
            "group": facts.group,
            "at_ms": self._lists.now_ms,
            "lag": self._context.total,
            "status": Status.OK if self._lists.is_ok[self._number] else Status.UNKNOWN,
            "complete": True,
            "columns": self._columns(),
        }
        return shown, self._report()

    def _columns(self) -> dict[str, Any]:
        lists, number = self._lists, self._number
        return {
            "topics": lists.topics[number],
            "partition": lists.partition[number],
            "committed_offset": lists.committed[number],
            "committed_ms": lists.committed_ms[number],
            "start_offset": lists.starts[number],
            "end_offset": lists.ends[number],
            "lag": lists.lag[number],
            "lag_ms": lists.lag_ms[number],
            "status": lists.status[number],
            "rate": lists.rate[number],
            "owned_since_ms": lists.owned_since_ms[number],
            "leader_epoch": lists.leader_epoch[number],
            "note": self._notes(),
            "metadata": self._metadata(),
            "asked_ms": lists.asked_ms[number],
            "history": history_of(self._context),
            "commits": self._question.commits,
            **self._owner_columns(),
            **self._left_out(),
        }

    def _left_out(self) -> dict[str, Any]:
        """Return what `columns_of` adds if rows are left out."""
        start, end = self._lists.bounds[self._number : self._number + 2]
        if end - start <= MAX_ROWS:
            return {}
        sums = self._lists.rows.sums(start, end)
        kept = worst_sums(sums)
        left_out = len(sums) - len(kept)
        return {"left_out": end - start - MAX_ROWS, "sums": [list(of) for of in kept], "sums_left_out": left_out}

    def _metadata(self) -> Mapping[str, str]:
        known = self._lists.metadata
        if not known:
            return {}
        texts = map(known.get, self._lists.slots[self._number])
        return {at: text for at, text in zip(_NUMBERS, texts, strict=False) if text}

    def _notes(self) -> Mapping[str, str]:
        is_streams = self._question.facts.type == GroupType.STREAMS
        notes = zip(_NUMBERS, self._lists.note[self._number], strict=False)
        return {at: note for at, note in notes if note and not (is_streams and note == _STARVED)}

    def _owner_columns(self) -> dict[str, Any]:
        listed = sorted({*self._owner} - {-1}, key=lambda number: self._key(self._owners[number]))
        index: list[int | None] = [None] * (len(self._owners) + 1)  # the last one is that of -1
        for at, number in enumerate(listed):
            index[number] = at
        owners = [self._owners[number] for number in listed]
        return {
            "owner": [index[number] for number in self._owner],
            "owners": [[o.member_id, o.instance_id, o.client_id, o.client_host, o.generation] for o in owners],
        }

    @staticmethod
    def _key(owner: Owner) -> tuple[str, int]:
        return owner.member_id, owner.generation

    # ------------------------------------------------------------------ the report

    def _report(self) -> GroupReport:
        facts, known = self._question.facts, self._context.is_known
        return GroupReport(
            cluster=facts.cluster,
            group=facts.group,
            at_ms=self._lists.now_ms,
            judged=JudgedBy.LAG,
            findings=[],
            pending=_Pending(self) if known else None,
            owners=self._at_work() if known and not self._context.instant.is_simple else None,
        )

    def _topic_of_rows(self) -> list[str]:
        return self._lists.rows.topic_of_rows(*self._lists.bounds[self._number : self._number + 2])

    def may_be_stalled(self) -> Iterator[tuple[str, str, int]]:
        """Yield the same as `partition_stalled.pending`."""
        lists, number, rule = self._lists, self._number, PARTITION_STALLED.id
        is_waiting = lists.of(number, lists.is_waiting)
        if True not in is_waiting:
            return
        names = [owner.instance_id or owner.member_id for owner in self._owners] + [self._question.facts.group]
        of_rows = [names[owner] for owner in lists.of(number, lists.owners)]
        committed_ms = lists.of(number, lists.rows.committed_ms)
        newest_ms = dict(sorted(zip(of_rows, committed_ms, strict=True)))  # the last one of each name is the newest
        partitions = lists.of(number, lists.rows.columns.partitions)
        places = zip(self._topic_of_rows(), partitions, committed_ms, strict=True)
        for topic, partition, at_ms in compress(places, is_waiting):
            yield rule, f"{topic}-{partition}", at_ms
        for name in sorted({*compress(of_rows, is_waiting)}):
            yield rule, name, newest_ms[name]

    def may_grow(self) -> Iterator[tuple[str, str, int]]:
        """Yield the same as `lag_growing.pending`."""
        flags = self._lists.of(self._number, self._lists.may_grow)
        if any(flags) and may_grow(self._context):
            topics = dict.fromkeys(compress(self._topic_of_rows(), flags))
            yield from ((LAG_GROWING.id, topic, 0) for topic in topics)

    def may_be_lost(self) -> Iterator[tuple[str, str, int]]:
        """Yield the same as `offsets_lost.pending`: the log of a plain partition holds the committed offset."""
        lists, number, first_ms = self._lists, self._number, dict[str, int]()
        columns = lists.of(number, lists.rows.lag), lists.of(number, lists.rows.committed_ms)
        rows = zip(self._topic_of_rows(), *columns, strict=True)
        for topic, lag, at_ms in rows:
            if lag:
                first_ms[topic] = min(at_ms, first_ms.get(topic, at_ms))
        yield from ((OFFSETS_LOST.id, topic, at_ms) for topic, at_ms in first_ms.items())

    def _at_work(self) -> list[str]:
        if self._question.facts.state != GroupState.STABLE:
            return []
        numbers = {*self._lists.of(self._number, self._lists.owners)} - {-1}
        owners = [self._owners[number] for number in numbers]
        return sorted(owner.member_id for owner in owners if owner.liveness != "violated")


class _Pending:
    """What a group's report calls pending. It is worked out when it is read, because few groups have an incident."""

    def __init__(self, group: _PlainGroup) -> None:
        self._group = group

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        yield from self._group.may_be_stalled()
        yield from self._group.may_grow()
        yield from self._group.may_be_lost()

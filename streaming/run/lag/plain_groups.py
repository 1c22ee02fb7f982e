"""Judges many groups at a time, by columns, if nothing can be wrong: in a first round these are nearly all groups.

A group is plain if all of its partitions are. A partition is plain if its lag is known and is zero, or if it is clear
that the core's rules cannot find it stalled. All other groups are left to the core, which is the reference: a test
compares this module with it (`tests/streaming/run/test_plain_groups.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from coordinator_model.commit_block import NO_OFFSET
from coordinator_model.group_report import NO_SHARD, GroupReport, JudgedBy
from coordinator_model.lag.columns import MAX_ROWS, history_of
from coordinator_model.lag.lag_context import FRESH_MS, LagContext
from coordinator_model.lag.partition import WINDOW, GroupFacts, Owner
from coordinator_model.lag.stall import ALIVE, Instant, Note
from coordinator_model.lag.status import ASKED_AFTER_MS, RECENT_MS, SHORT_WINDOW_MS, Status
from coordinator_model.rules.lag_growing import LAG_GROWING, may_grow
from coordinator_model.rules.offsets_lost import OFFSETS_LOST
from coordinator_model.rules.partition_stalled import PARTITION_STALLED
from coordinator_model.states import GroupState, GroupType
from coordinator_model.thresholds import Thresholds
from streaming.run.lag.partition_facts import Partitions
from streaming.run.lag.slot_index import Int64s

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Answer = tuple[dict[str, Any], GroupReport]
MOST = 2**52
"""Sums of larger offsets might overflow."""
_COLUMN = np.arange(WINDOW)
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
    plain = (exceptions[ends] == exceptions[starts]) & (ends > starts) & (ends - starts <= MAX_ROWS)
    listed = _Lists(rows) if plain.any() else None
    for number, (is_plain, question) in enumerate(zip(plain.tolist(), questions, strict=True)):
        owners = found.groups[number].owners
        if listed is None or not is_plain or len({owner.member_id for owner in owners}) < len(owners):
            yield None
        else:
            yield _PlainGroup(listed, question, owners, *found.bounds[number : number + 2].tolist()).answer()


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

    def topic_ids(self) -> list[str]:
        """Return the id of each row's topic; empty if it is not known."""
        ids = [text or "" for text in self._ids]
        return [ids[number] for number in self._id_numbers.tolist()]


class _Lists:
    """The rows as lists; each group takes a slice of them."""

    def __init__(self, rows: _Rows) -> None:
        columns, table = rows.columns, rows.found.table
        self.now_ms, self.metadata = rows.now_ms, table.metadata
        self.slots = columns.slots.tolist()
        self.topic, self.topic_id = [table.topics[number] for number in columns.topics.tolist()], rows.topic_ids()
        self.partition, self.committed = columns.partitions.tolist(), rows.committed.tolist()
        self.committed_ms, self.starts = rows.committed_ms.tolist(), columns.starts.tolist()
        self.ends = columns.ends.tolist()
        self.lag, self.asked_ms = rows.lag.tolist(), columns.asked_ms.tolist()
        waits_ms = columns.waits_since_ms.tolist()
        pairs = zip(self.lag, waits_ms, strict=True)
        self.lag_ms = [0 if not lag else max(0, rows.now_ms - at_ms) if at_ms else None for lag, at_ms in pairs]
        self.is_waiting = (rows.is_behind & rows.is_starved & rows.is_owned).tolist()
        is_starved, is_paused = (rows.is_behind & rows.is_starved).tolist(), rows.is_paused.tolist()
        flags = zip(is_starved, is_paused, strict=True)
        self.note = [_STARVED if starved else _PAUSED if paused else None for starved, paused in flags]
        self.may_grow = (rows.is_behind & ~rows.had_no_lag).tolist()
        is_ok = (~rows.is_behind | (rows.had_no_lag & ~rows.is_of_unknown_age)).tolist()
        self.status = [_OK if ok else _UNKNOWN for ok in is_ok]
        self.rate = _rates(rows)
        owner, since_ms = table.owner[columns.slots], table.since_ms[columns.slots]
        self.owner = np.where(rows.is_owned, owner, -1).tolist()
        owned = zip(rows.is_owned.tolist(), since_ms.tolist(), strict=True)
        self.owned_since_ms = [at_ms if is_owned else None for is_owned, at_ms in owned]
        epochs = table.leader_epoch[columns.slots].tolist()
        self.leader_epoch = [epoch if epoch >= 0 else None for epoch in epochs]


def _rates(rows: _Rows) -> list[float | None]:
    """Return what `rate_of` returns for each row; Python's `round` is used, because numpy rounds differently."""
    spans = np.maximum(rows.now_ms, rows.committed_ms) - rows.first_ms
    is_known = (rows.commits > 1) & (spans > 0) & (rows.committed >= rows.first_offsets)
    numbers = zip(*(of.tolist() for of in (is_known, rows.committed, rows.first_offsets, spans)), strict=True)
    return [round((last - first) * 1_000 / span, 3) if known else None for known, last, first, span in numbers]


class _PlainGroup:
    """One plain group; its rows are those from `start` to `end`."""

    def __init__(self, lists: _Lists, question: Question, owners: Sequence[Owner], start: int, end: int) -> None:
        self._lists, self._question, self._owners = lists, question, owners
        self._start, self._end = start, end
        self._lag, self._owner = self._slice("lag"), self._slice("owner")
        total = sum(self._lag)
        owned = [lag for lag, owner in zip(self._lag, self._owner, strict=True) if owner >= 0]
        before = [(at_ms, lag) for at_ms, lag in question.history if at_ms < lists.now_ms]
        instant = Instant(question.facts, lists.now_ms, question.thresholds)
        self._context = LagContext(instant, (), {}, total, sum(owned) if owned else total, before)

    def _slice(self, name: str) -> list[Any]:
        of_all: list[Any] = getattr(self._lists, name)
        return of_all[self._start : self._end]

    def answer(self) -> Answer:
        """Return the group's `partitions` output, and its report."""
        facts, status = self._question.facts, self._slice("status")
        shown = {
            "kind": "partitions",
            "cluster": facts.cluster,
            "shard": NO_SHARD,
            "group": facts.group,
            "at_ms": self._lists.now_ms,
            "lag": self._context.total,
            "status": Status.OK if _OK in status else Status.UNKNOWN,
            "complete": True,
            "columns": self._columns(status),
        }
        return shown, self._report()

    def _columns(self, status: list[str]) -> dict[str, Any]:
        metadata = self._lists.metadata
        texts = enumerate(map(metadata.get, self._slice("slots")) if metadata else ())
        return {
            "topics": self._topics(),
            "partition": self._slice("partition"),
            "committed_offset": self._slice("committed"),
            "committed_ms": self._slice("committed_ms"),
            "start_offset": self._slice("starts"),
            "end_offset": self._slice("ends"),
            "lag": self._lag,
            "lag_ms": self._slice("lag_ms"),
            "status": status,
            "rate": self._slice("rate"),
            "owned_since_ms": self._slice("owned_since_ms"),
            "leader_epoch": self._slice("leader_epoch"),
            "note": self._notes(),
            "metadata": {str(at): text for at, text in texts if text},
            "asked_ms": max(self._slice("asked_ms")),
            "history": history_of(self._context),
            "commits": self._question.commits,
            **self._owner_columns(),
        }

    def _topics(self) -> list[list[Any]]:
        topics: list[list[Any]] = []
        for name, topic_id in zip(self._slice("topic"), self._slice("topic_id"), strict=True):
            if not topics or topics[-1][0] != name:
                topics.append([name, None, 0])
            topics[-1][1] = topics[-1][1] or topic_id or None
            topics[-1][2] += 1
        return topics

    def _notes(self) -> Mapping[str, str]:
        is_streams = self._question.facts.type == GroupType.STREAMS
        notes = enumerate(self._slice("note"))
        return {str(at): note for at, note in notes if note and not (is_streams and note == _STARVED)}

    def _owner_columns(self) -> dict[str, Any]:
        listed = sorted({*self._owner} - {-1}, key=lambda number: self._key(self._owners[number]))
        index = {number: at for at, number in enumerate(listed)}
        owners = [self._owners[number] for number in listed]
        return {
            "owner": [index.get(number) for number in self._owner],
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

    def may_be_stalled(self) -> Iterator[tuple[str, str, int]]:
        """Yield the same as `partition_stalled.pending`."""
        is_waiting, rule = self._slice("is_waiting"), PARTITION_STALLED.id
        if True not in is_waiting:
            return
        names = [owner.instance_id or owner.member_id for owner in self._owners] + [self._question.facts.group]
        of_rows = [names[owner] for owner in self._owner]
        committed_ms = self._slice("committed_ms")
        newest_ms = dict(sorted(zip(of_rows, committed_ms, strict=True)))  # the last one of each name is the newest
        places = zip(self._slice("topic"), self._slice("partition"), committed_ms, strict=True)
        for topic, partition, at_ms in compress(places, is_waiting):
            yield rule, f"{topic}-{partition}", at_ms
        for name in sorted({*compress(of_rows, is_waiting)}):
            yield rule, name, newest_ms[name]

    def may_grow(self) -> Iterator[tuple[str, str, int]]:
        """Yield the same as `lag_growing.pending`."""
        flags = self._slice("may_grow")
        if any(flags) and may_grow(self._context):
            topics = dict.fromkeys(name for name, flag in zip(self._slice("topic"), flags, strict=True) if flag)
            yield from ((LAG_GROWING.id, topic, 0) for topic in topics)

    def may_be_lost(self) -> Iterator[tuple[str, str, int]]:
        """Yield the same as `offsets_lost.pending`: the log of a plain partition holds the committed offset."""
        first_ms: dict[str, int] = {}
        for topic, lag, at_ms in zip(self._slice("topic"), self._lag, self._slice("committed_ms"), strict=True):
            if lag:
                first_ms[topic] = min(at_ms, first_ms.get(topic, at_ms))
        yield from ((OFFSETS_LOST.id, topic, at_ms) for topic, at_ms in first_ms.items())

    def _at_work(self) -> list[str]:
        if self._question.facts.state != GroupState.STABLE:
            return []
        owners = [self._owners[number] for number in {*self._owner} - {-1}]
        return sorted(owner.member_id for owner in owners if owner.liveness != "violated")


class _Pending:
    """What a group's report calls pending. It is worked out when it is read, because few groups have an incident."""

    def __init__(self, group: _PlainGroup) -> None:
        self._group = group

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        yield from self._group.may_be_stalled()
        yield from self._group.may_grow()
        yield from self._group.may_be_lost()

"""The lag of every group: applies the outputs of a batch, keeps what is needed, and lets the core judge.

Each judgement uses one round of end offsets. A round counts only after a batch that began later has been applied:
otherwise commits that have not been read yet would seem to be missing. Groups with waiting messages are judged in every
round, other groups with news as time allows, and groups without news once a minute.
"""

import base64
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from coordinator_model.events import FAR_MS
from coordinator_model.group_report import GroupReport, Said, of_kind, reports_in
from coordinator_model.lag.partition import PartitionLag
from coordinator_model.lag.window import AHEAD_MS
from coordinator_model.rules.group_lag import judge_group
from coordinator_model.rules.outages import Dumped, Outages
from coordinator_model.states import GroupType
from coordinator_model.thresholds import Thresholds
from streaming.run.lag.broker_clocks import BrokerClocks
from streaming.run.lag.commit_table import CommitTable
from streaming.run.lag.group_views import SeenGroup, note_owners, seen
from streaming.run.lag.kept import Batch, Kept
from streaming.run.lag.partition_facts import Partitions
from streaming.run.lag.plain_groups import Answer, Question, plain_answers
from streaming.run.lag.rounds import NO_ROUND, History, Round
from streaming.run.lag.slot_index import Int32s, Int64s
from streaming.run.packing import commit_block

View = tuple[str, int, SeenGroup | None]
"""Group id, instant, and the group as its view shows it; None: it was deleted."""

COMMIT_FROM_THE_FUTURE: Final = "offsets:commit from the future"
JUDGE_S: Final = 0.15
"""How much time one batch spends on judging groups."""
FIRST_S: Final = 1.5
"""The same for groups that were never judged: after a start no lag is known."""
AT_ONCE: Final = 64
"""How many groups are judged together."""
FIRST_AT_ONCE: Final = 1_024
"""The same in a round that judges all groups, however long that takes."""
AGAIN_MS: Final = 60_000
"""How soon a group without news is judged again."""
SUSPECT_MS: Final = 5_000
"""A consumer that has committed nothing for this long, though messages wait, may be waiting for a transaction."""
SHARE: Final = 20
"""Judging one group may take at most one part in this many of the time: 100,000 partitions take seconds."""
MAX_PENDING: Final = 8


@dataclass(slots=True)
class _Judged:
    """What is remembered about the last judgement of a group."""

    at_ms: int = 0
    took_ms: float = 0
    is_quiet: bool = False
    """No messages waited, and there were no findings."""
    history: "array[int]" = field(default_factory=lambda: array("q"))
    """Its lag at earlier rounds: instants and lags alternate."""


class GroupLags:
    """The lags of one checkpoint.

    Threads that do not apply batches may call only `topics`, `topics_partly_owned`, `suspects`, `add_round`,
    `add_first_round` and `read_until`.
    """

    def __init__(self, cluster: str, folder: Path, committed: int | None = None) -> None:
        """Load what was kept in a folder; raises `BrokenError`. `committed`: the last batch of the checkpoint."""
        self.cluster = cluster
        self.clocks = BrokerClocks()
        self._outages = Outages()
        self._suspects: dict[str, list[int]] = {}
        self._kept = Kept(folder)
        self._table, self._history, self._batch_id = CommitTable(), History(), -1
        self._groups: dict[str, SeenGroup] = {}
        self._judged: dict[str, _Judged] = {}
        self._new: set[str] = set()
        self._round, self._newest, self._known = NO_ROUND, NO_ROUND, NO_ROUND
        """The round that groups are judged by, the newest, and the one that commits are compared with."""
        self._read_ms, self._is_first = 0, False
        self._rounds: deque[Round] = deque(maxlen=MAX_PENDING)
        self._queue: deque[str] = deque()
        self._abandoned = False
        self._load(committed)

    # ------------------------------------------------------------------ from other threads

    def topics(self) -> list[str]:
        """Return the topics in use, those with commits first: members may claim topics that do not exist."""
        committed = self._table.committed_topics()
        return sorted(self._table.topics.names(), key=lambda name: name not in committed)

    def topics_partly_owned(self) -> set[str]:
        """Return the topics of which the members of a classic group own some partitions, and not all."""
        places, groups = self._newest.places, self._groups

        def is_partly_owned(group: str, topic: str, owned: int) -> bool:
            known, place = groups.get(group), places.get(topic)
            is_classic = known is not None and known.facts.type == GroupType.CLASSIC
            return is_classic and place is not None and owned < place.size

        return {topic for group, topic, owned in self._table.owned() if is_partly_owned(group, topic, owned)}

    def suspects(self) -> dict[str, list[int]]:
        """Return the partitions whose last stable offset should be requested."""
        return self._suspects

    def known_round(self) -> Round:
        """Return the newest round on disk; call it before batches are applied."""
        return self._known

    def add_round(self, newest: Round) -> None:
        """Add a round of end offsets."""
        self._newest = newest
        self._rounds.append(newest)

    def add_first_round(self, first: Round) -> None:
        """Add a round from before the first batch. No commit is compared with it, because all commits are older."""
        self._rounds.append(first)

    def read_until(self, began_ms: int) -> None:
        """Record that a batch that began at an instant has been applied, and had read everything there was."""
        self._read_ms = began_ms

    # ------------------------------------------------------------------ a batch

    def read_first(self, asked_ms: int) -> None:
        """Record that the next batch is the first to have read everything there was at this instant."""
        self._read_ms, self._is_first = asked_ms, True

    def apply(
        self, batch_id: int, outputs: Iterable[Said], thresholds_of: Callable[[str], Thresholds], *, judge: bool
    ) -> list[Said]:
        """Apply a batch's outputs; return them without commits, and with the lags of groups.

        The batch's commits are on disk when this returns. `judge`: whether the job has caught up.
        """
        told = list(outputs)
        others = [said for said in told if isinstance(said, GroupReport) or said["kind"] != "commits"]
        views, outages = self._views(others), self._outages.dump()
        for output in others:
            self._outages.take(output)
        misdated = self._take_commits(batch_id, list(of_kind(told, "commits")), views, outages)
        if misdated:
            counts = {COMMIT_FROM_THE_FUTURE: misdated}
            others.append({"kind": "quarantined", "cluster": self.cluster, "counts": counts})
        self._take_views(views)
        for output in others:
            self._take(output)
        self.clocks.end_batch()
        if judge:
            others += self._begin_round() + self._judge(thresholds_of)
        if self._kept.is_long:
            self._kept.snapshot(self._dump())
        return others

    def abandon(self) -> None:
        """Record that a batch may still be running when this is closed."""
        self._abandoned = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write a snapshot, but not after a failure: then the state may contain half a batch; the journal is right."""
        if kind is None and self._batch_id >= 0 and not self._abandoned:
            self._kept.snapshot(self._dump())
        self._kept.close()

    def _views(self, said: Iterable[Said]) -> list[View]:
        """Return the newest view of each group in the reports."""
        views: dict[str, View] = {}
        for report in reports_in(said):
            if not report.group:
                continue
            if report.deleted:
                views[report.group] = report.group, report.at_ms, None
            elif report.view is not None:
                views[report.group] = report.group, report.at_ms, seen(report, report.view)
        return list(views.values())

    def _take_commits(
        self, batch_id: int, commits: list[Mapping[str, Any]], views: list[View], outages_before: Dumped
    ) -> int:
        """Write a batch to the journal and apply its commits; skip a batch that was already applied.

        Returns the number of misdated commits.
        """
        if batch_id <= self._batch_id:
            return 0
        newest = self._newest
        new_round = newest.dump() if newest is not self._known else None
        more = [
            (group, at_ms, None if view is None else view.dump())
            for group, at_ms, view in views
            if view is None or view.says_more_than(self._groups.get(group))
        ]
        blocks = [base64.b64decode(output["block"]) for output in commits]
        read_ms = max((output["at_ms"] for output in commits), default=FAR_MS)
        outages = self._outages.dump()
        batch = Batch(batch_id, blocks, more, new_round, read_ms, None if outages == outages_before else outages)
        self._kept.append(batch)
        if new_round is not None:
            self._know(newest)
        return self._take_batch(batch)

    def _know(self, newest: Round) -> None:
        """Compare commits with this round from now on, and add it to the history."""
        self._known = newest
        self._history.add(newest)

    def _take_batch(self, batch: Batch) -> int:
        blocks = list(map(commit_block, batch.blocks))
        self._new |= self._table.apply(blocks, self._ends_at, batch.read_ms)
        self._batch_id = batch.batch_id
        record_ms = np.concatenate(
            [np.zeros(1, np.int64), *(np.asarray(block.record_ms, np.int64) for block in blocks)]
        )
        believed = record_ms[record_ms <= batch.read_ms + AHEAD_MS]
        self.clocks.saw_record(int(believed.max()))
        return len(record_ms) - len(believed)

    def _ends_at(self, topics: Int32s, partitions: Int32s, at_ms: Int64s) -> Int64s:
        return self._known.ends_at(self._table.topics, topics, partitions, at_ms)

    def _take(self, said: Said) -> None:
        if isinstance(said, GroupReport):
            return
        if said["kind"] == "heartbeats":
            for group, *_ in said["groups"]:
                if group in self._groups:
                    self._groups[group].shown(said["at_ms"])
        elif said["kind"] == "progress":
            self.clocks.take(said)

    def _take_views(self, views: Iterable[View]) -> None:
        """Apply the newest views of groups. A group without a view was deleted."""
        changes: list[tuple[Sequence[str], SeenGroup]] = []
        deleted: dict[str, int] = {}
        for group, at_ms, view in views:
            if view is None:
                deleted[group] = at_ms
                continue
            before = self._groups.get(group)
            if before is None or (before.members, before.held) != (view.members, view.held):
                changes.append((() if before is None else before.members, view))
            self._groups[group] = view
            self._new.add(group)
        note_owners(self._table, changes)
        self._forget(deleted)

    def _forget(self, deleted: Mapping[str, int]) -> None:
        for group in deleted:
            self._groups.pop(group, None)
            self._judged.pop(group, None)
            self._new.discard(group)
        self._table.forget([*deleted], [*deleted.values()])

    # ------------------------------------------------------------------ judging

    def _begin_round(self) -> list[Said]:
        """Start judging by the newest round that counts: first groups with waiting messages, then the longest unjudged.

        Returns the counts of what was not answered in it.
        """
        counting = NO_ROUND
        while self._rounds and self._rounds[0].answered_ms <= self._read_ms:
            counting = self._rounds.popleft()
        if counting is NO_ROUND:
            return []
        self._round = counting
        behind = self._behind()
        due = [group for group in self._groups if self._is_due(group, is_new=group in behind or group in self._new)]
        self._queue = deque(sorted(due, key=lambda group: (group not in behind, self._judged_ms(group))))
        counts = {f"end-offsets:{error}": number for error, number in counting.unanswered.items()}
        return [{"kind": "counted", "cluster": self.cluster, "counts": counts}] if counts else []

    def _judged_ms(self, group: str) -> int:
        return self._judged[group].at_ms if group in self._judged else 0

    def _is_due(self, group: str, *, is_new: bool) -> bool:
        judged = self._judged.get(group)
        if judged is None:
            return True
        waited_ms = self._round.at_ms - judged.at_ms
        if waited_ms < 0:
            return True  # the clock was set back
        return waited_ms >= SHARE * judged.took_ms and (is_new or not judged.is_quiet or waited_ms >= AGAIN_MS)

    def _behind(self) -> set[str]:
        """Return the groups with waiting messages, and record which partitions may wait for a transaction."""
        table, slots = self._table, np.flatnonzero(self._table.filled > 0)
        ends = self._round.ends_of(table.topics, table.topic[slots], table.partition[slots])
        slots = slots[ends > table.newest(slots)]
        old = slots[table.newest_ms(slots) < self._round.at_ms - SUSPECT_MS]
        suspects: dict[str, list[int]] = {}
        places = np.unique(table.topic[old].astype(np.int64) << 32 | table.partition[old])  # many groups share them
        for topic, partition in zip((places >> 32).tolist(), (places & 0xFFFF_FFFF).tolist(), strict=True):
            suspects.setdefault(table.topics[topic], []).append(partition)
        self._suspects = suspects
        return {table.groups[number] for number in np.unique(table.group[slots]).tolist()}

    def _judge(self, thresholds_of: Callable[[str], Thresholds]) -> list[Said]:
        """Judge groups for a limited time; the rest wait for the next batch."""
        outputs: list[Said] = []
        # Nothing has been judged before this first batch, so it judges all groups, however long that takes.
        began_s = time.monotonic()
        first_s, at_once = (float("inf"), FIRST_AT_ONCE) if self._is_first else (FIRST_S, AT_ONCE)
        self._is_first = False
        while self._queue and time.monotonic() - began_s < (JUDGE_S if self._queue[0] in self._judged else first_s):
            groups = [self._queue.popleft() for _ in range(min(at_once, len(self._queue)))]
            known = [self._as_heard(self._groups[group]) for group in groups if group in self._groups]
            outputs += self._judge_groups(known, thresholds_of)
        return outputs

    def _judge_groups(self, groups: list[SeenGroup], thresholds_of: Callable[[str], Thresholds]) -> list[Said]:
        """Judge some groups: the plain ones together, the others one by one."""
        outputs: list[Said] = []
        found = Partitions(self._table, self._round, self._history, groups)
        questions = [self._question(found, number, thresholds_of) for number in range(len(groups))]
        for number, (question, answer) in enumerate(zip(questions, plain_answers(found, questions), strict=True)):
            began_s = time.perf_counter()
            outputs += self._judge_group(question, found.of(number)) if answer is None else self._note(question, answer)
            if (judged := self._judged.get(question.facts.group)) is not None:
                judged.took_ms = 1_000 * (time.perf_counter() - began_s)
        return outputs

    def _question(self, found: Partitions, number: int, thresholds_of: Callable[[str], Thresholds]) -> Question:
        facts, at_ms = found.groups[number].facts, self._round.at_ms
        outage_end_ms = max(found.outage_ends_ms[number], self._outages.end_ms(facts.shard, at_ms))
        judged = self._judged.get(facts.group)
        pairs = iter(() if judged is None else judged.history)
        history, commits = list(zip(pairs, pairs, strict=True)), self._table.commits.get(facts.group, 0)
        return Question(facts._replace(outage_end_ms=outage_end_ms), thresholds_of(facts.group), history, commits)

    def _as_heard(self, group: SeenGroup) -> SeenGroup:
        """Return a group as of the round: if its coordinator is silent, nobody is known to be alive."""
        facts = group.facts
        silent = self._outages.is_open(facts.shard) or self.clocks.is_silent(facts.broker, self._round.at_ms)
        return group.unheard() if silent else group

    def _judge_group(self, question: Question, partitions: list[PartitionLag]) -> Sequence[Said]:
        facts, thresholds, history, commits = question
        if not partitions and facts.group not in self._judged:
            self._new.discard(facts.group)
            return ()  # it has no partitions, and had none
        answer = judge_group(facts, partitions, self._round.at_ms, thresholds, history, commits=commits)
        self._note(question, answer)
        if not partitions:
            del self._judged[facts.group]
        return answer

    def _note(self, question: Question, answer: Answer) -> Answer:
        """Remember the judgement of a group."""
        (shown, report), group = answer, question.facts.group
        self._new.discard(group)
        judged = self._judged.setdefault(group, _Judged())
        judged.at_ms = self._round.at_ms
        judged.is_quiet = shown["lag"] == 0 and shown["complete"] and not report.findings
        judged.history = array("q", chain.from_iterable(shown["columns"]["history"]))
        return answer

    # ------------------------------------------------------------------ kept over a restart

    def _dump(self) -> dict[str, Any]:
        return {
            "batch_id": self._batch_id,
            "table": self._table.dump(),
            "rounds": self._history.dump(),
            "known": self._known.dump(),
            "outages": self._outages.dump(),
            "histories": {group: judged.history.tobytes() for group, judged in self._judged.items()},
            "groups": {group: known.dump() for group, known in self._groups.items()},
        }

    def _load(self, committed: int | None) -> None:
        snapshot, batches = self._kept.load(committed)
        if snapshot is not None:
            self._batch_id = snapshot["batch_id"]
            self._table = CommitTable.load(snapshot["table"])
            self._history, self._known = History.load(snapshot["rounds"]), Round.load(snapshot["known"])
            self._outages = Outages(snapshot.get("outages", ({}, [])))  # older snapshots have none
            for group, history in snapshot["histories"].items():
                self._judged[group] = _Judged(history=array("q", history))
            self._groups = {group: SeenGroup.load(known) for group, known in snapshot["groups"].items()}
        for batch in batches:
            if batch.round is not None:
                self._know(Round.load(batch.round))
            if batch.outages is not None:
                self._outages = Outages(batch.outages)
            self._take_batch(batch)
            self._take_views(
                (group, at_ms, None if view is None else SeenGroup.load(view)) for group, at_ms, view in batch.groups
            )
        self._newest = self._known

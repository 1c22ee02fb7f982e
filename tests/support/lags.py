"""Consumers that commit, for tests of lag: a few lines each, played through the real tracker and the real `fold`.

A partition gets messages at a rate. Its consumer commits in its own way. Rounds of end offsets come every ten seconds.
All instants are relative to the beginning, ``T0``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from coordinator_model.decode.cluster_row import ClusterRow
from coordinator_model.events import OffsetCommitted
from coordinator_model.group_report import GroupReport, Said, instant_ms, of_kind, reports_in
from coordinator_model.incidents import Kind, OpenIncidents, Transition, fold
from coordinator_model.lag_tracker import LagTracker, track
from coordinator_model.thresholds import Thresholds

T0 = 1_700_000_000_000
ROUND_MS = 10_000
Consumer = Callable[[int, Callable[[int], int]], Iterable[tuple[int, int]]]
"""Takes the end of the life and the log (how many messages at an instant); yields commits: instants and offsets."""


def keeps_up(every_ms: int = 5_000, from_ms: int = 1_000, until_ms: int = 10**9, late_ms: int = 100) -> Consumer:
    """Commit everything that has come, at regular intervals."""

    def commits(end_ms: int, log: Callable[[int], int]) -> Iterable[tuple[int, int]]:
        for at_ms in range(from_ms, min(end_ms, until_ms), every_ms):
            yield at_ms, log(at_ms - late_ms)

    return commits


def slow(share: float = 0.5, every_ms: int = 5_000) -> Consumer:
    """Read a share of what comes, and commit at regular intervals."""

    def commits(end_ms: int, log: Callable[[int], int]) -> Iterable[tuple[int, int]]:
        for at_ms in range(1_000, end_ms, every_ms):
            yield at_ms, int(log(at_ms) * share)

    return commits


def paused(from_ms: int, every_ms: int = 5_000) -> Consumer:
    """Keep committing the same offset, as a Java client does for a paused partition."""

    def commits(end_ms: int, log: Callable[[int], int]) -> Iterable[tuple[int, int]]:
        for at_ms in range(1_000, end_ms, every_ms):
            yield at_ms, log(min(at_ms, from_ms))

    return commits


def never(_end_ms: int, _log: Callable[[int], int]) -> Iterable[tuple[int, int]]:
    """Commit nothing."""
    return ()


def listed(*commits: tuple[int, int]) -> Consumer:
    """Commit these offsets at these instants."""
    return lambda end_ms, _: [commit for commit in commits if commit[0] < end_ms]


@dataclass
class Partition:
    """A partition of a group: how it is filled, read and owned."""

    consumer: Consumer
    rate: float = 10.0
    """Messages a second."""
    member: str | None = "m1"
    topic: str = "t"
    log: Callable[[int], int] | None = None
    start: Callable[[int], int] = lambda _: 0
    stable: Callable[[int], int] | None = None
    topic_id: str | None = None

    def end(self, at_ms: int) -> int:
        """Return how many messages have come."""
        return self.log(at_ms) if self.log is not None else max(0, int(self.rate * at_ms / 1_000))


@dataclass
class Life:
    """One group: its partitions by number, its views as reports show them, its rounds."""

    partitions: dict[int, Partition]
    group: str = "g"
    type: str = "classic"
    reports: list[Said] = field(default_factory=list)
    round_ms: int = ROUND_MS
    first_round_ms: int = 0
    missing_rounds: tuple[int, int] = (-1, -1)
    """Between these instants the brokers answered nothing."""
    topic_names: dict[str, str] = field(default_factory=dict)

    def view(self, at_ms: int, *, state: str = "Stable", liveness: str = "alive", generation: int = 1, **who: str):
        """Let a report show the group; ``who``: by member, the one that has its partitions instead."""
        held: dict[str, dict[str, list[int]]] = {}
        for number, p in self.partitions.items():
            member = who.get(p.member or "", p.member)
            if member is not None and self.type != "simple":
                held.setdefault(member, {}).setdefault(p.topic, []).append(number)
        members = [_member(name, assignment, generation, liveness) for name, assignment in sorted(held.items())]
        view = {
            "cluster": "c",
            "group": self.group,
            "type": self.type,
            "state": state,
            "generation": generation,
            "incarnation": 1,
            "coordinator": "broker-1",
            "stable_since_ms": T0 + at_ms if state == "Stable" else None,
            "members": members if state not in ("Empty", "PreparingRebalance") else [],
        }
        self.reports.append(self.report(at_ms, view))
        return self

    def report(self, at_ms: int, view: dict[str, Any] | None, *, deleted: bool = False) -> GroupReport:
        """Return a shard's report."""
        return GroupReport(cluster="c", shard=0, group=self.group, at_ms=T0 + at_ms, view=view, deleted=deleted)

    def delete(self, at_ms: int) -> "Life":
        """Let the group be deleted."""
        self.reports.append(self.report(at_ms, None, deleted=True))
        return self

    def events(self, until_ms: int) -> list[OffsetCommitted]:
        """Return its commits, in the order of the log."""
        written = [
            (at_ms, number, offset, p)
            for number, p in self.partitions.items()
            for at_ms, offset in p.consumer(until_ms, p.end)
        ]
        return [
            OffsetCommitted(
                T0 + at_ms, 0, "__consumer_offsets", 0, lies_at, self.group, p.topic, number, tombstone=offset < 0,
                committed_offset=offset, commit_ms=T0 + at_ms, topic_id=p.topic_id,
            )
            for lies_at, (at_ms, number, offset, p) in enumerate(sorted(written, key=lambda row: row[:2]))
        ]  # fmt: skip

    def rows(self, until_ms: int) -> list[ClusterRow]:
        """Return the rounds of end offsets."""
        topics = {p.topic for p in self.partitions.values()}
        rows = []
        for at_ms in range(self.first_round_ms, until_ms + 1, self.round_ms):
            if self.missing_rounds[0] < at_ms < self.missing_rounds[1]:
                continue
            told = {name: {t: self._offsets(t, name, at_ms) for t in topics} for name in ("end", "start", "stable")}
            offsets = {f"{name}_offsets": by_topic for name, by_topic in told.items()}
            rows.append(ClusterRow(T0 + at_ms, topic_names=self.topic_names, **offsets))
        return rows

    def _offsets(self, topic: str, name: str, at_ms: int) -> tuple[int | None, ...]:
        of_topic = {n: p for n, p in self.partitions.items() if p.topic == topic}
        asked = [getattr(of_topic[n], name) if n in of_topic else None for n in range(max(of_topic) + 1)]
        if name == "stable":
            asked = [log or (of_topic[n].end if n in of_topic else None) for n, log in enumerate(asked)]
        return tuple(None if log is None else log(at_ms) for log in asked)

    def play(self, until_ms: int, thresholds: Thresholds | None = None) -> "Played":
        """Judge each round, and fold the reports into incidents."""
        return played(self, self.events(until_ms), self.rows(until_ms), thresholds=thresholds)


def _member(name: str, assignment: dict[str, list[int]], generation: int, liveness: str) -> dict[str, Any]:
    return {
        "member_id": name,
        "instance_id": None,
        "client_id": f"client-{name}",
        "client_host": "10.0.0.7",
        "liveness": liveness,
        "generation": generation,
        "max_poll_interval_ms": 60_000,
        "joined_ms": T0,
        "rejoin_reason": None,
        "assignment": [{"topic": topic, "partitions": numbers} for topic, numbers in assignment.items()],
    }


@dataclass
class Played:
    """The result of a life."""

    transitions: list[Transition]
    outputs: list[Said]
    opened: OpenIncidents

    def _of(self, kind: Kind) -> list[Transition]:
        return [t for t in self.transitions if t.kind is kind]

    @property
    def openings(self) -> list[tuple[str, str]]:
        """(rule, subject), in order."""
        return [(t.incident.rule, t.incident.subject) for t in self._of(Kind.OPENED)]

    @property
    def opened_at(self) -> dict[tuple[str, str], int]:
        """When a round first reported it, by rule and subject; of several openings, the last."""
        first: dict[str, int] = {}
        for report in reports_in(self.outputs):
            for finding in report.findings:
                first.setdefault(f"{finding['rule']} {finding['subject']} {finding['opened_ms']}", report.at_ms - T0)
        return {
            (i.rule, i.subject): first[f"{i.rule} {i.subject} {i.opened_ms}"]
            for i in (t.incident for t in self._of(Kind.OPENED))
        }

    @property
    def closings(self) -> list[tuple[str, str, str | None, int]]:
        """(rule, subject, reason, when)."""
        return [(t.incident.rule, t.incident.subject, t.incident.reason, t.at_ms - T0) for t in self._of(Kind.CLOSED)]

    @property
    def incidents(self) -> list[tuple[str, str, str, str | None]]:
        """(id, rule, subject, reason of its end) of all that opened."""
        ended = {t.incident.incident_id: t.incident.reason for t in self._of(Kind.CLOSED)}
        return [
            (i.incident_id, i.rule, i.subject, ended.get(i.incident_id))
            for i in (t.incident for t in self._of(Kind.OPENED))
        ]

    def columns(self, at: int = -1) -> dict[str, Any]:
        """Return the columns of a round."""
        return list(of_kind(self.outputs, "partitions"))[at]["columns"]

    def notes(self, at: int = -1) -> dict[int, str]:
        """Return the notes of a round by partition."""
        columns = self.columns(at)
        return {columns["partition"][int(row)]: note for row, note in columns["note"].items()}

    def every_note(self, number: int) -> set[str]:
        """Return every note that a partition ever had."""
        rounds = list(of_kind(self.outputs, "partitions"))
        return {note for at in range(len(rounds)) if (note := self.notes(at).get(number)) is not None}


def played(
    life: Life,
    events: list[OffsetCommitted],
    rows: list[ClusterRow],
    *,
    thresholds: Thresholds | None = None,
    opened: OpenIncidents | None = None,
    history: list[tuple[int, int]] | None = None,
) -> Played:
    """Judge these events and rounds of a life; ``opened`` and ``history``: what an earlier monitor had stored."""
    tracker = LagTracker("c", lambda _: thresholds or Thresholds(), {life.group: history or []})
    waiting = sorted(life.reports, key=instant_ms)
    said: list[Said] = []

    def until(at_ms: int) -> list[Said]:
        told = []
        while waiting and instant_ms(waiting[0]) <= at_ms:
            told.append(waiting.pop(0))
        said.extend(told)
        return told

    outputs = []
    for output in track(tracker, events, rows, until):
        outputs += [*said, output]
        said.clear()
    outputs += said
    transitions, changed = fold(opened or {}, reports_in(outputs), lambda _: 60_000)
    return Played(transitions, outputs, {**(opened or {}), **changed})

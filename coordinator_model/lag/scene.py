"""A group's partitions as the rules of lag see them: each with its lag, its status and what its stall looks like."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from coordinator_model.lag.partition import GroupFacts, PartitionLag
from coordinator_model.lag.stall import Instant, Stall, Work, owner_key, stall_of, works_of
from coordinator_model.lag.status import Status, lag_of, status_of
from coordinator_model.states import GroupState, GroupType
from coordinator_model.thresholds import Thresholds

FRESH_MS = 30_000
"""An end offset that is older tells nothing of now: no lag is better than one that stands still."""
AT_REST = (GroupState.EMPTY, GroupState.DEAD)


class Row(NamedTuple):
    """A partition, judged."""

    p: PartitionLag
    lag: int | None
    status: Status
    stall: Stall

    @property
    def place(self) -> str:
        """Its name for people, and in a finding's subject."""
        return f"{self.p.topic}-{self.p.partition}"

    @property
    def last_ms(self) -> int:
        """When it was last committed; 0: never."""
        return self.p.commits[-1].at_ms if self.p.commits else 0


class Scene(NamedTuple):
    """A group at an instant; ``rows`` are sorted by topic and partition."""

    instant: Instant
    rows: tuple[Row, ...]
    history: Sequence[tuple[int, int]]

    @property
    def facts(self) -> GroupFacts:
        """What is known of the group."""
        return self.instant.facts

    @property
    def now_ms(self) -> int:
        """When it is judged."""
        return self.instant.now_ms

    @property
    def thresholds(self) -> Thresholds:
        """By which it is judged."""
        return self.instant.thresholds

    @property
    def total(self) -> int | None:
        """The sum of the lags that are known; None: none is."""
        known = [row.lag for row in self.rows if row.lag is not None]
        return sum(known) if known else None

    @property
    def works(self) -> bool:
        """Whether the group is at work: its members have their partitions, or it has none and assigns itself."""
        return bool(self.facts.view_ms) and (self.instant.is_simple or self.facts.state == GroupState.STABLE)

    @property
    def is_known(self) -> bool:
        """Whether anything can be said: somebody has seen the group, it is not in a rebalance, and lags are known."""
        settled = self.works or (bool(self.facts.view_ms) and self.facts.state in AT_REST)
        return settled and (not self.rows or any(is_fresh(row.p, self.now_ms) for row in self.rows))

    def by_topic(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield the rows of each topic."""
        for topic, rows in groupby(self.rows, key=lambda row: row.p.topic):
            yield topic, list(rows)


def scene_of(
    facts: GroupFacts,
    partitions: Iterable[PartitionLag],
    now_ms: int,
    thresholds: Thresholds,
    history: Iterable[tuple[int, int]],
) -> Scene:
    """Judge each partition. What is not fresh, or no lag of this kind of group, is taken for not known."""
    instant = Instant(facts, now_ms, thresholds)
    known = facts.type != GroupType.SHARE
    listed = sorted((_as_known(p, now_ms, known=known) for p in partitions), key=lambda p: (p.topic, p.partition))
    works = works_of(listed)
    rows = []
    for p in listed:
        status = status_of(p, now_ms)
        rows.append(Row(p, lag_of(p), status, stall_of(p, status, works.get(owner_key(p), Work()), instant)))
    return Scene(instant, tuple(rows), [(at_ms, lag) for at_ms, lag in history if at_ms < now_ms])


def is_fresh(p: PartitionLag, now_ms: int) -> bool:
    """Tell whether a partition's end offset says anything of this instant."""
    return p.end_offset is not None and p.asked_ms is not None and now_ms - p.asked_ms <= FRESH_MS


def _as_known(p: PartitionLag, now_ms: int, *, known: bool) -> PartitionLag:
    if known and is_fresh(p, now_ms):
        return p
    unknown: dict[str, Any] = {"start_offset": None, "end_offset": None, "stable_offset": None, "waits_since_ms": None}
    return p._replace(**unknown)

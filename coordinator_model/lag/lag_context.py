"""A group's partitions as the lag rules see them: each with its lag, its status and its stall."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from coordinator_model.lag.partition import GroupFacts, PartitionLag
from coordinator_model.lag.stall import NO_WORK, NOTHING, Instant, Stall, owner_key, stall_of, works_of
from coordinator_model.lag.status import Status, lag_of, status_by
from coordinator_model.states import GroupState, GroupType
from coordinator_model.thresholds import Thresholds

FRESH_MS = 30_000
"""An older end offset does not count: an unknown lag is better than an outdated one."""
AT_REST = (GroupState.EMPTY, GroupState.DEAD)


class Row(NamedTuple):
    """A partition that was judged."""

    p: PartitionLag
    lag: int | None
    fresh: bool
    """Whether its end offset is recent enough to count."""
    status: Status
    stall: Stall

    @property
    def place(self) -> str:
        """The partition's name for people, and in a finding's subject."""
        return f"{self.p.topic}-{self.p.partition}"

    @property
    def last_ms(self) -> int:
        """When the partition was last committed; 0: never."""
        return self.p.commits[-1].at_ms if self.p.commits else 0


class LagContext(NamedTuple):
    """A group at an instant; ``rows`` are sorted by topic and partition."""

    instant: Instant
    rows: tuple[Row, ...]
    topics: Mapping[str, Sequence[Row]]
    total: int | None
    """The sum of the lags that are known; None: no lag is known."""
    read: int | None
    """The same sum for the partitions that have an owner, so that topics that the group no longer reads do not count.
    If no partition has an owner, it is the sum for all."""
    history: Sequence[tuple[int, int]]

    @property
    def facts(self) -> GroupFacts:
        """What is known about the group."""
        return self.instant.facts

    @property
    def now_ms(self) -> int:
        """When it is judged."""
        return self.instant.now_ms

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of the group."""
        return self.instant.thresholds

    @property
    def works(self) -> bool:
        """Whether the group works: it is stable, or it is a simple group, which has no members."""
        return bool(self.facts.view_ms) and (self.instant.is_simple or self.facts.state == GroupState.STABLE)

    @property
    def is_known(self) -> bool:
        """Whether the group can be judged: a view of it is known, and it is not in a rebalance."""
        return self.works or (bool(self.facts.view_ms) and self.facts.state in AT_REST)


def lag_context(
    facts: GroupFacts,
    partitions: Iterable[PartitionLag],
    now_ms: int,
    thresholds: Thresholds,
    history: Iterable[tuple[int, int]],
) -> LagContext:
    """Judge each partition. Old end offsets count as unknown, and so do all end offsets of share groups."""
    instant = Instant(facts, now_ms, thresholds)
    listed = [_as_known(p, facts, now_ms) for p in sorted(partitions, key=lambda p: (p.topic, p.partition))]
    lags = [lag_of(p) for p in listed]
    works = works_of(zip(listed, lags, strict=True))
    rows = []
    for p, lag in zip(listed, lags, strict=True):
        if lag == 0:  # true for most partitions, so they skip the rest
            rows.append(Row(p, 0, True, Status.OK, NOTHING))
            continue
        status = status_by(p, lag, now_ms)
        stall = stall_of(p, lag, status, works.get(owner_key(p), NO_WORK), instant)
        rows.append(Row(p, lag, p.end_offset is not None, status, stall))
    topics = {topic: list(of_topic) for topic, of_topic in groupby(rows, key=lambda row: row.p.topic)}
    read = [row.lag for row in rows if row.p.owner is not None] or lags
    before = [(at_ms, lag) for at_ms, lag in history if at_ms < now_ms]
    return LagContext(instant, tuple(rows), topics, _sum(lags), _sum(read), before)


def _sum(lags: Sequence[int | None]) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _as_known(p: PartitionLag, facts: GroupFacts, now_ms: int) -> PartitionLag:
    """Remove end offsets that are old, or that do not show the lag of this type of group."""
    is_fresh = p.asked_ms is not None and now_ms - p.asked_ms <= FRESH_MS and facts.type != GroupType.SHARE
    return p if is_fresh and p.end_offset is not None else p._replace(**_UNKNOWN)


_UNKNOWN: dict[str, Any] = {"start_offset": None, "end_offset": None, "stable_offset": None, "waits_since_ms": None}

"""The lags of groups: the content of the table `lags`, as objects of the contract and as sums.

A group's partitions are stored in columns, with one value per partition in each (`coordinator_model.lag` makes them):
sums need only a few of the columns, and a list of numbers is read several times as fast as one object per partition.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine, Float, Row, Select, cast, func, select

from coordinator_model.lag.status import Status
from coordinator_model.lag.topic_sums import TopicSums, topic_sums, topics_of
from streaming.store import tables
from streaming.store.database import group_key
from streaming.store.order import worst_first
from streaming.store.pages import by_weight

UNKNOWN: Final = Status.UNKNOWN.value
STATUSES: Final = tuple(status.value for status in Status if status is not Status.UNKNOWN)
"""Burrow's statuses, from the best to the worst."""
_TO_LOOK_AT: Final = {name: place for place, name in enumerate(("ok", UNKNOWN, *STATUSES[1:]))}
_PARTITIONS_AT_ONCE: Final = 20_000
_GROUP_WEIGHT: Final = 10  # what a group weighs in addition to its partitions
_ROWS_KEPT: Final = 5_000  # if a group has more partitions, only the worst are stored
_KNOWN: Final = tables.lags.c
_NAMES: Final = (_KNOWN.group_key, _KNOWN.partitions)
_SHOWN: Final = _KNOWN.group_key == tables.groups.c.group_key  # a judgement without its group is not shown

Columns = Mapping[str, Any]


class Lag(NamedTuple):
    """A group's lag as of `at_ms`; `lag`: the sum over all partitions whose lag is known, None if there are none."""

    cluster: str
    group: str
    at_ms: int
    lag: int | None
    status: str
    complete: bool
    partitions: int
    columns: Columns

    @property
    def left_out(self) -> int:
        """How many partitions are missing in the columns: if a group has thousands, only the worst are kept."""
        return int(self.columns.get("left_out", 0))

    @property
    def topics_left_out(self) -> int:
        """How many topics have no sums: if a group has thousands, only the worst are kept."""
        return int(self.columns.get("sums_left_out", 0))


class LagTotals(NamedTuple):
    """The groups of one cluster and status (of the worst known partition); `newest_ms`: the newest judgement."""

    cluster: str
    status: str
    groups: int
    lag: float | None
    newest_ms: int


@dataclass(frozen=True, slots=True)
class Lags:
    """Groups that are read during iteration, a portion at a time; `left_out`: how many are not among them."""

    left_out: int
    portions: Sequence[Sequence[str]]
    read: Callable[[Sequence[str]], dict[str, Row[Any]]]

    def __iter__(self) -> Iterator[Lag]:
        for keys in self.portions:
            found = self.read(keys)
            yield from (_lag(found.pop(key)) for key in keys if key in found)


class LagReader:
    """Read-only; every method is one short transaction, and so is each portion of `Lags`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of_group(self, cluster: str, group: str) -> Lag | None:
        """Return the newest judgement of a group, or None."""
        return next(map(_lag, self._read([group_key(cluster, group)]).values()), None)

    def totals(self) -> list[LagTotals]:
        """Sum up groups by cluster and status."""
        by = (_KNOWN.cluster, _KNOWN.status)
        lag = func.sum(cast(_KNOWN.lag, Float))  # SQLite fails if a sum of integers overflows
        sums = select(*by, func.count(), lag, func.max(_KNOWN.at_ms)).join(tables.groups, _SHOWN).group_by(*by)
        return [LagTotals._make(row) for row in self._rows(sums)]

    def worst_first(self, groups: int, partitions: int) -> Lags:
        """Return up to `groups` groups in the order of `order.worst_first`, with at most `partitions` in all."""
        some = worst_first(select(*_NAMES)).join(tables.lags, _SHOWN).limit(groups)
        return self._chosen(some, partitions)

    def by_name(self, clusters: Sequence[str], partitions: int) -> Lags:
        """Return the groups of some clusters by name, with at most `partitions` in all."""
        some = select(*_NAMES).join(tables.groups, _SHOWN).where(_KNOWN.cluster.in_(clusters))
        return self._chosen(some.order_by(_KNOWN.cluster, _KNOWN.group_id, _KNOWN.group_key), partitions)

    def _chosen(self, some: Select[Any], most: int) -> Lags:
        known = [(row.group_key, min(row.partitions, _ROWS_KEPT)) for row in self._rows(some)]
        rows = accumulate(partitions for _, partitions in known)
        fitting = known[: sum(1 for _ in takewhile(lambda until_here: until_here <= most, rows))]
        weighed = ((key, partitions + _GROUP_WEIGHT) for key, partitions in fitting)
        return Lags(len(known) - len(fitting), by_weight(weighed, _PARTITIONS_AT_ONCE), self._read)

    def _read(self, keys: Sequence[str]) -> dict[str, Row[Any]]:
        names = (_KNOWN.cluster, _KNOWN.group_id, _KNOWN.at_ms, _KNOWN.lag, _KNOWN.status, _KNOWN.complete)
        some = select(_KNOWN.group_key, *names, _KNOWN.partitions, _KNOWN.body).where(_KNOWN.group_key.in_(keys))
        return {row.group_key: row for row in self._rows(some)}

    def _rows(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        with self._engine.connect() as connection:
            return connection.execute(statement).all()


def _lag(row: Row[Any]) -> Lag:
    """Make a `Lag` of its row; one at a time, because a parsed body is ten times as large."""
    facts = (row.cluster, row.group_id, row.at_ms, row.lag, row.status, row.complete, row.partitions)
    return Lag(*facts, json.loads(row.body))


def partitions_of(columns: Columns) -> Iterator[dict[str, Any]]:
    """Yield the partitions as in the contract, with more fields."""
    for topic, topic_id, first, end in topics_of(columns):
        for row in range(first, end):
            owner = columns["owner"][row]
            member_id, instance_id, client_id, host, generation = (
                (None,) * 5 if owner is None else columns["owners"][owner]
            )
            yield {
                "topic": topic,
                "topic_id": topic_id,
                **{name: columns[name][row] for name in _OF_OFFSETS},
                "owner": member_id,
                "owner_instance_id": instance_id,
                "owner_client_id": client_id,
                "owner_host": host,
                "owned_since_ms": columns["owned_since_ms"][row],
                "generation": generation,
                "rate": columns["rate"][row],
                "leader_epoch": columns["leader_epoch"][row],
                "note": columns["note"].get(str(row)),
                "metadata": columns["metadata"].get(str(row)),
                "asked_ms": columns["asked_ms"],
            }


_OF_OFFSETS: Final = (
    "partition", "committed_offset", "committed_ms", "start_offset", "end_offset", "lag", "lag_ms", "status",
)  # fmt: skip


def worst_partitions_first(partitions: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort by status, then by lag; unknown partitions come before those that are ok."""
    return sorted(partitions, key=lambda row: (-_TO_LOOK_AT.get(row["status"], 0), -(row["lag"] or 0)))


def worst_topics_first(topics: Iterable[TopicSums]) -> list[TopicSums]:
    """Sort topics by status, then by lag, like partitions."""
    return sorted(topics, key=lambda topic: (-_TO_LOOK_AT.get(topic.status, 0), -(topic.lag or 0)))


def topic_lags(columns: Columns) -> list[TopicSums]:
    """Return the sums of each topic; if a group is too large to store all rows, the stored sums of the worst topics."""
    if columns.get("left_out"):
        return [TopicSums(*of_topic) for of_topic in columns.get("sums", ())]
    return topic_sums(columns)

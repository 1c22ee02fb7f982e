"""The sums of a group's partitions by topic, from columns. The rows of a recreated topic count together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from coordinator_model.lag.stall import STALLED
from coordinator_model.lag.status import Status

MAX_SUMS = 5_000
"""How many topics' sums are kept, the worst ones, if not all rows of a group are kept."""
_RANKS = {status.value: status.rank for status in Status}


class TopicSums(NamedTuple):
    """The sums of one topic. A sum is None if no value is known."""

    topic: str
    partitions: int
    lag: int | None
    lag_ms: int | None
    """The largest of its partitions' values."""
    committed: int | None
    start: int | None
    """``start`` and ``end`` are None also if one partition's offset is not known: a sum that jumps would look as if
    messages had come."""
    end: int | None
    status: str
    """The worst known status."""
    stalled: int
    unknown: int
    """How many partitions are not counted in ``lag``."""


def topics_of(columns: Mapping[str, Any]) -> Iterator[tuple[str, str | None, int, int]]:
    """Yield the name and the id of each topic, the first of its rows, and the row after its last."""
    first = 0
    for name, topic_id, rows in columns["topics"]:
        yield name, topic_id, first, first + rows
        first += rows


def worst_of(statuses: Iterable[str]) -> str:
    """Return the worst known status."""
    return max(statuses, key=lambda status: _RANKS.get(status, 0), default=Status.UNKNOWN.value)


def topic_sums(columns: Mapping[str, Any]) -> list[TopicSums]:
    """Add up the partitions of each topic."""
    stalled = {int(row) for row, note in columns["note"].items() if note in STALLED}
    rows: dict[str, list[int]] = {}
    for topic, _, first, end in topics_of(columns):
        rows.setdefault(topic, []).extend(range(first, end))
    return [_added(columns, topic, of_topic, stalled) for topic, of_topic in rows.items()]


def worst_sums(sums: Sequence[TopicSums]) -> list[TopicSums]:
    """Return the worst topics, at most ``MAX_SUMS``, in their original order."""
    by_badness = sorted(range(len(sums)), key=lambda at: (-_RANKS.get(sums[at].status, 0), -(sums[at].lag or 0), at))
    return [sums[at] for at in sorted(by_badness[:MAX_SUMS])]


def _added(columns: Mapping[str, Any], topic: str, rows: Sequence[int], stalled: set[int]) -> TopicSums:
    def known(name: str) -> list[int]:
        values = columns[name]
        return [value for row in rows if (value := values[row]) is not None]

    lags, times, committed, starts, ends = map(
        known, ("lag", "lag_ms", "committed_offset", "start_offset", "end_offset")
    )
    return TopicSums(
        topic,
        len(rows),
        sum(lags) if lags else None,
        max(times, default=None),
        sum(committed) if committed else None,
        sum(starts) if starts and len(starts) == len(rows) else None,
        sum(ends) if ends and len(ends) == len(rows) else None,
        worst_of(columns["status"][row] for row in rows),
        len(stalled.intersection(rows)) if stalled else 0,
        len(rows) - len(lags),
    )

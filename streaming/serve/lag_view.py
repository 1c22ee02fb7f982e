"""The lag of a group as its page shows it: the worst partitions, and the total lag of the last rounds. Pure.

Coordinates are on a plane `WIDTH` wide, as in `timeline`. The template draws and escapes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from coordinator_model.lag.topic_sums import TopicSums
from coordinator_model.wording import seconds
from streaming.serve.timeline import WIDTH
from streaming.store.lags import Lag, partitions_of, topic_lags, worst_partitions_first, worst_topics_first

PARTITIONS_SHOWN: Final = 100
TOPICS_SHOWN: Final = 20
HEIGHT: Final = 80
_MARGIN: Final = 4
NOTES: Final[Mapping[str, str]] = {
    "stuck": "stalled, or paused by the client: its owner commits other partitions, not this one",
    "silent": "stalled, or paused by the client: its owner is alive and commits nothing at all",
    "slow": "its owner commits, and falls behind",
    "paused": "the same offset is committed again and again",
    "not-committing": "its owner has committed nothing since it owns it",
    "starved": "no member owns it, or its owner is not known to be alive",
    "waits-for-transaction": "all committed messages are read; the rest belongs to an open transaction",
    "last-message": "too few messages wait to call it stalled",
    "share-group": "share groups commit elsewhere",
}
"""What each `note` of a partition means, in words."""


class Line(NamedTuple):
    """The total lag over time: the points of a polyline, and the ends of its axes."""

    points: list[tuple[float, float]]
    from_ms: int
    to_ms: int
    now: int
    most: int


class LagView(NamedTuple):
    """What the page shows. `most`: the largest lag of a partition, at which a bar is full.

    `topics`: the sums of each topic; empty if all partitions are shown or there is only one topic.
    """

    at_ms: int
    lag: int | None
    status: str
    complete: bool
    partitions: int
    rows: Sequence[Mapping[str, Any]]
    most: int
    line: Line | None
    topics: Sequence[TopicSums]
    topics_total: int


def lag_view(lag: Lag) -> LagView:
    """Return what the page shows of a judgement: the worst partitions and topics first."""
    rows = worst_partitions_first(partitions_of(lag.columns))[:PARTITIONS_SHOWN]
    noted = [row | {"note": NOTES.get(row["note"], row["note"])} for row in rows]
    most = max((value for value in lag.columns["lag"] if value is not None), default=0)
    line, topics = line_of(lag.columns["history"]), worst_topics_first(topic_lags(lag.columns))
    total = len(topics) + lag.topics_left_out
    shown = topics[:TOPICS_SHOWN] if total > 1 and lag.partitions > PARTITIONS_SHOWN else []
    return LagView(lag.at_ms, lag.lag, lag.status, lag.complete, lag.partitions, noted, most, line, shown, total)


def line_of(history: Sequence[Sequence[int]]) -> Line | None:
    """Draw the total lag of each round; return None if there are fewer than two rounds."""
    if len(history) < 2:
        return None
    (from_ms, _), *_, (to_ms, now) = history
    most = max(lag for _, lag in history)
    span_ms = max(1, to_ms - from_ms)

    def point(at_ms: int, lag: int) -> tuple[float, float]:
        x = WIDTH * max(0.0, min(1.0, (at_ms - from_ms) / span_ms))
        y = HEIGHT - _MARGIN - (HEIGHT - 2 * _MARGIN) * max(0.0, lag / max(1, most))
        return round(x, 1), round(y, 1)

    return Line([point(at_ms, lag) for at_ms, lag in history], from_ms, to_ms, now, most)


def waited(span_ms: int) -> str:
    """Write `2.7 s`, `26 min`, `26 h`, `26 d`: in the largest unit that leaves at least two digits, or in seconds."""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if span_ms >= 10 * unit_ms:
            return f"{span_ms // unit_ms:,} {unit}"
    return seconds(span_ms)

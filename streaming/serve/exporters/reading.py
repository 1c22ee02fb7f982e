"""What every exporter needs from the store: groups, their lags, and the offsets of their partitions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from coordinator_model.lag.topic_sums import topics_of
from streaming.store import Store
from streaming.store.lags import Lag, Lags, topic_lags

MOST_PARTITIONS: Final = 1_000_000
"""Most partitions of all groups together. Groups beyond it are left out and counted."""


class Offsets(NamedTuple):
    """The newest known offsets of a partition of a topic, and when they were asked for."""

    asked_ms: int
    start: int | None
    end: int | None


@dataclass(slots=True)
class Partitions:
    """Offsets of the partitions that any group commits to. If several groups have a partition, the newest count."""

    known: dict[tuple[str, str], dict[int, Offsets]] = field(default_factory=dict)
    added: dict[tuple[str, str], Offsets] = field(default_factory=dict)
    """Sums of topics, from groups with so many partitions that not all of them are stored."""

    def learn(self, lag: Lag) -> None:
        """Add the offsets in a group's lag."""
        numbers, starts, ends = (lag.columns[name] for name in ("partition", "start_offset", "end_offset"))
        asked_ms = lag.columns["asked_ms"] or 0
        for topic, _, first, end in topics_of(lag.columns):
            of_topic = self.known.setdefault((lag.cluster, topic), {})
            for row in range(first, end):
                known = of_topic.get(numbers[row])
                if known is None or known.asked_ms < asked_ms:
                    of_topic[numbers[row]] = Offsets(asked_ms, starts[row], ends[row])
        if lag.left_out:
            for topic_sum in topic_lags(lag.columns):
                self.added[lag.cluster, topic_sum.topic] = Offsets(asked_ms, topic_sum.start, topic_sum.end)

    def sums(self) -> Iterator[tuple[str, int | None, int | None]]:
        """Yield the sums of each topic's start offsets and end offsets; None if one of them is not known."""
        for place in self.known | self.added:
            if (added := self.added.get(place)) is not None:
                yield place[1], added.start, added.end
            else:
                known = self.known[place].values()
                yield place[1], _sum([offsets.start for offsets in known]), _sum([offsets.end for offsets in known])

    def __iter__(self) -> Iterator[tuple[str, str, int, Offsets]]:
        for (cluster, topic), of_topic in self.known.items():
            for partition, offsets in sorted(of_topic.items()):
                yield cluster, topic, partition, offsets


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


@dataclass(frozen=True, slots=True)
class Reading:
    """The groups of some clusters, whose `run`s have caught up."""

    store: Store
    clusters: Sequence[str]

    def lags(self) -> Lags:
        """Return the lag of every group."""
        return self.store.lags.by_name(self.clusters, MOST_PARTITIONS)

    def groups(self) -> Iterator[Mapping[str, Any]]:
        """Return the views of the groups."""
        return iter(self.store.read.views(self.clusters))

    def records(self) -> int:
        """Return how many records of the offsets topics were read."""
        counters = self.store.read.counters()
        chosen = (counts for name, counts in counters.items() if name in self.clusters)
        return sum(value for counts in chosen for name, value in counts.items() if name.startswith("decoded:"))

"""Captures of real clusters, as rows: the basis of every case."""

import gzip
import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from coordinator_model.brokers.ticks import TICK_EVERY_MS
from coordinator_model.decode.parse import OFFSETS, TELEMETRY, RejectedRow, SourceRow, parse_row
from coordinator_model.shard.sharding import shard_of
from streaming.capture.file import read_rows

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
NONCE = "5ec2e7"
_PROBE = re.compile(rb'("statesFilter":\["probe-[0-9]+")(?:,"asked-[^"]*")?')
PARTITIONS = 50
"""Kafka's default, which most captures have."""
MAX_ROWS = 1_500
"""Of a longer capture only the beginning is used: a case takes a second or two."""


@dataclass(frozen=True)
class Corpus:
    """A capture: its rows in the order of time, those of a partition by offset, and the group that each is about."""

    name: str
    rows: tuple[SourceRow, ...]
    groups: tuple[str | None, ...]
    """None: about no group, as a probe."""
    partitions: int = PARTITIONS
    """The number of partitions of its offsets topic."""

    def shard(self, group: str) -> int:
        """Return the partition of a group."""
        return shard_of(group, self.partitions)

    @property
    def known(self) -> list[str]:
        """The ids of its groups."""
        return sorted({group for group in self.groups if group})

    @property
    def in_order(self) -> bool:
        """Whether lines are nearly in the order of their instants; those of a broker that was paused are not.

        Which of such lines move the clocks of all shards depends on the lines around them (docs/security.md).
        """
        newest_ms: dict[int, int] = {}
        for row in self.rows:
            if row.source == TELEMETRY:
                newest_ms[row.partition] = max(row.timestamp_ms, newest_ms.get(row.partition, 0))
                if row.timestamp_ms < newest_ms[row.partition] - TICK_EVERY_MS:
                    return False
        return True

    @property
    def topics(self) -> tuple[str, str]:
        """The topic of its records and that of its lines."""
        return tuple(next(r.topic for r in self.rows if (r.source == OFFSETS) is wanted) for wanted in (True, False))


def names() -> list[str]:
    """Return the names of the captures; "sample" ships with the monitor."""
    return ["sample", *sorted(path.name.removesuffix(".jsonl.gz") for path in CAPTURES.glob("*.jsonl.gz"))]


@cache
def corpus(name: str) -> Corpus:
    """Read a capture."""
    path = CAPTURES / f"{name}.jsonl.gz" if name != "sample" else resources.files("streaming.demo") / "sample.jsonl.gz"
    with path.open("rb") as raw, gzip.open(raw, "rt", encoding="utf-8") as lines:
        read = [_asked(row) for row in read_rows(lines) if isinstance(row, SourceRow)]
    by_place = defaultdict[tuple[str, int], deque[SourceRow]](deque)
    for row in sorted(read, key=lambda row: row.offset):
        by_place[row.topic, row.partition].append(row)
    by_instant = sorted(read, key=lambda row: (row.timestamp_ms, row.source, row.topic, row.partition, row.offset))
    rows = [by_place[row.topic, row.partition].popleft() for row in by_instant[:MAX_ROWS]]
    groups = tuple(map(group_of, rows))
    return Corpus(name, tuple(rows), groups, _partitions(rows, groups))


def _partitions(rows: Sequence[SourceRow], groups: Sequence[str | None]) -> int:
    """Return the number of partitions with which each group's records are in the group's own partition."""
    places = {
        (group, row.partition) for row, group in zip(rows, groups, strict=True) if group and row.source == OFFSETS
    }
    return next(n for n in (PARTITIONS, *range(1, PARTITIONS)) if all(shard_of(g, n) == at for g, at in places))


def _asked(row: SourceRow) -> SourceRow:
    """Turn a probe of the capture into the job's own, with the nonce that strangers do not know."""
    value = row.value and _PROBE.sub(rb'\1,"asked-%s-1"' % NONCE.encode(), row.value, count=1)
    return row._replace(value=value) if row.source == TELEMETRY else row


def group_of(row: SourceRow) -> str | None:
    """Return the group that a row is about, as the monitor reads it; None: no group, or the row cannot be read."""
    events = parse_row(row)
    return next((event.group for event in events if event.group), None) if not isinstance(events, RejectedRow) else None

"""Captures of real clusters, as rows: what every case begins with."""

import gzip
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from coordinator_model.ingest import OFFSETS, Rejected, SourceRow, ingest
from coordinator_model.sharding import shard_of
from streaming.capture_file import read_rows

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
PARTITIONS = 50
MAX_ROWS = 1_500
"""Of a longer capture the beginning: a case takes a second or two."""


@dataclass(frozen=True)
class Corpus:
    """The rows of a capture by rising instants, and which group each is about."""

    name: str
    rows: tuple[SourceRow, ...]
    groups: tuple[str | None, ...]
    """None: of no group, as a probe's."""

    @property
    def known(self) -> list[str]:
        """The ids of its groups."""
        return sorted({group for group in self.groups if group})

    @property
    def topics(self) -> tuple[str, str]:
        """The topic of its records and that of its lines."""
        return tuple(next(r.topic for r in self.rows if (r.source == OFFSETS) is wanted) for wanted in (True, False))


def names() -> list[str]:
    """The captures that there are; "sample" ships with the monitor."""
    return ["sample", *sorted(path.name.removesuffix(".jsonl.gz") for path in CAPTURES.glob("*.jsonl.gz"))]


@cache
def corpus(name: str) -> Corpus:
    """Read a capture."""
    path = CAPTURES / f"{name}.jsonl.gz" if name != "sample" else resources.files("streaming.demo") / "sample.jsonl.gz"
    with path.open("rb") as raw, gzip.open(raw, "rt", encoding="utf-8") as lines:
        read = [row for row in read_rows(lines) if isinstance(row, SourceRow)]
    rows = sorted(read, key=lambda row: (row.timestamp_ms, row.source, row.topic, row.partition, row.offset))[:MAX_ROWS]
    return Corpus(name, tuple(rows), tuple(map(group_of, rows)))


def group_of(row: SourceRow) -> str | None:
    """The group that a row is about, as the monitor reads it; None: none, or the row cannot be read."""
    events = ingest(row)
    return next((event.group for event in events if event.group), None) if not isinstance(events, Rejected) else None


def shard(group: str) -> int:
    """The partition of a group."""
    return shard_of(group, PARTITIONS)

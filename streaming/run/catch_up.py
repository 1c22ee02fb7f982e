"""How far the job still is from the end offsets that the topics had when it started."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from streaming.run.topics import Offsets


@dataclass
class CatchUp:
    """How much is left to read: `done` is true once every partition has been read up to its end in `ends`."""

    ends: Offsets
    done: bool = False
    remaining: int | None = None
    rows_per_s: float = 0.0
    total: int = 0
    """How many records were left to read when the first batch had ended."""
    asked_ms: int = 0
    """When the end offsets were requested. A job that has read up to them has read every record that existed then."""

    def update(self, progress: dict[str, Any]) -> str | None:
        """Apply Spark's progress of a batch; return a line for the log, or None if the job had caught up before."""
        if self.done:
            return None
        sources = progress["sources"]
        self.rows_per_s = sum(float(source.get("processedRowsPerSecond") or 0.0) for source in sources)
        self.remaining = self._remaining(topics_read(progress))
        self.total = max(self.total, self.remaining)
        if self.remaining == 0:
            self.done = True
            return "caught up: everything that was in the topics at the start has been read"
        share = f"{1 - self.remaining / self.total:.0%}"
        return f"catching up: {share}, {self.remaining:,} records to go, {self.rows_per_s:,.0f} a second"

    def is_reached(self, at: Offsets) -> bool:
        """Tell whether a job that has read up to these offsets has caught up."""
        return self._remaining(at) == 0

    def _remaining(self, at: Offsets) -> int:
        return sum(
            max(0, end - at.get(topic, {}).get(partition, 0))
            for topic, partitions in self.ends.items()
            for partition, end in partitions.items()
        )


def planned(checkpoint: Path, batch_id: int) -> Offsets:
    """Return the offsets up to which a batch reads; empty if they cannot be read.

    Spark writes them to its checkpoint before the batch begins.
    """
    try:
        _, _, *sources = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8").splitlines()
        return _offsets_of_all(sources)
    except (OSError, ValueError):
        return {}


def topics_read(progress: Mapping[str, Any]) -> Offsets:
    """Return the offsets up to which a query has read each topic in its checkpoint."""
    return _offsets_of_all(source["endOffset"] for source in progress["sources"])


def _offsets_of_all(sources: Iterable[Any]) -> Offsets:
    """Merge the offsets of all sources of a query."""
    return {topic: at for source in sources for topic, at in offsets_in(source).items()}


def read_all_from_ms(progress: dict[str, Any]) -> int | None:
    """Return when the batch began, if it read every record available by then; None if it left some for the next."""
    for source in progress["sources"]:
        end, latest = offsets_in(source["endOffset"]), offsets_in(source.get("latestOffset"))
        if any(
            end.get(topic, {}).get(number, -1) < last for topic, ends in latest.items() for number, last in ends.items()
        ):
            return None
    return int(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1_000)


def offsets_in(text: Any) -> Offsets:
    """Parse Spark's `endOffset`, which may be JSON text or already parsed; return nothing if it is not Kafka's."""
    found = json.loads(text) if isinstance(text, str) and text else text
    return {topic: at for topic, at in found.items() if isinstance(at, dict)} if isinstance(found, dict) else {}

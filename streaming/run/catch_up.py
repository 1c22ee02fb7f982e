"""How far the job still is from the end offsets that the topics had when it started."""

from dataclasses import dataclass
from typing import Any

from streaming.run.spark_offsets import topics_read
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

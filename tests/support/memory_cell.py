"""A stand-in for Spark's `GroupState`, whose constructor differs between Spark versions."""

from dataclasses import dataclass
from typing import Any


@dataclass
class MemoryCell:
    """A `StateCell` in memory."""

    value: tuple[Any, ...] | None = None
    wall_ms: int = 0

    @property
    def exists(self) -> bool:
        """As Spark's."""
        return self.value is not None

    @property
    def get(self) -> tuple[Any, ...]:
        """As Spark's."""
        if self.value is None:
            raise ValueError("no state")
        return self.value

    def update(self, newValue: tuple[Any, ...]) -> None:  # noqa: N803
        """As Spark's."""
        self.value = newValue

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802
        """As Spark's."""
        return self.wall_ms

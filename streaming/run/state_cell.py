"""The few methods of Spark's `GroupState` that the operator uses, and a stand-in for tests.

`GroupState` can be built without a JVM, but its constructor differs between Spark versions.
"""

from dataclasses import dataclass
from typing import Any, Protocol


class StateCell(Protocol):
    """State of one operator key: a tuple, or nothing yet."""

    @property
    def exists(self) -> bool:
        """Tell whether the key has state."""

    @property
    def get(self) -> tuple[Any, ...]:
        """Return the state, which must exist."""

    def update(self, newValue: tuple[Any, ...]) -> None:  # noqa: N803 # Spark's names
        """Replace the state."""

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802
        """Return the wall clock of this trigger."""


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

"""The few methods of Spark's `GroupState` that the operator uses."""

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

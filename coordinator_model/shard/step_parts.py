"""Divides records among the parts of a batch, if the coordinator's clock stepped during the batch.

The instants of the coordinator's records step with its clock. But a record does not say whether it was written before a
step.
"""

from collections.abc import Sequence
from operator import itemgetter

from coordinator_model.brokers.line_clocks import Step
from coordinator_model.events import Event, RecordRead
from coordinator_model.shard.commit_times import CommitRow


def divided(events: list[Event], steps: Sequence[Step]) -> list[list[Event]]:
    """Divide events other than lines among the parts. All events that are not records go to the last part."""
    if not steps:
        return [events]
    parts: list[list[Event]] = [[] for _ in range(len(steps) + 1)]
    passed = _StepsPassed(steps)
    for event in sorted(events, key=itemgetter(slice(2, 5))):
        parts[passed.by(event.order_ms) if isinstance(event, RecordRead) else -1].append(event)
    return parts


def divided_commits(rows: list[CommitRow], steps: Sequence[Step]) -> list[list[CommitRow]]:
    """Divide commits in the same way."""
    if not steps:
        return [rows]
    parts: list[list[CommitRow]] = [[] for _ in range(len(steps) + 1)]
    passed = _StepsPassed(steps)
    for row in sorted(rows, key=itemgetter(1)):
        parts[passed.by(row[0])].append(row)
    return parts


class _StepsPassed:
    """Counts the steps before each record. ``by`` must be called for records in the order of their writing."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps, self._passed = steps, 0
        self._newest_ms = 0
        """The newest instant of the records since the last step that was passed."""

    def by(self, at_ms: int) -> int:
        """Return how many steps came before the next record, which has this instant."""
        while self._passed < len(self._steps) and _is_after(at_ms, self._newest_ms, self._steps[self._passed]):
            self._passed, self._newest_ms = self._passed + 1, 0
        self._newest_ms = max(self._newest_ms, at_ms)
        return self._passed


def _is_after(at_ms: int, newest_ms: int, step: Step) -> bool:
    """Tell whether a record was written after a step; ``newest_ms`` is the newest instant of the records before it.

    After a step ahead, the record's instant is enough to know. After a step back, the instants of the records must go
    back too: a record with an old instant may have been written before the step.
    """
    middle_ms = (step.from_ms + step.to_ms) // 2
    if step.to_ms >= step.from_ms:
        return at_ms > middle_ms
    return newest_ms > middle_ms >= at_ms

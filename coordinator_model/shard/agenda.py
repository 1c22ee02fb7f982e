"""When each group of a shard must be looked at again, because a verdict may be due by then.

A member is due at its last heartbeat plus its *span* (``heartbeat_table``), so each heartbeat postpones that instant.
A group also has its own due instant. Some verdicts wait for proof that the shard's lines arrive: another heartbeat of
the shard. They become due when that heartbeat comes.
"""

from dataclasses import dataclass, field

from coordinator_model.events import FAR_MS
from coordinator_model.rules.evaluate import Evaluation
from coordinator_model.shard.heartbeat_table import HeartbeatTable


@dataclass(slots=True)
class Agenda:
    """What is due, and when. ``due_ms`` is never later than the next due instant."""

    heartbeat_table: HeartbeatTable
    group_due: dict[str, int] = field(default_factory=dict)
    unproved: dict[str, int] = field(default_factory=dict)
    """For each group whose verdict waits for proof: a heartbeat that arrived at this instant or later is proof."""
    due_ms: int = 0

    def look_at(self, group: str, at_ms: int) -> None:
        """Schedule a group to be judged, no later than at an instant."""
        self.group_due[group] = min(at_ms, self.group_due.get(group, FAR_MS))
        self.due_ms = min(self.due_ms, at_ms)

    def note_look(self, group: str, evaluation: Evaluation, due_ms: int, proven_ms: int | None) -> None:
        """Note when a group that was evaluated is due next. This replaces what was noted before.

        ``due_ms``: when the group is due for another reason. ``proven_ms``: when the proof for which it waits is a
        grace old, so that it counts; None: there is no proof yet.
        """
        self.unproved.pop(group, None)
        if proven_ms is not None:
            due_ms = min(due_ms, proven_ms)
        elif evaluation.proof_ms is not None:
            self.unproved[group] = evaluation.proof_ms
        if evaluation.due_ms is not None:
            due_ms = min(due_ms, evaluation.due_ms)
        if due_ms < FAR_MS:
            self.group_due[group] = due_ms
        else:
            self.group_due.pop(group, None)
        self.due_ms = min(self.due_ms, due_ms, *evaluation.member_due_ms.values())

    def proved_by(self, arrival_ms: int) -> list[str]:
        """Return the groups whose verdict waited for a heartbeat that arrived at this instant or earlier."""
        return [group for group, proof_ms in self.unproved.items() if arrival_ms >= proof_ms]

    def next_ms(self) -> int:
        """Return the earliest instant at which something is due; ``FAR_MS``: nothing is."""
        self.due_ms = min(self.heartbeat_table.due_ms(), *self.group_due.values(), FAR_MS)
        return self.due_ms

    def groups_due(self, due_ms: int) -> list[str]:
        """Return the groups for which something is due by an instant."""
        waiting = {group for group, at_ms in self.group_due.items() if at_ms <= due_ms}
        return sorted(self.heartbeat_table.groups_due(due_ms) | waiting)

    def put_off(self, group: str, due_ms: int) -> bool:
        """Postpone everything that is due for a group until its next event. Return whether anything was due."""
        overdue = self.heartbeat_table.put_off(group, due_ms)
        if self.group_due.get(group, FAR_MS) <= due_ms:
            del self.group_due[group]
            overdue = True
        return overdue

    def rebase(self, delta_ms: int) -> None:
        """Move everything that is due along with the coordinator's clock."""
        for known in (self.group_due, self.unproved):
            known.update({group: at_ms + delta_ms for group, at_ms in known.items()})
        self.due_ms = 0

    def forget(self, group: str) -> None:
        """Forget a group's own instants."""
        self.group_due.pop(group, None)
        self.unproved.pop(group, None)

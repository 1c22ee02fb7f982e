"""When each group of a shard must be looked at again, because something about it may have become true by then.

A member's instant is its last heartbeat plus its *span* (``heartbeat_table``), so that a heartbeat moves it; a group's
own instants stand beside. A verdict that waits for another heartbeat of the shard has none: the heartbeat that proves
it makes one.
"""

from dataclasses import dataclass, field

from coordinator_model.rules.evaluate import Evaluation
from coordinator_model.shard.heartbeat_table import FAR_MS, HeartbeatTable


@dataclass(slots=True)
class Agenda:
    """What is due, and when; ``due_ms`` is never later than the next of it."""

    heartbeat_table: HeartbeatTable
    group_due: dict[str, int] = field(default_factory=dict)
    unproved: dict[str, int] = field(default_factory=dict)
    """Group to the arrival from which on another heartbeat of the shard decides a verdict on one of its members."""
    due_ms: int = 0

    def look_at(self, group: str, at_ms: int) -> None:
        """Let a group be looked at then, if not sooner."""
        self.group_due[group] = min(at_ms, self.group_due.get(group, FAR_MS))
        self.due_ms = min(self.due_ms, at_ms)

    def looked(self, group: str, evaluation: Evaluation, due_ms: int, proven_ms: int | None) -> None:
        """Take what a look at a group found, in the place of what was known.

        ``due_ms``: the group is due by then for another reason. ``proven_ms``: when the proof that it waits for counts.
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
        """Return the groups with a verdict that a heartbeat decides which arrived then."""
        return [group for group, proof_ms in self.unproved.items() if arrival_ms >= proof_ms]

    def next_ms(self) -> int:
        """Return the earliest instant at which something is due, ``FAR_MS`` if nothing is."""
        self.due_ms = min(self.heartbeat_table.due_ms(), *self.group_due.values(), FAR_MS)
        return self.due_ms

    def groups_due(self, due_ms: int) -> list[str]:
        """Return the groups that something is due for by then."""
        waiting = {group for group, at_ms in self.group_due.items() if at_ms <= due_ms}
        return sorted(self.heartbeat_table.groups_due(due_ms) | waiting)

    def put_off(self, group: str, due_ms: int) -> bool:
        """Let what is due of a group by then wait for its next event; return whether anything was."""
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

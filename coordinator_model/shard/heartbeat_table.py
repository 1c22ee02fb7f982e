"""Heartbeats in packed arrays. Nearly every event touches these arrays, and nothing else.

Each member has a slot. A slot holds the last heartbeat, the interval before it, the generation that the fast path
accepts (-1: none, so the next heartbeat takes the slow path), and the *span*: how long after the last heartbeat the
member must be looked at (``FAR_MS``: it need not be). It also holds the session timeout, as long as only heartbeats can
change the view of the member's group (``heartbeat_update``).
"""

from array import array
from collections.abc import Iterator
from operator import add

from coordinator_model.events import FAR_MS
from coordinator_model.replica.advance import Heard
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.states import GroupState, GroupType

MAX_INTERVAL_MS = 2**31 - 1
"""The longest interval between two heartbeats that the column can hold. A longer one is stored as this."""
SLOW_PATH = -1
FAST_PATH_TYPES = (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS)


class HeartbeatTable:
    """The slots of one shard's members."""

    __slots__ = ("free", "generation", "index", "interval_ms", "last_ms", "slots", "span_ms", "timeout_ms")

    def __init__(self) -> None:
        self.slots: dict[str, dict[str, int]] = {}
        self.free: list[int] = []
        self.last_ms = array("q")
        self.interval_ms = array("i")
        self.generation = array("i")
        self.span_ms = array("q")
        self.timeout_ms = array("i")
        self.index: bytes | None = None
        """Which member has which slot, as ``snapshot`` last wrote it; None: that has changed since then."""

    @property
    def columns(self) -> tuple["array[int]", ...]:
        """All columns, in the order in which the state has them."""
        return self.last_ms, self.interval_ms, self.generation, self.span_ms, self.timeout_ms

    def add(self, group: str, member_id: str) -> int:
        """Return a member's slot, or a new one if it has none."""
        members = self.slots.setdefault(group, {})
        slot = members.get(member_id)
        if slot is None:
            if self.free:
                slot = self.free.pop()
            else:
                slot = len(self.last_ms)
                for column in self.columns:
                    column.append(0)
            members[member_id] = slot
            self.index = None
        return slot

    def drop(self, group: str, member_id: str) -> None:
        """Free a member's slot. A free slot is never due."""
        members = self.slots.get(group, {})
        slot = members.pop(member_id, None)
        if slot is not None:
            self.last_ms[slot], self.generation[slot], self.span_ms[slot] = FAR_MS, SLOW_PATH, FAR_MS
            self.timeout_ms[slot] = 0
            self.free.append(slot)
            self.index = None
        if not members:
            self.slots.pop(group, None)

    def drop_group(self, group: str) -> None:
        """Free all slots of a group."""
        for member_id in list(self.slots.get(group, {})):
            self.drop(group, member_id)

    def heard(self, group: str) -> Iterator[Heard]:
        """Yield the last two heartbeats of a group's members."""
        for member_id, slot in self.slots.get(group, {}).items():
            yield self._heard(member_id, slot)

    def heard_of(self, group: str, member_id: str) -> Iterator[Heard]:
        """Yield the last two heartbeats of one member, if it has a slot."""
        slot = self.slots.get(group, {}).get(member_id)
        if slot is not None:
            yield self._heard(member_id, slot)

    def _heard(self, member_id: str, slot: int) -> Heard:
        last_ms, interval_ms = self.last_ms[slot], self.interval_ms[slot]
        return member_id, last_ms, last_ms - interval_ms if interval_ms else None

    def copy_from(self, replica: GroupReplica, dues: dict[str, int], troubled: set[str]) -> None:
        """Write the heartbeats of a replica's members into the table, and when each member must be judged.

        ``troubled``: the subjects whose heartbeats must take the slow path, such as those of findings.
        """
        group = replica.group
        for member_id in list(self.slots.get(group, {})):
            member = replica.members.get(member_id)
            if member is None or member.last_heartbeat_ms is None:
                self.drop(group, member_id)
        plain = replica.state is GroupState.STABLE and replica.type in FAST_PATH_TYPES
        for member in replica.members.values():
            if member.last_heartbeat_ms is not None:
                fast = plain and member.subject not in troubled
                self.put(group, member, dues.get(member.member_id), fast=fast)

    def put(self, group: str, member: Member, due_ms: int | None, *, fast: bool) -> None:
        """Write one member's heartbeats into the table, and when it must be looked at."""
        slot, last_ms, previous_ms = (
            self.add(group, member.member_id),
            member.last_heartbeat_ms or 0,
            member.previous_heartbeat_ms,
        )
        self.last_ms[slot] = last_ms
        self.interval_ms[slot] = 0 if previous_ms is None else min(max(0, last_ms - previous_ms), MAX_INTERVAL_MS)
        heard_twice = previous_ms is not None and member.heartbeat_interval_ms is not None
        steady = fast and heard_twice and not member.awaiting_sync
        self.generation[slot] = member.generation if steady and member.generation is not None else SLOW_PATH
        self.span_ms[slot] = FAR_MS if due_ms is None else max(0, due_ms - last_ms)

    def rebase(self, delta_ms: int) -> None:
        """Move the heartbeats of all members along with their coordinator's clock."""
        self.last_ms = array("q", [at_ms + delta_ms if at_ms < FAR_MS else at_ms for at_ms in self.last_ms])

    def forget_timeouts(self) -> None:
        """Forget all session timeouts, so that every group is shown whole the next time."""
        self.timeout_ms = array("i", bytes(self.timeout_ms.itemsize * len(self.timeout_ms)))

    def due_ms(self) -> int:
        """Return the earliest instant at which a member must be looked at; ``FAR_MS``: none must be."""
        return min(FAR_MS, min(map(add, self.last_ms, self.span_ms), default=FAR_MS))

    def groups_due(self, due_ms: int) -> set[str]:
        """Return the groups with a member that must be looked at by an instant."""
        last, span = self.last_ms, self.span_ms
        return {
            group
            for group, members in self.slots.items()
            if any(last[slot] + span[slot] <= due_ms for slot in members.values())
        }

    def put_off(self, group: str, due_ms: int) -> bool:
        """Postpone the members that are due by an instant until their next heartbeat. Return whether any was due."""
        overdue = [
            slot for slot in self.slots.get(group, {}).values() if self.last_ms[slot] + self.span_ms[slot] <= due_ms
        ]
        for slot in overdue:
            self.span_ms[slot], self.generation[slot] = FAR_MS, SLOW_PATH
        return bool(overdue)

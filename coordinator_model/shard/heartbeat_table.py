"""Heartbeats in packed arrays: what nearly every event touches, and all that it touches.

A member has a slot; a slot has its last heartbeat, the interval before it, the generation that the fast path accepts
(-1: none, the slow path), the *span* after the last heartbeat at which the member must be looked at, and, while its
group is shown again by its heartbeats alone (``refresh``), its session *timeout*.
"""

from array import array
from collections.abc import Iterator
from operator import add

from coordinator_model.replica.advance import Heard
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.states import GroupState, GroupType

FAR_MS = 2**62
"""No instant: nothing is due."""
NO_INSTANT = 2**61
"""Instants from here on are none: what is due then is never due."""
NEVER = NO_INSTANT
"""The span of a member that need not be looked at: a sum with it is no instant."""
MAX_INTERVAL_MS = 2**31 - 1
"""The longest interval between two heartbeats that is told apart from a longer one."""
SLOW_PATH = -1
FAST_PATH_TYPES = (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS)


class HeartbeatTable:
    """The slots of one shard's members."""

    __slots__ = ("free", "generation", "index", "interval", "last", "slots", "span", "timeout")

    def __init__(self) -> None:
        self.slots: dict[str, dict[str, int]] = {}
        self.free: list[int] = []
        self.last = array("q")
        self.interval = array("i")
        self.generation = array("i")
        self.span = array("q")
        self.timeout = array("i")
        self.index: bytes | None = None
        """Which member has which slot, as ``snapshot`` wrote it; None: that has changed since."""

    @property
    def columns(self) -> tuple["array[int]", ...]:
        """All columns, as they are kept."""
        return self.last, self.interval, self.generation, self.span, self.timeout

    def add(self, group: str, member_id: str) -> int:
        """Return a member's slot, a new one if it has none."""
        members = self.slots.setdefault(group, {})
        slot = members.get(member_id)
        if slot is None:
            if self.free:
                slot = self.free.pop()
            else:
                slot = len(self.last)
                for column in self.columns:
                    column.append(0)
            members[member_id] = slot
            self.index = None
        return slot

    def drop(self, group: str, member_id: str) -> None:
        """Give a slot back; nothing is due in it any more."""
        members = self.slots.get(group, {})
        slot = members.pop(member_id, None)
        if slot is not None:
            self.last[slot], self.generation[slot], self.span[slot] = NO_INSTANT, SLOW_PATH, NEVER
            self.timeout[slot] = 0
            self.free.append(slot)
            self.index = None
        if not members:
            self.slots.pop(group, None)

    def drop_group(self, group: str) -> None:
        """Give all slots of a group back."""
        for member_id in list(self.slots.get(group, {})):
            self.drop(group, member_id)

    def heard(self, group: str) -> Iterator[Heard]:
        """Yield the last two heartbeats of a group's members."""
        for member_id, slot in self.slots.get(group, {}).items():
            yield self._heard(member_id, slot)

    def heard_of(self, group: str, member_id: str) -> Iterator[Heard]:
        """Yield the same of one member, if it has a slot."""
        slot = self.slots.get(group, {}).get(member_id)
        if slot is not None:
            yield self._heard(member_id, slot)

    def _heard(self, member_id: str, slot: int) -> Heard:
        last_ms, interval_ms = self.last[slot], self.interval[slot]
        return member_id, last_ms, last_ms - interval_ms if interval_ms else None

    def copy_from(self, replica: GroupReplica, dues: dict[str, int], troubled: set[str]) -> None:
        """Write a group's heartbeats back; only an untroubled member takes the fast path."""
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
        """Write one member's heartbeats back, and when it must be looked at."""
        slot, last_ms, previous_ms = (
            self.add(group, member.member_id),
            member.last_heartbeat_ms or 0,
            member.previous_heartbeat_ms,
        )
        self.last[slot] = last_ms
        self.interval[slot] = 0 if previous_ms is None else min(max(0, last_ms - previous_ms), MAX_INTERVAL_MS)
        steady = fast and member.heartbeat_interval_ms is not None and not member.awaiting_sync
        steady = steady and previous_ms is not None
        self.generation[slot] = member.generation if steady and member.generation is not None else SLOW_PATH
        self.span[slot] = NEVER if due_ms is None else max(0, due_ms - last_ms)

    def rebase(self, delta_ms: int) -> None:
        """Move the heartbeats of all members along with their coordinator's clock."""
        self.last = array("q", [at_ms + delta_ms if at_ms < NO_INSTANT else at_ms for at_ms in self.last])

    def forget_timeouts(self) -> None:
        """Let all groups be shown whole the next time."""
        self.timeout = array("i", bytes(self.timeout.itemsize * len(self.timeout)))

    def due_ms(self) -> int:
        """Return the earliest instant at which some member must be looked at."""
        due_ms = min(map(add, self.last, self.span), default=FAR_MS)
        return due_ms if due_ms < NO_INSTANT else FAR_MS

    def groups_due(self, due_ms: int) -> set[str]:
        """Return the groups with a member to be looked at by then."""
        last, span = self.last, self.span
        return {
            group
            for group, members in self.slots.items()
            if any(last[slot] + span[slot] <= due_ms for slot in members.values())
        }

    def put_off(self, group: str, due_ms: int) -> bool:
        """Let the members that are due by then wait for their next heartbeat; return whether there were any."""
        overdue = [slot for slot in self.slots.get(group, {}).values() if self.last[slot] + self.span[slot] <= due_ms]
        for slot in overdue:
            self.span[slot], self.generation[slot] = NEVER, SLOW_PATH
        return bool(overdue)

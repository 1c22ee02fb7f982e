"""Updates of a group's view by heartbeats alone: the instants of its members' heartbeats, and its least headroom.

A whole view is made from the replica, which must be decoded, and at full load a thousand groups a second are due. While
all members of a group are alive and only heartbeats come, nothing else of its view changes, and both are in the packed
arrays. ``view_refresh`` decides which groups are shown, and which way.
"""

from collections.abc import Sequence
from typing import Any

from coordinator_model.shard.heartbeat_table import SLOW_PATH, HeartbeatTable


def note_shown(shown: dict[str, Any], heartbeat_table: HeartbeatTable) -> None:
    """Note whether heartbeats are all that can change in a view that was shown whole, without a finding."""
    slots = heartbeat_table.slots.get(shown["group"], {})
    timeouts = [
        _timeout_if_plain(member, slots.get(member["member_id"]), heartbeat_table) for member in shown["members"]
    ]
    if all(timeouts) and len(timeouts) == len(slots) == shown["members_total"]:
        for member, timeout_ms in zip(shown["members"], timeouts, strict=True):
            heartbeat_table.timeout_ms[slots[member["member_id"]]] = timeout_ms
    else:
        forget_shown(shown["group"], heartbeat_table)


def _timeout_if_plain(member: dict[str, Any], slot: int | None, heartbeat_table: HeartbeatTable) -> int:
    if member["liveness"] != "alive" or slot is None or heartbeat_table.generation[slot] == SLOW_PATH:
        return 0
    return member["session_timeout_ms"] or 0


def forget_shown(group: str, heartbeat_table: HeartbeatTable) -> None:
    """Have a group shown whole the next time."""
    for slot in heartbeat_table.slots.get(group, {}).values():
        heartbeat_table.timeout_ms[slot] = 0


def shown_plain(group: str, heartbeat_table: HeartbeatTable) -> bool:
    """Tell whether a group was shown whole and nothing but heartbeats came since."""
    slots = heartbeat_table.slots.get(group, {})
    return any(heartbeat_table.timeout_ms[slot] > 0 for slot in slots.values())


def refreshed(group: str, heartbeat_table: HeartbeatTable, now_ms: int) -> list[Any]:
    """Return ``[group, least headroom, [last heartbeat, ...]]``, heartbeats in the order in which members are shown."""
    last, timeout = heartbeat_table.last_ms, heartbeat_table.timeout_ms
    slots = [slot for _, slot in sorted(heartbeat_table.slots[group].items())]
    used = max([(now_ms - last[slot]) / timeout[slot] for slot in slots])
    return [group, _left(used), [last[slot] for slot in slots]]


def headroom(now_ms: int, since_ms: int, timeout_ms: int) -> float:
    """Return which share of a session is left: 1 just after a heartbeat, 0 at its deadline."""
    return _left((now_ms - since_ms) / timeout_ms)


def _left(used: float) -> float:
    return round(min(1.0, max(0.0, 1 - used)), 3)


def with_heartbeats(view: dict[str, Any], heard_ms: Sequence[int], now_ms: int) -> dict[str, Any]:
    """Return a group's view with the heartbeats that ``refreshed`` returned later.

    After a change of their number, two partitions of ``__consumer_offsets`` may have records of one group. Then these
    may be the heartbeats of other members than the view's, and the view stays as it is.
    """
    if not _are_of(view["members"], heard_ms):
        return view
    members = [
        {
            **member,
            "last_heartbeat_ms": at_ms,
            "heartbeat_headroom": headroom(now_ms, at_ms, member["session_timeout_ms"]),
        }
        for member, at_ms in zip(view["members"], heard_ms, strict=True)
    ]
    return {**view, "members": members}


def _are_of(members: Sequence[dict[str, Any]], heard_ms: Sequence[int]) -> bool:
    """Tell whether heartbeats can be of a view's members."""
    return len(members) == len(heard_ms) and all(member["session_timeout_ms"] for member in members)

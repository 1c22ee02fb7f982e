"""Updates of a group's view by heartbeats alone: the instants of its members' heartbeats, and its least headroom.

A whole view is made from the replica, which must be decoded, and at full load a thousand groups a second are due. While
all members of a group are alive and only heartbeats come, only the heartbeats and the headroom change in its view, and
these are in the packed arrays. ``view_refresh`` decides which groups are shown, and whether whole or by heartbeats.
"""

from collections.abc import Sequence
from typing import Any

from coordinator_model.shard.heartbeat_table import SLOW_PATH, HeartbeatTable


def note_shown(shown: dict[str, Any], heartbeat_table: HeartbeatTable) -> None:
    """Note whether only heartbeats can change a view that was shown whole. The group has no finding."""
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
    """Make sure that a group is shown whole the next time."""
    for slot in heartbeat_table.slots.get(group, {}).values():
        heartbeat_table.timeout_ms[slot] = 0


def shown_plain(group: str, heartbeat_table: HeartbeatTable) -> bool:
    """Tell whether nothing but heartbeats has come since a group was shown whole."""
    slots = heartbeat_table.slots.get(group, {})
    return any(heartbeat_table.timeout_ms[slot] > 0 for slot in slots.values())


def refreshed(group: str, heartbeat_table: HeartbeatTable, now_ms: int) -> list[Any]:
    """Return ``[group, least headroom, [last heartbeat, ...]]``; heartbeats are in the order of the shown members."""
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

    If the number of partitions of ``__consumer_offsets`` has changed, two of them may have records of one group. Then
    the heartbeats may be those of members other than the view's, and the view stays as it is.
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
    """Tell whether the heartbeats can be those of a view's members."""
    return len(members) == len(heard_ms) and all(member["session_timeout_ms"] for member in members)

"""What has changed of a group that is shown when only heartbeats came: their instants, and the least headroom.

Showing a group whole means taking its replica apart, and a thousand groups a second are due at full load. While all
its members are alive and nothing but heartbeats arrives, only two things of it move, and both lie in the packed arrays.
"""

from collections.abc import Sequence
from typing import Any

from coordinator_model.hot import CAREFUL, Hot

Timeouts = list[tuple[str, int]]
"""(member id, session timeout) in the order in which the group is shown."""


def timeouts_if_plain(shown: dict[str, Any], hot: Hot) -> Timeouts | None:
    """Return what `refreshed` needs, if from now on heartbeats are all that can change in what is shown."""
    slots = hot.slots.get(shown["group"], {})
    timeouts: Timeouts = []
    for member in shown["members"]:
        member_id, timeout_ms = member["member_id"], member["session_timeout_ms"]
        slot = slots.get(member_id)
        if member["liveness"] != "alive" or not timeout_ms or slot is None or hot.generation[slot] == CAREFUL:
            return None
        timeouts.append((member_id, timeout_ms))
    return timeouts if len(timeouts) == shown["members_total"] else None


def refreshed(group: str, timeouts: Timeouts, hot: Hot, now_ms: int) -> list[Any]:
    """Return ``[group, least headroom, [last heartbeat, ...]]``, heartbeats in the order in which members are shown."""
    slots, last = hot.slots[group], hot.last
    heard_ms = [last[slots[member_id]] for member_id, _ in timeouts]
    worst = min(
        (headroom(now_ms, at_ms, timeout_ms) for at_ms, (_, timeout_ms) in zip(heard_ms, timeouts, strict=True)),
        default=None,
    )
    return [group, worst, heard_ms]


def headroom(now_ms: int, since_ms: int, timeout_ms: int) -> float:
    """Return which part of a session is left: 1 just heard, 0 at its deadline."""
    return round(min(1.0, max(0.0, 1 - (now_ms - since_ms) / timeout_ms)), 3)


def with_heartbeats(view: dict[str, Any], heard_ms: Sequence[int], now_ms: int) -> dict[str, Any]:
    """Return a group's view brought up to date with what ``refreshed`` told later."""
    members = [
        {
            **member,
            "last_heartbeat_ms": at_ms,
            "heartbeat_headroom": headroom(now_ms, at_ms, member["session_timeout_ms"]),
        }
        for member, at_ms in zip(view["members"], heard_ms, strict=True)
    ]
    return {**view, "members": members}

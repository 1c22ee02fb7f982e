"""A comparison of the coordinator's live groups with the monitor's, in all fields that records and lines show."""

from collections.abc import Iterator
from typing import Any

from tests.oracle.clock_steps import Span
from tests.oracle.life import Look
from tests.oracle.monitor import Monitor

DEADLINE_MS = 50
"""How far a deadline may be off: there are queues and rounding between an answer's time and the coordinator's timer."""

Difference = tuple[str, str, str, str]
"""Field, group, member, and the values of both sides."""


def difference(look: Look, monitor: Monitor, off_ms: Span = (0, 0)) -> Iterator[Difference]:
    """Yield what differs at a quiet moment. ``off_ms``: how far the end of a session may be off, besides rounding."""
    views = monitor.views()
    for group in look.groups:
        view = views.pop(group["group"], None)
        if view is None:
            if not _may_be_unknown(group):
                yield "known", group["group"], "", f"{group['state']}, unknown to the monitor"
        elif group["type"] == "classic":
            yield from _classic(group, view, monitor, off_ms)
        else:
            yield from _modern(group, view, monitor, off_ms)
    for name, view in views.items():
        if view["state"] != "Dead":  # as Kafka describes a group that it does not have
            yield "known", name, "", "known to the monitor only"


def _may_be_unknown(group: dict[str, Any]) -> bool:
    """Tell whether a group may have left no trace: its first JoinGroup answers come when its first join phase ends."""
    return group["state"] == "Empty" or (group["state"], group["generation"]) == ("PreparingRebalance", 0)


def _classic(group: dict[str, Any], view: dict[str, Any], monitor: Monitor, off_ms: Span) -> Iterator[Difference]:
    name = group["group"]
    if group["state"] in ("PreparingRebalance", "CompletingRebalance") or group["joining"] or group["owing_sync"]:
        return  # only the answers at the end of the join phase show who is a member
    fields = ("state", "generation", "protocol", "protocol_type") if group["members"] else ("state", "generation")
    for field in fields:
        if group[field] != view[field]:
            yield field, name, "", f"{group[field]!r}, told {view[field]!r}"
    if (group["leader"] or None) != (view["leader"] or None):
        yield "leader", name, "", f"{group['leader']!r}, told {view['leader']!r}"
    yield from _members(group, view, monitor, off_ms)


def _modern(group: dict[str, Any], view: dict[str, Any], monitor: Monitor, off_ms: Span) -> Iterator[Difference]:
    for field in ("type", "state", "generation"):
        if group[field] != view[field]:
            yield field, group["group"], "", f"{group[field]!r}, told {view[field]!r}"
    yield from _members(group, view, monitor, off_ms)


def _members(group: dict[str, Any], view: dict[str, Any], monitor: Monitor, off_ms: Span) -> Iterator[Difference]:
    name = group["group"]
    members = {member["member_id"]: member for member in view["members"]}
    live = {member["member_id"]: member for member in group["members"]}
    if members.keys() != live.keys():
        only, told = sorted(live.keys() - members.keys()), sorted(members.keys() - live.keys())
        yield "members", name, "", f"{only} unknown to the monitor, {told} known to it only"
        return
    for member_id, member in live.items():
        for field, note in _member(member, members[member_id]):
            yield field, name, member_id, note
        yield from _deadline(member, name, monitor, off_ms)


def _member(member: dict[str, Any], shown: dict[str, Any]) -> Iterator[tuple[str, str]]:
    fields = ["instance_id", "session_timeout_ms", "rebalance_timeout_ms"]
    if member["instance_id"] is None:  # Kafka keeps client and host of the instance's first member; we show the last
        fields += ["client_id", "client_host"]
    for field in fields:
        if field in member and member[field] != shown[field]:
            yield field, f"{member[field]!r}, told {shown[field]!r}"
    if "epoch" in member and member["epoch"] != shown["generation"]:
        yield "epoch", f"{member['epoch']}, told {shown['generation']}"
    if "assignment" in member:
        held = sorted(f"{part['topic']}-{number}" for part in shown["assignment"] for number in part["partitions"])
        if held != member["assignment"]:
            yield "assignment", f"{member['assignment']}, told {held}"


def _deadline(member: dict[str, Any], group: str, monitor: Monitor, off_ms: Span) -> Iterator[Difference]:
    member_id = member["member_id"]
    told_ms = monitor.deadline_ms(group, member_id)
    armed_ms = member.get("deadline_ms")
    if armed_ms is None or told_ms is None or monitor.shard.clock.waiting:
        return
    early_ms = told_ms - armed_ms
    if early_ms > DEADLINE_MS and monitor.unheard_since_restart(group, member_id):
        return  # only an interval is known, and the monitor shows its end
    if not off_ms[0] - DEADLINE_MS <= early_ms <= off_ms[1] + DEADLINE_MS:
        yield "deadline", group, member_id, f"{armed_ms}, told {told_ms} ({told_ms - armed_ms:+})"

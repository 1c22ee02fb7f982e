"""What a message adds to its incident: which partitions nobody reads now, what happened just before, and what to do.

It is read from the store at delivery, so that it is up to date. It contains names that clients choose: `shown` cuts
them, and escapes characters that could control a terminal, a chat or the direction of text.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from coordinator_model.wording import seconds
from streaming.config.settings import Serve
from streaming.serve.events import TimelineEntry, happened, ranges
from streaming.serve.notify.base import Payload
from streaming.store.database import clean, group_key
from streaming.store.reader import StoreReader

EVENTS_TOLD: Final = 5
LINE_CHARACTERS: Final = 400
PATH_CHARACTERS: Final = 1_000
_STEERING: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})  # control, format (bidi), surrogate, private, breaks
_LAST_INSTANT_MS: Final = 253_402_300_000_000  # the year 9999


class MessageEnricher(NamedTuple):
    """Adds context to messages from the store and the configuration of `serve`."""

    read: StoreReader
    serve: Serve

    def complete(self, payload: Payload) -> Payload:
        """Return a message with the context of its incident."""
        incident = payload["incident"]
        cluster, group = incident["cluster"], incident["group"]
        view = self.read.group(cluster, group) if group else None
        before = self.read.history(cluster, group, incident["at_ms"], EVENTS_TOLD, but=incident["incident_id"])
        return complete(payload, view, happened(*before, EVENTS_TOLD), self.serve)


def complete(
    payload: Payload, view: Mapping[str, Any] | None, recent: Sequence[TimelineEntry], serve: Serve
) -> dict[str, Any]:
    """Return the payload with what its readers need. `view`: the group as it is now, None if there is none."""
    incident = payload["incident"]
    deadline_ms = incident.get("deadline_ms")
    unread = unread_partitions(incident.get("partitions") or [], view)
    said = {
        **payload,
        "missed_by_ms": None if deadline_ms is None else max(0, incident["at_ms"] - deadline_ms),
        "unread_partitions": unread,
        "recent_events": [event._asdict() for event in recent],
        "runbook_url": payload["runbook_url"] or runbook(serve, incident["rule"]),
        "group_url": group_url(serve, incident["cluster"], incident["group"]),
    }
    return {**said, "description": description(said)}


def unread_partitions(partitions: Sequence[Sequence[Any]], view: Mapping[str, Any] | None) -> list[list[Any]]:
    """Return those of the partitions that no member reads now. A violated member does not count as reading."""
    members = view["members"] if view else ()
    read = {
        (assigned["topic"], number)
        for member in members
        if member.get("liveness") != "violated"
        for assigned in member.get("assignment") or ()
        for number in assigned["partitions"]
    }
    return [[topic, number] for topic, number in partitions if (topic, number) not in read]


def runbook(serve: Serve, rule: str) -> str | None:
    """Return the URL of the rule's runbook: below `rules_url`, else on our page; None if neither is configured."""
    if serve.rules_url is not None:
        return f"{serve.rules_url.rstrip('/')}/{rule}.md"
    return None if serve.public_url is None else f"{serve.public_url.rstrip('/')}/rules/{rule}"


def group_url(serve: Serve, cluster: str, group: str) -> str | None:
    """Return the URL of the group's page; None if `public_url` is not set."""
    if serve.public_url is None:
        return None
    return serve.public_url.rstrip("/") + (group_path(cluster, group) if group else "/")


def group_path(cluster: str, group: str) -> str:
    """Return the path of a group's page; the id is percent-encoded into one part of it.

    An id that is long or that UTF-8 cannot encode is replaced by its key, and so are "." and "..", which browsers
    remove from a path, escaped or not.
    """
    safe = group.encode("utf-8", "replace")
    path = f"/groups/{quote(safe, safe='')}?cluster={quote(cluster.encode('utf-8', 'replace'), safe='')}"
    fits = len(path) <= PATH_CHARACTERS and safe.decode() == group and group not in (".", "..")
    return path if fits else f"/group/{group_key(cluster, group)}"


def description(said: Payload) -> str:
    """Return the whole message as text for people, one fact per line."""
    incident = said["incident"]
    lines = [incident["summary"], _group(incident)]
    if incident.get("member_id"):
        lines.append(_member(incident))
    if (owned := ownership(incident, instant)) is not None:
        lines.append(owned)
    if incident.get("deadline_ms") is not None:
        lines.append(f"deadline {instant(incident['deadline_ms'])}, missed by {seconds(said['missed_by_ms'])}")
    lines.append(f"cause {incident['cause']}, {incident['evidence']}" + (", raised late" if said["late"] else ""))
    if incident["transition"] == "closed":
        lines.append(f"over: {incident.get('reason')}")
    elif said["unread_partitions"]:
        lines.append(f"nobody reads now: {ranges(said['unread_partitions'])}")
    lines += [f"before: {instant(event['at_ms'])} {event['text']}" for event in said["recent_events"]]
    lines += [f"{name}: {said[key]}" for name, key in (("runbook", "runbook_url"), ("group", "group_url")) if said[key]]
    return "\n".join(shown(line, LINE_CHARACTERS) for line in lines)


def _group(incident: Mapping[str, Any]) -> str:
    where = f"cluster {incident['cluster']}, broker {incident.get('broker') or 'unknown'}"
    return f"group {incident['group']}, generation {incident['generation']}, {where}" if incident["group"] else where


def _member(incident: Mapping[str, Any]) -> str:
    instance = f", instance {incident['instance_id']}" if incident.get("instance_id") else ""
    return (
        f"member {incident['member_id']}{instance}, host {incident.get('client_host') or 'unknown'}, "
        f"client {incident.get('client_id') or 'unknown'} ({incident.get('client_software') or 'library unknown'})"
    )


def ownership(incident: Mapping[str, Any], written: Callable[[int], str]) -> str | None:
    """Say since when a stalled partition has its owner, and after which rebalance; None: the incident tells no owner.

    `written`: how to write an instant. The reason of the rebalance is a client's text.
    """
    detail = incident.get("detail") or {}
    since_ms, stable_ms = detail.get("owned_since_ms"), detail.get("stable_since_ms")
    if since_ms is None:
        return None
    owned = f"owned since {written(since_ms)}"
    if stable_ms is None:
        return owned
    reason = detail.get("rebalance_reason") or "reason unknown"
    last = "after a rebalance" if stable_ms <= since_ms else f"last rebalance {written(stable_ms)}"
    return f"{owned}, {last}: {reason}"


def shown(value: object, limit: int) -> str:
    r"""Make a client's text safe to show: it is cut, and control characters are escaped (`\u202e`)."""
    text = clean(value, limit)
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c) in _STEERING else c for c in text)


def instant(instant_ms: int) -> str:
    """Write an instant as in RFC 3339. A record's timestamp may be any number, so it is bounded."""
    bounded_ms = min(max(0, instant_ms), _LAST_INSTANT_MS)
    return datetime.fromtimestamp(bounded_ms / 1_000, UTC).isoformat(timespec="milliseconds")

"""The sample of a cluster: rows of its newest groups, members, generations and incidents, and one for its sources.

Each frame has at most `rows` rows, and always has all its columns, even without rows.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from sqlalchemy import select

from coordinator_model.decode.records import Outcome
from coordinator_model.membership import compare
from streaming.store import Store, tables

Row = dict[str, Any]

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "groups": ("cluster", "group", "type", "state", "generation", "worst_headroom", "age_ms", "leader_is_member"),
    "members": (
        "cluster", "group", "member_id", "liveness", "session_timeout_ms", "heartbeat_ahead_ms", "heartbeat_headroom",
    ),
    "generations": ("cluster", "group_key", "generation", "step"),
    "incidents": ("cluster", "group", "rule", "severity", "evidence", "opened_ahead_ms", "closed_after_ms"),
    "sources": ("cluster", "covered_ratio", "rejected_ratio", "unknown_versions", "delay_ms", "progress_ahead_ms"),
}  # fmt: skip


class Frames(NamedTuple):
    """The rows of each frame, and the counters at that instant, from which the next sample counts on."""

    rows: Mapping[str, list[Row]]
    counters: Mapping[str, int]


def take(store: Store, cluster: str, rows: int, now_ms: int, before: Mapping[str, int]) -> Frames:
    """Take a sample of at most `rows` rows per frame; `before`: the counters of the cluster's previous sample."""
    groups: list[Row] = []
    members: list[Row] = []
    for view in store.read.newest_groups(cluster, rows):
        groups.append(_group(view, now_ms))
        members += [_member(view, member) for member in view["members"][: rows - len(members)]]
    counters = store.read.counters().get(cluster, {})
    frames = {
        "groups": groups,
        "members": members,
        "generations": list(_steps(store, cluster, rows)),
        "incidents": [_incident(incident, now_ms) for incident in store.read.incidents(cluster=cluster, limit=rows)],
        "sources": [_sources(store, cluster, counters, before, now_ms)],
    }
    return Frames(frames, counters)


def _group(view: Mapping[str, Any], now_ms: int) -> Row:
    members = {member["member_id"] for member in view["members"]}
    headrooms = [h for member in view["members"] if (h := member.get("heartbeat_headroom")) is not None]
    settled = view["type"] == "classic" and view["state"] == "Stable" and view.get("leader")
    return {
        "cluster": view["cluster"],
        "group": view["group"],
        "type": view["type"],
        "state": view["state"],
        "generation": view.get("generation"),
        "worst_headroom": min(headrooms, default=None),
        "age_ms": now_ms - view["at_ms"],
        "leader_is_member": not settled or view["leader"] in members or len(members) < view.get("members_total", 0),
    }


def _member(view: Mapping[str, Any], member: Mapping[str, Any]) -> Row:
    heard_ms = member.get("last_heartbeat_ms")
    return {
        "cluster": view["cluster"],
        "group": view["group"],
        "member_id": member["member_id"],
        "liveness": member["liveness"],
        "session_timeout_ms": member.get("session_timeout_ms"),
        "heartbeat_ahead_ms": None if heard_ms is None else heard_ms - view["at_ms"],
        "heartbeat_headroom": member.get("heartbeat_headroom"),
    }


def _steps(store: Store, cluster: str, rows: int) -> Iterable[Row]:
    """Compare each of the newest generations with the one before it, unless the group was created in between."""
    known, groups = tables.generations.c, tables.groups.c
    chosen = (
        select(groups.cluster, known.group_key, known.generation, known.at_ms, known.body)
        .join(tables.groups, groups.group_key == known.group_key)
        .where(groups.cluster == cluster)
        .order_by(known.at_ms.desc())
        .limit(rows)
    )
    with store.engine.connect() as connection:
        found = sorted(connection.execute(chosen).all(), key=lambda row: (row.group_key, row.at_ms, row.generation))
    for before, after in pairwise(found):
        begins = json.loads(after.body)["cause"] == compare(None, {})["cause"]
        if before.group_key == after.group_key and not begins:
            yield {
                "cluster": after.cluster,
                "group_key": after.group_key,
                "generation": after.generation,
                "step": after.generation - before.generation,
            }


def _incident(incident: Mapping[str, Any], now_ms: int) -> Row:
    closed_ms = incident["closed_ms"]
    return {
        "cluster": incident["cluster"],
        "group": incident["group"],
        "rule": incident["rule"],
        "severity": incident["severity"],
        "evidence": incident["evidence"],
        "opened_ahead_ms": incident["opened_ms"] - now_ms,
        "closed_after_ms": None if closed_ms is None else closed_ms - incident["opened_ms"],
    }


def _sources(store: Store, cluster: str, counters: Mapping[str, int], before: Mapping[str, int], now_ms: int) -> Row:
    """Return the share of covered brokers, and of rows rejected since the last sample."""
    own = [broker for broker in store.read.brokers() if broker.cluster == cluster]
    since = {name: value - before.get(name, 0) for name, value in counters.items()}
    read = sum(value for name, value in since.items() if name.startswith("ingest:"))
    rejected = sum(value for name, value in since.items() if name.startswith("quarantined:"))
    return {
        "cluster": cluster,
        "covered_ratio": sum(broker.covered for broker in own) / len(own) if own else None,
        "rejected_ratio": rejected / (read + rejected) if read + rejected else None,
        "unknown_versions": sum(
            value
            for name, value in since.items()
            if name.startswith("decoded:") and name.endswith(f":{Outcome.UNKNOWN_VERSION}")
        ),
        "delay_ms": max((broker.delay_ms for broker in own if broker.delay_ms is not None), default=None),
        "progress_ahead_ms": max((broker.progress_ms - now_ms for broker in own), default=None),
    }

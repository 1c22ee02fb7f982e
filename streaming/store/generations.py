"""The history of a group: one row for each completed generation, with what it changed.

A generation is completed once the group is Stable or Empty; in between, members still hold what they are about to lose.
The newest completed membership of a group is kept in a table of its own (`settled`), so that the next one can be
compared with it, whatever happened to the process or the checkpoint in between. The first reading of a whole cluster's
log writes neither: the membership in a group's row is kept when the group leaves that state.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from coordinator_model.group_report import GroupReport
from coordinator_model.membership import Membership, compare, membership
from streaming.store import tables
from streaming.store.database import clean, group_key, in_portions, remove, upsert

MOVED = "moved:partitions"  # the counter
LOOKED_AFTER_MS = 3_000
"""A usual heartbeat interval. Only after this is it known who has rejoined, because heartbeats stop on rejoining."""
_COMPLETED_STATES = frozenset({"Stable", "Empty"})


class Completed(NamedTuple):
    """A group as it was when it was last Stable or Empty."""

    generation: int
    members: Membership


class Before(NamedTuple):
    """The last known states of changing groups: as last completed, and as last shown in a rebalance."""

    completed: dict[str, Completed]
    rebalancing: dict[str, Mapping[str, Any]]


class Changes(NamedTuple):
    """What a batch adds to the history; `known` holds the newest completed generation of each changed group."""

    rows: list[dict[str, Any]]
    completed: dict[str, dict[str, Any] | None]
    known: dict[str, int | None]
    counts: Counter[str]


def changes(
    reports: Iterable[GroupReport], known: Mapping[str, int], load: Callable[[Iterable[str]], Before]
) -> Changes:
    """Find the generations that were completed in a batch, in the order of its reports.

    `known`: the newest completed generation by group key; `load` fetches the earlier states of the few changed groups.
    """
    result = Changes([], {}, {}, Counter())
    fresh: list[tuple[str, GroupReport, bool]] = []
    newest = result.known
    for report in reports:
        view = None if report.deleted else report.view
        if view is None and not report.deleted:
            continue
        key = group_key(report.cluster, report.group)
        current = newest[key] if key in newest else known.get(key)
        is_completed = view is None or view.get("state") in _COMPLETED_STATES
        if is_completed:
            generation = None if view is None else view.get("generation") or 0
            if generation != current:
                newest[key] = generation
                fresh.append((key, report, True))
        elif current is None and key not in newest:
            fresh.append((key, report, False))
    before, shown = load({key for key, *_ in fresh}) if fresh else Before({}, {})
    for key, report, is_completed in fresh:
        was = before.get(key)
        if report.deleted or report.view is None:  # here only a deleted group has no view
            before.pop(key, None)
            result.completed[key] = None
        elif is_completed:
            before[key] = _add(result, key, report, report.view, was, shown.pop(key, None))
        elif was is not None and key not in newest:  # it leaves a completed state that was not kept yet
            newest[key] = was.generation
            _keep(result, key, report.cluster, was)
    return result


def _add(
    result: Changes,
    key: str,
    report: GroupReport,
    view: Mapping[str, Any],
    before: Completed | None,
    shown: Mapping[str, Any] | None,
) -> Completed:
    after = Completed(view.get("generation") or 0, membership(view))
    at_ms = view.get("stable_since_ms") or view.get("state_since_ms") or report.at_ms
    is_same = before is None or before.generation == after.generation
    body = {
        "generation": view.get("generation"),
        "at_ms": at_ms,
        "state": view.get("state"),
        "leader": view.get("leader"),
        "members_total": len(after.members),
        **compare(None if before is None or is_same else before.members, after.members),
        **_phases(view, at_ms),
        **_waited_for(shown),
    }
    row = {"group_key": key, "generation": after.generation, "at_ms": at_ms, "body": json.dumps(body)}
    result.rows.append(row)
    result.counts[f"generations:{body['cause']}"] += 1
    result.counts[MOVED] += body["partitions_moved"]
    _keep(result, key, report.cluster, after)
    return after


def _phases(view: Mapping[str, Any], completed_ms: int) -> dict[str, int | None]:
    """Return how long the rebalance took, in all and until all members had joined."""
    seen = view.get("rebalanced") or {}
    began_ms, joined_ms = seen.get("began_ms"), seen.get("joined_ms")
    if began_ms is None or began_ms > completed_ms:
        return {"began_ms": None, "took_ms": None, "joining_ms": None}
    joining_ms = None if joined_ms is None else joined_ms - began_ms
    return {"began_ms": began_ms, "took_ms": completed_ms - began_ms, "joining_ms": joining_ms}


def _waited_for(shown: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the members that the rebalance waited for in the last view, if it had lasted long enough to tell."""
    phase = (shown or {}).get("rebalance")
    if shown is None or not phase or shown["at_ms"] - phase["since_ms"] < LOOKED_AFTER_MS:
        return {"waited_for": [], "waited_for_total": 0}
    return {"waited_for": phase["waiting_for"], "waited_for_total": phase["waiting_for_total"]}


def _keep(result: Changes, key: str, cluster: str, completed: Completed) -> None:
    result.completed[key] = {
        "group_key": key,
        "cluster": clean(cluster, 255),
        "generation": completed.generation,
        "members": json.dumps(completed.members),
    }


def known_generations(connection: Connection, cluster: str) -> dict[str, int]:
    """Load the newest completed generation of every group of a cluster."""
    completed = tables.settled.c
    rows = connection.execute(
        select(completed.group_key, completed.generation).where(completed.cluster == clean(cluster, 255))
    )
    return {row.group_key: row.generation for row in rows}


def load_before(connection: Connection, keys: Iterable[str]) -> Before:
    """Load the last completed states of groups (as kept, else from their row) and their views if they rebalance."""
    completed, groups, views = tables.settled.c, tables.groups.c, tables.views.c
    found = Before({}, {})
    for portion in in_portions(keys):
        shown = connection.execute(
            select(groups.group_key, groups.generation, groups.state, groups.at_ms, views.view)
            .join_from(tables.groups, tables.views)
            .where(groups.group_key.in_(portion))
        )
        for row in shown:
            view = json.loads(row.view)
            if row.state in _COMPLETED_STATES:
                found.completed[row.group_key] = Completed(row.generation or 0, membership(view))
            else:
                found.rebalancing[row.group_key] = {**view, "at_ms": row.at_ms}
        kept = connection.execute(
            select(completed.group_key, completed.generation, completed.members).where(completed.group_key.in_(portion))
        )
        found.completed.update({row.group_key: Completed(row.generation, json.loads(row.members)) for row in kept})
    return found


def write_changes(connection: Connection, found: Changes) -> None:
    """Write what `changes` found."""
    upsert(connection, tables.generations, found.rows)
    kept = [row for row in found.completed.values() if row is not None]
    upsert(connection, tables.settled, kept, changing=("cluster", "generation", "members"))
    remove(connection, tables.settled.c.group_key, [key for key, row in found.completed.items() if row is None])

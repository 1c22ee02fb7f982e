"""One batch of the job's outputs -> rows. Rows are gathered first, then written with a few statements of many rows.

A batch of 10,000 groups has about 1,000 reports, nearly all of them refreshed views. So rows are gathered by table,
only the newest row of each key is kept, and every table is written once.
"""

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, update

from coordinator_model.group_report import GroupReport, JudgedBy, Said, place_of
from coordinator_model.incidents import OpenIncidents, Transition, fold, in_order
from streaming import json_text
from streaming.config.settings import Policy, Settings
from streaming.store import tables
from streaming.store.database import add_up, clean, group_key, remove, upsert

QUARANTINE_ROWS = 10_000
MOST = 2**63 - 1  # the largest value of a column: clients can commit offsets whose sum is larger
MONITOR_STALLED = "monitor-stalled"
DATA_QUALITY = "data-quality"
ALERTS_MISSED = "alerts-missed"
OWN_RULES = (
    MONITOR_STALLED,
    DATA_QUALITY,
    ALERTS_MISSED,
)  # rules whose incidents `serve` opens and closes, never a report of `run`


class CheckpointMismatchError(Exception):
    """The database does not continue where the checkpoint does; the text says why."""


class BatchResult(NamedTuple):
    """What a batch did. `applied` is false if the batch had been applied before; then nothing else is set."""

    applied: bool
    transitions: tuple[Transition, ...] = ()
    detection_delays_ms: tuple[int, ...] = ()
    """For every incident that opened and is not late: the time from its deadline (or the decision) to the commit."""


class PolicyTransition(NamedTuple):
    """A transition and what the configuration says about its group."""

    transition: Transition
    policy: Policy


@dataclass(slots=True)
class Rows:
    """Everything a batch writes except incidents."""

    checkpoint_id: str
    groups: dict[str, dict[str, Any] | None] = field(default_factory=dict)  # None: the group was deleted
    views: dict[str, str] = field(default_factory=dict)
    lags: dict[str, dict[str, Any]] = field(default_factory=dict)
    heartbeats: dict[str, dict[str, Any]] = field(default_factory=dict)  # of groups without other changes
    shards: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    brokers: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    blind: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    counters: dict[str, Counter[str]] = field(default_factory=dict)

    def count(self, cluster: str, counts: Mapping[str, int]) -> None:
        """Add counter increments of one cluster."""
        self.counters.setdefault(cluster, Counter()).update(counts)


def ordered(outputs: Iterable[Said]) -> list[Said]:
    """Sort a batch's outputs by the coordinator's time; those of one shard stay in the order in which it made them."""
    return in_order(sorted(outputs, key=place_of))


def gather(outputs: Iterable[Said], checkpoint_id: str) -> Rows:
    """Collect the rows of all tables; for each key the last output counts."""
    rows = Rows(checkpoint_id)
    for said in outputs:
        if isinstance(said, GroupReport):
            _gather_report(rows, said)
        else:
            _GATHER[said["kind"]](rows, said)
    return rows


def judge(
    reports: Iterable[GroupReport],
    opened: OpenIncidents,
    settings: Settings,
    ended_ms: Mapping[str, int],
    *,
    reads_anew: bool,
) -> tuple[list[PolicyTransition], OpenIncidents]:
    """Fold the reports, in order, into the open incidents; return transitions and the changed entries of `opened`."""

    def resolve_after_ms_of(group: str) -> int | None:
        policy = settings.policy_for(group)
        return None if policy.mode == "off" else policy.thresholds.resolve_after_ms

    transitions, changed = fold(opened, reports, resolve_after_ms_of, ended_ms, reads_anew=reads_anew)
    return [PolicyTransition(step, settings.policy_for(step.incident.group)) for step in transitions], changed


def write(connection: Connection, rows: Rows) -> None:
    """Write everything gathered."""
    gone = [key for key, row in rows.groups.items() if row is None]
    remove(connection, tables.groups.c.group_key, gone)
    remove(connection, tables.lags.c.group_key, gone)
    kept = [row for row in rows.groups.values() if row is not None]
    upsert(connection, tables.groups, kept, changing=_GROUP_COLUMNS)
    views = [{"group_key": row["group_key"], "view": rows.views[row["group_key"]]} for row in kept]
    upsert(connection, tables.views, views, changing=("view",))
    upsert(connection, tables.lags, list(rows.lags.values()), changing=_LAG_COLUMNS)
    if rows.heartbeats:
        connection.execute(_REFRESH, list(rows.heartbeats.values()))
    upsert(connection, tables.shards, list(rows.shards.values()), changing=("at_ms", "held"))
    brokers = list(rows.brokers.values())
    upsert(connection, tables.brokers, brokers, changing=("progress_ms", "covered"), if_given=("delay_ms",))
    upsert(connection, tables.blind_windows, list(rows.blind.values()), changing=("why",), if_given=("until_ms",))
    write_counters(connection, rows.counters)
    if rows.quarantine:
        _write_quarantine(connection, rows.quarantine[-QUARANTINE_ROWS:])


def _write_quarantine(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rejected rows; of each cluster the newest `QUARANTINE_ROWS` stay."""
    upsert(connection, tables.quarantine, rows)
    known = tables.quarantine.c
    for cluster in {row["cluster"] for row in rows}:
        newest_first = select(known.id).where(known.cluster == cluster).order_by(known.id.desc())
        newest_over = newest_first.offset(QUARANTINE_ROWS).limit(1).scalar_subquery()
        connection.execute(delete(tables.quarantine).where(known.cluster == cluster, known.id <= newest_over))


def write_counters(connection: Connection, counters: Mapping[str, Mapping[str, int]]) -> None:
    """Add increments, by cluster and name, to the stored counters."""
    increments = [
        {"cluster": cluster, "name": clean(name, 255), "value": value}
        for cluster, counter in counters.items()
        for name, value in counter.items()
    ]
    add_up(connection, tables.counters, increments, tables.counters.c.value)


def _gather_report(rows: Rows, report: GroupReport) -> None:
    if report.judged is JudgedBy.LAG:
        return  # it contains findings, but no view
    key = group_key(report.cluster, report.group)
    rows.heartbeats.pop(key, None)
    if report.deleted:
        rows.groups[key] = None
        rows.lags.pop(key, None)
    elif view := report.view:
        rows.groups[key] = {**_group_row(key, report, view), "checkpoint_id": rows.checkpoint_id}
        rows.views[key] = json_text.dumps(view)


def _group_row(key: str, report: GroupReport, view: Mapping[str, Any]) -> dict[str, Any]:
    members = view.get("members") or []
    liveness = [member.get("liveness") for member in members]
    return {
        "group_key": key,
        "cluster": clean(report.cluster, 255),
        "group_id": clean(report.group),
        "type": clean(view.get("type"), 32),
        "state": clean(view.get("state"), 32),
        "generation": view.get("generation"),
        "members": max(len(members), view.get("members_total") or 0),
        "members_violated": liveness.count("violated"),
        "members_unknown": liveness.count("unknown") + (view.get("unknown_left_out") or 0),
        "worst_headroom": _least(members, "heartbeat_headroom"),
        "worst_poll_headroom": _least(members, "poll_headroom"),
        "at_ms": report.at_ms,
        "heartbeats": None,
    }


def _least(members: Iterable[Mapping[str, Any]], name: str) -> float | None:
    return min([value for member in members if (value := member.get(name)) is not None], default=None)


def _gather_heartbeats(rows: Rows, output: Mapping[str, Any]) -> None:
    for group, worst, heard_ms in output["groups"]:
        key = group_key(output["cluster"], group)
        refreshed = {"worst_headroom": worst, "at_ms": output["at_ms"], "heartbeats": json_text.dumps(heard_ms)}
        row = rows.groups.get(key)
        if row is not None:
            row.update(refreshed)
        else:
            rows.heartbeats[key] = {"key": key, **refreshed}


_REFRESH = (
    update(tables.groups)
    .where(tables.groups.c.group_key == bindparam("key"))
    .values({name: bindparam(name) for name in ("worst_headroom", "at_ms", "heartbeats")})
)
_GROUP_COLUMNS = tuple(column.name for column in tables.groups.c if not column.primary_key)


def _gather_partitions(rows: Rows, output: Mapping[str, Any]) -> None:
    columns, lag = output["columns"], output["lag"]
    key = group_key(output["cluster"], output["group"])
    rows.lags[key] = {
        "group_key": key,
        "cluster": clean(output["cluster"], 255),
        "group_id": clean(output["group"]),
        "at_ms": output["at_ms"],
        "lag": None if lag is None else min(lag, MOST),
        "status": clean(output["status"], 16),
        "complete": bool(output["complete"]),
        "partitions": len(columns["partition"]) + columns.get("left_out", 0),
        "checkpoint_id": rows.checkpoint_id,
        "body": json_text.dumps(columns),
    }


_LAG_COLUMNS = tuple(column.name for column in tables.lags.c if not column.primary_key)


def _gather_counted(rows: Rows, output: Mapping[str, Any]) -> None:
    rows.count(clean(output["cluster"], 255), output["counts"])


def _gather_progress(rows: Rows, output: Mapping[str, Any]) -> None:
    cluster = clean(output["cluster"], 255)
    shard = output["shard"]
    has_groups = output.get("groups") != 0  # a shard without groups gets no more rows, so its progress would stay old
    at_ms, held = (output.get("at_ms") or 0) if has_groups else 0, output.get("held") or 0
    if has_groups or (cluster, shard) not in rows.shards:  # a shard may be split over several keys
        rows.shards[cluster, shard] = {"cluster": cluster, "shard": shard, "at_ms": at_ms, "held": held}
    for name, seen in output.get("brokers", {}).items():
        broker = clean(name, 255)
        row = {
            "cluster": cluster,
            "broker": broker,
            "progress_ms": seen["progress_ms"],
            "covered": bool(seen.get("covered")),
            "delay_ms": seen.get("delay_ms"),
        }
        known = rows.brokers.get((cluster, broker), row)
        newest = row if row["progress_ms"] >= known["progress_ms"] else known
        given = (delay for delay in (row["delay_ms"], known["delay_ms"]) if delay is not None)
        covered = row["covered"] and known["covered"]  # lines may be missing for one shard only
        rows.brokers[cluster, broker] = {**newest, "covered": covered, "delay_ms": next(given, None)}
    rows.count(cluster, {f"ingest:{name}": value for name, value in output.get("counts", {}).items()})


def _gather_blind(rows: Rows, output: Mapping[str, Any]) -> None:
    cluster, broker, from_ms = clean(output["cluster"], 255), clean(output["broker"], 255), output["from_ms"]
    row = {"cluster": cluster, "broker": broker, "from_ms": from_ms, "until_ms": output["until_ms"]}
    known = rows.blind.get((cluster, broker, from_ms))
    if known is None or known["until_ms"] is None or (row["until_ms"] or 0) > known["until_ms"]:
        rows.blind[cluster, broker, from_ms] = {**row, "why": clean(output["why"], 32)}


def _gather_decoded(rows: Rows, output: Mapping[str, Any]) -> None:
    cluster = clean(output["cluster"], 255)
    rows.count(cluster, {f"decoded:{name}": value for name, value in output["counts"].items()})


def _gather_quarantine(rows: Rows, output: Mapping[str, Any]) -> None:
    cluster, source, reason = clean(output["cluster"], 255), clean(output["source"], 32), clean(output["reason"], 200)
    detail = output.get("detail")
    try:
        head = base64.b64decode(output.get("head") or "")
    except (binascii.Error, ValueError):
        head = b""
    rows.quarantine.append(
        {
            "cluster": cluster,
            "source": source,
            "topic": clean(output["topic"], 255),
            "partition": output["partition"],
            "offset": output["offset"],
            "timestamp_ms": output["timestamp_ms"],
            "reason": clean(f"{reason}: {detail}", 200) if detail else reason,
            "head": head,
        }
    )
    rows.count(cluster, {f"quarantined:{source}:{reason}": 1})


def _gather_not_kept(rows: Rows, output: Mapping[str, Any]) -> None:
    cluster = clean(output["cluster"], 255)
    rows.count(cluster, {f"quarantined:{clean(name, 232)}": value for name, value in output["counts"].items()})


_GATHER: dict[str, Callable[[Rows, Mapping[str, Any]], None]] = {
    "heartbeats": _gather_heartbeats,
    "partitions": _gather_partitions,
    "counted": _gather_counted,
    "progress": _gather_progress,
    "blind": _gather_blind,
    "decoded": _gather_decoded,
    "quarantine": _gather_quarantine,
    "quarantined": _gather_not_kept,
}

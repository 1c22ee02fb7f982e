"""Readable makers of what the job hands to the store."""

import json
from itertools import groupby
from typing import Any

from coordinator_model.group_report import NO_SHARD, GroupReport, JudgedBy

CLUSTER = "prod"
START_MS = 1_790_000_000_000


def finding(group: str = "orders", member: str = "m-1", **changes: Any) -> dict[str, Any]:
    """One `session-expired` finding; its deadline is its opening."""
    opened_ms = changes.get("opened_ms", START_MS)
    return {
        "rule": "session-expired",
        "severity": "warn",
        "cluster": CLUSTER,
        "group": group,
        "subject": member,
        "incarnation": "1/m",
        "opened_ms": opened_ms,
        "at_ms": opened_ms + 500,
        "member_id": member,
        "instance_id": None,
        "client_id": "worker",
        "client_host": "10.0.0.7",
        "client_software": "apache-kafka-java 4.3.1",
        "generation": 3,
        "broker": "broker-1",
        "evidence": "observed",
        "cause": "session-timeout",
        "deadline_ms": opened_ms,
        "summary": f"{member} missed its session timeout",
        "partitions": [["orders", 0], ["orders", 1]],
        "connection": "10.0.0.1:9092-10.0.0.7:5000-1",
        "detail": {},
        "closed_reason": None,
        "closed_ms": None,
        **changes,
    }


def ended(found: dict[str, Any], closed_ms: int, reason: str = "rejoined") -> dict[str, Any]:
    """Return the same finding, closed."""
    return {**found, "closed_reason": reason, "closed_ms": closed_ms}


def view(group: str = "orders", members: int = 1, **changes: Any) -> dict[str, Any]:
    """A classic group, stable."""
    return {
        "kind": "group",
        "cluster": CLUSTER,
        "group": group,
        "type": "classic",
        "state": "Stable",
        "state_evidence": "observed",
        "generation": 3,
        "protocol_type": "consumer",
        "protocol": "range",
        "leader": "m-0",
        "partition": 7,
        "stable_since_ms": START_MS - 60_000,
        "members": [member(f"m-{number}") for number in range(members)],
        **changes,
    }


def member(member_id: str, **changes: Any) -> dict[str, Any]:
    """One member of a view."""
    return {
        "member_id": member_id,
        "instance_id": None,
        "client_id": "worker",
        "client_host": "10.0.0.7",
        "liveness": "alive",
        "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 300_000,
        "last_heartbeat_ms": START_MS - 1_000,
        "assignment": [{"topic": "orders", "partitions": [0, 1]}],
        "heartbeat_headroom": 0.9,
        "joined_ms": START_MS - 60_000,
        "connection": f"10.0.0.1:9092-10.0.0.7:{member_id}",
        "poll_age_ms": None,
        **changes,
    }


def report(group: str = "orders", *findings: dict[str, Any], at_ms: int = START_MS, **changes: Any) -> GroupReport:
    """What a shard says about one group; no view unless given."""
    shard = changes.get("shard", 7)
    values = {"cluster": CLUSTER, "shard": shard, "holder": str(shard), "findings": list(findings), **changes}
    return GroupReport(group=group, at_ms=at_ms, **values)


def progress(shard: int = 7, progress_ms: int = START_MS, **changes: Any) -> dict[str, Any]:
    """How far one shard is, seen through one broker."""
    return {
        "kind": "progress",
        "cluster": CLUSTER,
        "shard": shard,
        "at_ms": progress_ms,
        "brokers": {"broker-1": {"progress_ms": progress_ms, "covered": True, "delay_ms": 120}},
        "counts": {"heartbeats": 10},
        **changes,
    }


def blind(from_ms: int, until_ms: int | None, broker: str = "broker-1", **changes: Any) -> dict[str, Any]:
    """Return a time for which lines of a broker are missing, as one shard reports it."""
    span = {"broker": broker, "from_ms": from_ms, "until_ms": until_ms, "why": "lines lost"}
    return {"kind": "blind", "cluster": CLUSTER, "shard": 7, "at_ms": START_MS, "seq": 0, **span, **changes}


def rejected(offset: int = 1, **changes: Any) -> dict[str, Any]:
    """One quarantined row."""
    return {
        "kind": "quarantine",
        "cluster": CLUSTER,
        "source": "telemetry",
        "topic": "group-telemetry",
        "partition": 0,
        "offset": offset,
        "timestamp_ms": START_MS,
        "reason": "cut",
        "head": "e30=",
        **changes,
    }


def decoded(**counts: int) -> dict[str, Any]:
    """Return the counts of decoded records: `GroupMetadata:3:decoded` and the like."""
    return {"kind": "decoded", "cluster": CLUSTER, "counts": counts or {"GroupMetadata:3:decoded": 5}}


def partition(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A partition of a group that is 40 messages behind, as the API shows it."""
    return {
        "topic": "orders",
        "topic_id": "4mTvE5ZsSWGT3b0hVaGfHA",
        "partition": number,
        "committed_offset": 960,
        "committed_ms": START_MS - 2_000,
        "start_offset": 100,
        "end_offset": 1_000,
        "lag": 40,
        "lag_ms": 2_000,
        "status": "ok",
        "rate": 20.0,
        "owner": ["m-0", None, "worker", "10.0.0.7", 3],
        "owned_since_ms": START_MS - 60_000,
        "leader_epoch": 0,
        "note": None,
        "metadata": None,
        **changes,
    }


STATUSES = ("unknown", "ok", "warn", "rewind", "stall", "stop")
_COLUMNS = ("partition", "committed_offset", "committed_ms", "start_offset", "end_offset", "lag", "lag_ms", "status",
            "rate", "owned_since_ms", "leader_epoch")  # fmt: skip


def columns(*partitions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Partitions, sorted by topic, in columns."""
    topics = [[name, topic_id, len(list(rows))] for (name, topic_id), rows in groupby(partitions, _topic)]
    owners = list({json.dumps(row["owner"]): row["owner"] for row in partitions if row["owner"]}.values())
    return {
        "topics": topics,
        **{name: [row[name] for row in partitions] for name in _COLUMNS},
        "owner": [owners.index(row["owner"]) if row["owner"] else None for row in partitions],
        "owners": owners,
        "note": {str(place): row["note"] for place, row in enumerate(partitions) if row["note"]},
        "metadata": {str(place): row["metadata"] for place, row in enumerate(partitions) if row["metadata"]},
        "asked_ms": START_MS,
        "history": [[START_MS - 20_000, 10], [START_MS - 10_000, 60], [START_MS, 40]],
        **changes,
    }


def _topic(row: dict[str, Any]) -> tuple[str, str | None]:
    return row["topic"], row["topic_id"]


def partitions(group: str = "orders", *rows: dict[str, Any], at_ms: int = START_MS, **changes: Any) -> dict[str, Any]:
    """How far behind a group is; two partitions unless given."""
    rows = rows or (partition(0), partition(1, lag=0, lag_ms=0, committed_offset=1_000))
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    return {
        "kind": "partitions",
        "cluster": CLUSTER,
        "shard": -1,
        "group": group,
        "at_ms": at_ms,
        "lag": sum(lags) if lags else None,
        "status": max((row["status"] for row in rows), key=STATUSES.index, default="unknown"),
        "complete": all(row["status"] != "unknown" for row in rows),
        "columns": columns(*rows, **changes),
    }


def sums_of(topic: str, **changes: Any) -> list[Any]:
    """Return the sums of a topic in a group with too many partitions, as they are stored."""
    sums = {"partitions": 1, "lag": 1_000, "lag_ms": 90_000, "committed": 500_000, "start": 9, "end": 570_000}
    return [topic, *(sums | {"status": "ok", "stalled": 0, "unknown": 0} | changes).values()]


def lag_report(group: str = "orders", *findings: dict[str, Any], at_ms: int = START_MS, **changes: Any) -> GroupReport:
    """Return what the lag rules report about a group."""
    return report(group, *findings, at_ms=at_ms, shard=NO_SHARD, judged=JudgedBy.LAG, **changes)

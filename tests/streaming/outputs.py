"""Readable makers of what the job hands to the store."""

from typing import Any

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
    """The same finding, over."""
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


def report(group: str = "orders", *findings: dict[str, Any], at_ms: int = START_MS, **changes: Any) -> dict[str, Any]:
    """What a shard says about one group; no view unless given."""
    return {
        "kind": "report",
        "cluster": CLUSTER,
        "shard": 7,
        "group": group,
        "at_ms": at_ms,
        "seq": 0,
        "holder": str(changes.get("shard", 7)),
        "view": None,
        "findings": list(findings),
        "deleted": False,
        **changes,
    }


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
    """When lines of a broker are missing, as one shard tells it."""
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
    """What became of records: `GroupMetadata:3:decoded` and the like."""
    return {"kind": "decoded", "cluster": CLUSTER, "counts": counts or {"GroupMetadata:3:decoded": 5}}

"""``coordinator-paused``, ``telemetry-stalled``, ``telemetry-uncovered``: findings about a broker, not about one group.

Every shard that the broker coordinates says what it sees; ``incidents.diff`` makes one incident of it, held open until
the last shard has let go.
"""

from typing import Any

from coordinator_model.brokers.leadership import UNLOGGED_AFTER_MS
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.telemetry_uncovered import TELEMETRY_UNCOVERED
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.thresholds import Thresholds

COORDINATOR_PAUSED = "coordinator-paused"
TELEMETRY_STALLED = "telemetry-stalled"
MAX_NAMED = 64


def judge(
    affected_members: list[list[Any]], stalled_ms: int | None, broker: str, thresholds: Thresholds
) -> list[Finding]:
    """Return what is true of the brokers; a cost is ``[cause, broker, at_ms, group, subject]``."""
    findings = [
        _paused(name, [c for c in affected_members if c[1] == name])
        for name in sorted({cost[1] for cost in affected_members})
    ]
    if stalled_ms is not None:
        findings.append(_stalled(broker, stalled_ms, thresholds))
    return findings


def _paused(broker: str, affected_members: list[list[Any]]) -> Finding:
    first = min(affected_members, key=lambda cost: int(cost[2]))
    verb = "stood still or restarted" if first[0] == Cause.COORDINATOR_PAUSE else "took over as coordinator"
    return Finding(
        rule=COORDINATOR_PAUSED,
        severity=Severity.PAGE,
        group="",
        subject=broker,
        opened_ms=first[2],
        at_ms=first[2],
        evidence=Evidence.OBSERVED,
        cause=Cause(first[0]),
        summary=f"{broker} {verb}: {len(affected_members)} members lost their sessions within a session timeout of it",
        broker=broker,
        detail={
            "members": [[group, subject] for *_, group, subject in affected_members[:MAX_NAMED]],
            "total": len(affected_members),
        },
    )


def _stalled(broker: str, stalled_ms: int, thresholds: Thresholds) -> Finding:
    limit_ms = thresholds.telemetry_stalled_ms
    return Finding(
        rule=TELEMETRY_STALLED,
        severity=Severity.PAGE,
        group="",
        subject=broker,
        opened_ms=stalled_ms,
        at_ms=stalled_ms + limit_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"no telemetry from {broker} for {limit_ms} ms: the members it coordinates cannot be judged",
        broker=broker,
        detail={"last_line_ms": stalled_ms},
    )


def uncovered(since_ms: int, node: int) -> Finding:
    """Return the finding of a leader that has no request log; its key is not known, so its node id names it."""
    return Finding(
        rule=TELEMETRY_UNCOVERED,
        severity=Severity.INFO,
        group="",
        subject=f"node {node}",
        opened_ms=since_ms,
        at_ms=since_ms + UNLOGGED_AFTER_MS,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"node {node} coordinates groups and no line of its request log comes: their members cannot be judged",
        broker=f"node {node}",
        detail={"node": node},
    )

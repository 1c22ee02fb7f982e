"""``coordinator-paused``, ``telemetry-stalled``, ``telemetry-uncovered``: findings about a broker, not about a group.

Every shard that the broker coordinates reports its own finding. ``incidents`` makes one incident of them, which stays
open until the last shard no longer reports it. That of ``coordinator-paused`` adds up the members of all shards.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coordinator_model.brokers.leadership import UNLOGGED_AFTER_MS
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.rule import Rule
from coordinator_model.rules.telemetry_uncovered import TELEMETRY_UNCOVERED
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.thresholds import Thresholds
from coordinator_model.wording import counted, seconds

if TYPE_CHECKING:
    from coordinator_model.rules.broker_watch import AffectedMember, BrokerWatch

COORDINATOR_PAUSED = Rule(
    id="coordinator-paused",
    severities=(Severity.PAGE,),
    evidence="observed; inferred as long as only a timer shows that one of the sessions ended",
    true_when=(
        "a coordinator paused, restarted or moved, and members lost their sessions within a session timeout after that"
    ),
    clears=(
        "`recovered` (no member has lost a session by it for `resolve_after_ms`), `refuted` (the same"
        " broker accepted all of the members again: none had lost its session)"
    ),
    thresholds=("progress_gap_ms", "resolve_after_ms"),
)

TELEMETRY_STALLED = Rule(
    id="telemetry-stalled",
    severities=(Severity.PAGE,),
    evidence="observed",
    true_when="no line has come from a coordinator for `telemetry_stalled_ms`: its members cannot be judged",
    clears="`telemetry-back` (lines come again), `superseded` (another broker coordinates the groups)",
    thresholds=("telemetry_stalled_ms",),
    ends_as="telemetry-back",
)

MAX_NAMED = 64


def paused(watch: "BrokerWatch", _broker: str, _thresholds: Thresholds) -> list[Finding]:
    """Return a finding for each broker whose pause or move made members lose their sessions."""
    affected = list(watch.affected_members.values())
    brokers = sorted({member.broker for member in affected})
    return [_paused(broker, [member for member in affected if member.broker == broker]) for broker in brokers]


def stalled(watch: "BrokerWatch", broker: str, thresholds: Thresholds) -> list[Finding]:
    """Return the finding that the coordinator is silent, if it is."""
    return [] if watch.stalled_ms is None else [_stalled(broker, watch.stalled_ms, thresholds)]


def uncovered(watch: "BrokerWatch", _broker: str, _thresholds: Thresholds) -> list[Finding]:
    """Return the finding that the shard's leader has no request log, if it has none."""
    return [] if watch.unlogged is None else [_uncovered(*watch.unlogged)]


def added_up(known: Mapping[str, Any], finding: Mapping[str, Any], shard: int) -> dict[str, Any]:
    """Return summary and detail of ``coordinator-paused`` over all shards: each one knows its own groups only.

    ``known``: the detail so far; empty: there is none. ``finding``: what the shard finds now.
    """
    found = finding["detail"]
    others, totals = _of_others(known, shard)
    members = [[*member[:2], shard] for member in found["members"]] + others
    return _summed(finding["broker"], finding["cause"], members, totals | {str(shard): found["total"]})


def without(known: Mapping[str, Any], broker: str, cause: str, shard: int) -> dict[str, Any]:
    """Return summary and detail of ``coordinator-paused`` after a shard has refuted the losses of all its members."""
    return _summed(broker, cause, *_of_others(known, shard))


def _of_others(known: Mapping[str, Any], shard: int) -> tuple[list[list[Any]], dict[str, int]]:
    """Return the members, and the totals by shard, of all shards but one.

    Earlier versions kept no shard of a member, and no totals: what they kept counts no more.
    """
    members = [member for member in known.get("members", []) if member[2:] not in ([], [shard])]
    return members, {of: total for of, total in known.get("total_of_shards", {}).items() if of != str(shard)}


def _summed(broker: str, cause: str, members: list[list[Any]], totals: dict[str, int]) -> dict[str, Any]:
    total = sum(totals.values())
    return {
        "summary": _paused_summary(broker, cause, total),
        "detail": {"members": members[:MAX_NAMED], "total": total, "total_of_shards": totals},
    }


def _paused_summary(broker: str, cause: str, removed: int) -> str:
    """Return the text. The message about the opening is sent before all shards have reported, so it is a minimum."""
    verb = "paused or restarted" if cause == Cause.COORDINATOR_PAUSE else "took over as coordinator"
    return f"{broker} {verb}, and removed at least {counted(removed, 'member')} within a session timeout after that"


def _paused(broker: str, affected_members: "list[AffectedMember]") -> Finding:
    first = min(affected_members, key=lambda member: member.at_ms)
    inferred = any(member.evidence == Evidence.INFERRED for member in affected_members)
    return Finding(
        rule=COORDINATOR_PAUSED.id,
        severity=COORDINATOR_PAUSED.severity,
        group="",
        subject=broker,
        opened_ms=first.at_ms,
        at_ms=first.at_ms,
        evidence=Evidence.INFERRED if inferred else Evidence.OBSERVED,
        cause=Cause(first.cause),
        summary=_paused_summary(broker, first.cause, len(affected_members)),
        broker=broker,
        detail={
            "members": [[member.group, member.subject] for member in affected_members[:MAX_NAMED]],
            "total": len(affected_members),
        },
    )


def _stalled(broker: str, stalled_ms: int, thresholds: Thresholds) -> Finding:
    limit_ms = thresholds.telemetry_stalled_ms
    return Finding(
        rule=TELEMETRY_STALLED.id,
        severity=TELEMETRY_STALLED.severity,
        group="",
        subject=broker,
        opened_ms=stalled_ms,
        at_ms=stalled_ms + limit_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"no telemetry from {broker} for {seconds(limit_ms)}: the members it coordinates cannot be judged",
        broker=broker,
        detail={"silent_since_ms": stalled_ms},
    )


def _uncovered(since_ms: int, node: int) -> Finding:
    """Return the finding about a leader without a request log. Its key is not known, so its node id names it."""
    return Finding(
        rule=TELEMETRY_UNCOVERED.id,
        severity=TELEMETRY_UNCOVERED.severity,
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

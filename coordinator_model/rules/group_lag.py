"""``judge_group``: a group's lag at an instant, partition by partition, and the findings about it.

It is a pure function of its arguments. They determine even when a finding began, so a monitor that restarts finds the
same incidents.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from coordinator_model.group_report import NO_SHARD, GroupReport, JudgedBy
from coordinator_model.lag.columns import columns_of
from coordinator_model.lag.lag_context import LagContext, lag_context
from coordinator_model.lag.partition import GroupFacts, PartitionLag
from coordinator_model.lag.status import Status
from coordinator_model.rules.registry import REGISTRY
from coordinator_model.states import GroupState, GroupType
from coordinator_model.thresholds import Thresholds

Output = dict[str, Any]
JUDGES = tuple(each.lag for each in REGISTRY if each.lag is not None)
PENDING = tuple(each.pending for each in REGISTRY if each.pending is not None)


def judge_group(
    facts: GroupFacts,
    partitions: Iterable[PartitionLag],
    now_ms: int,
    thresholds: Thresholds,
    history: Sequence[tuple[int, int]] = (),
    *,
    commits: int = 0,
) -> tuple[Output, GroupReport]:
    """Return a ``partitions`` output and a report of a group, at the instant of a round of end offsets.

    ``history``: the group's lag at earlier rounds, oldest first, from the ``history`` of the last columns. If the
    group's members own partitions, only the lag of those counts. ``commits``: the number of commits to show in the
    columns.
    """
    context = lag_context(facts, partitions, now_ms, thresholds, history)
    return _partitions(context, commits), _report(context)


def _partitions(context: LagContext, commits: int) -> Output:
    statuses = [row.status for row in context.rows]
    return {
        "kind": "partitions",
        "cluster": context.facts.cluster,
        "shard": NO_SHARD,
        "group": context.facts.group,
        "at_ms": context.now_ms,
        "lag": context.total,
        "status": max(statuses, key=lambda status: status.rank, default=Status.UNKNOWN),
        "complete": _is_complete(context),
        "columns": columns_of(context, commits),
    }


def _is_complete(context: LagContext) -> bool:
    """Tell whether the lag of each partition with a commit is known. That of share groups never is."""
    known = all(row.lag is not None for row in context.rows if row.p.commits)
    return bool(context.rows) and known and context.facts.type != GroupType.SHARE


def _report(context: LagContext) -> GroupReport:
    """Return all findings about the group's lag. If the group cannot be judged, pending and owners are unknown."""
    facts, known = context.facts, context.is_known
    waits = any(row.lag != 0 for row in context.rows)
    findings = (finding for judge in JUDGES for finding in judge(context)) if waits else ()
    pending = (row for pending_of in PENDING for row in pending_of(context)) if waits and known else ()
    return GroupReport(
        cluster=facts.cluster,
        group=facts.group,
        at_ms=context.now_ms,
        judged=JudgedBy.LAG,
        findings=[{"cluster": facts.cluster, **finding.as_dict()} for finding in findings],
        pending=list(pending) if known else None,
        owners=sorted(_owners(context)) if known and not context.instant.is_simple else None,
    )


def _owners(context: LagContext) -> set[str]:
    owners = (row.p.owner for row in context.rows)
    if context.facts.state != GroupState.STABLE:
        return set()
    return {owner.member_id for owner in owners if owner is not None and owner.liveness != "violated"}

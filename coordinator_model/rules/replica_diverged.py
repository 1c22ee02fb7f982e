"""``replica-diverged``: a record of the coordinator contradicts the replica.

The replica adopts the record. Either lines were lost, or this monitor is wrong.
"""

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.wording import counted

REPLICA_DIVERGED = Rule(
    id="replica-diverged",
    severities=(Severity.WARN,),
    evidence="observed",
    true_when=(
        "the group's record contradicts the coordinator's answers about the same generation: in members, leader,"
        " protocol, instance ids, timeouts or assignments. The monitor then goes by the record"
    ),
    clears="`recovered` (no other contradiction for `resolve_after_ms`)",
    thresholds=("resolve_after_ms",),
)


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge the last contradiction. The finding lasts for ``resolve_after_ms``."""
    if replica.diverged is None:
        return NOTHING
    at_ms, generation, missing, more, different = replica.diverged
    over_ms = at_ms + context.thresholds.resolve_after_ms
    if context.progress_ms >= over_ms:
        return NOTHING
    finding = Finding(
        rule=REPLICA_DIVERGED.id,
        severity=REPLICA_DIVERGED.severity,
        opened_ms=at_ms,
        at_ms=at_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"the record of {replica.group}'s generation {generation} is not what was expected:"
        f" {counted(len(missing), 'member')} missing, {len(more)} unexpected,"
        f" {counted(len(different), 'other difference')}",
        detail={"missing": missing, "more": more, "different": different, "unexpected": replica.unexpected},
        **about_group(replica, context),
    )
    return Verdict(finding, over_ms)

"""``group-set-aside``: this monitor's own code failed on a group, and the group's replica was dropped.

No other group is affected. The group's next record begins a new replica. The incident ends once that replica has
existed for ``resolve_after_ms`` without another failure. So a client that can provoke the failure causes one incident,
not one per second.
"""

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity

GROUP_SET_ASIDE = Rule(
    id="group-set-aside",
    severities=(Severity.WARN,),
    evidence="observed: this monitor's own failure",
    true_when="this monitor failed on an event or the state of a group, and has dropped what it knew of it",
    clears="`recovered` (the group's next record was read, and nothing failed for `resolve_after_ms`), `group-deleted`",
    thresholds=("resolve_after_ms",),
)


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge a group that was set aside, until it has not failed again for long enough."""
    aside = replica.set_aside
    if aside is None:
        return NOTHING
    over_ms = None if aside.resumed_ms is None else aside.resumed_ms + context.thresholds.resolve_after_ms
    if over_ms is not None and (context.progress_ms >= over_ms or not context.broker):
        return NOTHING  # if only records are read, no clock would end the finding later
    so_far = "nothing is known of it until its next record" if aside.resumed_ms is None else "it has begun again"
    finding = Finding(
        rule=GROUP_SET_ASIDE.id,
        severity=GROUP_SET_ASIDE.severity,
        opened_ms=aside.since_ms,
        at_ms=aside.since_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"this monitor failed on {replica.group} ({aside.error}) and has dropped what it knew: {so_far}",
        detail={"error": aside.error, "failures": aside.failures, "resumed_ms": aside.resumed_ms},
        **about_group(replica, context),
    )
    return Verdict(finding, over_ms)

"""``rebalance-aborted``: generations were announced to the members, and given up before their leader's sync.

A generation is given up whenever a member joins or leaves between the JoinGroup answers and the leader's sync, for
example when several members start together. That is normal. So it is reported only if the group does not become stable
soon, or if several generations in a row are given up.
"""

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.wording import counted

REBALANCE_ABORTED = Rule(
    id="rebalance-aborted",
    severities=(Severity.WARN,),
    evidence="observed in the coordinator's answers; records do not show it",
    true_when=(
        "a generation was announced and given up before its leader's sync, and the group is not stable"
        " `unstable_after_ms` later, or three generations in a row were given up"
    ),
    clears="`recovered` (a generation is synced, or the group has no members)",
    thresholds=("unstable_after_ms",),
)

IN_A_ROW = 3
"""If this many generations in a row are given up, they are reported at once."""


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge the generations given up since the group was last stable."""
    if not replica.aborted:
        return NOTHING
    first_ms = replica.aborted[0].at_ms
    due_ms = first_ms + context.thresholds.unstable_after_ms
    if len(replica.aborted) >= IN_A_ROW:
        due_ms = min(due_ms, replica.aborted[IN_A_ROW - 1].at_ms)
    if context.progress_ms < due_ms:
        return Verdict(None, due_ms)
    generations = [one.generation for one in replica.aborted]
    finding = Finding(
        rule=REBALANCE_ABORTED.id,
        severity=REBALANCE_ABORTED.severity,
        opened_ms=first_ms,
        at_ms=due_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{replica.group} does not become stable: {counted(len(generations), 'generation')} given up before"
        f" the leader sent an assignment, the last is {generations[-1]}",
        detail={"generations": generations, "leader": replica.leader},
        **about_group(replica, context),
    )
    return Verdict(finding, None)

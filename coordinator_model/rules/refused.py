"""``join-refused`` and ``member-fenced``: a client is refused again and again."""

from collections.abc import Iterator

from coordinator_model.errors import Error
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.notes import Refusal
from coordinator_model.replica.refusals import JOIN_REFUSALS, over_ms
from coordinator_model.rules.findings import Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.wording import counted

JOIN_REFUSED = Rule(
    id="join-refused",
    severities=(Severity.WARN,),
    evidence="observed",
    true_when=(
        "a client is refused with the same lasting error three times, less than ten minutes apart: when it asks to"
        " join, or as a member, when it sends a Heartbeat or SyncGroup"
    ),
    clears=(
        "`recovered` (the client joined, or did not ask for ten minutes; the member synced, or was not refused for"
        " `resolve_after_ms`)"
    ),
    thresholds=("resolve_after_ms",),
)

MEMBER_FENCED = Rule(
    id="member-fenced",
    severities=(Severity.WARN,),
    evidence="observed",
    true_when=(
        "a client goes on as a member although the coordinator no longer knows it: three times, and without becoming a"
        " member again in between, it gets one of the answers UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID"
        " and FENCED_MEMBER_EPOCH"
    ),
    clears="`recovered` (no such answer for `resolve_after_ms`)",
    thresholds=("resolve_after_ms",),
)

OTHERS = "other clients"
"""One name for all clients that are not counted individually."""


def judge(replica: GroupReplica, context: JudgementContext) -> Iterator[Verdict]:
    """Judge the clients that were refused repeatedly, until they join or have stopped asking for long enough."""
    for key, refusal in replica.refused.items():
        if refusal.repeated_ms is None:
            continue
        ends_ms = over_ms(refusal, context.thresholds.resolve_after_ms)
        if context.progress_ms < ends_ms:
            yield Verdict(_finding(replica, context, key, refusal, refusal.repeated_ms), ends_ms)


def _name_of(refusal: Refusal) -> str:
    """Return the refused client as text for people: a client that asks to join, or the member that it claims to be."""
    if refusal.is_of_others:
        return OTHERS
    if refusal.member_id is not None and refusal.error not in JOIN_REFUSALS:
        return refusal.instance_id or refusal.member_id
    if refusal.member_id is not None and not refusal.client_id:
        return refusal.member_id
    return f"{refusal.client_id or 'unknown client'} on {refusal.client_host}"


def _finding(replica: GroupReplica, context: JudgementContext, key: str, refusal: Refusal, repeated_ms: int) -> Finding:
    error, count, first_ms, _, last_ms, client_id, client_host, member_id, instance_id = refusal
    joining = error in JOIN_REFUSALS
    as_member = joining and member_id is not None
    name = Error(error).name
    rule = JOIN_REFUSED if joining else MEMBER_FENCED
    about, who = about_group(replica, context), _name_of(refusal)
    about |= {"subject": who, "incarnation": f"{about['incarnation']}/{key}"}  # two clients may have one name
    did = "is a member of" if as_member else "asked to join" if joining else "went on as a member of"
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        opened_ms=first_ms,
        at_ms=repeated_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{who} {did} {replica.group}: the answer was {name} ({error}) {counted(count, 'time')}",
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        detail={"error": error, "error_name": name, "count": count, "last_ms": last_ms},
        **about,
    )

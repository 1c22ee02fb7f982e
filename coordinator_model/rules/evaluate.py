"""``evaluate``: the findings that are true of a group now. It only reads.

Order: departures first (consequence), then the living members' sessions (timer), then polls by their clients' word; a
subject that one rule has found keeps it, so that a member is not accused twice for one silence. Last, what is true of
the group as a whole.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from coordinator_model.replica.group import GroupReplica, Member
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.rules import (
    departed,
    group_set_aside,
    left_without_reason,
    partition_owned_twice,
    partition_unowned,
    polling,
    rebalance_aborted,
    rebalance_storm,
    rebalance_stuck,
    refused,
    replica_diverged,
    session,
    setup,
    telemetry_uncovered,
    zombie_commit,
)
from coordinator_model.rules.catalogue import RULES
from coordinator_model.rules.findings import Finding, Verdict
from coordinator_model.rules.settled import settled_ms
from coordinator_model.states import SESSION_EXPIRED, Severity

GROUP_RULES: tuple[Callable[[GroupReplica, JudgementContext], Verdict], ...] = (
    rebalance_stuck.judge,
    rebalance_aborted.judge,
    rebalance_storm.judge,
    partition_unowned.judge,
    partition_owned_twice.judge,
    telemetry_uncovered.judge,
    replica_diverged.judge,
    group_set_aside.judge,
)
SETTLED_RULES: tuple[Callable[[GroupReplica, JudgementContext, int], Finding | None], ...] = (
    setup.timeouts_inconsistent,
    setup.mixed_subscriptions,
    setup.assignment_skewed,
    setup.member_idle,
)
VIOLATIONS = frozenset(rule.id for rule in RULES if rule.violation)
"""Rules that say that a member has broken a timeout."""
HEARTBEAT_RULES = frozenset(rule.id for rule in RULES if rule.needs_heartbeats)
"""Rules whose findings a heartbeat may end: it takes the slow path where one of them is true."""


class Evaluation(NamedTuple):
    """Findings, when to look at the group again, and when at each of its members (absent: when something happens).

    ``proof_ms``: some verdict waits for another heartbeat of the shard that arrived then or later.
    """

    findings: list[Finding]
    due_ms: int | None
    member_due_ms: dict[str, int]
    proof_ms: int | None


def evaluate(replica: GroupReplica, context: JudgementContext) -> Evaluation:
    """Evaluate one group at ``context.progress_ms``."""
    found: dict[tuple[str, str | None], Finding] = {}
    dues: list[int | None] = []
    for departure in replica.departures:
        verdict = departed.judge(replica, departure, context)
        dues.append(verdict.due_ms)
        if verdict.finding is not None:
            found[verdict.finding.rule, verdict.finding.member_id] = verdict.finding
    member_due_ms: dict[str, int] = {}
    proofs_ms: list[int] = []
    for member in replica.members.values():
        judged = session.judge(replica, member, context)
        if judged.due_ms is not None:
            member_due_ms[member.member_id] = judged.due_ms
        if judged.proof_ms is not None:
            proofs_ms.append(judged.proof_ms)
        polled = _polled(replica, member, context) if member.tells_of_polls else ()
        dues += [verdict.due_ms for verdict in polled]
        for finding in (judged.finding, *(verdict.finding for verdict in polled)):
            if finding is not None:
                found.setdefault((finding.rule, finding.member_id), finding)
    findings = list(found.values())
    for verdict in _as_a_whole(replica, context):
        dues.append(verdict.due_ms)
        if verdict.finding is not None:
            findings.append(verdict.finding)
    due_ms = min((due_ms for due_ms in dues if due_ms is not None), default=None)
    return Evaluation(findings, due_ms, member_due_ms, min(proofs_ms, default=None))


def _polled(replica: GroupReplica, member: Member, context: JudgementContext) -> tuple[Verdict, ...]:
    """Judge a member by its client's own word."""
    return (
        Verdict(departed.judge_poll(replica, member, context), None),
        polling.static_stuck(replica, member, context),
        polling.at_risk(replica, member, context),
    )


def _as_a_whole(replica: GroupReplica, context: JudgementContext) -> Iterator[Verdict]:
    """Judge what is true of the group rather than of a member."""
    if replica.deleted:
        return
    for rule in GROUP_RULES:
        yield rule(replica, context)
    yield from refused.judge(replica, context)
    yield from zombie_commit.judge(replica, context)
    yield from left_without_reason.judge(replica, context)
    at_ms = settled_ms(replica, context)
    if at_ms is None or context.progress_ms < at_ms:
        yield Verdict(None, at_ms)
        return
    for settled_rule in SETTLED_RULES:
        finding = settled_rule(replica, context, at_ms)
        yield Verdict(finding, None if finding is None else setup.measured_again_ms(replica, finding, context))


def violated(findings: Iterable[Finding]) -> set[str]:
    """Return the subjects that have broken a timeout and are not back (a Streams consumer's end is only info)."""
    return {f.subject for f in findings if f.rule in VIOLATIONS and not f.closed_reason and _counts(f)}


def _counts(finding: Finding) -> bool:
    return finding.severity != Severity.INFO or finding.rule == SESSION_EXPIRED


def need_heartbeats(findings: Iterable[Finding]) -> set[str]:
    """Return the subjects whose next heartbeat may change what is true of them."""
    return {f.subject for f in findings if f.rule in HEARTBEAT_RULES}

"""``evaluate``: the findings that are true of a group now. It changes nothing.

The judges are called in the order of the ``registry``: first for departures, then for members (their sessions, then the
polls that their clients report), last for the group as a whole. A rule has one finding about a member, so that a member
is not reported twice for one silence: that of its newest departure, or else its own.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.rules.broker_watch import BrokerWatch
from coordinator_model.rules.findings import Finding, Verdict
from coordinator_model.rules.registry import HEARTBEAT_RULES, REGISTRY, VIOLATIONS
from coordinator_model.rules.settled import settled_ms
from coordinator_model.states import SESSION_EXPIRED, Severity
from coordinator_model.thresholds import Thresholds

Judge = TypeVar("Judge", bound=Callable[..., object])


def _distinct(judges: Iterable[Judge | None]) -> tuple[Judge, ...]:
    """Return the judges of several rules, each once."""
    return tuple(dict.fromkeys(judge for judge in judges if judge is not None))


DEPARTURE_JUDGES = _distinct(each.departure for each in REGISTRY)
MEMBER_JUDGES = _distinct(each.member for each in REGISTRY)
POLL_JUDGES = _distinct(each.polls for each in REGISTRY)
GROUP_JUDGES = _distinct(each.group for each in REGISTRY)
SETTLED_JUDGES = _distinct(each.settled for each in REGISTRY)
BROKER_JUDGES = _distinct(each.broker for each in REGISTRY)


class Evaluation(NamedTuple):
    """Findings, and when to judge the group and each of its members again; if there is no instant: at their next event.

    ``proof_ms``: a verdict waits for another heartbeat of the shard that arrived at this instant or later.
    """

    findings: list[Finding]
    due_ms: int | None
    member_due_ms: dict[str, int]
    proof_ms: int | None


def evaluate(replica: GroupReplica, context: JudgementContext) -> Evaluation:
    """Evaluate one group at ``context.progress_ms``."""
    found: dict[tuple[str, str | None], Finding] = {}
    dues_ms: list[int | None] = []
    for verdict in _departed(replica, context):
        dues_ms.append(verdict.due_ms)
        if verdict.finding is not None:
            found[verdict.finding.rule, verdict.finding.member_id] = verdict.finding
    member_due_ms: dict[str, int] = {}
    proofs_ms: list[int | None] = []
    for member in replica.members.values():
        timed = [judge(replica, member, context) for judge in MEMBER_JUDGES]
        polled = [judge(replica, member, context) for judge in POLL_JUDGES] if member.tells_of_polls else []
        due_ms = _earliest(verdict.due_ms for verdict in timed)
        if member.last_heartbeat_ms is None:
            dues_ms.append(due_ms)  # no heartbeat to count from
        elif due_ms is not None:
            member_due_ms[member.member_id] = due_ms
        proofs_ms += [verdict.proof_ms for verdict in timed]
        dues_ms += [verdict.due_ms for verdict in polled]
        for verdict in (*timed, *polled):
            if verdict.finding is not None:
                found.setdefault((verdict.finding.rule, verdict.finding.member_id), verdict.finding)
    whole = list(_as_a_whole(replica, context))
    dues_ms += [verdict.due_ms for verdict in whole]
    findings = [*found.values(), *(verdict.finding for verdict in whole if verdict.finding is not None)]
    return Evaluation(findings, _earliest(dues_ms), member_due_ms, _earliest(proofs_ms))


def _earliest(instants_ms: Iterable[int | None]) -> int | None:
    return min((at_ms for at_ms in instants_ms if at_ms is not None), default=None)


def _departed(replica: GroupReplica, context: JudgementContext) -> Iterator[Verdict]:
    """Judge the departures."""
    for departure in replica.departures:
        for judge in DEPARTURE_JUDGES:
            yield judge(replica, departure, context)


def _as_a_whole(replica: GroupReplica, context: JudgementContext) -> Iterator[Verdict]:
    """Judge the group as a whole."""
    if replica.deleted:
        return
    for judge in GROUP_JUDGES:
        told = judge(replica, context)
        if isinstance(told, Verdict):
            yield told
        else:
            yield from told
    at_ms = settled_ms(replica, context)
    if at_ms is None or context.progress_ms < at_ms:
        yield Verdict(None, at_ms)
        return
    for settled_judge in SETTLED_JUDGES:
        yield settled_judge(replica, context, at_ms)


def evaluate_brokers(watch: BrokerWatch, broker: str, thresholds: Thresholds) -> list[Finding]:
    """Return a shard's findings about brokers. ``broker`` is its coordinator."""
    return [finding for judge in BROKER_JUDGES for finding in judge(watch, broker, thresholds)]


def violated(findings: Iterable[Finding]) -> set[str]:
    """Return the subjects that have broken a timeout and are not back."""
    return {f.subject for f in findings if f.rule in VIOLATIONS and not f.closed_reason and _counts(f)}


def _counts(finding: Finding) -> bool:
    return finding.severity != Severity.INFO or finding.rule == SESSION_EXPIRED


def need_heartbeats(findings: Iterable[Finding]) -> set[str]:
    """Return the subjects whose findings may end with their next heartbeat."""
    return {f.subject for f in findings if f.rule in HEARTBEAT_RULES}

"""How a group is set up: ``timeouts-inconsistent``, ``mixed-subscriptions``, ``assignment-skewed``, ``member-idle``.

Nothing is broken yet, and the setup may be intended: a standby consumer is idle on purpose. So these findings are
``info``, a group has at most one of each rule, and only once it has settled. Each function takes a settled group and
returns a finding or None.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from coordinator_model.brokers.timer_reset import LONGEST_SESSION_MS
from coordinator_model.replica.assigned_work import STREAMS_PROTOCOL
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.heartbeat_interval import HEARTBEATS_A_SESSION, is_slow
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.rules.findings import Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.wording import counted, seconds

TIMEOUTS_INCONSISTENT = Rule(
    id="timeouts-inconsistent",
    severities=(Severity.INFO,),
    evidence="observed",
    true_when=(
        "in a settled group one of these holds: session or rebalance timeouts differ; a session timeout is at one of"
        " the broker's default bounds (6,000 and 1,800,000 ms); fewer than three heartbeats fit into a session"
        " timeout; a rebalance timeout (`max.poll.interval.ms`) is a day or longer"
    ),
    clears="`recovered` (no longer so, or the group is not stable)",
    thresholds=("settled_after_ms",),
)

MIXED_SUBSCRIPTIONS = Rule(
    id="mixed-subscriptions",
    severities=(Severity.INFO,),
    evidence="observed",
    true_when="members of a settled group share no topic with the others, not even through a third member",
    clears="`recovered` (no longer so, or the group is not stable)",
    thresholds=("settled_after_ms",),
)

ASSIGNMENT_SKEWED = Rule(
    id="assignment-skewed",
    severities=(Severity.INFO,),
    evidence="observed",
    true_when=(
        "a member of a settled group holds at least twice as many partitions as the members with the same topics do on"
        " average, and at least two more than the one with the fewest. Kafka Streams is not judged"
    ),
    clears="`recovered` (no longer so, or the group is not stable)",
    thresholds=("settled_after_ms",),
)

MEMBER_IDLE = Rule(
    id="member-idle",
    severities=(Severity.INFO,),
    evidence="observed",
    true_when="members of a settled group subscribe and hold no partition while others do. Kafka Streams is not judged",
    clears="`recovered` (no longer so, or the group is not stable)",
    thresholds=("settled_after_ms",),
)

MIN_SESSION_TIMEOUT_MS = 6_000
"""Kafka's default of ``group.min.session.timeout.ms``."""
ENDLESS_POLL_MS = 86_400_000
"""A poll interval of a day limits nothing. People set 2^31-1 to switch the limit off, and a rebalance then waits for a
member as long."""
SKEW = 2
"""The busiest member of a skewed group holds at least this many times the mean, and at least this many partitions more
than the member with the fewest."""
MAX_NAMED = 64


def judged(
    find: Callable[[GroupReplica, JudgementContext, int], Finding | None],
) -> Callable[[GroupReplica, JudgementContext, int], Verdict]:
    """Make a judge of a function whose finding stays true until the next event."""

    def judge(replica: GroupReplica, context: JudgementContext, at_ms: int) -> Verdict:
        return Verdict(find(replica, context, at_ms), None)

    return judge


def timeouts_inconsistent(replica: GroupReplica, context: JudgementContext, at_ms: int) -> Finding | None:
    """Find timeouts that differ, are at the broker's bounds, limit nothing, or allow for no lost heartbeat."""
    members = [member for member in replica.members.values() if not member.kip848]
    sessions_ms = sorted({m.session_timeout_ms for m in members if m.session_timeout_ms})
    polls_ms = sorted({m.rebalance_timeout_ms for m in replica.members.values() if m.rebalance_timeout_ms})
    slow = [m for m in members if is_slow(m, context)]
    problems = []
    if len(sessions_ms) > 1:
        problems.append(f"session timeouts differ: {_listed(map(seconds, sessions_ms))}")
    if len(polls_ms) > 1:
        problems.append(f"rebalance timeouts differ: {_listed(map(seconds, polls_ms))}")
    if sessions_ms and sessions_ms[0] <= MIN_SESSION_TIMEOUT_MS:
        problems.append(f"a session timeout of {seconds(sessions_ms[0])} is Kafka's default minimum")
    if sessions_ms and sessions_ms[-1] >= LONGEST_SESSION_MS:
        problems.append(f"a session timeout of {seconds(sessions_ms[-1])} is Kafka's default maximum")
    if polls_ms and polls_ms[-1] >= ENDLESS_POLL_MS:
        problems.append(f"max.poll.interval.ms is {polls_ms[-1]:,}: it limits nothing")
    if slow:
        problems.append(
            f"{counted(len(slow), 'member')} with fewer than {HEARTBEATS_A_SESSION} heartbeats in a session timeout"
        )
    if not problems:
        return None
    detail = {
        "session_timeouts_ms": sessions_ms[:MAX_NAMED],
        "rebalance_timeouts_ms": polls_ms[:MAX_NAMED],
        "slow_heartbeats": [m.member_id for m in slow[:MAX_NAMED]],
    }
    return _about(replica, context, at_ms, TIMEOUTS_INCONSISTENT, "; ".join(problems), detail)


def judge_timeouts(replica: GroupReplica, context: JudgementContext, at_ms: int) -> Verdict:
    """Judge a settled group's timeouts, and return when to measure its heartbeats again."""
    finding = timeouts_inconsistent(replica, context, at_ms)
    return Verdict(finding, None if finding is None else _measured_again_ms(replica, finding, context))


def _measured_again_ms(replica: GroupReplica, finding: Finding, context: JudgementContext) -> int | None:
    """Return when to measure heartbeats again that seemed too few; None: no more of them come."""
    named = (replica.members.get(member_id) for member_id in finding.detail.get("slow_heartbeats", ()))
    heard_ms = max((member.last_heartbeat_ms or 0 for member in named if member is not None), default=0)
    due_ms = heard_ms + context.thresholds.settled_after_ms
    return due_ms if due_ms > context.progress_ms else None


def mixed_subscriptions(replica: GroupReplica, context: JudgementContext, at_ms: int) -> Finding | None:
    """Find members that share no topic with the others: unrelated applications under one group id."""
    parts = _related({tuple(m.topics) for m in replica.members.values() if m.topics})
    if len(parts) < 2:
        return None
    named = [sorted(part)[:MAX_NAMED] for part in parts]
    told = " and ".join(_listed(topics) for topics in named[:3])
    summary = f"{len(parts)} sets of members share no topic: {told}"
    return _about(replica, context, at_ms, MIXED_SUBSCRIPTIONS, summary, {"topics": named[:MAX_NAMED]})


def _related(subscriptions: Iterable[tuple[str, ...]]) -> list[set[str]]:
    """Join subscriptions that have a topic in common, directly or through others."""
    part_of: dict[str, set[str]] = {}
    for topics in sorted(subscriptions):
        parts = {id(part): part for topic in topics if (part := part_of.get(topic)) is not None}
        joined = max(parts.values(), key=len, default=set())  # the smaller ones join it, so a topic seldom moves
        for part in (set(topics), *parts.values()):
            if part is not joined:
                joined |= part
                part_of |= dict.fromkeys(part, joined)
    return [*{id(part): part for part in part_of.values()}.values()]


def assignment_skewed(replica: GroupReplica, context: JudgementContext, at_ms: int) -> Finding | None:
    """Find members that hold far more than others that subscribe to the same topics."""
    if replica.protocol == STREAMS_PROTOCOL:
        return None  # its tasks cause different loads, and standby tasks are not seen
    alike: dict[tuple[str, ...], list[Member]] = defaultdict(list)
    for member in replica.members.values():
        if member.topics:
            alike[tuple(member.topics)].append(member)
    for members in alike.values():
        busiest = max(members, key=held)
        most, least = held(busiest), min(map(held, members))
        mean = sum(map(held, members)) / len(members)
        if most - least >= SKEW and most >= SKEW * mean:
            summary = f"{busiest.member_id} holds {counted(most, 'partition')}, others {least}, {mean:.1f} on average"
            detail = {"most": most, "least": least, "mean": round(mean, 2), "busiest": busiest.member_id}
            return _about(replica, context, at_ms, ASSIGNMENT_SKEWED, summary, detail)
    return None


def member_idle(replica: GroupReplica, context: JudgementContext, at_ms: int) -> Finding | None:
    """Find members that subscribe and hold nothing while others do."""
    if replica.protocol == STREAMS_PROTOCOL or not any(map(held, replica.members.values())):
        return None
    idle = sorted(m.member_id for m in replica.members.values() if m.topics and not held(m))
    if not idle:
        return None
    summary = f"{len(idle)} of {counted(len(replica.members), 'member')} without a partition"
    return _about(replica, context, at_ms, MEMBER_IDLE, summary, {"members": idle[:MAX_NAMED], "total": len(idle)})


def held(member: Member) -> int:
    """Count a member's partitions."""
    return sum(len(partitions) for partitions in member.assignment.values())


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, list(values)[:8]))


def _about(
    replica: GroupReplica, context: JudgementContext, at_ms: int, rule: Rule, summary: str, detail: dict[str, Any]
) -> Finding:
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        opened_ms=at_ms,
        at_ms=at_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{replica.group}: {summary}",
        detail=detail,
        **about_group(replica, context),
    )

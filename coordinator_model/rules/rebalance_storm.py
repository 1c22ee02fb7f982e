"""``rebalance-storm``: a group rebalances again and again. The finding says which clients cause it.

A rolling deploy causes many rebalances too: every member leaves once and comes back once. It is recognized by the
clients that go, each known by its instance id, or else by client id and host. It is a deploy if no client goes more
often than it has members now, if at most one member is removed by the coordinator (except for Kafka Streams, whose
consumers never leave), and if members that came or went explain every rebalance. A member that went for an unknown
reason explains rebalances too, but nobody is blamed for it. Rebalances before the first departure are not counted: the
group is starting or growing.
"""

from collections import Counter
from typing import NamedTuple

from coordinator_model.client import who
from coordinator_model.replica.assigned_work import STREAMS_PROTOCOL
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.wording import counted, seconds

REBALANCE_STORM = Rule(
    id="rebalance-storm",
    severities=(Severity.INFO, Severity.PAGE),
    evidence="observed",
    true_when=(
        "a group rebalanced `storm_rebalances` times within `storm_window_ms`, counted from the first member that left."
        " A rolling deploy is info"
    ),
    clears="`recovered` (fewer rebalances in the window)",
    thresholds=("storm_rebalances", "storm_window_ms"),
)

MAY_BE_LEAVES = (Cause.LEFT, Cause.STATIC_LEFT, Cause.ADMIN, Cause.UNKNOWN)
"""Causes that may mean that a member left by itself. The cause is unknown if only records are read."""
REBALANCES_EACH = 2
"""A member that comes or goes causes up to two rebalances: cooperative assignors revoke in one, assign in the next."""
MAX_NAMED = 8


class Going(NamedTuple):
    """A member that left or was removed. ``who`` is its client's lasting name."""

    who: str
    cause: Cause
    at_ms: int


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge the rebalances in the ``storm_window_ms`` before the last one."""
    thresholds = context.thresholds
    least = thresholds.storm_rebalances
    if len(replica.rebalances) < least:
        return NOTHING
    since_ms = replica.rebalances[-1].at_ms - thresholds.storm_window_ms
    over_ms = replica.rebalances[-least].at_ms + thresholds.storm_window_ms
    gone = goings(replica, since_ms)
    first_ms = min((going.at_ms for going in gone), default=since_ms)
    counted_ms = max(since_ms + 1, first_ms - thresholds.grace_ms)  # the departure and its rebalance: one instant
    recent = [one.at_ms for one in replica.rebalances if one.at_ms >= counted_ms]
    if len(recent) < least or context.progress_ms >= over_ms:
        return NOTHING
    came = sum(1 for member in replica.members.values() if (member.joined_ms or 0) > since_ms)
    storm = _is_storm(replica, _certain(gone, context), len(gone) + came, len(recent))
    if not (gone or storm):
        return NOTHING
    return Verdict(_finding(replica, context, recent, gone, storm=storm), over_ms)


def goings(replica: GroupReplica, since_ms: int) -> list[Going]:
    """Return the members that left or were removed since an instant. The cause may not be known, or not yet."""
    said = [
        Going(who(leave.member), leave.cause, leave.applied_ms)
        for leave in replica.leaves
        if leave.applied_ms > since_ms and leave.cause is not Cause.REPLACED
    ]
    thrown_out = [Going(v.client, Cause(v.cause), v.at_ms) for v in replica.violations if v.at_ms > since_ms]
    counted_already = {(going.who, going.at_ms) for going in thrown_out}
    waiting = [
        Going(who(d.member), Cause.UNKNOWN, d.removed_ms)
        for d in replica.departures
        if not d.judged and d.successor is None and d.removed_ms > since_ms
    ]
    said += [going for going in waiting if (going.who, going.at_ms) not in counted_already]
    return said + [
        going for going in thrown_out if going.cause is not Cause.POLL_INTERVAL
    ]  # a member that missed its poll interval left, so it is among the leaves


def _certain(gone: list[Going], context: JudgementContext) -> list[Going]:
    """Return those that a client may be blamed for.

    A cause is unknown because lines are missing, except if only records are read. Then the member may have come back
    as another one, or have been counted twice: it explains a rebalance, but is no reason to page.
    """
    return [going for going in gone if context.by_records or going.cause is not Cause.UNKNOWN]


def _is_storm(replica: GroupReplica, gone: list[Going], moved: int, rebalances: int) -> bool:
    """Tell whether it is a storm, and not a deploy, a start or growth. ``moved``: how many members came or went."""
    thrown_out = sum(1 for going in gone if going.cause not in MAY_BE_LEAVES)
    if thrown_out > 1 and replica.protocol != STREAMS_PROTOCOL:
        return True
    here = Counter(who(member) for member in replica.members.values())
    if any(times > max(1, here[name]) for name, times in Counter(going.who for going in gone).items()):
        return True
    return rebalances > REBALANCES_EACH * moved + 1


def _finding(
    replica: GroupReplica, context: JudgementContext, recent: list[int], gone: list[Going], *, storm: bool
) -> Finding:
    thresholds = context.thresholds
    causes = Counter(going.cause.value for going in gone)
    behind = Counter(going.who for going in gone).most_common(MAX_NAMED)
    gone_by = ", ".join(f"{times} {cause}" for cause, times in causes.most_common()) or "no member left"
    what = "a rolling deploy"
    if storm and behind:
        what = f"mostly because of {named(behind[0][0])}, {counted(behind[0][1], 'time')}"
    elif storm:
        what = "no member came or went to explain it: members rejoin by themselves"
    return Finding(
        rule=REBALANCE_STORM.id,
        severity=REBALANCE_STORM.worst if storm else REBALANCE_STORM.severity,
        opened_ms=recent[0],
        at_ms=recent[-1],
        evidence=Evidence.OBSERVED,
        cause=Cause(causes.most_common(1)[0][0]) if causes else Cause.UNKNOWN,
        summary=f"{replica.group} rebalanced {counted(len(recent), 'time')} in"
        f" {seconds(thresholds.storm_window_ms)} ({gone_by}); {what}",
        detail={
            "rebalances": len(recent),
            "causes": dict(causes),
            "behind": [[named(name), times] for name, times in behind],
            "rolling_deploy": not storm,
        },
        **about_group(replica, context),
    )


def named(name: str) -> str:
    """Return a client's lasting name (``client.who``) as text for people."""
    client, _, host = name.partition("\n")
    return f"{client or 'unknown client'} on {host}" if host else client

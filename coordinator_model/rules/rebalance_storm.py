"""``rebalance-storm``: a group that rebalances again and again, who is behind it, and whether it is only a deploy.

A rolling deploy looks like a storm from afar: every member leaves once and comes back once. It is told
apart by *who* goes: the instance id, else the client on its host. Nobody may go twice (more often than it has members
there now), no two may be thrown out (Kafka Streams excepted, which never leaves), and every rebalance must have
a coming or going that explains it. Nothing is counted before the first has gone: so a group starts and grows.
"""

from collections import Counter
from typing import NamedTuple

from coordinator_model.client import who
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity

REBALANCE_STORM = Rule(
    id="rebalance-storm",
    severities=(Severity.INFO, Severity.PAGE),
    evidence="observed",
    true_when=(
        "a group rebalanced `storm_rebalances` times within `storm_window_ms`, counted from the first member that left;"
        " info for a rolling deploy"
    ),
    clears="`recovered` (the window holds fewer)",
    thresholds=("storm_rebalances", "storm_window_ms"),
)

STREAMS_PROTOCOL = "stream"
MAY_BE_LEAVES = (Cause.LEFT, Cause.STATIC_LEFT, Cause.ADMIN, Cause.UNKNOWN)
"""Of an unknown cause are those of which only records tell."""
REBALANCES_EACH = 2
"""A coming or going costs up to two rebalances: cooperative assignors take one to revoke and one to assign."""
MAX_NAMED = 8


class Going(NamedTuple):
    """A member that went: ``who`` it is across restarts."""

    who: str
    cause: Cause
    at_ms: int


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge the rebalances of the ``storm_window_ms`` before the last one, as long as that window holds enough."""
    thresholds = context.thresholds
    least = thresholds.storm_rebalances
    if len(replica.rebalances) < least:
        return NOTHING
    since_ms = replica.rebalances[-1].at_ms - thresholds.storm_window_ms
    over_ms = replica.rebalances[-least].at_ms + thresholds.storm_window_ms
    gone = goings(replica, since_ms)
    first_ms = min((going.at_ms for going in gone), default=since_ms)
    recent = [one.at_ms for one in replica.rebalances if one.at_ms > since_ms and one.at_ms >= first_ms]
    if len(recent) < least or context.progress_ms >= over_ms:
        return NOTHING
    came = sum(1 for member in replica.members.values() if (member.joined_ms or 0) > since_ms)
    wild = is_wild(replica, gone, came, len(recent))
    if not (gone or wild):
        return NOTHING
    return Verdict(_finding(replica, context, recent, gone, wild=wild), over_ms)


def goings(replica: GroupReplica, since_ms: int) -> list[Going]:
    """Return who went since then, by its own word or thrown out."""
    said = [
        Going(who(leave.member), leave.cause, leave.applied_ms)
        for leave in replica.leaves
        if leave.applied_ms > since_ms and leave.cause is not Cause.REPLACED
    ]
    thrown_out = [Going(v.client, Cause(v.cause), v.at_ms) for v in replica.violations if v.at_ms > since_ms]
    return said + [going for going in thrown_out if going.cause is not Cause.POLL_INTERVAL]  # those said so


def is_wild(replica: GroupReplica, gone: list[Going], came: int, rebalances: int) -> bool:
    """Tell a storm from a deploy, a start or a growth."""
    thrown_out = sum(1 for going in gone if going.cause not in MAY_BE_LEAVES)
    if thrown_out > 1 and replica.protocol != STREAMS_PROTOCOL:
        return True
    here = Counter(who(member) for member in replica.members.values())
    if any(times > max(1, here[name]) for name, times in Counter(going.who for going in gone).items()):
        return True
    return rebalances > REBALANCES_EACH * (len(gone) + came) + 1


def _finding(
    replica: GroupReplica, context: JudgementContext, recent: list[int], gone: list[Going], *, wild: bool
) -> Finding:
    thresholds = context.thresholds
    causes = Counter(going.cause.value for going in gone)
    behind = Counter(going.who for going in gone).most_common(MAX_NAMED)
    counted = ", ".join(f"{times} {cause}" for cause, times in causes.most_common()) or "nobody went"
    what = f"most behind it: {named(behind[0][0])}, {behind[0][1]} times" if behind and wild else "a rolling deploy"
    if wild and not behind:
        what = "no member came or went to explain it: members rejoin by themselves"
    return Finding(
        rule=REBALANCE_STORM.id,
        severity=REBALANCE_STORM.worst if wild else REBALANCE_STORM.severity,
        opened_ms=recent[0],
        at_ms=recent[-1],
        evidence=Evidence.OBSERVED,
        cause=Cause(causes.most_common(1)[0][0]) if causes else Cause.UNKNOWN,
        summary=f"{replica.group} rebalanced {len(recent)} times in {thresholds.storm_window_ms // 1000} s"
        f" ({counted}); {what}",
        detail={
            "rebalances": len(recent),
            "causes": dict(causes),
            "behind": [[named(name), times] for name, times in behind],
            "rolling_deploy": not wild,
        },
        **about_group(replica, context),
    )


def named(name: str) -> str:
    """Name for people whom ``returns.who`` names."""
    client, _, host = name.partition("\n")
    return f"{client or 'unknown client'} on {host}" if host else client

"""``partition-owned-twice``: two members of a stable group own the same partition, so its records are read twice.

This may happen for a moment during a rebalance, so it is reported only once it has lasted for a rebalance timeout. A
partition that a KIP-848 member has been told to revoke does not count. Partitions of share groups have many owners by
design, and streams groups are assigned tasks, so neither is judged.
"""

from collections import defaultdict

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.rules.findings import MAX_PARTITIONS_NAMED, NOTHING, Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.rules.settled import quiet_since_ms, settled_ms
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.wording import counted

PARTITION_OWNED_TWICE = Rule(
    id="partition-owned-twice",
    severities=(Severity.WARN,),
    evidence="observed",
    true_when=(
        "two members of a stable group have owned the same partition for their rebalance timeout, and the group has"
        " been stable for `settled_after_ms`. Share and streams groups are not judged"
    ),
    clears="`recovered` (every partition has one owner, or the group is not stable)",
    thresholds=("settled_after_ms",),
)

Owners = dict[tuple[str, int], list[Member]]
"""By topic and partition: its owners."""


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge a settled group's assignment. Shared partitions are a warning after their owners' rebalance timeout."""
    since_ms, look_ms = quiet_since_ms(replica, context), settled_ms(replica, context)
    if since_ms is None or look_ms is None or context.progress_ms < look_ms:
        return NOTHING  # it is judged once it has settled
    shared = owned_twice(replica)
    if not shared:
        return NOTHING
    members = [member for owners in shared.values() for member in owners]
    warn_ms = max(look_ms, since_ms + max(member.rebalance_timeout_ms or 0 for member in members))
    if context.progress_ms < warn_ms:
        return Verdict(None, warn_ms)
    return Verdict(_finding(replica, context, shared, since_ms, warn_ms), None)


def owned_twice(replica: GroupReplica) -> Owners:
    """Return the partitions that more than one member owns and has not been told to revoke, sorted."""
    owners: Owners = defaultdict(list)
    for member in replica.members.values():
        for topic, partitions in member.assignment.items():
            for partition in set(partitions).difference(member.revoking.get(topic, ())):
                owners[topic, partition].append(member)
    return {partition: owners[partition] for partition in sorted(owners) if len(owners[partition]) > 1}


def _finding(replica: GroupReplica, context: JudgementContext, shared: Owners, since_ms: int, at_ms: int) -> Finding:
    listed = [(f"{topic}-{number}", [m.member_id for m in owners]) for (topic, number), owners in shared.items()]
    told = ", ".join(f"{name} ({' and '.join(ids[:3])})" for name, ids in listed[:3])
    return Finding(
        rule=PARTITION_OWNED_TWICE.id,
        severity=PARTITION_OWNED_TWICE.severity,
        opened_ms=since_ms,
        at_ms=at_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{replica.group} is stable, and more than one member owns {counted(len(shared), 'partition')}: {told}",
        partitions=list(shared)[:MAX_PARTITIONS_NAMED],
        detail={"owned_twice": len(shared), "owners": dict(listed[:MAX_PARTITIONS_NAMED])},
        **about_group(replica, context),
    )

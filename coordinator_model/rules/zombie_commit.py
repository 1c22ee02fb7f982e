"""``zombie-commit``: the refused commits of a former member show that it went on processing."""

from collections.abc import Iterator

from coordinator_model.errors import Error
from coordinator_model.membership import partitions_of
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.notes import Zombie
from coordinator_model.rules.findings import Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.wording import counted

ZOMBIE_COMMIT = Rule(
    id="zombie-commit",
    severities=(Severity.INFO, Severity.WARN),
    evidence="observed: the answers to its commits, if the log4j2 file has `--refused-commits`",
    true_when=(
        "a former member went on processing: its commit was refused with UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID, or"
        " with ILLEGAL_GENERATION for partitions that another member has. It is a warning if the client was seen as a"
        " member, and info if the commit was part of a transaction, which is void"
    ),
    clears="`recovered` (no commit of it was refused for `resolve_after_ms`)",
    thresholds=("resolve_after_ms",),
)

MAX_OWNERS = 8
"""How many of the partitions' current owners are named."""


def judge(replica: GroupReplica, context: JudgementContext) -> Iterator[Verdict]:
    """Judge the former members whose commits were refused, until no commit has been refused for long enough."""
    for key, zombie in replica.zombies.items():
        over_ms = zombie.last_ms + context.thresholds.resolve_after_ms
        if context.progress_ms < over_ms:
            yield Verdict(_finding(replica, context, key, zombie), over_ms)


def _finding(replica: GroupReplica, context: JudgementContext, key: str, zombie: Zombie) -> Finding:
    name = Error(zombie.error).name
    unnamed = zombie.client_id is None
    client = f"{zombie.client_id or 'unknown client'} on {zombie.client_host}"
    subject = zombie.instance_id or zombie.member_id or ("other clients" if unnamed else client)
    who = "other clients" if unnamed else f"{zombie.instance_id or zombie.member_id or 'a former member'} ({client})"
    about = about_group(replica, context)
    about |= {"subject": subject, "incarnation": f"{about['incarnation']}/{key}"}  # two clients may have one name
    number = len(zombie.partitions) + zombie.left_out
    number_of = f"{'at least ' if zombie.left_out else ''}{counted(number, 'partition')}"
    what = f"commit of {number_of} was refused with {name} ({zombie.error})"
    means = "its transaction is void" if zombie.transactional else "what it has processed is processed again"
    return Finding(
        rule=ZOMBIE_COMMIT.id,
        severity=ZOMBIE_COMMIT.worst if zombie.known and not zombie.transactional else ZOMBIE_COMMIT.severity,
        opened_ms=zombie.first_ms,
        at_ms=zombie.first_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{who} went on as a member of {replica.group}: its {what}; {means}",
        member_id=zombie.member_id,
        instance_id=zombie.instance_id,
        client_id=zombie.client_id,
        client_host=zombie.client_host,
        partitions=list(zombie.partitions),
        detail={
            "error": zombie.error,
            "error_name": name,
            "count": zombie.commits,
            "last_ms": zombie.last_ms,
            "transactional": zombie.transactional,
            "was_seen_as_a_member": zombie.known,
            "partitions_left_out": zombie.left_out,
            "read_now_by": _owners(replica, set(zombie.partitions)),
        },
        **about,
    )


def _owners(replica: GroupReplica, partitions: set[tuple[str, int]]) -> list[str]:
    """Return the members that have any of the partitions now."""
    return sorted(
        member.member_id
        for member in replica.members.values()
        if not partitions.isdisjoint(partitions_of(member.assignment))
    )[:MAX_OWNERS]

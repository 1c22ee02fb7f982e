"""Findings: what is true now, one ``Finding`` for each rule and subject, with its evidence."""

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from coordinator_model.membership import partitions_of
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.states import Cause, Evidence, Severity

MAX_PARTITIONS_NAMED = 64
"""How many partitions a finding names; the rest are counted in ``detail``."""


@dataclass(slots=True)
class Finding:
    """A finding. ``at_ms`` is the instant of the event that showed it, or deadline + grace if a timer did.

    ``opened_ms`` is the instant at which the trouble began, not when it was detected. Together with rule, group,
    subject and incarnation it makes the incident's id. ``closed_reason``: why the finding ended, at ``closed_ms``.
    """

    rule: str
    severity: Severity
    group: str
    subject: str
    opened_ms: int
    at_ms: int
    evidence: Evidence
    cause: Cause
    summary: str
    broker: str = ""
    generation: int = -1
    incarnation: str = ""
    """Distinguishes a group from a deleted one with the same id, and a static member from the one that it replaced."""
    member_id: str | None = None
    instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    connection: str | None = None
    client_software: str | None = None
    """Name and version of the client library, if the client sends them."""
    deadline_ms: int | None = None
    partitions: list[tuple[str, int]] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)
    closed_reason: str | None = None
    closed_ms: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as values for JSON."""
        result = {f.name: getattr(self, f.name) for f in fields(self)}
        result["partitions"] = [list(pair) for pair in self.partitions]
        return result


class Verdict(NamedTuple):
    """What a rule says now: a finding, and when to judge again (None: at the next event).

    ``proof_ms``: the verdict waits for another heartbeat of the shard that arrived at this instant or later.
    """

    finding: Finding | None
    due_ms: int | None
    proof_ms: int | None = None


NOTHING = Verdict(None, None)


def about_group(replica: GroupReplica, context: JudgementContext) -> dict[str, Any]:
    """Return the fields of a finding that name a group as a whole."""
    return {
        "group": replica.group,
        "subject": replica.group,
        "broker": context.broker,
        "generation": replica.generation,
        "incarnation": str(replica.incarnation),
    }


def about_member(replica: GroupReplica, member: Member, context: JudgementContext) -> dict[str, Any]:
    """Return the fields of a finding that name a member of a group."""
    return {
        **about_group(replica, context),
        "incarnation": replica.life_of(member),
        "subject": member.subject,
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "connection": member.connection,
        "client_software": member.software,
        "partitions": sorted(partitions_of(member.assignment))[:MAX_PARTITIONS_NAMED],
    }


def name_of(member: Member) -> str:
    """Return a member's name for people."""
    host = f" on {member.client_host}" if member.client_host else ""
    instance = f", instance {member.instance_id}" if member.instance_id else ""
    return f"{member.member_id} (client {member.client_id or 'unknown'}{host}{instance})"

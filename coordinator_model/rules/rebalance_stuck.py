"""``rebalance-stuck``: a rebalance takes too long. The finding names the members that it waits for.

In the join phase of a classic group no member reads, and the coordinator waits for the slowest member, up to the
longest rebalance timeout. A member that has rejoined sends no heartbeats until its JoinGroup is answered. So a member
that still sends heartbeats has not rejoined: it is busy between two polls. In the sync phase all wait for the leader's
assignment. A KIP-848 group waits for the members that have not revoked the partitions that they were told to revoke.
"""

from itertools import chain
from typing import NamedTuple

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.modern import is_reconciled
from coordinator_model.replica.session_timer import latest_session
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_group, name_of
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, GroupState, GroupType, Severity
from coordinator_model.wording import seconds

REBALANCE_STUCK = Rule(
    id="rebalance-stuck",
    severities=(Severity.PAGE,),
    evidence="inferred: a member that still sends heartbeats has not rejoined",
    true_when=(
        "a join, sync or reconciliation phase has lasted longer than `rebalance_slow_ms`, or than 80 % of the group's"
        " rebalance timeout if that is less"
    ),
    clears="`recovered` (the phase is over)",
    thresholds=("rebalance_slow_ms",),
)

SHARE_OF_TIMEOUT = 0.8
JOIN = "join"
MAX_NAMED = 8
HEARTBEATS_MISSED = 2
"""A member that is silent for longer than this many of its heartbeat intervals has stopped sending heartbeats."""


class Phase(NamedTuple):
    """The part of a rebalance that a group is in."""

    name: str
    since_ms: int
    waited_for: list[Member]


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge the rebalance in progress at ``context.progress_ms``.

    While the coordinator is silent, nobody knows whether the phase is over. So a finding that was reported goes on, and
    none begins: the time is counted from the end of the silence. None begins either if lines are missing that would
    show the end of the phase, or if lines and records are not dated by one clock: the phase begins with a record.
    """
    phase, is_reported = phase_of(replica, context), REBALANCE_STUCK.id in context.reported
    if phase is None:
        return NOTHING
    unknown = context.waiting or context.stalled or context.dates_are_far_apart or not _is_seen(replica, phase, context)
    if unknown and not is_reported:
        return NOTHING
    slow_ms, resets = _slow_after_ms(replica, phase, context), () if is_reported else context.timer_resets
    due_ms = max(phase.since_ms, context.live_from_ms, *(r.high_ms or 0 for r in resets)) + slow_ms
    if context.progress_ms < due_ms:
        return Verdict(None, due_ms)
    names = [name_of(member) for member in phase.waited_for]
    whom = ", ".join(names[:MAX_NAMED]) or "members unknown"
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    finding = Finding(
        rule=REBALANCE_STUCK.id,
        severity=REBALANCE_STUCK.severity,
        opened_ms=phase.since_ms,
        at_ms=due_ms,
        evidence=Evidence.INFERRED,
        cause=Cause.UNKNOWN,
        summary=f"the {phase.name} phase of {replica.group} has lasted longer than {seconds(slow_ms)}:"
        f" it waits for {whom}{more}",
        detail={
            "phase": phase.name,
            "since_ms": phase.since_ms,
            "waiting_for": [member.member_id for member in phase.waited_for[:MAX_NAMED]],
            "waiting_for_total": len(names),
        },
        **about_group(replica, context),
    )
    return Verdict(finding, None)


def _is_seen(replica: GroupReplica, phase: Phase, context: JudgementContext) -> bool:
    """Tell whether the end of the phase would be seen. Records alone show it only for groups that write each step.

    A join phase ends when it waits for nobody (``ClassicGroup.hasAllMembersJoined``). If one seems to go on
    nevertheless, the line that showed its end is missing.
    """
    if context.by_records:
        return replica.type is not GroupType.CLASSIC
    if phase.name == JOIN and not phase.waited_for and not _waits_for_newcomer(replica, context):
        return False
    return bool(context.broker)


def _waits_for_newcomer(replica: GroupReplica, context: JudgementContext) -> bool:
    """Tell whether the join phase waits for a newcomer that was given a member id (79) and has not joined with it."""
    return any(context.progress_ms < pending.until_ms for pending in replica.pending.values())


def _slow_after_ms(replica: GroupReplica, phase: Phase, context: JudgementContext) -> int:
    """Return how long a phase may last: ``rebalance_slow_ms``, or less if the rebalance timeout is short.

    A member that left in the phase still counts: its timer was set when it began
    (``GroupMetadataManager.prepareRebalance``).
    """
    left = (leave.member for leave in replica.leaves if leave.applied_ms > phase.since_ms)
    timeouts_ms = [m.rebalance_timeout_ms for m in chain(replica.members.values(), left) if m.rebalance_timeout_ms]
    slow_ms = context.thresholds.rebalance_slow_ms
    return min(slow_ms, int(SHARE_OF_TIMEOUT * max(timeouts_ms))) if timeouts_ms else slow_ms


def phase_of(replica: GroupReplica, context: JudgementContext) -> Phase | None:
    """Return the phase of the rebalance in progress; None: the group does not rebalance."""
    members = list(replica.members.values())
    match replica.state:
        case GroupState.PREPARING_REBALANCE:
            return Phase(JOIN, replica.state_since_ms, not_rejoined(replica, context))
        case GroupState.COMPLETING_REBALANCE:
            leader = replica.members.get(replica.leader or "")
            syncing = [leader] if leader is not None else [m for m in members if m.awaiting_sync]
            return Phase("sync", replica.state_since_ms, syncing)
        case GroupState.RECONCILING:
            present = [m for m in members if m.away_ms is None]  # nobody waits for a static member that is away
            behind = [m for m in present if m.unrevoked]
            behind = behind or [m for m in present if not is_reconciled(m, replica.assignment_epoch)]
            since_ms = max(replica.state_since_ms, replica.generation_since_ms)
            return Phase("reconciliation", since_ms, behind) if behind else None
    return None


def not_rejoined(replica: GroupReplica, context: JudgementContext) -> list[Member]:
    """Return the members that seem not to have rejoined: those that still send heartbeats, or else the silent ones.

    A silent member whose session would have ended has rejoined, or is gone: the phase does not wait for it.
    """
    beating, silent = [], []
    for member in replica.members.values():
        last_ms, previous_ms = member.last_heartbeat_ms, member.previous_heartbeat_ms
        if last_ms is None or last_ms < replica.state_since_ms:
            session = latest_session(member, context)
            if session is None or context.progress_ms < session.end_ms + context.thresholds.grace_ms:
                silent.append(member)
        elif previous_ms is not None and context.progress_ms - last_ms <= HEARTBEATS_MISSED * (last_ms - previous_ms):
            beating.append(member)
    return beating or silent

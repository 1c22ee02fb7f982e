"""The view of a group, for people and programs: the group object of the API and a few more fields."""

from typing import Any

from coordinator_model.replica import poll_times
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.rebalances import AT_REST
from coordinator_model.replica.reconciliation import group_fields, member_fields, shown_assignment, waits
from coordinator_model.replica.session_timer import (
    Session,
    is_covered,
    latest_session,
    session_timeout_ms,
    unseen_from_ms,
)
from coordinator_model.rules.rebalance_stuck import MAX_NAMED, phase_of
from coordinator_model.shard.client_phase import client_phase
from coordinator_model.shard.heartbeat_update import headroom
from coordinator_model.shard.sources import counted, sources_of
from coordinator_model.states import Evidence, GroupState, GroupType

MAX_MEMBERS_SHOWN = 5_000


def view(
    replica: GroupReplica, context: JudgementContext, cluster: str, partition: int, violated: set[str]
) -> dict[str, Any]:
    """Return the group object. ``violated``: the subjects of open findings about a broken timeout."""
    members = sorted(replica.members.values(), key=lambda m: m.member_id)
    shown, left_out = _shown_and_left_out(members, violated)
    sources = {member.member_id: sources_of(replica, member, context) for member in members}
    more = member_fields(replica, waits(replica))
    return {
        "kind": "group",
        "cluster": cluster,
        "group": replica.group,
        "type": replica.type.value,
        "state": replica.state.value,
        "state_evidence": _state_evidence(replica, context).value,
        "generation": replica.generation,
        "protocol_type": replica.protocol_type,
        "protocol": replica.protocol,
        "leader": replica.leader,
        "partition": partition,
        "members": [
            _member(replica, m, context, sources[m.member_id], violated) | more.get(m.member_id, {}) for m in shown
        ],
        "members_total": len(members),
        "unknown_left_out": sum(
            _liveness(replica, m, latest_session(m, context), context, violated) == "unknown" for m in left_out
        ),
        "sources": counted(sources.values()),
        "state_since_ms": replica.state_since_ms,
        "stable_since_ms": replica.stable_since_ms,
        "rebalance": _rebalance(replica, context),
        "rebalanced": _rebalanced(replica),
        "incarnation": replica.incarnation,
        "coordinator": context.broker,
        "announced_by": replica.announced_by,
        "join_deadline_ms": replica.join_deadline_ms,
        "pending_members": sorted(replica.pending),
        "unexpected": replica.unexpected,
        **group_fields(replica),
    }


def _shown_and_left_out(members: list[Member], violated: set[str]) -> tuple[list[Member], list[Member]]:
    """Split the members into those shown and those left out. If there are too many, keep those that broke a timeout."""
    if len(members) <= MAX_MEMBERS_SHOWN:
        return members, []
    ordered = sorted(members, key=lambda m: m.subject not in violated)
    return sorted(ordered[:MAX_MEMBERS_SHOWN], key=lambda m: m.member_id), ordered[MAX_MEMBERS_SHOWN:]


def _state_evidence(replica: GroupReplica, context: JudgementContext) -> Evidence:
    """Return how the state is known. If only records are read, a classic group may be rebalancing without a sign."""
    may_rebalance = replica.type is GroupType.CLASSIC and replica.state in AT_REST
    return Evidence.INFERRED if context.by_records and may_rebalance else replica.state_evidence


def _rebalance(replica: GroupReplica, context: JudgementContext) -> dict[str, Any] | None:
    """Return the rebalance phase of a group and the members that it waits for, as `rebalance-stuck` reports them."""
    phase = phase_of(replica, context)
    if phase is None:
        return None
    return {
        "phase": phase.name,
        "since_ms": phase.since_ms,
        "waiting_for": [member.member_id for member in phase.waited_for[:MAX_NAMED]],
        "waiting_for_total": len(phase.waited_for),
    }


def _rebalanced(replica: GroupReplica) -> dict[str, int | None] | None:
    """Return when the rebalance of the current generation began, and when all members had joined; None: not seen.

    Records alone do not show when a classic group's join phase began: it seems to begin when it ends.
    """
    joined_ms = replica.generation_since_ms
    if replica.state not in AT_REST or replica.type is GroupType.SIMPLE:
        return None
    if replica.type is not GroupType.CLASSIC:
        return {"began_ms": joined_ms, "joined_ms": None}  # the epoch began then, and members join one by one
    began_ms = replica.phase.started_ms
    return None if began_ms is None or began_ms >= joined_ms else {"began_ms": began_ms, "joined_ms": joined_ms}


def _member(
    replica: GroupReplica, member: Member, context: JudgementContext, sources: list[str], violated: set[str]
) -> dict[str, Any]:
    session = latest_session(member, context)
    left = None
    if session is not None and session.timeout_ms and context.progress_ms and not context.by_records:
        left = headroom(context.progress_ms, *session)
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "liveness": _liveness(replica, member, session, context, violated),
        "sources": sources,
        "session_timeout_ms": session_timeout_ms(member, context),
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "last_heartbeat_ms": member.last_heartbeat_ms,
        "assignment": shown_assignment(member.assignment),
        "partitions_left_out": member.partitions_left_out,
        "tasks": {role: dict(sorted(held.items())) for role, held in member.tasks.items()},
        "topics": member.topics,
        "generation": member.generation,
        "joined_ms": member.joined_ms,
        "connection": member.connection,
        "client_software": member.software,
        "client_phase": client_phase(replica, member, context),
        "rejoin_reason": member.rejoin_reason,
        "heartbeat_interval_ms": member.heartbeat_interval_ms,
        "listener": member.listener,
        "principal": member.principal,
        "heartbeat_headroom": left,
        **_polls(member),
    }


def _liveness(
    replica: GroupReplica, member: Member, session: Session | None, context: JudgementContext, violated: set[str]
) -> str:
    unseen_ms = unseen_from_ms(member, session, context)
    unseen = replica.state is GroupState.STABLE and unseen_ms is not None and context.progress_ms >= unseen_ms
    covered = is_covered(member, context) and not (context.waiting or context.stalled or context.by_records or unseen)
    return "violated" if member.subject in violated else "alive" if covered else "unknown"


def _polls(member: Member) -> dict[str, Any]:
    """Return what the member's client has reported about its polls and about itself."""
    return {
        "max_poll_interval_ms": member.max_poll_interval_ms or member.rebalance_timeout_ms,
        "poll_age_ms": member.poll_age_ms,
        "poll_reported_ms": member.poll_reported_ms,
        "poll_headroom": _poll_headroom(member),
        "polls": poll_times.detail(member),
        "pushed": member.pushed,
        "pushed_ms": member.pushed_ms,
    }


def _poll_headroom(member: Member) -> float | None:
    """Return which share of the poll interval was left at the client's last report. Only the client knows its polls."""
    if member.poll_age_ms is None or not member.max_poll_interval_ms:
        return None
    return headroom(member.poll_age_ms, 0, member.max_poll_interval_ms)

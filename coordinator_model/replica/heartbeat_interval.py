"""How often a member sends heartbeats: fewer than three in a session timeout leave no room for a lost one."""

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member

HEARTBEATS_A_SESSION = 3
"""``heartbeat.interval.ms`` should be at most a third of the session timeout: two may be lost."""


def measure_again(replica: GroupReplica, context: JudgementContext) -> bool:
    """Correct heartbeat intervals that seem too long, if the last two heartbeats prove them wrong.

    A line may have been lost between the two heartbeats that were measured, or something delayed one. Return whether
    any interval was corrected.
    """
    measured = False
    for member in [m for m in replica.members.values() if not m.kip848 and is_slow(m, context)]:
        interval_ms = (member.last_heartbeat_ms or 0) - (member.previous_heartbeat_ms or 0)
        if member.previous_heartbeat_ms is not None and not _is_too_long(interval_ms, member, context):
            member.heartbeat_interval_ms, measured = interval_ms, True
    return measured


def is_slow(member: Member, context: JudgementContext) -> bool:
    """Tell whether a member sends too few heartbeats for its session timeout."""
    return bool(member.heartbeat_interval_ms) and _is_too_long(member.heartbeat_interval_ms or 0, member, context)


def _is_too_long(interval_ms: int, member: Member, context: JudgementContext) -> bool:
    timeout_ms = member.session_timeout_ms
    return bool(timeout_ms) and interval_ms - context.thresholds.grace_ms > (timeout_ms or 0) / HEARTBEATS_A_SESSION

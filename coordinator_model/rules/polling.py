"""``poll-at-risk`` and ``static-member-stuck``: what only a client's own report of its last poll can tell.

A dynamic member that oversleeps its poll leaves the group by itself. A static member does not: its heartbeats stop and
it keeps its partitions, unread, until its session ends (kafka-facts 4.6).
"""

from coordinator_model.replica.group import GroupReplica, Member
from coordinator_model.replica.session_timer import JudgementContext, latest_session
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_member, name_of
from coordinator_model.states import Cause, Evidence, Severity

POLL_AT_RISK = "poll-at-risk"
STATIC_MEMBER_STUCK = "static-member-stuck"


def at_risk(replica: GroupReplica, member: Member, context: JudgementContext) -> Verdict:
    """Judge a member's last report: true until a better one, or until its deadline is so old that one is missing."""
    age_ms, limit_ms, reported_ms = member.poll_age_ms, member.max_poll_interval_ms, member.poll_reported_ms
    if age_ms is None or not limit_ms or reported_ms is None or member.poll_deadline_ms is not None:
        return NOTHING
    risk_age_ms = int(limit_ms * context.thresholds.poll_at_risk_ratio)
    if age_ms < risk_age_ms or reported_ms < context.live_from_ms:
        return NOTHING
    deadline_ms = reported_ms + limit_ms - age_ms
    over_ms = deadline_ms + context.thresholds.hold_ms
    if context.progress_ms >= over_ms:
        return NOTHING
    finding = Finding(
        rule=POLL_AT_RISK,
        severity=Severity.INFO,
        opened_ms=deadline_ms - limit_ms + risk_age_ms,
        at_ms=reported_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{name_of(member)} last polled {age_ms} ms ago: max.poll.interval.ms is {limit_ms} ms",
        deadline_ms=deadline_ms,
        detail={"max_poll_interval_ms": limit_ms, "poll_age_ms": age_ms},
        **about_member(replica, member, context),
    )
    return Verdict(finding, over_ms)


def static_stuck(replica: GroupReplica, member: Member, context: JudgementContext) -> Finding | None:
    """Judge a static member whose client says that its poll is overdue: it holds partitions that nobody reads."""
    overdue_ms, reported_ms = member.poll_deadline_ms, member.poll_reported_ms
    if overdue_ms is None or reported_ms is None or overdue_ms < context.live_from_ms or member.instance_id is None:
        return None
    held = sum(len(partitions) for partitions in member.assignment.values())
    if not held:
        return None
    session = latest_session(member, context)
    left = "an unknown time" if session is None else f"{max(0, session.end_ms - reported_ms)} ms if it stays silent"
    return Finding(
        rule=STATIC_MEMBER_STUCK,
        severity=Severity.PAGE,
        opened_ms=overdue_ms,
        at_ms=reported_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.POLL_INTERVAL,
        summary=f"{name_of(member)} does not poll and keeps {held} partitions: its session ends in {left}",
        deadline_ms=None if session is None else session.end_ms,
        detail={"max_poll_interval_ms": member.max_poll_interval_ms, "poll_age_ms": member.poll_age_ms},
        **about_member(replica, member, context),
    )

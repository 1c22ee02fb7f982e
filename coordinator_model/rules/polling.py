"""``poll-at-risk`` and ``static-member-stuck``, which only a client's own reports about its polls can show.

A dynamic member that does not poll in time leaves the group by itself. A static member does not leave: its heartbeats
stop, and it keeps its partitions, which nobody reads, until its session ends.
"""

from coordinator_model.brokers.blindness import may_miss_lines
from coordinator_model.replica import poll_times
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.poll_end import poll_end, stopped_at_its_end
from coordinator_model.replica.session_timer import is_covered, latest_session
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_member, name_of
from coordinator_model.rules.rule import WARN_THEN_PAGE, Rule
from coordinator_model.states import Cause, Evidence, GroupState, Severity
from coordinator_model.wording import counted, seconds

POLL_AT_RISK = Rule(
    id="poll-at-risk",
    severities=(Severity.INFO,),
    evidence="observed: the client's own report or pushed metrics",
    true_when="a client reports that its last poll is at least `poll_at_risk_ratio` of `max.poll.interval.ms` ago",
    clears=(
        "`recovered` (it reports a younger poll, or reports nothing until 10 s after the deadline), `superseded` (the"
        " limit was exceeded)"
    ),
    thresholds=("poll_at_risk_ratio", "hold_ms"),
    superseded_by="poll-exceeded",
)

STATIC_MEMBER_STUCK = Rule(
    id="static-member-stuck",
    severities=WARN_THEN_PAGE,
    evidence=(
        "observed: the client's own report. Inferred if its pushed metrics show that its limit passed when its"
        " heartbeats stopped"
    ),
    true_when=(
        "a static member's poll is overdue, and the member still holds partitions. Nobody reads them until its session"
        " ends. It is a page if the client reports it, and a warning if it is inferred"
    ),
    clears="`recovered` (it polls again, or its session has ended)",
    thresholds=("grace_ms",),
    needs_heartbeats=True,
)


def at_risk(replica: GroupReplica, member: Member, context: JudgementContext) -> Verdict:
    """Judge a member's last report. The finding ends with a better report, or ``hold_ms`` after the deadline."""
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
        rule=POLL_AT_RISK.id,
        severity=POLL_AT_RISK.severity,
        opened_ms=deadline_ms - limit_ms + risk_age_ms,
        at_ms=reported_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{name_of(member)} last polled {seconds(age_ms)} ago, and max.poll.interval.ms is {seconds(limit_ms)}"
        + poll_times.advice(member, limit_ms),
        deadline_ms=deadline_ms,
        detail={"max_poll_interval_ms": limit_ms, "poll_age_ms": age_ms, **poll_times.detail(member)},
        **about_member(replica, member, context),
    )
    return Verdict(finding, over_ms)


def static_stuck(replica: GroupReplica, member: Member, context: JudgementContext) -> Verdict:
    """Judge a static member that does not poll and holds partitions, which nobody reads until its session ends.

    Either its client reports that, or its metrics showed when its limit would pass and its heartbeats stopped then.
    """
    held = sum(len(partitions) for partitions in member.assignment.values())
    if member.instance_id is None or not held:
        return NOTHING
    if member.poll_deadline_ms is not None:
        if member.poll_reported_ms is None or member.poll_deadline_ms < context.live_from_ms:
            return NOTHING
        observed = (member.poll_deadline_ms, member.poll_reported_ms, Evidence.OBSERVED)
        return Verdict(_stuck(replica, member, context, held, *observed), None)
    overdue_ms, told_ms = _silent_since_its_limit(replica, member, context)
    if overdue_ms is None or told_ms is None:
        return Verdict(None, told_ms)
    return Verdict(_stuck(replica, member, context, held, overdue_ms, told_ms, Evidence.INFERRED), None)


def _silent_since_its_limit(
    replica: GroupReplica, member: Member, context: JudgementContext
) -> tuple[int | None, int | None]:
    """Return when a member's limit passed, if its heartbeats stopped then, and when that is certain."""
    end, last_ms = poll_end(member), member.last_heartbeat_ms
    if end is None or last_ms is None or member.in_kip848_group or end.from_ms < context.live_from_ms:
        return None, None
    if replica.state is not GroupState.STABLE or not is_covered(member, context):
        return None, None
    beat_ms = member.heartbeat_interval_ms or (member.session_timeout_ms or 0) // 3
    silent_ms = max(end.until_ms, last_ms) + 2 * beat_ms + context.thresholds.grace_ms
    if context.progress_ms < silent_ms:
        return None, silent_ms
    unseen = context.waiting or context.stalled or context.by_records or context.hole_is_open
    if unseen or may_miss_lines(context.blind, last_ms, silent_ms) or not stopped_at_its_end(member, end):
        return None, None
    return end.until_ms, silent_ms


def _stuck(
    replica: GroupReplica,
    member: Member,
    context: JudgementContext,
    held: int,
    overdue_ms: int,
    told_ms: int,
    evidence: Evidence,
) -> Finding:
    session = latest_session(member, context)
    left = "an unknown time" if session is None else f"{seconds(max(0, session.end_ms - told_ms))} if it stays silent"
    return Finding(
        rule=STATIC_MEMBER_STUCK.id,
        severity=STATIC_MEMBER_STUCK.worst if evidence is Evidence.OBSERVED else STATIC_MEMBER_STUCK.severity,
        opened_ms=overdue_ms,
        at_ms=told_ms,
        evidence=evidence,
        cause=Cause.POLL_INTERVAL,
        summary=f"{name_of(member)} does not poll and keeps {counted(held, 'partition')}: its session ends in {left}"
        + poll_times.advice(member, member.max_poll_interval_ms),
        deadline_ms=None if session is None else session.end_ms,
        detail={
            "max_poll_interval_ms": member.max_poll_interval_ms or member.rebalance_timeout_ms,
            "poll_age_ms": member.poll_age_ms,
            **poll_times.detail(member),
        },
        **about_member(replica, member, context),
    )

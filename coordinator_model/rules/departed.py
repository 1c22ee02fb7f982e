"""A member was removed: ``session-expired``, ``rebalance-timeout``, ``poll-exceeded`` and ``member-removed``.

One dead pod is a warning. It becomes a page if its partitions stay unowned for ``page_after_ms``, if the group is
empty, or if the same client fails ``recurrences_to_page`` times. Sessions lost through a coordinator's pause or move
make one page together (``coordinator-paused``), not one page per member.
"""

from coordinator_model import states
from coordinator_model.brokers.blindness import may_miss_lines
from coordinator_model.client import who
from coordinator_model.membership import Partition
from coordinator_model.replica import poll_times
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.reconciliation import KINDS
from coordinator_model.replica.refusals import refused_as_member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.returns import beside
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_member, name_of
from coordinator_model.rules.rule import WARN_THEN_PAGE, Rule
from coordinator_model.rules.streams import STREAMS_SEVERITY, is_streams
from coordinator_model.states import Cause, Evidence, GroupState, Severity
from coordinator_model.wording import seconds

MEMBER_CLEARS = (
    "`rejoined` (the client is back: with the same instance id, on the same connection, or with the same client id and"
    " host if no other member has both), `recovered` (the group is stable without it, and each of its partitions has"
    " an owner, does not exist any more, or is of a topic that no member subscribes to any more), `refuted` (the"
    " coordinator accepted the member again), `group-deleted`"
)
ESCALATION = ("page_after_ms", "recurrences_to_page", "recurrence_window_ms", "resolve_after_ms")
SESSION_EXPIRED = Rule(
    id=states.SESSION_EXPIRED,
    severities=WARN_THEN_PAGE,
    evidence=(
        "observed once the coordinator's records or answers no longer list the member; before that inferred from its"
        " silence"
    ),
    true_when="no heartbeat was accepted for the member's session timeout",
    clears=MEMBER_CLEARS,
    thresholds=("grace_ms", *ESCALATION),
    lasting=True,
    violation=True,
    needs_heartbeats=True,
)

REBALANCE_TIMEOUT = Rule(
    id=states.REBALANCE_TIMEOUT,
    severities=WARN_THEN_PAGE,
    evidence="observed",
    true_when="a member was dropped because it did not rejoin, sync or revoke within the rebalance timeout",
    clears=MEMBER_CLEARS,
    thresholds=("grace_ms", *ESCALATION),
    lasting=True,
    violation=True,
    needs_heartbeats=True,
)

POLL_EXCEEDED = Rule(
    id=states.POLL_EXCEEDED,
    severities=WARN_THEN_PAGE,
    evidence=(
        "observed if the client says so: by the reason in its LeaveGroup, a report or pushed metrics. Inferred if it"
        " left without a reason and one of these holds: it came back on the same connection, a poll interval or more"
        " after it had joined; it left when its limit had passed, and goes on pushing metrics that show no poll"
    ),
    true_when="a client did not poll within `max.poll.interval.ms`",
    clears=MEMBER_CLEARS,
    thresholds=ESCALATION,
    lasting=True,
    violation=True,
    needs_heartbeats=True,
)

MEMBER_REMOVED = Rule(
    id=states.MEMBER_REMOVED,
    severities=(Severity.INFO, Severity.WARN),
    evidence=(
        "inferred. The cause is unknown for one of these reasons: a line that shows it is missing, or may be; what was"
        " seen of the member fits no timeout; the coordinator had just moved, and nothing shows when sessions"
        " restarted; only records are read"
    ),
    true_when=(
        "a member was removed, and the cause is unknown: it may have been closed, or have broken a timeout. It becomes"
        " a warning once nobody has read its partitions for `page_after_ms`. If only records are read, it stays info."
        " It never pages"
    ),
    clears=(
        MEMBER_CLEARS + ", `superseded` (the coordinator's own log shows which timeout it was, or its client reported"
        " that its poll was overdue); if only records are read also `recovered` (the group has been empty for"
        " `resolve_after_ms`)"
    ),
    thresholds=("grace_ms", "page_after_ms", "resolve_after_ms"),
    lasting=True,
    unexplained=True,
)

RULES = {rule.id: rule for rule in (SESSION_EXPIRED, REBALANCE_TIMEOUT, POLL_EXCEEDED, MEMBER_REMOVED)}
SUMMARIES = {
    SESSION_EXPIRED.id: "{who} was removed: no heartbeat for its session timeout{session}{why}{refused}",
    REBALANCE_TIMEOUT.id: (
        "{who} was dropped: it did not rejoin, sync or revoke within the rebalance timeout{poll}{why}{refused}"
    ),
    POLL_EXCEEDED.id: "{who} left: it did not poll within max.poll.interval.ms{poll}{polls}",
    MEMBER_REMOVED.id: "{who} was removed, and nothing that was seen shows why",
}
UNSEEN_SUMMARY = "{who} is gone between generation {seen} and {after}, cause unknown: only records are read"


def judge(replica: GroupReplica, departure: Departure, context: JudgementContext) -> Verdict:
    """Judge one departure at ``context.progress_ms``. A finding with ``closed_reason`` is the departure's last."""
    if departure.rule is None:
        return Verdict(None, None)
    if context.progress_ms < departure.judge_after_ms or not departure.judged:
        # if time passes without a record, a removal stays unjudged: what is past is not due again
        past = context.by_records and departure.judge_after_ms <= context.progress_ms
        return Verdict(None, None if past else departure.judge_after_ms)
    severity, page_ms = _severity(replica, departure, context)
    finding = _finding(replica, departure, severity, context)
    if departure.refuted_ms is not None:
        finding.closed_reason, finding.closed_ms = "refuted", departure.refuted_ms
        return Verdict(finding, None)
    later_ms = [at_ms for at_ms in (page_ms, _explained_ms(departure, context)) if at_ms is not None]
    end = closing(replica, departure, context)
    if end is None:
        return Verdict(finding, min(later_ms, default=None))
    reason, end_ms = end
    if context.progress_ms < end_ms:
        return Verdict(finding, min([end_ms, *later_ms]))
    finding.closed_reason, finding.closed_ms = reason, end_ms
    return Verdict(finding, None)


def _explained_ms(departure: Departure, context: JudgementContext) -> int | None:
    """Return when to judge an unexplained removal again, because a move may explain it by then; None: not again."""
    at_ms = departure.answered_ms + context.thresholds.grace_ms
    return at_ms if departure.judge_again and at_ms > context.progress_ms else None


def closing(replica: GroupReplica, departure: Departure, context: JudgementContext) -> tuple[str, int] | None:
    """Return why and when the departure's incident ends, as far as is known now; None: it is not known."""
    if departure.returned_ms is not None and replica.type in KINDS:
        return "rejoined", max(
            departure.returned_ms, departure.removed_ms
        )  # these groups have no join phase: a client is a member as soon as it is accepted
    if departure.seen_generation is not None and replica.state is GroupState.EMPTY:  # no member is left
        return "recovered", max(replica.state_since_ms, departure.removed_ms) + context.thresholds.resolve_after_ms
    if replica.stable_since_ms is None:
        return None
    if departure.returned_ms is not None:
        return "rejoined", max(departure.returned_ms, replica.stable_since_ms, departure.removed_ms)
    if departure.member.member_id in replica.members or _unowned(replica, departure, context):
        return None
    since_ms = max(replica.stable_since_ms, departure.removed_ms)
    return "recovered", since_ms + context.thresholds.resolve_after_ms


def _severity(replica: GroupReplica, departure: Departure, context: JudgementContext) -> tuple[Severity, int | None]:
    """Return the severity now, and when it may rise. A Kafka Streams consumer that was closed looks like a dead one."""
    if departure.rule == SESSION_EXPIRED.id and is_streams(departure.member):
        return STREAMS_SEVERITY, None
    rule, thresholds = RULES[departure.rule or ""], context.thresholds
    page_ms = departure.removed_ms + thresholds.page_after_ms
    unowned = bool(_unowned(replica, departure, context)) and departure.returned_ms is None
    if departure.rule == MEMBER_REMOVED.id and departure.seen_generation is not None:
        return rule.severity, None  # only records are read, and every shutdown and every deploy looks like this
    if departure.rule == MEMBER_REMOVED.id:  # the client may just have been closed, so it never pages
        warns = unowned and context.progress_ms >= page_ms
        return (rule.worst, None) if warns else (rule.severity, page_ms if unowned else None)
    if departure.timer_reset_ms is None and _recurs(replica, departure, context):
        return rule.worst, None
    if departure.rule == POLL_EXCEEDED.id and departure.evidence is Evidence.INFERRED:
        return rule.severity, None  # a client that unsubscribed at its limit looks the same, so it does not page
    empty = replica.state is GroupState.EMPTY and not replica.members
    seen_ms = replica.state_since_ms - thresholds.grace_ms  # a record may show it before the lines of that time come
    if empty and context.progress_ms < seen_ms:
        return rule.severity, seen_ms
    if empty and _may_miss_how_it_emptied(replica, context):
        return rule.severity, None
    if (empty and departure.timer_reset_ms is None) or (unowned and context.progress_ms >= page_ms):
        return rule.worst, None
    return rule.severity, page_ms if unowned else None


def _may_miss_how_it_emptied(replica: GroupReplica, context: JudgementContext) -> bool:
    """Tell whether lines are missing from when the group became empty.

    Then its members may have been closed, after the incident was over.
    """
    return may_miss_lines(context.blind, replica.state_since_ms, replica.state_since_ms + 1)


def _unowned(replica: GroupReplica, departure: Departure, context: JudgementContext) -> list[Partition]:
    return replica.unowned(departure.member.assignment, context.topic_partitions)


def _recurs(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a client fails repeatedly. Clients with the same name share a count, so more failures are needed."""
    least = context.thresholds.recurrences_to_page * (1 + beside(replica, departure))
    return _recurrences(replica, departure, context) >= least


def _recurrences(replica: GroupReplica, departure: Departure, context: JudgementContext) -> int:
    name, since_ms = who(departure.member), departure.removed_ms - context.thresholds.recurrence_window_ms
    mine = [one.at_ms for one in replica.known_violations if one.client == name]
    return sum(1 for at_ms in mine if since_ms < at_ms <= departure.removed_ms)


def _finding(replica: GroupReplica, departure: Departure, severity: Severity, context: JudgementContext) -> Finding:
    member, rule = departure.member, departure.rule or ""
    refused = refused_as_member(replica, member)
    return Finding(
        rule=rule,
        severity=severity,
        opened_ms=departure.deadline_ms if departure.deadline_ms is not None else departure.removed_ms,
        at_ms=departure.removed_ms,
        evidence=departure.evidence,
        cause=departure.cause,
        summary=_summary_of(departure).format(
            who=name_of(member),
            session=_of(member.session_timeout_ms or context.consumer_session_timeout_ms),
            poll=_of(member.rebalance_timeout_ms),
            polls=poll_times.advice(member, member.rebalance_timeout_ms),
            why="; it did not poll" if departure.cause is Cause.POLL_INTERVAL else "",
            refused=f"; it was refused with {refused}" if refused else "",
            seen=departure.seen_generation,
            after=max(departure.generation, (departure.seen_generation or 0) + 1),
        ),
        deadline_ms=departure.deadline_ms,
        detail={
            "session_timeout_ms": member.session_timeout_ms,
            "max_poll_interval_ms": member.rebalance_timeout_ms,
            "last_heartbeat_ms": member.last_heartbeat_ms,
            "removed_ms": departure.removed_ms,
            "unowned": len(_unowned(replica, departure, context)),
            **_interval(departure),
            **(poll_times.detail(member) if rule == POLL_EXCEEDED.id else {}),
            **({"source": "coordinator-log"} if departure.from_log else {}),
        },
        **(about_member(replica, member, context) | {"broker": departure.broker, "generation": departure.generation}),
    )


def _summary_of(departure: Departure) -> str:
    unseen = departure.rule == MEMBER_REMOVED.id and departure.seen_generation is not None
    return UNSEEN_SUMMARY if unseen else SUMMARIES[departure.rule or ""]


def _interval(departure: Departure) -> dict[str, int | None]:
    """Return the interval in which the deadline is, if its instant is not known."""
    if departure.deadline_from_ms is None:
        return {}
    return {"deadline_from_ms": departure.deadline_from_ms, "deadline_until_ms": departure.deadline_until_ms}


def _of(duration_ms: int | None) -> str:
    return f" of {seconds(duration_ms)}" if duration_ms else ""


def judge_poll(replica: GroupReplica, member: Member, context: JudgementContext) -> Verdict:
    """Judge a member that is still in the group, by the poll age that its client reports."""
    if member.poll_deadline_ms is None or member.poll_deadline_ms < context.live_from_ms:
        return NOTHING
    finding = Finding(
        rule=POLL_EXCEEDED.id,
        severity=POLL_EXCEEDED.severity,
        opened_ms=member.poll_deadline_ms,
        at_ms=member.poll_told_ms or member.poll_deadline_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.POLL_INTERVAL,
        summary=f"{name_of(member)} has not polled within max.poll.interval.ms{_of(member.rebalance_timeout_ms)}"
        + poll_times.advice(member, member.rebalance_timeout_ms),
        deadline_ms=member.poll_deadline_ms,
        detail={"max_poll_interval_ms": member.rebalance_timeout_ms, **poll_times.detail(member)},
        **about_member(replica, member, context),
    )
    return Verdict(finding, None)

"""A client's pushed metrics: how long ago it polled, at least. They do not have the client's limit.

Sources: ``KafkaConsumerMetrics``, ``ClientTelemetryReporter`` and ``AbstractHeartbeatRequestManager`` (Kafka 4.3). A
Java client pushes whole seconds since its last poll *began*. So a poll may seem later than it was, but not earlier. A
poll age over the limit is no breach of a member that is still in: a long ``poll(Duration)`` may go on. A client that
does not poll leaves at its limit by itself. So a later push of a member that has left proves the breach: its last poll
was a whole interval before its leave. After ``unsubscribe()`` the last poll is less than that before the leave, though
its age goes on growing.
The limit is the rebalance timeout: clients send ``max.poll.interval.ms`` as that.
A client that pushes only whether it polled (librdkafka) is judged in ``idle_pushes``.
"""

from coordinator_model.events import MetricsExported, MetricsPushed
from coordinator_model.replica import idle_pushes, poll_times
from coordinator_model.replica.client_report import (
    dropped_overdue,
    is_of,
    known_as,
    left_overdue,
    removed_overdue,
    removed_unseen,
    removed_unseen_overdue,
)
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.states import REBALANCE_TIMEOUT, SESSION_EXPIRED, Cause

LATE_MS = 30_000
"""How much later than its limit a client may leave, for example because it finds no coordinator."""
Metrics = MetricsPushed | MetricsExported
TOLERANCE_MS = 2_000
"""How much later than it was a poll may seem: its age is in whole seconds, and the push takes time to reach the
broker."""


def is_believed(replica: GroupReplica, event: Metrics) -> bool:
    """Tell whether a push is of a client that is known under this member id, and may be true.

    A push whose last poll is earlier than one that was reported before is wrong: its unit is not seconds, or a clock
    was wrong.
    """
    if event.poll_age_ms is None:
        return any(is_of(event, member) for member in idle_pushes.known_by(replica, event))
    return any(
        is_of(event, member) and _polled_ms(event) >= _known_poll_ms(member) - TOLERANCE_MS
        for member in known_as(replica, event.member_id)
    )


def push(replica: GroupReplica, event: Metrics, context: JudgementContext) -> None:
    """Apply a push that is believed."""
    for known in idle_pushes.known_by(replica, event):
        if is_of(event, known):
            _note(known, event)
    if event.poll_age_ms is None:
        idle_pushes.push(replica, event, context)
        return
    member = replica.members.get(event.member_id)
    if member is not None:
        _of_member(member, event)
        return
    _of_one_removed(replica, event)
    _of_one_removed_unseen(replica, event, context)
    _of_one_that_left(replica, event, context)


def _note(member: Member, event: Metrics) -> None:
    member.pushed_ms = event.order_ms
    member.pushed = dict(event.shown)
    poll_times.pushed(member, event.poll_interval_ms)


def _of_member(member: Member, event: Metrics) -> None:
    if isinstance(event, MetricsPushed) and event.waited_ms:
        return  # its poll may be earlier than it seems: the next push would contradict it, and not be believed
    deadline_ms = _deadline_ms(event, member)
    if member.poll_deadline_ms is not None and _is_overdue_at(member.poll_deadline_ms, deadline_ms):
        return  # it is about the same poll, about which more is known
    member.poll_age_ms, member.poll_reported_ms = event.poll_age_ms, event.order_ms
    member.max_poll_interval_ms = member.rebalance_timeout_ms
    member.poll_deadline_ms = member.poll_told_ms = None
    if member.away_ms is not None and _is_overdue_at(member.away_ms, deadline_ms):
        member.poll_deadline_ms, member.poll_told_ms = min(deadline_ms or 0, member.away_ms), event.order_ms


def _of_one_removed(replica: GroupReplica, event: Metrics) -> None:
    for departure in replica.departures:
        member = departure.member
        deadline_ms = _deadline_ms(event, member)
        if member.member_id != event.member_id or deadline_ms is None:
            continue
        if departure.rule == SESSION_EXPIRED and _is_overdue_at(departure.removed_ms, deadline_ms):
            removed_overdue(departure, deadline_ms)
        elif departure.rule == REBALANCE_TIMEOUT and _is_overdue_at(event.order_ms, deadline_ms):
            dropped_overdue(departure, deadline_ms)


def _of_one_removed_unseen(replica: GroupReplica, event: Metrics, context: JudgementContext) -> None:
    for departure in removed_unseen(replica, event.member_id):
        deadline_ms = _deadline_ms(event, departure.member)
        if deadline_ms is not None and _left_at(departure.removed_ms, deadline_ms):
            deadline_ms = min(deadline_ms, departure.removed_ms)
            removed_unseen_overdue(replica, departure, deadline_ms, event.order_ms, context)


def _of_one_that_left(replica: GroupReplica, event: Metrics, context: JudgementContext) -> None:
    """Note that a member left because its poll was overdue, unless it had joined less than an interval before.

    A push may wait at a broker that pauses, and then be about a poll before that join.
    """
    for leave in replica.leaves:
        if leave.member.member_id != event.member_id or leave.cause is not Cause.LEFT:
            continue
        deadline_ms = _deadline_ms(event, leave.member)
        if leave.may_be_late_poll and deadline_ms is not None and _left_at(leave.applied_ms, deadline_ms):
            left_overdue(replica, leave, min(deadline_ms, leave.applied_ms), event.order_ms, context)
        return


def _polled_ms(event: Metrics) -> int:
    return event.order_ms - (event.poll_age_ms or 0)


def _known_poll_ms(member: Member) -> int:
    """Return when a member polled last, as far as its client has reported; 0: it has reported nothing."""
    return 0 if member.poll_reported_ms is None else member.poll_reported_ms - (member.poll_age_ms or 0)


def _deadline_ms(event: Metrics, member: Member) -> int | None:
    """Return when a member's poll interval ends or ended, at the latest; None: its limit is not known."""
    return _polled_ms(event) + member.rebalance_timeout_ms if member.rebalance_timeout_ms else None


def _left_at(applied_ms: int, deadline_ms: int) -> bool:
    """Tell whether a leave came when a limit passed. A poll age in another unit would put the limit anywhere."""
    return applied_ms - LATE_MS <= deadline_ms <= applied_ms + TOLERANCE_MS


def _is_overdue_at(at_ms: int, deadline_ms: int | None) -> bool:
    return deadline_ms is not None and deadline_ms <= at_ms + TOLERANCE_MS

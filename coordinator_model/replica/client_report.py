"""A client's report of its last poll. A poll age over the limit is a breach, even if the member has just left.

An application with a reporter can write any report. So a report is believed only about the application's own client:
member id, client id and, if the report has one, host must be those of a member that the brokers' own lines or records
show.
"""

from collections.abc import Iterator

from coordinator_model.events import ClientPoll, MetricsExported, MetricsPushed
from coordinator_model.replica import poll_times
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.poll_end import missed_cause
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.leaves import poll_departure, remember_leave
from coordinator_model.replica.removals.removal import add_departure, withdraw
from coordinator_model.replica.removals.session_end import own_cause
from coordinator_model.states import MEMBER_REMOVED, REBALANCE_TIMEOUT, SESSION_EXPIRED, Cause, Evidence


def is_believed(replica: GroupReplica, event: ClientPoll) -> bool:
    """Tell whether the member that a report names is known, and is the client that the report says it is."""
    return any(is_of(event, member) for member in known_as(replica, event.member_id))


def known_as(replica: GroupReplica, member_id: str) -> Iterator[Member]:
    """Yield what is known under a member id: the member, departed ones, and those that left."""
    if member_id in replica.members:
        yield replica.members[member_id]
    yield from (d.member for d in replica.departures if d.member.member_id == member_id)
    yield from (leave.member for leave in replica.leaves if leave.member.member_id == member_id)


def is_of(event: ClientPoll | MetricsPushed | MetricsExported, member: Member) -> bool:
    """Tell whether a report is of a member's own client; a collector need not know its client id."""
    known_host = bool(event.client_host and member.client_host)
    if event.instance_id and member.instance_id and event.instance_id != member.instance_id:
        return False
    same_client = event.client_id == member.client_id or (isinstance(event, MetricsExported) and not event.client_id)
    return same_client and (not known_host or event.client_host == member.client_host)


def report(replica: GroupReplica, event: ClientPoll, context: JudgementContext) -> None:
    """Apply a report that is believed."""
    if not is_believed(replica, event):
        return
    member = replica.members.get(event.member_id)
    if member is not None:
        age_ms = _poll_age_ms(event, member)
        poll_times.reported(member, age_ms, event.order_ms)
        member.poll_age_ms, member.poll_reported_ms = age_ms, event.order_ms
        member.max_poll_interval_ms = event.max_poll_interval_ms
        member.poll_deadline_ms = _poll_deadline_ms(event, member)
        told_ms = event.order_ms if member.poll_told_ms is None else member.poll_told_ms
        member.poll_told_ms = None if member.poll_deadline_ms is None else told_ms
        return
    _of_one_removed(replica, event)
    _of_one_removed_unseen(replica, event, context)
    _of_one_that_left(replica, event, context)


def _of_one_removed(replica: GroupReplica, event: ClientPoll) -> None:
    for departure in replica.departures:
        if departure.member.member_id != event.member_id:
            continue
        deadline_ms = _poll_deadline_ms(event, departure.member)
        if deadline_ms is None:
            continue
        if departure.rule == SESSION_EXPIRED:
            removed_overdue(departure, deadline_ms)
        elif departure.rule == REBALANCE_TIMEOUT:
            dropped_overdue(departure, deadline_ms)


def removed_overdue(departure: Departure, deadline_ms: int) -> None:
    """Note that the poll of a member whose session expired was overdue."""
    departure.member.poll_deadline_ms = deadline_ms
    if departure.cause is Cause.SESSION_TIMEOUT:
        departure.cause = own_cause(departure.member)


def dropped_overdue(departure: Departure, deadline_ms: int) -> None:
    """Note that the poll of a member that missed a rebalance was overdue, as its client reported later."""
    if departure.cause is Cause.REBALANCE_TIMEOUT:
        departure.member.poll_deadline_ms = deadline_ms
        departure.cause = missed_cause(departure.member, departure.removed_ms)


def _of_one_removed_unseen(replica: GroupReplica, event: ClientPoll, context: JudgementContext) -> None:
    """Note the cause of a removal that only a record shows: the client's poll was overdue by then."""
    for departure in removed_unseen(replica, event.member_id):
        deadline_ms = _poll_deadline_ms(event, departure.member)
        if deadline_ms is not None and deadline_ms <= departure.removed_ms:
            removed_unseen_overdue(replica, departure, deadline_ms, event.order_ms, context)


def removed_unseen(replica: GroupReplica, member_id: str) -> list[Departure]:
    """Return the removals of a member that only a record shows."""
    mine = (departure for departure in replica.departures if departure.member.member_id == member_id)
    return [d for d in mine if d.rule == MEMBER_REMOVED and d.seen_generation is not None]


def removed_unseen_overdue(
    replica: GroupReplica, departure: Departure, deadline_ms: int, told_ms: int, context: JudgementContext
) -> None:
    """Note that a member whose removal only a record shows had left because its poll was overdue."""
    withdraw(replica, departure)
    departure.member.poll_deadline_ms = deadline_ms
    leave = Leave(departure.member, departure.removed_ms, Cause.POLL_INTERVAL, None)
    remember_leave(replica, leave)
    add_departure(replica, poll_departure(leave, replica, context, Evidence.OBSERVED, told_ms))


def _of_one_that_left(replica: GroupReplica, event: ClientPoll, context: JudgementContext) -> None:
    for leave in replica.leaves:
        if leave.member.member_id == event.member_id and leave.cause is Cause.LEFT:
            deadline_ms = _poll_deadline_ms(event, leave.member)
            if deadline_ms is not None:
                left_overdue(replica, leave, deadline_ms, event.order_ms, context)
            return


def left_overdue(
    replica: GroupReplica,
    leave: Leave,
    deadline_ms: int,
    told_ms: int,
    context: JudgementContext,
    evidence: Evidence = Evidence.OBSERVED,
) -> None:
    """Note that a member left because its poll was overdue, as its client reported later."""
    leave.cause = Cause.POLL_INTERVAL
    leave.member.poll_deadline_ms = deadline_ms
    if told_ms >= context.live_from_ms:
        add_departure(replica, poll_departure(leave, replica, context, evidence, told_ms))


def _poll_age_ms(event: ClientPoll, member: Member) -> int:
    """Return how long ago a member polled. It polled as it joined, because a client gets its member id within a poll.

    kafka-python names its new id before it counts that poll (``ConsumerCoordinator.poll``: ``ensure_active_group``,
    then ``poll_heartbeat``), so a client that rejoins after a breach reports the old age with the new id.
    """
    return event.poll_age_ms if member.joined_ms is None else min(event.poll_age_ms, event.order_ms - member.joined_ms)


def _poll_deadline_ms(event: ClientPoll, member: Member) -> int | None:
    """Return when a member's poll interval ended; None: it has not."""
    overdue_ms = _poll_age_ms(event, member) - event.max_poll_interval_ms
    return event.order_ms - overdue_ms if overdue_ms > 0 else None

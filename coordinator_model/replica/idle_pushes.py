"""Pushed metrics that show whether a client polled, but not when: librdkafka's idle ratio of polls.

Source: ``rd_kafka_app_poll_start`` (librdkafka 2.x). It takes a sample as a poll begins, and pushes 0 if no poll began
in the interval of the push. A 0 proves nothing about a client that is still a member: one long poll, or polls that
never wait, push it too. It proves an overdue poll if the client left without a reason just when its limit after the
last poll had passed, and its process lives on without a poll. A closed client falls silent. A client that unsubscribed
had polled within the limit before. One that unsubscribed after nearly the whole limit without a poll looks the same, so
this is inferred. After a classic member has left, its pushes name no member: the client instance id shows whose they
are.
"""

from collections.abc import Iterator
from dataclasses import replace

from coordinator_model.events import MetricsExported, MetricsPushed
from coordinator_model.replica.client_report import is_of, known_as, left_overdue, removed_overdue
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.poll_end import GAP_MS, SHARE, PollEnd, missed_cause, poll_end, stopped_at_its_end
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.states import REBALANCE_TIMEOUT, SESSION_EXPIRED, Cause, Evidence

EARLY_MS = 500
"""How much earlier than its limit a member may seem to leave: a poll may have begun before its interval seems to."""
LATE_MS = 2_000
"""How much later than its limit a member may seem to leave: librdkafka checks once a second, then asks its broker."""


def known_by(replica: GroupReplica, event: MetricsPushed | MetricsExported) -> Iterator[Member]:
    """Yield the members whose client may have sent a push."""
    if event.member_id:
        yield from known_as(replica, event.member_id)
    elif event.client_instance_id:
        gone = [
            *replica.members.values(),
            *(d.member for d in replica.departures),
            *(leave.member for leave in replica.leaves),
        ]
        yield from (member for member in gone if member.client_instance_id == event.client_instance_id)


def push(replica: GroupReplica, event: MetricsPushed | MetricsExported, context: JudgementContext) -> None:
    """Apply a push that is believed."""
    members = [member for member in known_by(replica, event) if is_of(event, member)]
    present = next((member for member in members if replica.members.get(member.member_id) is member), None)
    if present is not None:
        _note(present, event)
        return
    known = [id(member) for member in members]
    for departure in replica.departures:
        if id(departure.member) in known and departure.rule in (SESSION_EXPIRED, REBALANCE_TIMEOUT):
            _note(departure.member, event)
            _blame_the_poll(departure, event)
    for leave in replica.leaves:
        if id(leave.member) not in known or leave.cause is not Cause.LEFT or not _is_about(leave, event):
            continue
        _note(leave.member, event)
        if not leave.reason and _is_proven(leave, event):
            leave.member = replace(leave.member)
            left_overdue(replica, leave, leave.applied_ms, event.order_ms, context, Evidence.INFERRED)


def _is_about(leave: Leave, event: MetricsPushed | MetricsExported) -> bool:
    """Tell whether a push shows anything about the polls before a leave, or that none has come since.

    A client whose poll was overdue polls again before it rejoins. That must not count as a poll in time.
    """
    from_ms, known_ms = event.order_ms - event.interval_ms, leave.member.no_poll_until_ms
    idle_since = not event.polled and known_ms is not None and from_ms <= known_ms + GAP_MS
    return idle_since or from_ms < leave.applied_ms


def _note(member: Member, event: MetricsPushed | MetricsExported) -> None:
    """Note whether a client polled. If a push is missing, nothing is known until it polls again."""
    from_ms, known_ms = event.order_ms - event.interval_ms, member.no_poll_until_ms
    another = event.client_instance_id != member.client_instance_id
    member.client_instance_id = event.client_instance_id
    if event.polled:
        if not (member.kip848 and _fell_silent_overdue(member, from_ms)):
            member.polled_from_ms, member.polled_until_ms = from_ms, event.order_ms
    elif another or known_ms is None or from_ms > known_ms + GAP_MS:
        member.polled_from_ms = member.polled_until_ms = member.no_poll_until_ms = None
        return
    member.no_poll_until_ms = event.order_ms


def _fell_silent_overdue(member: Member, until_ms: int) -> bool:
    """Tell whether a member's limit passed without a poll, and its heartbeats stopped then and until an instant.

    librdkafka sends no KIP-848 heartbeat from then on (``rd_kafka_cgrp_consumer_heartbeat_preconditions_met``). The
    next poll only revokes, so that it leaves and rejoins. While one long poll lasts, heartbeats go on.
    """
    limit_ms, from_ms, polled_ms = member.rebalance_timeout_ms, member.polled_from_ms, member.polled_until_ms
    last_ms, no_poll_ms = member.last_heartbeat_ms, member.no_poll_until_ms
    if not limit_ms or from_ms is None or polled_ms is None or last_ms is None or no_poll_ms is None:
        return False
    beat_ms = member.heartbeat_interval_ms or (member.session_timeout_ms or 0) // 3
    if no_poll_ms < polled_ms + limit_ms or until_ms <= last_ms + beat_ms + GAP_MS:
        return False
    return stopped_at_its_end(member, PollEnd(from_ms + limit_ms, polled_ms + limit_ms))


def _blame_the_poll(departure: Departure, event: MetricsPushed | MetricsExported) -> None:
    """Note that a member was removed because its client could not leave at its limit: it lives on and does not poll."""
    member, end = departure.member, poll_end(departure.member)
    if event.polled or end is None:
        return
    if departure.rule == REBALANCE_TIMEOUT:
        if departure.cause is Cause.REBALANCE_TIMEOUT:
            departure.cause = missed_cause(member, departure.removed_ms)
        return
    silent_ms = event.order_ms - event.interval_ms
    if silent_ms >= (member.last_heartbeat_ms or 0) and stopped_at_its_end(member, end):
        removed_overdue(departure, min(end.until_ms, departure.deadline_ms or end.until_ms))


def _is_proven(leave: Leave, event: MetricsPushed | MetricsExported) -> bool:
    """Tell whether a member left when its limit had passed, and lived on for a whole interval without a poll."""
    member, limit_ms = leave.member, leave.member.rebalance_timeout_ms
    from_ms, until_ms = member.polled_from_ms, member.polled_until_ms
    if event.polled or not limit_ms or from_ms is None or until_ms is None:
        return False
    if event.order_ms - event.interval_ms < leave.applied_ms or until_ms - from_ms > limit_ms // SHARE:
        return False
    return from_ms + limit_ms - EARLY_MS <= leave.applied_ms <= until_ms + limit_ms + LATE_MS

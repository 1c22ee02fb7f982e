"""Pushed metrics that tell whether a client polled, and not when: librdkafka's idle ratio of polls.

Source: ``rd_kafka_app_poll_start`` (librdkafka 2.x): a sample as a poll begins, and 0 where none did in the interval of
the push. A 0 proves nothing of who is in: one long poll, or polls that never wait, push it too. It does where a member
left without a reason when its limit after its last poll had passed, and its process lives on without a poll. One that
was closed falls silent; one that unsubscribed had polled within the limit before. An unsubscribed one that had not
polled for nearly the whole limit looks the same, so this is inferred.
After a classic member has left, its pushes name no member: the client instance id tells whose they are.
"""

from collections.abc import Iterator
from dataclasses import replace

from coordinator_model.events import MetricsPushed
from coordinator_model.replica.client_report import is_of, known_as, left_overdue
from coordinator_model.replica.group import GroupReplica, Leave, Member
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.states import Cause, Evidence

GAP_MS = 2_000
"""How far one push's interval may seem to begin after the one before: on their way they take time."""
EARLY_MS = 500
"""How much earlier than its limit a member may seem to leave: a poll may have begun before its interval seems to."""
LATE_MS = 2_000
"""How much later than its limit it may: librdkafka looks once a second, then asks its broker."""
SHARE = 5
"""Pushes must come at least that often within the limit: else they do not tell when the last poll was."""


def known_by(replica: GroupReplica, event: MetricsPushed) -> Iterator[Member]:
    """Yield the members that a push may be of."""
    if event.member_id:
        yield from known_as(replica, event.member_id)
    elif event.client_instance_id:
        left = (leave.member for leave in replica.leaves)
        yield from (member for member in left if member.client_instance_id == event.client_instance_id)


def push(replica: GroupReplica, event: MetricsPushed, context: JudgementContext) -> None:
    """Apply a push that is believed."""
    member = replica.members.get(event.member_id)
    if member is not None:
        _note(member, event)
        return
    known = [id(member) for member in known_by(replica, event) if is_of(event, member)]
    for leave in replica.leaves:
        if id(leave.member) not in known or leave.cause is not Cause.LEFT:
            continue
        _note(leave.member, event)
        if not leave.reason and _is_proven(leave, event):
            leave.member = replace(leave.member)
            left_overdue(replica, leave, leave.applied_ms, event.order_ms, context, Evidence.INFERRED)


def _note(member: Member, event: MetricsPushed) -> None:
    """Note whether it polled; where a push is missing, nothing is known until it polls again."""
    from_ms, known_ms = event.order_ms - event.interval_ms, member.no_poll_until_ms
    another = event.client_instance_id != member.client_instance_id
    member.client_instance_id = event.client_instance_id
    if event.polled:
        member.polled_from_ms, member.polled_until_ms = from_ms, event.order_ms
    elif another or known_ms is None or from_ms > known_ms + GAP_MS:
        member.polled_from_ms = member.polled_until_ms = member.no_poll_until_ms = None
        return
    member.no_poll_until_ms = event.order_ms


def _is_proven(leave: Leave, event: MetricsPushed) -> bool:
    """Tell whether a member left as its limit had passed, and has lived since for a whole interval without a poll."""
    member, limit_ms = leave.member, leave.member.rebalance_timeout_ms
    from_ms, until_ms = member.polled_from_ms, member.polled_until_ms
    if event.polled or not limit_ms or from_ms is None or until_ms is None:
        return False
    if event.order_ms - event.interval_ms < leave.applied_ms or until_ms - from_ms > limit_ms // SHARE:
        return False
    return from_ms + limit_ms - EARLY_MS <= leave.applied_ms <= until_ms + limit_ms + LATE_MS

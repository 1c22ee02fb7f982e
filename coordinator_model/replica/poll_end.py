"""When a member's poll interval ended, as far as its metrics show, and whether its heartbeats stopped then.

A client stops its heartbeats when its limit (``max.poll.interval.ms``) has passed since its last poll
(``AbstractCoordinator``, ``rd_kafka_cgrp_max_poll_interval_check_tmr_cb``). Two kinds of members send no leave then: a
static one of the classic protocol, and a KIP-848 one whose application has to handle the revocation first. Heartbeats
that stop just then show why they stopped. That is inferred: the process may have been killed in the same seconds.
"""

from typing import NamedTuple

from coordinator_model.replica.member import Member
from coordinator_model.states import Cause

GAP_MS = 2_000
"""How far apart a client's poll timer and its metrics may seem: they count whole seconds, and take time to arrive."""
SHARE = 5
"""Metrics must come at least this many times within the limit. Otherwise they do not show when the last poll was."""


class PollEnd(NamedTuple):
    """The instants between which a poll interval ended or ends."""

    from_ms: int
    until_ms: int


def poll_end(member: Member) -> PollEnd | None:
    """Return when the poll interval ends that began with a member's last poll; None: its metrics do not show it."""
    limit_ms = member.rebalance_timeout_ms
    if not limit_ms or member.pushed_ms is None:
        return None
    if member.poll_age_ms is not None and member.poll_reported_ms == member.pushed_ms:
        if member.poll_age_ms < limit_ms - limit_ms // SHARE:
            return None  # it may have polled since
        polled_ms = member.pushed_ms - member.poll_age_ms
        return PollEnd(polled_ms + limit_ms, polled_ms + limit_ms)
    from_ms, until_ms, no_poll_ms = member.polled_from_ms, member.polled_until_ms, member.no_poll_until_ms
    if from_ms is None or until_ms is None or no_poll_ms is None or until_ms - from_ms > limit_ms // SHARE:
        return None
    if no_poll_ms < from_ms + limit_ms - limit_ms // SHARE:
        return None
    return PollEnd(from_ms + limit_ms, until_ms + limit_ms)


def stopped_at_its_end(member: Member, end: PollEnd) -> bool:
    """Tell whether the last heartbeat that was seen came when the poll interval ended."""
    last_ms, session_ms = member.last_heartbeat_ms, member.session_timeout_ms or 0
    if last_ms is None:
        return False
    beat_ms = member.heartbeat_interval_ms or session_ms // 3
    return end.from_ms - beat_ms - GAP_MS <= last_ms <= end.until_ms + GAP_MS


def stopped_polling(member: Member) -> bool:
    """Tell whether a member's heartbeats stopped because its client did not poll.

    A client that reports poll ages, such as Java's classic client, then stops pushing. For other clients, a push has to
    show that they live on without a poll.
    """
    end = poll_end(member)
    if end is None or not stopped_at_its_end(member, end):
        return False
    return member.poll_age_ms is not None or (member.no_poll_until_ms or 0) > (member.last_heartbeat_ms or 0)


def missed_cause(member: Member, removed_ms: int) -> Cause:
    """Return why a member missed a rebalance: because it did not poll, if its client's reports show that.

    A rebalance waits at least as long as the member's poll interval. A client that polls meanwhile takes part in it.
    """
    end, ended_ms = poll_end(member), member.poll_deadline_ms
    if ended_ms is None and end is not None:
        ended_ms = end.from_ms
    unpolled = ended_ms is not None and ended_ms <= removed_ms + GAP_MS
    return Cause.POLL_INTERVAL if unpolled else Cause.REBALANCE_TIMEOUT

"""``member-removed``: a member was removed, and the line that tells why may be missing.

Theory. A member is removed because its session expired, because it missed a rebalance, or because it left. The first
two are inferred from timers, and missing heartbeats make that inference wrong. The third is known only from its line.
So a timeout is reported in two cases: the member cannot have been alive unseen, or no line is missing around its
removal, where its leave would have been seen.

Where only records are seen, all lines are missing: every removal has an unknown cause, unless its client has told that
its poll was overdue.
"""

from collections.abc import Iterable

from coordinator_model.brokers.blindness import may_have_lived_until_ms, may_miss_lines
from coordinator_model.brokers.timer_reset import LONGEST_SESSION_MS
from coordinator_model.replica import join_lines
from coordinator_model.replica.group import GroupReplica, Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.session_timer import (
    JudgementContext,
    deadlines,
    latest_deadline_ms,
    session_timeout_ms,
    unheard_since,
)
from coordinator_model.states import MEMBER_REMOVED, POLL_EXCEEDED, SESSION_EXPIRED, Cause, Evidence

RECENT_MS = 600_000
"""A loss this long before a rebalance still counts as recent."""


def cause_is_uncertain(
    replica: GroupReplica, departure: Departure, together: Iterable[Departure], context: JudgementContext
) -> bool:
    """Tell whether an unseen line may explain the removal better than the timeout that was inferred.

    ``together``: all members that the same generation lost.
    """
    return (
        _joined_a_later_generation(departure)
        or (departure.lines_were_behind and not _coordinator_paused(departure, context))
        or (_lost_lines_recently(replica, departure, context) and _rebalance_began_unseen(departure, together, context))
        or _heartbeats_are_filtered_out(replica, departure, together, context)
        or _request_may_have_been_pending(departure, context)
        or _expired_before_group_was_stable(departure, context)
        or _may_have_left_unseen(departure, context)
        or _may_have_waited_unseen(replica, departure, context)
    )


def mark_unknown(replica: GroupReplica, departure: Departure, context: JudgementContext) -> None:
    """Report the removal as ``member-removed``, cause unknown.

    That is a sign of lost lines, unless the coordinator had moved since the member was heard.
    """
    moves = (r for r in unheard_since(departure.member, context.timer_resets) if r.cause is Cause.COORDINATOR_MOVED)
    if next(moves, None) is None:
        replica.unexplained_ms = max(replica.unexplained_ms or 0, departure.gone_ms)
    departure.rule, departure.cause, departure.evidence = MEMBER_REMOVED, Cause.UNKNOWN, Evidence.INFERRED
    departure.deadline_ms = departure.timer_reset_ms = None
    departure.deadline_from_ms = departure.deadline_until_ms = None
    departure.concluded = True


def known_from_records(replica: GroupReplica, member: Member, removed_ms: int) -> Departure:
    """Return the departure of a member of which only records tell: that it is gone, and between which generations."""
    overdue = member.poll_deadline_ms is not None
    return Departure(
        member=member,
        rule=POLL_EXCEEDED if overdue else MEMBER_REMOVED,
        cause=Cause.POLL_INTERVAL if overdue else Cause.UNKNOWN,
        evidence=Evidence.OBSERVED if overdue else Evidence.INFERRED,
        removed_ms=removed_ms,
        deadline_ms=member.poll_deadline_ms,
        generation=replica.generation,
        broker="",
        judge_after_ms=0,
        seen_generation=replica.generation if member.generation is None else min(member.generation, replica.generation),
    )


def _coordinator_paused(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the coordinator was paused shortly before the removal: then no lines were late, there were none."""
    since_ms = departure.removed_ms - context.thresholds.hold_ms
    pauses = (
        r for r in context.timer_resets if r.cause is Cause.COORDINATOR_PAUSE and r.low_ms <= departure.removed_ms
    )
    return any(max(r.woke_ms or 0, r.high_ms or departure.removed_ms) >= since_ms for r in pauses)


def _joined_a_later_generation(departure: Departure) -> bool:
    """Tell whether a classic member had joined a generation after the one that lacks it: instants are not exact."""
    member = departure.member
    return not member.goes_alone and member.generation is not None and member.generation > departure.generation


def _lost_lines_recently(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether lines were lost recently: a blind window is known, or an earlier removal had no explanation."""
    since_ms = departure.phase.after_ms - RECENT_MS
    return _unexplained_recently(replica, departure) or may_miss_lines(context.blind, since_ms, departure.gone_ms)


def _unexplained_recently(replica: GroupReplica, departure: Departure) -> bool:
    return replica.unexplained_ms is not None and replica.unexplained_ms >= departure.phase.after_ms - RECENT_MS


def _rebalance_began_unseen(departure: Departure, together: Iterable[Departure], context: JudgementContext) -> bool:
    """Tell whether the rebalance began before any session had expired, and no request that began it was seen.

    A line is missing then, perhaps a leave of one of the members that the rebalance lost. Not decided for static
    members, nor if the coordinator paused or moved meanwhile: timers may have run differently.
    """
    member, phase = departure.member, departure.phase
    if departure.rule != SESSION_EXPIRED or member.goes_alone or member.instance_id is not None or member.awaiting_sync:
        return False
    if phase.started_ms is None or phase.started_by or (member.clock_ms or 0) >= phase.started_ms:
        return False
    if any(reset.cause is not Cause.UNKNOWN for reset in unheard_since(member, context.timer_resets)):
        return False
    ends_ms = [span[0] for other in together for span in deadlines(other, context)]
    ends_ms += [(d.member.timer_reset_ms or 0) + d.sync_timeout_ms for d in together if d.sync_timeout_ms]
    return min(ends_ms, default=0) > phase.started_ms + context.thresholds.grace_ms


def _heartbeats_are_filtered_out(
    replica: GroupReplica, departure: Departure, together: Iterable[Departure], context: JudgementContext
) -> bool:
    """Tell whether the member outlived its session although none of its heartbeats was seen.

    Then the request log leaves them out. If a heartbeat of any member of the shard was seen since it joined, its own
    would have been seen too. Otherwise a timeout is believed only if the session ended right at the removal, or as the
    rebalance began, and if every removal of late has an explanation.
    """
    member = departure.member
    if member.parked_heartbeat_ms is not None or member.last_heartbeat_ms is not None:
        return False
    if member.kip848 and member.clock_ms is None and not context.proof_arrival_ms:
        return True  # it joined by a heartbeat
    since_ms = max(member.clock_ms or member.joined_ms or 0, context.live_from_ms)
    if not member.goes_alone and context.proof_arrival_ms > since_ms:
        return False
    if any(name in replica.pending for name in departure.phase.unjoined) and not _unexplained_recently(
        replica, departure
    ):
        return False  # the phase waited for an id given out, however long before the session ended
    if not member.goes_alone and (
        _unexplained_recently(replica, departure) or _expired_long_before(departure, context)
    ):
        return True
    if departure.rule == SESSION_EXPIRED and _expired_in_a_rebalance(departure, context):
        return False
    lost = [departure] if member.goes_alone else together
    ends_ms = [latest_deadline_ms(other, context) or 0 for other in lost]
    return departure.removed_ms > max(ends_ms, default=0) + context.thresholds.grace_ms


def _expired_long_before(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the session seems to have ended long before the first sign of the rebalance that it began."""
    phase_ms, end_ms = departure.phase.started_ms, latest_deadline_ms(departure, context)
    return (
        phase_ms is not None
        and end_ms is not None
        and end_ms < phase_ms - _longest_silence_ms(departure.member, context)
    )


def _expired_in_a_rebalance(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the session ended while the group waited for others: the removal shows only when that is over."""
    phase_ms, end_ms = departure.phase.started_ms, latest_deadline_ms(departure, context) or 0
    return not departure.member.goes_alone and phase_ms is not None and end_ms >= phase_ms - context.thresholds.grace_ms


def _request_may_have_been_pending(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a classic member may have been silent because its JoinGroup or SyncGroup was pending.

    The coordinator does not expire such a member, and the request is logged only when it is answered. If that answer or
    a LeaveGroup may be missing, silence proves nothing.
    """
    member, phase_ms = departure.member, departure.phase.started_ms
    if member.goes_alone or member.clock_ms is None:
        return False
    if member.awaiting_sync:
        return may_miss_lines(context.blind, member.clock_ms, departure.gone_ms + 1)
    if phase_ms is None or phase_ms > (latest_deadline_ms(departure, context) or departure.gone_ms):
        return False
    return may_miss_lines(context.blind, max(member.clock_ms, departure.phase.after_ms), departure.gone_ms + 1)


def _expired_before_group_was_stable(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the session would have expired while the group was still seen stable.

    An expiry starts a rebalance, so a heartbeat of the member must be missing.
    """
    member, end_ms = departure.member, departure.deadline_ms
    if member.goes_alone or departure.rule != SESSION_EXPIRED or end_ms is None:
        return False
    after_ms = departure.phase.after_ms - context.thresholds.grace_ms
    return end_ms < after_ms and may_miss_lines(context.blind, member.clock_ms or 0, departure.gone_ms)


def _may_have_left_unseen(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the line of a leave may be missing, and the member may have been alive unseen until then.

    In a group of KIP-848 the line of a leave is written after the records of the removal.
    """
    member, leave_ms = departure.member, _earliest_leave_ms(departure, context)
    until_ms = departure.gone_ms + context.thresholds.grace_ms
    if member.clock_ms is None:
        return may_miss_lines(context.blind, leave_ms, until_ms)
    unseen_ms = may_have_lived_until_ms(context.blind, member.clock_ms, _longest_silence_ms(member, context), until_ms)
    return unseen_ms > max(member.clock_ms, leave_ms)


def _may_have_waited_unseen(replica: GroupReplica, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a classic member may have been silent because it waited in a join phase that nobody saw.

    Not if it was silent for too long before, while the group was seen stable in the same generation.
    """
    member, stable_ms = departure.member, departure.phase.after_ms
    since_ms = member.clock_ms or member.joined_ms or 0
    same = not since_ms < (replica.unseen_generation_ms or 0) <= stable_ms
    if member.goes_alone or (same and stable_ms > since_ms + _longest_silence_ms(member, context)):
        return False
    return join_lines.may_be_missing(replica, since_ms, context)


def _earliest_leave_ms(departure: Departure, context: JudgementContext) -> int:
    """Return the earliest instant at which the member can have left.

    A classic group shows a leave only with its next generation, a group of KIP-848 at once.
    """
    if departure.member.goes_alone:
        return departure.removed_ms - context.thresholds.grace_ms
    return departure.phase.after_ms


def _longest_silence_ms(member: Member, context: JudgementContext) -> int:
    """Return how long a living member can be silent, at most its session timeout.

    That is the longer of one and a half heartbeat intervals and a third of the session timeout. Without a known
    interval it is the session timeout.
    """
    timeout_ms = session_timeout_ms(member, context) or LONGEST_SESSION_MS
    intervals_ms = [member.heartbeat_interval_ms]
    if member.last_heartbeat_ms is not None and member.previous_heartbeat_ms is not None:
        intervals_ms.append(member.last_heartbeat_ms - member.previous_heartbeat_ms)
    known = [interval_ms for interval_ms in intervals_ms if interval_ms]
    return min(timeout_ms, max(max(known) * 3 // 2, timeout_ms // 3)) if known else timeout_ms

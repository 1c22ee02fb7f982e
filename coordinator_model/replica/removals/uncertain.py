"""Doubts: what may explain a removal better than the timeout that was found, if a line that shows it is missing.

A member is removed because its session expired, because it missed a rebalance, or because it left. The first two are
inferred from timers, and missing heartbeats make that inference wrong. The third is known only from its line. So a
timeout is reported in two cases: the member cannot have been alive unseen, or no line is missing around its removal,
where its leave would have been seen. Otherwise the removal is ``member-removed``, cause unknown.
"""

from collections.abc import Callable
from dataclasses import dataclass

from coordinator_model.brokers.blindness import may_have_lived_until_ms, may_miss_lines
from coordinator_model.brokers.listeners import is_address
from coordinator_model.brokers.timer_reset import LONGEST_SESSION_MS
from coordinator_model.replica import join_lines
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.case import SessionExpired, Timeout
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS
from coordinator_model.replica.removals.together import Together
from coordinator_model.replica.session_timer import deadlines, latest_deadline_ms, session_timeout_ms, unheard_since
from coordinator_model.states import MEMBER_REMOVED, Cause

RECENT_MS = 600_000
"""A loss of lines this long before a rebalance still counts as recent."""


@dataclass(frozen=True, slots=True)
class Inference:
    """A removal, the timeout that explains it, and what may cast doubt on that. The doubts only read it."""

    replica: GroupReplica
    departure: Departure
    together: Together
    """All departures that the same generation showed, with the judgement context."""
    timeout: Timeout

    @property
    def member(self) -> Member:
        """The member that is gone."""
        return self.departure.member

    @property
    def context(self) -> JudgementContext:
        """The judgement context."""
        return self.together.context


def joined_a_later_generation(inference: Inference) -> bool:
    """Tell whether a classic member had joined a later generation than the one that lacks it.

    Then the instants are not exact enough to prove a timeout.
    """
    joined = inference.member.generation
    return not inference.member.in_kip848_group and joined is not None and joined > inference.departure.generation


def lines_were_behind(inference: Inference) -> bool:
    """Tell whether the lines around the time of the removal came long after its record, and no pause explains that.

    While the coordinator was paused it wrote no lines, so none can be late.
    """
    removed_ms = inference.departure.removed_ms
    since_ms = removed_ms - inference.context.thresholds.hold_ms
    resets = (r for r in inference.context.timer_resets if r.low_ms <= removed_ms)
    pauses = (r for r in resets if r.cause is Cause.COORDINATOR_PAUSE)
    paused = any(max(r.woke_ms or 0, r.high_ms or removed_ms) >= since_ms for r in pauses)
    return inference.departure.lines_were_behind and not paused


def dates_are_doubtful(inference: Inference) -> bool:
    """Tell whether records contradict the dates of a broker's lines, so that timers prove nothing."""
    return inference.context.dates_are_doubtful


def dates_are_too_coarse(inference: Inference) -> bool:
    """Tell whether dates are too coarse to show which came first: the join phase's timeout, or the session's end."""
    member, phase, context = inference.member, inference.departure.phase, inference.context
    off_by_ms, removed_ms = context.off_by_ms, inference.departure.removed_ms
    if not off_by_ms or phase.limit_ms is None or phase.started_ms is None:
        return False
    timeout_ms = session_timeout_ms(member, context) or 0
    had_ended = (member.session_from_ms or 0) + timeout_ms <= removed_ms + off_by_ms
    earliest_ms, latest_ms = phase.began_after_ms + phase.limit_ms, phase.started_ms + phase.limit_ms
    return had_ended and earliest_ms - off_by_ms <= removed_ms <= latest_ms + off_by_ms


def rebalance_began_unseen(inference: Inference) -> bool:
    """Tell whether the rebalance began before any session had expired, and no request that began it was seen.

    Then a line is missing. It may be a leave of one of the removed members if lines were lost recently, or if no member
    of the next generation can have begun the rebalance, because all had been told of it first. This says no for static
    members, for members that still had to sync, if a newcomer may have begun the rebalance, and if the coordinator
    paused or moved meanwhile: timers may have run differently.
    """
    member, phase = inference.member, inference.departure.phase
    if not isinstance(inference.timeout, SessionExpired):
        return False
    if not (_lost_lines_recently(inference) or _all_were_told(inference)):
        return False
    if member.in_kip848_group or member.instance_id is not None or member.awaiting_sync:
        return False
    if phase.started is None or phase.started.by is not None or (member.session_from_ms or 0) >= phase.started.at_ms:
        return False
    if any(reset.cause is not Cause.UNKNOWN for reset in unheard_since(member, inference.context.timer_resets)):
        return False
    return inference.together.once(_first_end_ms) > phase.started.at_ms + inference.context.thresholds.grace_ms


def _all_were_told(inference: Inference) -> bool:
    """Tell whether each member of the group sent a heartbeat in the join phase (27) before it joined.

    A client whose JoinGroup has begun the phase sends none. That JoinGroup has no line if the client has asked again.
    This says no if the member's SyncGroup was refused as the phase began: then an assignment that could not be stored
    has begun it.
    """
    phase = inference.departure.phase
    if phase.started is None or phase.ended is None:
        return False
    refused_ms = inference.member.timer_reset_ms or 0
    if abs(phase.started.at_ms - refused_ms) <= inference.context.thresholds.grace_ms:
        return False
    from_ms, until_ms, members = phase.started.at_ms, phase.ended.at_ms, inference.replica.members.values()
    beats_ms = ((member.previous_heartbeat_ms or 0, member.last_heartbeat_ms or 0) for member in members)
    return bool(members) and all(any(from_ms <= at_ms <= until_ms for at_ms in heard) for heard in beats_ms)


def _first_end_ms(together: Together) -> int:
    """Return the first instant at which a session or a sync timeout of any of the members can have ended."""
    departures, context = together.departures, together.context
    ends_ms = [span[0] for other in departures for span in deadlines(other, context)]
    ends_ms += [(d.member.timer_reset_ms or 0) + d.sync_timeout_ms for d in departures if d.sync_timeout_ms]
    return min(ends_ms, default=0)


def heartbeats_are_filtered_out(inference: Inference) -> bool:
    """Tell whether the member outlived its session although none of its heartbeats was seen.

    Then the request log leaves heartbeats out. It does not if a heartbeat of any member of the shard was seen since
    this member's session began: its own would have been seen too. In a KIP-848 group only heartbeats of the same
    protocol count, because a filter may hide one kind of request.
    """
    member, seen_ms = inference.member, inference.context.proof_arrival_ms
    if member.parked_heartbeat_ms is not None or member.last_heartbeat_ms is not None:
        return False
    if member.kip848 and member.session_from_ms is None and not seen_ms:
        return True  # it joined by a heartbeat, which was not seen
    since_ms = max(member.session_from_ms or member.joined_ms or 0, inference.context.live_from_ms)
    seen = _beats_are_seen(inference, since_ms) if member.in_kip848_group else seen_ms > since_ms
    return not seen and _outlived_its_session(inference)


def _beats_are_seen(inference: Inference, since_ms: int) -> bool:
    """Tell whether another member of a KIP-848 group was heard twice since an instant, by the same kind of request.

    The first of these heartbeats may have been a join, which tells more than a plain heartbeat.
    """
    members = inference.replica.members.values()
    return any((m.previous_heartbeat_ms or 0) > since_ms for m in members if m.kip848 == inference.member.kip848)


def request_may_have_been_pending(inference: Inference) -> bool:
    """Tell whether a classic member may have been silent because its JoinGroup or SyncGroup was pending.

    The coordinator does not expire such a member, and the request is logged only when it is answered. If that answer or
    a LeaveGroup may be missing, silence proves nothing.
    """
    member, departure, context = inference.member, inference.departure, inference.context
    phase_ms = departure.phase.started_ms
    if member.in_kip848_group or member.session_from_ms is None:
        return False
    if member.awaiting_sync:
        return may_miss_lines(context.blind, member.session_from_ms, departure.gone_ms + 1)
    if phase_ms is None or phase_ms > (latest_deadline_ms(departure, context) or departure.gone_ms):
        return False
    return may_miss_lines(
        context.blind, max(member.session_from_ms, departure.phase.began_after_ms), departure.gone_ms + 1
    )


def expired_while_group_was_stable(inference: Inference) -> bool:
    """Tell whether the session would have ended while the group was still seen stable.

    An expiry starts a rebalance, so a heartbeat of the member must be missing.
    """
    member, departure = inference.member, inference.departure
    if member.in_kip848_group or not isinstance(inference.timeout, SessionExpired):
        return False
    after_ms = departure.phase.began_after_ms - inference.context.thresholds.grace_ms
    missing = may_miss_lines(inference.context.blind, member.session_from_ms or 0, departure.gone_ms)
    return inference.timeout.deadline_ms < after_ms and missing


def may_have_left_unseen(inference: Inference) -> bool:
    """Tell whether the line of a leave may be missing, and the member may have been alive unseen until then.

    In a KIP-848 group the line of a leave is written after the records of the removal. So the time until a grace
    after the removal counts too.
    """
    member, blind, leave_ms = inference.member, inference.context.blind, _earliest_leave_ms(inference)
    until_ms = inference.departure.gone_ms + inference.context.leave_grace_ms
    if member.session_from_ms is None:
        return may_miss_lines(blind, leave_ms, until_ms)
    heard_ms = member.session_from_ms
    if member.in_kip848_group:  # its timer ran as it was removed, or later than it was heard unseen
        timeout_ms = session_timeout_ms(member, inference.context) or 0
        heard_ms = max(heard_ms, inference.departure.removed_ms - timeout_ms)
    silence_ms = _longest_silence_ms(member, inference.context)
    unseen_ms = may_have_lived_until_ms(blind, heard_ms, silence_ms, until_ms)
    return unseen_ms > max(heard_ms, leave_ms)


def may_have_left_without_a_line(inference: Inference) -> bool:
    """Tell whether leaves in the group have no lines, and the member may have left rather than expired.

    An earlier removal that nothing explains shows that leaves have no lines, until a leave is seen again. The member
    cannot have left if it was silent for too long before. And its session did end if that end began the rebalance,
    alone can have ended the join phase, or is the instant at which a KIP-848 group wrote the removal. A session never
    ends after what it causes, so no tolerance for wrong dates is granted here.
    """
    member, departure, context = inference.member, inference.departure, inference.context
    unexplained_ms, timeout_ms = _other_unexplained_ms(inference), session_timeout_ms(member, context)
    if unexplained_ms is None or timeout_ms is None or member.session_from_ms is None:
        return False
    if not isinstance(inference.timeout, SessionExpired) or _saw_a_leave(inference.replica, unexplained_ms):
        return False
    ends_ms = member.session_from_ms + timeout_ms - EARLY_MS
    if ends_ms > departure.removed_ms:
        return True
    sign_ms = departure.removed_ms if departure.phase.started_ms is None else departure.phase.started_ms
    silent_until_ms = member.session_from_ms + _longest_silence_ms(member, context)
    shown = ends_ms <= sign_ms or _alone_ended_the_phase(inference)
    return not shown and silent_until_ms > _earliest_leave_ms(inference)


def _other_unexplained_ms(inference: Inference) -> int | None:
    """Return when the last other removal happened that no line explains.

    If this one is judged again because of a move, the move may also explain those that were found with it.
    """
    own, unexplained_ms = inference.departure, inference.replica.unexplained_ms
    if own.rule != MEMBER_REMOVED or own.gone_ms != unexplained_ms:
        return unexplained_ms
    others = (d for d in inference.replica.departures if d.judged and d.rule == MEMBER_REMOVED)
    return max((other.gone_ms for other in others if other.gone_ms < own.gone_ms), default=None)


def _saw_a_leave(replica: GroupReplica, since_ms: int) -> bool:
    return any(leave.applied_ms > since_ms and leave.cause is not Cause.REPLACED for leave in replica.leaves)


def _alone_ended_the_phase(inference: Inference) -> bool:
    """Tell whether the session ended as the join phase did, and no other session of the dropped members did."""
    removed_ms, ends_ms = inference.departure.removed_ms, inference.together.latest_ends_ms
    then = {dropped for dropped, at_ms in ends_ms.items() if -EARLY_MS <= removed_ms - at_ms <= LATE_MS}
    return then == {id(inference.departure)}


def coordinator_may_have_died_before_its_line(inference: Inference) -> bool:
    """Tell whether a KIP-848 member may have left just before its coordinator died, so that the leave has no line.

    A move is blamed for the removal, but every sign of it is newer than the removal. So the former coordinator either
    had been deposed for a whole session timeout and did not know it, or it removed the member itself, for a leave. It
    answers a leave after it has written the removal. If it answered nobody in the group since, it may have died before
    that line was shipped.
    """
    timeout, removed_ms = inference.timeout, inference.departure.removed_ms
    if not inference.member.in_kip848_group or not isinstance(timeout, SessionExpired):
        return False
    blamed = (r for r in inference.context.timer_resets if r.is_move and r.low_ms == timeout.timer_reset_ms)
    return any(r.word_ms <= removed_ms <= r.low_ms for r in blamed)


def may_not_have_moved(inference: Inference) -> bool:
    """Tell whether what looks like a move of the coordinator, since the member was heard, may be none.

    Then the answers of the former coordinator, which were left out, were those of the coordinator.
    """
    resets = unheard_since(inference.member, inference.context.timer_resets)
    return any(reset.is_move and not reset.sure for reset in resets)


def had_left_before_what_may_be_no_move(inference: Inference) -> bool:
    """Tell whether a classic member had left, and only what may have been no move of the coordinator undid that.

    A coordinator that loads the group falls back to its last record, which still lists the member. Only brokers that
    are named by address may be one broker at two listeners.
    """
    member, own = inference.member, inference.member.member_id
    if member.in_kip848_group or not is_address(inference.context.broker or ""):
        return False
    left = [leave for leave in inference.replica.leaves if leave.cause is not Cause.REPLACED]
    left_ms = [leave.applied_ms for leave in left if leave.member.member_id == own]
    if not left_ms or (member.session_from_ms or member.joined_ms or 0) > left_ms[-1]:
        return False
    return not any(r.sure and r.may_load and r.may_come_after(left_ms[-1]) for r in inference.context.timer_resets)


def may_have_expired_in_a_hole(inference: Inference) -> bool:
    """Tell whether a member that seems to have missed a rebalance had expired before, unless the timers restarted.

    It is not sure that they did: nobody probed the coordinator, or it may only have answered at its other listener.
    """
    departure, context = inference.departure, inference.context
    sure = [reset for reset in context.timer_resets if reset.sure]
    if isinstance(inference.timeout, SessionExpired) or len(sure) == len(context.timer_resets):
        return False
    end_ms = latest_deadline_ms(departure, context._replace(timer_resets=sure))
    return end_ms is not None and end_ms < inference.timeout.deadline_ms - context.thresholds.grace_ms


def may_have_waited_unseen(inference: Inference) -> bool:
    """Tell whether a classic member may have been silent because it waited in a join phase of which no line was seen.

    It did not if it was silent for too long before, while the group was seen stable in the same generation.
    """
    member, stable_ms = inference.member, inference.departure.phase.began_after_ms
    since_ms = member.session_from_ms or member.joined_ms or 0
    same = not since_ms < (inference.replica.unseen_generation_ms or 0) <= stable_ms
    if member.in_kip848_group or (same and stable_ms > since_ms + _longest_silence_ms(member, inference.context)):
        return False
    return join_lines.may_be_missing(inference.replica, since_ms, inference.context)


DOUBTS: tuple[Callable[[Inference], bool], ...] = (
    joined_a_later_generation,
    dates_are_too_coarse,
    lines_were_behind,
    dates_are_doubtful,
    rebalance_began_unseen,
    heartbeats_are_filtered_out,
    request_may_have_been_pending,
    expired_while_group_was_stable,
    may_have_left_unseen,
    may_have_left_without_a_line,
    coordinator_may_have_died_before_its_line,
    may_not_have_moved,
    had_left_before_what_may_be_no_move,
    may_have_expired_in_a_hole,
    may_have_waited_unseen,
)
"""One of them is enough, so their order decides nothing; those that cost least come first."""


def cause_is_uncertain(inference: Inference) -> bool:
    """Tell whether a missing line may explain the removal better than the timeout that was inferred."""
    return any(doubt(inference) for doubt in DOUBTS)


def _outlived_its_session(inference: Inference) -> bool:
    """Tell whether a member without a seen heartbeat was removed later than its session ended.

    The timeout is believed only if the session ended right at the removal, or as the rebalance began, and if every
    recent removal has an explanation.
    """
    departure, context = inference.departure, inference.context
    alone, unexplained = departure.member.in_kip848_group, _unexplained_recently(inference)
    if any(name in inference.replica.pending for name in departure.phase.unjoined) and not unexplained:
        return False  # the phase waited for a pending member (79), however long before its end the session had ended
    if not alone and (unexplained or _expired_long_before(departure, context)):
        return True
    if isinstance(inference.timeout, SessionExpired) and _expired_in_a_rebalance(departure, context):
        return False
    waits_for_others = not alone and departure.successor is None  # a replacement does not wait for the phase's end
    last_ms = inference.together.once(_last_end_ms) if waits_for_others else latest_deadline_ms(departure, context) or 0
    return departure.removed_ms > last_ms + context.thresholds.grace_ms


def _last_end_ms(together: Together) -> int:
    """Return the latest instant at which a session of any of the members can have ended."""
    return max((latest_deadline_ms(other, together.context) or 0 for other in together.departures), default=0)


def _lost_lines_recently(inference: Inference) -> bool:
    """Tell whether lines were lost recently: a blind window is known, or an earlier removal had no explanation."""
    since_ms = inference.departure.phase.began_after_ms - RECENT_MS
    return _unexplained_recently(inference) or may_miss_lines(
        inference.context.blind, since_ms, inference.departure.gone_ms
    )


def _unexplained_recently(inference: Inference) -> bool:
    unexplained_ms = inference.replica.unexplained_ms
    return unexplained_ms is not None and unexplained_ms >= inference.departure.phase.began_after_ms - RECENT_MS


def _expired_long_before(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the session seems to have ended long before the first sign of the rebalance that it began."""
    phase_ms, end_ms = departure.phase.started_ms, latest_deadline_ms(departure, context)
    return (
        phase_ms is not None
        and end_ms is not None
        and end_ms < phase_ms - _longest_silence_ms(departure.member, context)
    )


def _expired_in_a_rebalance(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the session ended while the group was in a join phase: the removal shows only at the phase's end."""
    phase_ms, end_ms = departure.phase.started_ms, latest_deadline_ms(departure, context) or 0
    return (
        not departure.member.in_kip848_group
        and phase_ms is not None
        and end_ms >= phase_ms - context.thresholds.grace_ms
    )


def _earliest_leave_ms(inference: Inference) -> int:
    """Return the earliest instant at which the member can have left.

    A classic group shows a leave only with its next generation. A KIP-848 group shows it at once.
    """
    if inference.member.in_kip848_group:
        return inference.departure.removed_ms - inference.context.thresholds.grace_ms
    return inference.departure.phase.began_after_ms


def _longest_silence_ms(member: Member, context: JudgementContext) -> int:
    """Return how long a living member can be silent.

    That is the longer of one and a half heartbeat intervals and a third of the session timeout, but at most the session
    timeout. If no interval is known it is the session timeout.
    """
    timeout_ms = session_timeout_ms(member, context) or LONGEST_SESSION_MS
    intervals_ms = [member.heartbeat_interval_ms]
    if member.last_heartbeat_ms is not None and member.previous_heartbeat_ms is not None:
        intervals_ms.append(member.last_heartbeat_ms - member.previous_heartbeat_ms)
    known = [interval_ms for interval_ms in intervals_ms if interval_ms]
    return min(timeout_ms, max(max(known) * 3 // 2, timeout_ms // 3)) if known else timeout_ms

"""A static member that is gone and has a successor: it was replaced, or had been removed before that."""

from coordinator_model.brokers.timer_reset import PAUSED_AFTER_MS
from coordinator_model.client import who
from coordinator_model.events import JoinAnswered
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS, phase_limit_ms
from coordinator_model.replica.removals.removal_instant import ends, may_have_begun
from coordinator_model.replica.removals.sync_timeout import sync_deadline_ms
from coordinator_model.replica.removals.together import Together
from coordinator_model.replica.session_timer import (
    due_while_paused,
    earliest_load_ms,
    gone_by_ms,
    moves_since_heard,
    session_timeout_ms,
    when_awake_ms,
)


def had_gone(replica: GroupReplica, departure: Departure, together: Together) -> bool:
    """Tell whether a static member had been removed before its successor came."""
    return _had_expired(replica, departure, together) or _had_missed_its_sync(departure, together)


def _had_expired(replica: GroupReplica, departure: Departure, together: Together) -> bool:
    """Tell whether a static member's session had ended before its successor came.

    A replacement starts no rebalance. If a rebalance began that no request is seen to have started, the end of a
    session started it: that of the member whose session must have ended first.
    """
    member, removed_ms = departure.member, departure.removed_ms
    if member.fenced_ms is not None and member.fenced_ms < removed_ms:
        return False  # its JoinGroup was pending: such a member does not expire
    if _is_in_its_first_session(departure, together.context):
        return False
    first_ms, last_ms = ends(together.spans.of(departure))
    if last_ms <= removed_ms and not _joined_as_coordinator_woke(departure, together):
        return True
    # The coordinator that showed the removal had answered before that it does not know the member (25).
    if (gone_by_ms(member, together.context) or removed_ms) < removed_ms:
        return not _is_reported(replica, departure)
    if any(end_ms < last_ms for other, end_ms in together.once(_first_starters) if other != id(departure)):
        return False  # sessions of equal length that began with one load end at one instant
    return _began_the_phase(departure, together, first_ms)


def _had_missed_its_sync(departure: Departure, together: Together) -> bool:
    """Tell whether a static member was removed because it had joined and not synced, before its successor came.

    That removal began the phase (``GroupMetadataManager.expirePendingSync``), so nothing shows that the group was
    stable after it, and no other cause of the phase. The member may have died while its SyncGroup waited for the
    leader's: then it had synced, though the SyncGroup has no line. So it has to have been heard since it joined, and
    nobody may have missed the sync who has no successor: that may have been the leader.
    """
    member, phase, sync_ms = departure.member, departure.phase, sync_deadline_ms(departure, together.context)
    if sync_ms is None or (member.last_heartbeat_ms or 0) <= (member.timer_reset_ms or 0):
        return False
    gone = (other for other in together.departures if other is not departure and other.successor is None)
    if any(other.member.awaiting_sync for other in gone):
        return False
    ran_ms = when_awake_ms(sync_ms, together.context)
    if departure.removed_ms <= ran_ms + EARLY_MS or phase.began_after_ms > ran_ms + LATE_MS:
        return False
    if any(end_ms < sync_ms for other, end_ms in together.once(_first_starters) if other != id(departure)):
        return False
    return phase.started is not None and (not phase.started.by or phase.started.by in together.once(_successors))


def _joined_as_coordinator_woke(departure: Departure, together: Together) -> bool:
    """Tell whether the successor joined a phase as the coordinator woke from a pause in which the session was due.

    The coordinator handles the request and runs the timer at the same time, and either may be first. If the phase had
    begun before the session was due, nothing shows which of them was first.
    """
    paused, start = _due_and_awake_ms(departure, together), departure.phase.started
    if paused is None:
        return False
    due_ms, awake_ms = paused
    began = start is not None and start.at_ms < due_ms
    began = began or any(d != id(departure) and end_ms < due_ms for d, end_ms in together.once(_first_starters))
    return began and departure.removed_ms <= awake_ms + EARLY_MS


def _due_and_awake_ms(departure: Departure, together: Together) -> tuple[int, int] | None:
    """Return when a session was due in a pause, and when its coordinator woke; None: it was not due in one.

    A short gap in its lines cannot be told from a busy coordinator, but no line shows that the timers ran in it.
    """
    paused, (gap_from_ms, gap_to_ms) = due_while_paused(departure, together.context), together.context.last_gap_ms
    if paused is not None:
        return paused[1], paused[0].woke_ms or 0
    due_ms = ends(together.spans.of(departure))[1]
    return (due_ms, gap_to_ms) if gap_from_ms + PAUSED_AFTER_MS <= due_ms < gap_to_ms else None


def _first_starters(together: Together) -> list[tuple[int, int]]:
    """Return the two departures that can have begun the phase with the end of a session and expired first.

    Each is given by its ``id``, with the latest instant at which its session can have ended.
    """
    spans = [(id(d), span) for d in together.departures if (span := together.spans.of(d))]
    starters = [(other, ends(span)[1]) for other, span in spans if may_have_begun(together.phase, span)]
    return sorted(starters, key=lambda starter: starter[1])[:2]


def may_have_expired(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a session that began with a move of the coordinator may have ended before the successor came.

    The new coordinator may have loaded the group a little before the deposed one's last answer.
    """
    member, timeout_ms = departure.member, session_timeout_ms(departure.member, context) or 0
    moves, fenced_ms = moves_since_heard(member, context), member.fenced_ms
    if _is_in_its_first_session(departure, context):
        return False
    if fenced_ms is not None and fenced_ms < departure.removed_ms:
        # The 82 is the deposed coordinator's and says nothing about the next one, unless another began the phase there.
        start = departure.phase.started
        by_another = start is not None and bool(start.by) and start.by != departure.successor
        moves = [] if by_another else [move for move in moves if move.low_ms >= fenced_ms]
    return any(earliest_load_ms(move, departure) + timeout_ms <= departure.removed_ms for move in moves)


def _is_in_its_first_session(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a downgrade from KIP-848 began the phase, and the member's session cannot have ended since.

    The downgrade restarts the session timers of all members (``GroupMetadataManager.convertToClassicGroup``). Whoever
    wrote its record had the member, and so has a coordinator that loads the log later.
    """
    downgraded_ms, session_from_ms = departure.phase.downgraded_ms, departure.member.session_from_ms or 0
    timeout_ms = session_timeout_ms(departure.member, context) or 0
    if downgraded_ms is None or downgraded_ms > session_from_ms:
        return False
    return departure.removed_ms < session_from_ms + timeout_ms


def inherits_the_lead(replica: GroupReplica, event: JoinAnswered, old: Member, context: JudgementContext) -> bool:
    """Tell whether a successor leads because the member that it replaced did: that member's session had not ended.

    If the leader is removed, another member becomes the leader (``ClassicGroup.remove``), and stays it if it joins the
    next generation. So there has to be another member, and all others of the last generation have to be in the next.
    A static one is in it even if it has not joined: then another member is elected.
    """
    others = replica.recorded.keys() - {old.member_id}
    led = replica.recorded_leader == old.member_id and replica.recorded_generation == event.generation - 1
    stayed = bool(others) and others <= {member_id for member_id, _, _ in event.members}
    if not (led and stayed and event.leader == event.member_id):
        return False
    kept = any(replica.recorded[member_id].instance_id is not None for member_id in others)
    return not kept or _ended_before_its_timeout(replica, context)


def was_rolled_back(departure: Departure) -> bool:
    """Tell whether a member was answered 82 since it was last heard, and no successor was seen.

    Then another member had its instance id for a while, in a replacement that was reverted because its write timed out
    (``GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin``). Which of the two sessions ended is not
    known.
    """
    member = departure.member
    fenced = member.fenced_ms is not None and member.fenced_ms >= (member.session_from_ms or 0)
    return fenced and departure.successor is None


def _ended_before_its_timeout(replica: GroupReplica, context: JudgementContext) -> bool:
    """Tell whether the join phase that has just ended was certainly shorter than its timeout: everybody had joined."""
    phase, ended_ms = replica.phase, replica.generation_since_ms
    limit_ms = phase_limit_ms(replica, phase, ended_ms, context)
    return limit_ms is not None and ended_ms < phase.began_after_ms + limit_ms - EARLY_MS


def _began_the_phase(departure: Departure, together: Together, first_end_ms: int) -> bool:
    """Tell whether the phase can have begun with the end of this member's session.

    It can if nobody else is seen to have begun it, and if nothing restarted the session late enough for the successor
    to find the member still there. The JoinGroup of a successor, this member's or another's, begins no phase in a
    Stable group, but it does in one that is in CompletingRebalance.
    """
    start = departure.phase.started
    if start is None or first_end_ms > start.at_ms + EARLY_MS:
        return False
    touched_ms = max(departure.touches_ms, default=0)
    if touched_ms + (session_timeout_ms(departure.member, together.context) or 0) > departure.removed_ms + EARLY_MS:
        return False
    return not start.by or (start.by in together.once(_successors) and not departure.member.awaiting_sync)


def _successors(together: Together) -> set[str | None]:
    return {other.successor for other in together.departures}


def _is_reported(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether another removal of the client is reported since it was last heard.

    That removal was not in the log: a coordinator that loaded the log had the member again.
    """
    name, heard_ms = who(departure.member), departure.member.session_from_ms or 0
    return any(one.client == name and heard_ms < one.at_ms < departure.removed_ms for one in replica.known_violations)

"""Cause: the member did not rejoin, and the join phase ended by its timeout, as its start and its limit show."""

from coordinator_model.replica.removals.case import Answer, Case, Missed, NotMissed
from coordinator_model.replica.removals.departure import STALL_MS, Departure
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS, ROUNDED_MS
from coordinator_model.replica.removals.join_phase import was_disturbed
from coordinator_model.replica.removals.leaves import TRUNCATED_MS
from coordinator_model.replica.removals.phase_timeout import possible_ends_ms
from coordinator_model.replica.removals.sync_timeout import first_sync_deadline_ms
from coordinator_model.replica.removals.together import Together
from coordinator_model.replica.session_timer import loaded_by_ms, moves_since_heard, session_timeout_ms
from coordinator_model.states import Cause


def phase_was_extended(case: Case) -> Answer:
    """Answer for a phase that went on after its timeout: at the timeout it dropped all that had not rejoined.

    If nobody has rejoined by the timeout and there are static members, the coordinator drops the dynamic members and
    waits once more for the static ones. It answers nobody (``GroupMetadataManager.completeClassicGroupJoin``). Every
    JoinGroup of the generation then arrives after the timeout. It looks the same if the answers of a generation in
    between were lost.
    """
    end_ms = case.together.once(_first_end_ms)
    if end_ms is None or not case.together.once(_outlasted_its_timeout):
        return None
    # The phase's end restarts only the timers of members that had joined.
    had_joined = (case.member.timer_reset_ms or 0) >= end_ms
    return Missed(end_ms) if case.own_latest_end_ms > end_ms + EARLY_MS and not had_joined else NotMissed()


def not_rejoined(case: Case) -> Answer:
    """Answer for a phase that ended by its timeout, so it had waited for somebody until then.

    It waited for the members whose session may have lasted until then, and for one that left or joined just then, or
    else for the dropped member that expired last. A member that had expired earlier did not miss the phase.
    """
    end_ms = case.together.once(_first_end_ms)
    if not (_waited_to_its_timeout(case, end_ms) or case.together.once(timed_out)):
        return None
    if _expired_since_the_load(case):
        return NotMissed()
    own_ms = case.together.latest_ends_ms[id(case.departure)]
    if end_ms is not None and _ended_with_the_session(own_ms, case.removed_ms, end_ms):
        return NotMissed()
    if own_ms == end_ms and _began_with_the_session(case):
        return NotMissed()
    waited = case.together.once(_stayed) or _left_at_the_end(case) or case.together.once(_joined_at_the_end)
    last_ms = case.removed_ms if waited else case.together.once(_last_session_end_ms)  # for those it waited in any case
    return Missed(case.removed_ms) if own_ms >= min(case.removed_ms - LATE_MS, last_ms) else NotMissed()


def _began_with_the_session(case: Case) -> bool:
    """Tell whether a refused SyncGroup began the phase: before the phase's timer, it had started the session timer.

    Of two timers that are due at once, the one that was started first runs first
    (``GroupMetadataManager.classicGroupSyncToClassicGroup``, ``prepareRebalance``).
    """
    started_ms, timeout_ms = case.departure.phase.started_ms, session_timeout_ms(case.member, case.context)
    began_ms = case.own_latest_end_ms - (timeout_ms or 0)
    return started_ms is not None and began_ms == started_ms == case.member.timer_reset_ms


def _left_at_the_end(case: Case) -> bool:
    """Tell whether a member left as the phase ended: it was still in the group, so the phase had waited for it."""
    left_ms = (leave.applied_ms for leave in case.replica.leaves if leave.cause is not Cause.REPLACED)
    return any(abs(at_ms - case.removed_ms) <= TRUNCATED_MS for at_ms in left_ms)


def _joined_at_the_end(together: Together) -> bool:
    """Tell whether a JoinGroup arrived as the phase ended: the phase had waited for its member."""
    last_ms = together.phase.joins.last_ms
    return last_ms is not None and abs(together.removed_ms - last_ms) <= TRUNCATED_MS


def _expired_since_the_load(case: Case) -> bool:
    """Tell whether the session surely ended in the phase, because it began before the phase did and is not longer.

    A new coordinator starts all session timers as it loads the group, and then the phase with the first JoinGroup.
    """
    departure, timeout_ms = case.departure, session_timeout_ms(case.member, case.context)
    moves = [r for r in moves_since_heard(departure.member, case.context) if r.broker == departure.answered_by]
    if not moves or timeout_ms is None:
        return False
    touched_ms = max([case.member.session_from_ms or 0, *departure.touches_ms])
    return max(loaded_by_ms(moves[0], departure), touched_ms) + timeout_ms <= case.removed_ms


def _stayed(together: Together) -> bool:
    """Tell whether a member for which the phase waited, and that is not seen to have joined, stayed in the group."""
    return bool(set(together.phase.unjoined) - {d.member.instance_id for d in together.dropped})


def _last_session_end_ms(together: Together) -> int:
    return max(together.latest_ends_ms.values())


def _ends_ms(together: Together) -> list[int]:
    """Return when the phase's timeout ran out, for each possible start."""
    return possible_ends_ms(together.phase, _session_ends_ms(together), together.context)


def _first_end_ms(together: Together) -> int | None:
    """Return when the phase's timeout ran out, by the earliest of its possible starts; None: no start is known."""
    return min(together.once(_ends_ms), default=None)


def timed_out(together: Together) -> bool:
    """Tell whether the phase ended by its timeout."""
    return any(-EARLY_MS <= together.removed_ms - end_ms <= LATE_MS for end_ms in together.once(_ends_ms))


def may_show_alive_until_ms(departure: Departure, together: Together) -> int | None:
    """Return until when a line may still come that shows that a member had missed the phase; None: none may come.

    The phase ended by its timeout, so it had waited for somebody until then. But the sessions of all dropped members
    seem to have ended before. A heartbeat behind a stalled write explains that: it came in time and restarted its
    member's session, but has a line only once it is answered 15.
    """
    dynamic = departure.member.instance_id is None and departure.successor is None
    if not dynamic or not together.once(_waited_for_nobody_known):
        return None
    return together.latest_ends_ms.get(id(departure), 0) + STALL_MS + together.context.thresholds.grace_ms


def _waited_for_nobody_known(together: Together) -> bool:
    """Tell whether the phase ended by its timeout, though no member is known for which it may have waited."""
    last_ms = max(together.latest_ends_ms.values(), default=0)
    waited = together.once(_stayed) or together.once(_joined_at_the_end)
    return 0 < last_ms < together.removed_ms - LATE_MS and not waited and together.once(timed_out)


def _session_ends_ms(together: Together) -> list[int]:
    """Return the ends of sessions and the sync timeouts that can have begun the phase, of replaced members too."""
    ends_ms, gone = together.latest_ends_ms, together.ended_before
    syncs_ms = (first_sync_deadline_ms(together, d) for d in together.dropped if id(d) not in gone)
    replaced_ms = (together.latest_end_ms(d) for d in together.departures if d.successor is not None)
    known = (at_ms for at_ms in (*syncs_ms, *replaced_ms) if at_ms is not None)
    return [*(at_ms for other, at_ms in ends_ms.items() if other not in gone), *known]


def _outlasted_its_timeout(together: Together) -> bool:
    """Tell whether the phase certainly went on after its timeout, and under the same coordinator."""
    phase, start, joins = together.phase, together.phase.started, together.phase.joins
    if start is None:
        return False
    ends_ms = together.once(_ends_ms)
    if not start.by and len(ends_ms) > 1:
        ends_ms = ends_ms[1:]  # not from its first sign: the end of a session began it earlier
    last_ms = max(ends_ms, default=together.removed_ms)
    if last_ms + LATE_MS >= together.removed_ms:
        return False
    joined_in_time = joins.first_ms is not None and joins.first_ms <= last_ms
    if not joins.skipped and (joined_in_time or not phase.static_in):
        return False
    return not was_disturbed(together.context, start.at_ms)


def _waited_to_its_timeout(case: Case, end_ms: int | None) -> bool:
    """Tell whether the phase waited until its timeout, for a member that had neither joined nor expired.

    Otherwise the last JoinGroup or the last end of a session would have ended it earlier. A busy coordinator runs its
    timers late, by a grace at most. ``end_ms``: when the phase's timeout was due.
    """
    if end_ms is None:
        return False
    removed_ms, grace_ms = case.removed_ms, case.context.thresholds.grace_ms
    others_ms = case.together.first_and_last_end_beside_ms(case.departure)
    last_ms, sessions_ms = case.departure.phase.joins.last_ms, [case.session_end_ms, *others_ms]
    if last_ms is not None and all(sessions_ms):
        last_ms = max(last_ms, *sessions_ms)
        if end_ms - EARLY_MS <= removed_ms and last_ms + grace_ms < removed_ms:
            return True
    if not case.session_end_ms + LATE_MS < removed_ms < case.together.latest_ends_ms[id(case.departure)]:
        return False
    return end_ms <= removed_ms <= end_ms + grace_ms  # it may have been alive: a late phase timer explains more


def _ended_with_the_session(session_ms: int, removed_ms: int, due_ms: int) -> bool:
    """Tell whether a session ended shortly before the phase's timeout was due, as the earlier of two timers.

    If the phase ended just as its timeout was due, timers ran in time, and the instants are exact but for rounding.
    """
    nearer = session_ms <= removed_ms < due_ms and removed_ms - session_ms < due_ms - removed_ms
    tolerance_ms = ROUNDED_MS if abs(removed_ms - due_ms) <= ROUNDED_MS else EARLY_MS
    return removed_ms - LATE_MS <= session_ms and (nearer or session_ms < due_ms - tolerance_ms)

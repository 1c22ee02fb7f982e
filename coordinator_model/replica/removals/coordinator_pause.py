"""Cause: a timer that ran out while the coordinator was paused.

When the coordinator wakes, it runs the timers that came due in the order in which they were due.
"""

from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.removals.case import Answer, Case, Missed, NotMissed
from coordinator_model.replica.removals.ended_phase import LATE_MS
from coordinator_model.replica.removals.phase_timeout import phase_due_ms
from coordinator_model.replica.removals.removal_instant import was_unknown
from coordinator_model.replica.removals.revocation import own_timers_ms
from coordinator_model.replica.removals.sync_timeout import sync_deadline_ms
from coordinator_model.replica.removals.together import Together
from coordinator_model.replica.session_timer import due_while_paused, gone_by_ms, is_written_at_once


def due_in_a_pause(case: Case) -> Answer:
    """Answer for a session that was due in a pause: of the member's timers, the one that was due first removed it."""
    paused = due_while_paused(case.departure, case.context)
    if paused is None:
        return None
    pause, session_due_ms = paused
    if (gone_by_ms(case.member, case.context) or session_due_ms) < pause.low_ms:
        return None  # it was gone before the pause
    rebalance_due_ms = _rebalance_due_ms(case, pause)
    if rebalance_due_ms is None or rebalance_due_ms >= session_due_ms:
        return NotMissed()
    delayed = pause.delays(rebalance_due_ms, written_at_once=is_written_at_once(case.departure))
    return Missed((pause.woke_ms or 0) if delayed else rebalance_due_ms)


def _rebalance_due_ms(case: Case, pause: TimerReset) -> int | None:
    """Return by when the member had to revoke, sync or rejoin; None: as far as is known, it did not have to."""
    departure, member = case.departure, case.member
    if member.in_kip848_group:
        return min(own_timers_ms(member, case.context), default=None)
    sync_ms = sync_deadline_ms(departure, case.context)
    stays = member.instance_id is not None or was_unknown(departure, case.context)
    if sync_ms is not None or stays or abs(case.removed_ms - (pause.woke_ms or 0)) > LATE_MS:
        return sync_ms
    return case.together.once(_phase_due_ms)


def _phase_due_ms(together: Together) -> int | None:
    return phase_due_ms(together.phase, together.latest_ends_ms.values(), together.context)

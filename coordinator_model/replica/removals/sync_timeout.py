"""Cause: the member joined and did not sync in time.

All such members of a generation are removed together (``GroupMetadataManager.expirePendingSync``).
"""

from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.removals.case import Answer, Case, Missed, NotMissed
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS
from coordinator_model.replica.removals.together import Together
from coordinator_model.replica.session_timer import may_have_loaded_since, when_awake_ms


def not_synced(case: Case) -> Answer:
    """Answer for a member whose sync was due by its removal: it missed the sync, unless its session ended earlier."""
    sync_ms = first_sync_deadline_ms(case.together, case.departure)
    if sync_ms is None:
        return None
    lived_on = case.own_latest_end_ms > case.removed_ms + EARLY_MS  # e.g. heard behind a stalled write
    missed = sync_ms < case.session_end_ms or (sync_ms == case.session_end_ms and lived_on)
    return Missed(when_awake_ms(sync_ms, case.context)) if missed else NotMissed()


def first_sync_deadline_ms(together: Together, departure: Departure) -> int | None:
    """Return by when a member had to sync; None too if another's session was due first, and so began a join phase."""
    sync_ms = sync_deadline_ms(departure, together.context)
    if sync_ms is None:
        return None
    other_ms = together.first_known_due_beside_ms(departure)
    return None if other_ms is not None and other_ms < sync_ms - EARLY_MS else sync_ms


def sync_deadline_ms(departure: Departure, context: JudgementContext) -> int | None:
    """Return by when a member that joined had to sync; None if it has, or another join phase began before that.

    A coordinator that loads the group does not know which members still had to sync, so it removes none for that.
    """
    member, limit_ms, started_ms = departure.member, departure.sync_timeout_ms, departure.phase.started_ms
    if not member.awaiting_sync or member.timer_reset_ms is None or limit_ms is None:
        return None
    deadline_ms = member.timer_reset_ms + limit_ms
    if may_have_loaded_since(member.timer_reset_ms, context):
        return None
    if started_ms is not None and started_ms < deadline_ms - EARLY_MS:
        return None
    ran_ms = when_awake_ms(deadline_ms, context) + LATE_MS
    if max(member.last_heartbeat_ms or 0, departure.phase.began_after_ms) > ran_ms:
        return None  # after the timer had run it was heard, or the group was stable still: it had synced
    return deadline_ms if deadline_ms <= departure.removed_ms + EARLY_MS else None

"""What the end of a join phase proves of those whom it lost: that it ended by its timeout, or could not have."""

from collections.abc import Collection, Iterable

from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.states import Cause


def sync_deadline_ms(departure: Departure, context: JudgementContext) -> int | None:
    """Return by when a member that joined had to sync, unless it did or another join phase began before.

    A coordinator that loads the group knows nothing of those who had yet to sync: whom it removes it does not for that.
    """
    member, limit_ms = departure.member, departure.sync_timeout_ms
    if not member.awaiting_sync or member.timer_reset_ms is None or limit_ms is None:
        return None
    deadline_ms = member.timer_reset_ms + limit_ms
    if any(reset.may_load and reset.low_ms >= member.timer_reset_ms for reset in context.timer_resets):
        return None
    if departure.phase.started_ms is not None and departure.phase.started_ms < deadline_ms - EARLY_MS:
        return None
    if (member.last_heartbeat_ms or 0) > deadline_ms + LATE_MS:
        return None  # it had synced: who has not by then is removed at once
    return deadline_ms if deadline_ms <= departure.removed_ms + EARLY_MS else None


def timed_out(departure: Departure, deadlines_ms: Iterable[int], context: JudgementContext) -> bool:
    """Tell whether the phase ended by its timeout; ``deadlines_ms`` are of the sessions of those whom it lost."""
    late_ms = [departure.removed_ms - end_ms for end_ms in _ends_ms(departure, deadlines_ms, context)]
    return any(-EARLY_MS <= ms <= LATE_MS for ms in late_ms)


def waited_in_vain(
    departure: Departure, end_ms: int | None, sessions_ms: Collection[int], context: JudgementContext
) -> bool:
    """Tell whether the phase went on to its timeout though all had joined or expired: for one who had done neither.

    Else the last join or the last end of a session would have ended it. ``end_ms``: when its timeout was due.
    ``sessions_ms``: when the member's own would have ended, and those of the others whom the phase lost had at the
    latest. A busy coordinator runs its timers late; a grace is enough for that.
    """
    if end_ms is None or not departure.phase.last_join_ms or not all(sessions_ms):
        return False
    last_ms = max(departure.phase.last_join_ms, *sessions_ms)
    return end_ms - EARLY_MS <= departure.removed_ms and last_ms + context.thresholds.grace_ms < departure.removed_ms


def ended_with(session_ms: int, removed_ms: int, due_ms: int) -> bool:
    """Tell whether a phase ended with a session's end rather than by its timeout, which was due a moment later."""
    nearer = session_ms <= removed_ms < due_ms and removed_ms - session_ms < due_ms - removed_ms
    return removed_ms - LATE_MS <= session_ms and (nearer or session_ms < due_ms - EARLY_MS)


def outlasted(departure: Departure, deadlines_ms: Iterable[int], context: JudgementContext) -> bool:
    """Tell whether the phase went on after its timeout: that found nobody rejoined, and static members still in.

    So it seems, too, where the answers of a generation in between were lost: its own phase ended by then.
    The coordinator then drops the dynamic ones, waits for the others once more, and announces nothing
    (``GroupMetadataManager.completeClassicGroupJoin``). So who joined the generation asked to only after that.
    """
    limit_ms, started_ms = departure.phase.limit_ms, departure.phase.started_ms
    ends_ms = _ends_ms(departure, deadlines_ms, context)
    if departure.phase.started_by == "" and len(ends_ms) > 1:
        ends_ms = ends_ms[1:]  # nobody's join or leave began it, so a session's end did, before its first sign
    if started_ms is None or limit_ms is None or not ends_ms or max(ends_ms) + LATE_MS >= departure.removed_ms:
        return False
    skipped = departure.phase.first_join_ms == 0
    if not skipped and (
        not departure.phase.static_in or (departure.phase.first_join_ms or max(ends_ms) + 1) <= max(ends_ms)
    ):
        return False
    return not any(r.woke_ms is None and (r.high_ms is None or r.high_ms >= started_ms) for r in context.timer_resets)


def due_ms(departure: Departure, deadlines_ms: Iterable[int], context: JudgementContext) -> int | None:
    """Return when the phase had to end, by the earliest of its possible starts; None: no start is known."""
    return min(_ends_ms(departure, deadlines_ms, context), default=None)


def _ends_ms(departure: Departure, deadlines_ms: Iterable[int], context: JudgementContext) -> list[int]:
    """Return its timeout after each start that it can have had: its first sign, or an end of a session before that.

    One that was on as another broker took over began there with the first that joined.
    """
    limit_ms = departure.phase.limit_ms
    if departure.phase.started_ms is None or limit_ms is None:
        return []
    starts = [(departure.phase.started_ms, _own_limit_ms(departure) or limit_ms)]
    ends_ms = (at_ms for at_ms in deadlines_ms if departure.phase.after_ms <= at_ms < departure.phase.started_ms)
    starts += [(at_ms, limit_ms) for at_ms in ends_ms]
    moved_ms = max((r.low_ms for r in context.timer_resets if r.cause is Cause.COORDINATOR_MOVED), default=0)
    if departure.phase.started_ms < moved_ms:
        starts.append((departure.phase.first_join_ms or 0, limit_ms))
    return [at_ms + lasts_ms for at_ms, lasts_ms in starts if at_ms >= moved_ms]


def _own_limit_ms(departure: Departure) -> int | None:
    """Return how long the phase could last if it began with its first sign: that member's timeout counts."""
    limit_ms = departure.phase.limit_ms
    return None if limit_ms is None else max(limit_ms, departure.phase.starter_timeout_ms or 0)


def began_with(departure: Departure, first_deadline_ms: int) -> bool:
    """Tell whether the phase can have begun with the end of this member's session: nobody else is seen to have.

    Its successor would have begun none in a stable group, but in one that waited for SyncGroups it does.
    """
    started_ms, by = departure.phase.started_ms, departure.phase.started_by
    unreported = by == "" or (by == departure.successor and not departure.member.awaiting_sync)
    return started_ms is not None and unreported and first_deadline_ms <= started_ms + EARLY_MS


def may_have_timed_out(departure: Departure) -> bool:
    """Tell whether the phase can have lasted its whole timeout, also with a timer that ran late."""
    limit_ms = _own_limit_ms(departure)
    known = departure.phase.started_ms is not None and limit_ms is not None
    return known and departure.removed_ms - departure.phase.after_ms >= (limit_ms or 0)


def too_young(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the phase had not lasted long enough, however early it began, to end by its timeout."""
    limit_ms = _own_limit_ms(departure)
    if departure.phase.started_ms is None or limit_ms is None:
        return False
    return departure.removed_ms - departure.phase.after_ms < limit_ms - context.thresholds.grace_ms

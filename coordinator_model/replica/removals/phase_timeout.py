"""When the timeout of an ended join phase was due, for each possible start of the phase."""

from collections.abc import Iterable

from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS
from coordinator_model.replica.removals.phases import EndedPhase
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.states import Cause


def phase_due_ms(departure: Departure, session_ends_ms: Iterable[int], context: JudgementContext) -> int | None:
    """Return when the timeout of the phase was due, by the earliest of its possible starts; None: no start is known."""
    return min(possible_ends_ms(departure.phase, session_ends_ms, context), default=None)


def timed_out(departure: Departure, session_ends_ms: Iterable[int], context: JudgementContext) -> bool:
    """Tell whether the phase ended by its timeout; ``session_ends_ms``: the sessions of the members that it lost."""
    ends_ms = possible_ends_ms(departure.phase, session_ends_ms, context)
    return any(-EARLY_MS <= departure.removed_ms - end_ms <= LATE_MS for end_ms in ends_ms)


def may_have_timed_out(departure: Departure) -> bool:
    """Tell whether the phase can have lasted its whole timeout, or longer if a timer ran late."""
    limit_ms = _limit_with_starter_ms(departure.phase)
    known = departure.phase.started_ms is not None and limit_ms is not None
    return known and departure.removed_ms - departure.phase.after_ms >= (limit_ms or 0)


def too_young(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the phase was too short to end by its timeout, even from its earliest possible start."""
    limit_ms = _limit_with_starter_ms(departure.phase)
    if departure.phase.started_ms is None or limit_ms is None:
        return False
    return departure.removed_ms - departure.phase.after_ms < limit_ms - context.thresholds.grace_ms


def possible_ends_ms(phase: EndedPhase, session_ends_ms: Iterable[int], context: JudgementContext) -> list[int]:
    """Return when the phase's timeout was due, for each possible start: its first sign, or an earlier end of a session.

    If another broker took over during the phase, the phase began there with the first JoinGroup. The last answer of
    the broker before it is a sign of that broker's phase only.
    """
    limit_ms = phase.limit_ms
    if phase.started_ms is None or limit_ms is None:
        return []
    starts = [(phase.started_ms, _limit_with_starter_ms(phase) or limit_ms)]
    starts += [(at_ms, limit_ms) for at_ms in session_ends_ms if phase.after_ms <= at_ms < phase.started_ms]
    moved_ms = max((r.low_ms for r in context.timer_resets if r.cause is Cause.COORDINATOR_MOVED), default=0)
    if phase.started_ms <= moved_ms:
        starts.append((phase.first_join_ms or 0, limit_ms))
    return [at_ms + lasts_ms for at_ms, lasts_ms in starts if at_ms > moved_ms]


def _limit_with_starter_ms(phase: EndedPhase) -> int | None:
    """Return how long the phase could last if its first sign began it: then the timeout of that member counts."""
    return None if phase.limit_ms is None else max(phase.limit_ms, phase.starter_timeout_ms or 0)

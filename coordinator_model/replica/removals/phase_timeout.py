"""When the timeout of a join phase was due, for each possible start of the phase."""

from collections.abc import Iterable

from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.phases import EndedPhase
from coordinator_model.replica.session_timer import when_awake_ms


def phase_due_ms(phase: EndedPhase, session_ends_ms: Iterable[int], context: JudgementContext) -> int | None:
    """Return when the phase's timeout was due, by the earliest of its possible starts; None: no start is known."""
    return min(_possible_dues_ms(phase, session_ends_ms, context), default=None)


def may_have_timed_out(departure: Departure) -> bool:
    """Tell whether the phase can have lasted for its whole timeout or longer, from its earliest possible start."""
    longest_ms = _longest_ms(departure.phase)
    return longest_ms is not None and departure.removed_ms - departure.phase.began_after_ms >= longest_ms


def too_young(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the phase was too short to end by its timeout, even from its earliest possible start."""
    longest_ms = _longest_ms(departure.phase)
    if longest_ms is None or _may_have_begun_before_its_sign(departure):
        return False
    return departure.removed_ms - departure.phase.began_after_ms < longest_ms - context.thresholds.grace_ms


def _may_have_begun_before_its_sign(departure: Departure) -> bool:
    """Tell whether the phase may have begun one timeout before its end, and before its first sign.

    The JoinGroup that began it has no line if its client asked again. The timeout of the member whose JoinGroup was the
    first sign does not count then.
    """
    phase, removed_ms = departure.phase, departure.removed_ms
    began_ms = removed_ms - (phase.limit_ms or 0)
    return phase.began_after_ms <= began_ms < (phase.started_ms or 0)


def possible_ends_ms(phase: EndedPhase, session_ends_ms: Iterable[int], context: JudgementContext) -> list[int]:
    """Return when the phase's timeout ran out, for each possible start.

    If it was due while the coordinator was paused, it ran out when the coordinator woke.
    """
    dues_ms = _possible_dues_ms(phase, session_ends_ms, context)
    return [when_awake_ms(due_ms, context) for due_ms in dues_ms]


def _possible_dues_ms(phase: EndedPhase, session_ends_ms: Iterable[int], context: JudgementContext) -> list[int]:
    """Return when the phase's timeout was due, for each possible start: its first sign, or an earlier end of a session.

    If another broker took over during the phase, that broker's phase began with the first JoinGroup that it received.
    Signs from before the move belong to the deposed coordinator's phase. A JoinGroup that the new coordinator answered
    belongs to its own, though the deposed one may have gone on until after it. It may also come before the first sign:
    its line is written only when the phase ends.
    """
    start, limit_ms, first_ms = phase.started, phase.limit_ms, phase.joins.first_ms
    if start is None or limit_ms is None:
        return []
    starts = [(start.at_ms, max(limit_ms, start.timeout_ms or 0))]
    starts += [(at_ms, limit_ms) for at_ms in session_ends_ms if phase.began_after_ms <= at_ms < start.at_ms]
    moved_ms = max((r.low_ms for r in context.timer_resets if r.is_move), default=0)
    ends_ms = [at_ms + lasts_ms for at_ms, lasts_ms in starts if at_ms > moved_ms]
    ended_since = phase.ended is not None and phase.ended.at_ms > moved_ms
    if first_ms is not None and (first_ms > moved_ms or ended_since):
        ends_ms += [first_ms + limit_ms] if start.at_ms <= moved_ms or first_ms < start.at_ms else []
    return ends_ms


def _longest_ms(phase: EndedPhase) -> int | None:
    """Return how long the phase could last if its first sign began it: then its starter's timeout counts too.

    None: no sign was seen, or no timeout is known.
    """
    if phase.started is None or phase.limit_ms is None:
        return None
    return max(phase.limit_ms, phase.started.timeout_ms or 0)

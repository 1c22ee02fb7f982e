"""Removals that are judged together: what follows from all of them is computed once, not once for each.

A network partition may remove a thousand members at once, and each removal is judged with all the others in view.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import ROUNDED_MS, note_starter_timeout
from coordinator_model.replica.removals.phases import EndedPhase
from coordinator_model.replica.session_timer import Span, deadlines, due_while_paused

Result = TypeVar("Result")


def context_before(departure: Departure, context: JudgementContext) -> JudgementContext:
    """Return the context with the timer resets that can have come before a removal."""
    return context._replace(timer_resets=[r for r in context.timer_resets if may_precede(r, departure)])


def may_precede(reset: TimerReset, departure: Departure) -> bool:
    """Tell whether a timer reset can have come before a removal.

    A move of the coordinator away from the broker whose answer or whose record showed the removal cannot.
    """
    shown_by = departure.answered_by or departure.phase.written_by
    moved_away = reset.is_move and (shown_by not in ("", reset.broker) or _is_of_the_predecessor(departure, reset))
    low_ms = reset.low_ms if reset.since_ms is None else reset.since_ms
    return low_ms <= departure.removed_ms and not moved_away


def _is_of_the_predecessor(departure: Departure, move: TimerReset) -> bool:
    """Tell whether the removal in a KIP-848 group is newer than an answer 25 of the broker that has taken over.

    That broker would have written it by then. So its predecessor did, whose clock is ahead.
    """
    unknown_ms = departure.member.unknown_ms
    if unknown_ms is None or move.high_ms is None or not departure.member.in_kip848_group:
        return False
    by_the_next = move.word_ms < unknown_ms and move.high_ms <= unknown_ms
    return by_the_next and unknown_ms < departure.removed_ms - ROUNDED_MS


class Spans:
    """When the sessions of departed members can have ended, given some timer resets. Each is computed once."""

    def __init__(self, context: JudgementContext) -> None:
        self.context = context
        self._found: dict[int, list[Span]] = {}

    def of(self, departure: Departure) -> list[Span]:
        """Return the spans of a departure, by the timer resets that can have come before it."""
        if id(departure) not in self._found:
            self._found[id(departure)] = deadlines(departure, context_before(departure, self.context))
        return self._found[id(departure)]


class Together:
    """All removals that one generation showed. Those of one instant and one join phase share this object.

    ``once`` keeps the result of a function, so the result must not depend on which of these removals is judged.
    """

    def __init__(self, departures: list[Departure], one: Departure, spans: Spans) -> None:
        self.departures = departures
        self.generation = one.generation
        self.removed_ms = one.removed_ms
        self.phase = one.phase
        self.context = spans.context
        """The judgement context of all of them. The timer resets in it may have been chosen for this instant."""
        self.spans = spans
        self._results: dict[object, Any] = {}

    def once(self, function: Callable[["Together"], Result]) -> Result:
        """Return the result of a function of these removals. It is called once."""
        if function not in self._results:
            self._results[function] = function(self)
        result: Result = self._results[function]
        return result

    @cached_property
    def dropped(self) -> list[Departure]:
        """The departures at this instant, without replaced static members."""
        return [d for d in self.departures if d.removed_ms == self.removed_ms and d.successor is None]

    @cached_property
    def latest_ends_ms(self) -> dict[int, int]:
        """By ``id`` of each dropped departure: the latest instant at which its session can have ended; 0: not known."""
        return {id(d): self.latest_end_ms(d) or 0 for d in self.dropped}

    @cached_property
    def ended_before(self) -> set[int]:
        """The ``id`` of each dropped departure whose session had ended before the phase.

        Its member is not known to have been in the generation before the phase. So the session may have ended the phase
        that led to that generation.
        """
        absent = [id(d) for d in self.dropped if (d.member.generation or 0) < self.generation - 1]
        return {dropped for dropped in absent if self.latest_ends_ms[dropped] <= self.phase.began_after_ms}

    @cached_property
    def _in_order(self) -> list[tuple[int, int]]:
        """The latest ends, each with the ``id`` of its departure, earliest first."""
        return sorted((at_ms, dropped) for dropped, at_ms in self.latest_ends_ms.items())

    @cached_property
    def _dues_in_the_phase(self) -> list[tuple[int, int]]:
        """When the sessions of the dropped were due at the latest, each with the ``id`` of its departure, in order."""
        dropped = (d for d in self.dropped if id(d) not in self.ended_before and self.latest_ends_ms[id(d)])
        return sorted((self._latest_due_ms(d), id(d)) for d in dropped)

    def _latest_due_ms(self, departure: Departure) -> int:
        """Return when the latest end of a session was due: before the coordinator woke, if it was paused then."""
        paused = due_while_paused(departure, context_before(departure, self.context))
        return self.latest_ends_ms[id(departure)] if paused is None else paused[1]

    def latest_end_ms(self, departure: Departure) -> int | None:
        """Return the latest instant at which the session of a departed member can have ended; None: not known."""
        return max((last_ms for _, last_ms, _ in self.spans.of(departure)), default=None)

    def first_known_due_beside_ms(self, departure: Departure) -> int | None:
        """Return when the first of the others' sessions was due at the latest, without those before the phase.

        A coordinator that wakes from a pause runs the timers that came due in it in the order in which they were due.
        """
        return next((due_ms for due_ms, other in self._dues_in_the_phase[:2] if other != id(departure)), None)

    def first_and_last_end_beside_ms(self, departure: Departure) -> list[int]:
        """Return the earliest and the latest of the others' latest ends, 0 for one that is not known; empty: no others.

        Two from each end are enough: one of them is another's.
        """
        both = (self._in_order[:2], self._in_order[:-3:-1])
        found = [next((at_ms for at_ms, other in ends if other != id(departure)), None) for ends in both]
        return [at_ms for at_ms in found if at_ms is not None]


class Shared:
    """What the judgements of one call of ``judge_removals`` share. No event comes in between.

    Three things change during such a call:

    - A verdict is written into its departure (rule, cause, evidence, dates). Nothing here reads these. It may drop
      other departures, and never adds one. If their number has changed, they are looked up again.
    - ``note_starter`` notes the timeout of the member that began a phase, before the phase's first removal is judged,
      and drops all earlier results. No span depends on that timeout.
    - The replica may be reverted, and then has other members: ``judge_removals`` begins a new ``Shared``.
    """

    def __init__(self, replica: GroupReplica) -> None:
        self._replica = replica
        self._noted: dict[int, EndedPhase] = {}
        self._spans: list[Spans] = []
        self._look_up()

    def note_starter(self, phase: EndedPhase) -> None:
        """Note the timeout of the member whose JoinGroup began the phase, once for all removals in it."""
        if id(phase) not in self._noted:
            note_starter_timeout(self._replica, phase)
            self._noted[id(phase)] = phase
            self._together.clear()

    def of_member(self, departure: Departure) -> list[Departure]:
        """Return the other departures of the same member."""
        self._look_up_if_dropped()
        return [d for d in self._by_member[departure.member.member_id] if d is not departure]

    def together(self, departure: Departure, context: JudgementContext) -> Together:
        """Return the removals that a removal is judged with, given the timer resets in the context."""
        self._look_up_if_dropped()
        known = self._together[_key(departure)]
        found = next((t for t in known if t.context.timer_resets == context.timer_resets), None)
        if found is None:
            departures = known[0].departures if known else self._of_one_phase(departure)
            found = Together(departures, departure, self._spans_by(context))
            known.append(found)
        return found

    def _of_one_phase(self, departure: Departure) -> list[Departure]:
        same = self._by_generation[departure.generation]
        return same if departure.successor is not None else [d for d in same if _is_of_one_phase(d, departure)]

    def _spans_by(self, context: JudgementContext) -> Spans:
        found = next((spans for spans in self._spans if spans.context.timer_resets == context.timer_resets), None)
        if found is None:
            found = Spans(context)
            self._spans.append(found)
        return found

    def _look_up_if_dropped(self) -> None:
        if len(self._departures) != len(self._replica.departures):
            self._look_up()

    def _look_up(self) -> None:
        self._departures = list(self._replica.departures)
        self._together: defaultdict[tuple[object, ...], list[Together]] = defaultdict(list)
        self._by_generation: defaultdict[int, list[Departure]] = defaultdict(list)
        self._by_member: defaultdict[str, list[Departure]] = defaultdict(list)
        for departure in self._departures:
            self._by_generation[departure.generation].append(departure)
            self._by_member[departure.member.member_id].append(departure)


def _key(departure: Departure) -> tuple[object, ...]:
    """Return a key that is equal for removals that are judged together."""
    replaced, started_ms = departure.successor is not None, departure.phase.started_ms
    key = (departure.generation, replaced, departure.removed_ms, started_ms, id(departure.phase))
    # If the first sign of its phase is newer than the removal, no other removal is of one phase with it.
    alone = not replaced and departure.removed_ms < (started_ms or 0)
    return (*key, id(departure)) if alone else key


def _is_of_one_phase(one: Departure, other: Departure) -> bool:
    """Tell whether the same generation showed both removals.

    If one removal is older than the first sign of the other's join phase, two coordinators used the same number for
    their generations: the first one's was never written, so the second did not find it when it loaded the log.
    """
    if one is other:
        return True  # a late sign of its phase may be newer than the removal
    replaced = one.successor is not None or other.successor is not None
    pairs = () if replaced else ((one, other), (other, one))
    reused = any(first.removed_ms < (second.phase.started_ms or 0) for first, second in pairs)
    return one.generation == other.generation and not reused

"""What steps of a broker's clock make uncertain in a life.

Lines are ordered by the clock that steps. So a step of up to ``hold_ms`` looks like late lines, like a pause or like
nothing, and a deadline is told by the clock before the step. A greater step is seen, but takes a moment to prove.
"""

from collections.abc import Sequence
from itertools import accumulate, combinations

from coordinator_model.thresholds import Thresholds
from tests.oracle.plans import Plan
from tests.support.pauses import TOLERANCE_MS

UNSEEN_MS = Thresholds().hold_ms
PROVEN_MS = 3_000
"""Three numbered probes in a row prove a greater step, which takes about this long."""
REPORTED_MS = 15_000
"""A removal is reported within this time."""

Span = tuple[int, int]
"""The least and the most of a difference."""


def unseen_ms(plan: Plan, life_ms: int, for_ms: int) -> Span:
    """Return how far an instant by the clock before unseen steps may differ; ``for_ms``: since when they count."""
    sums_ms = [0, *accumulate(-by_ms for at_ms, by_ms in _steps(plan, life_ms, for_ms) if abs(by_ms) <= UNSEEN_MS)]
    since_ms = [sums_ms[-1] - sum_ms for sum_ms in sums_ms]
    return min(since_ms), max(since_ms)


def is_unproven(plan: Plan, life_ms: int) -> bool:
    """Tell whether a clock has just stepped, so that nothing can have proven it."""
    return bool(_steps(plan, life_ms, PROVEN_MS))


def has_stepped(plan: Plan, life_ms: int, for_ms: int) -> bool:
    """Tell whether a clock has stepped for a time before an instant."""
    return bool(_steps(plan, life_ms, for_ms))


def steps_after(plan: Plan, life_ms: int) -> tuple[int, ...]:
    """Return how far a clock may have stepped since an instant when it is reported."""
    return 0, *accumulate(by_ms for _, by_ms in _steps(plan, life_ms + REPORTED_MS, REPORTED_MS))


def is_of_steps(steps: Sequence[int], moved_ms: int) -> bool:
    """Tell whether an instant moved as far as successive steps, each of which is known within the tolerance.

    Incidents are sorted by their instants, so the instant by the older clock may come last.
    """
    return any(
        abs(abs(moved_ms) - abs(sum(steps[first:last]))) <= TOLERANCE_MS * (last - first)
        for first, last in combinations(range(len(steps) + 1), 2)
    )


def steps_ms(plan: Plan) -> list[int]:
    """Return how far clocks step, in order."""
    return [event.args["by_ms"] for event in plan.events if event.do == "step-clock"]


def _steps(plan: Plan, life_ms: int, for_ms: int) -> list[tuple[int, int]]:
    """Return the steps in a time before an instant: when, and by how much."""
    steps = [(plan.start_ms + event.at_ms, event.args["by_ms"]) for event in plan.events if event.do == "step-clock"]
    return [(at_ms, by_ms) for at_ms, by_ms in steps if life_ms - for_ms <= at_ms <= life_ms]

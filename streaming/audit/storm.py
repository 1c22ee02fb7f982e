"""Whether a group rebalanced too often. Like the live rule, it excludes starts, growth and rolling deploys.

The live rule knows why members were removed; records do not say so. So this test looks only at which members leave and
return: in a deploy each member leaves once and comes back once, and each rebalance is explained by one of these moves.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from coordinator_model.rules.rebalance_storm import REBALANCES_EACH

Name: TypeAlias = tuple[str, str]
"""The name that a member keeps across restarts: (instance id, "") or (client id, host)."""
Moves: TypeAlias = Sequence[tuple[int, Name]]
"""(instant in ms, name) of members that left or came back, in order of time."""


class Storm(NamedTuple):
    """The window with the most rebalances; ``is_storm`` is False if a rolling deploy explains it."""

    is_storm: bool
    rebalances: int
    until_ms: int


def storm(
    rebalances_ms: Sequence[int], goings: Moves, comings: Moves, peak: Counter[Name], *, window_ms: int, least: int
) -> Storm | None:
    """Return the worst window of `least` rebalances or more; None if there is none that a member left in."""
    worst: Storm | None = None
    for last in range(least - 1, len(rebalances_ms)):
        until_ms = rebalances_ms[last]
        most = last + 1 - bisect_left(rebalances_ms, until_ms - window_ms, hi=last)
        if most < least or (worst is not None and worst.is_storm and most <= worst.rebalances):
            continue
        gone = _within(goings, until_ms - window_ms, until_ms)
        came = _within(comings, until_ms - window_ms, until_ms)
        first_ms = gone[0][0] if gone else until_ms - window_ms
        count = last + 1 - bisect_left(rebalances_ms, first_ms, hi=last)
        if count < least:
            continue
        found = Storm(_is_storm(gone, len(came), count, peak), count, until_ms)
        if (gone or found.is_storm) and (worst is None or found > worst):
            worst = found
    return worst


def _within(moves: Moves, from_ms: int, until_ms: int) -> Moves:
    first = bisect_left(moves, from_ms, key=lambda move: move[0])
    return moves[first : bisect_right(moves, until_ms, key=lambda move: move[0])]


def _is_storm(gone: Moves, came: int, rebalances: int, peak: Counter[Name]) -> bool:
    if any(times > max(1, peak[name]) for name, times in Counter(name for _, name in gone).items()):
        return True
    return rebalances > REBALANCES_EACH * (len(gone) + came) + 1

"""Moves all instants of a shard along with its coordinator's clock when that clock steps.

The instants that a shard remembers are by its coordinator's clock: when a member was heard, since when a group has been
stable, when something is due. When that clock steps an hour ahead or back, their ages stay the same. So every instant
is moved by the same hour. Instants are recognized by their size: later than the year 2004, and not far beyond the step.
Other numbers in the state are smaller, except hashes and ids, which are far larger.
"""

from typing import Any

EARLIEST_MS = 2**40
"""November 2004. No broker's clock shows less, and no other number in the state lies between this and an instant."""
AHEAD_MS = 2**32
"""How far in the future anything can be due: more than the longest timeout, which is 24 days."""


def rebased(value: Any, delta_ms: int, until_ms: int) -> Any:
    """Return values for JSON with all instants moved by ``delta_ms``, up to ``AHEAD_MS`` after ``until_ms``."""
    if type(value) is int:
        return value + delta_ms if EARLIEST_MS <= value <= until_ms + AHEAD_MS else value
    if isinstance(value, dict):
        return {key: rebased(item, delta_ms, until_ms) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [rebased(item, delta_ms, until_ms) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value

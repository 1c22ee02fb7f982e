"""What is known of a shard, moved along with its coordinator's clock when that steps.

All that a shard remembers is in its coordinator's time: when a member was heard, since when a group is stable, when
something is due. When that clock goes an hour ahead, or back, the ages of all that stay what they were: so every
instant goes with it. Instants are found as what they are, numbers beyond the year 2004 and not far beyond the step:
nothing else that is remembered is so large, but hashes and ids, which are far larger.
"""

from typing import Any

EARLIEST_MS = 2**40
"""November 2004: no broker's clock shows less, and no other number that is kept is as large."""
AHEAD_MS = 2**32
"""The longest time ahead that anything is due: the longest timeout, 24 days, and more."""


def rebased(value: Any, delta_ms: int, until_ms: int) -> Any:
    """Return JSON-able values with all instants up to a time ahead of ``until_ms`` moved by ``delta_ms``."""
    if type(value) is int:
        return value + delta_ms if EARLIEST_MS <= value <= until_ms + AHEAD_MS else value
    if isinstance(value, dict):
        return {key: rebased(item, delta_ms, until_ms) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [rebased(item, delta_ms, until_ms) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value

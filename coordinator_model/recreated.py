"""Topics in a capture that were recreated or truncated: their offsets begin again, with later instants.

A row that repeats an offset with another instant belongs to the recreated topic under two conditions: from the first
such row on, the offsets of all rows rise with their instants, and all rows whose offsets were repeated are older than
that. Otherwise it is a duplicate whose instant is wrong.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

LEAST_ROWS = 3
"""If fewer offsets appear twice, they are duplicates with a wrong instant."""
OUT_OF_ORDER = 0.1
"""The share of a writer's rows that may come before an older one, because its threads overtake each other."""


class Place(NamedTuple):
    """The offset of a row, when it was written, and who wrote it."""

    offset: int
    at_ms: int
    writer: str


def begins_again_ms(first: Mapping[int, Place], again: Iterable[Place]) -> int | None:
    """Return when a partition's offsets begin again; None: they do not.

    ``first``: its rows by offset. ``again``: other rows at those offsets, in any order.
    """
    others = list(again)
    instants_at: dict[int, list[int]] = defaultdict(list)
    for place in others:
        instants_at[place.offset].append(place.at_ms)
    for offset, instants in instants_at.items():
        instants.append(first[offset].at_ms)
        instants.sort()
    if len(instants_at) < LEAST_ROWS:
        return None
    again_ms = min(instants[1] for instants in instants_at.values())
    if any(instants[0] >= again_ms for instants in instants_at.values()):
        return None
    return again_ms if _in_order(p for p in [*first.values(), *others] if p.at_ms >= again_ms) else None


def _in_order(places: Iterable[Place]) -> bool:
    """Tell whether the offsets of each writer rise with its instants, with few exceptions."""
    by_writer: dict[str, list[Place]] = defaultdict(list)
    for place in places:
        by_writer[place.writer].append(place)
    steps = falls = 0
    for written in by_writer.values():
        ordered = sorted(written, key=lambda place: (place.at_ms, place.offset))
        steps += len(ordered) - 1
        falls += sum(after.offset < before.offset for before, after in pairwise(ordered))
    return falls <= OUT_OF_ORDER * steps

"""Which slot each partition of a group has: a sorted column of numbers, so that many are looked up at once.

A partition's place is one number: that of its *pair* (a group and a topic), then its own. So the slots of a pair are
neighbors.
"""

from typing import Any, Final

import numpy as np

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]

NO_SLOT: Final = -1
_PARTITION_BITS: Final = 32
_BEYOND: Final = 2**63 - 1
"""A last place that is never used, so that every search ends at some place."""


def place_numbers(pairs: Int32s | Int64s, partitions: Int32s) -> Int64s:
    """Return the numbers of places. Those of an unknown pair (-1) are negative, and so have no slot."""
    places: Int64s = pairs.astype(np.int64) << _PARTITION_BITS | partitions.view(np.uint32)
    return places


def split_numbers(places: Int64s) -> tuple[Int64s, Int32s]:
    """Return the pairs and the partitions of places."""
    return places >> _PARTITION_BITS, places.astype(np.uint32).view(np.int32)


def distinct(numbers: Int64s) -> Int64s:
    """Return distinct numbers, sorted. `np.unique` takes sixty times as long if there are hundreds of thousands."""
    ordered = np.sort(numbers)
    found: Int64s = ordered[np.diff(ordered, prepend=-1) != 0]
    return found


class SlotIndex:
    """Places, sorted, and the slot of each."""

    def __init__(self) -> None:
        self._places = np.array([_BEYOND], np.int64)
        self._slots = np.array([NO_SLOT], np.int64)

    def __len__(self) -> int:
        return len(self._places) - 1

    @property
    def slots(self) -> Int64s:
        """All slots in use."""
        return self._slots[:-1]

    def find(self, places: Int64s) -> Int64s:
        """Return the slot of each place, else `NO_SLOT`."""
        at = np.searchsorted(self._places, places)
        return np.where(self._places[at] == places, self._slots[at], NO_SLOT)

    def of_pairs(self, pairs: Int64s) -> tuple[Int64s, Int64s]:
        """Return the slots of pairs, one pair after the other, and how many each has."""
        starts, ends = (np.searchsorted(self._places, (pairs + more) << _PARTITION_BITS) for more in (0, 1))
        sizes = ends - starts
        firsts = np.cumsum(sizes) - sizes
        return self._slots[np.repeat(starts - firsts, sizes) + np.arange(sizes.sum())], sizes

    def add(self, places: Int64s, slots: Int64s) -> None:
        """Add new places, which are sorted."""
        at = np.searchsorted(self._places, places)
        self._places, self._slots = np.insert(self._places, at, places), np.insert(self._slots, at, slots)

    def remove(self, places: Int64s) -> None:
        """Remove places, which exist."""
        at = np.searchsorted(self._places, places)
        self._places, self._slots = np.delete(self._places, at), np.delete(self._slots, at)

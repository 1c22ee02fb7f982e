"""A page of objects that is read as it is sent, so that a long list is never in memory as a whole.

First the keys are read, in order; then the objects, one portion and one transaction at a time, so that a slow client
does not hold a connection. Objects that are deleted in between are left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", str, int)
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page(Generic[Key]):
    """Some of the requested objects; `total`: how many there are in all, as far as they are counted."""

    total: int
    portions: Sequence[Sequence[Key]]
    read: Callable[[Sequence[Key]], dict[Key, Object]]

    def __len__(self) -> int:
        return sum(len(keys) for keys in self.portions)

    def __iter__(self) -> Iterator[Object]:
        for keys in self.portions:
            found = self.read(keys)
            yield from (found[key] for key in keys if key in found)

    @property
    def objects(self) -> list[Object]:
        """All objects of the page, which should be short."""
        return list(self)


def in_portions_of(keys: Sequence[Key], most: int) -> list[Sequence[Key]]:
    """Split keys into portions of at most `most`."""
    return [keys[first : first + most] for first in range(0, len(keys), most)]


def by_weight(weighed: Iterable[tuple[Key, int]], most: int) -> list[Sequence[Key]]:
    """Split keys into portions whose weights add up to at most `most`; a heavier key gets its own portion."""
    portions: list[list[Key]] = []
    weight = most
    for key, added in weighed:
        if weight + added > most:
            portions.append([])
            weight = 0
        portions[-1].append(key)
        weight += added
    return list(portions)

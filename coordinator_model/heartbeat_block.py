"""Heartbeats as columns, because there are tens of thousands a second.

Making an object of each heartbeat would cost more than all the rest of its processing. A block has the heartbeats of
one source for one operator key in one batch, or those that are held back. Its rows are in the order in which they are
applied.
"""

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from operator import itemgetter
from typing import Any

from coordinator_model.events import Heartbeat

order = itemgetter(0, 1, 2, 3, 4)
"""The sort key of events: instant, rank, topic, partition, offset."""
fast_row = itemgetter(
    *map(
        Heartbeat._fields.index,
        ("order_ms", "group", "member_id", "generation", "error", "applied_ms", "arrival_ms", "broker"),
    )
)
"""Takes from a heartbeat, or from the columns of a block, what the fast path needs."""
FastRow = tuple[int, str, str, int, int, int, int, str]
"""``(order_ms, group, member_id, generation, error, applied_ms, arrival_ms, broker)``"""
_ORDER_MS, _TOPIC, _PARTITION, _OFFSET = map(Heartbeat._fields.index, ("order_ms", "topic", "partition", "offset"))
_ROWS_A_CUT = 8
"""A cut costs about as much as sorting this many heartbeats one by one."""
_BROKER = Heartbeat._fields.index("broker")
_NUMBERS = frozenset(
    map(Heartbeat._fields.index, ("order_ms", "offset", "applied_ms", "arrival_ms", "remote_ms")),
)
"""The columns that are an ``array``."""


@dataclass(frozen=True, slots=True)
class HeartbeatBlock:
    """Heartbeats by rising ``order_ms``, with one column for each field of ``Heartbeat``.

    A column of times or offsets is an ``array`` of int64; any other is a tuple. If all rows share one value, the column
    is a list with that value alone.
    """

    length: int
    columns: tuple[Any, ...]

    @classmethod
    def of(cls, length: int, columns: Iterable[Any]) -> "HeartbeatBlock":
        """Make a block of columns. Bytes are int64 numbers: ``marshal`` reads an ``array`` back as bytes."""
        return cls(length, tuple(array("q", column) if type(column) is bytes else column for column in columns))

    @classmethod
    def of_events(cls, events: Sequence[Heartbeat]) -> "HeartbeatBlock":
        """Make a block of heartbeats that are in order."""
        columns = zip(*events, strict=True) if events else repeat((), len(Heartbeat._fields))
        return cls(len(events), tuple(map(_column, range(len(Heartbeat._fields)), columns)))

    @classmethod
    def joined(cls, blocks: Iterable["HeartbeatBlock"]) -> "HeartbeatBlock":
        """Make one block of several, which may be in any order."""
        filled = sorted((block for block in blocks if block.length), key=lambda block: block.place(0))
        if len(filled) <= 1:
            return filled[0] if filled else NO_HEARTBEATS
        if any(one.place(-1) > next_.place(0) for one, next_ in pairwise(filled)):
            filled = _merged(filled)
        columns = zip(*(block.columns for block in filled), strict=True)
        return cls(sum(block.length for block in filled), tuple(_chained(parts, filled) for parts in columns))

    def rows(self) -> Iterator[Heartbeat]:
        """Yield the heartbeats."""
        # Made in C, without the named tuple's constructor.
        return map(tuple.__new__, repeat(Heartbeat), self._rows_of(self.columns))

    def fast_rows(self) -> Iterator[FastRow]:
        """Yield what the fast path needs of each heartbeat."""
        return self._rows_of(fast_row(self.columns))

    def row(self, index: int) -> Heartbeat:
        """Return one of the heartbeats."""
        return Heartbeat._make(_at(self.columns, index))

    def place(self, index: int) -> tuple[Any, ...]:
        """Return the sort key of one heartbeat, like ``order``."""
        return _at(self.columns[:5], index)

    def cut(self, start: int, end: int) -> "HeartbeatBlock":
        """Return the heartbeats from ``start`` up to, but not including, ``end``."""
        if (start, end) == (0, self.length):
            return self
        columns = (column if type(column) is list else column[start:end] for column in self.columns)
        return HeartbeatBlock(end - start, tuple(columns))

    def until(self, order_ms: int) -> int:
        """Return how many are not later than an instant."""
        return bisect_right(self.columns[_ORDER_MS], order_ms) if self.length else 0

    def up_to(self, place: tuple[Any, ...]) -> int:
        """Return how many come before or at a place. A heartbeat comes before the tick that was made from its line."""
        index = self.until(place[0])
        while index and self.place(index - 1) > place:
            index -= 1
        return index

    def sources(self) -> set[tuple[str, str, int]]:
        """Return the sources of its lines: broker, topic, partition."""
        columns = [self.columns[field] for field in (_BROKER, _TOPIC, _PARTITION)]
        if all(type(column) is list for column in columns):
            return {(columns[0][0], columns[1][0], columns[2][0])}
        return set(self._rows_of(columns))

    def brokers(self) -> set[str]:
        """Return the brokers of its lines."""
        return set(self.columns[_BROKER])

    def offset_span(self) -> tuple[int, int]:
        """Return the least and the greatest offset."""
        offsets = self.columns[_OFFSET]
        return min(offsets), max(offsets)

    def as_list(self) -> list[Any]:
        """Return the block as values for JSON. ``of_list`` reads them."""
        return [self.length, [[type(column) is list, list(column)] for column in self.columns]]

    @classmethod
    def of_list(cls, values: list[Any]) -> "HeartbeatBlock":
        """Read what ``as_list`` returned."""
        length, columns = values
        kept = (column if shared else _column(n, column) for n, (shared, column) in enumerate(columns))
        return cls(length, tuple(kept))

    def _rows_of(self, columns: Iterable[Any]) -> Iterator[Any]:
        return zip(*map(self._spread, columns), strict=True)

    def _spread(self, column: Any) -> Iterable[Any]:
        return repeat(column[0], self.length) if type(column) is list else column


def _at(columns: Iterable[Any], index: int) -> tuple[Any, ...]:
    return tuple([column[0] if type(column) is list else column[index] for column in columns])


def _column(field: int, values: Iterable[Any]) -> Any:
    return array("q", values) if field in _NUMBERS else tuple(values)


NO_HEARTBEATS = HeartbeatBlock.of_events(())


def _merged(blocks: Sequence[HeartbeatBlock]) -> list[HeartbeatBlock]:
    """Cut blocks so that their pieces are in order. If that takes too many cuts, sort the heartbeats one by one."""
    most_cuts = sum(block.length for block in blocks) // _ROWS_A_CUT
    rest = [(block.place(0), number, block, 0) for number, block in enumerate(blocks)]
    heapq.heapify(rest)
    pieces: list[HeartbeatBlock] = []
    while rest:
        if len(pieces) > most_cuts:
            return [HeartbeatBlock.of_events(sorted(chain.from_iterable(b.rows() for b in blocks), key=order))]
        _, number, block, start = heapq.heappop(rest)
        end = block.up_to(rest[0][0]) if rest else block.length
        pieces.append(block.cut(start, end))
        if end < block.length:
            heapq.heappush(rest, (block.place(end), number, block, end))
    return pieces


def _chained(parts: tuple[Any, ...], blocks: Sequence[HeartbeatBlock]) -> Any:
    """Join one column of several blocks."""
    if all(type(part) is list and part == parts[0] for part in parts):
        return parts[0]
    spread = [block._spread(part) for part, block in zip(parts, blocks, strict=True)]  # noqa: SLF001
    if not any(type(part) is array for part in parts):
        return tuple(chain.from_iterable(spread))
    whole = array("q")
    for part in spread:
        whole.extend(part)
    return whole

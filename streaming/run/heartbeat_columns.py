"""Heartbeats decoded by columns, because there are tens of thousands a second.

The core recognizes lines that differ from one it has parsed only in their times
(`coordinator_model.decode.telemetry.heartbeats`). The times are parsed as columns, and the heartbeats travel as one
block of columns per operator key. All other lines are left to the core's parser, one by one.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from coordinator_model.decode.source_row import SourceRow
from coordinator_model.decode.telemetry import heartbeats
from coordinator_model.decode.telemetry.instants import instants
from coordinator_model.events import TELEMETRY_RANK, Event, Heartbeat
from coordinator_model.heartbeat_block import HeartbeatBlock
from streaming.run.packing import Routing
from streaming.run.partition_rows import Flags, Indexes, PartitionRows

NOT_FOUND = heartbeats.KnownLines([], [], [])
"""No line is known, so all are left to the parser."""


class ScannedRows(NamedTuple):
    """A run of lines, and which of them are known heartbeats."""

    run: PartitionRows
    lines: heartbeats.KnownLines


class KnownHeartbeats(NamedTuple):
    """The known heartbeats in a run of lines: blocks by operator key, the indexes of the lines, and their brokers."""

    run: PartitionRows
    blocks: list[tuple[str, HeartbeatBlock]]
    indexes: Indexes
    brokers: "Coded"

    def by_broker(self) -> Iterator[tuple[str, Indexes]]:
        """Yield each broker and the indexes of its lines; nearly always there is only one broker."""
        for code in np.unique(self.brokers.codes):
            yield self.brokers.values[code], self.indexes[self.brokers.codes == code]

    def lost(self, lost: Flags) -> Iterator[tuple[int, str]]:
        """Yield the index and broker of each known heartbeat before which lines are missing."""
        places = np.flatnonzero(lost[self.indexes])
        return ((int(self.indexes[place]), self.brokers.values[self.brokers.codes[place]]) for place in places)


class HeartbeatColumns:
    """The heartbeats that were parsed; a worker keeps one instance per routing."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._lines = heartbeats.HeartbeatLines()
        self._said = _KnownColumns(routing, self._lines.said)

    def learn(self, row: SourceRow, events: list[Event]) -> None:
        """Remember a parsed line if it is a heartbeat in the form that Kafka writes."""
        self._lines.learn(row, events)

    def find(self, run: PartitionRows) -> ScannedRows:
        """Find the known heartbeats among the lines of a run; `take` reads their fields."""
        text, stops = run.text()
        return ScannedRows(run, self._lines.find(text, stops, run.keys.to_pylist(), run.instants_ms.tolist()))

    def take(self, pieces: Sequence[ScannedRows]) -> KnownHeartbeats:
        """Join what was found in pieces of one partition; `learn` must not have been called since the first."""
        if self._said.of is not self._lines.said:  # the core has forgotten all lines
            self._said = _KnownColumns(self._routing, self._lines.said)
        self._said.catch_up()
        run = PartitionRows.joined([piece.run for piece in pieces])
        starts = accumulate((len(piece.run.offsets) for piece in pieces), initial=0)
        numbers = [np.array(lines.numbers, np.int64) + start for (_, lines), start in zip(pieces, starts, strict=False)]
        indexes = np.concatenate(numbers)
        places = np.array([place for _, lines in pieces for place in lines.places], np.int64)
        times = [text for _, lines in pieces for text in lines.times]
        blocks = list(self._blocks(run, indexes, places, times)) if len(indexes) else []
        return KnownHeartbeats(run, blocks, indexes, self._said.shared["broker"].at(places))

    def _blocks(
        self, run: PartitionRows, indexes: Indexes, places: Indexes, times: list[bytes]
    ) -> Iterator[tuple[str, HeartbeatBlock]]:
        """Make one block per operator key."""
        order_ms = run.instants_ms[indexes]
        at = instants(order_ms, (_numbers(times[first::4]) for first in range(4)), _rounded)
        numbers = {
            "order_ms": order_ms, "offset": run.offsets[indexes],
            "applied_ms": at.applied_ms, "arrival_ms": at.arrival_ms, "remote_ms": at.remote_ms,
        }  # fmt: skip
        keys = self._said.keys.at(places)
        # By key, and also by instant if Log4j's threads wrote lines out of order.
        late = bool(np.any(np.diff(order_ms) < 0))
        order = np.lexsort((order_ms, keys.codes)) if late else np.argsort(keys.codes, kind="stable")
        codes, places = keys.codes[order], places[order]
        numbers = {name: values[order] for name, values in numbers.items()}
        shared = {name: values.at(places) for name, values in self._said.shared.items()}
        own = {name: (values, places.tolist()) for name, values in self._said.own.items()}
        columns: dict[str, Any] = {"rank": [TELEMETRY_RANK], "topic": [run.topic], "partition": [run.partition]}
        for start, end in pairwise([0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]):
            columns |= {name: values[start:end].tobytes() for name, values in numbers.items()}
            columns |= {name: values.column(start, end) for name, values in shared.items()}
            columns |= {name: tuple(map(values.__getitem__, at[start:end])) for name, (values, at) in own.items()}
            block = HeartbeatBlock.of(end - start, (columns[name] for name in Heartbeat._fields))
            yield keys.values[codes[start]], block


class Coded(NamedTuple):
    """A column with few distinct values: the code of each row's value, and the values by code."""

    codes: Indexes
    values: list[Any]

    def column(self, start: int, end: int) -> list[Any] | tuple[Any, ...]:
        """Return some rows as a column of a block; a value that all rows share is stored once."""
        codes = self.codes[start:end]
        if (codes == codes[0]).all():
            return [self.values[codes[0]]]
        return tuple(map(self.values.__getitem__, codes.tolist()))


class _Codes:
    """A growing list of values, few of them distinct, stored as codes."""

    def __init__(self) -> None:
        self._codes, self._code_of, self._values = array("q"), dict[Any, int](), list[Any]()

    def append(self, value: Any) -> None:
        code = self._code_of.setdefault(value, len(self._values))
        if code == len(self._values):
            self._values.append(value)
        self._codes.append(code)

    def at(self, places: Indexes) -> Coded:
        """Return the values at some places as a column."""
        return Coded(np.frombuffer(self._codes, np.int64)[places] if len(places) else places, self._values)


class _KnownColumns:
    """The fields of known heartbeats, as columns, and the operator keys they belong to."""

    def __init__(self, routing: Routing, of: list[Heartbeat]) -> None:
        self._routing = routing
        self.of = of
        self.keys = _Codes()
        self.own: dict[str, list[Any]] = {"group": [], "member_id": []}
        self.shared = {name: _Codes() for name in ("generation", "error", "broker", "kip848")}

    def catch_up(self) -> None:
        """Add the heartbeats that were learned since the last call."""
        known, columns = len(self.own["group"]), self.own | self.shared
        for first in self.of[known:]:
            self.keys.append(self._routing.key_of(first.group))
            for name, values in columns.items():
                values.append(getattr(first, name))


def _rounded(times: Any) -> Any:
    return np.rint(times).astype(np.int64)


def _numbers(texts: list[bytes]) -> Any:
    return np.asarray(pa.array(texts, pa.binary()).cast(pa.string()).cast(pa.float64()))

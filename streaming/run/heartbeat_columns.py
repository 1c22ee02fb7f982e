"""Heartbeats by columns, for there are tens of thousands a second.

The core finds the lines that it knows but for their times (`coordinator_model.telemetry.heartbeats`); their times are
made numbers as columns, and what they say travels as a block of columns an operator key. All other lines are left to
the core's parser, one by one.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from coordinator_model.events import TELEMETRY_RANK, Event, Heartbeat
from coordinator_model.heartbeat_block import HeartbeatBlock
from coordinator_model.source_row import SourceRow
from coordinator_model.telemetry.heartbeats import MAX_MEMBERS, HeartbeatLines
from streaming.run.packing import Routing
from streaming.run.runs import Flags, Indexes, Run


class Found(NamedTuple):
    """The known heartbeats in a run of lines: blocks by operator key, which lines they are, and their brokers."""

    blocks: list[tuple[str, HeartbeatBlock]]
    indexes: Indexes
    brokers: list[str]

    def by_broker(self) -> Iterator[tuple[str, Indexes]]:
        """Yield each broker and its lines; nearly always there is one."""
        for broker in set(self.brokers):
            yield broker, self.indexes[[name == broker for name in self.brokers]]

    def lost(self, lost: Flags) -> Iterator[tuple[int, str]]:
        """Yield those before which lines are missing, each with its broker."""
        places = np.flatnonzero(lost[self.indexes])
        return ((int(self.indexes[place]), self.brokers[place]) for place in places)


class HeartbeatColumns:
    """One a worker and routing: remembers the heartbeats that were read with care."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._lines = HeartbeatLines()
        self._keys: dict[str, str] = {}  # of groups

    def learn(self, row: SourceRow, events: list[Event]) -> None:
        """Remember a line that was read with care, if it is a heartbeat and looks as Kafka writes them."""
        self._lines.learn(row, events)

    def take(self, run: Run) -> Found:
        """Find the known heartbeats among the lines of a run."""
        text, stops = run.text()
        numbers, said, times = self._lines.find(text, stops, run.keys.tolist(), run.instants_ms.tolist())
        indexes = np.array(numbers, np.int64)
        return Found(self._blocks(run, indexes, said, times), indexes, [first.broker for first in said])

    def _blocks(
        self, run: Run, indexes: Indexes, said: list[Heartbeat], times: list[bytes]
    ) -> list[tuple[str, HeartbeatBlock]]:
        """Make a block an operator key; instants are reckoned as `request_log` does."""
        if not said:
            return []
        total, parked, queued, sending = (_numbers(times[first::4]) for first in range(4))
        order_ms = run.instants_ms[indexes]
        remote_ms = np.rint(parked).astype(np.int64)
        applied_ms = order_ms - np.rint(queued + sending).astype(np.int64) - remote_ms
        arrival_ms = order_ms - np.rint(total).astype(np.int64)
        by_key: dict[str, list[int]] = defaultdict(list)
        for place, first in enumerate(said):
            by_key[self._keys.get(first.group) or self._key_of(first.group)].append(place)
        numbers = {
            "order_ms": order_ms, "offset": run.offsets[indexes], "applied_ms": applied_ms,
            "arrival_ms": arrival_ms, "remote_ms": remote_ms,
        }  # fmt: skip
        return [(key, self._block(run, np.array(places), said, numbers)) for key, places in by_key.items()]

    @staticmethod
    def _block(run: Run, places: Indexes, said: list[Heartbeat], numbers: dict[str, Indexes]) -> HeartbeatBlock:
        instants_ms = numbers["order_ms"][places]
        if np.any(np.diff(instants_ms) < 0):  # Log4j's threads may have overtaken one another
            places = places[np.argsort(instants_ms, kind="stable")]
        firsts = [said[place] for place in places.tolist()]
        columns: dict[str, Any] = {"rank": [TELEMETRY_RANK], "topic": [run.topic], "partition": [run.partition]}
        columns |= {name: values[places].tobytes() for name, values in numbers.items()}
        columns |= {name: _column([first[field] for first in firsts]) for name, field in _SAID.items()}
        return HeartbeatBlock.of(len(firsts), (columns[name] for name in Heartbeat._fields))

    def _key_of(self, group: str) -> str:
        if len(self._keys) >= MAX_MEMBERS:
            self._keys.clear()
        key = self._keys[group] = self._routing.key_of(group)
        return key


def _numbers(texts: list[bytes]) -> Any:
    return np.asarray(pa.array(texts, pa.binary()).cast(pa.string()).cast(pa.float64()))


def _column(values: list[Any]) -> list[Any] | tuple[Any, ...]:
    """Return a block's column: what all share only once."""
    return values[:1] if values.count(values[0]) == len(values) else tuple(values)


_SAID = {
    name: Heartbeat._fields.index(name) for name in ("group", "member_id", "generation", "error", "broker", "kip848")
}
"""The fields that are the same in all heartbeats of a member, and their places."""

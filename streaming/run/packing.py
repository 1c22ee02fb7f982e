"""How events travel through Spark's shuffle: all of one operator key from one Arrow batch as one row.

A busy cluster makes tens of thousands of events a second for some fifty keys. As rows of their own each would cost a
conversion in the JVM, in the shuffle and in pandas; packed, the shuffle sees a hundred rows a batch. Heartbeats and
offset commits, nearly all events, travel as columns: instants as packed arrays, and what is the same in all of them
once.
`marshal` because both ends are the same interpreter of the same job, it is four times as fast as `pickle`, and
nothing in it can run code.
"""

import marshal
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Literal, get_args

from coordinator_model.brokers.ticks import Ticker
from coordinator_model.commit_block import CommitBlock
from coordinator_model.decode.cluster_row import ClusterRow
from coordinator_model.decode.decode_counts import DecodeCounts
from coordinator_model.decode.parse import RejectedRow
from coordinator_model.events import (
    TELEMETRY_RANK,
    ClientWord,
    CoordinatorLine,
    Event,
    LeaderNamed,
    OffsetCommitted,
    RecordRead,
    Tick,
)
from coordinator_model.heartbeat_block import HeartbeatBlock
from coordinator_model.shard.batch import OffsetsRead
from streaming.run.long_ids import shard_of

QUARANTINE_KEY = "quarantine"
_TYPES: tuple[type[Event], ...] = get_args(Event)
_CODES = {kind: code for code, kind in enumerate(_TYPES)}
HEARTBEAT_BLOCKS = -1
DECODED = -2
ASKED = -3
READ = -4
REJECTED = -5
COMMITS = -6
_NO_EVENTS = (HEARTBEAT_BLOCKS, DECODED, ASKED, READ, REJECTED, COMMITS)
MAX_ASKED = 64
"""Probes told apart in one task: a stranger may send as many as it likes."""
MAX_REJECTED = 20
"""Unreadable rows kept of one source and reason in one task; of the others only their number is."""

Payload = dict[int, Any]
"""One row of the shuffle, read: code of a type -> its events; `DECODED` -> the task's counts; `ASKED` -> what probes
called the broker they asked, and the key of their lines; `READ` -> which offsets of telemetry were read; `REJECTED` ->
how many unreadable rows were not kept, by `source:reason`; `COMMITS` -> blocks of offset commits, each as bytes, for
they travel on to the sink as they are."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Which operator key an event belongs to; part of the checkpoint's layout.

    A key is text: `017` (a shard), `017.2` (a slice of its groups, where `split` > 1) or `017/group` (one group).
    Shards are dealt out to `lanes`, and these are the keys that Spark knows; a group is a lane of its own.
    """

    partitions: int
    operator_key: Literal["shard", "group"] = "shard"
    split: int = 1
    lanes: tuple[str, ...] = ()

    @property
    def is_by_shard(self) -> bool:
        """Whether the partition of the offsets topic tells the key."""
        return self.operator_key == "shard" and self.split == 1

    def key_of(self, group: str, partition: int | None = None) -> str:
        """Return the operator key of a group; `partition` is where its record lies, if it is known from one."""
        shard = shard_of(group, self.partitions) if partition is None else partition
        if self.operator_key == "group":
            return f"{shard:03}/{group}"
        if self.split == 1:
            return f"{shard:03}"
        return f"{shard:03}.{shard_of(group, self.partitions * self.split) // self.partitions}"

    def all_keys(self) -> tuple[str, ...]:
        """Return every key there can be; none are known beforehand where the key is the group."""
        if self.operator_key == "group":
            return ()
        shards = range(self.partitions)
        if self.split == 1:
            return tuple(f"{shard:03}" for shard in shards)
        return tuple(f"{shard:03}.{part}" for shard in shards for part in range(self.split))

    def lane_of_keys(self) -> dict[str, str]:
        """Return each key's lane, as evenly as numbers allow; what is not in it is one by itself."""
        if self.operator_key == "group" or not self.lanes:
            return {}
        return dict(zip(self.all_keys(), cycle(self.lanes), strict=False)) | {QUARANTINE_KEY: self.lanes[0]}


def shard_of_key(key: str) -> int:
    """Return the shard that an operator key belongs to."""
    return int(key.partition("/")[0].partition(".")[0])


@dataclass(slots=True)
class Packer:
    """Collects the events of one task by operator key; `rows` empties it."""

    routing: Routing
    known_keys: tuple[str, ...]
    size: int = 0
    decoded: DecodeCounts = field(default_factory=DecodeCounts)
    ticker: Ticker = field(default_factory=Ticker)
    cluster: ClusterRow | None = None
    """What metadata says now: each key is told who leads its shard."""
    nonce: str | None = None
    """What the monitor's own probes carry; None: all probes are taken for its own."""
    _commits: dict[str, list[OffsetCommitted]] = field(default_factory=dict)
    """Those that were parsed one by one."""
    _asked: dict[str, str] = field(default_factory=dict)
    _read: list[OffsetsRead] = field(default_factory=list)
    _packed: dict[str, Payload] = field(default_factory=dict)
    _rejected: Counter[str] = field(default_factory=Counter)
    """How many unreadable rows there were, by `source:reason`."""

    def add(self, event: Event, *, lost: bool = False) -> None:
        """Put an event to its key; a tick belongs to all. `lost`: lines before it are missing.

        A stranger's probe is a line like any other: its number proves no lost lines, and it is no tick by itself.
        Every line of a broker moves its clock, so that ticks are also made of other lines, exactly as `replay` does.
        """
        self.size += 1
        kind = type(event)
        if isinstance(event, Tick):
            if self.nonce is not None and event.asked.rpartition("-")[0] != self.nonce:
                self.observe(event.broker, event[0], event[2:5], lost=lost)
                return
            if event.asked and len(self._asked) < MAX_ASKED:
                self._asked[event.asked] = event.broker
            self.ticker.observe(event._replace(lost=lost, asked=""))
            return
        if isinstance(event, CoordinatorLine) and not event.group:
            self._add_to_shard(event)
            return
        if isinstance(event, OffsetCommitted):
            self._commits.setdefault(self.routing.key_of(event.group, event.partition), []).append(event)
            return
        if kind is RecordRead:
            key = self.routing.key_of(event.group, event.partition)
        else:
            key = self.routing.key_of(event.group)
            if not isinstance(event, ClientWord | CoordinatorLine):
                self.observe(event.broker, event[0], event[2:5], lost=lost)  # type: ignore[union-attr]
        self._rows(key, _CODES[kind]).append(tuple(event))

    def _add_to_shard(self, event: CoordinatorLine) -> None:
        """Put what is about all groups of a partition to all its keys."""
        for key in self.known_keys:
            if shard_of_key(key) == event.shard:
                self._rows(key, _CODES[CoordinatorLine]).append(tuple(event))

    def add_heartbeats(self, key: str, block: HeartbeatBlock) -> None:
        """Put heartbeats of one source to their key."""
        self.size += block.length
        self._rows(key, HEARTBEAT_BLOCKS).append((block.length, block.columns))

    def add_commits(self, key: str, block: CommitBlock) -> None:
        """Put offset commits of one partition of the offsets topic to their key."""
        self.size += len(block.keys)
        self._rows(key, COMMITS).append(pack_commits(block))

    def observe(self, broker: str, order_ms: int, place: tuple[str, int, int], *, lost: bool = False) -> None:
        """Let a line of a broker move its clock; `place` is its topic, partition and offset."""
        self.ticker.observe(Tick(order_ms, TELEMETRY_RANK, *place, "", broker, None, lost))

    def read(self, topic: str, partition: int, first: int, last: int) -> None:
        """Let every key know which offsets of telemetry were read: where some are missing, lines were lost."""
        self._read.append(OffsetsRead(topic, partition, first, last))

    def _rows(self, key: str, code: int) -> list[Any]:
        rows: list[Any] = self._packed.setdefault(key, {}).setdefault(code, [])
        return rows

    def include_all_keys(self) -> None:
        """Let every known key be called, though nothing may have come for it."""
        for key in self.known_keys:
            self._packed.setdefault(key, {})

    def __bool__(self) -> bool:
        """Tell whether there is anything to send."""
        return bool(self._packed or self._commits or self.ticker or self.decoded or self._asked or self._read)

    def reject(self, row: RejectedRow) -> None:
        """Let an unreadable row travel with the others, so that a batch stays one action; of very many their number."""
        self.size += 1
        alike = f"{row.source}:{row.reason}"
        self._rejected[alike] += 1
        if self._rejected[alike] <= MAX_REJECTED:
            self._rows(QUARANTINE_KEY, 0).append(tuple(row))

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """Yield (operator key, payload); afterwards nothing is held."""
        for key, parsed in self._commits.items():
            self.add_commits(key, CommitBlock.of_events(parsed))
        self._commits = {}
        for_all = {_CODES[Tick]: list(map(tuple, self.ticker.take())), READ: list(map(tuple, self._read))}
        for code, told in for_all.items():
            for key in {*self.known_keys, *self._packed} - {QUARANTINE_KEY} if told else ():
                self._packed.setdefault(key, {})[code] = told
        self._pack_leaders()
        if not_kept := self._rejected - Counter(dict.fromkeys(self._rejected, MAX_REJECTED)):
            self._packed[QUARANTINE_KEY][REJECTED] = dict(not_kept)
        # What belongs to no key: a row of its own would cost the operator one more call a batch.
        for_none = {DECODED: self.decoded.take() if self.decoded else None, ASKED: self._asked}
        for code, what in for_none.items():
            if what:
                self._packed.setdefault(next(iter(self._packed), QUARANTINE_KEY), {})[code] = what
        for key, events in self._packed.items():
            yield key, marshal.dumps(events, 2)  # without back references: half the time
        self._packed, self._asked, self._read, self.cluster, self.size = {}, {}, [], None, 0
        self._rejected.clear()

    def _pack_leaders(self) -> None:
        if self.cluster is not None:
            for key in {*self.known_keys, *self._packed} - {QUARANTINE_KEY}:
                named = self.cluster.named(shard_of_key(key))
                if named is not None:
                    self._rows(key, _CODES[LeaderNamed]).append(tuple(named))


def unpack(payloads: Iterable[bytes]) -> list[Payload]:
    """Read the rows of one key."""
    return [marshal.loads(payload) for payload in payloads]  # noqa: S302 # written by `Packer` in this very job


def heartbeats_in(payloads: Iterable[Payload]) -> list[HeartbeatBlock]:
    """Return the blocks of heartbeats of one key's payloads."""
    return [HeartbeatBlock.of(*block) for payload in payloads for block in payload.get(HEARTBEAT_BLOCKS, ())]


def commits_in(payloads: Iterable[Payload]) -> list[bytes]:
    """Return the blocks of offset commits of one key's payloads, as bytes."""
    return [block for payload in payloads for block in payload.get(COMMITS, ())]


def pack_commits(block: CommitBlock) -> bytes:
    """Write a block of offset commits: compressed, for its keys are much alike, and it is copied several times."""
    return zlib.compress(marshal.dumps(block.as_tuple(), 2), 1)


def commit_block(packed: bytes) -> CommitBlock:
    """Read one of them."""
    return CommitBlock.of_tuple(marshal.loads(zlib.decompress(packed)))  # noqa: S302 # written by this very job


def events_in(payloads: Iterable[Payload]) -> list[Event]:
    """Return the other events of one key's payloads."""
    events: list[Event] = []
    for payload in payloads:
        for code, rows in payload.items():
            if code not in _NO_EVENTS:
                events += map(_TYPES[code]._make, rows)
    return events


def rejected_in(payloads: Iterable[Payload]) -> list[RejectedRow]:
    """Return the unreadable rows of the quarantine key's payloads."""
    return [RejectedRow._make(row) for payload in payloads for row in payload.get(0, ())]


def not_kept_in(payloads: Iterable[Payload]) -> Counter[str]:
    """Add up how many unreadable rows were not kept, by `source:reason`."""
    counts: Counter[str] = Counter()
    for payload in payloads:
        counts.update(payload.get(REJECTED, {}))
    return counts


def decoded_in(payloads: Iterable[Payload]) -> Counter[str]:
    """Add up the counts that came with a key's payloads, as `DecodeCounts` names them."""
    counts: Counter[str] = Counter()
    for payload in payloads:
        counts.update(payload.get(DECODED, {}))
    return counts


def read_in(payloads: Iterable[Payload]) -> list[OffsetsRead]:
    """Return which offsets of telemetry were read."""
    return [OffsetsRead(*row) for payload in payloads for row in payload.get(READ, ())]


def asked_in(payloads: Iterable[Payload]) -> dict[str, str]:
    """Return what probes called the brokers they asked, and the keys of their lines."""
    return {asked: key for payload in payloads for asked, key in payload.get(ASKED, {}).items()}

"""How events travel through Spark's shuffle: those of one operator key are packed together into one row.

A busy cluster makes tens of thousands of events a second for about fifty keys. As separate rows, each event would cost
a conversion in the JVM, in the shuffle and in pandas; packed, the shuffle sees a hundred rows per batch. Heartbeats and
offset commits, nearly all events, travel as columns: instants as packed arrays, and a value that all rows share only
once.
The format is `marshal`, because both ends are the same interpreter of the same job, it is four times as fast as
`pickle`, and loading it cannot run code.
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
"""The most different probes that one task reports: a stranger may send as many as it likes."""
MAX_REJECTED = 20
"""The most unreadable rows of one source and reason that one task keeps; the others are only counted."""

Payload = dict[int, Any]
"""An unpacked row of the shuffle: code of a type -> its events; `DECODED` -> the task's counts; `ASKED` -> the probes'
names for the brokers they asked, and the keys of their lines; `READ` -> which offsets of telemetry were read;
`REJECTED` -> how many unreadable rows were not kept, by `source:reason`; `COMMITS` -> blocks of offset commits, still
packed, because they go on to the sink unchanged."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Which operator key an event belongs to; part of the checkpoint's layout.

    A key is text: `017` (a shard), `017.2` (a slice of its groups, where `split` > 1) or `017/group` (one group).
    Shards are distributed over `lanes`, which are the keys that Spark sees; a group as key is a lane by itself.
    """

    partitions: int
    operator_key: Literal["shard", "group"] = "shard"
    split: int = 1
    lanes: tuple[str, ...] = ()

    @property
    def is_by_shard(self) -> bool:
        """Whether the partition of the offsets topic determines the key."""
        return self.operator_key == "shard" and self.split == 1

    def key_of(self, group: str, partition: int | None = None) -> str:
        """Return the operator key of a group; `partition` is the offsets-topic partition of its record, if any."""
        shard = shard_of(group, self.partitions) if partition is None else partition
        if self.operator_key == "group":
            return f"{shard:03}/{group}"
        if self.split == 1:
            return f"{shard:03}"
        return f"{shard:03}.{shard_of(group, self.partitions * self.split) // self.partitions}"

    def all_keys(self) -> tuple[str, ...]:
        """Return every possible key; none if the key is the group, because groups are not known beforehand."""
        if self.operator_key == "group":
            return ()
        shards = range(self.partitions)
        if self.split == 1:
            return tuple(f"{shard:03}" for shard in shards)
        return tuple(f"{shard:03}.{part}" for shard in shards for part in range(self.split))

    def lane_of_keys(self) -> dict[str, str]:
        """Return each key's lane, distributed evenly; a key that is not in the result is its own lane."""
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
    """The current metadata: each key is told who leads its shard."""
    nonce: str | None = None
    """The nonce of the monitor's own probes; None: all probes count as its own."""
    _commits: dict[str, list[OffsetCommitted]] = field(default_factory=dict)
    """Offset commits that were parsed one by one."""
    _asked: dict[str, str] = field(default_factory=dict)
    _read: list[OffsetsRead] = field(default_factory=list)
    _packed: dict[str, Payload] = field(default_factory=dict)
    _rejected: Counter[str] = field(default_factory=Counter)
    """How many unreadable rows there were, by `source:reason`."""

    def add(self, event: Event, *, lost: bool = False) -> None:
        """Add an event to its key; a tick goes to all keys. `lost`: lines before it are missing.

        A stranger's probe is an ordinary line: its number does not prove lost lines, and it is not a tick by itself.
        Every line of a broker moves its clock, so ticks are also made from other lines, exactly as in `replay`.
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
        """Add a line about all groups of a shard to all keys of the shard."""
        for key in self.known_keys:
            if shard_of_key(key) == event.shard:
                self._rows(key, _CODES[CoordinatorLine]).append(tuple(event))

    def add_heartbeats(self, key: str, block: HeartbeatBlock) -> None:
        """Add heartbeats of one source to their key."""
        self.size += block.length
        self._rows(key, HEARTBEAT_BLOCKS).append((block.length, block.columns))

    def add_commits(self, key: str, block: CommitBlock) -> None:
        """Add offset commits of one partition of the offsets topic to their key."""
        self.size += len(block.keys)
        self._rows(key, COMMITS).append(pack_commits(block))

    def observe(self, broker: str, order_ms: int, place: tuple[str, int, int], *, lost: bool = False) -> None:
        """Move a broker's clock by one of its lines; `place` is the line's topic, partition and offset."""
        self.ticker.observe(Tick(order_ms, TELEMETRY_RANK, *place, "", broker, None, lost))

    def read(self, topic: str, partition: int, first: int, last: int) -> None:
        """Tell every key which offsets of telemetry were read: if some are missing, lines were lost."""
        self._read.append(OffsetsRead(topic, partition, first, last))

    def _rows(self, key: str, code: int) -> list[Any]:
        rows: list[Any] = self._packed.setdefault(key, {}).setdefault(code, [])
        return rows

    def include_all_keys(self) -> None:
        """Make sure that every known key is called, even if nothing came for it."""
        for key in self.known_keys:
            self._packed.setdefault(key, {})

    def __bool__(self) -> bool:
        """Tell whether there is anything to send."""
        return bool(self._packed or self._commits or self.ticker or self.decoded or self._asked or self._read)

    def reject(self, row: RejectedRow) -> None:
        """Pack an unreadable row with the others, so that a batch stays one action; very many are only counted."""
        self.size += 1
        alike = f"{row.source}:{row.reason}"
        self._rejected[alike] += 1
        if self._rejected[alike] <= MAX_REJECTED:
            self._rows(QUARANTINE_KEY, 0).append(tuple(row))

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """Yield pairs of operator key and payload; afterwards the packer is empty."""
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
        # These belong to no key. A separate row would cost one more call of the operator per batch.
        for_none = {DECODED: self.decoded.take() if self.decoded else None, ASKED: self._asked}
        for code, what in for_none.items():
            if what:
                self._packed.setdefault(next(iter(self._packed), QUARANTINE_KEY), {})[code] = what
        for key, events in self._packed.items():
            yield key, marshal.dumps(events, 2)  # version 2 has no back references: half the time
        self._packed, self._asked, self._read, self.cluster, self.size = {}, {}, [], None, 0
        self._rejected.clear()

    def _pack_leaders(self) -> None:
        if self.cluster is not None:
            for key in {*self.known_keys, *self._packed} - {QUARANTINE_KEY}:
                named = self.cluster.named(shard_of_key(key))
                if named is not None:
                    self._rows(key, _CODES[LeaderNamed]).append(tuple(named))


def unpack(payloads: Iterable[bytes]) -> list[Payload]:
    """Unpack the rows of one key."""
    return [marshal.loads(payload) for payload in payloads]  # noqa: S302 # written by `Packer` in this very job


def heartbeats_in(payloads: Iterable[Payload]) -> list[HeartbeatBlock]:
    """Return the blocks of heartbeats of one key's payloads."""
    return [HeartbeatBlock.of(*block) for payload in payloads for block in payload.get(HEARTBEAT_BLOCKS, ())]


def commits_in(payloads: Iterable[Payload]) -> list[bytes]:
    """Return the blocks of offset commits of one key's payloads, still packed."""
    return [block for payload in payloads for block in payload.get(COMMITS, ())]


def pack_commits(block: CommitBlock) -> bytes:
    """Pack a block of offset commits, compressed, because its keys are similar and it is copied several times."""
    return zlib.compress(marshal.dumps(block.as_tuple(), 2), 1)


def commit_block(packed: bytes) -> CommitBlock:
    """Unpack a block of offset commits."""
    return CommitBlock.of_tuple(marshal.loads(zlib.decompress(packed)))  # noqa: S302 # written by this very job


def events_in(payloads: Iterable[Payload]) -> list[Event]:
    """Return the events of one key's payloads that do not travel as blocks."""
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
    """Return the probes' names for the brokers they asked, and the keys of their lines."""
    return {asked: key for payload in payloads for asked, key in payload.get(ASKED, {}).items()}

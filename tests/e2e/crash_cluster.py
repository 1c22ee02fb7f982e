"""A stand-in cluster in real time: members that send heartbeats, die, leave and come, and their coordinator.

It writes what a broker would, record bytes and request log lines, into two topics of its own, at the present time and
for a hundredth of what real clients cost. It also keeps the truth: who expired, and when the session ended.
"""

import heapq
import itertools
import json
import random
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from confluent_kafka import Message, Producer

from coordinator_model.shard.sharding import shard_of
from streaming.embedded import EmbeddedCluster
from tests.benchmarks import synthetic
from tests.benchmarks.synthetic import Member

SESSION_MS = 6_000
BEAT_MS = 2_000
PROBE_MS = 500
PARTITIONS = 8
REBALANCE_IN_PROGRESS = 27


class Death(NamedTuple):
    """A session that ran out: the stand-in coordinator removed the member."""

    group: str
    member_id: str
    deadline_ms: int


@dataclass
class Group:
    """What the coordinator knows (`members`), and which members are really alive (`alive`)."""

    name: str
    members: list[Member] = field(default_factory=list)
    alive: set[Member] = field(default_factory=set)
    heard_ms: dict[Member, int] = field(default_factory=dict)
    parked_ms: dict[Member, int] = field(default_factory=dict)
    generation: int = 1
    rebalancing: bool = False

    @property
    def at_rest(self) -> bool:
        return not self.rebalancing and self.alive == set(self.members)


class LiveCluster:
    """A stand-in cluster, as in `with LiveCluster(...) as cluster`: a thread of its own writes until the end.

    Everything is an action at an instant, and its lines have that time; `at` adds an action from any thread.
    """

    def __init__(
        self, broker: EmbeddedCluster, name: str, groups: list[str], size: int, seed: int = 1, spared: str = ""
    ) -> None:
        """`spared`: a group in which nobody dies or leaves."""
        self.broker, self.records, self.lines = broker, f"records-{name}", f"lines-{name}"
        self.groups = {group: Group(group) for group in groups}
        self.deaths: list[Death] = []
        self.awaited = 0
        """Pods that were restarted or replaced and have not joined yet."""
        self.returned: set[str] = set()
        """Member ids of dead members whose pods were restarted and have rejoined."""
        self.random = random.Random(seed)
        self._spared = spared
        self._numbers = itertools.count(1)
        self._order = itertools.count()
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._muted = self._frozen = False
        self._written: list[tuple[int, str, int, int, bytes, bytes]] = []
        self._wake = threading.Condition()
        self._ended = False
        self._size = size
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        self._thread = threading.Thread(target=self._run, name=f"cluster-{name}")
        broker.create_topic(self.records, partitions=PARTITIONS)
        broker.create_topic(self.lines, partitions=1)

    def __enter__(self) -> Self:
        begin_ms = now_ms()
        self._probe(begin_ms, 1)
        for group in self.groups.values():
            group.members = [Member(next(self._numbers), SESSION_MS) for _ in range(self._size)]
            group.alive = set(group.members)
            self._write_record(group, begin_ms)
            for member in group.members:
                group.heard_ms[member] = begin_ms
                self.at(begin_ms + self.random.randrange(BEAT_MS), lambda ms, g=group, m=member: self._beat(ms, g, m))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._wake:
            self._ended = True
            self._wake.notify()
        self._thread.join()
        self._producer.flush(10)

    def at(self, due_ms: int, action: Callable[[int], None]) -> None:
        """Schedule an action for an instant."""
        with self._wake:
            heapq.heappush(self._due, (due_ms, next(self._order), action))
            self._wake.notify()

    def write(self, key: bytes, value: bytes, at_ms: int, partition: int) -> None:
        """Write a record into the offsets topic."""
        self._send(self.records, key, value, at_ms, partition)

    def line(self, value: bytes, at_ms: int) -> None:
        """Ship a line of the request log."""
        if not self._muted:
            self._send(self.lines, b"broker-1", value, at_ms, 0)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Ship no lines: the groups live on, but the telemetry is broken."""
        self._muted = True
        yield
        self._muted = False

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let nothing happen: the coordinator is away. When it is back it restarts every member's session."""
        with self._wake:
            self._frozen, frozen_ms = True, now_ms()
        yield
        with self._wake:
            shift_ms = now_ms() - frozen_ms
            self._due = [(due_ms + shift_ms, order, action) for due_ms, order, action in self._due]
            for group in self.groups.values():
                group.heard_ms = dict.fromkeys(group.heard_ms, now_ms())
            self._frozen = False
            self._wake.notify()

    # ------------------------------------------------------------------ fates

    def someone_dies(self, at_ms: int, name: str | None = None) -> None:
        """Let a member (of a group) fall silent for good, if a group is at rest; mostly its pod is restarted.

        Otherwise a pod of another name comes some time later.
        """
        group = self.groups[name] if name else self._any_at_rest()
        if group is None:
            return
        member = self.random.choice(group.members)
        group.alive.remove(member)
        self.at(group.heard_ms[member] + SESSION_MS, lambda ms: self._expire(ms, group, member))
        self.awaited += 1
        back_ms = at_ms + SESSION_MS + self.random.randrange(3_000, 6_000)
        if self.random.random() < 0.7:
            again = Restarted(next(self._numbers), SESSION_MS, getattr(member, "of", member.number))
            self.at(back_ms, lambda ms: self._arrive(ms, group, again, member))
        else:
            other = Member(next(self._numbers), SESSION_MS)
            self.at(back_ms + 10_000, lambda ms: self._arrive(ms, group, other))

    def someone_leaves(self, at_ms: int) -> None:
        """Let a member leave and another one come. That makes no incident."""
        group = self._any_at_rest()
        if group is None:
            return
        member = self.random.choice(group.members)
        group.alive.remove(member)
        self.line(synthetic.leave_line(group.name, member), at_ms)
        self._remove(at_ms, group, member)
        self.awaited += 1
        newcomer = Member(next(self._numbers), SESSION_MS)
        self.at(at_ms + 1_000, lambda ms: self._arrive(ms, group, newcomer))

    def _any_at_rest(self) -> Group | None:
        found = [
            group for group in self.groups.values() if group.members and group.at_rest and group.name != self._spared
        ]
        return self.random.choice(found) if found else None

    # ------------------------------------------------------------------ the coordinator

    def _beat(self, at_ms: int, group: Group, member: Member) -> None:
        if member not in group.alive:
            return
        self.at(at_ms + BEAT_MS, lambda ms: self._beat(ms, group, member))
        if member not in group.heard_ms:
            return  # its first join is still parked: it has no generation for a heartbeat yet
        error = REBALANCE_IN_PROGRESS if group.rebalancing else 0
        self.line(synthetic.heartbeat_line(group.name, member, group.generation, error), at_ms)
        group.heard_ms[member] = at_ms
        if error and member not in group.parked_ms:
            group.parked_ms[member] = at_ms + 5
            self.at(at_ms + 10, lambda ms: self._complete(ms, group))

    def _expire(self, at_ms: int, group: Group, member: Member) -> None:
        self.deaths.append(Death(group.name, member.member_id, at_ms))
        self._remove(at_ms, group, member)

    def _remove(self, at_ms: int, group: Group, member: Member) -> None:
        group.members.remove(member)
        group.rebalancing = bool(group.members)
        if not group.members:
            group.generation += 1
            self._write_record(group, at_ms + 5)
        self.at(at_ms + 5, lambda ms: self._complete(ms, group))

    def _arrive(self, at_ms: int, group: Group, member: Member, instead_of: Member | None = None) -> None:
        if instead_of:
            self.returned.add(instead_of.member_id)
        self.awaited -= 1
        group.members.append(member)
        group.alive.add(member)
        group.rebalancing = True
        group.parked_ms[member] = at_ms
        self.at(at_ms + BEAT_MS, lambda ms: self._beat(ms, group, member))
        self.at(at_ms + 5, lambda ms: self._complete(ms, group))

    def _complete(self, at_ms: int, group: Group) -> None:
        """Answer the parked joins once everybody has joined, then write the generation, then answer the syncs.

        It is called at the instant of the answers and not before: a heartbeat in between must not know the generation
        yet.
        """
        if not group.rebalancing or set(group.members) != group.parked_ms.keys():
            return
        group.rebalancing = False
        group.generation += 1
        for member in group.members:
            parked_ms = at_ms - group.parked_ms[member]
            self.line(synthetic.join_line(group.name, member, group.generation, group.members, parked_ms), at_ms)
            group.heard_ms[member] = at_ms
        group.parked_ms.clear()
        self._write_record(group, at_ms + 10)
        for member in group.members:
            self.line(synthetic.sync_line(group.name, member, group.generation, group.members), at_ms + 12)

    def _probe(self, at_ms: int, number: int) -> None:
        self.line(synthetic.probe_line(number), at_ms)
        self.at(at_ms + PROBE_MS, lambda ms: self._probe(ms, number + 1))

    # ------------------------------------------------------------------ the wire

    def _write_record(self, group: Group, at_ms: int) -> None:
        key, value = synthetic.group_record(group.name, group.generation, group.members, at_ms)
        self._send(self.records, key, value, at_ms, shard_of(group.name, PARTITIONS))

    def _send(self, topic: str, key: bytes, value: bytes, at_ms: int, partition: int) -> None:
        def written(error: object, message: Message) -> None:
            assert error is None, error
            self._written.append((at_ms, message.topic(), message.partition(), message.offset(), key, value))

        self._producer.produce(topic, value, key, partition, timestamp=at_ms, on_delivery=written)
        self._producer.poll(0)

    def write_capture(self, file: Path) -> None:
        """Write a capture of all that was written to Kafka: `replay` must say about it what the job says."""
        self._producer.flush(10)
        with file.open("w") as out:
            for at_ms, topic, partition, offset, key, value in self._written:
                place = {"topic": topic, "partition": partition, "offset": offset, "timestamp_ms": at_ms}
                if topic == self.records:
                    row = {"key": b64encode(key).decode(), "value": b64encode(value).decode()}
                else:
                    row = {"key": key.decode(), "value": value.decode()}
                source = "offsets" if topic == self.records else "telemetry"
                out.write(json.dumps({"source": source, **place, **row}) + "\n")

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._ended and (wait_s := self._wait_s()) > 0:
                    self._wake.wait(wait_s)
                if self._ended:
                    return
                due_ms, _, action = heapq.heappop(self._due)
            action(due_ms)

    def _wait_s(self) -> float:
        if self._frozen or not self._due:
            return 1.0
        return (self._due[0][0] - now_ms()) / 1_000


@dataclass(frozen=True)
class Restarted(Member):
    """A member in place of one that died: the same client id and host, a new member id."""

    of: int = 0

    @property
    def client_id(self) -> str:
        return f"worker-{self.of}"

    @property
    def member_id(self) -> str:
        return f"worker-{self.of}-7a6b5c4d-0000-4000-8000-{self.number:012d}"

    @property
    def host(self) -> str:
        return Member(self.of).host


def now_ms() -> int:
    return time.time_ns() // 1_000_000

"""A synthetic cluster at full load: every member's heartbeats, and members that die.

Runs as a process of its own (`python -m tests.benchmarks.load`), because it has to keep its pace whatever the monitor
does. Lines are rendered once and sent again and again; Kafka's timestamp is the broker's clock in them. What a
coordinator would do about a death is modelled: the member is removed at its deadline, the others hear 27 at
their next heartbeat, rejoin, and the leader's sync writes the record. The truth, `(group, member, deadline)`, goes to
a file as JSON lines.
"""

import argparse
import heapq
import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from coordinator_model.shard.sharding import shard_of
from tests.benchmarks import synthetic
from tests.benchmarks.synthetic import Member

INTERVAL_MS = 3_000
PROBE_INTERVAL_MS = 500
STEP_S = 0.02


@dataclass
class Group:
    name: str
    shard: int
    members: list[Member]
    generation: int = 1
    rejoining: dict[Member, int] | None = None  # while rebalancing: who has rejoined, and when


@dataclass
class Load:
    producer: Producer
    groups: int
    members: int
    partitions: int
    brokers: int
    deaths_per_s: float
    seed: int
    truth: Path
    telemetry_topic: str = "bench-telemetry"
    offsets_topic: str = "bench-offsets"
    sent: int = 0
    _due: list[tuple[int, int, int]] = field(default_factory=list)  # (deadline, ring slot, group number)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._keys = [f"broker-{number}".encode() for number in range(self.brokers)]
        self.world = [self._group(number) for number in range(self.groups)]
        # The ring: slot n sends its heartbeat at n / len(ring) of the interval; neighbours belong to different groups.
        self._ring = [
            (n % self.groups, self.world[n % self.groups].members[n // self.groups])
            for n in range(self.groups * self.members)
        ]
        self._lines = [self._beat(number, member) for number, member in self._ring]
        self._slot_of = {member: slot for slot, (_, member) in enumerate(self._ring)}
        self._dead: set[int] = set()

    def _group(self, number: int) -> Group:
        name = f"bench-group-{number:05d}"
        members = [Member(number * self.members + n) for n in range(self.members)]
        return Group(name, shard_of(name, self.partitions), members)

    def _beat(self, number: int, member: Member, error: int = 0) -> bytes:
        group = self.world[number]
        return synthetic.heartbeat_line(group.name, member, group.generation, error)

    def write_groups(self, at_ms: int) -> None:
        """Write every group's current generation, as the coordinator had when the load begins."""
        for group in self.world:
            self._record(group, at_ms)
        self.producer.flush()

    def _record(self, group: Group, at_ms: int) -> None:
        key, value = synthetic.group_record(group.name, group.generation, group.members, at_ms)
        self._send(self.offsets_topic, group.shard, key, value, at_ms)

    def _log(self, group: Group, line: bytes, at_ms: int) -> None:
        broker = group.shard % self.brokers
        self._send(self.telemetry_topic, broker, self._keys[broker], line, at_ms)

    def _send(self, topic: str, partition: int, key: bytes, value: bytes, at_ms: int) -> None:
        while True:
            try:
                self.producer.produce(topic, value, key, partition, timestamp=at_ms)
            except BufferError:
                self.producer.poll(0.05)
            else:
                self.sent += 1
                return

    def run(self, seconds: float, die_after_s: float, die_until_s: float) -> None:
        """Keep the pace for this time; members die between two instants, so that the first and last are judged too."""
        size, begin = len(self._ring), time.time()
        slot = probes = 0
        dies_s = die_after_s
        with self.truth.open("w") as truth:
            while (now := time.time()) - begin < seconds:
                now_ms, age_s = int(now * 1000), now - begin
                while probes * PROBE_INTERVAL_MS <= age_s * 1000:
                    probes += 1
                    for broker, key in enumerate(self._keys):
                        self._send(self.telemetry_topic, broker, key, synthetic.probe_line(probes), now_ms)
                due = int(age_s * 1000 * size / INTERVAL_MS)
                while slot < due:
                    self._heartbeat(slot % size, now_ms)
                    slot += 1
                while dies_s <= min(age_s, die_until_s):  # not in step with the trigger, which would bias the delay
                    dies_s += self._random.uniform(0, 2) / self.deaths_per_s
                    self._kill(slot, truth)
                while self._due and self._due[0][0] <= now_ms:
                    self._expire(*heapq.heappop(self._due))
                self.producer.poll(0)
                time.sleep(STEP_S)
        self.producer.flush()

    def _heartbeat(self, slot: int, now_ms: int) -> None:
        if slot in self._dead:
            return
        number, member = self._ring[slot]
        group = self.world[number]
        if group.rejoining is None:
            broker = group.shard % self.brokers
            self._send(self.telemetry_topic, broker, self._keys[broker], self._lines[slot], now_ms)
        elif member not in group.rejoining:
            self._log(group, self._beat(number, member, error=27), now_ms)
            group.rejoining[member] = now_ms
            self._complete(number, group, now_ms)

    def _kill(self, slot: int, truth: object) -> None:
        """Let one member of a stable group fall silent; it has just sent its last heartbeat."""
        for _ in range(50):
            victim = (slot - 1 - self._random.randrange(100)) % len(self._ring)
            number, member = self._ring[victim]
            group = self.world[number]
            if group.rejoining is None and victim not in self._dead and len(group.members) == self.members:
                break
        else:
            return
        self._dead.add(victim)
        step_ms = INTERVAL_MS / len(self._ring)
        last_ms = int(time.time() * 1000 - ((slot - 1 - victim) % len(self._ring)) * step_ms)
        deadline_ms = last_ms + member.session_timeout_ms
        heapq.heappush(self._due, (deadline_ms, victim, number))
        row = {"group": group.name, "member_id": member.member_id, "deadline_ms": deadline_ms}
        print(json.dumps(row), file=truth, flush=True)

    def _expire(self, deadline_ms: int, victim: int, number: int) -> None:
        group = self.world[number]
        group.members = [member for member in group.members if member != self._ring[victim][1]]
        if group.rejoining is None:
            group.rejoining = {}
        self._complete(number, group, deadline_ms)

    def _complete(self, number: int, group: Group, at_ms: int) -> None:
        """End the rebalance once everybody left has rejoined."""
        if group.rejoining is None or len(group.rejoining) < len(group.members):
            return
        group.generation += 1
        for member, since_ms in group.rejoining.items():
            self._log(
                group, synthetic.join_line(group.name, member, group.generation, group.members, at_ms - since_ms), at_ms
            )
        self._record(group, at_ms + 4)
        for member in group.members:
            self._log(group, synthetic.sync_line(group.name, member, group.generation, group.members), at_ms + 5)
        group.rejoining = None
        for member in group.members:
            self._lines[self._slot_of[member]] = self._beat(number, member)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--brokers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=360)
    parser.add_argument("--die-after", type=float, default=30)
    parser.add_argument("--deaths-per-s", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap_servers,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "acks": 1,
        }
    )
    load = Load(
        producer,
        options.groups,
        options.members,
        50,
        options.brokers,
        options.deaths_per_s,
        options.seed,
        options.truth,
    )
    load.write_groups(int(time.time() * 1000))
    print("ready", flush=True)
    load.run(options.seconds, options.die_after, options.seconds - 20)
    print(json.dumps({"sent": load.sent}), flush=True)


if __name__ == "__main__":
    main()

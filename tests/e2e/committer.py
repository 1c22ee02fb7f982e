"""A real consumer with controlled commits, for tests of lag: commands on stdin, events as JSON lines on stdout.

    python tests/e2e/committer.py '{"software": "confluent", "bootstrap": "...", "group": "g", "topics": ["t"], ...}'

Commands: `stick TOPIC PARTITION` (keep reading it, but do not commit it), `unstick`, `close`. Events: started,
assigned, revoked, committed, stuck, unstuck, closed, error.
"""

import json
import os
import sys
import time
from collections.abc import Callable

from steered import go_on, listen, listener, tell

Place = tuple[str, int]
POLL_S = 0.2
PATIENCE_MS = 6_000


class KafkaPython:
    """kafka-python, which commits its position in every partition it owns, the paused ones too, as Java does."""

    def __init__(self, spec: dict) -> None:
        from kafka import KafkaConsumer

        self._paused = set(spec["paused"])
        self._auto = spec["auto"]
        self._consumer = KafkaConsumer(
            bootstrap_servers=spec["bootstrap"],
            group_id=spec["group"],
            client_id=spec["client_id"],
            session_timeout_ms=PATIENCE_MS,
            heartbeat_interval_ms=1_500,
            max_poll_interval_ms=spec["max_poll_interval_ms"],
            enable_auto_commit=self._auto,
            auto_commit_interval_ms=round(spec["every_s"] * 1_000),
            metadata_max_age_ms=2_000,
            auto_offset_reset="earliest",
        )
        self._consumer.subscribe(spec["topics"], listener=listener(self.assigned))

    def assigned(self, partitions: list) -> None:
        self._consumer.pause(*(p for p in partitions if p.partition in self._paused))
        where = sorted((p.topic, p.partition) for p in partitions)
        tell("assigned", member_id=self._consumer._coordinator._generation.member_id, partitions=where)

    def poll(self) -> None:
        self._consumer.poll(timeout_ms=round(POLL_S * 1_000))

    def commit(self, stuck: set[Place]) -> None:
        if not self._auto:
            self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class Confluent:
    """confluent-kafka: classic, KIP-848, or without group membership (`simple`); commits partition by partition."""

    def __init__(self, spec: dict) -> None:
        from confluent_kafka import Consumer, TopicPartition

        config = {
            "bootstrap.servers": spec["bootstrap"],
            "group.id": spec["group"],
            "client.id": spec["client_id"],
            "max.poll.interval.ms": spec["max_poll_interval_ms"],
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 2_000,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 1_000,
            "socket.timeout.ms": PATIENCE_MS,
            "log_level": 3,
        }
        if spec["software"] == "confluent-848":
            config["group.protocol"] = "consumer"
            config["max.poll.interval.ms"] = max(config["max.poll.interval.ms"], 45_000)  # the session's default
        else:
            config |= {"session.timeout.ms": PATIENCE_MS, "heartbeat.interval.ms": 1_500}
        self._of = TopicPartition
        self._rate = spec["rate"]
        self._held: set[Place] = set()
        self._next: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}
        self._consumer = Consumer(config)
        if spec["software"] == "simple":
            places = [(topic, number) for topic in spec["topics"] for number in range(spec["partitions"])]
            self._consumer.assign([TopicPartition(*place) for place in places])
            self._took(self._consumer, [TopicPartition(*place) for place in places])
        else:
            self._consumer.subscribe(spec["topics"], on_assign=self._took, on_revoke=self._lost, on_lost=self._lost)

    def _took(self, consumer: object, partitions: list) -> None:
        self._held |= {(p.topic, p.partition) for p in partitions}
        tell("assigned", member_id=self._consumer.memberid() or "", partitions=sorted(self._held))

    def _lost(self, consumer: object, partitions: list) -> None:
        for place in [(p.topic, p.partition) for p in partitions]:
            self._held.discard(place)
            self._next.pop(place, None)
            self._committed.pop(place, None)
        if self._held:  # KIP-848 revokes only some of them
            tell("assigned", member_id=self._consumer.memberid() or "", partitions=sorted(self._held))
        else:
            tell("revoked")

    def poll(self) -> None:
        began_s = time.monotonic()
        count = 500 if self._rate is None else max(1, round(self._rate * POLL_S))
        for message in self._consumer.consume(count, POLL_S):
            error = message.error()
            if error is None:
                self._next[message.topic(), message.partition()] = message.offset() + 1
            else:
                tell("error", text=str(error))
        if self._rate is not None:
            time.sleep(max(0.0, POLL_S - (time.monotonic() - began_s)))

    def commit(self, stuck: set[Place]) -> None:
        new = {
            place: offset
            for place, offset in self._next.items()
            if place not in stuck and self._committed.get(place) != offset
        }
        if not new:
            return
        offsets = [self._of(topic, number, offset) for (topic, number), offset in new.items()]
        done = self._consumer.commit(offsets=offsets, asynchronous=False)
        kept = {(p.topic, p.partition): p.offset for p in done if p.error is None}
        self._committed |= kept
        tell("committed", offsets=[[topic, number, offset] for (topic, number), offset in kept.items()])

    def close(self) -> None:
        self._consumer.close()


CLIENTS: dict[str, Callable[[dict], KafkaPython | Confluent]] = {"kafka-python": KafkaPython}


def main() -> None:
    spec = json.loads(sys.argv[1])
    commands = listen()
    consumer = CLIENTS.get(spec["software"], Confluent)(spec)
    stuck = {(topic, number) for topic, number in spec["stuck"]}
    tell("started", pid=os.getpid())
    due_s = time.monotonic() + spec["every_s"]

    def work() -> None:
        nonlocal due_s
        consumer.poll()
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + spec["every_s"]
            consumer.commit(stuck)

    def obey(verb: str, rest: str) -> None:
        if verb == "stick":
            topic, number = rest.split()
            stuck.add((topic, int(number)))
            tell("stuck")
        elif verb == "unstick":
            stuck.clear()
            tell("unstuck")

    go_on(work, commands, obey, consumer.close)


if __name__ == "__main__":
    main()

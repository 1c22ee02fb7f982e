"""A real consumer in a process of its own: commands on stdin, events as JSON lines on stdout.

    python tests/e2e/consumer.py '{"client": "kafka-python", "bootstrap": "...", "group": "g", "topics": ["t"], ...}'

Commands: `stall SECONDS` (no poll meanwhile), `subscribe T1,T2`, `close`. Events: started, assigned, revoked, stalled,
polling, closed, error.
"""

import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Callable

from steered import go_on, listen, listener, tell


class KafkaPython:
    """kafka-python: classic protocol only."""

    def __init__(self, spec: dict) -> None:
        from kafka import KafkaConsumer

        self._listener = listener(self.assigned)
        self._consumer = KafkaConsumer(
            bootstrap_servers=spec["bootstrap"],
            group_id=spec["group"],
            group_instance_id=spec.get("instance_id"),
            client_id=spec["client_id"],
            session_timeout_ms=spec["session_timeout_ms"],
            heartbeat_interval_ms=spec["heartbeat_interval_ms"],
            max_poll_interval_ms=spec["max_poll_interval_ms"],
            enable_auto_commit=spec.get("commit", True),
            auto_commit_interval_ms=1000,
            metadata_max_age_ms=2000,
            auto_offset_reset="earliest",
        )
        if spec.get("reporter"):
            from streaming.reporter import report_polls

            report_polls(self._consumer)
        if spec.get("stubborn"):  # like a client without a poll limit of its own, or with one that is too high
            self._consumer._coordinator.heartbeat.config["max_poll_interval_ms"] = 600_000

    def subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(topics, listener=self._listener)

    def assigned(self, partitions: list) -> None:
        generation, where = self._consumer._coordinator._generation, sorted((p.topic, p.partition) for p in partitions)
        tell("assigned", member_id=generation.member_id, generation=generation.generation_id, partitions=where)

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def poll(self) -> None:
        self._consumer.poll(timeout_ms=200)

    def close(self) -> None:
        self._consumer.close()


class Confluent:
    """confluent-kafka (librdkafka): classic, or KIP-848 with `"protocol": "consumer"`."""

    def __init__(self, spec: dict) -> None:
        if spec.get("reporter"):
            from streaming.reporter.confluent import Consumer
        else:
            from confluent_kafka import Consumer

        config = {
            "bootstrap.servers": spec["bootstrap"],
            "group.id": spec["group"],
            "client.id": spec["client_id"],
            "max.poll.interval.ms": spec["max_poll_interval_ms"],
            "enable.auto.commit": spec.get("commit", True),
            "auto.commit.interval.ms": 1000,
            "topic.metadata.refresh.interval.ms": 2000,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 1000,
            "log_level": 3,
        }
        if spec.get("instance_id"):
            config["group.instance.id"] = spec["instance_id"]
        if not spec.get("pushes", True):
            config |= {"enable.metrics.push": False, "coordinator.query.interval.ms": 4_000}  # its default is 10 min
        if spec.get("protocol") == "consumer":
            config["group.protocol"] = "consumer"
        else:
            config["session.timeout.ms"] = spec["session_timeout_ms"]
            config["heartbeat.interval.ms"] = spec["heartbeat_interval_ms"]
            config["partition.assignment.strategy"] = spec.get("assignor", "range")
        # max.poll.interval.ms has to be at least the session timeout's default, which KIP-848 clients cannot set.
        if spec.get("protocol") != "consumer":
            config["max.poll.interval.ms"] = max(config["max.poll.interval.ms"], spec["session_timeout_ms"])
        self._consumer = Consumer(config)
        self._callbacks = spec.get("callbacks", True)
        self._held: list = []

    def subscribe(self, topics: list[str]) -> None:
        if self._callbacks:
            self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        else:
            self._consumer.subscribe(topics)

    def _tell_what_changed(self) -> None:
        """Report a changed assignment: without callbacks it shows only when it is asked for."""
        held = self._consumer.assignment()
        if held != self._held:
            self._assigned(self._consumer, held) if held else self._revoked(self._consumer, self._held)
            self._held = held

    def _assigned(self, consumer: object, partitions: list) -> None:
        where = sorted((p.topic, p.partition) for p in partitions)
        tell("assigned", member_id=self._consumer.memberid(), generation=None, partitions=where)

    def _revoked(self, consumer: object, partitions: list) -> None:
        tell("revoked")

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def poll(self) -> None:
        message = self._consumer.poll(0.2)
        while message is not None:  # the whole batch: with one message a call it would fall behind
            error = message.error()
            if error is not None:
                tell("error", text=str(error))
                if error.fatal():
                    sys.exit(1)
            message = self._consumer.poll(0)
        if not self._callbacks:
            self._tell_what_changed()

    def close(self) -> None:
        self._consumer.close()


CLIENTS: dict[str, Callable[[dict], KafkaPython | Confluent]] = {"kafka-python": KafkaPython, "confluent": Confluent}


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    spec = json.loads(sys.argv[1])
    commands = listen()
    consumer = CLIENTS[spec["client"]](spec)
    consumer.subscribe(spec["topics"])
    tell("started", pid=os.getpid())

    def obey(verb: str, rest: str) -> None:
        if verb == "stall":
            tell("stalled")
            time.sleep(float(rest))
            tell("polling")
        elif verb == "unsubscribe":
            consumer.unsubscribe()
        elif verb == "subscribe":
            consumer.subscribe(rest.split(","))

    go_on(consumer.poll, commands, obey, consumer.close)


if __name__ == "__main__":
    main()

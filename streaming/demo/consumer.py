"""A real consumer in a process of its own: `python -m streaming.demo.consumer '{"software": ..., "group": ...}'`.

It polls until a command comes on stdin (`stall SECONDS`, `pause`, `close`), writes its member ids as JSON lines to
stdout, and ends when its stdin ends.
"""

import json
import os
import queue
import sys
import threading
import time
from typing import Any, Protocol

KAFKA_PYTHON = "kafka-python"
CONFLUENT = "confluent-kafka"
CONFLUENT_848 = "confluent-kafka KIP-848"
POLL_S = 0.2


class Application(Protocol):
    """What `main` needs of a client."""

    def poll(self) -> None:
        """Poll once, for `POLL_S` at most."""

    def member_id(self) -> str:
        """Return the current member id; "" if there is none."""

    def pause(self) -> None:
        """Pause one of its partitions. Applications do this while the handler of a partition hangs."""

    def close(self) -> None:
        """Leave the group and close the client."""


class KafkaPython:
    """kafka-python with the reporter, for which an application adds one line."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from kafka import KafkaConsumer  # noqa: PLC0415 # a process uses only one client

        from streaming.reporter import report_polls  # noqa: PLC0415

        self._consumer = KafkaConsumer(
            spec["topic"],
            bootstrap_servers=spec["bootstrap_servers"],
            group_id=spec["group"],
            client_id=spec["client_id"],
            session_timeout_ms=spec["session_timeout_ms"],
            heartbeat_interval_ms=spec["heartbeat_interval_ms"],
            max_poll_interval_ms=spec["max_poll_interval_ms"],
            auto_commit_interval_ms=1_000,
        )
        report_polls(self._consumer)

    def poll(self) -> None:
        """As `Application`."""
        self._consumer.poll(timeout_ms=int(POLL_S * 1000))

    def member_id(self) -> str:
        """As `Application`."""
        return str(self._consumer._coordinator._generation.member_id)  # noqa: SLF001 # no public way

    def pause(self) -> None:
        """As `Application`."""
        self._consumer.pause(min(self._consumer.assignment()))

    def close(self) -> None:
        """As `Application`."""
        self._consumer.close()


class Confluent:
    """confluent-kafka (librdkafka), classic or KIP-848."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from confluent_kafka import Consumer  # noqa: PLC0415

        settings = {
            "bootstrap.servers": spec["bootstrap_servers"],
            "group.id": spec["group"],
            "client.id": spec["client_id"],
            "auto.commit.interval.ms": 1_000,
            "log_level": 3,
        }
        if spec["software"] == CONFLUENT_848:  # the broker chooses session timeout and heartbeat interval
            settings["group.protocol"] = "consumer"
        else:
            settings["session.timeout.ms"] = spec["session_timeout_ms"]
            settings["heartbeat.interval.ms"] = spec["heartbeat_interval_ms"]
            settings["max.poll.interval.ms"] = spec["max_poll_interval_ms"]
        self._consumer = Consumer(settings)
        self._consumer.subscribe([spec["topic"]])

    def poll(self) -> None:
        """As `Application`."""
        self._consumer.poll(POLL_S)

    def member_id(self) -> str:
        """As `Application`."""
        return str(self._consumer.memberid() or "")

    def pause(self) -> None:
        """As `Application`."""
        self._consumer.pause(sorted(self._consumer.assignment())[:1])

    def close(self) -> None:
        """As `Application`."""
        self._consumer.close()


def main(spec: dict[str, Any]) -> None:
    """Poll, print every new member id, and obey commands."""
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    consumer: Application = KafkaPython(spec) if spec["software"] == KAFKA_PYTHON else Confluent(spec)
    told = ""
    while True:
        consumer.poll()
        if consumer.member_id() not in ("", told):
            told = consumer.member_id()
            print(json.dumps({"member_id": told}), flush=True)
        if commands.empty():
            continue
        command, _, seconds = commands.get().partition(" ")
        if command == "close":
            consumer.close()
            return
        if command == "pause":
            consumer.pause()
            continue
        time.sleep(float(seconds))  # a handler that takes far too long


def _listen(commands: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        commands.put(line.strip())
    os._exit(3)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

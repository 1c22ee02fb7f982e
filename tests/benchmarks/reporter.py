"""What the reporter costs an application: `python -m tests.benchmarks reporter`.

Two members of each client library, in one process, differ only in the reporter; blocks of polls alternate between them.
For the thread that polls: CPU time and wall time per poll, as medians of the blocks. For all other threads:
CPU time per second while the application does nothing, with the reporter and without.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from streaming.embedded import EmbeddedCluster
from streaming.reporter import TOPIC, report_polls
from streaming.reporter.confluent import Consumer as ReportingConsumer
from streaming.telemetry_topics import REPORT_CONFIGS

PAIRS = 30
IDLE_S = 15
MESSAGES = 400_000
DOES_NOT_END_MS = 3_600_000


class Block(NamedTuple):
    """What a poll took in one block, in microseconds."""

    cpu_us: float
    wall_us: float


def main() -> None:
    with EmbeddedCluster(telemetry=False) as cluster:
        cluster.create_topic(TOPIC, partitions=1, configs=dict(REPORT_CONFIGS))
        cluster.create_topic("empty", partitions=1)
        cluster.create_topic("full", partitions=1)
        fill(cluster.bootstrap_servers)
        servers = cluster.bootstrap_servers
        for protocol in ("classic", "consumer"):
            name = f"confluent-kafka, {protocol}"
            measure(f"{name}, poll(0) without a message", both(servers, protocol, "empty"), 20_000)
            measure(f"{name}, poll with a message", both(servers, protocol, "full"), 5_000)
            measure_idle(name, both(servers, protocol, "empty"))
        made = [kafka_python(servers, reported) for reported in (False, True)]
        measure("kafka-python, poll(0) without a message", made, 500)
        measure_idle("kafka-python", [kafka_python(servers, reported) for reported in (False, True)])


class Polled(NamedTuple):
    """A consumer with an assignment: how to poll it once, and how to close it."""

    poll: Callable[[], Any]
    close: Callable[[], Any]


def both(servers: str, protocol: str, topic: str) -> list[Polled]:
    return [confluent(servers, protocol, topic, kind) for kind in (Consumer, ReportingConsumer)]


def confluent(servers: str, protocol: str, topic: str, kind: type[Consumer]) -> Polled:
    settings = {
        "bootstrap.servers": servers,
        "group.id": f"{protocol}-{topic}-{kind.__module__}-{time.monotonic_ns()}",
        "group.protocol": protocol,
        "max.poll.interval.ms": DOES_NOT_END_MS,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = kind(settings)
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    if topic == "full":
        while consumer.poll(1) is None:
            pass
        return Polled(lambda: consumer.poll(1), consumer.close)
    return Polled(lambda: consumer.poll(0), consumer.close)


def kafka_python(servers: str, reported: bool) -> Polled:
    group = f"kafka-python-{reported}-{time.monotonic_ns()}"
    consumer = KafkaConsumer("empty", bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
    while not consumer.assignment():
        consumer.poll(timeout_ms=100)
    if reported:
        report_polls(consumer)
    return Polled(lambda: consumer.poll(timeout_ms=0), consumer.close)


def fill(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "queue.buffering.max.messages": MESSAGES})
    for _ in range(MESSAGES):
        producer.produce("full", b"x" * 100)
    producer.flush(120)


def measure(name: str, consumers: list[Polled], polls: int) -> None:
    """Print what a poll costs with the reporter and without, and the ratio of each pair's median."""
    blocks: list[list[Block]] = [[], []]
    for pair in range(PAIRS):
        for which in (0, 1) if pair % 2 else (1, 0):
            blocks[which].append(block(consumers[which].poll, polls))
    for consumer in consumers:
        consumer.close()
    for part, words in enumerate(("CPU time", "wall time")):
        plain, reported = ([made[part] for made in side] for side in blocks)
        ratio = statistics.median(b / a for a, b in zip(plain, reported, strict=True))
        extra_us = statistics.median(b - a for a, b in zip(plain, reported, strict=True))
        print(
            f"| {name}, {words} | {statistics.median(plain):.2f} us | {statistics.median(reported):.2f} us "
            f"| {ratio:.2f} | {extra_us:+.2f} us |",
            flush=True,
        )


def block(poll: Callable[[], Any], polls: int) -> Block:
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    for _ in range(polls):
        poll()
    cpu_us = (time.thread_time() - cpu_s) * 1e6 / polls
    return Block(cpu_us, (time.perf_counter() - wall_s) * 1e6 / polls)


def measure_idle(name: str, consumers: list[Polled]) -> None:
    """Print the process's CPU time per second: with both consumers, then with the one without the reporter."""
    together = idle_ms()
    consumers[1].close()
    plain = idle_ms()
    consumers[0].close()
    print(
        f"| {name}, other threads, a second | {plain:.2f} ms | {together - plain:.2f} ms | "
        f"| {together - 2 * plain:+.2f} ms |"
    )


def idle_ms() -> float:
    cpu_s = time.process_time()
    time.sleep(IDLE_S)
    return (time.process_time() - cpu_s) * 1_000 / IDLE_S

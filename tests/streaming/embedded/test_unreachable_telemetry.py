"""Producers must not feel that the telemetry has nowhere to go: the promise of the snippet's non-blocking Async."""

import contextlib
import socket
import statistics
import struct
import threading
import time

import pytest
from confluent_kafka import Producer

from streaming.embedded import TELEMETRY_TOPIC, EmbeddedCluster, ask
from streaming.embedded.ports import free_ports
from tests.support.kafka_io import read_until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("broker_parts")]
FEWEST_ROUNDS = 5
MOST_ROUNDS = 100
PRODUCES_A_ROUND = 40


@contextlib.contextmanager
def cluster_without_its_topic():
    with EmbeddedCluster(create_telemetry_topic=False) as cluster:
        yield cluster


@contextlib.contextmanager
def cluster_with_a_closed_port():
    with EmbeddedCluster(telemetry_bootstrap_servers=f"127.0.0.1:{free_ports(1)[0]}") as cluster:
        yield cluster


@contextlib.contextmanager
def cluster_with_a_black_hole():
    """The kernel accepts the connection and nobody ever answers on it."""
    with (
        socket.create_server(("127.0.0.1", 0)) as hole,
        EmbeddedCluster(telemetry_bootstrap_servers=f"127.0.0.1:{hole.getsockname()[1]}") as cluster,
    ):
        yield cluster


@contextlib.contextmanager
def group_requests(port):
    """Ask for a hundred lines a second: ten times what an appender passes on that waits out max.block.ms (100) a line.

    Not as many as possible: then both cores are the limit, and any work of the broker shows, shipped or not.
    """
    done = threading.Event()

    def ask_on():
        while not done.wait(0.01):
            ask.list_groups(port)

    thread = threading.Thread(target=ask_on)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def fill_the_queue(port):
    """More lines at once than the Async appender holds (bufferSize 8192): from here on it drops."""
    request = struct.pack(">hhih", 16, 0, 1, 4) + b"fill"  # LIST_GROUPS v0
    frame = struct.pack(">i", len(request)) + request
    deadline = time.monotonic() + 60
    with socket.create_connection(("127.0.0.1", port), 60) as connection, connection.makefile("rb") as answers:
        for _ in range(100):
            connection.sendall(frame * 100)
            for _ in range(100):
                assert time.monotonic() < deadline, "answers to group requests wait for the telemetry"
                answers.read(*struct.unpack(">i", answers.read(4)))


def produce_latencies_ms(producer):
    latencies_ms = []
    for _ in range(PRODUCES_A_ROUND):
        started = time.perf_counter()
        producer.produce("measured", b"x" * 100)
        assert producer.flush(30) == 0
        latencies_ms.append((time.perf_counter() - started) * 1000)
    return latencies_ms


@pytest.mark.parametrize(
    "unreachable", [cluster_without_its_topic, cluster_with_a_closed_port, cluster_with_a_black_hole]
)
def test_produce_p50_stays_within_one_and_a_half_times_that_of_the_request_log_off(unreachable):
    """On and off take turns on one broker, so that a busy machine slows both alike; a noisy one gets more rounds.

    The stall that this would show is a factor of thirty and more: no number of rounds hides it.
    """
    latencies_ms = {"WARN": [], "DEBUG": []}
    with unreachable() as cluster:
        cluster.create_topic("measured", partitions=1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "acks": "1"})
        with group_requests(cluster.node(1).port):
            fill_the_queue(cluster.node(1).port)
            produce_latencies_ms(producer)  # warms up
            for round_number in range(MOST_ROUNDS):
                for level in ("WARN", "DEBUG") if round_number % 2 else ("DEBUG", "WARN"):
                    cluster.set_request_log(level)
                    latencies_ms[level] += produce_latencies_ms(producer)
                off_ms, on_ms = statistics.median(latencies_ms["WARN"]), statistics.median(latencies_ms["DEBUG"])
                if round_number >= FEWEST_ROUNDS and on_ms <= 1.5 * off_ms:
                    break
    print(f"{unreachable.__name__}: produce p50 {off_ms:.2f} ms off, {on_ms:.2f} ms on, {round_number + 1} rounds")
    assert on_ms <= 1.5 * off_ms


def test_the_request_log_can_be_switched_at_run_time(broker):
    """All lines of a broker are in one partition in order: the first one after the switch proves none came before."""
    broker.set_request_log("WARN")
    off_ms = time.time() * 1000
    for _ in range(20):
        ask.list_groups(broker.node(1).port)
    on_ms = time.time() * 1000
    broker.set_request_log("DEBUG")
    ask.list_groups(broker.node(1).port)
    records = read_until(broker.bootstrap_servers, TELEMETRY_TOPIC, lambda rs: any(r.timestamp > on_ms for r in rs))
    assert [record.value for record in records if off_ms < record.timestamp < on_ms] == []

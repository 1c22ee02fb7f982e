"""Waiting for what a cluster can do only some time after its brokers answer."""

import time
from collections.abc import Mapping
from typing import Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import UnknownTopicOrPartitionError

from streaming.embedded import ask
from streaming.embedded.errors import EmbeddedBrokerError
from streaming.telemetry_topics import TELEMETRY_TOPIC

TIMEOUT_S: Final = 120.0


def await_coordinator(port: int) -> None:
    """Wait until `__consumer_offsets` exists and a group's coordinator can be found."""
    deadline = time.monotonic() + TIMEOUT_S
    while not ask.has_coordinator(port):
        if time.monotonic() > deadline:
            raise EmbeddedBrokerError(f"no group coordinator after {TIMEOUT_S:.0f} s")
        time.sleep(0.05)


def await_telemetry(bootstrap_servers: str, ports: Mapping[str, int]) -> None:
    """Send requests to each broker until a line of it was read back from the topic; `ports` is by the lines' key.

    The appender drops lines until its producer is connected, so only a line that has arrived proves anything.
    """
    missing = dict(ports)
    deadline = time.monotonic() + TIMEOUT_S
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, client_id="embedded-broker")
    try:
        _read_from_now_on(consumer, deadline)
        while missing:
            if time.monotonic() > deadline:
                raise EmbeddedBrokerError(f"no telemetry line of {sorted(missing)} after {TIMEOUT_S:.0f} s")
            for port in missing.values():
                ask.list_groups(port)
            for records in consumer.poll(timeout_ms=200).values():
                for record in records:
                    missing.pop(record.key.decode(), None)
    finally:
        consumer.close()


def _read_from_now_on(consumer: KafkaConsumer, deadline: float) -> None:
    while not _stands_at_the_end(consumer):
        if time.monotonic() > deadline:
            raise EmbeddedBrokerError(f"no topic {TELEMETRY_TOPIC} after {TIMEOUT_S:.0f} s")
        time.sleep(0.05)


def _stands_at_the_end(consumer: KafkaConsumer) -> bool:
    """Move a consumer behind the last line; return False if a broker that it asked does not know the topic yet.

    Each request may go to another broker: one may know the topic, and the next one may not.
    """
    partitions = [TopicPartition(TELEMETRY_TOPIC, n) for n in consumer.partitions_for_topic(TELEMETRY_TOPIC) or ()]
    if not partitions:
        return False
    consumer.assign(partitions)
    consumer.seek_to_end(*partitions)
    try:
        for partition in partitions:
            consumer.position(partition)  # seek_to_end is lazy: resolve it before the first request
    except UnknownTopicOrPartitionError:
        return False
    return True

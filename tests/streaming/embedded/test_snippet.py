"""What the shipped snippet lets through, on the real broker: lines with any client id, lines of large groups."""

import json
import threading
from contextlib import ExitStack

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from streaming.embedded import TELEMETRY_TOPIC, ask
from tests.streaming.embedded.test_unreachable_telemetry import cluster_with_a_closed_port, fill_the_queue
from tests.support import requests
from tests.support.kafka_io import read_until
from tests.support.waiting import await_true

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("broker_parts")]
LINE_SEPARATORS = ["\u2028", "\u2029", "\u0085", "\n", "\r"]  # `.` of a Java regular expression matches none of them
MIB = 1 << 20


class LargeSubscription(RangePartitionAssignor):
    """Two of them make a JoinGroup answer over 1 MiB and a group record under it: base64 adds a third."""

    name = "large"

    @classmethod
    def metadata(cls, topics):
        return ConsumerProtocolSubscription(1, list(topics), bytes(450_000), [])


def request_of(record):
    return json.loads(record.value.removeprefix(b"Completed request:"))


def client_ids(records):
    return {request_of(record)["requestHeader"].get("clientId") for record in records}


def leaders_answer(records, members):
    """The first JoinGroup answer that lists so many members."""
    return next((r for r in records if len(request_of(r).get("response", {}).get("members", ())) == members), None)


def poll_until(consumer, done):
    while not done.is_set():
        consumer.poll(timeout_ms=100)
    consumer.close()


@pytest.mark.parametrize("separator", LINE_SEPARATORS, ids=ascii)
def test_a_line_separator_in_a_client_id_does_not_hide_its_requests(broker, separator):
    hidden, last = f"hidden{separator}client", f"after {separator!a}"
    for client_id in (hidden, last):  # the lines of a broker keep their order
        ask.list_groups(broker.node(1).port, client_id)
    records = read_until(broker.bootstrap_servers, TELEMETRY_TOPIC, lambda records: last in client_ids(records))
    assert hidden in client_ids(records)


def test_the_join_answer_of_a_large_group_arrives(broker):
    """The producer's and the topic's own limits are 1 MiB, and what is larger is dropped without a trace in Kafka."""
    broker.create_topic("events", partitions=2)
    done = threading.Event()
    with ExitStack() as stack:
        stack.callback(done.set)
        for name in ("one", "two"):
            consumer = KafkaConsumer(
                "events",
                bootstrap_servers=broker.bootstrap_servers,
                group_id="large",
                client_id=name,
                partition_assignment_strategy=[LargeSubscription],
            )
            thread = threading.Thread(target=poll_until, args=(consumer, done))
            thread.start()
            stack.callback(thread.join)
            stack.callback(done.set)
        records = read_until(broker.bootstrap_servers, TELEMETRY_TOPIC, lambda records: leaders_answer(records, 2))
    assert len(leaders_answer(records, 2).value) > MIB


def test_a_broker_says_on_its_console_that_a_line_was_too_large(broker):
    """The producer refuses it; nothing in Kafka shows that it was there."""
    too_large = requests.join_group("too-large", metadata=bytes(13 * MIB))  # 17 MiB in base64
    ask.request(broker.node(1).port, requests.JOIN_GROUP, version=4, body=too_large)
    await_true(lambda: "RecordTooLargeException" in broker.node(1).log_path.read_text())


def test_a_broker_says_on_its_console_that_lines_came_too_fast():
    with cluster_with_a_closed_port() as cluster:
        fill_the_queue(cluster.node(1).port)
        await_true(lambda: "GroupTelemetry is unable to write" in cluster.node(1).log_path.read_text())

"""What an application that uses the reporter sends, and that it does not suffer from it; on a real broker."""

import gc
import logging
import subprocess

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from coordinator_model.decode.parse import REPORTS, SourceRow, parse_row
from coordinator_model.events import ClientPoll
from streaming.embedded import EmbeddedCluster
from streaming.reporter import TOPIC, confluent, report_polls
from streaming.reporter.reporter import PollReport
from tests.streaming.reporter.test_reporter_alone import CONFLUENT_START, EXIT_S, KAFKA_PYTHON_START, ROOT, command_of
from tests.support.parts import skip_without_broker
from tests.support.waiting import await_true

pytestmark = pytest.mark.e2e
MAX_POLL_INTERVAL_MS = 6_000
WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster():
    skip_without_broker()
    with EmbeddedCluster(telemetry=False) as running:
        running.create_topic(TOPIC, partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
        running.create_topic("orders", partitions=2)
        yield running


@pytest.fixture
def joined(cluster, request):
    """A consumer that is a member of the group named like its test."""
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=request.node.name,
        client_id="orders-1",
        session_timeout_ms=MAX_POLL_INTERVAL_MS,
        heartbeat_interval_ms=500,
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
    )
    await_true(lambda: consumer.poll(timeout_ms=100) is not None and consumer.assignment(), "no assignment")
    yield consumer
    consumer.close()


def member_id(consumer):
    return consumer._coordinator._generation.member_id


class Reports:
    """Reads the reports of one group, as the monitor parses them."""

    def __init__(self, cluster, group):
        self._group = group
        self._reader = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
        self._reader.assign([TopicPartition(TOPIC, 0)])
        self.seen = []

    def read(self):
        for record in [r for records in self._reader.poll(timeout_ms=100).values() for r in records]:
            row = SourceRow(REPORTS, TOPIC, 0, record.offset, record.timestamp, record.key, record.value)
            (event,) = parse_row(row)
            assert isinstance(event, ClientPoll)
            if event.group == self._group:
                assert record.key == self._group.encode()
                self.seen.append(event)
        return self.seen

    def close(self):
        self._reader.close()


@pytest.fixture
def reports(cluster, request):
    reading = Reports(cluster, request.node.name)
    yield reading
    reading.close()


def test_a_stall_is_told_with_the_member_id_that_the_client_has_dropped_by_then(joined, reports):
    stalled = member_id(joined)
    report_polls(joined, interval_s=0.2)

    overdue = await_true(
        lambda: next((e for e in reports.read() if e.poll_age_ms > e.max_poll_interval_ms), None), "no overdue report"
    )
    await_true(lambda: member_id(joined) == "", "no leave for not polling")
    after_the_leave = len(reports.seen)
    late = await_true(lambda: reports.read()[after_the_leave + 2 :], "no report after the leave")[-1]

    assert overdue.max_poll_interval_ms == MAX_POLL_INTERVAL_MS
    assert (overdue.client_id, overdue.member_id) == ("orders-1", stalled)
    assert late.member_id == stalled
    assert late.poll_age_ms > overdue.poll_age_ms


def test_the_age_of_who_polls_stays_small_and_its_first_report_comes_at_once(joined, reports):
    report_polls(joined)
    await_true(lambda: joined.poll(timeout_ms=100) is not None and reports.read()[1:], "no second report")

    assert {e.member_id for e in reports.seen} == {member_id(joined)}
    assert all(0 <= e.poll_age_ms < MAX_POLL_INTERVAL_MS for e in reports.seen)


def test_reports_end_with_the_consumer_that_is_closed(joined):
    thread = report_polls(joined, interval_s=0.2)
    joined.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_reports_do_not_keep_a_forgotten_consumer_alive(cluster):
    consumer = KafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers, group_id="forgotten")
    thread = report_polls(consumer, interval_s=0.2)
    del consumer

    def ended():
        gc.collect()
        return not thread.is_alive()

    await_true(ended, "no end of the thread")


def test_who_unsubscribes_need_not_poll_and_is_not_reported(joined):
    report = PollReport()
    assert report.of(joined)["member_id"] == member_id(joined)
    joined.unsubscribe()
    assert report.of(joined) is None


def test_a_missing_topic_costs_one_line_of_the_log_and_no_poll(joined, caplog):
    def ours():
        return [record.getMessage() for record in caplog.records if record.name.startswith("streaming.reporter")]

    with caplog.at_level(logging.WARNING, logger="streaming.reporter"):
        thread = report_polls(joined, topic="nobody-made-this", interval_s=0.1)
        await_true(lambda: joined.poll(timeout_ms=100) is not None and ours(), "no warning")
        for _ in range(10):
            joined.poll(timeout_ms=100)

    assert ["nobody-made-this" in line for line in ours()] == [True]
    assert thread.daemon
    assert "nobody-made-this" not in joined.topics()


# ------------------------------------------------------------------------------------------------- confluent-kafka


class Quick(confluent.Consumer):
    report_interval_s = 0.2


class Astray(Quick):
    report_topic = "nobody-made-this-either"


@pytest.fixture
def confluent_settings(cluster, request):
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": request.node.name,
        "client.id": "orders-1",
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }


def assigned(consumer):
    return consumer.poll(0.1) is None and consumer.assignment()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_reports_of_confluent_kafka_name_its_member_and_end_with_its_close(confluent_settings, reports, protocol):
    consumer = Quick({**confluent_settings, "group.protocol": protocol})
    consumer.subscribe(["orders"])
    await_true(lambda: assigned(consumer), "no assignment")
    await_true(lambda: consumer.poll(0.1) is None and reports.read()[1:], "no second report")
    assert {(e.member_id, e.client_id) for e in reports.seen} == {(consumer.memberid(), "orders-1")}
    assert all(0 <= e.poll_age_ms < 2_000 for e in reports.seen)
    consumer.close()
    consumer._reports.join(WAIT_S)
    assert not consumer._reports.is_alive()


def test_confluent_kafka_hands_over_every_message_once(cluster, confluent_settings):
    cluster.create_topic("numbers", partitions=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(100):
        producer.produce("numbers", str(number))
    assert producer.flush(WAIT_S) == 0
    read = []
    with Quick(confluent_settings) as consumer:
        consumer.subscribe(["numbers"])
        await_true(lambda: read.extend(m for m in [consumer.poll(0.1)] if m) or len(read) == 10, "no tenth message")
        await_true(lambda: read.extend(consumer.consume(20, timeout=0.1)) or len(read) == 100, "no last message")
    assert [int(message.value()) for message in read] == list(range(100))


def test_a_missing_topic_costs_confluent_kafka_one_line_of_the_log_and_no_poll(confluent_settings, caplog):
    with Astray(confluent_settings) as consumer, caplog.at_level(logging.WARNING, logger="streaming.reporter"):
        consumer.subscribe(["orders"])
        await_true(lambda: assigned(consumer), "no assignment")
        await_true(lambda: consumer.poll(0) is None and consumer._reports.dropped > 1, "no dropped report")
        assert Astray.report_topic not in consumer.list_topics(timeout=WAIT_S).topics
    assert ["nobody-made-this-either" in record.getMessage() for record in caplog.records] == [True]


FROZEN_MEANWHILE = """
while thread._outlet is None or not hasattr(thread._outlet, "_producer"):
    time.sleep(0.01)
time.sleep(1)  # some reports have arrived
print("reporting", flush=True)
sys.stdin.readline()
time.sleep(0.3)  # one is on its way, and is not answered
"""


@pytest.mark.parametrize("start", [KAFKA_PYTHON_START, CONFLUENT_START], ids=["kafka-python", "confluent-kafka"])
def test_an_exit_is_not_held_up_by_a_report_that_is_not_answered(cluster, start):
    """kafka-python's own end would wait for it for a second, and print a traceback."""
    [node] = cluster.nodes
    command = command_of(start, FROZEN_MEANWHILE, cluster.bootstrap_servers)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        assert process.stdout.readline() == "reporting\n"
        node.pause()
        try:
            span_s, said = process.communicate("go\n", timeout=WAIT_S)
        finally:
            node.resume()
    assert (process.returncode, said) == (0, "")
    assert float(span_s) < EXIT_S

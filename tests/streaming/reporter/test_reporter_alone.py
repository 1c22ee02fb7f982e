"""The reporter without a broker: its message, its queue of one, and that no application suffers from it."""

import json
import logging
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from jsonschema import Draft202012Validator

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.parse import REPORTS, RejectedRow, SourceRow, parse_row
from coordinator_model.events import ClientPoll
from coordinator_model.shard.shard import ShardSettings
from streaming.reporter import confluent, report_polls, sender
from streaming.reporter.message import TOPIC, message
from streaming.reporter.reporter import PollReport
from streaming.reporter.sender import LONGEST_PAUSE_S, ReportThread

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "streaming" / "reporter" / "report.schema.json").read_text())
EXIT_S = 1.0
"""What docs/polls.md says that an exit may be held up at most with reporters whose broker is gone."""
NOBODY = "127.0.0.1:1"
CONFLUENT = {"bootstrap.servers": NOBODY, "group.id": "g", "client.id": "c", "log_level": 0}
REPORT = message(
    group="g",
    member_id="m",
    instance_id=None,
    client_id="c",
    poll_age_ms=7,
    max_poll_interval_ms=300_000,
    session_timeout_ms=45_000,
    heartbeat_age_ms=3,
    software="s",
)


class Clock:
    """What the reporter takes for `time` and for its pause."""

    def __init__(self, now_s=1_000.0):
        self.now_s = now_s

    def monotonic(self):
        return self.now_s

    def wait(self, seconds):
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (sender, confluent):
        monkeypatch.setattr(module, "time", made)
    return made


class Subject:
    """Open for so many reports."""

    def __init__(self, reports, report=REPORT):
        self.left, self.said = reports, report

    def is_open(self):
        return self.left > 0

    def report(self):
        self.left -= 1
        return self.said


class Outlet:
    """Takes `spans_s` for its sends, one after the other; None: fails."""

    def __init__(self, clock, spans_s):
        self.clock, self.spans_s = clock, iter(spans_s)
        self.sent, self.closed = [], 0

    def send(self, topic, key, value):
        span_s = next(self.spans_s)
        if span_s is None:
            raise OSError("away")
        self.clock.now_s += span_s
        self.sent.append((topic, key, json.loads(value)))

    def close(self):
        self.closed += 1


def run(clock, spans_s, report=REPORT):
    outlet = Outlet(clock, spans_s)
    thread = ReportThread(Subject(len(spans_s), report), lambda: outlet, "reports", 1.0)
    thread._pause = clock
    thread.run()
    return thread, outlet


# ------------------------------------------------------------------------------------------------------- the message


class KafkaPythonConsumer:
    """The attributes of kafka-python that are read, of a member that last polled `age_s` ago."""

    class Settled:
        member_id = "m"

    class Heartbeat:
        last_poll = last_receive = -math.inf

    class Subscription:
        subscription = ("orders",)

    def __init__(self, age_s, *, servers=NOBODY):
        self._closed = False
        self._coordinator = self
        self._generation = self.Settled()
        self.heartbeat = self.Heartbeat()
        self.heartbeat.last_poll = time.monotonic() - age_s
        self._subscription = self.Subscription()
        self.config = {"bootstrap_servers": servers, "group_id": "g", "client_id": "c"}
        self.config |= {"max_poll_interval_ms": 300_000, "session_timeout_ms": 45_000}


def of_confluent(clock, age_s, **settings):
    polls = polls_of("m", **settings)
    polls.begin(-1)
    polls.end()
    clock.now_s += age_s
    return polls.report()


class Named:
    """A consumer that knows its member id."""

    def __init__(self, member_id):
        self.id = member_id

    def memberid(self):
        if isinstance(self.id, Exception):
            raise self.id
        return self.id


def polls_of(member_id, **settings):
    consumer = Named(member_id)
    polls = confluent._Polls(consumer, {"group.id": "g", "client.id": "c", **settings}, 1.0)
    polls.subscribed = True
    polls.keep = consumer
    return polls


AGES_S = (0, 1.5, 400, 30 * 86_400)


@pytest.mark.parametrize("age_s", AGES_S)
def test_what_either_client_sends_is_valid_and_is_read(clock, age_s):
    kip_848 = {"group.protocol": "consumer", "group.instance.id": "i", "max.poll.interval.ms": "600000"}
    reports = [PollReport().of(KafkaPythonConsumer(age_s)), of_confluent(clock, age_s)]
    reports.append(of_confluent(clock, age_s, **kip_848))
    for report in reports:
        _, outlet = run(clock, [0.0], report)
        [(_, key, sent)] = outlet.sent
        Draft202012Validator(SCHEMA).validate(sent)
        [event] = read(sent)
        assert isinstance(event, ClientPoll)
        assert key == b"g"
        assert event.poll_age_ms == pytest.approx(min(age_s * 1_000, 2**31 - 1), abs=1_000)


def read(report):
    raw = report if isinstance(report, bytes) else json.dumps(report, separators=(",", ":")).encode()
    return parse_row(SourceRow(REPORTS, TOPIC, 0, 0, 1, b"g", raw))


READ = ("group_monitor_reporter", "group", "member_id", "instance_id", "client_id", "client_host", "poll_age_ms",
        "max_poll_interval_ms")  # fmt: skip
VALUES = (None, "", "x", 0, 1, 2, -1, 2**31 - 1, 2**31, 1.5, True, [], {}, ["x"])


@pytest.mark.parametrize("name", READ)
def test_the_monitor_reads_what_the_schema_allows_and_nothing_else(name):
    valid = Draft202012Validator(SCHEMA).is_valid
    changed = [{**REPORT, name: value} for value in VALUES]
    changed.append({key: value for key, value in REPORT.items() if key != name})
    changed.append({**REPORT, "of a later reporter": {"any": "thing"}})
    # Without its first field nothing tells a report from another line, however valid.
    assert {json.dumps(report): valid(report) for report in changed} == {
        json.dumps(report): not isinstance(read(report), RejectedRow) for report in changed
    }


def test_a_report_of_a_newer_version_is_quarantined_and_its_neighbours_are_read():
    reports = [json.dumps({**REPORT, "group_monitor_reporter": n}, separators=(",", ":")).encode() for n in (1, 2, 1)]
    rows = [SourceRow(REPORTS, TOPIC, 0, offset, 1, b"g", value) for offset, value in enumerate(reports)]
    [_, newer, _] = [parse_row(row) for row in rows]
    assert isinstance(newer, RejectedRow)
    assert newer.reason == "a reporter's format this monitor does not know"
    history = replay_rows(rows, ShardSettings(cluster="c", partitions=50, live_from_ms=0))
    assert dict(history.undecodable) == {f"{REPORTS}: {newer.reason}": 1}
    assert sum(history.decoded.values()) == 2


# -------------------------------------------------------------------------------------------------- the queue of one


def test_what_falls_due_while_a_report_is_on_its_way_is_dropped_and_counted(clock):
    thread, outlet = run(clock, [0.1, 4.0, 0.1])
    assert [sent["dropped"] for _, _, sent in outlet.sent] == [0, 0, 3]
    assert thread.dropped == 3


def test_failures_are_counted_told_once_and_tried_again_at_longer_intervals(clock, caplog):
    with caplog.at_level(logging.WARNING, logger="streaming.reporter"):
        thread, outlet = run(clock, [None] * 9 + [0.0])
    assert [record.getMessage() for record in caplog.records] == [
        "poll reports to reports fail, trying again: OSError: away"
    ]
    waited_s = sum(min(LONGEST_PAUSE_S, 2.0**n) for n in range(1, 10))
    assert thread.dropped == waited_s
    assert outlet.sent[0][2]["dropped"] == waited_s
    assert outlet.closed == 10


def test_a_second_failure_is_told_again_after_a_success(clock, caplog):
    with caplog.at_level(logging.WARNING, logger="streaming.reporter"):
        run(clock, [None, 0.0, None])
    assert len(caplog.records) == 2


def test_nothing_is_dropped_where_there_is_nothing_to_say(clock):
    thread, outlet = run(clock, [0.0] * 3, report=None)
    assert (thread.dropped, outlet.sent) == (0, [])


def test_a_consumer_that_cannot_be_looked_at_ends_its_reports_with_a_line_of_the_log(caplog):
    class Broken:
        def is_open(self):
            raise AttributeError("_closed")

    with caplog.at_level(logging.WARNING, logger="streaming.reporter"):
        ReportThread(Broken(), lambda: None, "reports", 1.0).run()
    assert ["no more poll reports" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("consumer", [None, object()])
def test_what_is_no_consumer_of_kafka_python_gets_a_line_of_the_log_and_no_exception(consumer, caplog):
    with caplog.at_level(logging.WARNING, logger="streaming.reporter"):
        assert not report_polls(consumer).is_alive()
    assert "streaming.reporter.confluent" in caplog.text


# ------------------------------------------------------------------------------------------- confluent-kafka's polls


def test_the_age_is_that_of_the_last_poll_and_none_within_one_that_waits(clock):
    polls = polls_of("m")
    assert polls.report() is None
    polls.begin(timeout=None)
    clock.now_s += 5
    polls.end()
    clock.now_s += 2
    assert polls.report()["poll_age_ms"] == 2_000
    polls.begin(timeout=10)
    clock.now_s += 5
    assert polls.report()["poll_age_ms"] == 0
    polls.end()
    polls.begin(timeout=0)  # librdkafka counts from there, whatever a callback does meanwhile
    clock.now_s += 5
    assert polls.report()["poll_age_ms"] == 5_000


def test_the_member_id_is_that_of_the_newest_membership(clock):
    polls = polls_of("")
    polls.end()
    assert polls.report() is None
    for now, told in (("m1", "m1"), (None, "m1"), ("m2", "m2"), (RuntimeError("closed"), "m2")):
        polls.keep.id = now
        clock.now_s += 1
        polls.end()
        assert polls.report()["member_id"] == told


def test_the_member_id_is_asked_for_at_each_poll_until_there_is_one(clock):
    """From then on it is asked for once an interval."""
    polls = polls_of("")
    polls.end()
    polls.keep.id = "m1"
    polls.end()
    polls.keep.id = "m2"
    polls.end()
    assert polls.report()["member_id"] == "m1"
    clock.now_s += 1
    polls.end()
    assert polls.report()["member_id"] == "m2"


@pytest.mark.parametrize("ends", ["closed", "unsubscribed"])
def test_who_is_closed_or_unsubscribed_need_not_poll(clock, ends):
    polls = polls_of("m")
    polls.end()
    assert polls.report() is not None
    polls.closed, polls.subscribed = ends == "closed", ends != "unsubscribed"
    assert polls.report() is None


def test_the_producer_has_the_consumers_connection_and_nothing_else_of_it():
    shared = {"bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "sasl.password": "s", "ssl.ca.location": "f"}
    other = {"group.id": "g", "client.id": "c", "auto.offset.reset": "latest", "stats_cb": print, "debug": "all"}
    settings = confluent._producer_settings({**shared, **other})
    assert settings == {**shared, **confluent._PRODUCER_SETTINGS, "client.id": "group-monitor-reporter-c"}


@pytest.mark.parametrize("make", [confluent.Consumer, confluent.DeserializingConsumer])
def test_polls_answer_and_fail_as_the_clients_own(make):
    consumer = make(CONFLUENT)
    consumer.subscribe(["orders"])
    assert [consumer.poll(0), consumer.poll(timeout=0)] == [None, None]
    with pytest.raises(TypeError):
        consumer.poll("soon")
    with pytest.raises(KafkaException):
        consumer.subscribe([])
    consumer.close()
    with pytest.raises(RuntimeError):
        consumer.poll(0)
    consumer._reports.join(10)
    assert not consumer._reports.is_alive()


def test_consume_answers_and_fails_as_the_clients_own():
    with confluent.Consumer(CONFLUENT) as consumer:
        consumer.subscribe(["orders"])
        assert [consumer.consume(5, 0), consumer.consume(num_messages=5, timeout=0)] == [[], []]
        with pytest.raises(ValueError):
            consumer.consume(2_000_000, 0)
    with pytest.raises(RuntimeError):
        consumer.consume(1, 0)
    consumer._reports.join(10)
    assert not consumer._reports.is_alive()


def test_a_consumer_that_cannot_be_made_raises_the_clients_error():
    with pytest.raises(KafkaException):
        confluent.Consumer({**CONFLUENT, "no.such.setting": 1})


def test_a_forgotten_consumer_ends_its_reports():
    consumer = confluent.Consumer(CONFLUENT)
    thread = consumer._reports
    del consumer
    thread.join(30)
    assert not thread.is_alive()


# ------------------------------------------------------------------------------------- a broker that is gone; the end

START = """
import atexit, logging, sys, threading, time
atexit.register(lambda: print(time.monotonic() - ended_s))  # registered first, called last
sys.path.insert(0, {root!r})
logging.basicConfig(level=logging.WARNING)
logging.getLogger("kafka").setLevel(logging.CRITICAL)
failed = threading.Event()
handler = logging.Handler()
handler.emit = lambda record: failed.set()
logging.getLogger("streaming.reporter").addHandler(handler)
"""
KAFKA_PYTHON_START = """
from tests.streaming.reporter.test_reporter_alone import KafkaPythonConsumer
from streaming.reporter import report_polls
consumer = KafkaPythonConsumer(5, servers={servers!r})
thread = report_polls(consumer, interval_s=0.05)
"""
CONFLUENT_START = """
from streaming.reporter.confluent import Consumer
Consumer.report_interval_s = 0.05
consumer = Consumer({settings!r})
thread = consumer._reports
consumer.subscribe(["orders"])
consumer.poll(0)
consumer._polls._member_id = "m"
"""
ENDS = {
    "while the first report is on its way": "time.sleep(0.3)",
    "after a report has failed": "assert failed.wait(30)",
}
FORK = """
import multiprocessing
def child():
    assert not thread.is_alive()
    consumer.poll(0) if hasattr(consumer, "poll") else None
process = multiprocessing.get_context("fork").Process(target=child)
time.sleep(0.3)
process.start()
process.join(20)
assert process.exitcode == 0, process.exitcode
assert thread.is_alive()
"""


def command_of(start, end, servers=NOBODY):
    """Run Python on it; it prints last for how many seconds its exit waited for threads and handlers.

    The interpreter takes itself down afterwards, for as long as the machine is busy.
    """
    script = START + start + end + "\nended_s = time.monotonic()\n"
    settings = repr({**CONFLUENT, "bootstrap.servers": servers})
    for name, value in (("root", repr(str(ROOT))), ("settings", settings), ("servers", repr(servers))):
        script = script.replace(f"{{{name}!r}}", value)
    return [sys.executable, "-c", script]


def exit_span_s(start, end):
    command = command_of(start, end)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return float(done.stdout)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("start", [KAFKA_PYTHON_START, CONFLUENT_START], ids=["kafka-python", "confluent-kafka"])
def test_an_exit_is_not_held_up_by_a_broker_that_is_gone(start, end):
    assert exit_span_s(start, end) < EXIT_S


@pytest.mark.parametrize("start", [KAFKA_PYTHON_START, CONFLUENT_START], ids=["kafka-python", "confluent-kafka"])
def test_a_fork_has_no_reporter_and_ends_and_its_parent_goes_on(start):
    assert exit_span_s(start, FORK) < EXIT_S

"""A Java consumer that stops polling for good is told by the metrics that it pushes itself, without a reporter.

A real broker with the plugin, recorded as `capture` does; the capture is replayed through the model.
"""

import time
from contextlib import ExitStack

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.shard.shard import ShardSettings
from streaming.capture_file import open_text, read_rows
from streaming.client_metrics.otlp import read_metrics
from streaming.embedded import EmbeddedCluster
from streaming.kafka_config import Kafka
from streaming.recorder import Recording
from tests.e2e.clients import Client, Spec, java_compiles
from tests.embedded.parts import skip_without_broker

pytestmark = pytest.mark.e2e
LIMIT_MS = 30_000  # a fifth of it holds a push, which comes every 5 s
WAIT_S = 90.0
KINDS = ("java", "java-848")
ALL_KINDS = (*KINDS, "confluent")
FATES = ("hangs", "late", "closed", "killed", "unsubscribed")


def lines_of(capture, name):
    with capture.open() as rows:
        return [row for row in rows if name in row and "PUSH_TELEMETRY" in row]


def await_(condition, what):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} in {WAIT_S} s"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The clients by group, and the incidents of a capture in which some of them stop polling."""
    skip_without_broker()
    if not java_compiles():
        pytest.skip("no Java compiler")
    capture = tmp_path_factory.mktemp("capture") / "pushes.jsonl"
    with ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(properties={"group.consumer.heartbeat.interval.ms": "1000"}))
        cluster.create_topic("orders", partitions=2)
        recording = Recording(
            Kafka(bootstrap_servers=cluster.bootstrap_servers), capture, from_beginning=True, probing=True
        )
        stack.callback(recording.finish)
        recording.start()
        clients = {}
        for fate in FATES:
            for kind in ALL_KINDS:
                group = f"{fate}-{kind}"
                spec = Spec(kind, group, f"client-of-{group}", ("orders",), max_poll_interval_ms=LIMIT_MS)
                clients[group] = Client(spec, cluster.bootstrap_servers, lambda *_: None)
                stack.callback(clients[group].end)
        for client in clients.values():
            client.wait_for("assigned")
        for name in clients:
            await_(lambda name=name: lines_of(capture, f"client-of-{name}"), f"push of {name}")
        for group, client in clients.items():
            match group.partition("-")[0]:
                case "hangs":
                    client.stall(3_600)
                case "late":
                    client.stall(LIMIT_MS * 0.9 / 1_000)
                case "closed":
                    client.close()
                case "killed":
                    client.kill()
                case "unsubscribed":
                    client.unsubscribe_and_stall(3_600)
        for kind in ALL_KINDS:
            clients[f"late-{kind}"].wait_for("polling")
        time.sleep(LIMIT_MS * 0.1 / 1_000 + 14)  # the limit of those that hang, two more pushes, and the aftermath
        recording.finish()
    with open_text(capture) as lines:
        settings = ShardSettings(cluster="c", partitions=0, live_from_ms=0)
        history = replay_rows(read_rows(lines), settings, read_metrics=read_metrics)
    return clients, history.transitions


def opened(transitions, group):
    return [t.incident for t in transitions if (t.kind, t.incident.group) == ("opened", group)]


@pytest.mark.parametrize("kind", KINDS)
def test_who_hangs_is_warned_of_before_its_limit_and_told_after_it(told, kind):
    clients, transitions = told
    incidents = {incident.rule: incident for incident in opened(transitions, f"hangs-{kind}")}
    risk, exceeded = incidents["poll-at-risk"], incidents["poll-exceeded"]
    assert risk.member_id == exceeded.member_id == clients[f"hangs-{kind}"].member_id
    assert risk.at_ms < risk.deadline_ms
    assert abs(exceeded.deadline_ms - risk.deadline_ms) < 3_000
    assert exceeded.evidence == "observed"
    assert exceeded.cause == "poll-interval"


def test_a_librdkafka_consumer_that_hangs_for_good_is_told_by_the_pushes_that_go_on(told):
    clients, transitions = told
    [exceeded] = [i for i in opened(transitions, "hangs-confluent") if i.rule == "poll-exceeded"]
    assert exceeded.member_id == clients["hangs-confluent"].member_id
    assert (exceeded.evidence, exceeded.cause) == ("inferred", "poll-interval")
    assert exceeded.at_ms - exceeded.deadline_ms < 15_000


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("fate", FATES[1:])
def test_nobody_else_is_told_to_have_exceeded_it(told, fate, kind):
    assert [i for i in opened(told[1], f"{fate}-{kind}") if i.rule == "poll-exceeded"] == []


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_who_is_late_but_in_time_is_warned_of_at_most(told, kind):
    assert {incident.rule for incident in opened(told[1], f"late-{kind}")} <= {"poll-at-risk"}

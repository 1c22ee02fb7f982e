"""A confluent-kafka consumer with the reporter that stops polling for good is told; one that is closed is not.

A real broker, recorded as `capture` does; the capture is replayed through the model.
"""

import time
from contextlib import ExitStack

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.shard.shard import ShardSettings
from streaming.capture_file import open_text, read_rows
from streaming.embedded import EmbeddedCluster
from streaming.kafka_config import Kafka
from streaming.recorder import Recording
from streaming.reporter.confluent import TOPIC, Consumer
from streaming.telemetry_topics import REPORT_CONFIGS
from tests.embedded.parts import skip_without_broker

pytestmark = pytest.mark.e2e
MAX_POLL_INTERVAL_MS = 6_000
WAIT_S = 60.0
AFTERMATH_S = 2.5  # as in `world`: grace passes inside the capture
PROTOCOLS = ("classic", "consumer")
HANGS = ("hangs", "hangs-with-callbacks")
FATES = (*HANGS, "closed")


def await_(condition, what):
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"no {what} in {WAIT_S} s"
        time.sleep(0.05)
    return found


class Member:
    """A consumer alone in its group, with the id under which it was a member."""

    def __init__(self, cluster, protocol, fate):
        self.group, self.fate = f"{fate}-{protocol}", fate
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": self.group,
            "client.id": f"client-of-{self.group}",
            "group.protocol": protocol,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
            "log_level": 0,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": MAX_POLL_INTERVAL_MS, "heartbeat.interval.ms": 1_000}
        self.consumer = Consumer(settings)
        # With callbacks a KIP-848 client cannot leave: it waits for its application to take the revocation in a poll.
        callbacks = {"on_revoke": lambda *_: None} if "callbacks" in fate else {}
        self.consumer.subscribe(["orders"], **callbacks)

    def join(self):
        def is_in():
            self.consumer.poll(0.1)
            return self.consumer.assignment()

        await_(is_in, f"assignment of {self.group}")
        self.member_id = self.consumer.memberid()


def overdue(member):
    """What it reports once it has left because of its poll interval, and two reports later."""
    report = member.consumer._polls.report()
    return report is not None and report["poll_age_ms"] > MAX_POLL_INTERVAL_MS + 3_000


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The members, and the incidents of a capture in which some of them stop polling and others are closed."""
    skip_without_broker()
    capture = tmp_path_factory.mktemp("capture") / "polls.jsonl"
    with ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(properties={"group.consumer.heartbeat.interval.ms": "1000"}))
        cluster.create_topic(TOPIC, partitions=1, configs=dict(REPORT_CONFIGS))
        cluster.create_topic("orders", partitions=2)
        kafka = Kafka(bootstrap_servers=cluster.bootstrap_servers)
        recording = Recording(kafka, capture, from_beginning=True, probing=True)
        stack.callback(recording.finish)
        recording.start()
        members = [Member(cluster, protocol, fate) for fate in FATES for protocol in PROTOCOLS]
        for member in members:
            member.join()
        for member in members:  # the last ones joined for a while: nobody is near its limit when it begins to hang
            member.consumer.poll(0)
        for member in members:
            if member.fate == "closed":
                member.consumer.close()
        await_(lambda: all(overdue(member) for member in members if member.fate in HANGS), "breach of each limit")
        time.sleep(AFTERMATH_S)
        recording.finish()
        for member in members:
            if member.fate in HANGS:
                assert member.consumer._reports.dropped <= 1
                member.consumer.close()
    with open_text(capture) as lines:
        history = replay_rows(read_rows(lines, (TOPIC,)), ShardSettings(cluster="c", partitions=0, live_from_ms=0))
    return {member.group: member for member in members}, history.transitions


def opened(transitions, rule, group):
    of_group = [t for t in transitions if t.incident.group == group]
    return [t.incident for t in of_group if (t.kind, t.incident.rule) == ("opened", rule)]


@pytest.mark.parametrize("fate", HANGS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_hangs_is_warned_of_before_its_limit_and_told_after_it(told, protocol, fate):
    members, transitions = told
    member = members[f"{fate}-{protocol}"]
    [risk] = opened(transitions, "poll-at-risk", member.group)
    [exceeded] = opened(transitions, "poll-exceeded", member.group)
    assert risk.member_id == exceeded.member_id == member.member_id
    assert risk.at_ms < risk.deadline_ms
    assert abs(exceeded.deadline_ms - risk.deadline_ms) < 1_000
    assert exceeded.at_ms >= exceeded.deadline_ms
    assert exceeded.evidence == "observed"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_is_closed_is_not_told(told, protocol):
    _, transitions = told
    assert [t for t in transitions if t.incident.group == f"closed-{protocol}"] == []

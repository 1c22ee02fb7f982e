"""A real broker without telemetry: killed and closed members look alike; one that reports that it hangs is named.

It is recorded as `capture` does, and the capture is replayed through the model.
"""

import json
import time
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient

from coordinator_model.capture_replay import replay_rows
from coordinator_model.incidents import Kind
from coordinator_model.shard.shard import ShardSettings
from streaming.capture.file import open_text, read_rows
from streaming.capture.recorder import Recording
from streaming.config.kafka import Kafka
from streaming.embedded import EmbeddedCluster
from streaming.reporter.confluent import TOPIC
from streaming.telemetry_topics import REPORT_CONFIGS
from tests.e2e.clients import Client, Spec
from tests.support.parts import skip_without_broker
from tests.support.waiting import await_true

pytestmark = pytest.mark.e2e
GROUPS = {"kafka-python": "classic", "confluent-848": "kip-848"}
FATES = ("stays", "killed", "closed")
LIMIT_MS = 6_000
AFTERMATH_S = 2.5  # as in `world`: the grace ends inside the capture
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.session.timeout.ms": "7000",
    "group.consumer.heartbeat.interval.ms": "1000",
}


def overdue(capture):
    """Tell whether a report has a poll age so large that its client has left."""
    with capture.open() as rows:
        values = [row["value"] for row in map(json.loads, rows) if row.get("topic") == TOPIC]
    return any(json.loads(value)["poll_age_ms"] > LIMIT_MS + 3_000 for value in values)


def remaining(cluster, group):
    """Return the members that the brokers still have."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    [described] = admin.describe_consumer_groups([group]).values()
    return {member.member_id for member in described.result().members}


def play(stack, cluster, capture):
    """Let one member of each group be killed, one be closed, and a reporting one hang; return the members' ids."""
    recording = Recording(
        Kafka(bootstrap_servers=cluster.bootstrap_servers), capture, from_beginning=True, probing=True
    )
    stack.callback(recording.finish)
    recording.start()
    clients, servers = {}, cluster.bootstrap_servers
    for software, group in GROUPS.items():
        for fate in FATES:
            spec = Spec(software, group, f"{group}-{fate}", ("orders",), max_poll_interval_ms=20_000)
            clients[group, fate] = client = Client(spec, servers, lambda *_: None)
            stack.callback(client.end)
    for group in GROUPS.values():
        mine = [client for (of, _), client in clients.items() if of == group]
        await_true(
            lambda mine=mine, group=group: {c.member_id for c in mine} == remaining(cluster, group),
            f"not all of {group} are in it",
            pause_s=0.2,
        )
        clients[group, "killed"].kill()
        clients[group, "closed"].close()
    limit = {"session_timeout_ms": LIMIT_MS, "max_poll_interval_ms": LIMIT_MS}
    hanging = Client(
        Spec("confluent", "hangs-classic", "hangs", ("orders",), reporter=True, **limit), servers, lambda *_: None
    )
    stack.callback(hanging.end)
    hanging.wait_for("assigned")
    hanging.stall(3_600)
    for group in GROUPS.values():
        stays = {clients[group, "stays"].member_id}
        await_true(
            lambda group=group, stays=stays: remaining(cluster, group) == stays,
            f"nobody was removed from {group}",
            pause_s=0.2,
        )
    await_true(lambda: overdue(capture), "no breach of the limit", pause_s=0.2)
    time.sleep(AFTERMATH_S)
    recording.finish()
    return {key: client.member_id for key, client in clients.items()} | {("hangs-classic", "hangs"): hanging.member_id}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    skip_without_broker()
    capture = tmp_path_factory.mktemp("capture") / "records.jsonl"
    with ExitStack() as stack:
        cluster = stack.enter_context(
            EmbeddedCluster(properties=PROPERTIES, telemetry=False, create_telemetry_topic=False)
        )
        cluster.create_topic(TOPIC, partitions=1, configs=dict(REPORT_CONFIGS))
        cluster.create_topic("orders", partitions=6)
        members = play(stack, cluster, capture)
    with open_text(capture) as lines:
        history = replay_rows(read_rows(lines, (TOPIC,)), ShardSettings(cluster="c", partitions=0, live_from_ms=0))
    return members, history


def opened(history, rule):
    return [t.incident for t in history.transitions if t.kind is Kind.OPENED and t.incident.rule == rule]


@pytest.mark.parametrize("group", GROUPS.values())
def test_the_killed_and_the_closed_are_told_once_each_and_alike(played, group):
    members, history = played
    told = [i for i in opened(history, "member-removed") if i.group == group]
    assert sorted(i.member_id for i in told) == sorted(members[group, fate] for fate in ("killed", "closed"))
    assert {(i.severity, i.cause, i.evidence) for i in told} == {("info", "unknown", "inferred")}
    assert all("cause unknown" in i.summary for i in told)


def test_who_reports_that_it_hangs_is_told_and_nobody_else_is_accused(played):
    members, history = played
    told = opened(history, "poll-exceeded")
    assert [(i.group, i.member_id, i.cause, i.evidence) for i in told] == [
        ("hangs-classic", members["hangs-classic", "hangs"], "poll-interval", "observed")
    ]
    assert opened(history, "session-expired") == opened(history, "rebalance-timeout") == []
    assert [
        t for t in history.transitions if t.incident.severity == "page" and t.incident.rule != "poll-exceeded"
    ] == []


def test_of_who_is_left_the_records_tell_all_but_whether_it_lives(played):
    members, history = played
    groups = {group["group"]: group for group in history.groups}
    for group in GROUPS.values():
        [left] = groups[group]["members"]
        assert left["member_id"] == members[group, "stays"]
        assert sum(len(topic["partitions"]) for topic in left["assignment"]) == 6
        assert (left["liveness"], left["client_phase"], left["sources"]) == ("unknown", None, ["records"])

"""`broker --no-telemetry`: the coordinator's own log alone shows who expired and when, and nobody else is reported.

A real broker is recorded as `capture` does, without a line of the request log; the capture is replayed as a user would.
"""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from streaming.capture.recorder import Recording
from streaming.cli import main
from streaming.config.kafka import Kafka
from streaming.embedded import TELEMETRY_TOPIC
from streaming.embedded.ports import free_ports
from streaming.embedded.truth import LEFT, SESSION_EXPIRED, read_truth
from tests.e2e.clients import Client, Spec
from tests.support.parts import skip_without_broker
from tests.support.waiting import await_true

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from streaming.commands.broker import broker_command; broker_command()"]
SETTINGS = {
    "group.initial.rebalance.delay.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1500",
}
AFTERMATH_S = 3.0
TOLERANCE_MS = 1_000
VIOLATIONS = {"session-expired", "rebalance-timeout", "poll-exceeded", "member-removed"}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """What the broker logged, the capture's telemetry rows, and what `replay` prints."""
    skip_without_broker()
    folder = tmp_path_factory.mktemp("log")
    (port,) = free_ports(1)
    capture, server = folder / "log.jsonl", f"127.0.0.1:{port}"
    options = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    command = [*COMMAND, "--no-telemetry", "--port", str(port), "--data-folder", str(folder / "data"), *options]
    with ExitStack() as stack:
        broker = stack.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        stack.callback(broker.send_signal, signal.SIGTERM)
        said = "".join(broker.stdout.readline() for _ in range(2))
        assert "INFO lines" in said
        recording = Recording(Kafka(bootstrap_servers=server), capture, from_beginning=True, probing=True)
        recording.start()
        stack.callback(recording.finish)
        ask_for_topic(server)
        truth = play(stack, server, folder / "data" / "node-1" / "broker.log")
        recording.finish()
    printed = CliRunner().invoke(main, ["replay", str(capture)])
    assert printed.exit_code == 0, printed.output
    rows = [row for row in map(json.loads, capture.read_text().splitlines()) if row.get("topic") == TELEMETRY_TOPIC]
    return truth, rows, [json.loads(line) for line in printed.stdout.splitlines()]


def ask_for_topic(server):
    from kafka import KafkaAdminClient

    with KafkaAdminClient(bootstrap_servers=server) as admin:
        admin.create_topics({"orders": {"num_partitions": 4, "replication_factor": 1}}, wait_for_metadata=True)


def stable(admin):
    """Tell whether both groups are stable with all their members, so that no rebalance is left to interrupt."""
    groups = [described.result() for described in admin.describe_consumer_groups(["classic", "modern"]).values()]
    return all(group.state == ConsumerGroupState.STABLE and len(group.members) == 3 for group in groups)


def play(stack, server, log):
    """Start two groups of three; in each, one is killed, one is closed and one stays."""
    clients = []
    for software, group in (("kafka-python", "classic"), ("confluent-848", "modern")):
        for fate in ("killed", "closed", "stays"):
            client = Client(Spec(software, group, f"{group}-{fate}", ("orders",)), server, lambda *_: None)
            stack.callback(client.end)
            clients.append(client)
    admin = AdminClient({"bootstrap.servers": server})
    await_true(lambda: all(client.assigned for client in clients) and stable(admin), "no stable groups", pause_s=0.2)
    for client in clients:
        if "killed" in client.spec.name:
            client.kill()
        elif "closed" in client.spec.name:
            client.close()

    def logged(kind):
        return [event for event in read_truth({"broker-1": [log]}) if event.kind == kind]

    await_true(lambda: len(logged(SESSION_EXPIRED)) == 2 and len(logged(LEFT)) == 2, "not two expiries and two leaves")
    time.sleep(AFTERMATH_S)
    return read_truth({"broker-1": [log]})


def test_no_line_of_the_request_log_was_shipped(played):
    _, rows, _ = played
    assert rows
    assert {row["value"].partition(" ")[0] for row in rows} == {"[GroupCoordinator"}


def test_every_expiry_is_named_with_cause_and_instant_and_nobody_else(played):
    truth, _, printed = played
    opened = [line for line in printed if line["kind"] == "incident" and line["transition"] == "opened"]
    accused = [line for line in opened if line["rule"] in VIOLATIONS]
    expired = {(e.group, e.member_id): e.at_ms for e in truth if e.kind == SESSION_EXPIRED}
    assert {(line["group"], line["member_id"]) for line in accused} == expired.keys()
    for line in accused:
        assert (line["rule"], line["cause"], line["evidence"]) == ("session-expired", "session-timeout", "observed")
        assert abs(line["deadline_ms"] - expired[line["group"], line["member_id"]]) <= TOLERANCE_MS
        assert line["detail"]["source"] == "coordinator-log"


def test_all_its_lines_are_read_and_the_coverage_says_what_they_are(played):
    _, rows, printed = played
    (summary,) = (line for line in printed if line["kind"] == "summary")
    assert not any(reason.startswith("telemetry") for reason in summary["undecodable"])
    assert summary["coverage"]["brokers"] == {}
    assert 0 < summary["coverage"]["coordinator_log"]["broker-1"]["lines"] <= len(rows)


def test_the_broker_s_own_log_has_the_same_lines(played):
    truth, rows, _ = played
    shipped = "\n".join(row["value"] for row in rows)
    assert all(event.line in shipped for event in truth if event.kind in (SESSION_EXPIRED, LEFT))

"""The embedded cluster is a real one: it ships telemetry, keeps data, survives its nodes and never its owner."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from streaming.embedded import TELEMETRY_TOPIC, EmbeddedBrokerError, EmbeddedCluster, ask, node
from tests.support.kafka_io import produce, read_until
from tests.support.waiting import await_true

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("broker_parts")]
ROOT = Path(__file__).resolve().parents[3]


def is_running(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state != "Z"
    return False


def test_a_request_to_the_broker_becomes_a_telemetry_line_keyed_by_that_broker(broker):
    ask.list_groups(broker.node(1).port)
    records = read_until(broker.bootstrap_servers, TELEMETRY_TOPIC, lambda records: len(records) >= 2)
    assert {record.key for record in records} == {b"broker-1"}
    assert len({record.partition for record in records}) == 1
    envelope = json.loads(records[-1].value.removeprefix(b"Completed request:"))
    assert envelope["requestHeader"]["requestApiKeyName"] == "LIST_GROUPS"
    assert abs(records[-1].timestamp - time.time() * 1000) < 60_000


def test_more_options_of_the_jvm_override_ours(tmp_path, monkeypatch):
    monkeypatch.setenv(node.JVM_OPTIONS, "-XX:TieredStopAtLevel=4 -Dname='two words'")
    commands = []
    process = SimpleNamespace(pid=1, poll=lambda: None)
    monkeypatch.setattr(node, "java_command", lambda: "java")
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: commands.append(command) or process)
    node.Node(1, 9092, tmp_path).launch()
    [command] = commands
    levels = [option for option in command if option.startswith("-XX:TieredStopAtLevel=")]
    assert levels[-1] == "-XX:TieredStopAtLevel=4"
    assert "-Dname=two words" in command[: command.index("kafka.Kafka")]


def test_produce_requests_leave_no_telemetry_line(broker):
    broker.create_topic("quiet", partitions=1)
    produce(broker.bootstrap_servers, "quiet", b"x")
    ask.list_groups(broker.node(1).port)
    records = read_until(broker.bootstrap_servers, TELEMETRY_TOPIC, lambda records: len(records) >= 2)
    assert {json.loads(record.value[18:])["requestHeader"]["requestApiKeyName"] for record in records} == {
        "LIST_GROUPS"
    }


def test_consumer_offsets_exists_with_fifty_partitions_before_the_first_group(broker):
    """Proved by reading it: `assign` on a topic that does not exist has no partitions."""
    with broker._admin() as admin:
        (topic,) = admin.describe_topics(["__consumer_offsets"])
    assert len(topic["partitions"]) == 50


def test_the_broker_log_has_utc_milliseconds(broker):
    first = next(line for line in broker.node(1).log_path.read_text().splitlines() if line.startswith("["))
    stamp = first[1:].split("]")[0]
    assert len(stamp) == len("2026-11-21T01:00:42,693")
    assert stamp[:13] in {time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() - age_s)) for age_s in (0, 600)}


OWNER = """
import sys, threading, time
from streaming.embedded import EmbeddedCluster
def start():
    cluster = EmbeddedCluster().__enter__()
    print(cluster.node(1).pid, cluster.folder, flush=True)
    keep.append(cluster)
keep = []
thread = threading.Thread(target=start)  # brokers must outlive the thread that started them, and not the process
thread.start(); thread.join()
time.sleep(600)
"""


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
def test_a_broker_is_gone_with_its_killed_owner_and_so_is_its_temporary_folder(frozen):
    owner = subprocess.Popen([sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        pid_text, folder = owner.stdout.readline().split()
        pid = int(pid_text)
        assert is_running(pid)
        if frozen:
            os.kill(pid, signal.SIGSTOP)
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    await_true(lambda: not is_running(pid))
    await_true(lambda: not Path(folder).exists())


def test_a_restarted_broker_has_its_data_and_port_after_a_stop_and_after_a_kill():
    with EmbeddedCluster() as cluster:
        node = cluster.node(1)
        cluster.create_topic("kept", partitions=1)
        produce(node.bootstrap_server, "kept", b"before the stop")
        node.stop()
        assert not node.running
        node.start()
        produce(node.bootstrap_server, "kept", b"before the kill")
        node.kill()
        node.start()
        records = read_until(node.bootstrap_server, "kept", lambda records: len(records) == 2)
    assert [record.value for record in records] == [b"before the stop", b"before the kill"]


def test_a_paused_broker_answers_nothing_until_it_is_resumed(broker):
    node = broker.node(1)
    node.pause()
    try:
        assert node.running
        assert ask.live_brokers(node.port) == set()
    finally:
        node.resume()
    await_true(lambda: ask.live_brokers(node.port) == {1})


def test_a_data_folder_is_kept_and_belongs_to_one_running_cluster_of_its_own_size(tmp_path):
    with EmbeddedCluster(data_folder=tmp_path) as cluster:
        cluster.create_topic("kept", partitions=1)
        produce(cluster.bootstrap_servers, "kept", b"value")
        with pytest.raises(EmbeddedBrokerError, match="in use by a running cluster"):
            EmbeddedCluster(data_folder=tmp_path).__enter__()
        assert cluster.node(1).running
    with pytest.raises(EmbeddedBrokerError, match="holds a cluster with nodes=1, not 3"):
        EmbeddedCluster(3, tmp_path).__enter__()
    with EmbeddedCluster(data_folder=tmp_path) as cluster:
        records = read_until(cluster.bootstrap_servers, "kept", lambda records: len(records) == 1)
    assert records[0].value == b"value"


def test_two_of_three_brokers_go_on_shipping_while_one_is_dead():
    with EmbeddedCluster(3) as cluster:
        before = read_until(
            cluster.bootstrap_servers, TELEMETRY_TOPIC, lambda records: len({r.key for r in records}) == 3
        )
        assert {record.key for record in before} == {b"broker-1", b"broker-2", b"broker-3"}
        cluster.node(3).kill()
        await_true(lambda: ask.live_brokers(cluster.node(1).port) == {1, 2})
        alive = f"{cluster.node(1).bootstrap_server},{cluster.node(2).bootstrap_server}"
        instant_ms = time.time() * 1000

        def both_spoke(records):
            for node_id in (1, 2):
                ask.list_groups(cluster.node(node_id).port)
            return {r.key for r in records if r.timestamp > instant_ms} == {b"broker-1", b"broker-2"}

        read_until(alive, TELEMETRY_TOPIC, both_spoke)
        cluster.node(3).start()
        assert ask.live_brokers(cluster.node(3).port) >= {3}


def test_properties_of_the_caller_win():
    with EmbeddedCluster(properties={"offsets.topic.num.partitions": "3"}, telemetry=False) as cluster:
        with cluster._admin() as admin:
            (topic,) = admin.describe_topics(["__consumer_offsets"])
        assert len(topic["partitions"]) == 3


def test_a_broker_that_cannot_start_says_why_in_one_line():
    with pytest.raises(EmbeddedBrokerError, match=r"did not start|cannot be formatted") as failure:
        EmbeddedCluster(properties={"num.io.threads": "many"}).__enter__()
    assert "num.io.threads" in str(failure.value)
    assert "\n" not in str(failure.value)
    log = Path(re.search(r"\(log: (.+)\)", str(failure.value))[1])
    assert "num.io.threads" in log.read_text()
    shutil.rmtree(log.parents[1])

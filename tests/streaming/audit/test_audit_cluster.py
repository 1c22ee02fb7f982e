"""`audit` on real brokers with real consumers, none of whose clusters has any set-up of ours."""

import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from streaming.audit.audit import audit
from streaming.audit.read import read_newest
from streaming.audit.tiers import tier_of
from streaming.config.kafka import Kafka
from streaming.embedded import EmbeddedCluster, readiness
from streaming.tiers import COORDINATOR_LOG, RECORDS_ONLY, REQUEST_LOG
from tests.support.parts import skip_without_broker
from tests.support.request_log import probe_line
from tests.support.secured import PASSWORD, USER
from tests.support.waiting import PATIENCE_S, await_true, interruptible

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[3]
LOGGED = b"[GroupCoordinator id=1] Dynamic member with unknown member id joins group g in Empty state."
HOSTILE = "<img src=x>|`code`\n# head\x1b[31m"
OFFSETS = "__consumer_offsets"
LONG_MS, ENDLESS_MS = 1_800_000, 2_147_483_647
PATIENT = {
    "enable_auto_commit": False,
    "session_timeout_ms": 600_000,
    "max_poll_interval_ms": LONG_MS,
    "heartbeat_interval_ms": 500,
}
"""No commits, and no timeout even on a slow machine: nobody but the audit could write into the offsets topic."""


def run(folder, *options):
    command = [sys.executable, "-m", "streaming.cli", "audit", *options]
    return subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=180, check=False
    )


@contextmanager
def member(bootstrap_servers, topic, group, client_id, **more):
    """A classic consumer that polls in a thread of its own; await it with `await_stable`."""
    settings = {**PATIENT, **more}
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=group, client_id=client_id, **settings
    )
    stop = threading.Event()

    def poll():
        while not stop.is_set():
            consumer.poll(timeout_ms=100)
        consumer.close()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield consumer
    finally:
        stop.set()
        thread.join()


@contextmanager
def member_that_stops_polling(bootstrap_servers, topic, group):
    """A member that heartbeats on and takes no notice of new partitions."""
    with closing(KafkaConsumer(topic, bootstrap_servers=bootstrap_servers, group_id=group, **PATIENT)) as consumer:
        await_true(lambda: consumer.poll(timeout_ms=100) is not None and consumer.assignment())
        yield consumer


@contextmanager
def modern_member(bootstrap_servers, topic, group):
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "group.protocol": "consumer",
        "enable.auto.commit": False,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        await_true(lambda: consumer.poll(0.1) is None and consumer.assignment())
        yield consumer


def await_stable(admin, **wanted):
    """Wait until all groups are stable, and each classic group named has so many members."""

    def is_so():
        try:
            if {group["group_state"] for group in admin.list_groups()} != {"Stable"}:
                return False
            groups = admin.describe_groups(list(wanted))
        except KafkaError:  # the coordinator of a first group is not there yet
            return False
        return {name: len(group["members"]) for name, group in groups.items()} == wanted

    await_true(is_so)


def topics_and_groups(bootstrap_servers):
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        return sorted(admin.list_topics()), sorted(group["group_id"] for group in admin.list_groups())


def ends(bootstrap_servers):
    """The end of every partition of the offsets topic."""
    with KafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        from kafka import TopicPartition

        return consumer.end_offsets([TopicPartition(OFFSETS, n) for n in consumer.partitions_for_topic(OFFSETS)])


@pytest.fixture(scope="module")
def cluster():
    """A broker that nobody has used: even the offsets topic is not there."""
    skip_without_broker()
    properties = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.session.timeout.ms": "60000",
        "offsets.topic.num.partitions": "5",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readiness, "await_coordinator", lambda _: None)  # that question makes the topic
        with EmbeddedCluster(telemetry=False, create_telemetry_topic=False, properties=properties) as running:
            yield running


@pytest.fixture(scope="module")
def of_the_empty_cluster(cluster, tmp_path_factory):
    """What an audit of the cluster said before anybody used it."""
    servers = cluster.bootstrap_servers
    assert topics_and_groups(servers) == ([], [])
    done = run(tmp_path_factory.mktemp("empty"), "--bootstrap-servers", servers)
    assert topics_and_groups(servers) == ([], [])
    return done


@pytest.fixture(scope="module")
def at_work(cluster, of_the_empty_cluster):
    """Groups with a trouble each, as they are while the audit looks."""
    servers = cluster.bootstrap_servers
    for topic in ("orders", "grows"):
        cluster.create_topic(topic, partitions=1)
    with ExitStack() as stack:
        admin = stack.enter_context(KafkaAdminClient(bootstrap_servers=servers))
        stack.enter_context(modern_member(servers, "orders", "modern"))
        stack.enter_context(member_that_stops_polling(servers, "grows", "unowned"))
        stack.enter_context(member(servers, "orders", HOSTILE, "a|b", max_poll_interval_ms=ENDLESS_MS))
        for number in range(2):
            stack.enter_context(member(servers, "orders", "idle", f"idle-{number}"))
        for _ in range(3):
            with member(servers, "orders", "flaps", "flapper"):
                await_stable(admin, flaps=1)
        stack.enter_context(member(servers, "orders", "flaps", "flapper"))
        admin.create_partitions({"grows": 3})
        await_true(lambda: len(admin.describe_topics(["grows"])[0]["partitions"]) == 3)
        await_stable(admin, flaps=1, idle=2, unowned=1, **{HOSTILE: 1})
        yield cluster


def groups_of(told):
    return {group["group"]: group for group in told["groups"]}


def rules_of(group):
    return [finding["rule"] for finding in group["findings"]]


class TestReport:
    @pytest.fixture(scope="class")
    @classmethod
    def told(cls, at_work, tmp_path_factory):
        servers, folder = at_work.bootstrap_servers, tmp_path_factory.mktemp("audit")
        done = None

        def nothing_was_written():  # a member may rejoin once more; an audit that writes would never pass
            nonlocal done
            before = topics_and_groups(servers), ends(servers)
            done = run(folder, "--bootstrap-servers", servers, "--json")
            return before == (topics_and_groups(servers), ends(servers))

        await_true(nothing_was_written)
        assert done.returncode == 0, done.stderr
        assert list(folder.iterdir()) == []
        return json.loads(done.stdout)

    def test_the_contract_is_kept_and_the_worst_comes_first(self, told):
        assert {"cluster", "groups", "tiers"} <= told.keys()
        assert {tuple(group) for group in told["groups"]} == {("group", "state", "type", "members", "findings")}
        findings = [finding for group in told["groups"] for finding in group["findings"]]
        assert {tuple(finding) for finding in findings} == {("rule", "severity", "summary")}
        warned = ["warn" in [f["severity"] for f in group["findings"]] for group in told["groups"]]
        assert warned == sorted(warned, reverse=True)
        assert told["records"]["share_read"] == 1.0

    def test_a_member_that_comes_and_goes_is_named(self, told):
        flaps = groups_of(told)["flaps"]
        assert {"member-flapping", "rebalance-storm"} <= set(rules_of(flaps))
        [flapping] = [f["summary"] for f in flaps["findings"] if f["rule"] == "member-flapping"]
        assert "flapper on " in flapping
        assert "came back 3 times" in flapping

    def test_idle_members_and_unowned_partitions_are_told(self, told):
        assert "member-idle" in rules_of(groups_of(told)["idle"])
        [unowned] = [f for f in groups_of(told)["unowned"]["findings"] if f["rule"] == "partition-unowned"]
        assert "grows-1, grows-2" in unowned["summary"]

    def test_groups_of_both_protocols_are_told_with_their_members(self, told):
        modern = groups_of(told)["modern"]
        assert (modern["type"], modern["state"], modern["members"]) == ("consumer", "Stable", 1)
        assert groups_of(told)["idle"]["type"] == "classic"
        assert groups_of(told)["idle"]["members"] == 2

    def test_a_poll_interval_without_an_end_is_told(self, told):
        assert "timeouts-inconsistent" in rules_of(groups_of(told)[HOSTILE])

    def test_each_tier_is_told_once_with_what_it_would_add(self, told):
        has = {tier["tier"]: tier["has"] for tier in told["tiers"]}
        assert [name for name, here in has.items() if here] == ["records", "pushed metrics"]  # it has the plugin
        assert list(has) == ["records", "coordinator's log", "request log", "pushed metrics", "client reports"]
        assert not any("telemetry" in rule for group in told["groups"] for rule in rules_of(group))

    def test_a_strangers_name_is_text_in_markdown(self, at_work, tmp_path):
        done = run(tmp_path, "--bootstrap-servers", at_work.bootstrap_servers, "--out", "report.md")
        assert done.returncode == 0, done.stderr
        text = (tmp_path / "report.md").read_text()
        assert "<img" not in text
        assert "\x1b" not in text
        assert "\n# head" not in text
        assert r"&lt;img src=x&gt;\|\`code\`" in text


@pytest.mark.parametrize(
    ("values", "tier"),
    [
        ([b"hello", None], RECORDS_ONLY),
        ([LOGGED, b"hello"], COORDINATOR_LOG),
        ([LOGGED, probe_line(1).encode(), LOGGED], REQUEST_LOG),
        ([json.dumps({"message": "[2026-11-21 01:00:42,693] INFO " + LOGGED.decode()}).encode()], COORDINATOR_LOG),
    ],
    ids=["no line", "the coordinator's log", "the request log", "the coordinator's log from a shipper"],
)
def test_the_newest_lines_of_a_telemetry_topic_tell_which_tier_it_is_of(at_work, values, tier):
    topic = f"lines-{uuid.uuid4().hex}"
    at_work.create_topic(topic, partitions=2)
    with closing(KafkaProducer(bootstrap_servers=at_work.bootstrap_servers)) as producer:
        for value in values:
            producer.send(topic, value=value, key=b"broker", partition=1)
    client = Kafka(bootstrap_servers=at_work.bootstrap_servers).python_client()
    assert tier_of(client, [topic], time.monotonic() + PATIENCE_S) == tier


class TestTimeBox:
    def test_of_a_topic_too_large_for_the_box_the_share_is_told(self, at_work):
        kafka = Kafka(bootstrap_servers=at_work.bootstrap_servers)
        report = audit(kafka, box_s=0.0)
        assert report.share == 0.0
        assert any("Only 0% of" in note for note in report.notes)
        assert {"idle", "flaps"} <= {group["group"] for group in report.groups}

    def test_the_newest_records_are_read_first(self, at_work):
        client = Kafka(bootstrap_servers=at_work.bootstrap_servers).python_client()
        at_work.create_topic("large", partitions=1)
        producer = KafkaProducer(bootstrap_servers=at_work.bootstrap_servers)
        for _ in range(5_000):
            producer.send("large", key=b"\x00\x01", value=b"")
        producer.flush()
        producer.close()
        stop, seen = threading.Event(), []

        def shown(read):
            if read.read:
                seen.append((read.partitions[0].low, read.partitions[0].high))
                stop.set()

        read = read_newest(client, "large", time.monotonic() + PATIENCE_S, stop, shown)
        assert seen[0] == (4_500, 5_000)
        assert 0 < read.share < 1
        whole = read_newest(client, "large", time.monotonic() + PATIENCE_S, threading.Event())
        assert (whole.share, whole.is_whole(0)) == (1.0, True)

    def test_all_partitions_of_a_large_topic_are_read_to_their_beginning(self, at_work):
        """kafka-python reads nothing while it holds records of a paused partition: of 12,000,000 1% was read."""
        client = Kafka(bootstrap_servers=at_work.bootstrap_servers).python_client()
        at_work.create_topic("wide", partitions=50)
        producer = ConfluentProducer({"bootstrap.servers": at_work.bootstrap_servers})
        for number in range(300_000):
            producer.produce("wide", key=b"\x00\x01", value=bytes(30), partition=number % 50)
            if number % 50_000 == 0:
                producer.flush()
        producer.flush()
        read = read_newest(client, "wide", time.monotonic() + PATIENCE_S, threading.Event())
        assert (read.share, read.read) == (1.0, 300_000)


def test_sigterm_ends_it_without_a_report(at_work, tmp_path):
    command = [sys.executable, "-m", "streaming.cli", "audit", "--bootstrap-servers", at_work.bootstrap_servers]
    at_work.node(1).pause()
    try:
        with (
            interruptible(),
            subprocess.Popen(
                [*command, "--out", "report.md"],
                cwd=tmp_path,
                env={"PYTHONPATH": str(ROOT)},
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
        ):
            await_true(
                lambda: any(line.startswith("SigCgt") and int(line[7:], 16) & 1 << 14 for line in status(process)),
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 1
            assert "ended before the report was made" in process.stderr.read()
    finally:
        at_work.node(1).resume()
    assert list(tmp_path.iterdir()) == []


def status(process):
    """What the system says of a process: its handlers are set once it can be told to stop."""
    return Path(f"/proc/{process.pid}/status").read_text().splitlines()


class TestSecured:
    def config(self, secured, folder, password=PASSWORD):
        (folder / "password").write_text(password)
        (folder / "monitor.toml").write_text(
            f'[kafka]\nbootstrap_servers = "{secured.server("SASL_PLAINTEXT")}"\nsecurity_protocol = "SASL_PLAINTEXT"\n'
            f'sasl_mechanism = "PLAIN"\nsasl_username = "{USER}"\nsasl_password_file = "password"\n'
        )
        return folder / "monitor.toml"

    def test_a_wrong_password_is_one_line_and_exit_code_1(self, secured, tmp_path):
        done = run(tmp_path, "--config", str(self.config(secured, tmp_path, "wr0ng-secret")))
        assert done.returncode == 1
        assert "does not accept user" in done.stderr
        assert "wr0ng-secret" not in done.stderr + done.stdout

    def test_where_the_offsets_topic_is_denied_the_brokers_word_is_reported(self, secured, tmp_path):
        from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

        servers = secured.cluster.bootstrap_servers
        secured.cluster.create_topic("orders", partitions=1)
        pattern = ResourcePattern(ResourceType.TOPIC, OFFSETS)
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_acls([ACL("User:somebody", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
        with (
            KafkaAdminClient(bootstrap_servers=servers) as admin,
            member(servers, "orders", "denied", "one"),
            member(servers, "orders", "denied", "two"),
            modern_member(servers, "orders", "denied-modern"),
        ):
            await_stable(admin, denied=2)
            done = run(tmp_path, "--config", str(self.config(secured, tmp_path)), "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        denied = groups_of(told)["denied"]
        assert (denied["members"], denied["state"]) == (2, "Stable")
        assert "member-idle" in rules_of(denied)
        modern = groups_of(told)["denied-modern"]
        assert (modern["members"], modern["type"], modern["findings"]) == (1, "consumer", [])
        assert any("may not be read" in note for note in told["notes"])
        assert told["tiers"][0]["has"] is False


def test_an_empty_cluster_stays_empty(of_the_empty_cluster):
    assert of_the_empty_cluster.returncode == 0, of_the_empty_cluster.stderr
    assert "There are no groups." in of_the_empty_cluster.stdout

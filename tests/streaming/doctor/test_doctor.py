"""`doctor` on set-ups that work and on those that do not: each says what is wrong and what to do about it."""

import http.server
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from importlib import metadata
from pathlib import Path
from unittest.mock import Mock

import pytest
from cryptography.hazmat.primitives import serialization

from streaming.config.kafka import Kafka
from streaming.config.settings import Serve, Settings, StoreSettings, load
from streaming.connection.pushes import Pushes
from streaming.doctor import cluster as cluster_checks
from streaming.doctor import machine
from streaming.doctor.check import Status, ok, warn
from streaming.doctor.cluster import Cluster, _client_id
from streaming.doctor.coverage import MAX_GROUPS, check_coverage
from streaming.doctor.rights import acl_lines
from streaming.doctor.tiers import BELOW, snippet, would_add
from streaming.embedded import EmbeddedCluster
from streaming.store import Store
from tests.support.kafka_io import produce
from tests.support.outputs import CLUSTER, report, view
from tests.support.parts import skip_without_broker
from tests.support.request_log import probe_line
from tests.support.secured import Authority

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120


def doctor(folder, bootstrap_servers="127.0.0.1:1", *options, more=""):
    """Exit code and lines of `group-monitor doctor` on a configuration in `folder`."""
    config = folder / "monitor.toml"
    config.write_text(f'[kafka]\nbootstrap_servers = "{bootstrap_servers}"\n{more}')
    return run(folder, "--config", str(config), *options)


def run(folder, *options, before="pass"):
    code = f"{before}; from streaming.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", *options],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "Error" not in done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def status_of(lines, name):
    """Status and text of the check of that name."""
    (found,) = [line for line in lines if line[6:].startswith(f"{name} ")]
    return found.split()[0], found


@contextmanager
def healthy(serve):
    """What `/healthz` of a `serve` answers, at its host; yields the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"healthy": true}')

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in serve.host else socket.AF_INET

    with Server((serve.host, 0), Handler) as server:
        if serve.tls_certfile:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(serve.tls_certfile, serve.tls_keyfile)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        server.shutdown()


class TestMachine:
    def test_an_old_python_is_a_failure_that_names_what_to_install(self):
        check = machine.check_python((3, 10, 4))
        assert check.status is Status.FAIL
        assert "3.11" in check.advice

    def test_another_distribution_with_a_package_of_our_name_is_named(self, monkeypatch):
        owners = {"streaming": ["kafka-group-monitor", "mosaicml-streaming"], "pip": ["pip"]}
        monkeypatch.setattr(metadata, "packages_distributions", lambda: owners)
        check = machine.check_clashes()
        assert check.status is Status.FAIL
        assert check.found.endswith("streaming of mosaicml-streaming")

    def test_our_own_distribution_does_not_clash_with_itself(self, monkeypatch):
        monkeypatch.setattr(metadata, "packages_distributions", lambda: {"streaming": ["kafka-group-monitor"]})
        assert machine.check_clashes().status is Status.OK

    def test_a_java_home_without_java_says_what_to_install(self, monkeypatch, tmp_path):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        check = machine.check_java()
        assert check.status is Status.FAIL
        assert "install Java 17" in check.advice

    def test_an_empty_folder_of_jars_is_a_failure(self, monkeypatch, tmp_path):
        monkeypatch.setenv("GROUP_MONITOR_JARS", str(tmp_path))
        assert machine.check_jars().status is Status.FAIL

    def test_a_port_in_use_is_a_failure_and_a_free_one_is_not(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            assert machine.check_port(Serve(port=port)).status is Status.FAIL
        assert machine.check_port(Serve(port=port)).status is Status.OK

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ('[[notify]]\nkind = "pagerduty"\nrouting_key_file = "/nope"', "routing key"),
            ('[serve]\nheartbeat_url_file = "/nope"', "heartbeat_url_file"),
            ('[serve]\ntls_certfile = "/nope"\ntls_keyfile = "/nope"', "tls_certfile: /nope"),
        ],
    )
    def test_what_serve_reads_from_files_is_read(self, tmp_path, table, words):
        (tmp_path / "monitor.toml").write_text(table)
        check = machine.check_serve(load(tmp_path / "monitor.toml"))
        assert check.status is Status.FAIL
        assert words in check.found

    def test_the_password_of_an_encrypted_key_is_not_asked_for(self, tmp_path):
        certificate, key = Authority(tmp_path).issue("localhost")
        private = serialization.load_pem_private_key(Path(key).read_bytes(), None)
        how = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        Path(key).write_bytes(private.private_bytes(*how, serialization.BestAvailableEncryption(b"a password")))
        check = machine.check_serve(Settings(serve=Serve(tls_certfile=certificate, tls_keyfile=key)))
        assert check.status is Status.FAIL
        assert "not encrypted" in check.found

    def test_the_receivers_are_named(self):
        check = machine.check_serve(Settings.model_validate({"notify": ({"kind": "log"},)}))
        assert (check.status, check.found) == (Status.OK, "log")

    @pytest.mark.parametrize(("host", "with_tls"), [("::1", False), ("127.0.0.1", True)])
    def test_a_serve_that_runs_is_found_at_any_address_and_with_tls(self, tmp_path, host, with_tls):
        files = Authority(tmp_path).issue("serve", "another.name") if with_tls else (None, None)
        serve = Serve(host=host, tls_certfile=files[0], tls_keyfile=files[1])
        with healthy(serve) as port:
            check = machine.check_port(serve.model_copy(update={"port": port}))
        assert (check.status, check.found) == (Status.OK, f"{serve.address(port)}: `serve` is running")

    def test_the_store_is_opened_where_it_exists_and_not_made_where_it_does_not(self, tmp_path):
        missing = tmp_path / "a" / "monitor.db"
        assert machine.check_store(StoreSettings(url=f"sqlite:///{missing}")).status is Status.OK
        assert not missing.parent.exists()
        (tmp_path / "text.db").write_text("this is no database, whatever its name says" * 100)
        assert machine.check_store(StoreSettings(url=f"sqlite:///{tmp_path}/text.db")).status is Status.FAIL

    @pytest.mark.parametrize(
        ("found", "status", "words"),
        [
            ("0005", Status.OK, "schema 0005"),
            (None, Status.OK, "`run` makes schema 0005"),
            ("0004", Status.WARN, "schema 0004, this version needs 0005"),
            ("0006", Status.FAIL, "this one needs 0005"),
        ],
    )
    def test_the_schema_of_the_store_is_told_beside_the_one_that_is_needed(self, found, status, words):
        check = machine.check_schema(found, "0005")
        assert check.status is status
        assert words in check.found

    def test_a_database_that_others_may_read_is_told(self, tmp_path):
        from streaming.store import Store

        settings, file = StoreSettings(url=f"sqlite:///{tmp_path}/monitor.db"), tmp_path / "monitor.db"
        Store.open(settings.connection_url()).close()
        file.chmod(0o644)
        check = machine.check_store(settings)
        assert (check.status, check.advice) == (Status.WARN, f"chmod 600 {file}*")
        assert "044" in check.found
        file.chmod(0o600)
        assert machine.check_store(settings).status is Status.OK

    def test_a_password_is_not_printed_when_the_database_is_away(self):
        check = machine.check_store(StoreSettings(url="postgresql://monitor:hunter2@127.0.0.1:1/monitor"))
        assert check.status is Status.FAIL
        assert "hunter2" not in check.line()

    def test_a_check_stays_one_line_whatever_it_found(self):
        assert "\n" not in warn("name", "two\nlines", "and\r\nmore").line()

    def test_what_a_broker_says_steers_no_terminal(self):
        assert ok("name", "\x1b]0;mine\x07 \u202e").line().isprintable()

    def test_a_folder_that_may_not_be_looked_into_is_a_failure(self, monkeypatch):
        stat = os.stat

        def refused(path, *more, **options):
            if str(path).startswith("/usr/closed/"):
                raise PermissionError(13, "Permission denied")
            return stat(path, *more, **options)

        monkeypatch.setattr("os.stat", refused)
        monkeypatch.setattr("os.access", lambda *_: False)
        check = machine.check_store(StoreSettings(url="sqlite:////usr/closed/monitor.db"))
        assert (check.status, check.found) == (Status.FAIL, "/usr is not writable")


class TestRights:
    def test_acl_commands_let_the_monitor_read_only(self):
        """Only brokers and applications may write."""
        printed = acl_lines(Kafka(telemetry_topics=("lines",)))
        whys, commands = printed[::2], printed[1::2]
        assert all(why.startswith("# ") for why in whys)
        read, reader, *_, lines, write = commands
        assert "--topic __consumer_offsets --topic lines --topic group-client-telemetry" in read
        assert "--operation DescribeConfigs" in read
        assert reader.endswith("--operation Describe --resource-pattern-type prefixed --group group-monitor-run")
        assert "Write" not in read + reader
        assert lines.endswith("--allow-principal User:BROKER --operation Write --operation Describe --topic lines")
        assert "User:APP" in write
        assert "__consumer_offsets" not in write


class TestConfiguration:
    def test_a_typo_is_a_failure_that_names_file_and_line(self, tmp_path):
        code, lines = doctor(tmp_path, more="sasl_usrname = 'x'\n")
        assert code == 2
        status, line = status_of(lines, "config")
        assert status == "fail"
        assert "monitor.toml:3" in line

    def test_a_cluster_that_does_not_answer_is_a_failure(self, tmp_path):
        """Doctor needs no Spark to say so."""
        without_spark = "import sys; sys.modules.update(pyspark=None)"
        (tmp_path / "monitor.toml").write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
        code, lines = run(tmp_path, "--config", "monitor.toml", before=without_spark)
        assert code == 1
        assert status_of(lines, "spark")[0] == "fail"
        status, line = status_of(lines, "broker")
        assert status == "fail"
        assert "127.0.0.1:1" in line


@pytest.fixture(scope="module")
def cluster():
    """A cluster that refuses what an ACL refuses; anonymous clients may do everything else."""
    skip_without_broker()
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedCluster(properties=authorizer) as running:
        yield running


@pytest.mark.e2e
class TestCluster:
    def test_a_cluster_with_telemetry_is_tier_2_and_its_round_trip_is_told(self, cluster, tmp_path):
        code, lines = doctor(tmp_path, cluster.bootstrap_servers, more="[serve]\nport = 0\n")
        assert code == 0, lines
        assert status_of(lines, "tier")[1].split()[2] == "2:"
        status, line = status_of(lines, "telemetry of 1")
        assert status == "ok"
        assert "ms after, key 'broker-1'" in line
        assert status_of(lines, "records")[0] == "ok"
        assert status_of(lines, "client reports")[0] == "warn"
        assert not (tmp_path / "monitor-data").exists()

    def test_an_empty_topic_of_reports_is_no_report(self, cluster, tmp_path):
        cluster.create_topic("reports", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
        more = 'client_telemetry_topics = ["reports"]\n'
        _, lines = doctor(tmp_path, cluster.bootstrap_servers, more=more)
        assert "no client reports" in status_of(lines, "tier")[1]
        produce(cluster.bootstrap_servers, "reports", b"a report")
        _, lines = doctor(tmp_path, cluster.bootstrap_servers, more=more)
        assert "with client reports" in status_of(lines, "tier")[1]

    def test_the_client_telemetry_topic_wants_the_brokers_clock(self, cluster, tmp_path):
        cluster.create_topic("client-clock", partitions=1)
        cluster.create_topic("broker-clock", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
        _, lines = doctor(
            tmp_path, cluster.bootstrap_servers, more='client_telemetry_topics = ["client-clock", "broker-clock"]\n'
        )
        found = {line.split()[0] for line in lines if "client-clock" in line and "LogAppendTime" in line}
        assert found == {"warn"}
        assert any(line.startswith("ok") and "broker-clock" in line for line in lines)

    def test_without_its_topic_there_is_no_telemetry_and_the_advice_creates_it(self, cluster, tmp_path):
        code, lines = doctor(
            tmp_path, cluster.bootstrap_servers, more='telemetry_topics = ["nobody-made-this"]\n[serve]\nport = 0\n'
        )
        assert code == 0, lines
        status, line = status_of(lines, "telemetry topic")
        assert status == "warn"
        assert "doctor --create-topics" in line
        assert status_of(lines, "tier")[1].split()[2] == "0:"
        added = [line.partition("would add")[2].split(":")[0].strip() for line in lines if "would add" in line]
        assert added[:2] == ["tier 1, the coordinators' INFO lines", "tier 2, the request log"]
        commands = [line.split("`")[1] for line in lines if "would add" in line and "`group-monitor log4j2" in line]
        assert commands == ["group-monitor log4j2 --tier 1", "group-monitor log4j2"]

    def test_a_request_log_that_is_off_is_noticed(self, cluster, tmp_path):
        cluster.set_request_log("WARN")
        try:
            _, lines = doctor(tmp_path, cluster.bootstrap_servers)
        finally:
            cluster.set_request_log("DEBUG")
        assert status_of(lines, "telemetry of 1")[0] == "warn"
        assert status_of(lines, "tier")[1].split()[2] == "0:"

    def test_a_topic_with_the_coordinator_s_own_log_alone_is_tier_1(self, cluster, tmp_path):
        from kafka import KafkaProducer

        cluster.create_topic("coordinator-log", partitions=1)
        with closing(KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)) as producer:
            head = b"[GroupCoordinator id=1 topic=__consumer_offsets partition=3] "
            line = head + b"Stabilized group g generation 1 with 1 members."
            producer.send("coordinator-log", line, key=b"broker-1").get(20)
        _, lines = doctor(tmp_path, cluster.bootstrap_servers, more='telemetry_topics = ["coordinator-log"]\n')
        status, line = status_of(lines, "tier")
        assert (status, line.split()[2]) == ("ok", "1:")

    def test_a_refused_topic_is_a_failure_and_the_commands_that_help_are_printed(self, cluster, tmp_path):
        from kafka import KafkaAdminClient
        from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

        secret = ResourcePattern(ResourceType.TOPIC, "secret-offsets")
        cluster.create_topic("secret-offsets", partitions=1)
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_acls([ACL("User:somebody", "*", ACLOperation.READ, ACLPermissionType.ALLOW, secret)])

        code, lines = doctor(tmp_path, cluster.bootstrap_servers, more='offsets_topic = "secret-offsets"\n')
        assert code == 1
        assert status_of(lines, "records")[0] == "fail"
        assert any(line.startswith("kafka-acls") and "--topic secret-offsets" in line for line in lines)


@pytest.mark.parametrize(
    ("tier", "reports", "added"),
    [
        (0, False, ["tier 1", "tier 2", "clients' reports"]),
        (0, True, ["tier 1", "tier 2"]),
        (1, True, ["tier 2"]),
        (2, False, ["clients' reports"]),
        (2, True, []),
    ],
)
def test_what_is_not_there_is_told_with_the_command_that_adds_it(tier, reports, added):
    checks = list(would_add(tier, reports=reports, has_topic=False, pushes=Pushes.ASKED_FOR))
    assert [check.found.partition(":")[0].partition(",")[0] for check in checks] == added
    assert all(check.status is Status.OK and "`group-monitor " in check.found for check in checks)


@pytest.mark.parametrize("has_topic", [True, False])
def test_a_topic_that_is_there_and_empty_is_not_to_be_created(has_topic):
    [check] = would_add(2, reports=False, has_topic=has_topic, pushes=Pushes.ASKED_FOR)
    assert ("--create-topics" in check.found) != has_topic
    assert "streaming.reporter" in check.found


@pytest.mark.parametrize(
    ("pushes", "missing"), [(Pushes.NOT_TAKEN, "a plugin (docs"), (Pushes.NOT_ASKED_FOR, "the brokers have a plugin;")]
)
def test_brokers_that_take_no_pushes_or_ask_for_none_are_told_how(pushes, missing):
    [check] = would_add(2, reports=True, has_topic=True, pushes=pushes)
    assert missing in check.found
    assert "kafka-configs --alter --entity-type client-metrics --entity-name group-monitor" in check.found
    assert "last.poll.seconds.ago" in check.found


def test_the_file_that_adds_the_request_log_is_printed_for_this_cluster():
    assert 'topic: "group-telemetry"' in snippet(Kafka(telemetry_topics=()))
    kafka = Kafka(bootstrap_servers="kafka-1:9092", telemetry_topics=("lines",))
    added = would_add(1, reports=True, has_topic=True, pushes=Pushes.ASKED_FOR)
    [check] = [check for check in added if BELOW in check.found]
    assert "tier 2" in check.found
    text = snippet(kafka)
    assert '"kafka-1:9092"' in text
    assert 'topic: "lines"' in text


class TestCoverage:
    @pytest.fixture
    def settings(self, tmp_path):
        return StoreSettings(url=f"sqlite:///{tmp_path}/monitor.db")

    def stored(self, settings, *groups):
        """Let `run` have stored groups, each with how many members each source shows."""
        with closing(Store.open(settings.connection_url())) as store:
            outputs = [report(group, view=view(group, members_total=2, sources=sources)) for group, sources in groups]
            store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=Settings(cluster=CLUSTER))

    def test_of_each_group_it_is_told_which_source_shows_how_many(self, settings):
        self.stored(settings, ("orders", {"records": 2, "request-log": 1}), ("dark", {"records": 0}))
        orders, dark = sorted(check_coverage(settings, CLUSTER), key=lambda check: "orders" not in check.found)
        assert orders.status is Status.OK
        assert "'orders': of 2 members records shows 2, request-log shows 1" in orders.found
        assert dark.status is Status.WARN

    def test_of_very_many_groups_those_in_trouble_are_told_and_the_number_of_the_others(self, settings):
        self.stored(settings, *((f"group-{number}", {"records": 2}) for number in range(MAX_GROUPS + 3)))
        *told, last = check_coverage(settings, CLUSTER)
        assert len(told) == MAX_GROUPS
        assert last.found == "and 3 further groups: `/api/v1/groups` has them"

    def test_where_nothing_was_stored_nothing_is_said(self, settings):
        assert list(check_coverage(settings, CLUSTER)) == []
        Store.open(settings.connection_url()).close()
        assert list(check_coverage(settings, CLUSTER)) == []


def test_while_brokers_restart_one_by_one_the_tier_is_told_of_each(monkeypatch):
    topic = {"name": "group-telemetry", "error_code": 0, "partitions": []}
    brokers = {"cluster_id": "c", "brokers": [{"broker_id": number} for number in (3, 1, 2)]}
    lines = [ok("telemetry of 1", "came"), ok("telemetry of 2", "came"), warn("telemetry of 3", "no line", "wait")]
    monkeypatch.setattr(cluster_checks, "describe_cluster", lambda _: brokers)
    monkeypatch.setattr(cluster_checks, "pushes", lambda _: Pushes.ASKED_FOR)
    monkeypatch.setattr(Cluster, "_check_lines", lambda *_: iter(lines))
    monkeypatch.setattr(Cluster, "_check_topic", lambda *_: iter(()))
    admin = Mock(describe_topics=lambda _: [topic])
    checks = list(Cluster(Kafka(), admin, Mock(), "doctor").checks())
    [tier] = [check for check in checks if check.name == "tier"]
    assert tier.status is Status.WARN
    assert tier.found.startswith("2 on brokers 1, 2, not yet on 3, ")
    assert not [check for check in checks if BELOW in check.found]


@pytest.mark.parametrize(
    ("topic", "check_name"), [("group-telemetry", "telemetry topic"), (Kafka().offsets_topic, "records")]
)
def test_a_partition_without_a_leader_is_a_failure_for_run_cannot_read_past_it(monkeypatch, topic, check_name):
    partitions = [{"partition_index": number, "leader_id": leader} for number, leader in [(0, 1), (1, -1), (2, -1)]]
    admin = Mock(describe_topics=lambda _: [{"name": topic, "error_code": 0, "partitions": partitions}])
    monkeypatch.setattr(cluster_checks, "describe_cluster", lambda _: {"cluster_id": "c", "brokers": []})
    monkeypatch.setattr(cluster_checks, "pushes", lambda _: Pushes.ASKED_FOR)
    consumer = Mock(spec_set=[])  # kafka-python raises KeyError where a leader is unknown
    [failed] = [check for check in Cluster(Kafka(), admin, consumer, "doctor").checks() if check.status is Status.FAIL]
    assert (failed.name, "no leader of partitions 1, 2" in failed.found) == (check_name, True)


@pytest.mark.parametrize(
    "wrap", [str, lambda line: json.dumps({"message": line}), lambda line: json.dumps({"log": line})]
)
def test_a_line_is_known_for_one_also_inside_a_shippers_json(wrap):
    dated = f"[2026-11-21 01:00:42,693] DEBUG {probe_line(1)} (kafka.request.logger)"
    assert _client_id(wrap(dated).encode()) == "group-monitor-probe"
    assert _client_id(wrap("hello").encode()) is None

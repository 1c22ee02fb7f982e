"""What keeps a client from a cluster is named, with what to do, within seconds: by real listeners and by worse ones."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from pydantic import SecretStr, ValidationError

from streaming.cli import main
from streaming.config.kafka import Kafka, server_addresses
from streaming.connection import Kind, diagnose
from tests.support.secured import PASSWORD, USER, Authority
from tests.support.waiting import await_true

ROOT = Path(__file__).parents[3]
WRONG = "wr0ng-secret"
SECONDS = 15


def credentials(password=PASSWORD, mechanism="PLAIN"):
    return {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": SecretStr(password)}


def settings(secured, listener, protocol, *, password=PASSWORD, mechanism="PLAIN", **more):
    """`[kafka]` for one of the broker's listeners."""
    sasl = credentials(password, mechanism) if "SASL" in protocol else {}
    tls = {"ssl_cafile": secured.authority.ca} if "SSL" in protocol else {}
    given = sasl | tls | more
    return Kafka(bootstrap_servers=secured.server(listener), security_protocol=protocol, **given)


def kind_of(problem):
    return problem and problem.kind


PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@pytest.mark.e2e
class TestListeners:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    @pytest.mark.parametrize("listener", PROTOCOLS)
    def test_a_wrong_security_protocol_is_answered_with_the_right_one(self, secured, listener, protocol):
        """The listener's own protocol works."""
        problem = diagnose(settings(secured, listener, protocol), topics=["__consumer_offsets"])
        if listener == protocol:
            assert problem is None
        else:
            assert problem.kind is Kind.LISTENER
            assert f"the listener speaks {listener}" in problem.found
            assert f'security_protocol = "{listener}"' in problem.advice

    @pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_a_wrong_password_is_told_from_a_right_one_and_is_not_printed(self, secured, protocol, mechanism):
        assert diagnose(settings(secured, protocol, protocol, mechanism=mechanism)) is None
        problem = diagnose(settings(secured, protocol, protocol, mechanism=mechanism, password=WRONG))
        assert problem.kind is Kind.AUTHENTICATION
        assert f'user "{USER}"' in str(problem)
        assert WRONG not in str(problem)

    def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are(self, secured):
        problem = diagnose(settings(secured, "SCRAM_ONLY", "SASL_PLAINTEXT"))
        assert problem.kind is Kind.MECHANISM
        assert "does not offer PLAIN but SCRAM-SHA-512" in problem.found

    @pytest.mark.parametrize(
        ("listener", "kind", "words"),
        [
            ("ELSEWHERE", Kind.CERTIFICATE, 'not for "127.0.0.1" but for kafka-1.example'),
            ("EXPIRED", Kind.CERTIFICATE, "expired"),
            ("MTLS", Kind.CLIENT_CERTIFICATE, "ssl_certfile"),
        ],
    )
    def test_what_is_wrong_with_a_certificate_is_said(self, secured, listener, kind, words):
        problem = diagnose(settings(secured, listener, "SSL"))
        assert problem.kind is kind
        assert words in str(problem)

    def test_only_a_client_certificate_of_its_authority_opens_a_listener(self, secured, tmp_path):
        """A certificate of another authority is named as the problem."""
        certificate, key = secured.authority.issue("client")
        assert diagnose(settings(secured, "MTLS", "SSL", ssl_certfile=certificate, ssl_keyfile=key)) is None
        foreign, its_key = Authority(tmp_path).issue("client")
        problem = diagnose(settings(secured, "MTLS", "SSL", ssl_certfile=foreign, ssl_keyfile=its_key))
        assert problem.kind is Kind.CLIENT_CERTIFICATE

    def test_an_authority_that_is_not_the_broker_s_is_no_trust(self, secured, tmp_path):
        problem = diagnose(settings(secured, "SSL", "SSL", ssl_cafile=Authority(tmp_path).ca))
        assert problem.kind is Kind.CERTIFICATE
        assert "ssl_cafile" in problem.advice

    def test_files_that_do_not_fit_are_told_from_a_broker_that_refuses(self, secured):
        certificate, _ = secured.authority.issue("one")
        _, other_key = secured.authority.issue("two")
        mixed = settings(secured, "SSL", "SSL", ssl_certfile=certificate, ssl_keyfile=other_key)
        assert kind_of(diagnose(mixed)) is Kind.FILES
        assert kind_of(diagnose(settings(secured, "SSL", "SSL", ssl_cafile=other_key))) is Kind.FILES

    def test_a_controller_is_no_broker(self, secured):
        assert kind_of(diagnose(settings(secured, "CONTROLLER", "PLAINTEXT"))) is Kind.CONTROLLER

    def test_an_advertised_address_that_leads_nowhere_is_named(self, secured):
        problem = diagnose(settings(secured, "ASTRAY", "PLAINTEXT"))
        assert problem.kind is Kind.ADVERTISED
        assert "127.0.0.1:1: nothing listens" in problem.found
        assert "advertised.listeners" in problem.advice

    def test_one_server_that_serves_is_enough(self, secured):
        assert diagnose(Kafka(bootstrap_servers=f"127.0.0.1:1,{secured.server('PLAINTEXT')}")) is None

    def test_of_several_problems_the_lasting_one_is_told_first_and_the_others_with_it(self, secured):
        problem = diagnose(Kafka(bootstrap_servers=f"127.0.0.1:1,{secured.server('SSL')}"))
        assert problem.kind is Kind.LISTENER
        assert "127.0.0.1:1: nothing listens" in str(problem)

    @pytest.mark.parametrize("granted", [ACLOperation.DESCRIBE, None])
    def test_a_topic_that_may_not_be_read_is_named_with_the_user(self, secured, granted):
        topic = f"secret-{granted}"
        secured.cluster.create_topic(topic, partitions=1)
        pattern = ResourcePattern(ResourceType.TOPIC, topic)
        acls = [ACL("User:somebody", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)]
        if granted is not None:
            acls.append(ACL(f"User:{USER}", "*", granted, ACLPermissionType.ALLOW, pattern))
        with KafkaAdminClient(bootstrap_servers=secured.cluster.bootstrap_servers) as admin:
            admin.create_acls(acls)
        problem = diagnose(settings(secured, "SASL_PLAINTEXT", "SASL_PLAINTEXT"), topics=[topic])
        assert problem.kind is Kind.AUTHORIZATION
        assert topic in problem.found
        assert USER in problem.found
        assert "doctor --acls" in problem.advice

    def test_a_paused_broker_is_no_answer_and_not_waited_for_long(self, secured):
        secured.cluster.node(1).pause()
        try:
            started_s = time.monotonic()
            problem = diagnose(settings(secured, "SASL_SSL", "SASL_SSL"), timeout_s=3)
            assert problem.kind is Kind.NO_ANSWER
            assert time.monotonic() - started_s < 5
        finally:
            secured.cluster.node(1).resume()


class _Unfriendly(BaseHTTPRequestHandler):
    """What most HTTP servers do with bytes that are no request line."""

    def handle(self):
        self.request.recv(10)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


class TestOthers:
    def test_a_closed_port(self):
        problem = diagnose(Kafka(bootstrap_servers="127.0.0.1:1"))
        assert problem.kind is Kind.CLOSED
        assert problem.transient

    def test_a_name_that_does_not_resolve(self):
        problem = diagnose(Kafka(bootstrap_servers="no-such-host.invalid:9092"))
        assert problem.kind is Kind.NAME
        assert '"no-such-host.invalid"' in problem.found

    @pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
    def test_a_port_that_accepts_and_says_nothing(self, protocol):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            kafka = Kafka(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}", security_protocol=protocol)
            assert kind_of(diagnose(kafka, timeout_s=1)) is Kind.NO_ANSWER

    @pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL"])
    def test_an_http_server_is_no_broker(self, protocol):
        with ThreadingHTTPServer(("127.0.0.1", 0), _Unfriendly) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            sasl = credentials() if "SASL" in protocol else {}
            address = f"127.0.0.1:{server.server_port}"
            problem = diagnose(Kafka(bootstrap_servers=address, security_protocol=protocol, **sasl))
            server.shutdown()
        assert problem.kind is Kind.NOT_KAFKA

    def test_what_a_stranger_answers_steers_no_terminal(self):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer():
                with contextlib.suppress(OSError):
                    while True:
                        peer, _ = server.accept()
                        peer.sendall(b"\x7f\x1b[2Jhello")
                        peer.close()

            threading.Thread(target=answer, daemon=True).start()
            problem = diagnose(Kafka(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}"))
        assert str(problem).isprintable()

    @pytest.mark.parametrize("body", ["", "0000", "0000ffffffff", "00007fffffff", "ff" * 20, "0000000000010003"])
    def test_answers_that_cannot_be_decoded_are_not_from_kafka(self, body):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer():
                with contextlib.suppress(OSError):
                    while True:
                        peer, _ = server.accept()
                        correlation_id = peer.recv(1_000)[8:12]
                        text = correlation_id + bytes.fromhex(body)
                        peer.sendall(len(text).to_bytes(4, "big") + text)
                        peer.close()

            threading.Thread(target=answer, daemon=True).start()
            problem = diagnose(Kafka(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}"))
        assert kind_of(problem) in {Kind.NOT_KAFKA, Kind.CONTROLLER}

    @pytest.mark.parametrize("text", ["kafka-1", "kafka-1:", "kafka-1:70000", "kafka-1:9092,", "http://kafka-1:9", ""])
    def test_a_server_without_host_or_port_is_a_wrong_configuration(self, text):
        with pytest.raises(ValidationError, match="is not host:port"):
            Kafka(bootstrap_servers=text)

    def test_addresses_of_all_kinds_are_understood(self):
        text = "kafka-1.example:9092, 10.0.0.1:9093,[::1]:9094"
        assert server_addresses(text) == [("kafka-1.example", 9092), ("10.0.0.1", 9093), ("::1", 9094)]


def configuration(folder, secured, listener, protocol, password):
    """A `monitor.toml` for a listener of the broker."""
    (folder / "password").write_text(password)
    config = folder / "monitor.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{secured.server(listener)}"\nsecurity_protocol = "{protocol}"\n'
        f'sasl_mechanism = "PLAIN"\nsasl_username = "{USER}"\nsasl_password_file = "{folder}/password"\n'
        f'[run]\ndata_folder = "{folder}/data"\n[store]\nurl = "sqlite:///{folder}/data/monitor.db"\n'
    )
    return config


def arguments(command, config):
    more = ["--out", f"{config.parent}/capture.jsonl", "--seconds", "30"] if command == "capture" else []
    return [command, "--config", str(config), *more]


@pytest.mark.e2e
@pytest.mark.parametrize("command", ["run", "doctor", "capture", "audit"])
class TestCommands:
    """The commands that reach a cluster say the same, at once, and with exit code 1."""

    @pytest.mark.parametrize(
        ("listener", "password", "words"),
        [
            ("SASL_PLAINTEXT", WRONG, "does not accept user"),
            ("SASL_SSL", PASSWORD, "the listener speaks SASL_SSL"),
            ("PLAINTEXT", PASSWORD, 'set security_protocol = "PLAINTEXT"'),
        ],
    )
    def test_what_is_wrong_is_said_within_seconds(self, secured, tmp_path, command, listener, password, words):
        config = configuration(tmp_path, secured, listener, "SASL_PLAINTEXT", password)
        started_s = time.monotonic()
        result = CliRunner().invoke(main, arguments(command, config))
        assert time.monotonic() - started_s < SECONDS
        assert result.exit_code == 1, result.output
        assert words in result.output
        assert WRONG not in result.output
        assert PASSWORD not in result.output
        assert not (tmp_path / "capture.jsonl").exists()


def start_capture(out, *options):
    return subprocess.Popen(
        [sys.executable, "-c", "from streaming.cli import main; main()", "capture", "--out", str(out), *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )


class TestCaptureEnds:
    """`capture` ends when it has to, whatever the brokers do, and spoils no file."""

    def test_a_file_that_exists_is_left_as_it_is(self, tmp_path):
        out = tmp_path / "kept.jsonl"
        out.write_text("precious")
        result = CliRunner().invoke(main, ["capture", "--bootstrap-servers", "127.0.0.1:1", "--out", str(out)])
        assert result.exit_code == 2
        assert "is not overwritten" in result.output
        assert out.read_text() == "precious"

    @pytest.mark.parametrize("ending", ["seconds", signal.SIGTERM, signal.SIGINT])
    def test_it_ends_while_it_connects_and_leaves_no_file(self, tmp_path, ending):
        out = tmp_path / "never.jsonl"
        with socket.create_server(("127.0.0.1", 0)) as silent:
            options = ["--bootstrap-servers", f"127.0.0.1:{silent.getsockname()[1]}"]
            with start_capture(out, *options, *(["--seconds", "1"] if ending == "seconds" else [])) as capture:
                if ending != "seconds":
                    silent.accept()
                    capture.send_signal(ending)
                told = capture.stderr.read()
        assert capture.returncode == 1
        assert "was not made" in told
        assert not out.exists()

    @pytest.mark.e2e
    def test_it_ends_on_time_though_the_broker_was_paused_and_what_it_has_is_a_capture(self, secured, tmp_path):
        out, node = tmp_path / "capture.jsonl", secured.cluster.node(1)
        options = ["--bootstrap-servers", secured.server("PLAINTEXT"), "--seconds", "4"]
        with start_capture(out, *options) as capture:
            await_true(lambda: out.exists() and out.stat().st_size > 0)
            node.pause()
            try:
                told = capture.stderr.read()
            finally:
                node.resume()
        assert capture.returncode == 0, told
        assert out.stat().st_mode & 0o777 == 0o600  # what clients sent is nobody else's to read
        summary = summary_of(out)
        assert summary["rows"] > 0
        assert summary["undecodable"] == {}

    @pytest.mark.e2e
    def test_a_gzip_capture_that_was_killed_is_replayed_up_to_where_it_was_cut(self, secured, tmp_path):
        out = tmp_path / "capture.jsonl.gz"
        with start_capture(out, "--bootstrap-servers", secured.server("PLAINTEXT")) as capture:
            await_true(lambda: out.exists() and out.stat().st_size > 500)
            capture.kill()
        summary = summary_of(out)
        assert summary["rows"] > 1
        assert summary["undecodable"] == {"capture: not a row": 1}


def summary_of(capture):
    replayed = CliRunner().invoke(main, ["replay", str(capture)])
    assert replayed.exit_code == 0, replayed.output
    return json.loads(replayed.output.splitlines()[-1])

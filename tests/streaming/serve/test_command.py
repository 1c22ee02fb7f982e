"""`group-monitor serve` as a process: starts, says what is wrong, stops when asked."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from streaming.config.settings import Settings
from streaming.store import Store
from tests.streaming.serve.conftest import STALLED_MS
from tests.streaming.serve.test_guard import self_signed
from tests.support.outputs import CLUSTER, finding, progress, report, view
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-c", "from streaming.commands.serve import serve_command; serve_command()"]


def start(config: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "--config", str(config)],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def refused(config: Path, code: int = 1, **environment: str) -> str:
    with start(config, **environment) as process:
        try:
            _, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == code
    return errors


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "monitor.toml"
    path.write_text(f"""
cluster = "{CLUSTER}"
[kafka]
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "PLAIN"
sasl_username = "monitor"
[store]
url = "sqlite:///{tmp_path}/monitor.db"
[serve]
port = 0
monitor_stalled_ms = {STALLED_MS}
[[notify]]
kind = "log"
""")
    return path


class Served:
    """A running `serve`, and what it writes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = self.event("listening")["url"]

    def event(self, name: str) -> dict:
        """Read its log until an event comes."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("{") and (event := json.loads(line))["event"] == name:
                return event
        raise AssertionError(f"no {name!r} in {self.lines}")


@contextmanager
def serving(config: Path) -> Iterator[Served]:
    """Run `serve` for a while."""
    process = start(config, GROUP_MONITOR_KAFKA_SASL_PASSWORD="hunter2")
    try:
        yield Served(process)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def served(config) -> Iterator[Served]:
    with serving(config) as running:
        yield running


def test_serve_starts_answers_notifies_and_stops(served, tmp_path):
    """It shows its configuration without secrets and ends cleanly."""
    text = "".join(served.lines)
    assert served.url.startswith("http://127.0.0.1:")
    assert "anybody who reaches this address may read" not in text
    assert 'cluster = "prod"' in text
    assert 'sasl_password = "**********"' in text
    assert "hunter2" not in text
    assert requests.get(f"{served.url}/readyz", timeout=PATIENCE_S).status_code == 503

    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    outputs = [report("orders", finding(), view=view()), progress()]
    store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=Settings(cluster=CLUSTER))
    store.close()
    assert served.event("incident opened")["member_id"] == "m-1"
    assert requests.get(f"{served.url}/readyz", timeout=PATIENCE_S).status_code == 200
    assert requests.get(f"{served.url}/api/v1/groups", timeout=PATIENCE_S).json()[0]["group"] == "orders"

    served.process.send_signal(signal.SIGTERM)
    _, rest = served.process.communicate(timeout=PATIENCE_S)
    assert served.process.returncode == 0
    assert "Traceback" not in rest


def test_it_warns_where_others_may_read_without_a_token(config):
    config.write_text(config.read_text().replace("port = 0", 'port = 0\nhost = "0.0.0.0"'))
    with serving(config) as served:
        assert "anybody who reaches this address may read" in "".join(served.lines)


def test_a_port_in_use_is_one_clear_line(config):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config.write_text(config.read_text().replace("port = 0", f"port = {port}"))
        errors = refused(config, GROUP_MONITOR_KAFKA_SASL_PASSWORD="x")
    assert errors == f"cannot listen on 127.0.0.1:{port}: Address already in use; see [serve] port\n"


def test_a_typo_in_the_configuration_is_one_clear_line(config):
    config.write_text(config.read_text().replace("port = 0", "prot = 0"))
    line = config.read_text().splitlines().index("prot = 0") + 1
    errors = refused(config, 2, GROUP_MONITOR_KAFKA_SASL_PASSWORD="x")
    assert errors == f'{config}:{line}: unknown key "prot" in [serve]; did you mean "port"?\n'


def test_a_missing_password_is_named_with_the_way_to_give_it(config):
    assert "GROUP_MONITOR_KAFKA_SASL_PASSWORD" in refused(config, 2)


def test_an_empty_token_file_is_refused_for_it_would_let_everybody_in(config, tmp_path):
    (tmp_path / "token").write_text("\n")
    config.write_text(config.read_text().replace("port = 0", f'port = 0\ntoken_file = "{tmp_path}/token"'))
    errors = refused(config, 2, GROUP_MONITOR_KAFKA_SASL_PASSWORD="x")
    assert errors.endswith(f"[serve] token_file: {tmp_path}/token is empty\n")


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        ("nowhere", "tls_certfile: nowhere: No such file"),
        ("/proc/self/status", "a certificate and its key (PEM, not encrypted) are needed"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_one_clear_line_and_starts_nothing(config, tmp_path, certificate, words):
    """It was a traceback after the start of all threads, and exit code 1, so that a supervisor went on starting it."""
    keys = f'port = 0\ntls_certfile = "{certificate}"\ntls_keyfile = "/proc/self/status"'
    config.write_text(config.read_text().replace("port = 0", keys))
    errors = refused(config, 2, GROUP_MONITOR_KAFKA_SASL_PASSWORD="x")
    assert words in errors
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "monitor.db").exists()


def test_a_database_that_cannot_be_opened_is_one_clear_line(config, tmp_path):
    config.write_text(config.read_text().replace(f"{tmp_path}/monitor.db", "/proc/nowhere/monitor.db"))
    errors = refused(config, GROUP_MONITOR_KAFKA_SASL_PASSWORD="x")
    assert errors.startswith("cannot open sqlite:////proc/nowhere/monitor.db")
    assert len(errors.splitlines()) == 1


def test_nobody_else_may_read_what_it_writes(config, tmp_path):
    """0644, whatever stood in it: ids, hosts and the heads of lines that clients sent."""
    config.write_text(config.read_text().replace(f"{tmp_path}/monitor.db", f"{tmp_path}/made/here/monitor.db"))
    command = [sys.executable, "-c", "import os; os.umask(0o022); from streaming.cli import main; main()", "serve"]
    process = subprocess.Popen(
        [*command, "--config", str(config)],
        env=os.environ | {"GROUP_MONITOR_KAFKA_SASL_PASSWORD": "x"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        Served(process)
        made = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
        modes = {path.name: path.stat().st_mode & 0o777 for path in made}
    finally:
        process.kill()
        process.communicate()
    assert modes == dict.fromkeys(("made", "here"), 0o700) | dict.fromkeys(
        ("monitor.db", "monitor.db-wal", "monitor.db-shm"), 0o600
    )


class TestReload:
    """SIGHUP and `POST /-/reload`: all of the new configuration, or the old one goes on."""

    def test_new_labels_are_in_force_and_a_wrong_file_changes_nothing(self, served, config, tmp_path):
        store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
        store.apply_batch(
            checkpoint_id="c", batch_id=0, outputs=[report("orders", view=view())], settings=Settings(cluster=CLUSTER)
        )
        store.close()
        group, reload = f"{served.url}/api/v1/groups/orders", f"{served.url}/-/reload"
        good = config.read_text() + '[[groups]]\npattern = "orders"\nlabels = {team = "shop"}\n'
        config.write_text(good)
        assert requests.post(reload, timeout=PATIENCE_S).json() == {"reloaded": True}
        assert requests.get(group, timeout=PATIENCE_S).json()["labels"] == {"team": "shop"}

        config.write_text(good.replace("pattern", "patern"))
        answer = requests.post(reload, timeout=PATIENCE_S)
        assert (answer.status_code, "patern" in answer.json()["error"]) == (400, True)
        served.process.send_signal(signal.SIGHUP)
        assert "patern" in served.event("the configuration stays as it was")["because"]

        config.write_text(good.replace("port = 0", "port = 1"))
        assert (
            requests.post(reload, timeout=PATIENCE_S)
            .json()["error"]
            .endswith("serve.port changed: that needs a restart")
        )
        assert requests.get(group, timeout=PATIENCE_S).json()["labels"] == {"team": "shop"}

        config.write_text(good.replace('"shop"', '"sales"'))
        served.process.send_signal(signal.SIGHUP)
        served.event("configuration read again")
        assert requests.get(group, timeout=PATIENCE_S).json()["labels"] == {"team": "sales"}

    def test_reloads_that_come_too_fast_are_refused(self, served):
        """Each one starts the delivery workers anew."""
        answers = [requests.post(f"{served.url}/-/reload", timeout=PATIENCE_S).status_code for _ in range(5)]
        assert answers[0] == 200
        assert 429 in answers

    def test_a_token_in_a_file_is_read_again(self, config, tmp_path):
        """As operators run it: TLS, and a token that a secret store replaces."""
        token, tls = tmp_path / "token", self_signed(tmp_path)
        token.write_text("first\n")
        keys = "".join(f'{name} = "{path}"\n' for name, path in {**tls, "token_file": token}.items())
        config.write_text(config.read_text().replace("port = 0\n", f"port = 0\n{keys}"))

        def asked(ask, path, given):
            headers = {"Authorization": f"Bearer {given}"} if given else {}
            return ask(served.url + path, headers=headers, verify=tls["tls_certfile"], timeout=PATIENCE_S).status_code

        def read(*given):
            return [asked(requests.get, "/api/v1/groups", token) for token in given]

        with serving(config) as served:
            assert read(None, "second", "first") == [401, 401, 200]
            token.write_text("second\n")
            assert asked(requests.post, "/-/reload", None) == 401
            assert read("first") == [200]
            assert asked(requests.post, "/-/reload", "first") == 200
            assert read("first", "second") == [401, 200]

    def test_who_sends_goes_on_sending_and_nothing_is_sent_twice(self, served, config, tmp_path):
        store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
        settings = Settings(cluster=CLUSTER)
        for number in range(3):
            outputs = [report(f"g{number}", finding(f"g{number}"))]
            store.apply_batch(checkpoint_id="c", batch_id=number, outputs=outputs, settings=settings)
            assert served.event("incident opened")["group"] == f"g{number}"
            served.process.send_signal(signal.SIGHUP)  # over HTTP it is refused within a second of the last time
            served.event("configuration read again")
        store.close()

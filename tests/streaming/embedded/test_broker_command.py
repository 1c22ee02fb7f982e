"""`group-monitor broker` in the foreground."""

import signal
import socket
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming.commands.broker import broker_command
from streaming.embedded import ask, jars
from streaming.embedded.ports import free_ports
from tests.support.waiting import await_true, interruptible

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-c", "from streaming.commands.broker import broker_command; broker_command()"]


@pytest.mark.e2e
@pytest.mark.usefixtures("broker_parts")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_where_it_is_and_ends_in_order(tmp_path, ending):
    (port,) = free_ports(1)
    arguments = ["--port", str(port), "--data-folder", str(tmp_path / "data")]
    with (
        interruptible(),
        subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True) as command,
    ):
        try:
            printed = list(takewhile(lambda line: line != "Ctrl-C stops it\n", command.stdout))
            await_true(lambda: ask.live_brokers(port) == {1})
        finally:
            command.send_signal(ending)
        command.communicate()
    assert command.returncode == 0
    assert printed[0].split() == ["bootstrap.servers", f"127.0.0.1:{port}"]
    assert "group-telemetry" in printed[1]
    assert ask.live_brokers(port) == set()
    # Kafka's LogManager leaves this file as the last thing of a shutdown in order and removes it at the next start. The
    # broker's log is no witness: Log4j's own shutdown hook runs beside Kafka's and may close the log before the end.
    assert (tmp_path / "data" / "node-1" / "data" / ".kafka_cleanshutdown").exists(), "it was killed, not stopped"


@pytest.mark.usefixtures("broker_parts")
def test_a_port_in_use_is_one_clear_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(broker_command, ["--port", str(port)])
    assert result.exit_code == 1
    assert f"Error: port {port} on 127.0.0.1 is in use" in result.output
    assert "Traceback" not in result.output


def test_missing_jars_say_what_to_run(monkeypatch, tmp_path):
    monkeypatch.setattr(jars, "JARS_FOLDER", tmp_path)
    result = CliRunner().invoke(broker_command, ["--port", str(free_ports(1)[0])])
    assert result.exit_code == 1
    assert "run `make setup`" in result.output


def test_a_setting_without_a_value_is_refused():
    result = CliRunner().invoke(broker_command, ["--set", "num.io.threads"])
    assert result.exit_code == 2
    assert "is not NAME=VALUE" in result.output

"""0 done, 1 failed, 2 wrong usage or configuration: in every command."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streaming.cli import COMMANDS, main

CLOSED = "http://127.0.0.1:1"
READS_CONFIG = sorted(
    name
    for name in COMMANDS
    if any("--config" in parameter.opts for parameter in main.get_command(click.Context(main), name).params)
)
READS_A_MONITOR = ("describe", "incidents", "quarantine", "watch")


def run(*arguments, **more):
    result = CliRunner().invoke(main, list(arguments), **more)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_an_option_that_does_not_exist_is_wrong_usage(command):
    assert run(command, "--no-such-option").exit_code == 2


def test_a_command_that_does_not_exist_is_wrong_usage():
    assert run("no-such-command").exit_code == 2


@pytest.mark.parametrize(
    ("typed", "meant"), [("descibe", "describe"), ("doktor", "doctor"), ("reply", "replay"), ("incident", "incidents")]
)
def test_a_mistyped_command_is_answered_with_the_nearest(typed, meant):
    result = run(typed)
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.output


def other_arguments(command, folder):
    """What a command with --config needs besides."""
    (folder / "empty.jsonl").touch()
    more = {"replay": [f"{folder}/empty.jsonl"], "capture": ["--out", f"{folder}/new.jsonl"]}
    return more.get(command, [])


def test_the_commands_with_a_configuration_are_those_we_think():
    assert READS_CONFIG == ["audit", "capture", "doctor", "log4j2", "quality", "replay", "run", "serve"]


@pytest.mark.parametrize("command", READS_CONFIG)
class TestConfiguration:
    def test_an_unknown_key_is_a_wrong_configuration_and_its_line_is_named(self, tmp_path, command):
        config = tmp_path / "monitor.toml"
        config.write_text("[kafka]\nbootstrap_server = 1\n")
        result = run(command, "--config", str(config), *other_arguments(command, tmp_path))
        assert result.exit_code == 2
        assert f'{config}:2: unknown key "bootstrap_server"' in result.output

    def test_a_file_that_does_not_exist_is_a_wrong_configuration(self, tmp_path, command):
        arguments = other_arguments(command, tmp_path)
        result = run(command, "--config", f"{tmp_path}/missing.toml", *arguments)
        assert result.exit_code == 2
        assert "missing.toml" in result.output

    def test_a_secret_that_cannot_be_read_is_a_wrong_configuration(self, tmp_path, command):
        config = tmp_path / "monitor.toml"
        config.write_text('[store]\npassword_file = "/nowhere/secret"\n')
        assert run(command, "--config", str(config), *other_arguments(command, tmp_path)).exit_code == 2


def test_two_things_at_once_that_doctor_does_alone_are_wrong_usage():
    assert run("doctor", "--acls", "--create-topics").exit_code == 2


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "1e300"])
def test_a_capture_that_would_never_end_is_wrong_usage(tmp_path, seconds):
    arguments = ("--bootstrap-servers", "127.0.0.1:1", "--out", f"{tmp_path}/c.jsonl", "--seconds", seconds)
    assert run("capture", *arguments).exit_code == 2


@pytest.mark.parametrize("command", READS_A_MONITOR)
def test_a_bad_url_is_wrong_usage_and_a_silent_one_a_failure(command):
    times = ["--times", "1"] if command == "watch" else []
    assert run(command, "--url", "monitor:8844", *times).exit_code == 2
    failed = run(command, "--url", CLOSED, *times)
    assert failed.exit_code == 1
    assert f"no monitor answers at {CLOSED}" in failed.output


def configuration(folder, *lines):
    config = folder / "monitor.toml"
    store = f'[store]\nurl = "sqlite:///{folder}/monitor.db"\n'
    config.write_text("\n".join(lines) + f'\n[run]\ndata_folder = "{folder}/data"\n{store}')
    return str(config)


class TestFailures:
    """What is asked for rightly and cannot be done is 1, with a reason."""

    def test_broker_on_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            assert run("broker", "--port", str(taken.getsockname()[1])).exit_code == 1

    def test_capture_and_doctor_of_a_cluster_that_is_away(self, tmp_path):
        config = configuration(tmp_path, '[kafka]\nbootstrap_servers = "127.0.0.1:1"')
        assert run("capture", "--config", config, "--out", f"{tmp_path}/c.jsonl").exit_code == 1
        assert run("doctor", "--config", config).exit_code == 1

    def test_run_with_a_certificate_that_is_none(self, tmp_path):
        (tmp_path / "ca.pem").write_text("no certificate")
        tls = f'security_protocol = "SSL"\nssl_cafile = "{tmp_path}/ca.pem"'
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            result = run("run", "--config", configuration(tmp_path, f'[kafka]\nbootstrap_servers = "{address}"', tls))
        assert result.exit_code == 1
        assert "ssl_cafile has to be a PEM file" in result.output

    def test_serve_on_a_port_in_use(self, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            config = configuration(tmp_path, f"[serve]\nport = {taken.getsockname()[1]}")
            assert run("serve", "--config", config).exit_code == 1

    @pytest.mark.parametrize("command", ["serve", "quality"])
    def test_a_database_that_is_none(self, tmp_path, command):
        config = configuration(tmp_path, "[serve]\nport = 0")
        (tmp_path / "monitor.db").write_text("no database, whatever its name says" * 100)
        assert run(command, "--config", config).exit_code == 1

    def test_replay_of_nothing(self, tmp_path):
        (tmp_path / "empty.jsonl").touch()
        assert run("replay", f"{tmp_path}/empty.jsonl").exit_code == 1

    def test_dashboards_of_a_grafana_that_is_away(self):
        pytest.importorskip("grafana_api")
        environment = {"GROUP_MONITOR_GRAFANA_TOKEN": "x"}
        assert run("dashboards", "publish", "--url", CLOSED, env=environment).exit_code == 1
        assert run("dashboards", "publish", "--url", CLOSED, env={"GROUP_MONITOR_GRAFANA_TOKEN": None}).exit_code == 2

    def test_demo_without_its_jars(self, monkeypatch, tmp_path):
        from streaming.embedded import jars

        monkeypatch.setattr(jars, "JARS_FOLDER", tmp_path)
        assert run("demo").exit_code == 1


def test_decode_of_what_is_no_record_is_done_for_every_line_has_its_answer():
    result = run("decode", input="no record\n")
    assert result.exit_code == 0
    assert json.loads(result.output)["outcome"] == "malformed"


@pytest.mark.parametrize(
    "arguments",
    [("dashboards", "render", "--out", "/dev/full/x"), ("broker", "--data-folder", "/dev/full/x")],
    ids=lambda arguments: arguments[0],
)
def test_a_folder_that_cannot_be_made_is_a_failure_in_one_line(arguments):
    failed = run(*arguments)
    assert failed.exit_code == 1
    assert failed.output.endswith("Error: /dev/full/x: Not a directory\n")


@pytest.mark.parametrize("arguments", [["log4j2"], ["replay", "--sample"], ["decode"], ["doctor", "--acls"]], ids=str)
def test_a_full_disk_is_a_failure_in_one_line(arguments):
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "streaming.cli", *arguments]
        record = b'{"key": null, "value": null}'
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(command, input=record, stdout=full, stderr=subprocess.PIPE, check=False, env=buffered)
    assert done.returncode == 1
    assert done.stderr == b"Error: No space left on device\n"


def test_a_file_that_becomes_too_large_is_named(tmp_path):
    command = [sys.executable, "-m", "streaming.cli", "dashboards", "render", "--out", str(tmp_path / "out")]
    limited = ["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(rf"Error: {tmp_path}/out/\S+: File too large\n", done.stderr), done.stderr


def test_a_path_that_is_no_text_can_be_printed(tmp_path):
    config = os.fsencode(tmp_path) + b"/\xff.toml"
    Path(os.fsdecode(config)).write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
    command = [sys.executable, "-m", "streaming.cli", "doctor", "--config", config]
    printed = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, env=printed, check=False)
    assert b"Traceback" not in done.stderr
    assert b"\\udcff.toml, cluster" in done.stdout

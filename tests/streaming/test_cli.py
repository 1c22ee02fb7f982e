"""The command itself: what it says where a package is not installed."""

import sys

import pytest
from click.testing import CliRunner

from streaming.cli import main


def capture(folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "streaming.capture.recorder", raising=False)  # what imports the missing one
    return CliRunner().invoke(main, ["capture", "--bootstrap-servers", "localhost:1", "--out", f"{folder}/c.jsonl"])


WRITES = {
    "broker": ("broker", "--data-folder"),
    "capture": ("capture", "--bootstrap-servers", "localhost:1", "--out"),
    "dashboards render": ("dashboards", "render", "--out"),
    "quality": ("quality", "--config", "monitor.toml", "--docs"),
}


@pytest.mark.parametrize("command", WRITES.values(), ids=WRITES)
def test_a_uri_for_a_path_is_wrong_usage_and_makes_no_folder(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(main, [*command, "s3a://bucket/x"])
    assert told.exit_code == 2
    assert "a path on this machine is needed; s3a:// is not supported" in told.output
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_missing_as_a_command_runs_is_named_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "kafka", None)
    monkeypatch.setitem(sys.modules, "kafka.errors", None)
    told = capture(tmp_path, monkeypatch)
    assert told.exit_code == 1
    assert "capture needs the package kafka: in a checkout of this project run pip install '.[kafka]'" in told.output


def test_a_module_of_ours_that_is_missing_is_a_defect_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "streaming.run.probe", None)
    told = capture(tmp_path, monkeypatch)
    assert isinstance(told.exception, ModuleNotFoundError)

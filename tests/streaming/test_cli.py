"""The command itself: what it says where a package is not installed."""

import sys

from click.testing import CliRunner

from streaming.cli import main


def capture(folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "streaming.recorder", raising=False)  # what imports the missing one
    return CliRunner().invoke(main, ["capture", "--bootstrap-servers", "localhost:1", "--out", f"{folder}/c.jsonl"])


def test_a_package_that_is_missing_as_a_command_runs_is_named_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "kafka", None)
    monkeypatch.setitem(sys.modules, "kafka.errors", None)
    told = capture(tmp_path, monkeypatch)
    assert told.exit_code == 1
    assert "capture needs the package kafka: install kafka-group-monitor[kafka]" in told.output


def test_a_module_of_ours_that_is_missing_is_a_defect_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "streaming.run.probe", None)
    told = capture(tmp_path, monkeypatch)
    assert isinstance(told.exception, ModuleNotFoundError)

"""Long commands show how far they are, and the shell completes their names."""

import gzip
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming import logs
from streaming.cli import COMMANDS, main
from streaming.commands import progress, replay
from streaming.commands.progress import ProgressShown
from streaming.commands.run import CatchUpBar
from streaming.run.catch_up import CatchUp

ROOT = Path(__file__).parents[3]
CAPTURE = ROOT / "tests/fixtures/captures/static.jsonl.gz"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_a_terminal(monkeypatch, columns=100):
    """What a terminal in the place of stderr shows; no fixture, for pytest puts its own stderr in between."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    return made


class TestShown:
    def test_elsewhere_than_on_a_terminal_it_is_a_line_now_and_then(self, capsys):
        with ProgressShown("replay", 200, every_s=0) as shown:
            shown.update(50, "1,000 rows")
        assert capsys.readouterr().err == "replay: 25%, 1,000 rows\n"

    def test_what_is_over_soon_says_nothing(self, capsys):
        with ProgressShown("replay", 200) as shown:
            shown.update(50, "1,000 rows")
        assert capsys.readouterr() == ("", "")

    def test_without_a_total_there_is_no_share(self, capsys):
        with ProgressShown("capture", every_s=0) as shown:
            shown.update(50, "[red]7 rows")
        assert capsys.readouterr().err == "capture: [red]7 rows\n"

    def test_on_a_terminal_it_is_a_bar(self, monkeypatch):
        terminal = on_a_terminal(monkeypatch)
        with ProgressShown("replay", 200) as shown:
            shown.update(50, "[red]1,000 rows")
        assert " 25%" in terminal.getvalue()
        assert "━" in terminal.getvalue()
        assert "[red]1,000 rows" in terminal.getvalue()

    def test_a_narrow_terminal_cuts_the_text_and_not_the_command(self, monkeypatch):
        terminal = on_a_terminal(monkeypatch, columns=80)
        with ProgressShown("capture", 200) as shown:
            shown.update(50, "__consumer_offsets 396, group-telemetry 683, group-client-telemetry 216")
        seen = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.getvalue())
        (line, *_) = [line for line in seen.splitlines() if " 25%" in line]
        assert line.startswith("capture ━")
        assert "__consumer_offsets 396" in line


class TestReplay:
    def test_it_shows_how_much_of_the_file_is_read_and_prints_only_results_on_stdout(self, monkeypatch):
        monkeypatch.setattr(progress, "LINE_EVERY_S", 0)
        monkeypatch.setattr(replay, "ROWS_BETWEEN_LOOKS", 100)
        result = CliRunner().invoke(main, ["replay", str(CAPTURE)])
        lines = result.stderr.splitlines()
        shares = [int(line.removeprefix("replay: ").partition("%")[0]) for line in lines]
        assert shares == sorted(shares)
        assert 0 < shares[0] < 100
        assert shares[-1] == 100
        assert all(line.startswith("{") for line in result.stdout.splitlines())

    def test_a_plain_file_is_measured_too(self, monkeypatch, tmp_path):
        monkeypatch.setattr(progress, "LINE_EVERY_S", 0)
        monkeypatch.setattr(replay, "ROWS_BETWEEN_LOOKS", 100)
        plain = tmp_path / "capture.jsonl"
        plain.write_bytes(gzip.decompress(CAPTURE.read_bytes()))
        result = CliRunner().invoke(main, ["replay", str(plain)])
        assert result.stderr.splitlines()[-1].startswith("replay: 100%")


def offsets(at):
    return {"sources": [{"endOffset": {"records": {"0": at}}, "processedRowsPerSecond": 1_000.0}]}


class TestCatchUpOfRun:
    def test_on_a_terminal_there_is_a_bar_until_it_has_caught_up(self, monkeypatch):
        terminal = on_a_terminal(monkeypatch)
        catch_up = CatchUp({"records": {"0": 100}})
        with CatchUpBar() as bar:
            for at in (20, 60):
                catch_up.update(offsets(at))
                bar.show(catch_up)
            logs.configure()
            logs.structlog.get_logger("run").info("meanwhile")
            seen = terminal.getvalue()
            catch_up.update(offsets(100))
            bar.show(catch_up)
            bar.show(catch_up)
        assert " 50%" in terminal.getvalue()
        assert '"event": "meanwhile"' in seen

    def test_no_bar_is_drawn_where_there_is_no_terminal(self, capsys):
        catch_up = CatchUp({"records": {"0": 100}})
        catch_up.update(offsets(20))
        with CatchUpBar() as bar:
            bar.show(catch_up)
        assert capsys.readouterr() == ("", "")


def complete(shell_does, **variables):
    code = "import sys; from streaming.cli import main; sys.argv[0] = 'group-monitor'; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "_GROUP_MONITOR_COMPLETE": shell_does, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_script_that_help_names_is_printed(self, shell):
        if shell == "bash" and not Path("/bin/bash").exists():
            pytest.skip("click asks bash for its version")
        assert "_GROUP_MONITOR_COMPLETE=" in CliRunner().invoke(main, ["--help"]).output
        script = complete(f"{shell}_source")
        assert f"_GROUP_MONITOR_COMPLETE={shell}_complete" in script

    def test_a_command_is_completed(self):
        said = complete("bash_complete", COMP_WORDS="group-monitor de", COMP_CWORD="1")
        assert said.split() == [f"plain,{name}" for name in COMMANDS if name.startswith("de")]

    def test_an_option_of_a_command_is_completed(self):
        said = complete("bash_complete", COMP_WORDS="group-monitor replay --sa", COMP_CWORD="2")
        assert said.split() == ["plain,--sample"]

"""The judge of the two sources: by each alone the kept capture tells what its broker's log does."""

import shutil
from pathlib import Path

from streaming.capture_file import open_text, read_rows
from tests.e2e.tiers import COORDINATOR_LOG, REQUEST_LOG, judge, stripped
from tests.e2e.world import Played

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"


def kept_capture(folder):
    played = Played("both", folder)
    shutil.copy(CAPTURES / "coordinator-log.jsonl.gz", played.capture)
    shutil.copy(CAPTURES / "coordinator-log.truth.json", folder / "both.truth.json")
    played.config.write_text("[thresholds]\nconsumer_session_timeout_ms = 7000\n")
    return played


def values(played):
    with open_text(played.capture) as lines:
        return [row.value for row in read_rows(lines) if row.source == "telemetry"]


def test_each_capture_holds_the_lines_of_one_source_and_all_of_them(tmp_path):
    played = kept_capture(tmp_path)
    log, requests = values(stripped(played, COORDINATOR_LOG)), values(stripped(played, REQUEST_LOG))
    assert all(value.startswith(b"[GroupCoordinator ") for value in log)
    assert all(value.startswith(b"Completed request:") for value in requests)
    assert sorted([*log, *requests]) == sorted(values(played))


def test_by_each_source_alone_the_broker_s_log_agrees(tmp_path, capsys):
    assert judge(kept_capture(tmp_path))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "session-expired" in line]
    assert [line[line.index("said") + 1 : line.index("said") + 4] for line in lines] == [
        ["7,", "precision", "1.000;"]
    ] * 2


def test_a_line_that_is_missing_is_a_difference(tmp_path):
    played = kept_capture(tmp_path)
    truth = played.folder / "both.truth.json"
    truth.write_text(truth.read_text().replace('"group": "modern"', '"group": "another"'))
    assert not judge(played)

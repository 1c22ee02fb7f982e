"""Tests of the judge of the two sources: each alone shows, for the kept capture, what its broker's log shows."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from streaming.capture.file import open_text, read_rows
from tests.e2e.tiers import COORDINATOR_LOG, REQUEST_LOG, judge, stripped
from tests.e2e.world import Played

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"


NAMES = {"coordinator-log": 7, "chaos-both-sources": 70}
"""Captures that hold both sources, and how many sessions expire in them: a quiet one, and three minutes of chaos."""


def kept_capture(folder, name="coordinator-log"):
    played = Played("both", folder)
    shutil.copy(CAPTURES / f"{name}.jsonl.gz", played.capture)
    shutil.copy(CAPTURES / f"{name}.truth.json", folder / "both.truth.json")
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


@pytest.mark.parametrize("name", NAMES)
def test_by_each_source_alone_the_broker_s_log_agrees(tmp_path, capsys, name):
    assert judge(kept_capture(tmp_path, name))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "session-expired" in line]
    assert [line[line.index("said") + 1 : line.index("said") + 4] for line in lines] == [
        [f"{NAMES[name]},", "precision", "1.000;"]
    ] * 2


def test_a_line_that_is_missing_is_a_difference(tmp_path):
    played = kept_capture(tmp_path)
    truth = played.folder / "both.truth.json"
    truth.write_text(truth.read_text().replace('"group": "modern"', '"group": "another"'))
    assert not judge(played)


def test_a_line_that_never_reached_the_topic_is_counted_apart(tmp_path, capsys):
    """A broker that is killed loses its newest lines: nothing can show them."""
    played = kept_capture(tmp_path)
    lost = next(line for line in (tmp_path / "both.truth.json").read_text().splitlines() if '"session-expired"' in line)
    member = json.loads(lost.rstrip(","))["member_id"]
    with gzip.open(played.capture, "rt") as rows:
        kept = [row for row in rows if member not in row or not ("has failed" in row or "fenced" in row)]
    with gzip.open(played.capture, "wt") as rows:
        rows.writelines(kept)
    assert judge(played)
    assert "1 more whose line never reached the topic" in capsys.readouterr().out

"""`replay` of what is no capture, or one without anything in it."""

import gzip
import json
import os
import threading
from base64 import b64encode
from functools import partial

import pytest
from click.testing import CliRunner

from coordinator_model.capture_replay import replay_rows
from coordinator_model.shard.shard import ShardSettings
from streaming.cli import main
from streaming.commands.replay import _tell
from tests.support.request_log import probe_line
from tests.support.story import T0, stable

DAMAGED = bytearray(gzip.compress(b"".join(b"%d once upon a time\n" % n for n in range(20_000))))
DAMAGED[len(DAMAGED) // 2 : len(DAMAGED) // 2 + 200] = b"\xff" * 200


def row(**more):
    base = {"source": "telemetry", "topic": "group-telemetry", "partition": 0, "offset": 0, "timestamp_ms": 1}
    return json.dumps({**base, "key": "broker-1", "value": "", **more})


def replay(folder, data):
    capture = folder / "capture.jsonl"
    capture.write_bytes(data)
    result = CliRunner().invoke(main, ["replay", str(capture)])
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no rows in it"),
        (b"\n\n", "no rows in it"),
        (gzip.compress(b""), "no rows in it"),
        (b"once upon a time\n" * 3, "none of its 3 rows could be read: not JSON (3)"),
        (b"{}\n", "could be read: no source (1)"),
        (f"{row(value='hello')}\n{row(offset=1, value='Completed request:{')}\n".encode(), "none of its 2 rows"),
        (b"\x00\xff" * 500, "none of its 1 rows"),
        (DAMAGED, "cut short (1)"),
    ],
    ids=["empty", "blank", "empty gzip", "prose", "other JSON", "other lines", "binary", "broken gzip"],
)
def test_what_holds_nothing_that_can_be_replayed_fails_and_says_why(tmp_path, data, words):
    result = replay(tmp_path, data)
    assert result.exit_code == 1
    assert words in result.stderr


def test_a_summary_is_printed_all_the_same_and_claims_no_number_of_partitions(tmp_path):
    summary = json.loads(replay(tmp_path, b"prose\n").stdout.splitlines()[-1])
    assert summary["kind"] == "summary"
    assert summary["coverage"]["partitions"] is None
    assert summary["undecodable"] == {"capture: not a row": 1}


def test_one_readable_row_is_enough_for_a_replay(tmp_path):
    """Telemetry alone does not tell the number of partitions."""
    result = replay(tmp_path, f"prose\n{row(value=probe_line(1))}\n".encode())
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout.splitlines()[-1])
    assert summary["decoded"] == {"probe": 1}
    assert summary["coverage"]["partitions"] is None


def test_blind_windows_are_printed_before_the_summary(tmp_path):
    story = stable("m1").beats("m1", 1_000, 20_000)
    story.jumps.append(11_000)
    lines = [as_line(source_row) for source_row in story.source_rows(20_000)]
    printed = [json.loads(line) for line in replay(tmp_path, "\n".join(lines).encode()).stdout.splitlines()]
    assert [line["kind"] for line in printed[-2:]] == ["blind", "summary"]
    blind = {name: printed[-2][name] for name in ("broker", "from_ms", "until_ms", "why")}
    assert blind == {"broker": "broker-1", "from_ms": T0 + 10_500, "until_ms": T0 + 11_000, "why": "lines lost"}


def as_line(source_row):
    """Write a row as a capture has it."""
    values = source_row._asdict()
    if source_row.source == "telemetry":
        texts = {name: values[name].decode() for name in ("key", "value")}
    else:
        texts = {name: None if values[name] is None else b64encode(values[name]).decode() for name in ("key", "value")}
    return json.dumps(values | texts)


@pytest.mark.parametrize("end_offsets", [{"t": [1_042]}, {}])
def test_the_table_for_people_has_the_lag_where_it_is_known(end_offsets, capsys):
    story = stable("m1").commit(1_000, "t", 0).leads(10_000, "broker-1", end_offsets=end_offsets)
    _tell(replay_rows(story.source_rows(10_000), ShardSettings("c", 1, 0)))
    printed = capsys.readouterr().out
    assert ("lag" in printed, "1,000" in printed) == (bool(end_offsets), bool(end_offsets))


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_capture_may_be_a_pipe(tmp_path, pack):
    lines = [row(value=probe_line(number), offset=number) for number in range(3_000)]
    os.mkfifo(tmp_path / "pipe")
    writing = partial((tmp_path / "pipe").write_bytes, pack("\n".join(lines).encode()))
    threading.Thread(target=writing, daemon=True).start()
    result = CliRunner().invoke(main, ["replay", str(tmp_path / "pipe")])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["decoded"] == {"probe": 3_000}

"""A capture is somebody's file: what cannot be read in it is counted, and its topics decide who is believed."""

import gzip
import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from coordinator_model.decode.source_row import OFFSETS, REPORTS, TELEMETRY, SourceRow
from streaming.capture import file
from streaming.capture.file import BadRow, read_rows
from streaming.capture.recorder import capture_line
from streaming.commands.replay import replay_command
from tests.support.story import stable

ROW = {"source": "telemetry", "topic": "group-telemetry", "partition": 0, "offset": 0, "timestamp_ms": 1, "value": "x"}


def read(*rows, **how):
    return list(read_rows(iter(row if isinstance(row, str) else json.dumps(row) for row in rows), **how))


@pytest.mark.parametrize(
    "change",
    [{"offset": 10**30}, {"partition": 1e999}, {"partition": -7}, {"offset": -1},
     {"timestamp_ms": "1"}, {"offset": True}, {"topic": None}, {"value": 7},
     {"key": []}, {"source": "elsewhere"}, {"source": ["telemetry"]}, {"source": "offsets", "value": "é"}],
    ids=str,
)  # fmt: skip
def test_a_row_of_another_shape_is_counted(change):
    good, bad = read(ROW, ROW | change)
    assert isinstance(good, SourceRow)
    assert isinstance(bad, BadRow)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"source":' + "1" * 5_000 + "}", "\x00", '"', "null", '{"a":'])
def test_a_line_that_is_no_row_is_counted(line):
    assert [type(row) for row in read(line, ROW)] == [BadRow, SourceRow]


def test_whatever_reading_a_row_raises_costs_that_row_only(monkeypatch):
    def fails(value):
        if value == "bad":
            raise ZeroDivisionError
        return value

    monkeypatch.setattr(file, "_from_text", fails)
    assert [type(row) for row in read(ROW, ROW | {"value": "bad"}, ROW)] == [SourceRow, BadRow, SourceRow]


def test_the_name_of_a_telemetry_topic_decides_what_it_may_say():
    topics = ["group-telemetry", "group-client-telemetry", "whatever"]
    rows = [ROW | {"topic": topic} for topic in topics] + [ROW | {"source": "offsets", "topic": topics[1], "value": ""}]
    assert [row.source for row in read(*rows)] == [TELEMETRY, REPORTS, TELEMETRY, OFFSETS]
    assert [row.source for row in read(*rows, client_topics=["whatever"])] == [TELEMETRY, TELEMETRY, REPORTS, OFFSETS]


def test_replay_takes_the_topics_of_its_configuration(tmp_path):
    config, capture = tmp_path / "monitor.toml", tmp_path / "capture.jsonl"
    config.write_text('[kafka]\nclient_telemetry_topics = ["lines-of-broker-1"]\n')
    rows = stable("m1").source_rows(200)
    capture.write_text("".join(json.dumps(ROW | as_json(row)) + "\n" for row in rows if row.source == TELEMETRY))
    printed = CliRunner().invoke(replay_command, [str(capture), "--config", str(config)]).stdout.splitlines()
    undecodable = json.loads(printed[-1])["undecodable"]
    assert undecodable == {"reports: not a client's report, in a topic of reports": json.loads(printed[-1])["rows"]}


def as_json(row):
    return row._asdict() | {"key": None, "value": row.value.decode()}


def cut_off(data):
    return data[:-20]


def damaged_within(data):
    middle = len(data) // 2
    return data[:middle] + b"\xff" * 40 + data[middle + 40 :]


@pytest.mark.parametrize("spoil", [cut_off, damaged_within])
def test_a_damaged_gzip_is_read_up_to_the_damage_which_is_counted(tmp_path, spoil):
    capture = tmp_path / "capture.jsonl.gz"
    good = [ROW | as_json(row) for row in stable("m1").source_rows(200) if row.source == TELEMETRY]
    rows = [*good, *(ROW | {"offset": n} for n in range(len(good), 9_999))]
    capture.write_bytes(spoil(gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode())))
    result = CliRunner().invoke(replay_command, [str(capture)])
    assert result.exit_code == 0
    summary = json.loads(result.stdout.splitlines()[-1])
    assert summary["undecodable"]["capture: not a row"] >= 1
    assert len(good) < summary["rows"] < len(rows)


def test_bytes_that_are_no_text_come_back_as_they_were():
    """As the protobuf of an OpenTelemetry collector."""
    value = b"\x0a\xff\x00metrics"
    record = SimpleNamespace(topic="otlp", partition=0, offset=3, timestamp=7, key=None, value=value)
    [row] = read(capture_line("telemetry", record), client_topics=["otlp"])
    assert row == SourceRow(REPORTS, "otlp", 0, 3, 7, None, value)

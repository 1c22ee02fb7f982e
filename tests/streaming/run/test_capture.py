import json
import threading

import pytest

from streaming.capture.file import BadRow, read_rows
from streaming.capture.recorder import record

pytestmark = pytest.mark.e2e


def lines_into(file):
    return lambda lines: file.writelines(f"{line}\n" for line in lines)


def captured(broker, topics, tmp_path, enough, **options):
    """Rows that `record` writes until there are enough of them."""
    file, stop = tmp_path / "capture.jsonl", threading.Event()
    client = {"bootstrap_servers": broker.bootstrap_servers}
    with file.open("w") as out:
        for written in record(client, topics, lines_into(out), stop, **options):
            if written.total() >= enough:
                stop.set()
    with file.open() as lines:
        return list(read_rows(lines))


def test_a_capture_is_what_replay_reads(broker, coordinator, members, tmp_path):
    coordinator.create_telemetry()
    coordinator.record("orders", 3, members, 0)
    coordinator.send(coordinator.records, b"\x00\x02\x00\x01g", None, coordinator.start_ms)
    coordinator.line(b"Completed request:\xff\xfe not text", 1)
    coordinator.beats("orders", members, 3, range(2, 4))
    topics = {coordinator.records: "offsets", coordinator.lines: "telemetry"}
    rows = captured(broker, topics, tmp_path, 11, from_beginning=True)
    assert not [row for row in rows if isinstance(row, BadRow)]
    assert sorted((row.source, row.offset) for row in rows if row.source == "telemetry") == [
        ("telemetry", offset) for offset in range(9)
    ]
    assert {row.timestamp_ms for row in rows if row.source == "offsets"} == {coordinator.start_ms}
    assert [row.value for row in rows if row.key == b"\x00\x02\x00\x01g"] == [None]


def test_by_default_a_capture_begins_now_and_misses_nothing_of_a_topic_that_appears(broker, coordinator, tmp_path):
    coordinator.record("before", 1, [], 0)
    coordinator.producer.flush()
    file, stop = tmp_path / "capture.jsonl", threading.Event()
    topics = {coordinator.records: "offsets", coordinator.lines: "telemetry"}
    with file.open("w") as out:
        polls = record({"bootstrap_servers": broker.bootstrap_servers}, topics, lines_into(out), stop)
        for number, written in enumerate(polls):
            if number == 0:
                coordinator.create_telemetry()
                coordinator.record("after", 1, [], 1)
                coordinator.line(b"first", 1)
                coordinator.producer.flush()
            if written.total() >= 2:
                stop.set()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted((row["source"], row["value"] == "first") for row in rows) == [("offsets", False), ("telemetry", True)]

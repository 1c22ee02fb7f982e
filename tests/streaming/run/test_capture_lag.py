"""Rounds of end offsets in a capture: their rows, and of which topics they are."""

import base64
import json

import pytest

from coordinator_model.commit_block import key_of
from coordinator_model.decode.cluster_row import read_cluster_row
from streaming.cluster_rows import CommittedTopics, offsets_of
from tests.streaming.run.lag_story import T0, round_of


def line(key, source="offsets"):
    text = None if key is None else base64.b64encode(key).decode()
    row = {"source": source, "topic": "t", "partition": 0, "offset": 1, "timestamp_ms": T0, "key": text, "value": None}
    return json.dumps(row, separators=(",", ":"))


def test_topics_in_use_are_those_of_commits():
    known = CommittedTopics()
    known.saw([line(b"\x00\x01" + key_of("g", "orders", 0)), line(b"\x00\x00" + key_of("g", "bills", 3))])
    known.saw([line(b"\x00\x02" + b"\x00\x06orders"), line(None)])
    known.saw([line(b"\x00\x01" + key_of("g", "telemetry", 0), source="telemetry")])
    assert sorted(known.names()) == ["bills", "orders"]


@pytest.mark.parametrize("key", [b"\x00\x01", b"\x00\x01\x7f\xff", b"\x00\x01\x00\x01g\xff\xff", b"\x00\x00\x80\x00"])
def test_a_key_that_cannot_be_read_names_no_topic(key):
    known = CommittedTopics()
    known.saw([line(key), line(b"\x00\x01" + key_of("g", "orders", 0))])
    assert "orders" in known.names()


def test_a_round_is_a_row_that_the_core_reads():
    asked = round_of(T0, {"orders": [5, None], "bills": [0]}, starts={"orders": [2, 0]})
    row = {"source": "cluster", "timestamp_ms": T0, **offsets_of(asked)}
    read = read_cluster_row(json.dumps(row).encode())
    assert (read.end_offsets, read.start_offsets) == (
        {"orders": (5, None), "bills": (0,)},
        {"orders": (2, None), "bills": (0,)},
    )


def test_what_was_told_in_an_earlier_round_only_is_not_of_this_one():
    asked = round_of(T0, {"orders": [5, 6]})
    asked.asked_ms[1] = T0 - 10_000
    assert offsets_of(asked)["end_offsets"] == {"orders": [5, None]}

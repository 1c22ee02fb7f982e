"""Rounds of end offsets in a capture: their rows, and of which topics they are."""

import base64
import json
import uuid
from contextlib import closing

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from coordinator_model.capture_replay import replay_rows
from coordinator_model.commit_block import key_of
from coordinator_model.decode.cluster_row import read_cluster_row
from coordinator_model.decode.parse import SourceRow
from coordinator_model.shard.shard import ShardSettings
from streaming.capture.cluster_rows import CommittedTopics, offsets_of
from streaming.capture.file import open_text, read_rows
from streaming.capture.recorder import Recording
from streaming.config.kafka import Kafka
from tests.streaming.run.lag_story import T0, round_of, rows_of
from tests.streaming.run.test_end_offsets import produce, until


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


@pytest.mark.e2e
def test_a_capture_tells_the_lag_of_a_group_without_members(broker, tmp_path):
    name, servers, out = f"t-{uuid.uuid4().hex[:6]}", broker.bootstrap_servers, tmp_path / "capture.jsonl"
    broker.create_topic(name, partitions=2)
    produce(servers, name, 1, 9)
    recording = Recording(Kafka(bootstrap_servers=servers), out, from_beginning=True, probing=False)
    recording.start()
    place = TopicPartition(name, 1)
    with closing(KafkaConsumer(bootstrap_servers=servers, group_id=name, enable_auto_commit=False)) as consumer:
        consumer.assign([place])
        consumer.commit({place: OffsetAndMetadata(4, "", -1)})

    def replayed():
        if not out.exists():
            return {}
        with open_text(out) as lines:
            rows = [row for row in read_rows(lines) if isinstance(row, SourceRow)]
        return replay_rows(rows, ShardSettings("c", 50, 0)).partitions

    told = until(replayed, lambda partitions: name in partitions)
    assert recording.finish()
    assert rows_of(told[name]) == [(name, 1, 4, 9, 5)]

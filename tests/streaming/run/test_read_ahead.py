"""What is read while Spark starts: all rows once, in order, and nothing if that is not sure."""

import json
import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from coordinator_model.shard.sharding import shard_of
from streaming.config.kafka import Kafka
from streaming.run import read_ahead
from streaming.run.job import Job
from streaming.run.layout import Checkpoint
from streaming.run.packing import Routing, commit_block, commits_in, unpack
from streaming.run.read_ahead import FOLDER, ReadAhead, next_offsets, rows_of
from streaming.run.source import PackRows
from tests.support import records as encoder

TOPIC = "read-ahead"
PARTITIONS, ROWS = 25, 2_000  # more than are read at once
ROUTING = Routing(PARTITIONS, lanes=("a", "b"))


@pytest.fixture(scope="module")
def client(broker):
    """The settings of a client of a cluster that holds a topic; its partition 3 is empty."""
    broker.create_topic(TOPIC, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(ROWS):
        partition = number % PARTITIONS
        value = None if number % 7 == 0 else b"value-%d" % number
        if partition != 3:
            producer.produce(TOPIC, value, b"key-%d" % number, partition, timestamp=1_790_000_000_000 + number)
    producer.flush()
    return Kafka(bootstrap_servers=broker.bootstrap_servers).librdkafka_client()


@pytest.fixture
def collected():
    """Rows as a packing function got them; `done` is set once it got all."""
    return SimpleNamespace(rows=[], done=threading.Event())


def collecting(collected):
    def pack(batches):
        for batch in batches:
            collected.rows += batch.to_pylist()
            yield batch.from_pydict({"key": [f"{batch['partition'][0].as_py():03}"], "payload": [b"packed"]})
        collected.done.set()

    return pack


def test_every_row_is_read_once_in_the_order_of_its_partition(client, collected, tmp_path):
    with ReadAhead(client, TOPIC, range(PARTITIONS), collecting(collected)) as reading:
        assert collected.done.wait(60)
    reading.keep(tmp_path, ROUTING)
    by_partition = {number: [] for number in range(PARTITIONS)}
    for row in collected.rows:
        by_partition[row["partition"]].append(row)
    for number, rows in by_partition.items():
        sent = [] if number == 3 else range(number, ROWS, PARTITIONS)
        assert [row["key"] for row in rows] == [b"key-%d" % key for key in sent]
        assert [row["offset"] for row in rows] == list(range(len(sent)))
        assert [row["value"] for row in rows] == [None if key % 7 == 0 else b"value-%d" % key for key in sent]
        assert [row["timestamp_ms"] for row in rows] == [1_790_000_000_000 + key for key in sent]
    assert {row["topic"] for row in collected.rows} == {TOPIC}
    assert next_offsets(tmp_path) == {str(number): len(rows) for number, rows in by_partition.items() if rows}


def test_of_a_large_topic_no_more_is_read_than_fits(client, collected, tmp_path, monkeypatch):
    monkeypatch.setattr(read_ahead, "MAX_ROWS", 500)
    with ReadAhead(client, TOPIC, range(PARTITIONS), collecting(collected)) as reading:
        assert collected.done.wait(60)
    reading.keep(tmp_path, ROUTING)
    assert 500 <= len(collected.rows) < ROWS
    assert sum(next_offsets(tmp_path).values()) == len(collected.rows)


def test_each_lane_has_a_file_with_the_rows_of_its_keys(client, collected, tmp_path):
    with ReadAhead(client, TOPIC, (0, 1), collecting(collected)) as reading:
        assert collected.done.wait(60)
    reading.keep(tmp_path, ROUTING)
    lane_of = ROUTING.lane_of_keys()
    kept = {key: lane for lane in ROUTING.lanes for key in rows_of(tmp_path / FOLDER, lane)}
    assert kept == {"000": lane_of["000"]}  # the packing function above names only the first partition of a batch


def test_if_a_row_cannot_be_packed_nothing_is_kept(client, tmp_path):
    with ReadAhead(client, TOPIC, (0,), lambda batches: [1 / 0 for _ in batches]) as reading:
        reading._thread.join(60)
        assert not reading._thread.is_alive()
    reading.keep(tmp_path, ROUTING)
    assert next_offsets(tmp_path) == {}
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.parametrize("problem", ["no broker", "no topic"])
def test_what_cannot_be_read_delays_nothing(client, tmp_path, problem):
    broken = Kafka(bootstrap_servers="127.0.0.1:1").librdkafka_client() if problem == "no broker" else client
    with ReadAhead(broken, "no-such-topic", (0,), list) as reading:
        pass
    assert not reading._thread.is_alive()
    reading.keep(tmp_path, ROUTING)
    assert next_offsets(tmp_path) == {}


def test_commits_are_packed_as_in_the_source_stage(broker, tmp_path):
    """The newest commit of each partition is left. The lanes are known only once Spark has started."""
    topic = "read-ahead-records"
    broker.create_topic(topic, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(20):
        key, value = encoder.commit_key("orders", "topic", number % 3), encoder.commit_value(number, 1_790_000_000_000)
        producer.produce(topic, value, key, shard_of("orders", 2))
    producer.flush()
    client = Kafka(bootstrap_servers=broker.bootstrap_servers).librdkafka_client()
    later_ms = 2_000_000_000_000
    pack = PackRows(Routing(2), topic, tmp_path / "live-keys.json", live_from_ms=later_ms, history_from_ms=later_ms)
    with ReadAhead(client, topic, (0, 1), pack) as reading:
        reading._thread.join(60)
    reading.keep(tmp_path, Routing(2, lanes=("a", "b")))
    of_lanes = [rows_of(tmp_path / FOLDER, lane) for lane in ("a", "b")]
    packed = of_lanes[shard_of("orders", 2)][f"{shard_of('orders', 2):03}"]
    blocks = [commit_block(block) for block in commits_in(unpack(packed))]
    assert sorted(offset for block in blocks for offset in block.offsets) == [17, 18, 19]


def job_on(folder, *, committed):
    """Call the part of the job that decides where Spark begins; return its answer, and where."""
    (folder / FOLDER).mkdir()
    (folder / FOLDER / "next-offsets.json").write_text(json.dumps({"1": 7}))
    if committed:
        (folder / "commits").mkdir()
        (folder / "commits" / "0").touch()
    job = SimpleNamespace(settings=SimpleNamespace(kafka=Kafka(offsets_topic=TOPIC)))
    starts = {TOPIC: {"0": -2, "1": -2}, "lines": {"0": 5}}
    return Job._read_ahead(job, Checkpoint("c", folder, 0, resumed=True), starts), starts


def test_until_the_first_batch_has_ended_spark_begins_after_what_was_read(tmp_path):
    folder, starts = job_on(tmp_path, committed=False)
    assert folder == tmp_path / FOLDER
    assert starts == {TOPIC: {"0": -2, "1": 7}, "lines": {"0": 5}}


def test_after_the_first_batch_what_was_read_ahead_is_deleted(tmp_path):
    folder, starts = job_on(tmp_path, committed=True)
    assert folder is None
    assert starts[TOPIC] == {"0": -2, "1": -2}
    assert not (tmp_path / FOLDER).exists()

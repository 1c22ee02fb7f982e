"""Spark's Kafka source as we set it: what it must deliver, and the traps that the settings are there for."""

import json
from queue import Queue

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from streaming.config.settings import Run, Settings
from streaming.run.lanes import lane_names
from streaming.run.session import Spark
from streaming.run.source import TRIGGER_TOPIC, kafka_rows, source_rows
from streaming.run.topics import Topics

pytestmark = pytest.mark.spark
TRAP = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


@pytest.fixture(scope="module")
def spark():
    session = Spark(Run(master="local[2]"), 2).session
    yield session
    session.stop()


@pytest.mark.parametrize("tasks", [1, 2, 5, 16])
def test_each_task_of_a_shuffle_has_a_lane_of_its_own(spark, tasks):
    names = lane_names(spark, tasks)
    rows = spark.createDataFrame([(name,) for name in names], "lane string").repartition(tasks, "lane")
    tasks_of = [(row.lane, row.task) for row in rows.selectExpr("lane", "spark_partition_id() AS task").collect()]
    assert sorted(tasks_of, key=lambda pair: pair[1]) == [(name, task) for task, name in enumerate(names)]


@pytest.fixture(scope="module")
def settings(broker):
    """Settings for a cluster whose internal topic holds a commit."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="canary", enable_auto_commit=False)
    broker.create_topic("canary", partitions=1)
    consumer.commit({TopicPartition("canary", 0): OffsetAndMetadata(1, "", -1)})
    consumer.close()
    return Settings.model_validate({"kafka": {"bootstrap_servers": broker.bootstrap_servers}})


def collected(rows, folder):
    """All rows that a stream delivers in one go."""
    found = []
    query = (
        rows.writeStream.foreachBatch(lambda frame, _: found.extend(frame.collect()))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def read(spark, settings, folder):
    kafka = settings.kafka
    with Topics(kafka.python_client()) as topics:
        assigned, _ = topics.existing([kafka.offsets_topic])
        starts = topics.starts(kafka.offsets_topic, assigned, 0)
    return collected(kafka_rows(spark, kafka, assigned, starts), folder)


def test_a_batch_comes_each_trigger_though_kafka_is_still(spark, settings, tmp_path):
    """Each brings the row that wakes the shards: only then can they see that telemetry stands still."""
    kafka, batches = settings.kafka, Queue()
    with Topics(kafka.python_client()) as topics:
        assigned, _ = topics.existing([kafka.offsets_topic])
        starts = topics.ends(assigned)
    query = (
        source_rows(spark, kafka, assigned, starts)
        .writeStream.foreachBatch(lambda frame, _: batches.put([row.topic for row in frame.collect()]))
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        assert [batches.get(timeout=60) for _ in range(3)] == [[TRIGGER_TOPIC]] * 3
    finally:
        query.stop()


def test_rows_of_the_internal_topic_arrive_as_they_lie_in_kafka(spark, settings, tmp_path):
    rows = read(spark, settings, tmp_path)
    assert {row.topic for row in rows} == {"__consumer_offsets"}
    assert any(b"canary" in row.key for row in rows)
    assert all(row.timestamp_ms > 1_600_000_000_000 for row in rows)


@pytest.mark.parametrize("deprecated", ["true", "false"])
def test_canary_only_the_deprecated_offset_fetching_sees_an_internal_topic(spark, settings, tmp_path, deprecated):
    """When the second case fails the trap is gone, and so may be the setting that it makes necessary."""
    spark.conf.set(TRAP, deprecated)
    try:
        rows = (
            spark.readStream.format("kafka")
            .options(**settings.kafka.spark_options())
            .option("assign", json.dumps({"__consumer_offsets": list(range(50))}))
            .option("startingOffsets", "earliest")
            .load()
        )
        assert bool(collected(rows, tmp_path)) == (deprecated == "true")
    finally:
        spark.conf.set(TRAP, "true")


def test_the_layout_of_startingoffsets_is_what_spark_reads(settings):
    with Topics(settings.kafka.python_client()) as topics:
        assigned, _ = topics.existing(["__consumer_offsets", "canary", "nowhere"])
        starts = topics.starts("__consumer_offsets", assigned, telemetry_from_ms=0)
    assert set(assigned) == {"__consumer_offsets", "canary"}
    assert json.loads(json.dumps(starts))["canary"] == {"0": -1}
    assert set(starts["__consumer_offsets"].values()) == {-2}


def test_the_partitions_of_every_topic_are_counted_but_kafkas_own(broker):
    broker.create_topic("counted", partitions=3)
    settings = Settings(kafka={"bootstrap_servers": broker.bootstrap_servers})
    with Topics(settings.kafka.python_client()) as topics:
        counts = topics.partition_counts()
    assert counts["counted"] == 3
    assert not [name for name in counts if name.startswith("__")]

"""A large `__consumer_offsets` for the cold start, and the time that a reader needs which does nothing else.

Nearly all records are offset commits; every fiftieth is a generation of a group. All groups commit to one topic, which
has some more records than they have read. The reader uses confluent-kafka (C), single-threaded; other measurements are
given as multiples of its time.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from coordinator_model.shard.sharding import shard_of
from tests.benchmarks import synthetic
from tests.benchmarks.synthetic import Member

HOUR_MS = 3_600_000
POLL_S = 0.1
SHARDS = 50
GENERATION_EVERY = 50
"""2 % of the records are no commits."""
READ_AT_ONCE = 10_000


def fill(servers: str, topic: str, records: int, groups: int, partitions: int) -> None:
    """Write records dated an hour ago: commits of `partitions` partitions per group, and generations of each group."""
    producer = Producer(
        {"bootstrap.servers": servers, "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
    )
    fill_topic(producer, partitions, records // groups + 1)
    at_ms = int(time.time() * 1000) - HOUR_MS
    for shard, key, value in history(records, groups, partitions, at_ms):
        while True:
            try:
                producer.produce(topic, value, key, shard, timestamp=at_ms)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def history(records: int, groups: int, partitions: int, at_ms: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield records in their order, each as partition of the offsets topic, key and value."""
    names = [f"bench-group-{number:05d}" for number in range(groups)]
    shards = [shard_of(name, SHARDS) for name in names]
    heads = list(map(synthetic.commit_head, names))
    for number in range(records):
        turn = number // groups
        group = (number + turn) % groups
        if number % GENERATION_EVERY == 0:
            yield shards[group], *synthetic.group_record(names[group], 1 + turn, [Member(group)], at_ms)
        else:
            yield shards[group], *synthetic.commit_record(heads[group], turn % partitions, turn, at_ms)


def fill_topic(producer: Producer, partitions: int, messages: int) -> None:
    """Write this many messages to each partition of the topic that groups commit to."""
    for partition in range(partitions):
        for _ in range(messages):
            producer.produce(synthetic.TOPIC, b"x", partition=partition)


def fill_topic_of(servers: str, partitions: int, messages: int) -> None:
    """Do as `fill_topic`, in a cluster."""
    producer = Producer({"bootstrap.servers": servers})
    fill_topic(producer, partitions, messages)
    producer.flush()


def read_bare(servers: str, topic: str, records: int) -> float:
    """Return how many seconds a reader needs that only counts the records."""
    begin = time.monotonic()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench-reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(SHARDS)])
    read = 0
    while read < records:
        read += len(consumer.consume(READ_AT_ONCE, 1.0))
    took_s = time.monotonic() - begin
    consumer.close()
    return took_s


def records_in(servers: str, topic: str) -> int:
    """Return how many records a topic holds that was never compacted."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench-reader"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, partition)) for partition in range(SHARDS)]
    consumer.close()
    return sum(end - start for start, end in ends)


def await_rows(database: Path, query: str, rows: int) -> None:
    """Wait until the store has so many rows."""
    while True:
        with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(database)) as store:
            if store.execute(query).fetchone()[0] >= rows:
                return
        time.sleep(POLL_S)

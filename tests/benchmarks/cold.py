"""A large `__consumer_offsets` for the cold start: nearly all offset commits, a generation of each group among them."""

import contextlib
import sqlite3
import struct
import time
from pathlib import Path

from confluent_kafka import Producer

from coordinator_model.shard.sharding import shard_of
from tests.benchmarks import synthetic
from tests.benchmarks.synthetic import Member

HOUR_MS = 3_600_000
POLL_S = 0.1


def fill(servers: str, records: int, groups: int) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
    )
    names = [f"bench-group-{number:05d}" for number in range(groups)]
    shards = [shard_of(name, 50) for name in names]
    at_ms = int(time.time() * 1000) - HOUR_MS
    commit = struct.pack(">hqih", 3, 4_200, 5, 0) + struct.pack(">q", at_ms)
    for number in range(records):
        group = number % groups
        if number < groups:
            key, value = synthetic.group_record(names[group], 1, [Member(group)], at_ms)
        else:
            name, topic = names[group].encode(), b"orders"
            key = struct.pack(">hh", 1, len(name)) + name + struct.pack(">h", len(topic)) + topic
            key, value = key + struct.pack(">i", number % 24), commit
        while True:
            try:
                producer.produce("bench-offsets", value, key, shards[group], timestamp=at_ms)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def await_groups(database: Path, groups: int) -> None:
    """Return once the store shows every group."""
    while True:
        with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(database)) as store:
            if store.execute("SELECT count(*) FROM groups").fetchone()[0] >= groups:
                return
        time.sleep(POLL_S)

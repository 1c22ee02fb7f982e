"""Commits of a stand-in cluster's groups, and messages in their partitions, while the job is killed again and again.

Two partitions are never committed again, although their owners live: one of a group without members, which goes on with
its other partitions, and one of a member that commits nothing any more. What the job has of them is compared with the
truth.
"""

import json
from collections import Counter
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from coordinator_model.shard.sharding import shard_of
from tests.benchmarks.synthetic import TOPIC
from tests.e2e.crash_cluster import PARTITIONS, LiveCluster
from tests.e2e.crash_job import Job
from tests.support.records import commit_key, commit_value

LOADER, LEDGER = "loader", "ledger"
STUCK = {LOADER: 2, LEDGER: 1}
"""By group, the partition that is left behind; in the ledger it is also the number of its owner."""
DATA_PARTITIONS = 3
EVERY_MS, LEFT_BEHIND_MS = 2_000, 40_000
MESSAGES = 10


class Row(NamedTuple):
    """A partition, as the job stored it, or as the brokers and the truth have it."""

    partition: int
    committed: int
    end: int
    lag: int


class Commits:
    """Messages to all partitions and commits of two groups, every two seconds until `end`."""

    def __init__(self, cluster: LiveCluster, begin_ms: int) -> None:
        self.cluster = cluster
        self.committed: dict[tuple[str, int], int] = {}
        self.committed_ms: dict[tuple[str, int], int] = {}
        self._ends = Counter[int]()
        self._left_behind_ms = begin_ms + LEFT_BEHIND_MS
        self._producer = Producer({"bootstrap.servers": cluster.broker.bootstrap_servers, "linger.ms": 0})
        self._at_work = True
        cluster.broker.create_topic(TOPIC, partitions=DATA_PARTITIONS)
        cluster.at(begin_ms, self._go_on)

    def end(self) -> None:
        """Stop writing."""
        self._at_work = False

    def _go_on(self, at_ms: int) -> None:
        if not self._at_work:
            return
        for partition in range(DATA_PARTITIONS):
            for _ in range(MESSAGES):
                self._producer.produce(TOPIC, b"message", partition=partition)
                self._ends[partition] += 1
        assert self._producer.flush(10) == 0
        for group, stuck in STUCK.items():
            for partition in range(DATA_PARTITIONS):
                if partition != stuck or at_ms < self._left_behind_ms:
                    self._commit(group, partition, at_ms)
        self.cluster.at(at_ms + EVERY_MS, self._go_on)

    def _commit(self, group: str, partition: int, at_ms: int) -> None:
        offset = self.committed[group, partition] = self._ends[partition]
        self.committed_ms[group, partition] = at_ms
        place = commit_key(group, TOPIC, partition)
        value = commit_value(offset, at_ms)
        self.cluster.write(place, value, at_ms, shard_of(group, PARTITIONS))

    def truth(self) -> dict[str, list[Row]]:
        """Ask the broker where the partitions end, and return how far each group is behind."""
        asker = Consumer({"bootstrap.servers": self.cluster.broker.bootstrap_servers, "group.id": "nobody"})
        try:
            ends = {p: asker.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in self._ends}
        finally:
            asker.close()
        return {
            group: [Row(p, at := self.committed[group, p], end, end - at) for p, end in ends.items()] for group in STUCK
        }

    def subjects(self) -> dict[str, str]:
        """Return by group what is stalled: a partition if others of its owner go on, else the member."""
        member = self.cluster.groups[LEDGER].members[STUCK[LEDGER]]
        return {LOADER: f"{TOPIC}-{STUCK[LOADER]}", LEDGER: member.member_id}


def stored(job: Job, group: str) -> tuple[int, list[Row]]:
    """Return what the job has of a group's lag, and as of when."""
    rows = job.rows("SELECT at_ms, body FROM lags WHERE group_id = ?", group)
    if not rows:
        return 0, []
    at_ms, columns = rows[0][0], json.loads(rows[0][1])
    names = ("partition", "committed_offset", "end_offset", "lag")
    return at_ms, [Row(*row) for row in zip(*(columns[name] for name in names), strict=True)]


def stalls(job: Job) -> list[tuple[Any, ...]]:
    """Return group, subject, state and beginning of every stall that was ever reported."""
    found = [
        (row["group"], row["subject"], row["reason"], row["opened_ms"]) for row in job.incidents("partition-stalled")
    ]
    return sorted(found)

"""The cluster's topics: their partitions, ids and end offsets, and where the job begins to read.

Read with kafka-python and `assign`, without a consumer group, like everything the monitor reads.
"""

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any, Self
from uuid import UUID

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import LeaderNotAvailableError

Assigned = dict[str, tuple[int, ...]]
"""Topic -> its partitions; only topics that exist."""
Offsets = dict[str, dict[str, int]]
"""Topic -> partition (as text, Spark's JSON) -> offset."""

LATEST, EARLIEST = -1, -2  # Spark's numbers for the ends of a partition
READ_TIMEOUT_MS = 5_000
ATTEMPTS = 5
RETRY_AFTER_S = 0.2


class Topics:
    """A reader of metadata and single records; every method may raise `KafkaError`."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._consumer = KafkaConsumer(
            **client, group_id=None, enable_auto_commit=False, allow_auto_create_topics=False
        )
        self._admin = KafkaAdminClient(**client)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def existing(self, names: Iterable[str]) -> Assigned:
        """Return those of the topics that exist, with their current partitions."""
        self._consumer.topics()  # the only call that is sure to ask the brokers again
        found = {name: tuple(sorted(self._consumer.partitions_for_topic(name) or ())) for name in names}
        return {name: partitions for name, partitions in found.items() if partitions}

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of topics; a recreated topic has another id, and brokers before 2.8 have no ids."""
        topics = self._admin.describe_topics(list(names))
        ids = {topic["name"]: UUID(str(topic["topic_id"])) for topic in topics if topic.get("topic_id")}
        return {name: str(topic_id) for name, topic_id in ids.items() if topic_id.int}

    def partition_counts(self) -> dict[str, int]:
        """Return the current partition counts of all topics except internal ones (``__...``)."""
        names = [name for name in self._consumer.topics() if not name.startswith("__")]
        return {name: len(self._consumer.partitions_for_topic(name) or ()) for name in names}

    def ends(self, assigned: Assigned) -> Offsets:
        """Return the current end offsets."""
        return _by_topic(self._ends(_partitions(assigned)))

    def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        for _ in range(ATTEMPTS):
            # kafka-python 3.0 raises KeyError if a partition's answer came on its second try.
            with contextlib.suppress(KeyError):
                return dict(self._consumer.end_offsets(partitions))
            time.sleep(RETRY_AFTER_S)
        raise LeaderNotAvailableError("no end offsets")

    def starts(self, offsets_topic: str, assigned: Assigned, telemetry_from_ms: int) -> Offsets:
        """Return where a fresh checkpoint begins: at the first record, and at an instant of the telemetry."""
        telemetry = [p for p in _partitions(assigned) if p.topic != offsets_topic]
        found = self._consumer.offsets_for_times(dict.fromkeys(telemetry, telemetry_from_ms)) if telemetry else {}
        starts = {p: EARLIEST for p in _partitions(assigned) if p.topic == offsets_topic}
        starts |= {p: found[p].offset if found.get(p) else LATEST for p in telemetry}
        return _by_topic(starts)

    def newest_ms(self, names: Iterable[str]) -> int | None:
        """Return the timestamp of the newest record of some topics; None when they hold none."""
        partitions = _partitions(self.existing(names))
        if not partitions:
            return None
        ends = self._ends(partitions)
        begins = self._consumer.beginning_offsets(partitions)
        filled = [p for p in partitions if ends[p] > begins[p]]
        self._consumer.assign(filled)
        for partition in filled:
            self._consumer.seek(partition, ends[partition] - 1)
        newest_ms: dict[TopicPartition, int] = {}
        while len(newest_ms) < len(filled):
            records = self._consumer.poll(timeout_ms=READ_TIMEOUT_MS)
            if not records:
                break  # only transaction markers at the end, or no leader: what was read is enough
            newest_ms |= {partition: rows[-1].timestamp for partition, rows in records.items()}
        self._consumer.assign([])
        return max(newest_ms.values(), default=None)


def _partitions(assigned: Assigned) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in assigned.items() for number in numbers]


def _by_topic(offsets: Mapping[TopicPartition, int]) -> Offsets:
    grouped: Offsets = {}
    for partition, offset in offsets.items():
        grouped.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return grouped

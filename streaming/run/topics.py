"""The cluster's topics: their partitions, ids and end offsets, and where the job begins to read.

Read with kafka-python and `assign`, without a consumer group, like everything the monitor reads.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, Self
from uuid import UUID

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import LeaderNotAvailableError

Assigned = dict[str, tuple[int, ...]]
"""Topic -> its partitions; only topics that exist."""
Offsets = dict[str, dict[str, int]]
"""Topic -> partition (as text, Spark's JSON) -> offset."""

LATEST, EARLIEST = -1, -2  # Spark's numbers for the ends of a partition
READ_TIMEOUT_MS = 5_000
TIMEOUT_MS = 10_000
METADATA_MAX_AGE_MS = 5_000  # after a change of leaders, the consumer asks the old ones until it has new metadata
ATTEMPTS = 5
RETRY_AFTER_S = 0.2


class Existing(NamedTuple):
    """The topics that exist, of those that were asked for."""

    assigned: Assigned
    ids: dict[str, str]
    """A recreated topic has another id; brokers before 2.8 have no ids."""


class Topics:
    """A reader of metadata and single records; every method that asks may raise `KafkaError`.

    It connects when it is first asked. Close it after an error: kafka-python never logs in again to a broker that has
    refused it once, and a broker that is starting may do that.
    """

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._client = {**client, "request_timeout_ms": TIMEOUT_MS}

    @cached_property
    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(
            **self._client,
            group_id=None,
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
        )

    @cached_property
    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(**self._client)

    def close(self) -> None:
        """Close the connections; who asks next opens new ones."""
        for name in ("_consumer", "_admin"):
            if (client := vars(self).pop(name, None)) is not None:
                client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def existing(self, names: Iterable[str]) -> Existing:
        """Return those of the topics that exist, with their current partitions, and their ids."""
        topics = [topic for topic in self._admin.describe_topics(list(names)) if topic["partitions"]]
        ids = {topic["name"]: UUID(str(topic["topic_id"])) for topic in topics if topic.get("topic_id")}
        return Existing(
            {topic["name"]: tuple(sorted(each["partition_index"] for each in topic["partitions"])) for topic in topics},
            {name: str(topic_id) for name, topic_id in ids.items() if topic_id.int},
        )

    def partition_counts(self) -> dict[str, int]:
        """Return the current partition counts of all topics except internal ones (``__...``)."""
        names = [name for name in self._consumer.topics() if not name.startswith("__")]
        return {name: len(self._consumer.partitions_for_topic(name) or ()) for name in names}

    def ends(self, assigned: Assigned) -> Offsets:
        """Return the current end offsets."""
        return _by_topic(self._ends(_partitions(assigned)))

    def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return _of_all(self._consumer.end_offsets, partitions)

    def starts(self, offsets_topic: str, assigned: Assigned, telemetry_from_ms: int) -> Offsets:
        """Return where a fresh checkpoint begins: at the first record, and at an instant of the telemetry."""
        starts = {p: EARLIEST for p in _partitions(assigned) if p.topic == offsets_topic}
        if telemetry := [p for p in _partitions(assigned) if p.topic != offsets_topic]:
            self._ends(telemetry)  # so all leaders are known: a partition without one would seem to hold no such record
            found = self._consumer.offsets_for_times(dict.fromkeys(telemetry, telemetry_from_ms))
            starts |= {p: found[p].offset if found.get(p) else LATEST for p in telemetry}
        return _by_topic(starts)

    def newest_ms(self, names: Iterable[str]) -> int | None:
        """Return the timestamp of the newest record of some topics; None when they hold none."""
        partitions = _partitions(self.existing(names).assigned)
        if not partitions:
            return None
        ends, begins = self._ends(partitions), _of_all(self._consumer.beginning_offsets, partitions)
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


def _of_all(
    ask: Callable[[list[TopicPartition]], Mapping[TopicPartition, int]], partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Ask for an offset of each partition until all are known."""
    for _ in range(ATTEMPTS):
        # kafka-python 3.0 raises KeyError if it knows no leader of a partition, or if the answer came at its second try
        with contextlib.suppress(KeyError):
            return dict(ask(partitions))
        time.sleep(RETRY_AFTER_S)
    raise LeaderNotAvailableError("no offsets of some partitions")


def _partitions(assigned: Assigned) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in assigned.items() for number in numbers]


def _by_topic(offsets: Mapping[TopicPartition, int]) -> Offsets:
    grouped: Offsets = {}
    for partition, offset in offsets.items():
        grouped.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return grouped

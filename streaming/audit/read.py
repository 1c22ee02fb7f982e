"""The newest records of `__consumer_offsets`, read backwards in windows until all is read or the time is up.

A consumer can only read forwards. So each partition is read in a window at its end, then in a larger one before it, and
so on. Nothing is kept of an unfinished window, so that the records kept of a partition have no gap because of us.
No consumer group is used.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from coordinator_model.decode.parse import OFFSETS, RejectedRow, SourceRow, parse_row
from coordinator_model.events import RecordRead

FIRST_WINDOW: Final = 500
"""Offsets per partition; each further window is twice as large, up to `MAX_WINDOW`."""
MAX_WINDOW: Final = 64_000
MAX_KEPT_BYTES: Final = 128 * 2**20
POLL_MS: Final = 200
STALL_S: Final = 5.0
"""Reading ends if the brokers return nothing for this long."""
COMMIT_KEYS: Final = (b"\x00\x00", b"\x00\x01")
"""The first bytes of the keys of offset commits. These are most of the topic, and say nothing about members."""


@dataclass(slots=True)
class Window:
    """A range of one partition that was read: all offsets from `low` up to `high`."""

    low: int
    high: int
    events: list[RecordRead] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    """Offsets before which others are missing, because of compaction or transaction markers."""


@dataclass(slots=True)
class Read:
    """What was read of the topic. `partitions`: by number; `wanted` and `read` count offsets."""

    partitions: dict[int, Window] = field(default_factory=dict)
    begins: dict[int, int] = field(default_factory=dict)
    wanted: int = 0
    read: int = 0
    newest_ms: int = 0
    unreadable: int = 0
    kept_bytes: int = 0

    @property
    def share(self) -> float:
        """Return the share of the topic that was read, from 0 to 1."""
        return self.read / self.wanted if self.wanted else 1.0

    def is_whole(self, partition: int) -> bool:
        """Tell whether a partition was read to its beginning."""
        window = self.partitions.get(partition)
        return window is not None and window.low <= self.begins[partition]


def read_newest(
    client: Mapping[str, Any],
    topic: str,
    deadline_s: float,
    stop: threading.Event,
    shown: Callable[[Read], None] = lambda _: None,
) -> Read:
    """Read the topic, newest first, until `deadline_s` (monotonic), `stop`, or `MAX_KEPT_BYTES`."""
    consumer = KafkaConsumer(
        **client,
        group_id=None,
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        max_poll_records=5_000,
        fetch_max_wait_ms=POLL_MS,
    )
    try:
        return _Reading(consumer, topic, deadline_s, stop, shown).run()
    finally:
        consumer.close()


def with_records(client: Mapping[str, Any], topics: Iterable[str]) -> set[str]:
    """Return the topics that contain records. They have to exist; one whose offsets we may not ask counts as empty."""
    with closing(KafkaConsumer(**client, group_id=None, allow_auto_create_topics=False)) as consumer:
        return {topic for topic in topics if _has_records(consumer, topic)}


def _has_records(consumer: Any, topic: str) -> bool:
    try:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        begins, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
    except KafkaError:
        return False
    return any(ends[place] > begins[place] for place in places)


class _Reading:
    def __init__(
        self, consumer: Any, topic: str, deadline_s: float, stop: threading.Event, shown: Callable[[Read], None]
    ) -> None:
        self._consumer, self._topic = consumer, topic
        self._deadline_s, self._stop, self._shown = deadline_s, stop, shown
        self._read = Read()
        self._ends: dict[Any, int] = {}

    def run(self) -> Read:
        read, consumer = self._read, self._consumer
        partitions = [TopicPartition(self._topic, n) for n in sorted(consumer.partitions_for_topic(self._topic) or ())]
        if not partitions:
            return read
        begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        read.begins = {place.partition: begins[place] for place in partitions}
        read.wanted = sum(ends[place] - begins[place] for place in partitions)
        read.partitions = {place.partition: Window(ends[place], ends[place]) for place in partitions}
        self._ends = ends
        size = FIRST_WINDOW
        while not self._is_over() and self._window(size):
            size = min(2 * size, MAX_WINDOW)
        return read

    def _is_over(self) -> bool:
        full = self._read.kept_bytes >= MAX_KEPT_BYTES
        return full or self._stop.is_set() or time.monotonic() >= self._deadline_s

    def _window(self, size: int) -> bool:
        """Read one more window of every partition; return whether reading may go on."""
        read, consumer = self._read, self._consumer
        wanted = {
            TopicPartition(self._topic, number): Window(max(read.begins[number], window.low - size), window.low)
            for number, window in read.partitions.items()
            if window.low > read.begins[number]
        }
        if not wanted:
            return False
        consumer.assign(list(wanted))
        for place, window in wanted.items():
            consumer.seek(place, window.low)
        rows: dict[Any, list[Any]] = defaultdict(list)
        left, moved_s = dict(wanted), time.monotonic()
        while left and not self._is_over():
            polled = consumer.poll(timeout_ms=POLL_MS)
            for place, records in polled.items():
                if place in left:
                    rows[place] += [record for record in records if record.offset < left[place].high]
            for place in [place for place, window in left.items() if consumer.position(place) >= window.high]:
                self._keep(left.pop(place), place.partition, rows.pop(place, []))
                # The records after this window are already read, so skip them. A partition that is paused with records
                # in the client's buffer would keep all others from being read (kafka-python 3.0).
                consumer.seek(place, self._ends[place])
            if polled:
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s >= STALL_S:
                return False
            self._shown(read)
        return not left

    def _keep(self, window: Window, number: int, records: list[Any]) -> None:
        """Put the records of a finished window before those already kept of its partition."""
        read, kept = self._read, self._read.partitions[number]
        read.read += window.high - window.low
        expected = window.low
        for record in records:
            if record.offset != expected:
                window.gaps.append(record.offset)
            expected = record.offset + 1
            read.newest_ms = max(read.newest_ms, record.timestamp)
            if record.key is None or record.key[:2] not in COMMIT_KEYS:
                self._take(record, window)
        if expected != window.high:
            window.gaps.append(window.high)
        kept.low = window.low
        kept.events[:0] = window.events
        kept.gaps[:0] = window.gaps

    def _take(self, record: Any, window: Window) -> None:
        place = (record.topic, record.partition, record.offset, record.timestamp)
        events = parse_row(SourceRow(OFFSETS, *place, record.key, record.value))
        if isinstance(events, RejectedRow):
            self._read.unreadable += 1
            return
        window.events += [event for event in events if isinstance(event, RecordRead)]
        self._read.kept_bytes += len(record.value or b"")

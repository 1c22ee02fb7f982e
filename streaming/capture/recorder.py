"""Record topics of a cluster into a capture.

It reads with `assign`, without a consumer group: joining one would write to the very topic that is recorded. The probe
runs at the same time, so that a capture of a quiet cluster has ticks too.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from coordinator_model.decode.source_row import OFFSETS, REPORTS, TELEMETRY
from streaming.capture.cluster_rows import ClusterRows
from streaming.capture.writer import CaptureWriter
from streaming.connection import Kind, diagnose
from streaming.run.probe import Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from streaming.config.kafka import Kafka

END_S: Final = 2.0
POLL_MS: Final = 200
NEW_TOPIC_LOOK_S: Final = 1.0
RETRY_S: Final = 1.0


class Recording:
    """Connects, creates the file and records, in its own thread, so that no broker blocks the owner.

    The file is created only after a broker has answered.
    """

    def __init__(self, kafka: Kafka, out: Path, *, from_beginning: bool, probing: bool) -> None:
        self._kafka = kafka
        self._out = out
        self._from_beginning = from_beginning
        self._probing = probing
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._writer: CaptureWriter | None = None
        self.ended = threading.Event()
        self.written: Counter[str] = Counter()
        self.error: Exception | None = None
        self.warning: str | None = None

    def start(self) -> None:
        """Start the thread; return at once."""
        self._thread.start()

    def finish(self) -> bool:
        """End within `END_S`; return whether there is a file."""
        self._stop.set()
        self._thread.join(END_S)
        with self._lock:
            if self._writer is not None:
                try:
                    self._writer.close()
                except OSError as error:  # the disk is full
                    self.error = self.error or error
            return self._writer is not None

    def _run(self) -> None:
        try:
            self._record()
        except Exception as error:  # noqa: BLE001 - the owner reports it
            self.error = error
        self.ended.set()

    def _record(self) -> None:
        kafka, client = self._kafka, self._kafka.python_client()
        telemetry = (*kafka.telemetry_topics, *kafka.client_telemetry_topics)
        if problem := diagnose(kafka, topics=[kafka.offsets_topic]):
            raise problem
        if (refused := diagnose(kafka, topics=telemetry)) and refused.kind is Kind.AUTHORIZATION:
            self.warning = str(refused)
        topics = {topic: TELEMETRY if source == REPORTS else source for topic, source in kafka.sources.items()}
        with ExitStack() as stack:
            nonce = stack.enter_context(Probe(client)).nonce if self._probing else ""
            cluster = stack.enter_context(
                ClusterRows(client, kafka.offsets_topic, nonce, self._write, kafka.telemetry_zone)
            )

            def write(lines: Sequence[str]) -> None:
                self._write(lines)
                cluster.saw(lines)

            for written in record(client, topics, write, self._stop, from_beginning=self._from_beginning):
                self._write([])
                self.written = Counter(written)

    def _write(self, lines: Sequence[str]) -> None:
        with self._lock:
            if self._writer is None:
                if self._stop.is_set():
                    return
                self._writer = CaptureWriter(self._out)
        self._writer.write(lines)


def capture_line(source: str, record: Any) -> str:
    """Format a consumed record (kafka-python's `ConsumerRecord`) as a line of the capture format."""
    row: dict[str, Any] = {
        "source": source,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
    }
    if source == OFFSETS:
        row["key"], row["value"] = _base64(record.key), _base64(record.value)
    else:
        row["key"], row["value"] = _text(record.key), _text(record.value) or ""
        if not _is_text(record.value):  # protobuf, as an OpenTelemetry collector writes it
            row |= {"value": "", "value_base64": _base64(record.value)}
    return json.dumps(row, separators=(",", ":"), ensure_ascii=True)


def record(
    client: Mapping[str, Any],
    topics: Mapping[str, str],
    write: Callable[[Sequence[str]], None],
    stop: threading.Event,
    *,
    from_beginning: bool = False,
) -> Iterator[Counter[str]]:
    """Pass every record of `topics` (topic -> "offsets" | "telemetry") to `write`, as lines, until `stop` is set.

    Yields the number of rows written so far per topic after each poll. A topic that does not exist yet is read from its
    first record when it appears; so is a partition added later. Waits for brokers that go away; raises a `KafkaError`
    that is not retriable.
    """
    consumer = KafkaConsumer(
        **client,
        group_id=None,
        auto_offset_reset="earliest",  # if retention deletes what is read: go on with what is left, not at the end
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        metadata_max_age_ms=10_000,
        max_poll_records=20_000,
        fetch_max_wait_ms=POLL_MS,
    )
    written: Counter[str] = Counter()
    look_at = 0.0
    at_start = not from_beginning
    try:
        while not stop.is_set():
            if time.monotonic() >= look_at:
                with contextlib.suppress(KafkaError):  # a broker is away: look again in a second
                    _assign_new(consumer, list(topics), at_end=at_start)
                    at_start = False
                look_at = time.monotonic() + NEW_TOPIC_LOOK_S
            for partition, records in _poll(consumer, stop).items():
                write([capture_line(topics[partition.topic], row) for row in records])
                written[partition.topic] += len(records)
            yield written
    finally:
        consumer.close()


def _poll(consumer: Any, stop: threading.Event) -> dict[Any, list[Any]]:
    """Poll; return nothing if no partition is assigned or no broker answers."""
    if not consumer.assignment():
        stop.wait(POLL_MS / 1000)
        return {}
    try:
        return dict(consumer.poll(timeout_ms=POLL_MS))
    except KafkaError as error:
        if not error.retriable:
            raise
        stop.wait(RETRY_S)
        return {}


def _assign_new(consumer: Any, topics: list[str], *, at_end: bool) -> None:
    """Add partitions that appeared since the last look; keep the positions of the others."""
    known = consumer.assignment()
    found = {TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic) or ()}
    new = found - known
    if not new:
        return
    positions = {partition: consumer.position(partition) for partition in known}
    consumer.assign(sorted(found | known))
    for partition, position in positions.items():
        consumer.seek(partition, position)
    if at_end:
        consumer.seek_to_end(*new)
        for partition in new:
            consumer.position(partition)  # the end now, not at the first poll
    else:
        consumer.seek_to_beginning(*new)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _is_text(data: bytes | None) -> bool:
    try:
        (data or b"").decode("utf-8", "strict")
    except UnicodeDecodeError:
        return False
    return True


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode("utf-8")

"""The offsets topic, read while Spark starts.

Spark needs some ten seconds until its first batch, and leaves cores idle meanwhile. In that time the driver reads the
topic with librdkafka and packs it as the source stage does (decision 0020). Spark's reader begins where this one has
ended, and the operator applies what was packed before the rows of the first batch. The packed rows stay in the
checkpoint until that batch has ended, because a batch may have to be repeated.
"""

import json
import logging
import marshal
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import structlog

from streaming.config.kafka import READER_GROUP_PREFIX
from streaming.run.packing import Routing
from streaming.run.replaced_file import replaced, write_atomically

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

log = structlog.get_logger(__name__)

FOLDER = "read-ahead"
_NEXT_FILE = "next-offsets.json"
MAX_ROWS = 2_000_000  # as many as Spark reads in a batch: more would take memory
PARTITIONS_AT_ONCE = 10
"""Few partitions are read side by side, so that each is packed as a whole: of old records, only the newest of a key is
used.
"""
PIECE_BYTES = 64 * 1024 * 1024  # bounds the memory for rows that are not packed yet
MESSAGES_AT_ONCE = 10_000
WAIT_S = 0.1
_READER: dict[str, Any] = {
    "group.id": f"{READER_GROUP_PREFIX}-read-ahead",  # librdkafka wants one; it does not join
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # by default it would go on at the end, and records would be lost
    "isolation.level": "read_uncommitted",  # as Spark's reader
    "fetch.wait.max.ms": 10,  # else the last fetch of each partition waits half a second
}

Rows = dict[str, list[bytes]]
"""Operator key -> its packed rows."""
Pack = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class ReadAhead:
    """A thread that reads partitions of a topic from their starts, until it has read all of them or the block ends."""

    def __init__(self, client: Mapping[str, Any], topic: str, partitions: Sequence[int], pack: Pack) -> None:
        self._client, self._topic, self._partitions, self._pack = {**client, **_READER}, topic, partitions, pack
        self._stop = threading.Event()
        self._next: dict[int, int] = {}
        self._rows: Rows = defaultdict(list)
        self._count = 0
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)

    def __enter__(self) -> Self:
        if self._partitions:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._partitions:
            self._thread.join()

    def keep(self, checkpoint: Path, routing: Routing) -> None:
        """Keep in the checkpoint what was read, with a file for each lane; nothing is kept after an error.

        The next offsets are written last: without them, the other files may be incomplete.
        """
        if not self._next:
            return
        lane_of, folder = routing.lane_of_keys(), checkpoint / FOLDER
        lanes: dict[str, Rows] = {lane: {} for lane in routing.lanes}
        for key, payloads in self._rows.items():
            lanes[lane_of[key]][key] = payloads
        folder.mkdir(parents=True, exist_ok=True)
        for lane, rows in lanes.items():
            with replaced(folder / lane) as out:
                out.write(marshal.dumps(rows, 2))
        write_atomically(folder / _NEXT_FILE, json.dumps({str(number): at for number, at in self._next.items()}))
        log.info("read a part of the offsets topic while Spark started", records=self._count)

    def _run(self) -> None:
        """Read and pack. If that fails, Spark reads everything itself."""
        try:
            for batch in self._pack(self._batches()):
                for key, payload in zip(batch["key"].to_pylist(), batch["payload"].to_pylist(), strict=True):
                    self._rows[key].append(payload)
        except Exception as error:  # noqa: BLE001 # whatever it is, Spark goes on without this
            log.warning("the offsets topic was not read while Spark started: the first batch takes longer", why=error)
            self._next = {}

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the topic's rows, partition by partition."""
        from confluent_kafka import Consumer  # noqa: PLC0415 # takes 0.1 s, and only a fresh checkpoint needs it

        consumer = Consumer(self._client, logger=_silent())
        try:
            for at in range(0, len(self._partitions), PARTITIONS_AT_ONCE):
                for table in self._tables(consumer, self._partitions[at : at + PARTITIONS_AT_ONCE]):
                    self._count += table.num_rows
                    self._next |= _ends(table)
                    yield from table.to_batches()
                    if self._stop.is_set() or self._count >= MAX_ROWS:
                        return
        finally:
            consumer.close()

    def _tables(self, consumer: "Consumer", partitions: Iterable[int]) -> Iterator[pa.Table]:
        """Read some partitions to their ends; yield their rows, sorted by partition, in pieces of limited size."""
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition  # noqa: PLC0415 # as above

        consumer.assign([TopicPartition(self._topic, partition, OFFSET_BEGINNING) for partition in partitions])
        unread, batches = set(partitions), list[pa.RecordBatch]()
        while unread and not self._stop.is_set():
            messages = consumer.consume(MESSAGES_AT_ONCE, WAIT_S)
            rows = [message for message in messages if message.error() is None]
            if len(rows) < len(messages):
                unread -= _ended(messages)
            batches.append(_batch(self._topic, rows))
            if sum(batch.nbytes for batch in batches) >= PIECE_BYTES:
                yield _by_partition(batches)
                batches.clear()
        if batches:
            yield _by_partition(batches)


def next_offsets(checkpoint: Path) -> dict[str, int]:
    """Return the offsets at which Spark begins, by partition; none if nothing was kept."""
    try:
        offsets: dict[str, int] = json.loads((checkpoint / FOLDER / _NEXT_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return offsets


def rows_of(folder: Path, lane: str) -> Rows:
    """Return what was kept for a lane."""
    rows: Rows = marshal.loads((folder / lane).read_bytes())  # noqa: S302 # written by `ReadAhead` in this very job
    return rows


def discard(checkpoint: Path) -> None:
    """Delete what was kept."""
    shutil.rmtree(checkpoint / FOLDER, ignore_errors=True)


def _ended(messages: Iterable["Message"]) -> set[int]:
    """Return the partitions whose end was reached; raise any other error."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 # as above

    ended = set()
    for message in messages:
        if (error := message.error()) is not None:
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 # its name
                raise KafkaException(error)
            ended.add(message.partition())
    return ended


def _batch(topic: str, messages: list["Message"]) -> pa.RecordBatch:
    """Return messages in the form of Spark's rows."""
    return pa.record_batch(
        {
            "topic": pa.repeat(topic, len(messages)),
            "partition": pa.array([message.partition() for message in messages], pa.int32()),
            "offset": pa.array([message.offset() for message in messages], pa.int64()),
            "timestamp_ms": pa.array([message.timestamp()[1] for message in messages], pa.int64()),
            "key": pa.array([message.key() for message in messages], pa.binary()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
        }
    )


def _by_partition(batches: list[pa.RecordBatch]) -> pa.Table:
    """Join batches; the rows of each partition stay in their order."""
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.take(np.argsort(table["partition"].to_numpy(), kind="stable"))


def _ends(table: pa.Table) -> dict[int, int]:
    """Return the offset after the last row of each partition."""
    partitions, offsets = table["partition"].to_numpy(), table["offset"].to_numpy()
    lasts = np.flatnonzero(np.diff(partitions, append=-1))
    return dict(zip(partitions[lasts].tolist(), (offsets[lasts] + 1).tolist(), strict=True))


def _silent() -> logging.Logger:
    """Return a logger for librdkafka that writes nothing: other clients of the job report what is wrong."""
    silent = logging.getLogger("librdkafka")
    silent.propagate = False
    silent.addHandler(logging.NullHandler())
    return silent

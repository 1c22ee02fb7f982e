"""One Kafka reader over all topics, and the stage that turns its raw rows into packed events.

There is one reader, because a source added later would break the checkpoint. It uses `assign`, because `subscribe`
would join a consumer group and so write to the very topic that is read. The parser is the core's own, the same that
`replay` runs, in an Arrow stage: this is cheaper than Spark's JSON functions in the JVM, and there is one parser, not
two (decision 0002). A second source adds one empty row per batch, the trigger row: because of it there is always a
batch, and every shard is called, even if Kafka has no new records (decision 0009).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from coordinator_model.brokers.ticks import HOLE_MS, TICK_EVERY_MS
from coordinator_model.decode.cluster_row import ClusterRow, read_cluster_row
from coordinator_model.decode.parse import (
    OFFSETS,
    TELEMETRY,
    RejectedRow,
    SourceRow,
    failed,
    mute_line,
    parse_row,
)
from coordinator_model.decode.telemetry.fields import BadField
from coordinator_model.decode.telemetry.pushed_metrics import MetricsReader, unread
from coordinator_model.decode.telemetry.shipped import Zone, is_coordinator_line, utc
from coordinator_model.events import Event
from streaming.config.kafka import READER_GROUP_PREFIX
from streaming.run.cluster_file import ClusterFile
from streaming.run.commit_columns import CommitColumns, DecodedCommits
from streaming.run.heartbeat_columns import NOT_FOUND, HeartbeatColumns, KnownHeartbeats, ScannedRows
from streaming.run.live_keys import read_live_keys
from streaming.run.packing import Packer, Routing
from streaming.run.partition_rows import Indexes, PartitionRows, partition_rows_of
from streaming.run.worker import freeze_garbage, without_collections

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streaming.config.settings import Kafka
    from streaming.run.topics import Assigned, Offsets

log = structlog.get_logger(__name__)

PACKED_SCHEMA = "lane string, key string, payload binary"
_PACKED = pa.schema([("lane", pa.string()), ("key", pa.string()), ("payload", pa.binary())])
_known: dict[Routing, HeartbeatColumns] = {}  # of this worker, for all its batches
JOINED_BYTES = 16 * 1024 * 1024  # how many bytes of rows are collected and then packed together
FLUSH_EVENTS = 100_000  # bounds a worker's memory while it catches up
TRIGGER_TOPIC = ""  # of the row that only triggers a call for each shard; no Kafka topic has this name
ROWS_PER_BATCH = 2_000_000  # bounds a batch while it catches up
_READER = {
    "groupIdPrefix": READER_GROUP_PREFIX,  # Spark's readers do not join a group, but ask for the offsets of one
    "failOnDataLoss": "false",  # retention and compaction make gaps; the core treats them as lost coverage
    "maxOffsetsPerTrigger": str(ROWS_PER_BATCH),
    # Spark distributes ranges of offsets over tasks by their number, not by their size. If a busy partition is split
    # into several ranges, all tasks get about the same number of lines. But each range costs milliseconds. So in a full
    # batch of the offsets topic each of its fifty partitions is one range.
    "maxRecordsPerPartition": str(ROWS_PER_BATCH // 50),
    "kafka.fetch.max.wait.ms": "1",  # otherwise each fetch at the end of a partition waits half a second
    "kafka.max.partition.fetch.bytes": str(2 * 1024 * 1024),
    # Spark asks for a partition's first and last offset after each poll, which makes the client drop the other records
    # it has fetched: with the default of 500 records per poll it fetches most records again and again.
    "kafka.max.poll.records": "10000",
}


def source_rows(spark: "SparkSession", kafka: "Kafka", assigned: "Assigned", starts: "Offsets") -> "DataFrame":
    """Read all topics, and the trigger row, as one stream of raw rows."""
    # The trigger row comes last: neighboring partitions share a task, and so eight ranges of lines are still split
    # four and four.
    rows = kafka_rows(spark, kafka, assigned, starts).unionAll(_trigger_rows(spark))
    # One task per Kafka partition would mean fifty tasks for fifty records. One per core is balanced enough, because
    # its share consists of small ranges.
    return rows.coalesce(spark.sparkContext.defaultParallelism)


def _trigger_rows(spark: "SparkSession") -> "DataFrame":
    """Make one row per batch, in the format of Kafka's rows, so that there always is a batch."""
    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="1", numPartitions="1").load()
    nothing = ("0 AS partition", "value AS offset", "0L AS timestamp_ms", "X'' AS key", "X'' AS value")
    return rows.selectExpr(f"'{TRIGGER_TOPIC}' AS topic", *nothing)


def kafka_rows(spark: "SparkSession", kafka: "Kafka", assigned: "Assigned", starts: "Offsets") -> "DataFrame":
    """Read all topics as one stream of raw rows."""
    rows = (
        spark.readStream.format("kafka")
        .options(**kafka.spark_options(), **_READER)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .load()
    )
    return rows.selectExpr("topic", "partition", "offset", "unix_millis(timestamp) AS timestamp_ms", "key", "value")


@dataclass(frozen=True)
class PackRows:
    """The function that `mapInArrow` calls with a task's raw rows; it yields (lane, operator key, packed events)."""

    routing: Routing
    offsets_topic: str
    live_keys_file: Path
    other_topics: Mapping[str, str] = field(default_factory=dict)
    """Topics that hold neither records nor the request log, each with the source of its rows."""
    cluster_file: Path | None = None
    """The cluster metadata, written by the driver."""
    nonce: str | None = None
    """The nonce of the monitor's own probes, as in `Packer`."""
    zone: Zone = utc
    """The time zone of the dates in lines that were shipped from brokers' files."""
    read_metrics: MetricsReader = unread
    """Reads the metrics that clients push."""
    live_from_ms: int = 0
    """From when on offset commits are signs of life; of older ones only the newest of a partition is used."""
    history_from_ms: int = 0
    """From when on every group record is used; of older ones only the newest of a key is."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield packed rows at the end of the task, or sooner if there are very many."""
        freeze_garbage()
        live_keys = read_live_keys(self.live_keys_file)
        packer = Packer(
            self.routing, self.routing.all_keys() if live_keys is None else tuple(live_keys), nonce=self.nonce
        )
        heartbeats = _known.setdefault(self.routing, HeartbeatColumns(self.routing))
        commits = CommitColumns(self.routing, self.live_from_ms, self.history_from_ms)
        records: list[pa.RecordBatch] = []
        pieces: dict[tuple[str, int], list[ScannedRows]] = {}
        next_offsets: dict[tuple[str, int], int] = {}
        read_bytes = 0
        for batch in batches:
            for run in partition_rows_of(self._without_records(batch, records)):
                if run.topic == TRIGGER_TOPIC:
                    packer.include_all_keys()
                    packer.cluster = _read_cluster(self.cluster_file)
                elif (source := self.other_topics.get(run.topic)) is not None:
                    _pack_rows(run, source, packer, self)
                else:
                    pieces.setdefault((run.topic, run.partition), []).append(_find(run, heartbeats, self.zone))
            if (read_bytes := read_bytes + batch.nbytes) >= JOINED_BYTES:
                _pack_pieces(pieces, packer, heartbeats, next_offsets, self)
                read_bytes = _pack_records(records, packer, commits, last=False)
            if packer.size >= FLUSH_EVENTS:
                yield self._packed(packer)
        _pack_pieces(pieces, packer, heartbeats, next_offsets, self)
        _pack_records(records, packer, commits, last=True)
        if packer:
            yield self._packed(packer)

    def _without_records(self, batch: pa.RecordBatch, records: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Move the rows of the offsets topic to ``records``, which are decoded together; return the other rows."""
        is_record = pc.equal(batch.column("topic"), self.offsets_topic)
        if batch.num_rows and pc.all(is_record).as_py():  # as in nearly all batches of a first start: nothing is copied
            records.append(batch)
            return batch.slice(0, 0)
        if pc.any(is_record).as_py():
            records.append(batch.filter(is_record))
            return batch.filter(pc.invert(is_record))
        return batch

    def _packed(self, packer: Packer) -> pa.RecordBatch:
        rows, lane_of = list(packer.rows()), self.routing.lane_of_keys()
        keys, payloads = zip(*rows, strict=True) if rows else ((), ())  # none: brokers wrote, no shard has a group
        columns = ([lane_of.get(key, key) for key in keys], keys, payloads)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _PACKED.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_PACKED)


def _read_cluster(file: Path | None) -> ClusterRow | None:
    text = None if file is None else ClusterFile(file).read()
    try:
        return None if text is None else read_cluster_row(text)
    except BadField as bad:
        log.warning("the cluster metadata cannot be read", file=str(file), error=str(bad))
        return None


@without_collections()
def _pack_records(records: list[pa.RecordBatch], packer: Packer, commits: CommitColumns, *, last: bool) -> int:
    """Pack rows of the offsets topic, regular commits by columns, all else row by row.

    Unless these are the `last` rows of the task, those of the newest partition stay in `records`: more of them may
    come, and of old records only the newest of a key is used. Return how many bytes stay.
    """
    if not records:
        return 0
    rows = pa.concat_batches(records)
    runs = list(partition_rows_of(rows))
    records.clear()
    if not last and len(runs) > 1:
        records.append(rows.slice(rows.num_rows - len(runs.pop().offsets)))
    found = _decode(runs, commits)
    for key, block in found.blocks:
        packer.add_commits(key, block)
    for kind in found.counts:
        packer.decoded.add_rows(*kind)
    for run, indexes in found.others:
        for row in run.rows(OFFSETS, indexes):
            events = parse_row(row)
            packer.decoded.add(row, events)
            _add(packer, row, events)
    return sum(batch.nbytes for batch in records)


def _decode(runs: list[PartitionRows], commits: CommitColumns) -> DecodedCommits:
    """Decode commits by columns; if that fails, all rows are read one by one, and the bad row shows the reason."""
    try:
        return commits.decode(runs)
    except Exception:
        log.exception("offset commits could not be read by columns", rows=sum(len(run.offsets) for run in runs))
        return DecodedCommits([], [], [(run, np.arange(len(run.offsets))) for run in runs])


def _pack_rows(run: PartitionRows, source: str, packer: Packer, readers: PackRows) -> None:
    """Pack a run row by row, of a source that is not read by columns."""
    for row in run.rows(source):
        _add(packer, row, parse_row(row, readers.zone, readers.read_metrics))


def _find(run: PartitionRows, heartbeats: HeartbeatColumns, zone: Zone) -> ScannedRows:
    """Find the known heartbeats of a run; if that fails, all rows are read one by one, and the bad row shows why."""
    try:
        run = run.bare(zone)
        return heartbeats.find(run)
    except Exception:
        log.exception("heartbeats could not be looked up by columns", topic=run.topic, partition=run.partition)
        return ScannedRows(run, NOT_FOUND)


def _take(pieces: list[ScannedRows], heartbeats: HeartbeatColumns) -> KnownHeartbeats:
    """Join what was found in the pieces of a partition; if that fails, all rows are read one by one."""
    try:
        return heartbeats.take(pieces)
    except Exception:
        log.exception("heartbeats could not be taken by columns", topic=pieces[0].run.topic)
        return heartbeats.take([ScannedRows(piece.run, NOT_FOUND) for piece in pieces])


def _pack_pieces(
    pieces: dict[tuple[str, int], list[ScannedRows]],
    packer: Packer,
    heartbeats: HeartbeatColumns,
    next_offsets: dict[tuple[str, int], int],
    readers: PackRows,
) -> None:
    """Pack the known heartbeats and parse all other lines; then clear `pieces`."""
    for found in [_take(listed, heartbeats) for listed in pieces.values()]:  # all of them before more is learned
        _pack_lines(found, packer, heartbeats, found.run.after_gaps(next_offsets), readers)
    pieces.clear()


def _pack_lines(
    found: KnownHeartbeats, packer: Packer, heartbeats: HeartbeatColumns, lost: Any, readers: PackRows
) -> None:
    """Pack the lines of one partition; `lost` marks those after missing lines, which the next event reports."""
    run = found.run
    packer.read(run.topic, run.partition, int(run.offsets[0]), int(run.offsets[-1]))
    for key, block in found.blocks:
        packer.add_heartbeats(key, block)
    others = np.delete(np.arange(len(lost)), found.indexes)
    for index, row in zip(others.tolist(), run.rows(TELEMETRY, others), strict=True):
        events = parse_row(row, readers.zone, readers.read_metrics)
        if _add(packer, row, events, lost=bool(lost[index])) and not is_coordinator_line(row.value or b""):
            heartbeats.learn(row, events)  # type: ignore[arg-type] # nothing is added of a row that is rejected
        else:
            lost[index + 1 : index + 2] |= lost[index]
            if (tick := mute_line(row)) is not None:
                packer.ticker.observe(tick, mute=True)
    for broker, indexes in found.by_broker():
        rising = indexes[np.argsort(run.instants_ms[indexes], kind="stable")]
        for at in _telling(run.instants_ms[rising]):
            packer.observe(broker, *run.place(rising[at]))
    for index, broker in found.lost(lost):
        packer.observe(broker, *run.place(index), lost=True)


def _telling(instants_ms: Indexes) -> list[int]:
    """Return the positions in rising instants of possible ticks: two a second, both ends of holes, and the last."""
    before_holes = np.flatnonzero(np.diff(instants_ms) >= HOLE_MS)
    chosen, at = {len(instants_ms) - 1, *before_holes.tolist(), *(before_holes + 1).tolist()}, 0
    while at < len(instants_ms):
        chosen.add(at)
        at = int(np.searchsorted(instants_ms, instants_ms[at] + TICK_EVERY_MS))
    return sorted(chosen)


def _add(packer: Packer, row: SourceRow, events: list[Event] | RejectedRow, *, lost: bool = False) -> bool:
    """Pack a row's events; return False if there are none or the row is rejected."""
    if isinstance(events, RejectedRow):
        packer.reject(events)
        return False
    try:
        for number, event in enumerate(events):
            packer.add(event, lost=lost and number == 0)
    except Exception as error:  # noqa: BLE001 # only this row is rejected
        packer.reject(failed(row, error))
        return False
    return bool(events)

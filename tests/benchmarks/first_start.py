"""What the Python workers do at a first start, without Spark and a broker: `python -m tests.benchmarks first-start`.

The records of some partitions of `cold`'s offsets topic go through the source stage and the stateful stage, in one
process. Processor time; the least of some starts, because other work on the machine only adds to it.
"""

import gc
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa

from coordinator_model.shard.shard import ShardSettings
from streaming.config.settings import Settings
from streaming.run.operator import Operator
from streaming.run.packing import Routing
from streaming.run.source import PackRows
from tests.benchmarks import cold, synthetic
from tests.benchmarks.line import SCHEMA
from tests.support.memory_cell import MemoryCell

SHARE = 5
"""One in so many partitions of the offsets topic."""
STARTS = 5
ROWS = 2_000  # of an Arrow batch, as in `session`
LANE = "lane"
TOPIC = "offsets"


def main(records: int, groups: int) -> None:
    """Print a row per stage."""
    now_ms = int(time.time() * 1000)
    batches = list(arrow_batches(records, groups, now_ms - cold.HOUR_MS))
    rows = sum(batch.num_rows for batch in batches)
    source_s, stateful_s = zip(*(start(batches, now_ms) for _ in range(STARTS)), strict=True)
    print(f"| {rows:,} records of {records:,}: processor time, least of {STARTS} starts | µs a record |")
    for stage, spent_s in (("source stage", source_s), ("stateful stage", stateful_s)):
        print(f"| {stage} | {min(spent_s) * 1e6 / rows:.2f} |")


def start(batches: list[pa.RecordBatch], now_ms: int) -> tuple[float, float]:
    """Play a first start; return the processor time of the source stage and of the stateful stage."""
    routing = Routing(cold.SHARDS, lanes=(LANE,))
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        pack = PackRows(
            routing,
            TOPIC,
            Path(folder) / "live-keys.json",
            live_from_ms=now_ms,
            history_from_ms=now_ms - Settings().history_ms(),
        )
        begun_s = time.process_time()
        packed = list(pack(iter(batches)))
        source_s = time.process_time() - begun_s
    gc.collect()
    operator = Operator(ShardSettings("bench", cold.SHARDS, now_ms))
    begun_s = time.process_time()
    for _ in operator((LANE,), [batch.to_pandas() for batch in packed], MemoryCell(wall_ms=now_ms)):
        pass
    return source_s, time.process_time() - begun_s


def arrow_batches(records: int, groups: int, at_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of some partitions, one partition after the other, as Spark passes them to a worker."""
    chosen = range(0, cold.SHARDS, SHARE)
    partitions: dict[int, list[tuple[bytes, bytes]]] = {shard: [] for shard in chosen}
    for shard, *record in cold.history(records, groups, synthetic.PARTITIONS, at_ms):
        if shard in partitions:
            partitions[shard].append(tuple(record))
    columns = [
        (TOPIC, shard, offset, at_ms, key, value)
        for shard, listed in partitions.items()
        for offset, (key, value) in zip(count(), listed, strict=False)
    ]
    for begin in range(0, len(columns), ROWS):
        arrays = zip(zip(*columns[begin : begin + ROWS], strict=True), SCHEMA.values(), strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(column, kind) for column, kind in arrays], names=list(SCHEMA))

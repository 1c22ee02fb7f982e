"""Raw rows of one partition as Arrow and numpy columns, the input of the source stage."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_model.decode.parse import bare_or_as_it_is
from coordinator_model.decode.source_row import TELEMETRY, SourceRow
from coordinator_model.decode.telemetry.shipped import COORDINATOR_PREFIXES, PREFIX, Zone

Indexes = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class PartitionRows(NamedTuple):
    """Rows of one partition, in offset order."""

    topic: str
    partition: int
    offsets: Indexes
    instants_ms: Indexes
    keys: pa.BinaryArray | pa.ChunkedArray
    values: pa.BinaryArray | pa.ChunkedArray

    @classmethod
    def joined(cls, runs: "Sequence[PartitionRows]") -> "PartitionRows":
        """Join runs of one partition, given in offset order; only numbers are copied."""
        first = runs[0]
        return cls(
            first.topic,
            first.partition,
            np.concatenate([run.offsets for run in runs]),
            np.concatenate([run.instants_ms for run in runs]),
            pa.chunked_array([run.keys for run in runs]),
            pa.chunked_array([run.values for run in runs]),
        )

    def rows(self, source: str, indexes: Indexes | None = None) -> Iterator[SourceRow]:
        """Yield all rows, or some."""
        columns = (self.offsets, self.instants_ms, self.keys, self.values)
        chosen = columns if indexes is None else [column.take(indexes) for column in columns]
        lists = (column.tolist() if isinstance(column, np.ndarray) else column.to_pylist() for column in chosen)
        return map(SourceRow, repeat(source), repeat(self.topic), repeat(self.partition), *lists)

    def bare(self, zone: Zone) -> "PartitionRows":
        """Return the run with shipped lines unwrapped, at their own instants; nearly always no line is wrapped."""
        is_bare = pc.starts_with(self.values, PREFIX)
        for prefix in COORDINATOR_PREFIXES:
            is_bare = pc.or_(is_bare, pc.starts_with(self.values, prefix))
        if pc.all(pc.fill_null(is_bare, True)).as_py():
            return self
        rows = [bare_or_as_it_is(row, zone) for row in self.rows(TELEMETRY)]
        instants_ms = np.array([row.timestamp_ms for row in rows], np.int64)
        return self._replace(instants_ms=instants_ms, values=pa.array([row.value for row in rows], pa.binary()))

    def text(self) -> tuple[bytes, list[int]]:
        """Return all values as one text, the start of each, and the end of the last."""
        _, stops, data = self.values.buffers()
        places = np.frombuffer(stops, np.int32)[self.values.offset :][: len(self.values) + 1]
        begin, end = int(places[0]), int(places[-1])
        return (b"" if data is None else data[begin:end].to_pybytes()), (places - begin).tolist()

    def place(self, index: int) -> tuple[int, tuple[str, int, int]]:
        """Return a row's instant, and its topic, partition and offset."""
        return int(self.instants_ms[index]), (self.topic, self.partition, int(self.offsets[index]))

    def after_gaps(self, next_offsets: dict[tuple[str, int], int]) -> Flags:
        """Mark the rows before which offsets are missing; `next_offsets` carries what is expected from run to run."""
        place = (self.topic, self.partition)
        expected = np.append(next_offsets.get(place, self.offsets[0]), self.offsets[:-1] + 1)
        next_offsets[place] = int(self.offsets[-1]) + 1
        lost: Flags = expected != self.offsets
        return lost


def partition_rows_of(batch: pa.RecordBatch) -> Iterator[PartitionRows]:
    """Split an Arrow batch (topic, partition, offset, timestamp_ms, key, value) where the partition changes."""
    if not batch.num_rows:
        return
    topics = batch.column("topic").dictionary_encode()
    columns = [np.asarray(pc.fill_null(batch.column(name), -1)) for name in ("partition", "offset", "timestamp_ms")]
    partitions, offsets, instants_ms = columns
    changed = (np.diff(topics.indices, prepend=-1) != 0) | (np.diff(partitions, prepend=-1) != 0)
    starts = np.flatnonzero(changed).tolist()
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        span = slice(start, end)
        keys, values = (batch.column(name).slice(start, end - start) for name in ("key", "value"))
        topic, partition = topics[start].as_py(), int(partitions[start])
        yield PartitionRows(topic, partition, offsets[span], instants_ms[span], keys, values)

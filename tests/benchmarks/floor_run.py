"""The cost of Spark alone: the job of `watched_run` with its stages emptied: `python -m tests.benchmarks.floor_run`.

Source, exchange, keys and action are the same, but nothing is parsed, remembered or stored, the state is empty, and
Spark reads everything itself.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

import pandas as pd
import pyarrow as pa

from streaming.run import job
from streaming.run.operator import Operator
from streaming.run.read_ahead import ReadAhead
from streaming.run.sink import Sink
from streaming.run.source import _PACKED, PackRows
from streaming.run.worker import freeze_garbage
from tests.benchmarks import watched_run


class NothingAhead(ReadAhead):
    def __init__(self, client: Any, topic: str, _: Any, pack: Any) -> None:
        super().__init__(client, topic, (), pack)


class EmptyPack(PackRows):
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_garbage()
        rows = sum(batch.num_rows for batch in batches)
        if rows:
            keys, lane_of = self.routing.all_keys(), self.routing.lane_of_keys()
            columns = [pa.array(map(lane_of.get, keys)), pa.array(keys), pa.array([b"0"] * len(keys))]
            yield pa.RecordBatch.from_arrays(columns, schema=_PACKED)


class EmptyOperator(Operator):
    def __call__(self, key: tuple[str], rows: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        for _ in rows:
            pass
        state.update((1, 1, "[]", ""))
        yield pd.DataFrame({"key": [key[0]], "outputs": ["[]"]})


class EmptySink(Sink):
    def __call__(self, frame: Any, batch_id: int) -> None:
        frame.collect()


def main() -> None:
    with (
        mock.patch.object(job, "ReadAhead", NothingAhead),
        mock.patch.object(job, "PackRows", EmptyPack),
        mock.patch.object(job, "Operator", EmptyOperator),
        mock.patch.object(job, "Sink", EmptySink),
    ):
        watched_run.main()


if __name__ == "__main__":
    main()

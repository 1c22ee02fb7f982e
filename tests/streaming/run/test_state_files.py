"""What Spark writes of the state, with our settings: snapshots, without which each change is kept for ever."""

import time

import pandas as pd
import pytest
from pyspark.sql.streaming.state import GroupStateTimeout

from streaming.config.settings import Run
from streaming.run.session import Spark

pytestmark = pytest.mark.spark
PATIENCE_S = 120


def test_state_is_put_into_snapshots_and_old_changes_are_deleted(tmp_path):
    """With `RawLocalFileSystem` neither ever was: Spark's maintenance failed, and told it as a warning."""

    def count(key, _rows, state):
        state.update(((state.get[0] if state.exists else 0) + 1,))
        yield pd.DataFrame({"key": [key[0]]})

    session = Spark(Run(master="local[2]"), 1, {"spark.sql.streaming.stateStore.maintenanceInterval": "1s"}).session
    rows = session.readStream.format("rate-micro-batch").options(rowsPerBatch="1", numPartitions="1").load()
    counted = rows.selectExpr("'a' AS key").groupBy("key")
    query = (
        counted.applyInPandasWithState(count, "key string", "n int", "append", GroupStateTimeout.NoTimeout)
        .writeStream.foreachBatch(lambda frame, _: frame.collect())
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="0 seconds")
        .start()
    )
    state, give_up = tmp_path / "state" / "0" / "0", time.monotonic() + PATIENCE_S
    try:
        while (state / "1.changelog").exists() or not list(state.glob("*.zip")):
            assert query.exception() is None
            assert time.monotonic() < give_up, sorted(file.name for file in state.glob("*"))
            time.sleep(0.2)
    finally:
        query.stop()
        session.stop()
    assert not list(tmp_path.rglob(".*.crc"))

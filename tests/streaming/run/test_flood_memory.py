"""What a worker keeps under a flood: requests and reports under ids that never come again leave nothing behind."""

import gc
import json
import tracemalloc

import pandas as pd
import pyarrow as pa
import pytest

from coordinator_model.decode.source_row import SourceRow
from coordinator_model.shard import sharding
from coordinator_model.shard.shard import ShardSettings
from streaming.run import source
from streaming.run.operator import Operator
from streaming.run.packing import Routing
from streaming.run.source import TRIGGER_TOPIC, PackRows
from tests.support.memory_cell import MemoryCell
from tests.support.request_log import line
from tests.support.story import T0, stable

BATCH_MS = 800
LINES = 200  # of strangers, a batch
WARM_UP, MEASURED = 5, 25  # batches
LONG = "x" * 300  # an id that no cache keeps
REPORTS = "reports"
NAMES = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
TYPES = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())


class Worker:
    """The source stage and the stateful stage, batch after batch, as one worker of Spark runs them."""

    def __init__(self, folder):
        routing = Routing(1, lanes=("0",))
        self._pack = PackRows(routing, "records", folder / "live-keys", {REPORTS: REPORTS})
        self._operator = Operator(ShardSettings("c", 1, T0))
        self.cell = MemoryCell()

    def batch(self, number, rows):
        rows = [*rows, SourceRow("", TRIGGER_TOPIC, 0, number, 0, b"", b"")]
        columns = [
            pa.array([getattr(row, name) for row in rows], kind) for name, kind in zip(NAMES, TYPES, strict=True)
        ]
        packed = pd.concat(
            [rows.to_pandas() for rows in self._pack(iter([pa.RecordBatch.from_arrays(columns, NAMES)]))]
        )
        self.cell.wall_ms = T0 + (number + 1) * BATCH_MS
        told = [text for frame in self._operator(("0",), iter([packed]), self.cell) for text in frame["outputs"]]
        return [output for text in told for output in json.loads(text)]

    def state_bytes(self):
        return sum(map(len, self.cell.get[2:]))


def live_rows(number):
    """What became of a group of two in a batch: one of them dies at last."""
    story = stable("m1", "m2").beats("m1", 1_000, 60_000).beats("m2", 1_000, 12_000)
    rows = story.source_rows((WARM_UP + MEASURED) * BATCH_MS)
    start_ms = T0 + number * BATCH_MS
    kept = [row for row in rows if start_ms <= row.timestamp_ms < start_ms + BATCH_MS]
    return [row._replace(topic="records" if row.source == "offsets" else "lines-of-a") for row in kept]


def strangers_rows(number):
    for n in range(number * LINES, (number + 1) * LINES):
        at_ms, reports = T0 + n * BATCH_MS // LINES, n // 5
        group, name = "orders" if n // 5 % 2 else f"{n}-{LONG}", f"{n}-{LONG}"
        topic, offset = (REPORTS, reports) if n % 5 == 4 else ("lines-of-b", n - reports)
        yield SourceRow("", topic, 0, offset, at_ms, b"broker-1", strange_line(n % 5, group, name).encode())


def strange_line(kind, group, name):
    join = {"groupId": group, "sessionTimeoutMs": 6_000, "rebalanceTimeoutMs": 6_000, "memberId": "", "protocols": []}
    beat = {"groupId": group, "memberId": name, "generationId": 1}
    error, refused = {"errorCode": 25}, {"errorCode": (26, 79)[kind % 2], "memberId": name}
    if kind == 4:
        return name
    if kind == 3:
        return line("LEAVE_GROUP", {"groupId": group, "memberId": name}, error, client=name)
    return line("HEARTBEAT", beat, error) if kind == 2 else line("JOIN_GROUP", join, refused, client=name)


@pytest.fixture
def traced(monkeypatch):
    monkeypatch.setattr(source, "_known", {})
    tracemalloc.start()
    yield
    tracemalloc.stop()


def kept_bytes():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_a_flood_leaves_nothing_behind_and_hides_no_death(tmp_path, traced):
    worker, dead = Worker(tmp_path), set()
    for number in range(WARM_UP + MEASURED):
        if number == WARM_UP:
            state_bytes, before_bytes = worker.state_bytes(), kept_bytes()
        said = worker.batch(number, [*live_rows(number), *strangers_rows(number)])
        findings = [finding for output in said for finding in output.get("findings", ())]
        dead |= {finding["member_id"] for finding in findings if finding["rule"] == "session-expired"}
        del said, findings
    assert worker.state_bytes() - state_bytes < LINES * MEASURED
    assert kept_bytes() - before_bytes < LINES * MEASURED * 10
    assert dead == {"m2"}


def test_groups_of_strangers_are_remembered_up_to_a_bound():
    """Which shard a short id belongs to is remembered; a long id's is not."""
    before = sharding._remembered.cache_info()
    sharding.shard_of(LONG, 50)
    assert sharding._remembered.cache_info() == before
    assert before.maxsize * sharding.REMEMBERED_CHARACTERS <= 4 * 1024**2

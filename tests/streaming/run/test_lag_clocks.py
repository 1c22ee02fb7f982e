"""What the driver makes of time for lag: brokers' clocks, batches that read all, and a checkpoint that is damaged."""

import json
from types import SimpleNamespace

import pytest

from streaming.run.job import LAG_FOLDER, Job
from streaming.run.lag.broker_clocks import BrokerClocks
from streaming.run.lag.group_lags import GroupLags
from streaming.run.layout import Layout
from streaming.run.spark_offsets import read_all_from_ms
from tests.streaming.run.lag_story import T0


def heard(progress_ms, broker="broker-1"):
    return {"kind": "progress", "brokers": {broker: {"progress_ms": progress_ms}}}


def batches(clocks, *outputs):
    for output in outputs:
        clocks.take(output)
        clocks.end_batch()
    return clocks


@pytest.mark.parametrize(
    ("late_ms", "behind_ms"),
    [(0, 0), (800, 0), (3_000, 0), (4_000, 4_000), (-2_500, -2_500), (-60_000, 0), (60_000, 0)],
)
def test_how_far_clocks_are_apart_is_the_least_that_lines_are_late(late_ms, behind_ms):
    clocks = BrokerClocks(lambda: T0)
    assert batches(clocks, heard(T0 - late_ms), heard(T0 - late_ms - 900)).behind_ms() == behind_ms


def test_a_records_instant_tells_of_a_clock_that_is_ahead_where_there_are_no_lines():
    clocks = BrokerClocks(lambda: T0)
    clocks.saw_record(T0 + 5_000)
    clocks.end_batch()
    clocks.end_batch()  # a batch without any says nothing
    assert clocks.behind_ms() == -5_000


def test_a_broker_that_was_never_heard_is_not_silent():
    clocks = batches(BrokerClocks(lambda: T0), heard(T0))
    assert [clocks.is_silent("broker-1", at_ms) for at_ms in (T0 + 15_000, T0 + 15_001)] == [False, True]
    assert not clocks.is_silent("broker-2", T0 + 60_000)


def progress_of(end, latest, as_text=json.dumps):
    source = {"endOffset": as_text({"records": {"0": end}}), "latestOffset": as_text({"records": {"0": latest}})}
    ticks = {"endOffset": 7, "latestOffset": None}
    return {"timestamp": "2026-11-25T08:10:27.905Z", "sources": [source, ticks, {"endOffset": None}]}


@pytest.mark.parametrize("as_text", [json.dumps, dict])
def test_a_batch_that_leaves_rows_for_the_next_has_not_read_all(as_text):
    assert read_all_from_ms(progress_of(7, 9, as_text)) is None
    assert read_all_from_ms(progress_of(9, 9, as_text)) == 1_795_594_227_905


def test_what_is_kept_of_commits_and_damaged_begins_a_fresh_checkpoint(tmp_path):
    settings = SimpleNamespace(cluster="default", run=SimpleNamespace(data_folder=tmp_path))
    job = SimpleNamespace(settings=settings, _live_from_ms=lambda: T0)
    layout = Layout("default", "records", 50, "shard", 1, 2, 1, 1)

    def opened():
        checkpoint, lags = Job._open(job, layout, ())
        lags._kept.close()
        return checkpoint

    first = opened()
    assert opened().checkpoint_id == first.checkpoint_id
    with GroupLags("default", first.folder / LAG_FOLDER) as lags:
        lags.apply(0, [], lambda _: None, judge=False)
    (first.folder / LAG_FOLDER / "snapshot").write_bytes(b"nothing that was written")
    second = opened()
    assert second.checkpoint_id != first.checkpoint_id
    assert (second.resumed, second.changes) == (False, ("what was kept of commits: the snapshot is damaged",))
    assert opened().checkpoint_id == second.checkpoint_id

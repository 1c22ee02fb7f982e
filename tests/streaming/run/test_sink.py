"""What the sink does around a batch."""

import gc
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from streaming.config.settings import Settings
from streaming.run.catch_up import CatchUp
from streaming.run.cluster_watch import ClusterWatch
from streaming.run.lag.group_lags import GroupLags
from streaming.run.live_keys import LiveKeys
from streaming.run.sink import Sink
from streaming.run.worker import without_collections
from streaming.store import Store
from streaming.store.lease import Lease
from tests.streaming.run.lag_story import CLUSTER, T0, commits, report, round_of


def failing():
    with without_collections():
        raise ValueError(gc.isenabled())


def test_garbage_is_not_collected_within_a_batch_and_is_after_one_that_failed():
    with pytest.raises(ValueError, match="False"):
        failing()
    assert gc.isenabled()


class Frame:
    """The only row of a batch."""

    def __init__(self, *outputs):
        self._text = json.dumps(outputs)

    def collect(self):
        return [SimpleNamespace(key="0", outputs=self._text)]


def sink_of(store, lags, checkpoint):
    return Sink(
        store,
        Settings(cluster=CLUSTER),
        "c",
        -1,
        LiveKeys(checkpoint / "keys"),
        SimpleNamespace(resolve=lambda _: None),
        ClusterWatch({}, "offsets", "nonce", print),
        Lease(store.engine, CLUSTER),
        lags,
        CatchUp({"records": {"0": 8}}, asked_ms=T0),
        checkpoint,
    )


@pytest.mark.parametrize(("reads_to", "answered_ms", "known"), [(8, T0, 1), (7, T0, 0), (8, T0 + 1, 0)])
def test_lags_come_with_a_first_batch_that_reads_all_that_was_there(tmp_path, reads_to, answered_ms, known):
    """A round that was answered after the ends were asked would show what nobody has read yet as lag."""
    (tmp_path / "offsets").mkdir()
    planned = json.dumps({"records": {"0": reads_to}})
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{planned}\n" + json.dumps({"offset": 1, "timestamp": 0}))
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    lags = GroupLags(CLUSTER, tmp_path / "lag")
    lags.add_first_round(round_of(answered_ms, {"orders": [50]}))
    sink = sink_of(store, lags, tmp_path)
    sink(Frame(commits(("pay", "orders", 0, 40)), report("pay").as_output()), 0)
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM groups").scalar() == 1
        assert connection.exec_driver_sql("SELECT count(*) FROM lags WHERE complete").scalar() == known
    store.close()


def test_the_plan_of_a_batch_is_on_the_disk_before_its_transaction(tmp_path, monkeypatch):
    plan = tmp_path / "offsets" / "0"
    plan.parent.mkdir()
    plan.write_text("v1\n{}\n{}")
    done, fsync = [], os.fsync

    def noted(number):
        done.append(Path(f"/proc/self/fd/{number}").readlink())
        fsync(number)

    monkeypatch.setattr(os, "fsync", noted)
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    monkeypatch.setattr(store, "apply_batch", lambda **_: done.append("transaction"))
    sink_of(store, GroupLags(CLUSTER, tmp_path / "lag"), tmp_path)(Frame(), 0)
    assert done[: done.index("transaction")][:2] == [plan, plan.parent]
    store.close()

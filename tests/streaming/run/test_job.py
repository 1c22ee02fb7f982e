"""Where a fresh checkpoint begins to watch, and what a query that is started again knows from the one before."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from streaming.config.settings import Settings
from streaming.run import job as module
from streaming.run.job import Job
from streaming.run.lag.group_lags import GroupLags
from streaming.run.layout import Checkpoint
from tests.streaming.run.lag_story import T0

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("newest_ms", "judged_ms", "live_from_ms"),
    [
        (T0 - 5_000, None, T0 - 5_000),
        (T0 + 30_000, None, T0 + 30_000),
        (T0 + DAY_MS, None, T0),
        (None, None, T0),
        (T0 - 5_000, T0 - DAY_MS, T0 - DAY_MS),
        (T0 - 5_000, T0 + DAY_MS, T0 - 5_000),
    ],
    ids=[
        "at the newest record",
        "by the brokers' clock, though it is a little ahead",
        "now, if the newest record is misdated: else nothing would be found for a day",
        "now, if there is no record",
        "where the former checkpoint ended",
        "never later than now",
    ],
)
def test_watching_begins(monkeypatch, newest_ms, judged_ms, live_from_ms):
    monkeypatch.setattr(module.time, "time_ns", lambda: T0 * 1_000_000)
    topics = SimpleNamespace(newest_ms=lambda _names: newest_ms)
    job = SimpleNamespace(topics=topics, settings=Settings(), _judged_until_ms=lambda: judged_ms)
    assert Job._live_from_ms(job) == live_from_ms


class Query:
    """A query that reads all there is, or fails."""

    def __init__(self, job):
        self.job, self.fails, self.began_caught_up = job, False, None
        job._start, job._watch, job._ask_first = lambda *_: self, self.watch, lambda *_: None

    def run(self, folder, *, resumed=True):
        """Run once; return whether it counted as caught up from its start."""
        checkpoint = Checkpoint("c", folder, T0, resumed=resumed)
        with GroupLags("default", folder / "lag") as lags:
            self.job._go_on({"records": (0,)}, checkpoint, lags)
        return self.began_caught_up

    def watch(self, _query, sink, catch_up, _assigned, _forget):
        assert sink.caught_up == catch_up.done
        self.began_caught_up = sink.caught_up
        if self.fails:
            raise OSError("no brokers")
        catch_up.done = True
        return False

    def stop(self):
        """Nothing runs."""


@pytest.fixture
def query(monkeypatch):
    for name in ("ClusterWatch", "EndOffsets"):
        monkeypatch.setattr(module, name, lambda *_, **__: nullcontext())
    topics = SimpleNamespace(ends=lambda _: {"records": {"0": 7}})
    store = SimpleNamespace(starts=[])
    store.note_start = store.starts.append
    parts = {"topics": topics, "probe": SimpleNamespace(nonce=""), "store": store, "lease": None, "spark": None}
    called = dict.fromkeys(("on_batch", "reload", "on_catch_up"))
    return Query(Job(Settings(), threading.Event(), **parts, **called, shuffle_partitions=2))


def test_a_query_that_is_started_again_is_caught_up_as_the_one_before_was(query, tmp_path):
    """`/readyz` stays 200: a topic has got more partitions, or a setting was changed."""
    assert [query.run(tmp_path) for _ in range(3)] == [False, True, True]
    assert len(query.job.store.starts) == 1


def test_a_fresh_checkpoint_has_everything_to_read(query, tmp_path):
    assert [query.run(tmp_path / "a"), query.run(tmp_path / "b", resumed=False)] == [False, False]
    assert len(query.job.store.starts) == 2  # so `serve` does not take a long first batch for a stall


def test_after_a_failure_there_may_be_much_to_read(query, tmp_path):
    query.run(tmp_path)
    query.fails = True
    with pytest.raises(OSError, match="no brokers"):
        query.run(tmp_path)
    query.fails = False
    assert not query.run(tmp_path)

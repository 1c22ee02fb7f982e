"""Where a fresh checkpoint begins to watch."""

from types import SimpleNamespace

import pytest

from streaming.config import Settings
from streaming.run import job as module
from streaming.run.job import Job
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

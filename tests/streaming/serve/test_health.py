"""Whether a `run` makes progress, as `serve` sees it."""

import pytest

from streaming.serve.health import Health
from tests.support.outputs import CLUSTER

LIMIT_MS = 15_000


class Run:
    """A row of `runs` as far as `Health` reads it."""

    cluster, checkpoint_id, alive_ms, silent_ms = CLUSTER, "c", 0, 0

    def __init__(self, batch_id):
        self.batch_id = batch_id


@pytest.fixture
def look():
    """Look at the row with a batch id at an instant; return the verdict."""
    now_s = [0.0]
    health = Health(LIMIT_MS, clock=lambda: now_s[0])

    def _look(at_s, batch_id):
        now_s[0] = at_s
        return health.verdict(Run(batch_id))

    return _look


def test_a_row_that_stays_unchanged_for_longer_than_the_limit_is_a_stall(look):
    verdicts = [look(second, 0) for second in range(18)]
    assert verdicts == [None] * 16 + [True] * 2


def test_a_row_that_moves_is_progress(look):
    assert [look(second, second) for second in range(3)] == [None, False, False]


def test_of_a_time_without_the_database_little_counts(look):
    """The first look after a failover of 20 s saw the row of before it, and paged for every cluster."""
    assert [look(0, 0), look(1, 1)] == [None, False]
    assert [look(second, 1) for second in (21, 25, 26)] == [False, False, False]
    assert [look(second, 2) for second in (27, 28)] == [False, False]


def test_a_stall_stays_one_though_the_database_was_away(look):
    """Otherwise its page would be closed and opened again."""
    assert [look(second, 0) for second in (*range(17), 60)][-2:] == [True, True]


def test_a_stall_is_found_however_slow_the_looks_are(look):
    assert [look(second, 0) for second in range(0, 50, 10)] == [None] * 4 + [True]

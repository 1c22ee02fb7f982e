"""Whether a `run` makes progress, as `serve` sees it."""

import pytest

from streaming.serve.health import Health
from tests.support.outputs import CLUSTER

LIMIT_MS = 15_000


class Run:
    """A row of `runs` as far as `Health` reads it."""

    cluster, checkpoint_id, alive_ms, silent_ms = CLUSTER, "c", 0, 0

    def __init__(self, batch_id, caught_up):
        self.batch_id = batch_id
        self.caught_up = caught_up


@pytest.fixture
def look():
    """Look at the row with a batch id at an instant; return the verdict. By default `run` has caught up."""
    now_s = [0.0]
    health = Health(LIMIT_MS, clock=lambda: now_s[0])

    def _look(at_s, batch_id, *, caught_up=True):
        now_s[0] = at_s
        return health.verdict(Run(batch_id, caught_up))

    return _look


def test_a_row_that_stays_unchanged_for_longer_than_the_limit_is_a_stall(look):
    verdicts = [look(second, 0) for second in range(18)]
    assert verdicts == [None] * 16 + [True] * 2


def test_a_row_that_moves_is_progress(look):
    assert [look(second, second) for second in range(3)] == [None, False, False]


def test_a_long_batch_is_no_stall_while_the_run_catches_up(look):
    """With batches of 35 s it paged, and resolved the page, once for each batch."""
    verdicts = [look(second, second // 35, caught_up=False) for second in range(140)]
    assert verdicts == [None] * 35 + [False] * 105


def test_a_run_that_has_caught_up_may_not_take_as_long(look):
    verdicts = [look(second, second // 20) for second in range(40)]
    assert verdicts == [None] * 16 + [True] * 4 + [False] * 16 + [True] * 4


def test_a_run_that_dies_while_it_catches_up_is_a_stall(look):
    assert [look(0, 0), look(1, 1, caught_up=False)] == [None, False]
    assert [look(second, 1, caught_up=False) for second in range(2, 124)] == [False] * 120 + [True] * 2


def test_a_start_alone_ends_no_stall(look):
    """A `run` that dies at every start would page and resolve each time."""
    assert look(0, 0) is None
    assert [look(second, 0) for second in range(1, 17)][-1] is True
    assert look(17, 0, caught_up=False) is True
    assert look(18, 1, caught_up=False) is False


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

"""Statuses: the cases of Burrow's own tests with their meaning, and what Burrow does not tell apart."""

from itertools import repeat

import pytest

from coordinator_model.lag.partition import WINDOW, Commit, PartitionLag
from coordinator_model.lag.status import Status, lag_ms_of, lag_of, status_of
from coordinator_model.lag.window import extended, waits_since_ms

SECOND_MS = 1_000
WHOLE = range(1, WINDOW + 1)


def commits(offsets, lags, every_ms=100 * SECOND_MS):
    """A window with a commit each 100 s; a lag of None was not known."""
    rows = zip(range(1, WINDOW + 1), offsets, lags, strict=False)
    return tuple(Commit(offset, n * every_ms, None if lag is None else offset + lag) for n, offset, lag in rows)


def partition(window, lag, *, asked_ms=2_000_000, waits_since_ms=0, **known):
    end_offset = window[-1].offset + lag if window else lag
    return PartitionLag("t", None, 0, window, 0, end_offset, asked_ms, waits_since_ms=waits_since_ms, **known)


def rising(step=1_000):
    return [step * n for n in WHOLE]


GROWS = [50 * (n + 1) for n in range(WINDOW)]
GROWS_FROM_0 = [50 * n for n in range(WINDOW)]
SAME = list(repeat(1_000, WINDOW))
LAST_MS = WINDOW * 100 * SECOND_MS
SPAN_MS = LAST_MS - 100 * SECOND_MS
LONG_AGO_MS = 0

BURROW = {
    "0 there was no lag at some time": (rising(), GROWS_FROM_0, 450, LAST_MS + 100_000, LONG_AGO_MS, "ok"),
    "1 silent just as long as the window spans": (rising(), GROWS_FROM_0, 450, LAST_MS + SPAN_MS, LONG_AGO_MS, "ok"),
    "2 silent for longer, though once without lag": (
        rising(), GROWS_FROM_0, 450, LAST_MS + SPAN_MS + 1, LONG_AGO_MS, "stop",
    ),
    "3 silent for longer, never without lag": (rising(), GROWS, 500, LAST_MS + SPAN_MS + 1, LONG_AGO_MS, "stop"),
    "4 the same offset, once without lag": (SAME, GROWS_FROM_0, 450, LAST_MS + 100_000, LONG_AGO_MS, "ok"),
    "5 the same offset, always with lag": (SAME, GROWS, 500, LAST_MS + 100_000, LONG_AGO_MS, "stall"),
    "6 the same offset and the same lag": (SAME, [100] * WINDOW, 100, LAST_MS + 100_000, LONG_AGO_MS, "stall"),
    "7 went back and has come there again": (
        [*rising()[:8], 7_500, 9_000], [100, 150, 200, 250, 300, 350, 400, 450, 950, 300], 300,
        LAST_MS + 100_000, LONG_AGO_MS, "ok",
    ),
    "8 no lag now, however long silent": (rising(), GROWS, 0, LAST_MS + SPAN_MS + 1, LONG_AGO_MS, "ok"),
    "9 silent, always without lag, and messages came since": (
        rising(), [0] * WINDOW, 931, LAST_MS + SPAN_MS + 1, LONG_AGO_MS, "stop",
    ),
    "10 the same, and they came a moment ago": (
        rising(), [0] * WINDOW, 1, LAST_MS + SPAN_MS + 1, LAST_MS + SPAN_MS - 50_000, "ok",
    ),
    "11 lags that were not known between others": (
        rising(), [0, None, 50, None, 100, None, 150, None, 200, None], 200, LAST_MS + 100_000, LONG_AGO_MS, "ok",
    ),
    "15 went back and is not there again": (
        [*rising()[:8], 6_000, 7_500], [100, 150, 200, 250, 300, 350, 400, 450, 950, 300], 300,
        LAST_MS + 100_000, LONG_AGO_MS, "rewind",
    ),
    "falls behind": (rising(), GROWS, 500, LAST_MS + 100_000, LONG_AGO_MS, "warn"),
    "lag stays as it is while offsets go on": (rising(), [70] * WINDOW, 70, LAST_MS + 100_000, LONG_AGO_MS, "warn"),
    "lag fell once": (rising(), [*GROWS[:5], 10, *GROWS[6:]], 500, LAST_MS + 100_000, LONG_AGO_MS, "ok"),
    "lag is lower than at the last commit": (rising(), GROWS, 499, LAST_MS + 100_000, LONG_AGO_MS, "ok"),
}  # fmt: skip
"""By Burrow's number where it is one of its cases; 12 to 14 are about its `allowed-lag`, which is 0 here."""


@pytest.mark.parametrize("case", BURROW)
def test_a_whole_window_is_judged_as_burrow_judges_it(case):
    offsets, lags, lag, now_ms, waits_ms, status = BURROW[case]
    assert status_of(partition(commits(offsets, lags), lag, waits_since_ms=waits_ms), now_ms) == status


SHORT = {
    "nothing committed": ((), 5, 0, "unknown"),
    "one commit, no lag": (commits([7], [0]), 0, 0, "ok"),
    "one commit, with lag": (commits([7], [3]), 3, 100_000, "unknown"),
    "one commit, and silent for ten minutes": (commits([7], [3]), 3, 700_001, "stop"),
    "one commit of which the lag was not known": (commits([7], [None]), 3, 100_000, "unknown"),
    "a few, the same offset": (commits([7, 7, 7], [3, 3, 3]), 3, 310_000, "unknown"),
    "a few, once without lag": (commits([7, 8, 9], [3, 0, 3]), 3, 310_000, "ok"),
    "a few, lag fell": (commits([7, 8, 9], [9, 3, 1]), 1, 310_000, "ok"),
    "a few, went back": (commits([7, 4], [3, 9]), 9, 210_000, "rewind"),
    "a whole window, nothing known of its lags": (commits(rising(), [None] * WINDOW), 3, LAST_MS + 1, "unknown"),
}


@pytest.mark.parametrize("case", SHORT)
def test_a_short_window_says_less_and_never_guesses(case):
    window, lag, now_ms, status = SHORT[case]
    assert status_of(partition(window, lag), now_ms) == status


def test_who_stopped_is_unknown_where_nobody_knows_since_when_messages_wait():
    p = partition(commits(rising(), GROWS), 500, waits_since_ms=None)
    assert status_of(p, LAST_MS + SPAN_MS + 1) is Status.UNKNOWN


def test_a_second_rewind_counts_though_the_first_was_made_up_for():
    offsets = [10, 5, 20, 30, 40, 50, 60, 70, 80, 65]
    assert status_of(partition(commits(offsets, GROWS), 500), LAST_MS + 1) is Status.REWIND


def test_an_end_offset_that_grows_old_hides_no_growing_lag():
    """Commits each second, rounds of end offsets each ten: the lag seems to fall between them."""
    window = tuple(Commit(100 * n, 1_000 * n, 2_000 if n < 5 else 3_000) for n in range(WINDOW))
    p = PartitionLag("t", None, 0, window, 0, 4_000, 20_000, waits_since_ms=0)
    assert [commit.end_offset - commit.offset for commit in window][3:7] == [1_700, 1_600, 2_500, 2_400]
    assert status_of(p, 9_500) is Status.WARN


def test_who_catches_up_while_nothing_comes_is_well():
    window = tuple(Commit(100 * n, 1_000 * n, 2_000) for n in range(WINDOW))
    assert status_of(PartitionLag("t", None, 0, window, 0, 2_000, 20_000, waits_since_ms=0), 9_500) is Status.OK


OFFSETS = {
    "what waits": (10, 25, 9_000, 15),
    "nothing waits": (25, 25, 9_000, 0),
    "the commit is newer than the end": (26, 25, 900, 0),
    "the same, by a clock that is a little ahead": (26, 25, 5_500, 0),
    "beyond an end that was asked later: another log": (26, 25, 9_000, None),
    "no end": (10, None, None, None),
    "Kafka's word for no offset": (-1, 25, 9_000, None),
    "as high as offsets go": (2**63 - 2, 2**63 - 1, 9_000, 1),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_lag_is_never_negative_and_unknown_where_an_offset_is(case):
    committed, end, asked_ms, lag = OFFSETS[case]
    p = PartitionLag("t", None, 0, (Commit(committed, 1_000, None),), None, end, asked_ms, waits_since_ms=2_000)
    assert lag_of(p) == lag
    assert lag_ms_of(p, 9_000) == (7_000 if lag else lag)
    assert (status_of(p, 9_000) is Status.UNKNOWN) == (lag != 0)


def test_lag_in_time_is_unknown_where_nobody_knows_since_when():
    p = partition(commits([7], [3]), 3, waits_since_ms=None)
    assert (lag_of(p), lag_ms_of(p, 9_000)) == (3, None)


def test_without_a_commit_there_is_no_lag():
    p = PartitionLag("t", None, 0, (), 0, 500, 1_000)
    assert (lag_of(p), lag_ms_of(p, 9_000), status_of(p, 9_000)) == (None, None, "unknown")


# ------------------------------------------------------------------ the window


def windowed(*instants_ms):
    window = ()
    for n, at_ms in enumerate(instants_ms):
        window = extended(window, Commit(n, at_ms, None))
    return [commit.at_ms for commit in window]


@pytest.mark.parametrize(
    ("instants_ms", "kept_ms"),
    [
        ((0, 5_000, 10_000), [0, 5_000, 10_000]),
        ((0, 400, 800), [0, 800]),
        ((0, 400, 800, 1_200, 1_600, 2_000, 2_400), [0, 1_200, 2_400]),
        ((0, 5_000, 5_001), [0, 5_000, 5_001]),
        ((0, 5_000, 5_001, 5_002), [0, 5_000, 5_002]),
        ((5_000, 4_000), [5_000, 5_000]),
        (tuple(range(0, 60_000, 5_000)), list(range(10_000, 60_000, 5_000))),
    ],
)
def test_a_window_keeps_the_newest_and_others_a_second_apart(instants_ms, kept_ms):
    assert windowed(*instants_ms) == kept_ms


@pytest.mark.parametrize(("committed", "since_ms"), [(5, 10), (10, 20), (19, 20), (20, 30), (30, None), (31, None)])
def test_a_message_waits_since_a_round_first_saw_it(committed, since_ms):
    assert waits_since_ms([(10, 10), (20, 20), (30, 30)], committed) == since_ms

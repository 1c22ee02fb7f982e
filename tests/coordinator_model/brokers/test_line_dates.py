"""Which pairs of a line and a record show that a broker's lines are misdated."""

import pytest

from coordinator_model.brokers.line_dates import (
    ANNOUNCED,
    EPOCH,
    MAX_BROKERS,
    MAX_EVENTS,
    RECENT_MS,
    WRITTEN,
    LineDates,
    Logged,
    Told,
)

T = 1_700_000_000_000
HOLD_MS = 10_000
HOUR_MS = 3_600_000
FINE, DOUBTFUL, MISDATED = "fine", "doubtful", "misdated"


def told(number: int, what: str = EPOCH) -> Told:
    return Told(what, "orders", "m1" if what == EPOCH else "", number)


def compare(dates, pairs, *, broker="broker-1", live_from_ms=T - HOUR_MS):
    """Compare pairs (event, record's instant, line's date, how long its request waited), each in a batch of its own."""
    for event, record_ms, line_ms, *waited_ms in pairs:
        arrival_ms = T + line_ms - sum(waited_ms)
        dates.compare([Logged(event, broker, arrival_ms, T + line_ms)], [(event, T + record_ms)], HOLD_MS, live_from_ms)
    return dates


def found(dates, at_ms=60_000):
    return MISDATED if dates.misdated else DOUBTFUL if dates.doubtful(T + at_ms) else FINE


# what happened -> pairs of one broker, what they show
PAIRS = {
    "nothing": ([], FINE),
    "a line just after its record": ([(told(1), 1_000, 1_020)], FINE),
    "a line before its record": ([(told(1), 4_000, 1_000)], DOUBTFUL),
    "… and then one that agrees": ([(told(1), 4_000, 1_000), (told(2), 9_000, 9_010)], FINE),
    "two writes that stalled for the same time": (
        [(told(1), 1_000, 4_600, 3_610), (told(2), 5_000, 8_600, 3_610)],
        FINE,
    ),
    "a client that asked again": ([(told(1), 1_000, 21_000)], FINE),
    "two clients that asked again at once": ([(told(1), 1_000, 41_000), (told(2), 1_400, 41_020)], FINE),
    "two clients that ask again behind a stalled write": (
        [(told(1), 1_000, 16_000, 4_000), (told(2), 1_400, 16_000, 3_600)],
        FINE,
    ),
    "an hour behind": ([(told(1), 0, -HOUR_MS), (told(2), 3_000, 3_010 - HOUR_MS)], MISDATED),
    "an hour ahead": ([(told(1), 0, HOUR_MS), (told(2), 3_000, 3_010 + HOUR_MS)], MISDATED),
    "… until a pair agrees": (
        [(told(1), 0, HOUR_MS), (told(2), 3_000, 3_010 + HOUR_MS), (told(3), 9_000, 9_010)],
        FINE,
    ),
    "an hour, and then another time": ([(told(1), 0, -HOUR_MS), (told(2), 3_000, -HOUR_MS // 2)], DOUBTFUL),
    "two seconds ahead, twice": ([(told(1), 0, 2_000), (told(2), 3_000, 5_010)], DOUBTFUL),
    "a generation that a deposed coordinator announced": ([(told(1, ANNOUNCED), 20_000, 1_000)], FINE),
    "… twice": ([(told(1, ANNOUNCED), 20_000, 1_000), (told(2, ANNOUNCED), 40_000, 21_000)], FINE),
    "an announcement and its record": (
        [(told(1, ANNOUNCED), 100, 100 + HOUR_MS), (told(1, WRITTEN), 140, 145 + HOUR_MS)],
        MISDATED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_a_line_and_a_record_show_whether_dates_are_right(name):
    pairs, expected = PAIRS[name]
    assert found(compare(LineDates(), pairs)) == expected


def test_a_line_may_be_read_before_its_record():
    dates = LineDates()
    for number in (1, 2):
        at_ms = T + 5_000 * number
        dates.compare([Logged(told(number), "broker-1", at_ms + HOUR_MS, at_ms + HOUR_MS)], [], HOLD_MS, 0)
        dates.compare([], [(told(number), at_ms)], HOLD_MS, 0)
    assert found(dates) == MISDATED


# when the records were read, when the monitor was first started -> what two lines show that are dated an hour later
AGAIN = {
    "with the lines": (True, T - HOUR_MS, MISDATED),
    "in an earlier batch": (False, T - HOUR_MS, FINE),
    "with the lines, but they are older than the monitor": (True, T + HOUR_MS, FINE),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_client_that_is_told_again_shows_no_wrong_date(name):
    together, live_from_ms, expected = AGAIN[name]
    dates = LineDates()
    records = [(told(1), T), (told(2), T + 3_000)]
    if not together:
        dates.compare([], records, HOLD_MS, live_from_ms)
    lines = [Logged(event, "broker-1", at_ms + HOUR_MS, at_ms + HOUR_MS) for event, at_ms in records]
    dates.compare(lines, records if together else [], HOLD_MS, live_from_ms)
    assert found(dates) == expected


def test_an_event_is_paired_once():
    dates = compare(LineDates(), [(told(1), 0, 10)])
    compare(dates, [(told(1), 0, -HOUR_MS), (told(1), 0, -HOUR_MS)])
    assert found(dates) == FINE


def test_a_doubt_ends_unless_lines_are_left_out():
    dates = compare(LineDates(), [(told(1), 4_000, 1_000)])
    assert [found(dates, at_ms) for at_ms in (4_000 + RECENT_MS, 4_001 + RECENT_MS)] == [DOUBTFUL, FINE]
    assert [found(dates, at_ms) for at_ms in (1_000 - RECENT_MS, 999 - RECENT_MS)] == [DOUBTFUL, FINE]
    dates = compare(LineDates(), [(told(1), 0, -HOUR_MS), (told(2), 3_000, 3_000 - HOUR_MS)])
    assert found(dates, 10 * HOUR_MS) == MISDATED


def test_only_long_differences_are_far_apart():
    far = compare(LineDates(), [(told(1), 1_000, 21_000)])
    assert far.are_far_apart(T + 21_000, HOLD_MS)
    assert not compare(LineDates(), [(told(1), 1_000, 5_000)]).are_far_apart(T + 5_000, HOLD_MS)


def test_strangers_cannot_make_it_grow():
    dates = LineDates()
    for number in range(10_000):
        broker, at_ms = f"broker-{number}", T + number
        lines = [Logged(told(n), broker, ms, ms) for n, ms in ((number, at_ms - HOUR_MS), (-number - 1, at_ms))]
        dates.compare(lines, [(told(number), at_ms)], HOLD_MS, 0)
    assert len(dates.apart) <= MAX_BROKERS
    assert max(len(dates.recorded), len(dates.logged)) <= MAX_EVENTS

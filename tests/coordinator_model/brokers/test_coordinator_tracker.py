"""A broker's clock as its lines show it: gaps, moves, refusals, lost lines, and how far everybody has spoken."""

import pytest

from coordinator_model.brokers.blindness import COARSE_INSTANTS
from coordinator_model.brokers.coordinator_check import Proof
from coordinator_model.brokers.coordinator_tracker import MAX_BROKERS, MAX_TIMER_RESETS, CoordinatorTracker
from coordinator_model.brokers.one_clock import MAX_PROBES, BrokerClock
from coordinator_model.states import Cause
from coordinator_model.thresholds import Thresholds

LIMITS = Thresholds()
LOG = "the log"
GOES_ON = "as the coordinator, though deposed"
YES, BLIND, NO, NOTHING = Proof.COORDINATES, Proof.LEADS, Proof.REFUSES, Proof.NOTHING


def clock(*steps):
    """A clock after steps ``(broker, at_ms, what its answer proves, or None for a mere line)``.

    A broker ``LOG`` wrote a record.
    """
    made = CoordinatorTracker()
    for broker, at_ms, proof in steps:
        if broker == LOG:
            made.wrote(at_ms)
            continue
        made.advance(broker, at_ms, LIMITS)
        if proof == GOES_ON:
            assert made.is_deposed(broker, at_ms, LIMITS)
        elif proof is not None:
            made.answered(broker, proof, at_ms, LIMITS)
    return made


# steps -> coordinator, restarts as (low, high, cause)
STEPS = {
    "the first answer names the coordinator": ([("a", 1_000, YES)], "a", []),
    "a refusal names nobody": ([("a", 1_000, NO)], None, []),
    "lines close together are no gap": ([("a", 1_000, YES), ("a", 3_400, None)], "a", []),
    "a gap opens, and waits for an answer": (
        [("a", 1_000, YES), ("a", 4_000, None)],
        "a",
        [(1_000, None, Cause.COORDINATOR_PAUSE)],
    ),
    "the answer after a gap closes it": (
        [("a", 1_000, YES), ("a", 4_000, None), ("a", 4_100, YES)],
        "a",
        [(1_000, 4_100, Cause.COORDINATOR_PAUSE)],
    ),
    "another broker's gap is nothing": ([("a", 1_000, YES), ("b", 1_000, None), ("b", 9_000, None)], "a", []),
    "another broker answers: a move since the last answer": (
        [("a", 1_000, YES), ("b", 3_000, YES)],
        "b",
        [(1_000, 3_000, Cause.COORDINATOR_MOVED)],
    ),
    "which had refused meanwhile: since then": (
        [("a", 1_000, YES), ("b", 2_000, NO), ("b", 3_000, YES)],
        "b",
        [(2_000, 3_000, Cause.COORDINATOR_MOVED)],
    ),
    "the coordinator refuses: open until the next answer": (
        [("a", 1_000, YES), ("a", 2_000, NO)],
        "a",
        [(2_000, None, Cause.COORDINATOR_MOVED)],
    ),
    "a loading coordinator says 0 blindly and 14 again: open again": (
        [("a", 1_000, YES), ("a", 2_000, NO), ("a", 2_100, YES), ("a", 2_200, NO), ("a", 2_300, YES)],
        "a",
        [(2_000, 2_100, Cause.COORDINATOR_MOVED), (2_200, 2_300, Cause.COORDINATOR_MOVED)],
    ),
    "a heartbeat's 0 after a move may be blind: open": (
        [("a", 1_000, YES), ("b", 3_000, BLIND), ("b", 4_000, BLIND)],
        "b",
        [(1_000, None, Cause.COORDINATOR_MOVED)],
    ),
    "until another answer, which only one that has loaded gives": (
        [("a", 1_000, YES), ("b", 3_000, BLIND), ("b", 4_000, YES)],
        "b",
        [(1_000, 4_000, Cause.COORDINATOR_MOVED)],
    ),
    "or until it writes": (
        [("a", 1_000, YES), ("b", 3_000, BLIND), (LOG, 4_000, None)],
        "b",
        [(1_000, 4_000, Cause.COORDINATOR_MOVED)],
    ),
    "not what its predecessor may have written by a clock that is ahead": (
        [("a", 1_000, YES), ("b", 1_500, BLIND), (LOG, 2_000, None)],
        "b",
        [(1_000, None, Cause.COORDINATOR_MOVED)],
    ),
    "not what its predecessor wrote": (
        [("a", 1_000, YES), (LOG, 2_000, None), ("b", 3_000, BLIND)],
        "b",
        [(1_000, None, Cause.COORDINATOR_MOVED)],
    ),
    "nor while its predecessor answers, whose clock may be ahead": (
        [("a", 1_000, YES), ("b", 3_000, BLIND), ("a", 3_500, GOES_ON), (LOG, 4_000, None)],
        "b",
        [(1_000, None, Cause.COORDINATOR_MOVED)],
    ),
    "until that refuses": (
        [("a", 1_000, YES), ("b", 3_000, BLIND), ("a", 3_500, GOES_ON), ("a", 3_900, NO), (LOG, 4_000, None)],
        "b",
        [(1_000, 4_000, Cause.COORDINATOR_MOVED)],
    ),
    "or until it has said 0 for longer than a load takes": (
        [("a", 1_000, YES), *(("b", at_ms, BLIND) for at_ms in range(3_000, 34_000, 1_000))],
        "b",
        [(1_000, 33_000, Cause.COORDINATOR_MOVED)],
    ),
    "a refusal after a blind 0: since then": (
        [("a", 1_000, YES), ("b", 3_000, BLIND), ("b", 4_000, NO), ("b", 5_000, YES)],
        "b",
        [(4_000, 5_000, Cause.COORDINATOR_MOVED)],
    ),
    "the next broker takes over before that: its timers restarted too": (
        [("a", 1_000, YES), ("b", 3_000, BLIND), ("c", 8_000, YES)],
        "c",
        [(1_000, 3_000, Cause.COORDINATOR_MOVED), (3_000, 8_000, Cause.COORDINATOR_MOVED)],
    ),
    "a broker that was restarted loads too": (
        [("a", 1_000, YES), ("a", 4_000, None), ("a", 4_100, BLIND), ("a", 6_000, YES)],
        "a",
        [(1_000, 6_000, Cause.COORDINATOR_PAUSE)],
    ),
    "who coordinated all along is not blind": (
        [("a", 1_000, BLIND), ("a", 2_000, BLIND)],
        "a",
        [],
    ),
    "an answer that any broker gives names nobody": ([("a", 1_000, NOTHING)], None, []),
    "nor does it move anything": ([("a", 1_000, YES), ("b", 2_000, NOTHING), ("a", 2_100, YES)], "a", []),
    "nor does it end the wait after a refusal": (
        [("a", 1_000, YES), ("a", 2_000, NO), ("a", 2_100, NOTHING)],
        "a",
        [(2_000, None, Cause.COORDINATOR_MOVED)],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_coordinator_and_timer_resets_after(name):
    steps, coordinator, restarts = STEPS[name]
    made = clock(*steps)
    assert made.coordinator == coordinator
    assert [(r.low_ms, r.high_ms, r.cause) for r in made.timer_resets] == restarts


def test_what_a_loading_coordinator_answers_too_says_nothing_after_the_load():
    [move] = clock(("a", 1_000, YES), ("b", 3_000, YES), ("b", 5_000, BLIND)).timer_resets
    assert (move.high_ms, move.blind_ms) == (3_000, None)


# number of the last probe, of this one, ms between -> whether lines are taken for lost
PROBES = {
    "the next": (5, 6, 500, False),
    "a jump": (5, 7, 500, True),
    "after a pause, with two in flight": (5, 8, 5_000, False),
    "after a pause, with more than those": (5, 9, 5_000, True),
    "a restarted probe counts from one again": (5, 1, 500, False),
    "the first that is seen": (None, 9, 500, False),
    "a line that is no probe": (5, None, 500, False),
}


@pytest.mark.parametrize("name", PROBES)
def test_a_jump_of_the_probes_numbers_is_lost_lines(name):
    last, number, apart_ms, lost = PROBES[name]
    made = clock(("a", 1_000, YES))
    made.probed("a", last, 1_000, 1_000, LIMITS)
    before_ms = made.advance("a", 1_000 + apart_ms, LIMITS)
    made.probed("a", number, 1_000 + apart_ms, before_ms, LIMITS)
    assert made.covered_since_ms == (1_000 + apart_ms if lost else 1_000)


# instants of a probe's numbers -> when the instants of lines are too coarse to tell their order
BUNCHES = {
    "two in a second": ([1_000, 1_000, 2_000, 2_000, 3_000], None),
    "three at once": ([5_000, 10_000, 10_000, 10_000], (0, 15_000)),
    "it goes on": ([5_000, *[10_000] * 10, *[15_000] * 10], (0, 20_000)),
}


@pytest.mark.parametrize("name", BUNCHES)
def test_instants_of_a_shippers_buffer_open_a_blind_window(name):
    instants, window = BUNCHES[name]
    made, before_ms = clock(("a", 1_000, YES)), 1_000
    for number, at_ms in enumerate(instants):
        made.probed("a", number, at_ms, before_ms, LIMITS, "p")
        before_ms = made.advance("a", at_ms, LIMITS)
    told = [(w.from_ms, w.until_ms, w.why) for w in made.blind]
    assert told == ([(*window, COARSE_INSTANTS)] if window else [])
    assert bool(made.take_noted()) is bool(window)


# instants of a probe's numbers, half a second apart -> how far the dates of lines may be off
DATES = {
    "exact": ([1_000, 1_500, 2_000, 2_500], 0),
    "a flush every second": ([1_000, 1_000, 2_000, 2_000], 1_000),
    "still, with one number in the last second": ([1_000, 1_000, 2_000, 2_000, 3_000], 1_000),
    "after a pause": ([1_000, 9_000, 9_000], 1_500),
    "exact again for long": ([1_000, 1_000, *range(1_500, 12_500, 500)], 0),
}


@pytest.mark.parametrize("name", DATES)
def test_two_numbers_of_the_probe_at_one_instant_show_how_far_dates_are_off(name):
    instants, off_by_ms = DATES[name]
    made, before_ms = clock(("a", 1_000, YES)), 500
    for number, at_ms in enumerate(instants):
        made.probed("a", number, at_ms, before_ms, LIMITS, "p")
        before_ms = made.advance("a", at_ms, LIMITS)
    assert made.off_by_ms == off_by_ms


# seconds in which lines were in disorder, and by how much -> how far the dates of lines may be off at 70,000
DISORDER = {
    "none": ({}, 0),
    "two lines once": ({40_000: 100}, 0),
    "twice: both dates of a time may be off": ({40_000: 100, 41_000: 30}, 200),
    "twice, but once long ago": ({9_000: 100, 41_000: 30}, 0),
    "twice, but once later": ({40_000: 100, 71_000: 30}, 0),
}


@pytest.mark.parametrize("name", DISORDER)
def test_lines_in_disorder_show_how_far_dates_are_off_for_a_minute(name):
    seconds, off_by_ms = DISORDER[name]
    made = clock(("a", 1_000, YES), ("a", 70_000, YES))
    for second in seconds.items():
        made.brokers["a"].note_disorder([second])
    assert made.off_by_ms == off_by_ms
    made.brokers["a"].step(3_600_000)
    assert made.off_by_ms == 0


def test_of_many_connections_of_the_probe_only_those_heard_last_are_kept():
    """A shard without groups forgets the numbers of its probes in each batch, but not the connections."""
    made = CoordinatorTracker()
    for number in range(3 * MAX_PROBES):
        made.forget_probes()
        for connection in ("steady", f"short-{number}"):
            made.probed("a", number, 1_000 + number, 1_000 + number, LIMITS, connection)
    clock = made.brokers["a"]
    kept = {"steady"} | {f"short-{number}" for number in range(2 * MAX_PROBES + 1, 3 * MAX_PROBES)}
    assert clock.probed_since_ms.keys() == clock.probed_ms.keys() == clock.bunches.keys() == kept
    assert clock.probed_since_ms["steady"] == 1_000


def test_only_a_probe_on_a_connection_from_before_a_hole_shows_what_that_was():
    """The probe may have given up and connected again while the broker was paused."""
    made = clock(("a", 1_000, YES))
    made.probed("a", 1, 1_000, 1_000, LIMITS, "old")
    before_ms = made.advance("a", 5_000, LIMITS)
    made.probed("a", 1, 5_000, before_ms, LIMITS, "new")
    assert made.hole_is_open
    before_ms = made.advance("a", 5_003, LIMITS)
    made.probed("a", 2, 5_003, before_ms, LIMITS, "old")
    assert not made.hole_is_open
    assert [reset.woke_ms for reset in made.timer_resets] == [5_000]


def test_two_pauses_that_a_broker_survives_are_not_taken_for_one():
    made = clock(("a", 1_000, YES))
    made.probed("a", 1, 1_000, 1_000, LIMITS, "old")
    for probe, at_ms in ((2, 5_000), (3, 9_000)):
        made.probed("a", probe, at_ms, made.advance("a", at_ms, LIMITS), LIMITS, "old")
    assert [(r.low_ms, r.high_ms, r.woke_ms) for r in made.timer_resets] == [
        (1_000, 5_000, 5_000),
        (5_000, None, 9_000),
    ]


def test_lines_lost_by_another_broker_are_nothing_here():
    made = clock(("a", 1_000, YES), ("b", 1_000, None))
    made.lost_lines("b", 2_000, 1_000)
    assert (made.covered_since_ms, made.timer_resets) == (1_000, [])


# newest line read, by (broker, partition) -> up to where events are applied
FRONTIERS = {
    "one broker": ({("a", 0): 5_000}, 5_000),
    "the slower of two brokers": ({("a", 0): 5_000, ("b", 1): 3_000}, 3_000),
    "the slower of a broker's two partitions": ({("a", 0): 5_000, ("a", 1): 2_000}, 2_000),
    "a broker that has been silent for longer than rows are held": ({("a", 0): 50_000, ("b", 1): 3_000}, 50_000),
    "a partition it no longer writes to": ({("a", 0): 50_000, ("a", 1): 2_000}, 50_000),
    "nobody": ({}, 0),
}


@pytest.mark.parametrize("name", FRONTIERS)
def test_the_watermark_is_that_of(name):
    lines, watermark_ms = FRONTIERS[name]
    made = CoordinatorTracker()
    for (broker, partition), at_ms in lines.items():
        made.read(broker, f"t/{partition}", at_ms)
    assert made.watermark_ms(10_000) == watermark_ms


@pytest.mark.parametrize(("coordinator", "watermark_ms"), [("a", 4_000), ("b", 64_000)])
def test_the_watermark_is_by_the_coordinators_clock(coordinator, watermark_ms):
    """Broker b's clock has stepped a minute ahead, and b is read a second less far."""
    made = CoordinatorTracker(coordinator=coordinator)
    made.read("a", "t/0", 5_000)
    made.restart_reading("b", 60_000)
    made.read("b", "t/1", 64_000)
    assert made.watermark_ms(10_000) == watermark_ms


LATE = {
    "nothing was read": ([], BrokerClock(), 0),
    "the first line": ([(0, 40_000)], BrokerClock(), 0),
    "its way takes longer": ([(0, 40_000), (0, 43_000)], BrokerClock(), 2_999),
    "its clock steps ahead": ([(0, 40_000), (60_000, -17_000)], BrokerClock(), 2_999),
    "its clock steps back": ([(0, 40_000), (-60_000, 103_000)], BrokerClock(), 2_999),
    "the state is that of an older monitor": ([(0, 43_000)], BrokerClock(behind_ms=40_000), 2_999),
}


@pytest.mark.parametrize("case", LATE)
def test_how_much_later_than_usual_lines_come(case):
    behind, made, late_ms = LATE[case]
    for at_ms, (stepped_ms, behind_ms) in enumerate(behind, 1):
        if made.stepped_ms != stepped_ms:
            made.step(stepped_ms)
        made.read_ms["t/0"] = at_ms
        made.note_behind(at_ms + behind_ms)
    assert made.late_ms == late_ms


def test_names_of_strangers_do_not_fill_the_memory():
    made = clock(*((f"broker-{n}", n, None) for n in range(MAX_BROKERS + 50)))
    assert len(made.brokers) == MAX_BROKERS
    assert f"broker-{MAX_BROKERS + 49}" in made.brokers


def test_refusals_without_end_do_not_fill_the_memory():
    made = clock(("a", 1, YES), *(("a", at_ms, NO if at_ms % 2 else YES) for at_ms in range(2, 500)))
    assert len(made.timer_resets) <= MAX_TIMER_RESETS

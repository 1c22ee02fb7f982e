"""Tests of the judge of `lag_chaos`: what it requires of offsets and of incidents, on made-up answers."""

import pytest

from tests.e2e.lag_chaos import Episode, judge, judge_incidents
from tests.e2e.lag_truth import Shown, Told, compare

PLACE = ("orders", "t", 0)
STALL = {
    "rule": "partition-stalled",
    "group": "stuck",
    "subject": "t-1",
    "summary": "m-1 is alive, owns t-1 and does not commit it",
    "partitions": [["t", 1]],
    "member_id": "m-1",
    "opened_ms": 900,
    "told_ms": 40_000,
}


def episode(**changes):
    told = {"group": "stuck", "topic": "t", "partition": 1, "interval_ms": 2_000, "stuck_ms": 1_000}
    return Episode(**told | {"owners": ["m-1"], "unstuck_ms": 60_000} | changes)


def agrees(before, after, shown):
    (found,) = compare({PLACE: before} if before else {}, {PLACE: after} if after else {}, {PLACE: shown})
    return found.agrees


@pytest.mark.parametrize(
    ("shown", "right"),
    [
        (Shown(7, 10, 3), True),
        (Shown(7, 10, 4), False),
        (Shown(6, 10, 4), False),
        (Shown(7, 11, 4), False),
        (Shown(7, None, None), False),
        (None, False),
    ],
)
def test_of_a_partition_at_rest_all_has_to_be_equal(shown, right):
    told = Told(7, 10)
    (found,) = compare({PLACE: told}, {PLACE: told}, {PLACE: shown} if shown else {})
    assert (found.is_exact, found.agrees) == (True, right)


def test_of_one_that_is_committed_meanwhile_it_lies_between():
    before, after = Told(5, 10), Told(9, 10)
    assert all(agrees(before, after, Shown(at, 10, 10 - at)) for at in range(5, 10))
    assert not any(agrees(before, after, Shown(at, 10, 10 - at)) for at in (4, 10))


def test_a_partition_that_no_broker_knows_is_a_difference():
    assert not agrees(None, None, Shown(7, 10, 3))


@pytest.mark.parametrize(
    "changes",
    [
        {"member_id": "m-2"},
        {"partitions": [["t", 2]]},
        {"partitions": [["t", 1], ["t", 2]]},
        {"group": "paused"},
        {"told_ms": 500},
        {"opened_ms": 61_000},
        {"rule": "offset-rewound"},
        {"rule": "lag-growing"},
    ],
)
def test_an_incident_that_tells_anything_but_an_episode_is_false(changes):
    assert judge_incidents([STALL], [episode()]) == []
    assert len(judge_incidents([STALL | changes], [episode()])) == 1


def test_that_the_slow_group_s_lag_grows_is_true():
    assert judge_incidents([STALL | {"rule": "lag-growing", "group": "slow"}], []) == []


def test_the_verdict_hangs_on_all_that_is_compared(capsys):
    named = vars(episode(from_ms=2_000, named_ms=30_000))
    told = {
        "comparisons": [{"at_ms": 1, "agrees": True, "exact": True}],
        "episodes": [named],
        "incidents": [STALL],
        "false": [],
        "failure": None,
        "faults": {"kill": 1},
    }
    assert judge(told)
    for change in (
        {"comparisons": []},
        {"comparisons": [{"at_ms": 1, "agrees": False, "exact": True}]},
        {"episodes": []},
        {"episodes": [named, named | {"wrong": "not named"}]},
        {"false": ["offset-rewound t"]},
        {"failure": "TimeoutError()"},
    ):
        assert not judge(told | change)
    capsys.readouterr()

"""Each perturbation does what its name says, and the same each time."""

import pytest

from coordinator_model.decode.source_row import OFFSETS, TELEMETRY
from tests.oracle.perturb import OF_LONG_LIVES, PERTURBATIONS, arrivals
from tests.rows.world import Connection, World

SECONDS = 120
ALL = PERTURBATIONS | OF_LONG_LIVES


@pytest.fixture(scope="module")
def rows():
    """Two minutes of a broker's probe, a heartbeat and a leave each second, and a record each second."""
    world, who = World(), Connection("c", "10.0.0.7", 5_000)
    for _ in range(SECONDS):
        world.answer("HEARTBEAT", who, {"groupId": "g", "generationId": 1, "memberId": "m"}, {"errorCode": 0})
        world.answer("LEAVE_GROUP", who, {"groupId": "g", "members": []}, {"errorCode": 0, "members": []})
        world.record(b"key", b"value")
        world.run(1_000)
    return world.take()


def lines(came):
    return [arrival for arrival in came if arrival.row.source == TELEMETRY]


@pytest.mark.parametrize("name", ALL)
def test_records_stay_as_they_are_and_lines_are_numbered_as_their_topic_would(rows, name):
    came = arrivals(rows, ALL[name], name)
    assert came == arrivals(rows, ALL[name], name)
    assert [a.row for a in came if a.row.source == OFFSETS] == [row for row in rows if row.source == OFFSETS]
    assert [a.row.offset for a in lines(came)] == list(range(len(lines(came))))


# the least and the most lines that are left of some 480 (two a second are the probe's)
LEFT = {
    "as played": (481, 481),
    "5 % of lines lost": (440, 475),
    "2 % lost in bursts of 0.3-2 s": (440, 479),
    "off for 20 s": (400, 401),
    "off for 60 s": (240, 241),
    "off for 10 min": (120, 240),
    "30 s sent again after an hour": (600, 602),
    "every second heartbeat": (421, 421),
    "heartbeat lines lost": (361, 361),
    "leave lines lost": (361, 361),
    "no probe": (240, 240),
    "30 s sent again after 60 s": (600, 602),
    "late by 15 s": (481, 481),
}


@pytest.mark.parametrize("name", LEFT)
def test_the_expected_number_of_lines_is_left(rows, name):
    least, most = LEFT[name]
    assert least <= len(lines(arrivals(rows, ALL[name], "a seed"))) <= most


def test_lines_that_are_late_come_after_records_of_their_time(rows):
    came = arrivals(rows, PERTURBATIONS["late by 15 s"], "")
    assert {a.at_ms - a.row.timestamp_ms for a in lines(came)} == {15_000}
    assert {a.at_ms - a.row.timestamp_ms for a in came if a.row.source == OFFSETS} == {0}

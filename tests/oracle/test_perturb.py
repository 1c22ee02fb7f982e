"""Each perturbation does what its name says, and the same each time."""

import pytest

from coordinator_model.decode.parse import RowParser
from coordinator_model.decode.source_row import OFFSETS, TELEMETRY
from tests.oracle.perturb import BY_ANOTHER_CLOCK, HOUR_MS, OF_LONG_LIVES, PERTURBATIONS, arrivals
from tests.oracle.truth import OF_SEVERAL
from tests.rows.world import Connection, World

SECONDS = 120
ALL = PERTURBATIONS | BY_ANOTHER_CLOCK | OF_LONG_LIVES
READ_AGAIN = "30 s read again after 60 s"


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
    if name != READ_AGAIN:
        assert [a.row.offset for a in lines(came)] == list(range(len(lines(came))))


def test_lines_that_are_read_again_have_their_offsets_again(rows):
    came = lines(arrivals(rows, PERTURBATIONS[READ_AGAIN], ""))
    by_offset = {}
    for at_ms, row in came:
        by_offset.setdefault(row.offset, []).append((at_ms, row._replace(offset=0)))
    twice = [both for both in by_offset.values() if len(both) > 1]
    assert 110 <= len(twice) <= 130
    assert {(b - a, row == same) for (a, row), (b, same) in twice} == {(60_000, True)}
    assert sorted(by_offset) == list(range(len(by_offset)))


@pytest.mark.parametrize(("name", "off_ms"), list(zip(BY_ANOTHER_CLOCK, (HOUR_MS, -HOUR_MS), strict=True)))
def test_lines_by_another_clock_come_in_time(rows, name, off_ms):
    assert {a.row.timestamp_ms - a.at_ms for a in lines(arrivals(rows, ALL[name], ""))} == {off_ms}


@pytest.mark.parametrize("name", ["date in its zone, two hours ahead", "date in its zone, five hours behind"])
def test_lines_with_a_date_in_an_unknown_zone_are_rejected_for_their_date(rows, name):
    reader = RowParser()
    said = {reader.read(a.row).reason.partition("(")[0] for a in lines(arrivals(rows, ALL[name], ""))}
    assert len(said) == 1
    assert "the record's timestamp" in said.pop()


@pytest.mark.parametrize("name", [name for name in OF_SEVERAL if "late" in name or "clock" in name])
def test_only_the_lines_of_one_of_several_brokers_are_late_or_misdated(rows, name):
    two = [row._replace(partition=row.offset % 2) if row.source == TELEMETRY else row for row in rows]
    hurt = {(a.row.partition, a.at_ms - a.row.timestamp_ms) for a in lines(arrivals(two, OF_SEVERAL[name], ""))}
    assert len(hurt) == 2
    assert 0 in dict(hurt).values()


# the least and the most lines that are left of some 480 (two a second are the probe's)
LEFT = {
    "as played": (481, 481),
    "5 % of lines lost": (440, 475),
    "2 % lost in bursts of 0.3-2 s": (440, 479),
    "0.1 % lost in bursts of 0.3-2 s": (470, 481),
    "5 % lost in bursts of 0.3-2 s": (400, 475),
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

"""The driver behaves like Kafka and is repeatable: the oracle relies on both."""

import json
from dataclasses import replace

import pytest

from coordinator_model.capture_replay import replay_rows
from tests.oracle.driver import Driver
from tests.oracle.judge import settings_of
from tests.oracle.kinds import draw
from tests.oracle.plans import Client, Event, Plan, Ranges

ALONE = (Client("c1", "classic", session_ms=6_000, heartbeat_ms=2_000),)
STARTED = (Event(1_000, "start", "c1"),)


def plan(until_ms, *events, clients=ALONE, **more):
    config = {"group.initial.rebalance.delay.ms": "0"}
    return Plan(1, "by hand", until_ms, clients, (*STARTED, *events), config=config, **more)


def answers(life, api):
    """Return the lines of one API, each with the time at which it was written."""
    lines = [(row.timestamp_ms - life.plan.start_ms, row.value) for row in life.rows if row.source == "telemetry"]
    parsed = [(at_ms, json.loads(value.partition(b":")[2])) for at_ms, value in lines]
    return [(at_ms, line) for at_ms, line in parsed if line["requestHeader"]["requestApiKeyName"] == api]


def logged(life, kind):
    return [event.at_ms - life.plan.start_ms for event in life.truth if event.kind == kind]


def test_a_plan_gives_the_same_life_in_another_process(driver):
    drawn = draw("static+moves", 7)
    with Driver() as another:
        another.lines(draw("classic", 1))
        assert another.lines(drawn) == driver.lines(drawn)


def test_a_session_ends_one_timeout_after_the_last_heartbeat_was_applied(driver):
    life = driver.play(plan(30_000, Event(12_345, "kill", "c1")))
    last_ms, line = answers(life, "HEARTBEAT")[-1]
    assert logged(life, "session-expired") == [pytest.approx(last_ms + 6_000, abs=2)]
    assert line["response"]["errorCode"] == 0


def test_the_times_of_a_line_add_up_to_its_total(driver):
    lines = [line for _, line in answers(driver.play(plan(10_000)), "HEARTBEAT")]
    assert lines
    names = ("requestQueueTimeMs", "localTimeMs", "remoteTimeMs", "responseQueueTimeMs", "sendTimeMs")
    for line in lines:
        assert sum(line[name] for name in names) == pytest.approx(line["totalTimeMs"])


def test_a_probe_counts_its_answers(driver):
    asked = [line["request"]["statesFilter"] for _, line in answers(driver.play(plan(5_000)), "LIST_GROUPS")]
    assert [states[0] for states in asked] == [f"probe-{n}" for n in range(1, len(asked) + 1)]
    assert len(asked) in (9, 10)


def test_a_write_that_stalls_for_longer_than_its_timeout_is_answered_15(driver):
    life = driver.play(plan(20_000, Event(900, "stall-writes", args={"for_ms": 9_000})))
    (at_ms, refused), *_ = answers(life, "SYNC_GROUP")
    assert refused["response"]["errorCode"] == 15
    assert refused["remoteTimeMs"] == pytest.approx(5_000, abs=5)
    written = [row.timestamp_ms - life.plan.start_ms for row in life.rows if row.source == "offsets"]
    assert written[1] == pytest.approx(at_ms - 5_000, abs=5), "it was written all the same"


def test_what_a_deposed_coordinator_writes_is_never_read(driver):
    move = Event(5_000, "elect", "2", {"tail": False, "late_ms": 10_000, "load_ms": 1})
    life = driver.play(
        plan(40_000, move, Event(6_000, "kill", "c1"), clock_offsets_ms=(0, 0), ranges=Ranges(replicate=(500, 500)))
    )
    expired = {event.broker: event.at_ms for event in life.truth if event.kind == "session-expired"}
    assert expired.keys() == {"broker-1", "broker-2"}
    *_, empty = [row for row in life.rows if row.source == "offsets"]
    assert empty.timestamp_ms == expired["broker-2"] != expired["broker-1"]


def test_a_broker_elected_again_first_learns_that_it_was_deposed(driver):
    """Its log was truncated in between: a coordinator that was not reloaded would be ahead of the log."""
    away = Event(5_000, "elect", "2", {"tail": False, "late_ms": 10_000, "load_ms": 1})
    back = Event(10_500, "elect", "1", {"tail": False, "late_ms": 10, "load_ms": 1})
    killed = Event(4_000, "kill", "c1")
    late = Client("c2", "classic", session_ms=6_000, heartbeat_ms=2_000)
    life = driver.play(
        plan(40_000, killed, away, back, Event(14_000, "start", "c2"), clients=(*ALONE, late), clock_offsets_ms=(0, 0))
    )
    assert life.trouble() == []
    assert [group["state"] for group in replay_rows(life.rows, settings_of(life)).groups] == ["Stable"]


def test_a_broker_that_pauses_runs_its_timers_when_it_wakes(driver):
    life = driver.play(
        plan(30_000, Event(8_000, "kill", "c1"), Event(9_000, "pause", "1"), Event(19_000, "resume", "1"))
    )
    assert logged(life, "session-expired") == [pytest.approx(19_000, abs=10)]


def test_a_leave_behind_a_parked_request_goes_with_its_connection(driver):
    """A broker reads one request of a connection at a time, and c2's JoinGroup waits for c1, which does not poll."""
    first, other = replace(ALONE[0], rebalance_ms=9_000), replace(ALONE[0], name="c2")
    befallen = (Event(4_000, "stall", "c1"), Event(5_000, "start", "c2"), Event(7_000, "close", "c2"))
    life = driver.play(plan(30_000, *befallen, clients=(first, other)))
    parked = [line for _, line in answers(life, "JOIN_GROUP") if line["requestHeader"]["clientId"] == "c2"][-1]
    assert parked["remoteTimeMs"] > 5_000
    assert [line for _, line in answers(life, "LEAVE_GROUP") if line["requestHeader"]["clientId"] == "c2"] == []


def test_clocks_of_brokers_differ_as_planned(driver):
    life = driver.play(plan(5_000, clock_offsets_ms=(0, 70_000)))
    newest = {row.key: row.timestamp_ms - life.plan.start_ms for row in life.rows if row.source == "telemetry"}
    assert newest[b"broker-2"] - newest[b"broker-1"] == pytest.approx(70_000, abs=600)


def test_a_life_is_a_capture_that_replay_reads(driver):
    life = driver.play(plan(20_000))
    history = replay_rows(life.rows, settings_of(life))
    assert history.undecodable == {}
    assert [group["state"] for group in history.groups] == ["Stable"]

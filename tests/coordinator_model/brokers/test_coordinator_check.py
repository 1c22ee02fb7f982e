"""What an answer proves of the broker that gave it: code by code, as Kafka's source has it, and what that protects."""

import pytest

from coordinator_model.brokers.coordinator_check import Proof, proof
from coordinator_model.decode.parse import parse_row
from tests.support.story import Story, stable

STALLED_WRITE_MS = 1_000
ANSWERS = {
    "heartbeat": lambda error: Story().beat(0, "m1", error=error),
    "join": lambda error: Story().join(0, "m1", 1, error=error),
    "sync": lambda error: Story().sync(0, "m1", 1, error=error),
    "leave": lambda error: Story().leave(0, "m1", error=error),
    "leave of a batch": lambda error: Story().leave(0, "m1", errors={"m1": error}),
    "KIP-848": lambda error: Story().hello(0, "m1", 1, 1 if error == 0 else 0, error=error),
}
# api -> codes that only the coordinator answers; those that it also answers while it loads
PROVEN = {
    "heartbeat": ({22, 25, 27, 82}, {0}),
    "join": ({0, 23, 25, 27, 79, 81, 82}, set()),
    "sync": ({0, 22, 25, 82}, {27}),
    "leave": ({0, 25, 82}, set()),
    "leave of a batch": ({0, 25, 82}, set()),
    "KIP-848": ({0, 23, 25, 69, 81, 82, 110, 111, 128}, set()),
}
REFUSALS = {14, 15, 16}


def event_of(api, error):
    [(_, _, row)] = ANSWERS[api](error).rows
    [event] = parse_row(row)
    return event


@pytest.mark.parametrize("error", range(-1, 140))
@pytest.mark.parametrize("api", ANSWERS)
def test_what_a_code_proves(api, error):
    coordinates, loading = PROVEN[api]
    expected = Proof.NOTHING
    if error in REFUSALS:
        expected = Proof.REFUSES
    elif error in coordinates:
        expected = Proof.COORDINATES
    elif error in loading:
        expected = Proof.LEADS
    assert proof(event_of(api, error), 0, STALLED_WRITE_MS) is expected


@pytest.mark.parametrize(("parked_ms", "expected"), [(999, Proof.REFUSES), (1_000, Proof.NOTHING)])
def test_15_behind_a_stalled_write_is_no_refusal(parked_ms, expected):
    assert proof(event_of("heartbeat", 15), parked_ms, STALLED_WRITE_MS) is expected


# who asked to join behind a stalled write: before version 1 it does not name itself -> how its expiry is reported
FIRST = {"m1": ("session-expired", "session-timeout"), "": ("member-removed", "unknown")}


@pytest.mark.parametrize("named", FIRST)
def test_the_first_write_that_times_out_shows_which_broker_coordinates(named):
    """Nothing else is answered before the session ends: the coordinator was not known, so nothing was reported."""
    story = Story().member(1_000, "m1").epoch(1_000, 2).target(1_000, 2).current(1_000, "m1", 2)
    story.hello(6_000, named, 0, 0, error=15, parked_ms=5_000).gone(7_000, "m1").epoch(7_000, 3)
    told = story.target(7_000, 3).play(9_000, consumer_session_timeouts_ms={"": 6_000})
    rule, cause = FIRST[named]
    assert told.facts(rule, "subject", "cause") == [("m1", cause)]
    assert told.group["coordinator"] == "broker-1"


@pytest.mark.parametrize("error", [24, 26, 30, 35, 42, -1])
def test_a_request_that_anybody_may_send_to_another_broker_hides_no_death(error):
    """A JoinGroup that Kafka refuses before it looks who coordinates, once a second at broker-2."""
    story = stable("m1", "m2").beats("m1", 1_000, 30_000).beats("m2", 1_000, 8_000)
    story.brokers["broker-2"] = 0
    for at_ms in range(1_200, 30_000, 1_000):
        story.join(at_ms, "stranger", 0, error=error, broker="broker-2")
    told = story.play(30_000)
    assert told.facts("session-expired", "subject", "deadline_ms", "broker") == [("m2", 14_000, "broker-1")]
    assert told.group["coordinator"] == "broker-1"


def test_a_strangers_request_hides_no_missing_coordinator():
    """Clients find no coordinator for longer than a failover; a stranger's bad JoinGroup is no coordinator's answer."""
    story = stable("m1").beats("m1", 1_000, 5_000)
    for at_ms in range(6_000, 45_000, 1_000):
        story.beat(at_ms, "m1", error=15).join(at_ms + 500, "stranger", 0, error=26)
    assert len(story.play(45_000).of("coordinator-unavailable")) == 1

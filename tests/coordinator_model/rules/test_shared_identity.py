"""Clients that cannot be told apart across a restart: one client id, as libraries set it, behind one address (NAT)."""

import pytest

from coordinator_model.incidents import diff
from tests.coordinator_model.test_incidents import AT_MS, member, opened, report
from tests.support.story import Who, consumers, rebalance, stable


def same(name, port):
    """A client as all others behind the address."""
    return Who(name, client_id="rdkafka", host="10.0.0.9", port=port)


LEADER = "m1"
A, B, C, D = (same(name, 6_000 + n) for n, name in enumerate("abcd"))


def one_dies(*clients):
    """The first of these falls silent at 10,000 and is dropped at 16,020; the others live on."""
    gone, *others = clients
    story = stable(LEADER, *clients).beats(gone.member_id, 1_000, 10_000)
    for who in (LEADER, *(o.member_id for o in others)):
        story.beats(who, 1_000, 16_000)
    rebalance(story, 16_020, 2, LEADER, *others)
    for who in (LEADER, *(o.member_id for o in others)):
        story.beats(who, 17_000, 20_000, generation=2)
    return story


def joined_by(story, *clients, until_ms=100_000):
    rebalance(story, 21_000, 3, LEADER, *clients)
    for who in (LEADER, *(c.member_id for c in clients)):
        story.beats(who, 22_000, until_ms, generation=3)
    return story.play(until_ms)


def test_the_only_one_of_its_name_has_rejoined():
    told = joined_by(one_dies(A), same("a-again", 7_000))
    assert told.closed("session-expired") == [("rejoined", 21_040)]


def test_one_that_comes_beside_others_of_its_name_is_taken_for_nobody():
    """It may be another process, as of a deployment that grows; the incident ends a minute later all the same."""
    told = joined_by(one_dies(A, B), B, same("new", 7_000))
    assert told.opened("session-expired") == ["a"]
    assert told.closed("session-expired") == [("recovered", 21_040 + 60_000)]


def test_another_of_its_name_that_restarts_is_not_taken_for_it():
    story = one_dies(A, B, C).leave(20_500, "b")
    told = joined_by(story, C, same("b-again", 7_000))
    assert told.closed("session-expired") == [("recovered", 21_040 + 60_000)]


def test_on_its_own_connection_it_is_known_among_others_of_its_name():
    told = joined_by(one_dies(A, B), B, same("a-again", A.port))
    assert told.closed("session-expired") == [("rejoined", 21_040)]


def test_those_who_have_all_gone_come_back_one_by_one():
    story = stable(LEADER, A, B).beats(LEADER, 1_000, 16_000).beats("a", 1_000, 10_000).beats("b", 1_000, 10_000)
    rebalance(story, 16_020, 2, LEADER).beats(LEADER, 17_000, 20_000, generation=2)
    told = joined_by(story, same("n1", 7_001), same("n2", 7_002))
    assert told.closed("session-expired") == [("rejoined", 21_040)] * 2


@pytest.mark.parametrize(("joined_ms", "reason"), [(None, "rejoined"), (0, None), (AT_MS, "rejoined")])
def test_an_adopted_incident_is_ended_alike(joined_ms, reason):
    """`joined_ms`: since when another of its name has been in; None: there is none."""
    pair = {"client_id": "worker", "client_host": "10.0.0.8"}
    others = [] if joined_ms is None else [member("y", joined_ms=joined_ms, **pair)]
    closings = diff([opened()], report(members=[member("x", joined_ms=AT_MS, **pair), *others]))
    assert [t.incident.reason for t in closings if t.kind == "closed"] == ([] if reason is None else [reason])


def deaths(*clients):
    """Each of these dies, one after the other within ten minutes; the rest lives on."""
    story, alive = stable(LEADER, *clients), list(clients)
    start_ms, generation = 1_000, 1
    for gone in clients[:3]:
        alive.remove(gone)
        story.beats(gone.member_id, start_ms, start_ms + 1_000, generation)
        for who in (LEADER, *(c.member_id for c in alive)):
            story.beats(who, start_ms, start_ms + 7_000, generation)
        generation, start_ms = generation + 1, start_ms + 8_000
        rebalance(story, start_ms - 980, generation, LEADER, *alive)
    return story.beats(LEADER, start_ms, start_ms + 2_000, generation).play(start_ms + 2_000)


def test_three_that_die_once_each_are_no_client_that_fails_three_times():
    told = deaths(A, B, C, D, same("e", 6_010))
    assert [(t["subject"], t["severity"]) for t in told.of("session-expired")] == [
        ("a", "warn"), ("b", "warn"), ("c", "warn"),
    ]  # fmt: skip


def test_refusals_of_all_of_one_name_are_one_incident():
    """Its subject is the client id and the address: nobody is accused who can be told apart."""
    story = stable(LEADER, session_ms=300_000)
    for n, at_ms in enumerate((5_000, 6_000, 7_000)):
        story.join(at_ms, same("", 7_000 + n), -1, error=30)
    told = story.play(9_000)
    assert told.opened("join-refused") == ["rdkafka on 10.0.0.7"]
    assert told.of("join-refused")[0]["member_id"] is None


def test_an_expiry_names_its_member_while_another_is_refused():
    """Both members have one client id and one host."""
    story = stable(LEADER, A, B).beats(LEADER, 1_000, 20_000).beats("a", 1_000, 20_000).beats("b", 1_000, 5_000)
    for at_ms in (6_000, 7_000, 8_000):
        story.beat(at_ms, "a", error=30)
    [expired] = story.play(20_000).of("session-expired")
    assert expired["subject"] == "b"
    assert "refused" not in expired["summary"]


@pytest.mark.parametrize("record_ms", [-100, 0, 100])
def test_a_client_that_has_come_back_is_not_another_of_its_name(record_ms):
    """It misses its poll three times. The record of its return is dated before, as or after the line of its return."""
    story = consumers("m1", "m2", poll_ms=5_000).hellos("m1", 1_000, 45_000, 2)
    for n in range(3):
        left_ms, back_ms, epoch = 10_000 * (n + 1), 10_000 * (n + 1) + 2_000, 4 + 2 * n
        story.hellos("m2", left_ms - 7_000, left_ms - 1_000, epoch - 2)
        story.hello(left_ms, "m2", -1, -1).gone(left_ms, "m2").epoch(left_ms, epoch - 1)
        story.hello(back_ms, "m2", 0, epoch).member(back_ms + record_ms, "m2")
        story.epoch(back_ms + record_ms, epoch).current(back_ms + record_ms, "m2", epoch)
    told = story.play(45_000)
    assert [severity for (severity,) in told.facts("poll-exceeded", "severity")] == ["warn", "warn", "page"]

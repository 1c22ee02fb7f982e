"""Rare paths of Kafka 4.3.1's `GroupMetadataManager` that the real coordinator has shown to be judged wrongly once."""

import pytest

from tests.support.story import Who, rebalance, stable


def static(name, port=5_001):
    return Who(name, instance_id="pod-1", port=port)


def test_a_static_member_that_sleeps_through_a_phase_owes_a_sync():
    """m2 is kept in generation 2 though it never asked, and owes a sync like all (``expirePendingSync``).

    Its session, which ends later, is not what removes it: the phase's end started that anew.
    """
    story = stable("m1", static("m2"), poll_ms=8_000, session_ms=10_000).beats("m1", 1_000, 4_000)
    story.beats("m2", 1_000, 4_000).join(4_500, "m3", -1, error=79, asked="").beat(5_000, "m1", error=27)
    story.join(12_600, "m1", 2, listed=["m1", static("m2"), "m3"], parked_ms=7_000)
    story.join(12_600, "m3", 2, parked_ms=8_000).record(12_650, 2, "m1", static("m2"), "m3")
    story.sync(12_700, "m1", 2, leader=True).sync(12_700, "m3", 2)
    for member in ("m1", "m3"):
        story.beats(member, 13_000, 20_000, generation=2).beat(21_000, member, generation=2, error=27)
    told = rebalance(story, 21_500, 3, "m1", "m3").beats("m1", 22_000, 26_000, generation=3).play(26_000)
    assert told.accusations == [("rebalance-timeout", "pod-1")]
    assert told.facts("rebalance-timeout", "deadline_ms") == [(20_600,)]


def test_a_static_successor_that_replaced_in_a_stable_group_owes_no_sync():
    old, new = static("old"), static("new", 5_002)
    story = stable("m1", old, poll_ms=8_000).beats("m1", 1_000, 40_000).beats("old", 1_000, 4_000)
    story.record(5_000, 1, "m1", new).join(5_004, new, 1, asked="", parked_ms=5)
    told = story.beats("new", 6_000, 40_000).play(40_000)
    assert told.accusations == []
    assert told.group["state"] == "Stable"


def test_a_death_in_a_phase_held_by_a_pending_id_is_one_incident():
    """m2's session ends at 10,000 and begins the phase; m3 was given an id at 9,800, which expires at 15,800."""
    story = stable("m1", "m2").beats("m1", 1_000, 9_900).beats("m2", 1_000, 4_000)
    story.join(9_800, "m3", -1, error=79, asked="").beat(10_400, "m1", error=27)
    story.join(15_800, "m1", 2, listed=["m1"], parked_ms=5_300).sync(15_900, "m1", 2, leader=True)
    told = story.record(15_890, 2, "m1").beats("m1", 16_500, 20_000, generation=2).play(20_000)
    assert told.accusations == [("session-expired", "m2")]
    assert told.facts("session-expired", "deadline_ms") == [(10_000,)]


def test_a_group_that_is_empty_once_an_id_expires_had_lost_its_members_before():
    """m3's id expires at 14,800, which empties the group. Another client is given an id before that is judged."""
    story = stable("m1", "m2").beats("m1", 1_000, 4_000).beats("m2", 1_000, 6_000)
    story.join(8_800, "m3", -1, error=79, asked="").record(14_800, 2).join(15_000, "m4", -1, error=79, asked="")
    assert story.play(20_000).facts("session-expired", "subject", "deadline_ms") == [("m1", 10_000), ("m2", 12_000)]


@pytest.mark.parametrize("answered_ms", [9_900, 10_990, 11_500])
def test_a_late_join_answer_does_not_prolong_the_session(answered_ms):
    """pod-1's successor comes at 5,000, so its session ends at 11,000; a stalled write holds its answer back.

    Answered after that, it is told of a membership that it has lost already, and its first heartbeat is refused.
    """
    old, new = static("old"), static("new", 5_002)
    story = stable("m1", old).beats("m1", 1_000, 11_900).beats("old", 1_000, 4_000)
    story.record(5_000, 1, "m1", new).join(answered_ms, new, 1, asked="", parked_ms=answered_ms - 5_000)
    story.beat(12_000, "m1", error=27)
    if answered_ms > 11_000:
        story.beat(12_100, "new", error=25)
    told = rebalance(story, 12_500, 2, "m1").beats("m1", 13_000, 20_000, generation=2).play(20_000)
    assert told.accusations == [("session-expired", "pod-1")]
    [(deadline_ms,)] = told.facts("session-expired", "deadline_ms")
    assert abs(deadline_ms - 11_000) <= 10

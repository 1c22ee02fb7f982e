"""The join phase's arithmetic: who missed it, whose session had ended before, and who was only replaced.

Every case is a verdict of a real broker's log that simpler rules got wrong (captures of random chaos).
"""

from dataclasses import replace

import pytest

from coordinator_model.replica.advance import conclude
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import phase_limit_ms, sync_timeout_ms
from coordinator_model.replica.removals.phases import JoinPhase, PhaseStart
from coordinator_model.states import SESSION_EXPIRED, Cause, Evidence
from coordinator_model.thresholds import Thresholds
from tests.support.story import T0, Story, Who, rebalance, stable

POLL_MS = 10_000
OLD, NEW = Who("old", instance_id="pod-1", port=5_001), Who("new", instance_id="pod-1", port=5_002)


def group(*members, m2_until_ms=8_000, m1_until_ms=8_000):
    """A stable group whose members may take 10 s to rejoin, and whose sessions last 6 s."""
    story = stable(*(members or ("m1", "m2")), poll_ms=POLL_MS).beats("m1", 1_000, m1_until_ms)
    return story.beats("m2", 1_000, m2_until_ms) if not members or "m2" in members else story


def ends(story, at_ms, *others, generation=2):
    """The join phase ends at an instant with these members; m1 is told."""
    rebalance(story, at_ms, generation, *(others or ("m1",)))
    return story.beats("m1", at_ms + 1_000, at_ms + 3_000, generation=generation).play(at_ms + 3_000)


def joins(story, at_ms, member="m3"):
    """A new member joins and waits: its JoinGroup is answered when the phase ends."""
    return story.join(at_ms, member, -1, error=79, asked="")


# ------------------------------------------------------------------------------------------------ missed or expired


def test_a_phase_timeout_just_before_a_session_end_was_missed():
    """m3's leave begins it at 9,000; m2 is told 27 until 13,050 and dropped at 19,000, 50 ms before it can expire."""
    story = group("m1", "m2", "m3").beats("m3", 1_000, 8_000).leave(9_000, "m3")
    story.beats("m2", 9_050, 13_050, error=27).beat(9_500, "m1", error=27)
    told = ends(story, 19_003)
    assert told.accusations == [("rebalance-timeout", "m2")]


def test_a_phase_whose_timer_ran_late_was_missed():
    """The machine is busy: m2 is dropped at 19,350, 300 ms before its session can have ended."""
    story = group("m1", "m2", "m3").beats("m3", 1_000, 8_000).leave(9_000, "m3")
    story.beats("m2", 9_650, 13_650, error=27).beat(9_500, "m1", error=27)
    told = ends(story, 19_350)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 19_350)]
    assert told.accusations == [("rebalance-timeout", "m2")]


# whether an id had been given out (79) -> when m2's session ended
@pytest.mark.parametrize(("given", "deadline_ms"), [(True, 15_300), (False, 10_000)])
def test_a_phase_that_a_newcomer_began_makes_no_commit_a_transactions(given, deadline_ms):
    """m2 is heard last at 4,000 and commits at 9,300. m1 is told to rejoin at 10,000, and m3 asks twice to join.

    Only the end of m2's session could begin the phase otherwise: then the commit had not restarted its timer.
    """
    m1, m2 = Who("m1", partitions=(0,), port=5_001), Who("m2", partitions=(1,), port=5_002)
    story = stable(m1, m2).beats("m1", 1_000, 9_000).beats("m2", 1_000, 4_000)
    if given:
        joins(story, 9_100)
    story.commit(9_300, "t", 1).beat(10_000, "m1", error=27).join(15_300, "m3", 2, listed=["m3", m1], parked_ms=4_700)
    story.join(15_300, m1, 2, parked_ms=4_000).record(15_350, 2, "m3", m1).sync(15_360, "m3", 2, leader=True)
    told = story.sync(15_360, "m1", 2).beats("m1", 16_000, 18_000, 2).beats("m3", 16_000, 18_000, 2).play(18_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", deadline_ms)]


def test_who_committed_after_a_deadline_had_not_expired_by_it():
    """m2 is silent from 8,000, and a commit of its partition is accepted at 18,900: it lived, and missed the phase."""
    story = group("m1", Who("m2", partitions=(9,)), "m3").beats("m2", 1_000, 8_000).beats("m3", 1_000, 8_000)
    story.leave(9_000, "m3").beat(9_500, "m1", error=27).commit(18_900, "t", 9)
    told = ends(story, 19_350)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 19_350)]
    assert told.accusations == [("rebalance-timeout", "m2")]


@pytest.mark.parametrize("again_ms", [19_450, 26_000])
def test_a_coordinator_that_refuses_after_a_phase_was_the_coordinator_as_it_ended(again_ms):
    """m2's session ends at 14,000, or at 19,500 by its commit of 13,500. Its coordinator drops it at 19,000.

    That broker answers 16 at 19,300, before the removal is judged, and coordinates again from ``again_ms`` on.
    """
    story = group("m1", Who("m2", partitions=(9,)), "m3").beats("m2", 1_000, 8_000).beats("m3", 1_000, 8_000)
    story.leave(9_000, "m3").beat(9_500, "m1", error=27).commit(13_500, "t", 9)
    rebalance(story, 19_000, 2, "m1").beat(19_300, "m1", 2, error=16).beats("m1", again_ms, 28_000, 2)
    told = story.play(28_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 19_000)]
    assert told.accusations == [("rebalance-timeout", "m2")]


@pytest.mark.parametrize("heard_ms", [8_000, 12_985])
def test_a_commit_shows_who_lived_as_a_phase_that_began_unseen_timed_out(heard_ms):
    """m3's first JoinGroup begins it at 9,003. It has no line, because m3 asks once more, at 13,000.

    If m2's commit of 13,400 were a transaction's, the end of its session would have ended the phase, 18 ms earlier or
    more.
    """
    story = joins(group("m1", Who("m2", partitions=(9,))).beats("m2", 1_000, 8_000), 8_900).beat(9_500, "m1", error=27)
    if heard_ms > 9_500:
        story.beat(heard_ms, "m2", error=27)
    story.commit(13_400, "t", 9).join(19_003, "m1", 2, listed=["m1", "m3"], parked_ms=9_000)
    story.join(19_003, "m3", 2, parked_ms=6_003).record(19_010, 2, "m1", "m3").sync(19_020, "m1", 2, leader=True)
    told = story.sync(19_020, "m3", 2).beats("m1", 20_000, 23_000, 2).beats("m3", 20_000, 23_000, 2).play(23_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 19_003)]
    assert told.accusations == [("rebalance-timeout", "m2")]


def test_who_comes_into_a_phase_with_a_longer_timeout_does_not_prolong_it():
    """The coordinator took the longest timeout as the phase began, at 9,000; m3, with a minute, came later."""
    story = group("m1", "m2", "m4", m1_until_ms=8_000).beats("m4", 1_000, 8_000).leave(9_000, "m4")
    story.beats("m2", 9_050, 18_050, error=27).beat(9_500, "m1", error=27)
    story.poll_ms = 60_000
    story.join(19_003, "m3", 2, parked_ms=5_000)
    story.poll_ms = POLL_MS
    told = ends(story, 19_003, "m1", "m3")
    assert told.accusations == [("rebalance-timeout", "m2")]


def test_a_later_joiner_answered_first_does_not_prolong_the_phase():
    """m3 begins it at 9,003; pod-1, with a minute, came at 9,303, before any other sign of it."""
    story = group("m1", "m2").beat(9_500, "m1", error=27).beats("m2", 9_550, 18_550, error=27)
    story.poll_ms = 60_000
    story.join(19_003, NEW, 2, listed=["m1", "m3", NEW], asked="", parked_ms=9_700)
    story.poll_ms = POLL_MS
    told = ends(story.join(19_003, "m3", 2, parked_ms=10_000), 19_003, "m1", "m3", NEW)
    assert told.accusations == [("rebalance-timeout", "m2")]


def test_who_is_known_before_a_phase_ends_but_came_into_it_does_not_prolong_it():
    """A newcomer as pod-1, with a minute, was replaced in turn while it waited, and so answered at once."""
    between, last = Who("between", instance_id="pod-1", port=5_008), Who("last", instance_id="pod-1", port=5_009)
    story = group("m1", "m2", "m4", OLD).beats("m4", 1_000, 8_000).beats("old", 1_000, 8_000).leave(9_000, "m4")
    story.beats("m2", 9_050, 18_050, error=27).beat(9_500, "m1", error=27)
    story.poll_ms = 60_000
    story.join(9_900, between, -1, error=82, asked="", parked_ms=600)
    story.poll_ms = POLL_MS
    story.join(19_003, "m1", 2, listed=["m1", last], parked_ms=9_400)
    told = ends(story.join(19_003, last, 2, asked="", parked_ms=9_103), 19_003, "m1", last)
    assert told.accusations == [("rebalance-timeout", "m2")]


def test_the_timeout_of_a_member_that_leaves_counts_for_its_join_phase():
    """m4, with 30 s, leaves at 21,000 and so ends it: m2, whose session ended at 14,000, missed nothing at 19,000."""
    story = group("m1", "m2", "m3").beats("m3", 1_000, 3_000)
    story.poll_ms = 30_000
    story.join(200, "m4", 1).beats("m4", 1_000, 8_000)
    story.poll_ms = POLL_MS
    story.beats("m4", 9_100, 20_100, error=27).leave(21_000, "m4")
    story.join(21_003, "m1", 2, listed=["m1"], parked_ms=11_900).record(21_010, 2, "m1")
    told = story.beats("m1", 22_000, 24_000, generation=2).play(24_000)
    assert sorted(told.accusations) == [("session-expired", "m2"), ("session-expired", "m3")]


def test_a_record_with_members_that_no_join_group_shows_dates_no_end_of_a_session():
    """All JoinGroup lines are lost. The session of pod-1 ended at 9,000, which began the phase. m1's ended it."""
    story = group("m1", OLD).beats("old", 1_000, 3_000).beat(9_050, "m1", error=27)
    story.record(12_000, 2, "m1").sync(12_003, "m1", 2, leader=True)
    told = story.beats("m1", 13_000, 18_000, generation=2).play(18_000)
    assert told.facts("session-expired", "subject", "deadline_ms", "evidence") == [("pod-1", 9_000, "observed")]


def test_whose_session_ended_as_the_phase_began_does_not_prolong_it():
    """m4, with a minute, expires at 9,000, which begins it: the others have until 19,000."""
    story = group("m1", "m2")
    story.poll_ms = 60_000
    story.join(200, "m4", 1).beats("m4", 1_000, 3_000)
    story.poll_ms = POLL_MS
    story.beat(9_000, "m1", error=27).beats("m2", 9_050, 18_050, error=27)
    assert sorted(ends(story, 19_003).accusations) == [("rebalance-timeout", "m2"), ("session-expired", "m4")]


def test_a_heartbeat_behind_a_stall_shows_who_was_in_as_the_phase_began():
    """m4, with a minute, expires at 9,000, which begins it: m2's heartbeats of 8,000 and 13,900 are answered 15."""
    story = group("m1", "m2", m1_until_ms=5_000, m2_until_ms=2_000).beat(2_800, "m2")
    story.poll_ms = 60_000
    story.join(200, "m4", 1).beats("m4", 1_000, 3_000)
    story.poll_ms = POLL_MS
    for answered_ms in (13_000, 18_900):
        story.beat(answered_ms, "m2", error=15, parked_ms=5_000)
    rebalance(story.beat(9_050, "m1", error=27), 19_003, 2, "m1")
    told = story.beats("m1", 20_000, 26_000, generation=2).play(26_000)
    assert sorted(told.accusations) == [("rebalance-timeout", "m2"), ("session-expired", "m4")]


def test_who_was_replaced_before_a_phase_did_not_begin_it():
    """m4, with a minute, expires at 9,000, which begins it. A commit of what old held came 6 s before 8,500."""
    story = group("m1", "m2", Who("old", instance_id="pod-1", partitions=(0,)))
    story.poll_ms = 60_000
    story.join(200, "m4", 1).beats("m4", 1_000, 3_000)
    story.poll_ms = POLL_MS
    story.join(2_000, NEW, 1, asked="").commit(2_500, "t", 0).beats("new", 3_000, 8_000)
    story.beat(9_000, "m1", error=27).beats("m2", 9_050, 18_050, error=27).beats("new", 9_050, 18_050, error=27)
    told = ends(story, 19_003, "m1", NEW)
    assert sorted(told.accusations) == [("rebalance-timeout", "m2"), ("session-expired", "m4")]


def test_a_join_right_after_an_expiry_does_not_prolong_the_phase():
    """m4's expiry at 9,000 begins it; m3, with a minute, asks to join at 9,100, before any other sign of it."""
    story = group("m1", "m2", "m4").beats("m4", 1_000, 3_000).beat(9_500, "m1", error=27)
    story.beats("m2", 9_550, 18_550, error=27)
    story.poll_ms = 60_000
    told = ends(story.join(19_003, "m3", 2, listed=["m1", "m3"], parked_ms=9_903), 19_003, "m1", "m3")
    assert sorted(told.accusations) == [("rebalance-timeout", "m2"), ("session-expired", "m4")]


@pytest.mark.parametrize(("newcomer", "asked"), [("m3", "m3"), (Who("", instance_id="pod-9"), "")])
def test_a_refused_newcomer_that_began_the_phase_set_its_timeout(newcomer, asked):
    """With 400 s, it asks to join at 9,003 and is refused five minutes later: the phase goes on to 409,003, for m2.

    A static one has no id until it is let in.
    """
    story = stable(OLD, "m2", poll_ms=POLL_MS).beats("old", 1_000, 8_000).beats("m2", 1_000, 8_000)
    joins(story, 9_000).beats("m2", 9_550, 408_550, error=27, every_ms=3_000)
    story.poll_ms = 400_000
    story.join(309_003, newcomer, -1, error=25, asked=asked, parked_ms=300_000)
    told = joins(story, 309_100, "m4").join(409_004, "m4", 2, listed=["m4"], parked_ms=99_900)
    told = told.record(409_010, 2, "m4").beats("m4", 410_000, 412_000, generation=2).play(412_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 409_004)]
    assert told.facts("session-expired", "subject", "deadline_ms") == [("pod-1", 14_000)]


def test_a_join_phase_shows_by_when_it_ends():
    """From its first sign, the leave, by the longest rebalance timeout; no longer once it is over."""
    story = group("m1", "m2", "m3").leave(9_000, "m3").beat(9_500, "m1", error=27)
    assert story.play(9_800).group["join_deadline_ms"] == T0 + 9_000 + POLL_MS
    assert ends(story, 11_000, "m1", "m2").group["join_deadline_ms"] is None


def test_the_only_member_that_a_phase_waited_for_missed_it():
    """m2's session seems to end before, but that would have ended the phase: its last heartbeat was never answered."""
    story = group("m1", "m2", "m3").beats("m3", 1_000, 8_000).leave(9_000, "m3").beat(9_500, "m1", error=27)
    told = ends(story, 19_003)
    assert told.accusations == [("rebalance-timeout", "m2")]


def test_of_those_dropped_at_the_timeout_only_the_last_to_expire_was_waited_for():
    """m2's session had ended at 12,000, m3's lasted till 15,000: m3 was waited for, m2 had expired."""
    story = group("m1", "m2", "m3", "m4", m2_until_ms=6_000).beats("m3", 1_000, 9_000).beats("m4", 1_000, 8_000)
    story.leave(9_000, "m4").beat(9_500, "m1", error=27)
    told = ends(story, 19_003)
    assert sorted(told.accusations) == [("rebalance-timeout", "m3"), ("session-expired", "m2")]


def test_of_those_dropped_at_the_timeout_one_had_expired_a_third_of_a_second_before():
    """m2's session ends at 18,700, m4's would at 20,000: the phase waited for m4 until 19,000."""
    story = group("m1", "m2", "m3", "m4").beats("m3", 1_000, 8_000).beats("m4", 1_000, 8_000).leave(9_000, "m3")
    story.beats("m2", 9_700, 12_700, error=27).beats("m4", 10_000, 14_000, error=27).beat(9_500, "m1", error=27)
    told = ends(story, 19_003)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 18_700)]
    assert told.opened("rebalance-timeout") == ["m4"]


@pytest.mark.parametrize(
    ("asked_ms", "rule"), [(18_000, "rebalance-timeout"), (18_900, "session-expired"), (19_340, "session-expired")]
)
def test_a_phase_that_outlives_the_last_join_was_missed_though_its_timer_ran_late(asked_ms, rule):
    """It can last until 19,000 and ends at 19,370. Had m2 expired, at 17,500, then m1's JoinGroup would have ended it.

    Unless that came less than a grace before its end: a busy coordinator may have read it late.
    """
    story = group("m1", "m2", "m3").beats("m3", 1_000, 8_000).leave(9_000, "m3").beat(9_500, "m1", error=27)
    story.beats("m2", 9_500, 11_500, error=27)
    story.join(19_370, "m1", 2, listed=["m1"], parked_ms=19_370 - asked_ms).record(19_380, 2, "m1")
    story.sync(19_390, "m1", 2, leader=True).beats("m1", 20_000, 22_000, generation=2)
    assert story.play(22_000).accusations == [(rule, "m2")]


def test_who_may_have_lived_as_the_timer_ran_late_missed_the_phase():
    """m2's last 27 gives it until 16,000, a commit of its partition, be it its own, until 21,000; dropped at 19,350."""
    story = group("m1", Who("m2", partitions=(9,)), "m3").beats("m2", 1_000, 8_000).beats("m3", 1_000, 8_000)
    story.leave(9_000, "m3").beat(9_500, "m1", error=27).beat(10_000, "m2", error=27).commit(15_000, "t", 9)
    told = ends(story, 19_350)
    assert told.accusations == [("rebalance-timeout", "m2")]


STALLED = {
    "its line comes within the grace": (14_200, 8_000),
    "its line comes later, and a stall is known": (15_100, 15_000),
}


@pytest.mark.parametrize("name", STALLED)
def test_a_heartbeat_parked_until_its_members_removal_shows_life(name):
    """m2's answers give it until 18,500, m4's until 20,900; m2 asked again, and the answer, 15, came after 19,003."""
    asked_ms, known_ms = STALLED[name]
    story = group("m1", "m2", "m3", "m4").beats("m3", 1_000, 8_000).leave(9_000, "m3").beat(9_500, "m1", error=27)
    story.beats("m4", 1_000, 8_000).beats("m4", 9_900, 14_900, error=27)
    story.beats("m2", 9_500, 12_500, error=27).beat(asked_ms + 5_000, "m2", error=15, parked_ms=5_000)
    story.beat(known_ms, "m1", error=15, parked_ms=5_000)
    rebalance(story, 19_003, 2, "m1").beats("m1", 20_000, 26_000, generation=2)
    assert sorted(story.play(26_000).accusations) == [("rebalance-timeout", "m2"), ("rebalance-timeout", "m4")]


def test_a_parked_heartbeat_that_is_answered_after_the_verdict_shows_life_too():
    """m2 alone is stable, and no heartbeat of it is seen; m3 joins at 1,000. m2's commit gives it until 9,000.

    Its heartbeat of 7,000 is answered 15 at 12,000. By then the phase has ended, at 11,000, and the grace has passed.
    """
    story = stable(Who("m2", partitions=(9,)), poll_ms=POLL_MS).commit(3_000, "t", 9)
    joins(story, 900).beat(12_000, "m2", error=15, parked_ms=5_000)
    story.join(11_003, "m3", 2, listed=["m3"], parked_ms=10_000).record(11_100, 2, "m3")
    story.sync(11_110, "m3", 2, leader=True).beats("m3", 13_000, 20_000, generation=2)
    assert story.play(11_900).accusations == []
    told = story.play(20_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 11_003)]
    assert told.accusations == [("rebalance-timeout", "m2")]


def test_a_generation_whose_answers_were_all_lost_ended_the_phase_before_it():
    """m3's JoinGroup, answered 15, begins it at 9,000; generation 2 is m3's alone, of which nothing is told."""
    story = group().join(14_000, "m3", -1, error=15, parked_ms=5_000)
    story.beats("m1", 10_000, 14_000, error=27).beats("m2", 10_500, 13_500, error=27)
    story.join(27_000, "m4", 3, listed=["m4"], parked_ms=4_000).record(27_010, 3, "m4")
    told = story.sync(27_020, "m4", 3, leader=True).beats("m4", 28_000, 34_000, generation=3).play(34_000)
    assert sorted(told.facts("rebalance-timeout", "subject", "deadline_ms")) == [("m1", 19_000), ("m2", 19_000)]
    assert told.opened("session-expired") == []


def unreported(*others, asked_ms=9_000, told_ms=19_700):
    """Generation 2 leaves m2 behind at 19,002; its list of members is lost with m3's answer, 3 has the next.

    m2's session would have ended at 19,400.
    """
    story = group("m1", "m2", "m3", *others).beats("m3", 1_000, 8_000).beats("m2", 9_400, 13_400, error=27)
    story.join(asked_ms + 5_000, "m3", -1, error=15, parked_ms=5_000).beats("m1", 9_500, 10_500, error=27)
    story.join(19_002, "m1", 2, leader="m3", parked_ms=8_000)
    story.join(19_100, "m3", -1, error=27).beat(19_200, "m1", 2, error=27)
    story.join(told_ms, "m1", 3, listed=["m1", "m3"]).join(told_ms, "m3", 3)
    for member in ("m1", "m3"):
        story.beats(member, told_ms + 500, told_ms + 8_500, generation=3)
    return story


def test_who_missed_an_unreported_phase_is_known_by_the_next_list():
    told = unreported().play(28_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 19_002)]
    assert told.accusations == [("rebalance-timeout", "m2")]


@pytest.mark.parametrize(("until_ms", "missed"), [(3_000, True), (3_300, False)])
def test_an_unreported_phase_may_have_begun_before_its_first_sign(until_ms, missed):
    """m4's session ended at 9,000, a timeout before the phase did; if it ended at 9,300, the phase was too short."""
    story = unreported("m4", asked_ms=10_500).beats("m4", until_ms - 2_000, until_ms)
    accused = story.play(28_000).facts("rebalance-timeout", "subject", "deadline_ms")
    assert accused == ([("m2", 19_002)] if missed else [])


def test_a_newcomer_whose_answer_was_lost_set_the_timeout_of_the_phase_that_it_began():
    """With 12 s, it begins the phase at 9,000. Only generation 2's answer to m1 names it, and it leaves m2 behind."""
    newcomer = Who("app-1", client_id="app", port=5_060, poll_ms=12_000)
    story = group().beats("m2", 9_400, 16_400, error=27).beats("m1", 9_500, 10_500, error=27)
    story.join(14_000, newcomer, -1, asked="", error=15, parked_ms=5_000, version=3)
    story.join(21_002, "m1", 2, leader="app-1", parked_ms=10_000).beat(21_200, "m1", 2, error=27)
    told = story.join(21_900, "m1", 3, listed=["m1", newcomer]).beats("m1", 22_400, 28_400, generation=3).play(28_400)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 21_002)]


# when m2's leave is answered 25, how -> who is accused of what
UNKNOWN = {
    "soon after the phase": (19_500, {}, [("rebalance-timeout", "m2")]),
    "when its session would have ended by then": (25_100, {}, []),
    "by another broker": (19_500, {"broker": "broker-2"}, []),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_who_is_unknown_as_it_leaves_soon_after_a_phase_is_not_in_its_generation(name):
    """m2 misses the phase from 9,000. Its leader, m1, was killed, so no list of members is seen."""
    at_ms, how, accused = UNKNOWN[name]
    story = group(m1_until_ms=8_000, m2_until_ms=8_000).beats("m2", 9_500, 13_500, error=27)
    joins(story, 8_990).join(14_100, "m1", -1, error=15, parked_ms=5_000)
    story.join(19_002, "m3", 2, leader="m1", parked_ms=10_002).leave(at_ms, "m2", errors={"m2": 25}, **how)
    assert story.play(26_000).accusations == accused


def patient(member, poll_ms, order):
    """A stable group of m1, m3 and the others in this order, one of whom may take longer to rejoin than 10 s."""
    longer = Who(member, client_id=f"client-{member}", port=5_060, poll_ms=poll_ms)
    return stable("m1", "m3", *(longer if name == member else name for name in order), poll_ms=POLL_MS)


@pytest.mark.parametrize("order", [("m2", "m4"), ("m4", "m2")])
def test_whom_an_unreported_phase_dropped_does_not_prolong_the_next(order):
    """m2, with 20 s, is left behind at 29,002; m4 misses the next phase, of 10 s, at 39,205."""
    story = patient("m2", 20_000, order)
    for member in ("m1", "m2", "m4"):
        story.beats(member, 1_000, 8_000).beats(member, 9_500, 27_500 if member == "m2" else 10_500, error=27)
    story.join(14_000, "m3", -1, error=15, parked_ms=5_000)
    story.join(29_002, "m1", 2, leader="m3", parked_ms=18_002).join(29_002, "m4", 2, leader="m3", parked_ms=18_002)
    story.beat(29_202, "m1", 2, error=27).beats("m4", 29_252, 38_800, generation=2, error=27)
    story.join(39_205, "m1", 3, listed=["m1", "m3"], parked_ms=9_000).join(39_205, "m3", 3, parked_ms=9_500)
    for member in ("m1", "m3"):
        story.beats(member, 39_700, 47_700, generation=3)
    accused = story.play(47_700).facts("rebalance-timeout", "subject", "deadline_ms")
    assert sorted(accused) == [("m2", 29_002), ("m4", 39_205)]


@pytest.mark.parametrize("first", [True, False])
def test_an_unreported_phase_may_have_waited_for_a_static_member(first):
    """pod-1 joins only generation 3, told before or after its list; m2's session had ended at 16,400."""
    story = (
        stable("m1", "m2", "m3", OLD, poll_ms=POLL_MS).beats("m2", 1_000, 8_000).beats("m2", 9_400, 10_400, error=27)
    )
    for member, until_ms in (("m1", 10_600), ("old", 18_600)):
        story.beats(member, 1_000, 8_000).beats(member, 9_600, until_ms, error=27)
    story.join(14_000, "m3", -1, error=15, parked_ms=5_000).join(19_002, "m1", 2, leader="m3", parked_ms=8_000)
    story.beat(19_200, "m1", 2, error=27)
    for told in ("old", "m1") if first else ("m1", "old"):
        story.join(19_700, told, 3, listed=["m1", "m3", "old"] if told == "m1" else ())
    story.join(19_700, "m3", 3)
    for member in ("m1", "m3", "old"):
        story.beats(member, 20_200, 28_200, generation=3)
    assert story.play(28_200).facts("session-expired", "subject", "deadline_ms") == [("m2", 16_400)]
    assert story.play(28_200).accusations == [("session-expired", "m2")]


@pytest.mark.parametrize("end_ms", [19_003, 19_350])
def test_a_list_told_after_the_next_phases_first_sign_is_of_the_phase_before(end_ms):
    """m2 misses the phase from 9,000, the second time by a late timer; m4 leaves before the leader's line comes."""
    story = stable("m1", "m2", "m3", "m4", "m5", poll_ms=POLL_MS).leave(9_000, "m3")
    for member in ("m1", "m2", "m4", "m5"):
        story.beats(member, 1_000, 8_000).beats(member, 9_400, end_ms - 600 if member == "m2" else 9_900, error=27)
    for member in ("m5", "m4"):
        story.join(end_ms, member, 2, leader="m1", parked_ms=end_ms - 10_000)
    story.leave(end_ms + 2, "m4").join(end_ms + 6, "m1", 2, listed=["m1", "m4", "m5"], parked_ms=end_ms - 10_000)
    rebalance(story, end_ms + 500, 3, "m1", "m5")
    for member in ("m1", "m5"):
        story.beats(member, end_ms + 1_000, end_ms + 9_000, generation=3)
    told = story.play(end_ms + 9_000)
    assert told.accusations == [("rebalance-timeout", "m2")]
    assert abs(told.facts("rebalance-timeout", "deadline_ms")[0][0] - end_ms) <= 10


@pytest.mark.parametrize("order", [("m2", "m4"), ("m4", "m2")])
def test_who_was_in_an_unreported_phase_may_have_prolonged_it(order):
    """m4, with a minute, is in generation 2 and dies; so its phase of 10 s was no timeout, whoever is dropped first."""
    story = patient("m4", 60_000, order)
    story.beats("m1", 1_000, 8_000).beats("m4", 1_000, 8_000).beats("m2", 1_000, 8_000)
    story.beats("m2", 9_400, 13_400, error=27).join(14_000, "m3", -1, error=15, parked_ms=5_000)
    story.beats("m4", 9_500, 18_500, error=27).beats("m1", 9_500, 10_500, error=27)
    story.join(19_002, "m1", 2, leader="m3", parked_ms=8_000)
    story.poll_ms = 60_000
    story.join(19_002, "m4", 2, leader="m3", parked_ms=20)
    story.poll_ms = POLL_MS
    story.join(19_100, "m3", -1, error=27).beat(19_200, "m1", 2, error=27)
    story.join(25_300, "m1", 3, listed=["m1", "m3"]).join(25_300, "m3", 3)
    for member in ("m1", "m3"):
        story.beats(member, 25_500, 34_000, generation=3)
    told = story.play(34_000)
    assert ("m2", 19_002) not in told.facts("rebalance-timeout", "subject", "deadline_ms")


NOT_LEFT_BEHIND = {
    "it asked too, and its answer was lost": lambda: unreported().join(18_400, "m2", -1, error=15, parked_ms=5_000),
    "it was heard after the phase": lambda: unreported(told_ms=25_500).beat(19_300, "m2", 2, error=27),
    "the phase was younger than its timeout": lambda: unreported(asked_ms=13_000),
    "the broker was restarted since": lambda: unreported(told_ms=25_500).silent(19_210, 24_000, restart=True),
    "lines were lost since": lambda: unreported().lose(19_050),
    "it left as it was told, and its line trails": lambda: unreported().leave(19_710, "m2"),
}


@pytest.mark.parametrize("name", NOT_LEFT_BEHIND)
def test_an_unreported_phase_accuses_nobody_it_may_have_kept(name):
    """No answer lists its generation, and in each case m2 need not have missed it."""
    told = NOT_LEFT_BEHIND[name]().play(34_000)
    assert ("m2", 19_002) not in told.facts("rebalance-timeout", "subject", "deadline_ms")


def test_a_session_that_ended_a_moment_before_the_timeout_ended_the_phase():
    """m2 beats 27 until 12,960: its session ends at 18,960, and with it the phase that could last till 19,000."""
    story = group("m1", "m2", "m3").beats("m3", 1_000, 8_000).leave(9_000, "m3").beat(9_500, "m1", error=27)
    told = ends(story.beats("m2", 9_960, 12_960, error=27), 18_992)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 18_960)]


def test_an_expiry_2_ms_before_the_timeout_ended_the_phase():
    story = group("m1", "m2", "m3").beats("m3", 1_000, 8_000).leave(9_000, "m3").beat(9_500, "m1", error=27)
    told = ends(story.beats("m2", 9_998, 12_998, error=27), 18_998)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 18_998)]


@pytest.mark.parametrize(("heard_ms", "rule"), [(12_991, "session-expired"), (12_999, "rebalance-timeout")])
def test_a_session_due_9_ms_before_a_timeout_that_ran_in_time_ended_first(heard_ms, rule):
    """m4 lives and misses the phase, which ends as it was due: timers ran in time, so m2's session ended first."""
    story = group("m1", "m2", "m3", "m4").beats("m3", 1_000, 8_000).leave(9_000, "m3").beat(9_500, "m1", error=27)
    story.beats("m2", heard_ms - 3_000, heard_ms, error=27)
    story.beats("m4", 1_000, 8_000).beats("m4", 9_550, 18_550, error=27)
    told = ends(story, 19_000)
    assert sorted(told.accusations) == sorted([(rule, "m2"), ("rebalance-timeout", "m4")])


def test_of_two_sessions_that_end_at_once_the_second_is_still_in_as_the_phase_begins():
    """m3's end begins it at 9,000, m4 has a minute: m2, whose session ends at 24,050, missed nothing at 19,000."""
    story = stable("m1", "m2", OLD, poll_ms=POLL_MS)
    story.poll_ms = 60_000
    for member in ("m3", "m4"):
        story.join(200, member, 1).beats(member, 1_000, 3_000)
    story.poll_ms = POLL_MS
    for member in ("m1", "m2", "old"):
        story.beats(member, 1_000, 8_000).beats(member, 9_050, 18_050, error=27)
    told = ends(story.beats("m1", 19_050, 23_050, error=27), 24_060, "m1", "old")
    assert ("m2", 24_050) in told.facts("session-expired", "subject", "deadline_ms")


def test_a_phase_younger_than_its_timeout_cannot_have_been_missed():
    """m2's leave was never seen: neither its session had ended nor the phase."""
    story = group().beat(9_000, "m1", error=27)
    assert ends(story, 12_000).accusations == []


@pytest.mark.parametrize(("ends_ms", "told"), [(18_300, [("rebalance-timeout", "m2")]), (17_000, [])])
def test_a_phase_may_have_begun_one_timeout_before_its_end_and_before_its_first_sign(ends_ms, told):
    """A JoinGroup of m1 begins it at 8,300, and has no line: m1 asks again. The newcomer, with a minute, did not."""
    story = group().beats("m2", 9_400, ends_ms - 900, error=27)
    newcomer = Who("m3", port=5_060, poll_ms=60_000)
    joins(story, 8_100, newcomer).join(ends_ms, newcomer, 2, parked_ms=ends_ms - 8_700)
    assert ends(story, ends_ms, "m1", newcomer).accusations == told


def test_the_deadline_of_one_whom_the_phase_lost_is_its_start():
    """m3 expires at 9,000, nobody tells before m1's 27 at 10,400: 19,000 is the timeout to the millisecond."""
    story = group("m1", "m2", "m3", m2_until_ms=9_400).beats("m3", 1_000, 3_000)
    story.beat(10_400, "m1", error=27).beats("m2", 10_400, 13_400, error=27)
    told = ends(story, 19_002)
    assert sorted(told.accusations) == [("rebalance-timeout", "m2"), ("session-expired", "m3")]


def test_a_leave_shortly_before_the_timeout_ends_the_phase_and_proves_no_timeout():
    """The newcomer's join of 9,000 makes 19,000 the timeout; m3 leaves at 18,900, and m2 had expired at 14,000."""
    story = group("m1", "m2", "m3").beats("m3", 1_000, 8_000)
    joins(story, 9_000, "m4").beat(9_500, "m1", error=27).beats("m3", 9_500, 18_500, error=27).leave(18_900, "m3")
    story.join(18_901, "m4", 2, parked_ms=9_900)
    told = ends(story, 18_901, "m1", "m4")
    assert told.accusations == [("session-expired", "m2")]


def test_a_join_whose_answer_was_lost_behind_a_stalled_write_starts_the_phase():
    """m3's JoinGroup arrived at 9,000, was applied, and answered 15 at 14,000; m2 beats until 13,100."""
    story = group().join(14_000, "m3", -1, error=15, parked_ms=5_000).beats("m2", 9_100, 13_100, error=27)
    told = ends(story, 19_010)
    assert told.accusations == [("rebalance-timeout", "m2")]


# which lines and records come -> who is told to have missed its sync, and by when
SYNCS = {
    "only the leader's SyncGroup is seen": (lambda story: story.sync(9_550, "m1", 2, leader=True), [("m2", 19_500)]),
    "the member's SyncGroup of the generation before is answered 27": (
        lambda story: story.sync(9_300, "m2", 1, error=27).sync(9_550, "m1", 2, leader=True),
        [("m2", 19_500)],
    ),
    "the member's SyncGroup of the generation before is accepted": (
        lambda story: story.sync(8_900, "m2", 1).sync(9_550, "m1", 2, leader=True),
        [("m2", 19_500)],
    ),
    "none is seen, though the record shows the leader's": (lambda story: story, []),
    "a partition of the member is committed": (
        lambda story: story.sync(9_550, "m1", 2, leader=True).commit(12_000, "t", 0),
        [],
    ),
    "a partition of the leader is committed": (
        lambda story: story.sync(9_550, "m1", 2, leader=True).commit(12_000, "t", 1),
        [("m2", 19_500)],
    ),
}


@pytest.mark.parametrize("name", SYNCS)
def test_who_joined_and_never_synced_is_due_one_rebalance_timeout_after_the_join(name):
    adds, missed = SYNCS[name]
    story = group(Who("m1", partitions=(1,)), Who("m2", port=5_001, partitions=(0,))).beats("m2", 1_000, 8_000)
    story.beat(9_000, "m1", error=27)
    story.join(9_500, "m1", 2, listed=["m1", "m2"]).join(9_500, "m2", 2).record(9_540, 2, "m1", "m2")
    adds(story).beats("m1", 10_000, 19_000, generation=2)
    story.beats("m2", 10_000, 19_000, generation=2).beat(20_000, "m1", 2, error=27)
    told = ends(story, 20_300, generation=3)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == missed


@pytest.mark.parametrize("joined_ms", [80, 400])
def test_a_leader_whose_sync_is_dated_before_its_join_has_synced(joined_ms):
    """Dates may be inexact. m1 has 5 s to sync, is heard last at 4,000, and expires at 10,000."""
    story = Story(poll_ms=5_000).join(joined_ms, "m1", 1, listed=["m1"]).sync(90, "m1", 1, leader=True)
    told = story.record(95, 1, "m1").beats("m1", 1_000, 4_000).record(10_000, 2).play(12_000)
    assert told.accusations == [("session-expired", "m1")]


def syncs_without_m3(*, m3_until_ms):
    """m3, which may take 30 s where others may take 10, joins generation 2 at 10,000 and never syncs."""
    story = group().beat(9_500, "m1", error=27).beat(9_500, "m2", error=27)
    story.join(10_000, "m1", 2, listed=["m1", "m2", "m3"]).join(10_000, "m2", 2)
    story.poll_ms = 30_000
    story.join(10_000, "m3", 2, parked_ms=1_000)
    story.poll_ms = POLL_MS
    story.sync(10_050, "m1", 2, leader=True).sync(10_050, "m2", 2)
    for member, until_ms in (("m1", 37_000), ("m2", 37_000), ("m3", m3_until_ms)):
        story.beats(member, 11_000, until_ms, generation=2)
    return story


def test_a_leave_that_ended_the_phase_begins_no_other_one():
    """m3's leave of 12,000 is read after an answer it led to. m2 leads, does not sync, and is dropped at 22,000."""
    story = group("m1", Who("m2", session_ms=20_000), "m3", m1_until_ms=9_000).beats("m2", 1_000, 8_000)
    story.beats("m3", 1_000, 8_000).beat(9_500, "m3", error=27)
    story.join(12_000, "m1", 2, leader="m2", parked_ms=2_700).leave(12_000, "m3")
    story.join(12_000, "m2", 2, listed=["m2", "m1"], parked_ms=2_500)
    story.sync(22_000, "m1", 2, error=27, parked_ms=9_950)
    rebalance(story, 22_060, 3, "m1").beats("m1", 23_000, 26_000, generation=3)
    assert story.play(26_000).facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 22_000)]


def test_a_late_answer_of_a_generation_does_not_undo_a_leave_from_it():
    """m1 leads and leaves at once, lines are lost, and m2 and m3, which waited with m1, are answered last."""
    story = group("m1", "m2", "m3").beats("m3", 1_000, 8_000).beat(9_300, "m2", error=27)
    story.join(10_000, "m1", 2, listed=["m1", "m2", "m3"], parked_ms=500).leave(10_010, "m1").lose(10_020)
    story.join(10_025, "m2", 2, parked_ms=600).join(10_025, "m3", 2, parked_ms=600)
    rebalance(story, 10_600, 3, "m2", "m3").beats("m2", 11_000, 20_000, 3).beats("m3", 11_000, 20_000, 3)
    told = story.play(20_000)
    assert (told.accusations, told.opened("member-removed")) == ([], [])


def test_an_expiry_that_ended_the_phase_before_excuses_no_sync():
    """m3 expires at 14,000 and ends the phase. m2 leads, but its answer is lost, and it never syncs."""
    story = group("m1", Who("m2", session_ms=20_000), "m3", m1_until_ms=9_000).beats("m2", 1_000, 8_000)
    story.beats("m3", 1_000, 8_000).beat(9_500, "m1", error=27)
    story.join(14_000, "m1", 2, leader="m2", parked_ms=4_400)
    story.sync(24_000, "m1", 2, error=27, parked_ms=9_950)
    rebalance(story, 24_060, 3, "m1").beats("m1", 25_000, 28_000, generation=3)
    told = story.play(28_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 24_000)]
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m3", 14_000)]


def test_an_expiry_before_the_sync_timeout_excuses_the_sync():
    """It begins a join phase: m1, the leader, would have had until 20,000; m2 expired at 18,000, and m1 at 21,500."""
    story = group().beat(9_500, "m1", error=27).beat(9_500, "m2", error=27)
    story.join(10_000, "m1", 2, listed=["m1", "m2"]).join(10_000, "m2", 2)
    story.beats("m1", 11_500, 15_500, generation=2).beats("m2", 11_000, 12_000, generation=2)
    told = story.record(21_503, 3).play(24_000)
    assert told.accusations == [("session-expired", "m1"), ("session-expired", "m2")]


def test_who_missed_the_sync_does_not_prolong_the_phase_that_this_begins():
    """m3's time is over at 40,000, seen at 40,100; m2 has 10 s from then on to rejoin."""
    story = syncs_without_m3(m3_until_ms=39_000).beats("m1", 38_000, 39_000, 2).beats("m2", 38_000, 39_000, 2)
    story.beats("m2", 40_100, 49_100, 2, error=27).beat(40_200, "m1", 2, error=27)
    told = ends(story, 50_003, generation=3)
    assert sorted(told.facts("rebalance-timeout", "subject", "deadline_ms")) == [("m2", 50_003), ("m3", 40_000)]


def test_the_longest_timeout_of_a_generation_limits_the_sync():
    """m3's 30 s count, though its session ends at 38,000, before they do."""
    told = ends(syncs_without_m3(m3_until_ms=32_000).beat(38_100, "m1", 2, error=27), 38_500, "m1", "m2", generation=3)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m3", 38_000)]
    assert told.opened("rebalance-timeout") == []


@pytest.mark.parametrize("left_ms", [9_900, 9_901], ids=["at that instant", "by its line a millisecond later"])
def test_the_timeout_of_a_member_that_left_does_not_prolong_the_sync_phase(left_ms):
    """m4, with 30 s, leaves at 9,900 and m1 is alone: it must sync by 19,900."""
    story = stable("m1", poll_ms=POLL_MS).beats("m1", 1_000, 8_000)
    story.poll_ms = 30_000
    story.join(200, "m4", 1).beats("m4", 1_000, 9_000)
    story.poll_ms = POLL_MS
    story.leave(left_ms, "m4").join(9_900, "m1", 2, listed=["m1"], parked_ms=900)
    told = story.beats("m1", 10_900, 18_900, generation=2).record(19_905, 3).play(22_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m1", 19_900)]


def test_a_successor_with_a_longer_timeout_does_not_prolong_the_sync_phase():
    """m2 has 10 s to sync. Meanwhile a static member with 30 s replaced another, and is replaced itself."""
    waits = Member("m2", joined_ms=0, timer_reset_ms=10_000, rebalance_timeout_ms=POLL_MS, awaiting_sync=True)
    successor = Member("new", "pod-1", joined_ms=12_000, rebalance_timeout_ms=30_000)
    leaves = [Leave(successor, 20_300, Cause.REPLACED, None)]
    replica = GroupReplica("g", members={"m2": waits}, leaves=leaves)
    assert sync_timeout_ms(replica, waits, 20_300) == POLL_MS


@pytest.mark.parametrize(("by", "limit_ms"), [("new", POLL_MS), ("m1", 30_000)])
def test_whose_replacement_began_the_phase_does_not_prolong_it(by, limit_ms):
    """A static member with 30 s is replaced by one with 10. If m1 began the phase, the former member was still in."""
    members = [Member("m1", joined_ms=0), Member("new", "pod-1", joined_ms=20_000)]
    former = Member("old", "pod-1", joined_ms=0, rebalance_timeout_ms=30_000)
    for member in members:
        member.rebalance_timeout_ms = POLL_MS
    replica = GroupReplica(
        "g", members={m.member_id: m for m in members}, phase=JoinPhase(9_000, PhaseStart(10_000, by))
    )
    replica.leaves = [Leave(former, 20_000, Cause.REPLACED, None)]
    context = JudgementContext(20_000, "b", (), {}, 0, 0, 0, None, Thresholds())
    assert phase_limit_ms(replica, replica.phase, 20_000, context) == limit_ms


# ------------------------------------------------------------------------------------------------ static ones stay


def waits_for_static(*rejoined, m2_until_ms):
    """m3's leave at 9,000 gives the others until 19,000; pod-1 heartbeats on and stays, whether it rejoins or not."""
    story = stable("m1", "m2", "m3", OLD, poll_ms=POLL_MS)
    for member in ("m1", "m2", "m3", "old"):
        story.beats(member, 1_000, 8_000)
    story.leave(9_000, "m3").beats("m2", 9_000, m2_until_ms, error=27).beats("old", 9_000, 18_500, error=27)
    story.join(19_003, "m1", 2, listed=["m1", "old"], parked_ms=9_500)
    for member in rejoined:
        story.join(19_003, member, 2, parked_ms=9_400)
    story.record(19_040, 2, "m1", "old").sync(19_050, "m1", 2, leader=True)
    return story.beats("m1", 20_000, 22_000, generation=2).play(22_000)


def test_a_member_that_expired_during_a_phase_did_not_miss_it():
    """pod-1, a static member, alone was waited for to the end, and stays; m2, silent since 10,000, had expired."""
    told = waits_for_static(m2_until_ms=10_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 16_000)]
    assert told.accusations == [("session-expired", "m2")]


def test_a_timeout_drops_the_dynamic_member_and_keeps_the_static_one():
    assert waits_for_static(m2_until_ms=18_000).accusations == [("rebalance-timeout", "m2")]


def test_a_static_member_that_rejoined_was_not_waited_for():
    assert waits_for_static("old", m2_until_ms=10_000).accusations == [("rebalance-timeout", "m2")]


def test_a_22_shows_that_the_end_of_the_phase_kept_a_static_member():
    """The phase ends at 19,000 and restarts pod-1's session, though it did not rejoin and no list shows it."""
    story = stable("m1", "m2", OLD, poll_ms=POLL_MS)
    for member in ("m1", "m2", "old"):
        story.beats(member, 1_000, 8_000)
    story.leave(9_000, "m2").beats("old", 9_000, 18_000, error=27).beat(19_000, "old", error=22)
    story.join(19_003, "m1", 2, leader="m3", parked_ms=9_500).beats("m1", 19_100, 24_100, generation=2)
    story.beat(25_100, "m1", generation=2, error=27)
    told = ends(story, 25_200, generation=3)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("pod-1", 25_003)]


def test_a_join_that_begins_the_phase_dates_no_end_of_a_session_beside_it():
    """m4 comes at 15,005. A commit may have ended m2's session at 14,990, but a parked heartbeat came at 10,000."""
    story = group("m1", Who("m2", partitions=(9,)), "m3", m1_until_ms=15_000).beats("m3", 1_000, 15_000)
    story.beats("m2", 1_000, 8_000).commit(8_990, "t", 9).beat(15_000, "m2", error=15, parked_ms=5_000)
    joins(story, 15_004, "m4").beat(15_500, "m1", error=27).beats("m3", 15_600, 24_600, error=27)
    story.join(25_006, "m1", 2, listed=["m1", "m4"], parked_ms=9_400)
    story.join(25_006, "m4", 2, asked="m4", parked_ms=10_001).record(25_040, 2, "m1", "m4")
    story.sync(25_050, "m1", 2, leader=True).sync(25_050, "m4", 2)
    told = story.beats("m1", 26_000, 29_000, generation=2).beats("m4", 26_000, 29_000, generation=2).play(29_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 16_000)]
    assert told.opened("rebalance-timeout") == ["m3"]


def outlasts(m2_until_ms, *, parked_ms=1, ends_ms=22_000):
    """m1's leave at 9,000 gives m2 and pod-1 until 19,000; neither rejoins, then pod-1 does."""
    story = stable("m1", "m2", OLD, poll_ms=POLL_MS)
    for member in ("m1", "m2", "old"):
        story.beats(member, 1_000, 8_000)
    story.leave(9_000, "m1").beats("m2", 9_000, m2_until_ms, error=27).beats("old", 9_000, 21_000, error=27)
    story.join(ends_ms, "old", 2, listed=["old"], parked_ms=parked_ms).record(ends_ms + 40, 2, "old")
    story.sync(ends_ms + 50, "old", 2, leader=True)
    return story.beats("old", 23_000, 25_000, generation=2)


def test_a_phase_whose_timeout_found_only_static_members_dropped_the_others_then():
    """It announces nothing and waits once more: m2's session would have ended at 24,000, pod-1 comes at 22,000."""
    told = outlasts(18_000).play(25_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 19_000)]
    assert told.accusations == [("rebalance-timeout", "m2")]


def test_who_is_dropped_as_the_coordinator_wakes_missed_an_unseen_phase():
    """A join phase begins just before the pause, and its timeout is due in it. pod-1 rejoins at 30,000."""
    story = stable("m1", "m2", OLD, poll_ms=POLL_MS)
    for member in ("m1", "m2", "old"):
        story.beats(member, 1_000, 8_000)
    story.silent(8_200, 25_000).beat(25_010, "old", error=27).beat(25_010, "m2", error=27).beat(25_180, "m2", error=25)
    joins(story, 25_100).beats("old", 25_500, 29_500, error=27)
    story.join(30_000, "old", 2, listed=["old", "m3"]).join(30_000, "m3", 2, asked="m3", parked_ms=4_800)
    story.record(30_040, 2, "old", "m3").sync(30_050, "old", 2, leader=True).sync(30_050, "m3", 2)
    told = story.beats("old", 31_000, 34_000, generation=2).beats("m3", 31_000, 34_000, generation=2).play(34_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 25_180)]


def test_who_was_dropped_before_a_second_wait_missed_the_phase():
    """m2, dropped at 19,000, would have expired at 20,000; the next generation comes at 22,000."""
    told = outlasts(14_000, ends_ms=22_000).play(25_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 19_000)]


def test_an_answer_25_after_a_first_timeout_is_a_dropped_members():
    told = outlasts(18_000).beat(19_500, "m2", error=25).play(25_000)
    assert told.accusations == [("rebalance-timeout", "m2")]


def test_who_expired_before_a_second_wait_did_not_miss_the_phase():
    told = outlasts(11_000).play(25_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 17_000)]


def test_a_phase_that_waits_twice_began_with_the_expiry_not_the_27():
    """pod-1's expiry begins it at 14,000, a 27 tells at 14,500; pod-2's end at 24,500 leaves nobody."""
    two = Who("two", instance_id="pod-2", port=5_003)
    story = stable(OLD, two, "m2", poll_ms=POLL_MS).beats("old", 1_000, 8_000).beats("two", 1_000, 14_000)
    story.beats("m2", 1_000, 14_000).beats("two", 14_500, 18_500, error=27).beats("m2", 14_550, 23_550, error=27)
    told = story.beat(24_499, "m2", error=25).record(24_502, 2).play(26_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 24_000)]
    assert told.facts("session-expired", "subject", "deadline_ms") == [("pod-1", 14_000), ("pod-2", 24_500)]


def test_a_join_before_the_timeout_rules_out_a_second_wait():
    """pod-1's JoinGroup of 12,000 would have ended the phase at 19,000: it must have begun later than we saw."""
    assert outlasts(18_000, parked_ms=10_000).play(25_000).accusations == [("rebalance-timeout", "m2")]
    [(deadline_ms,)] = outlasts(18_000, parked_ms=10_000).play(25_000).facts("rebalance-timeout", "deadline_ms")
    assert deadline_ms == 22_000


def test_a_coordinator_that_loads_the_group_waits_for_nobody_who_had_yet_to_sync():
    """m2 had until 19,500 to sync; the broker dies at 12,000, is back at 22,000, and m2's session ends 6 s later."""
    story = group(m2_until_ms=8_000).beat(9_000, "m1", error=27)
    story.join(9_500, "m1", 2, listed=["m1", "m2"]).join(9_500, "m2", 2).record(9_540, 2, "m1", "m2")
    story.sync(9_550, "m1", 2, leader=True).beats("m1", 10_000, 11_000, generation=2)
    story.silent(12_000, 22_000, restart=True).beats("m1", 22_100, 27_100, generation=2)
    told = ends(story.beat(28_200, "m1", 2, error=27), 28_400, generation=3)
    assert told.accusations == [("session-expired", "m2")]


# ------------------------------------------------------------------------------------------------ in one pause


def slept_over_phase(last_ms):
    """m3's leave at 9,000 gives m2 until 19,000 to rejoin; m2 beats until `last_ms`; all stands still until 22,000."""
    story = group("m1", "m2", "m3").beats("m3", 1_000, 8_000).leave(9_000, "m3").beat(9_500, "m1", error=27)
    story.beats("m2", last_ms - 5_000, last_ms, error=27).silent(15_000, 22_000)
    return ends(story, 22_003)


def slept_over_sync(last_ms):
    """m2 joins at 9,500 and may take until 19,500 to sync; it beats until `last_ms`."""
    story = group(m2_until_ms=8_000).beat(9_000, "m1", error=27)
    story.join(9_500, "m1", 2, listed=["m1", "m2"]).join(9_500, "m2", 2).record(9_540, 2, "m1", "m2")
    story.sync(9_550, "m1", 2, leader=True).beats("m1", 10_000, 15_000, generation=2)
    story.beats("m2", last_ms - 2_000, last_ms, generation=2).silent(15_000, 22_000).beat(22_100, "m1", 2, error=27)
    return ends(story, 22_400, generation=3)


def test_of_two_pauses_without_a_certain_answer_in_between_each_counts():
    """m1's JoinGroup begins the phase between them, at 21,100. m2's session is due in the second, before the phase."""
    story = group(m1_until_ms=14_000, m2_until_ms=14_000).silent(15_000, 20_100).beat(20_050, "m1").beat(20_050, "m2")
    story.silent(25_000, 35_000).join(35_001, "m1", 2, listed=["m1"], parked_ms=13_901).record(35_005, 2, "m1")
    told = story.sync(35_005, "m1", 2, leader=True).beats("m1", 36_000, 39_000, 2).play(40_000)
    assert told.accusations == [("session-expired", "m2")]


@pytest.mark.parametrize("play", [slept_over_phase, slept_over_sync])
@pytest.mark.parametrize(("last_ms", "rule"), [(14_500, "rebalance-timeout"), (12_500, "session-expired")])
def test_of_two_timers_that_came_due_in_one_pause_the_earlier_runs_first(play, last_ms, rule):
    """Its session is due 6 s after its last heartbeat: at 20,500 after the phase, at 18,500 before it."""
    told = play(last_ms)
    assert told.accusations == [(rule, "m2")]
    [(deadline_ms,)] = told.facts(rule, "deadline_ms")
    assert deadline_ms == pytest.approx(22_000, abs=10)


def test_a_session_that_was_due_in_a_pause_before_the_sync_excuses_the_sync():
    """Both owe a sync by 19,500. As the broker wakes, it hears m1 and lets m2's session end, which was due at 15,500.

    That begins a join phase, which waits for m1 until its session ends at 28,000. Had the time to sync ended first,
    both would have been removed, and m3 would not have had to wait.
    """
    story = group(m2_until_ms=8_000).beat(9_000, "m1", error=27)
    story.join(9_500, "m1", 2, listed=["m1", "m2"]).join(9_500, "m2", 2).beats("m1", 10_000, 14_000, generation=2)
    story.silent(15_000, 22_000).beat(22_000, "m1", 2).beat(22_050, "m2", 2, error=25)
    story.join(28_000, "m3", 3, listed=["m3"], parked_ms=5_900).record(28_005, 3, "m3")
    told = story.sync(28_005, "m3", 3, leader=True).beats("m3", 29_000, 32_000, 3).play(32_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 28_000), ("m2", 22_000)]
    assert told.accusations == [("session-expired", "m1"), ("session-expired", "m2")]


# whether probes are answered between 15,000 and 16,700 -> told
@pytest.mark.parametrize(("probed", "told"), [(False, []), (True, [("session-expired", "pod-1")])])
def test_a_successor_that_joins_after_a_gap_may_have_replaced_its_predecessor(probed, told):
    """The phase goes on since 9,000. pod-1's session is due at 15,500, and its next self asks to join at 16,700."""
    story = stable("m1", "m2", OLD).beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000).beats("old", 1_500, 8_500)
    story.leave(9_000, "m2").beat(9_500, "old", error=27).beats("m1", 10_000, 14_000, error=27)
    story = (story if probed else story.silent(15_000, 16_700)).beat(16_700, "m1", error=27)
    story.join(17_500, "m1", 2, listed=["m1", NEW]).join(17_500, NEW, 2, asked="", parked_ms=800)
    story.record(17_540, 2, "m1", NEW).sync(17_550, "m1", 2, leader=True).sync(17_550, "new", 2)
    story.beats("m1", 18_000, 22_000, generation=2).beats("new", 18_000, 22_000, generation=2)
    assert story.play(22_000).accusations == told


def test_a_group_emptied_as_its_coordinator_wakes_had_a_session_end_in_the_pause():
    """m1's was due 80 ms after the last line before the pause. Had it ended then, the record would be of then."""
    story = group().beat(9_080, "m1").silent(15_000, 35_000).record(35_002, 2)
    told = story.play(40_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 35_000), ("m2", 14_000)]
    assert {rule for rule, _ in told.accusations} == {"session-expired"}


@pytest.mark.parametrize(("parked_ms", "rule"), [(4_000, "rebalance-timeout"), (6_400, "session-expired")])
def test_who_may_have_lived_when_its_sync_was_due_missed_it(parked_ms, rule):
    """m2's time to sync and its session both end at 19,500; its heartbeat answered 15 may have been applied in time."""
    story = group(m2_until_ms=8_000).beat(9_000, "m1", error=27)
    story.join(9_500, "m1", 2, listed=["m1", "m2"]).join(9_500, "m2", 2).record(9_540, 2, "m1", "m2")
    story.sync(9_550, "m1", 2, leader=True).beats("m1", 10_000, 19_000, generation=2)
    story.beats("m2", 10_500, 13_500, generation=2).beat(19_400, "m2", 2, error=15, parked_ms=parked_ms)
    ends(story.beat(19_600, "m1", 2, error=27), 20_000, generation=3)
    told = story.beats("m1", 24_000, 30_000, generation=3).play(30_000)
    assert told.facts(rule, "subject", "deadline_ms") == [("m2", 19_500)]
    assert told.accusations == [(rule, "m2")]


# ------------------------------------------------------------------------------------------------ 25: not known


def test_a_heartbeat_answered_25_proves_that_the_session_had_ended_by_then():
    """Removed for good only when the phase times out at 19,000, but gone by 14,100."""
    story = group().beats("m1", 9_000, 13_000).beat(14_100, "m2", error=25).beat(14_200, "m1", error=27)
    told = ends(story, 24_100)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 14_000)]


def test_a_25_of_a_generation_that_is_over_proves_nothing():
    story = group().beat(9_000, "m1", error=27)
    rebalance(story, 9_500, 2, "m1", "m2").beat(9_600, "m2", 1, error=25).beats("m2", 10_000, 12_000, generation=2)
    told = story.beats("m1", 10_000, 12_000, generation=2).play(12_000)
    assert told.group["state"] == "Stable"
    assert told.accusations == []


# ------------------------------------------------------------------------------------------------ replaced or expired


def returns(story, at_ms, end_ms, *, generation=2):
    """pod-1 comes back under a new id at an instant; its JoinGroup is answered when the phase ends."""
    story.join(end_ms, "m1", generation, listed=["m1", NEW]).join(
        end_ms, NEW, generation, asked="", parked_ms=end_ms - at_ms
    )
    story.record(end_ms + 40, generation, "m1", NEW).sync(end_ms + 50, "m1", generation, leader=True)
    return story.beats("m1", end_ms + 1_000, end_ms + 3_000, generation=generation).play(end_ms + 3_000)


def restarted():
    """The broker restarts between 9,000 and 14,000: pod-1's session ends somewhere from 15,000 to 20,000."""
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 9_000).beats("old", 1_000, 9_000)
    return story.silent(9_000, 14_000, restart=True).beats("m1", 14_000, 16_000)


def test_a_static_join_that_starts_a_rebalance_finds_nobody_to_replace():
    """A replacement in a stable group starts none: the former member had expired a moment before."""
    told = returns(restarted().beat(17_500, "m1", error=27), 17_000, 18_000)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("old", 17_000)]


def test_a_static_join_before_any_sync_starts_a_rebalance():
    """Found by simulation: pod-1, the leader, is replaced 4 ms before its session would have ended."""
    story = stable("m1", poll_ms=POLL_MS).beats("m1", 1_000, 3_000).beat(3_500, "m1", error=27)
    story.join(4_000, OLD, 2, listed=[OLD, "m1"], parked_ms=700).join(4_000, "m1", 2)
    story.sync(9_996, "m1", 2, error=27, parked_ms=5_900)
    assert returns(story, 9_996, 10_010, generation=3).accusations == []


def test_a_static_join_into_a_rebalance_that_another_started_replaces():
    story = restarted()
    joins(story, 16_500).beat(16_600, "m1", error=27).join(18_000, "m3", 2, parked_ms=1_480)
    told = returns(story, 17_000, 18_000)
    assert told.accusations == []


def test_a_static_join_before_its_former_members_deadline_replaces():
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 9_000).beats("old", 1_000, 9_000)
    told = returns(story.beat(11_500, "m1", error=27), 11_000, 12_000)
    assert told.accusations == []


def test_a_rebalance_without_a_visible_start_began_with_an_expiry():
    """pod-1 is back 1.5 s after others were answered 27, and nobody left or joined before."""
    told = returns(restarted().beat(16_500, "m1", error=27), 18_000, 18_500)
    assert told.facts("session-expired", "member_id") == [("old",)]


UNSYNCED = {
    "its successor's JoinGroup is the first sign": (lambda story: story, 23_500, [("old", 19_500)]),
    "it was not heard since it joined": (lambda story: without(story, "old", 9_600), 23_500, []),
    "its successor came in time": (lambda story: story, 19_400, []),
    "its successor came as the sync was due": (lambda story: story, 19_505, []),
    "the group was still stable after that": (lambda story: story.beat(20_000, "m1", 2), 23_500, []),
    "another member's leave began the phase": (lambda story: story.leave(21_000, "m2"), 23_500, []),
    "another member's session had ended before": (lambda story: without(story, "m2", 13_100), 23_500, []),
}
BOTH = (replace(OLD, session_ms=20_000), Who("former", instance_id="pod-2", port=5_011, session_ms=20_000))
BACK = (NEW, Who("next", instance_id="pod-2", port=5_012))


def without(story, member, since_ms):
    """Leave out a member's heartbeats from an instant on."""
    its = b'"generationId":2,"memberId":"%s"' % member.encode()
    story.rows = [(at_ms, n, row) for at_ms, n, row in story.rows if at_ms < since_ms or its not in row.value]
    return story


@pytest.mark.parametrize("name", UNSYNCED)
def test_a_static_member_that_had_not_synced_in_time_was_not_replaced(name):
    """pod-1 joins generation 2 at 9,500 and has until 19,500 to sync. It is heard, and its successor comes later."""
    changes, came_ms, told = UNSYNCED[name]
    old = replace(OLD, session_ms=20_000)
    story = group("m1", "m2", old).beats("m2", 1_000, 8_000).beats("old", 1_000, 8_000).beat(9_000, "m1", error=27)
    story.join(9_500, "m1", 2, listed=["m1", "m2", old]).join(9_500, "m2", 2).join(9_500, old, 2)
    story.record(9_540, 2, "m1", "m2", old).sync(9_550, "m1", 2, leader=True).sync(9_550, "m2", 2)
    for member in ("m1", "m2", "old"):
        story.beats(member, 10_000, 19_000, generation=2)
    story = changes(story).beat(24_000, "m1", 2, error=27)
    answers = returns(story, came_ms, 24_500, generation=3)
    assert answers.facts("rebalance-timeout", "member_id", "deadline_ms") == told


def test_two_static_members_that_had_not_synced_in_time_were_not_replaced():
    """The leader had synced. Both are heard, and their successors come after the sync was due."""
    story = group("m1", *BOTH).beats("old", 1_000, 8_000).beats("former", 1_000, 8_000).beat(9_000, "m1", error=27)
    story.join(9_500, "m1", 2, listed=["m1", *BOTH]).record(9_540, 2, "m1", *BOTH).sync(9_550, "m1", 2, leader=True)
    story.beats("m1", 10_000, 19_000, generation=2).beat(24_000, "m1", 2, error=27)
    for old, new in zip(BOTH, BACK, strict=True):
        story.join(9_500, old, 2).beats(old.member_id, 10_000, 19_000, generation=2)
        story.join(24_500, new, 3, asked="", parked_ms=1_000)
    told = story.join(24_500, "m1", 3, listed=["m1", *BACK], parked_ms=400).play(27_000)
    assert sorted(told.accusations) == [("rebalance-timeout", "pod-1"), ("rebalance-timeout", "pod-2")]


def test_a_member_whose_sync_waited_for_a_leader_that_never_synced_was_replaced():
    """m1 leads, and never syncs. old is killed at 14,500 while its SyncGroup waits, so that has no line."""
    story = stable("m1", OLD, "m3", poll_ms=8_000)
    for who in ("m1", "old", "m3"):
        story.beats(who, 1_000, 8_000).beat(9_000, who, error=27)
    story.join(10_000, "m1", 2, listed=["m1", OLD, "m3"], parked_ms=900).join(10_000, OLD, 2, parked_ms=800)
    story.join(10_000, "m3", 2, parked_ms=500).beats("old", 11_000, 14_000, 2)
    story.beats("m1", 11_000, 17_000, 2).beats("m3", 11_000, 17_000, 2)
    story.sync(18_000, "m3", 2, error=27, parked_ms=7_990).beat(18_400, "m1", 2, error=25)
    story.join(19_600, "m3", 3, listed=["m3", NEW], parked_ms=900).join(19_600, NEW, 3, asked="", parked_ms=100)
    assert story.record(19_640, 3, "m3", NEW).play(22_000).accusations == [("rebalance-timeout", "m1")]


def test_the_session_of_a_successor_begins_as_it_comes_into_a_phase():
    """Not when its JoinGroup is answered 27 because the group cannot be upgraded: that restarts no timer."""
    story = group("m1", OLD).beats("old", 1_000, 8_000).beats("m1", 9_000, 16_000, error=27)
    told = ends(story.join(12_000, NEW, -1, error=27, asked="", parked_ms=2_500), 17_000)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("new", 15_500)]


def test_who_was_replaced_in_a_join_phase_is_not_replaced_again_by_the_next_to_come():
    third = Who("third", instance_id="pod-1", port=5_003)
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 8_000).beats("old", 1_000, 8_000)
    joins(story, 9_000).beat(9_100, "m1", error=27)
    returns(story, 9_500, 10_000)
    story.sync(10_060, "new", 2).beats("new", 11_000, 14_000, generation=2).beats("m1", 14_000, 18_000, generation=2)
    story.join(15_500, third, 2, asked="").record(15_510, 2, "m1", third)
    assert story.play(18_000).accusations == []


def test_a_former_member_is_found_if_a_follower_was_answered_before_the_leader():
    story = restarted().beat(17_500, "m1", error=27)
    story.join(18_000, NEW, 2, asked="", parked_ms=1_000).join(18_003, "m1", 2, listed=["m1", NEW])
    story.record(18_040, 2, "m1", NEW).sync(18_050, "m1", 2, leader=True)
    told = story.beats("m1", 19_000, 21_000, generation=2).play(21_000)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("old", 17_000)]


def test_a_former_member_is_found_if_the_record_came_before_its_successor():
    """m3's answer tells the generation first, then its record, then the answers that waited for the record."""
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 13_000).beats("old", 1_000, 8_000)
    story.beat(14_100, "m1", error=27).join(15_600, "m3", 2, leader="m1", parked_ms=400)
    story.record(15_620, 2, "m1", "m3", NEW).join(15_620, "m1", 2, listed=["m1", "m3", NEW])
    story.join(15_620, NEW, 2, asked="", leader="m1", parked_ms=600).sync(15_640, "m1", 2, leader=True)
    told = story.beats("m1", 16_000, 19_000, generation=2).play(19_000)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("old", 14_000)]


def test_who_may_have_expired_behind_a_stalled_write_started_the_rebalance():
    """pod-2's last heartbeat waited and was answered 15: its session ended at 8,000 or 10,500; nobody told.

    pod-1's heartbeat of 9,000 waited too, and a commit of its own came later: it is replaced at 15,200, not expired.
    """
    one, two = Who("old", instance_id="pod-1", port=5_001, partitions=(0,)), Who("two", instance_id="pod-2", port=5_002)
    story = stable(one, two, poll_ms=POLL_MS).beats("old", 1_000, 8_000).beats("two", 1_000, 2_000)
    story.beat(9_400, "two", error=15, parked_ms=4_900).beat(13_900, "old", parked_ms=4_900).commit(14_000, "t", 0)
    story.join(15_200, NEW, 2, asked="", listed=[NEW], parked_ms=1).record(15_240, 2, NEW)
    story.sync(15_250, "new", 2, leader=True).beats("new", 16_000, 19_000, generation=2)
    assert story.play(19_000).accusations == [("session-expired", "pod-2")]


def test_a_replacement_starts_the_clock_when_it_came_not_when_its_record_was_written():
    """Asked at 5,000, answered at 9,500 behind a stalled write, silent since: it expires at 11,000."""
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 10_500).beats("old", 1_000, 3_000)
    story.record(5_000, 1, "m1", NEW).join(9_500, NEW, 1, asked="", parked_ms=4_500).sync(9_520, "new", 1)
    told = ends(story.beat(11_100, "m1", error=27), 12_000)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("new", 11_000)]


def test_a_former_member_whose_removal_is_told_already_may_have_begun_the_phase_too():
    """The ends of two sessions may have begun the phase: that of old at 11,200, or that of m2's heartbeats at 11,000.

    A first successor of old is answered at 12,100, because a second one replaces it. m2 committed at 6,500, and the end
    of its session ends the phase.
    """
    between = Who("between", instance_id="pod-1", port=5_008)
    story = stable("m1", "m2", OLD, partitions=1, poll_ms=POLL_MS).beats("m1", 1_900, 10_900).beats("m2", 1_000, 5_000)
    story.beats("old", 1_200, 5_200).commit(6_500, "t", 1).beat(11_600, "old", error=25).beat(11_900, "m1", error=27)
    story.join(12_100, between, -1, error=82, asked="", parked_ms=450)
    told = ends(story.join(12_500, NEW, 2, asked="", parked_ms=400), 12_500, "m1", NEW)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("pod-1", 11_200), ("m2", 12_500)]


def test_a_former_member_replaced_as_it_was_let_in_did_not_expire():
    """The JoinGroup of its successor, which waits until 22,000, seems to have come 1 ms before it joined.

    Its session would have ended at 16,000.
    """
    second, last = Who("second", instance_id="pod-1", port=5_003), Who("last", instance_id="pod-1", port=5_004)
    story = stable("m1", OLD, poll_ms=30_000).beats("m1", 1_000, 8_000).beats("old", 1_000, 8_000)
    story.join(10_000, "m1", 2, listed=["m1", NEW], parked_ms=500).join(10_000, NEW, 2, asked="", parked_ms=1_000)
    story.beats("m1", 10_500, 22_500, 2, error=27).join(22_000, second, -1, error=82, asked="", parked_ms=12_001)
    told = ends(story.join(23_000, last, 3, asked="", parked_ms=1_000), 23_000, "m1", last, generation=3)
    assert told.accusations == []


@pytest.mark.parametrize("late_ms", [0, 5, 30])
def test_a_newcomer_does_not_replace_the_successor_that_it_made_way_for(late_ms):
    """second waits from 9,000 on, until last comes at 12,000. Its answer 82 may be dated later than last's."""
    second, last = Who("second", instance_id="pod-1", port=5_003), Who("last", instance_id="pod-1", port=5_004)
    story = stable("m1", OLD, poll_ms=30_000).beats("m1", 1_000, 8_000).beats("old", 1_000, 8_000)
    story.join(12_000, "m1", 2, listed=["m1", last], parked_ms=3_000).join(12_000, last, 2, asked="", parked_ms=1)
    story.join(12_000 + late_ms, second, -1, error=82, asked="", parked_ms=3_000 + late_ms)
    assert sorted(story.play(12_900).members) == ["last", "m1"]


def test_a_former_member_that_waited_in_its_join_did_not_expire_however_long_it_took():
    """Its JoinGroup of 9,200 is answered 82 when its successor comes at 18,000, three seconds after its deadline."""
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 8_000).beats("old", 1_000, 8_000)
    story.beat(9_000, "m1", error=27).beat(9_050, "old", error=27)
    story.join(18_001, "old", -1, error=82, parked_ms=8_800)
    assert returns(story, 18_000, 18_900).accusations == []


def test_a_former_member_that_is_answered_82_at_once_may_have_expired_long_before():
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 8_000).beats("old", 1_000, 8_000)
    story.beat(9_000, "m1", error=27).join(18_400, "old", -1, error=82, parked_ms=1)
    assert returns(story, 18_000, 18_900).facts("session-expired", "member_id", "deadline_ms") == [("old", 14_000)]


def test_a_former_member_that_was_answered_25_had_expired():
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 16_000).beats("old", 1_000, 9_000)
    story.commit(12_000, "t", 0).beat(15_100, "old", error=25).beat(17_000, "m1", error=27)
    told = returns(story, 15_200, 18_000)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("old", 15_000)]


def test_a_heartbeat_read_after_a_replacement_is_a_sign_of_life():
    """It was applied at 13,000 and answered at 15,200; m3's end at 14,200 began the phase that the successor joined."""
    story = stable("m1", OLD, "m3", poll_ms=POLL_MS).beats("m1", 1_000, 9_000).beats("old", 1_000, 8_000)
    story.beats("m3", 200, 8_200).beat(14_500, "m1", parked_ms=3_500).beat(14_600, "m1", error=27)
    story.join(15_000, "m1", 2, listed=["m1", NEW], parked_ms=300).join(15_000, NEW, 2, asked="")
    story.record(15_010, 2, "m1", NEW).beat(15_200, "old", parked_ms=2_200)
    told = story.beats("m1", 16_000, 19_000, generation=2).beats("new", 16_000, 19_000, generation=2).play(19_000)
    assert told.accusations == [("session-expired", "m3")]


def test_an_expired_leader_s_successor_leads_if_the_others_did_not_join():
    """pod-1 leads and expires at 14,000. pod-2, now the leader, is kept but does not join, so the successor leads."""
    other = Who("other", instance_id="pod-2", port=5_010)
    story = stable(OLD, other, poll_ms=POLL_MS).beats("old", 1_000, 8_000).beats("other", 1_000, 13_000)
    story.beats("other", 14_500, 23_500, error=27)
    story.join(24_005, NEW, 2, asked="", listed=[NEW, other], parked_ms=9_000)
    story.record(24_040, 2, NEW, other).sync(24_050, NEW, 2, leader=True)
    told = story.beats("new", 25_000, 27_000, generation=2).play(27_000)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("old", 14_000)]


def test_a_static_join_answered_15_in_a_rebalance_has_replaced():
    """No answer names the successor, whose write stalled; the one after it replaces that."""
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 8_000).beats("old", 1_000, 8_000)
    story.beat(9_000, "m1", error=27).join(14_900, NEW, -1, error=15, asked="", parked_ms=5_000)
    told = returns(story, 18_000, 19_000)
    assert told.accusations == []


def test_a_static_join_answered_15_after_the_session_s_end_has_not_replaced():
    """pod-1 expires at 14,000, which begins the phase; its next process asks at 15,000. Only the list names it."""
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 13_000).beats("old", 1_000, 8_000)
    story.beats("m1", 14_500, 20_500, error=27)
    story.join(20_000, Who("", instance_id="pod-1", port=5_002), -1, error=15, asked="", parked_ms=5_000)
    story.join(21_000, "m1", 2, listed=["m1", NEW]).record(21_040, 2, "m1", NEW).sync(21_050, "m1", 2, leader=True)
    told = story.beats("m1", 22_000, 27_500, generation=2).play(27_500)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("old", 14_000)]


def test_a_static_join_answered_15_in_a_stable_group_was_taken_back():
    """The replacement could not be written: the former member is in again, and expires a session timeout after that."""
    told = taken_back().beat(21_000, "m1", error=27)
    assert ends(told, 21_500).facts("session-expired", "member_id", "deadline_ms") == [("old", 20_900)]


def taken_back(*, until_ms=20_500):
    """pod-1's replacement of 9,900 was answered 15 at 14,900, without an id; so did a heartbeat behind it."""
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 9_000).beats("old", 1_000, 8_000)
    story.beat(14_901, "m1", error=15, parked_ms=4_900).beats("m1", 15_000, until_ms)
    return story.join(14_900, Who("", instance_id="pod-1", port=5_002), -1, error=15, asked="", parked_ms=5_000)


def test_a_replacement_that_was_taken_back_is_so_though_the_log_has_it():
    """Its record of 9,901 is read when the replicas have caught up; the coordinator knows the former member."""
    told = taken_back().record(9_901, 1, "m1", NEW).beat(21_000, "m1", error=27)
    assert set(told.play(18_000).members) == {"m1", "old"}
    assert ends(told, 21_500).facts("session-expired", "member_id", "deadline_ms") == [("old", 20_900)]


def test_a_replacement_taken_back_before_the_assignment_is_stored_gets_none():
    """pod-1's replacement of 9,900 joins generation 2 at 10,500; its SyncGroup waits until it is taken back at 14,900.

    The assignment is stored at 15,100, under the successor's id. The former member has its session, but no partition.
    """
    old, new = (Who(name, instance_id="pod-1", partitions=(0, 1)) for name in ("old", "new"))
    story = stable(old, "m1", poll_ms=POLL_MS).beats("m1", 1_000, 9_000).beats("old", 1_000, 8_000)
    story.record(9_901, 1, new, "m1").beat(10_100, "m1", error=27)
    story.join(10_500, new, 2, asked="", listed=[new, "m1"], parked_ms=600).join(10_500, "m1", 2, parked_ms=300)
    story.record(10_700, 2, new, "m1").sync(14_901, "new", 2, leader=True, error=82, parked_ms=4_200)
    told = story.sync(15_100, "m1", 2, parked_ms=4_400).beats("m1", 16_000, 18_000, generation=2).play(18_000)
    assert told.members["old"]["assignment"] == []


# m1's request behind the replacement, which is answered 15
BEHIND = {
    "a SyncGroup": lambda story: story.sync(15_510, "m1", 2, error=15, parked_ms=5_000),
    "a heartbeat": lambda story: story.beat(15_510, "m1", 2, error=15, parked_ms=5_000),
    "a JoinGroup": lambda story: story.join(15_510, "m1", -1, error=15, parked_ms=5_000),
}


@pytest.mark.parametrize("name", BEHIND)
def test_a_request_that_waits_in_vain_takes_back_a_replacement_before_it(name):
    """pod-1's replacement of 9,901 times out at 14,901. Its successor, told at 10,500, is never heard."""
    story = BEHIND[name](replaced_before_a_phase()).beat(15_520, "m1", 2)
    told = ends(story.beat(21_000, "m1", 2, error=27), 21_100, generation=3)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("old", 20_901)]


# how m1's heartbeat is answered 15
ELSEWHERE = {
    "after two seconds": {"parked_ms": 2_000},
    "by a deposed coordinator": {"parked_ms": 5_000, "broker": "broker-2"},
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_replacement_stands_if_another_stall_explains_the_answer(name):
    """The record of generation 2 was stored at 10,540, after that of the replacement."""
    story = replaced_before_a_phase().record(10_540, 2, "m1", NEW).sync(10_550, "m1", 2, leader=True)
    story.beats("m1", 11_000, 16_000, generation=2).beat(15_510, "m1", 2, error=15, **ELSEWHERE[name])
    told = ends(story.beat(17_000, "m1", 2, error=27), 17_100, generation=3)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("new", 16_500)]


def replaced_before_a_phase():
    """pod-1 is replaced at 9,901, in a stable group. A join phase, which ends at 10,500, answers its successor."""
    story = stable("m1", OLD, poll_ms=POLL_MS).beats("m1", 1_000, 10_000).beats("old", 1_000, 8_000)
    story.record(9_901, 1, "m1", NEW).join(10_500, "m1", 2, listed=["m1", NEW], parked_ms=300)
    return story.join(10_500, NEW, 2, asked="", parked_ms=600)


def test_a_load_of_the_log_restores_a_rolled_back_replacement():
    story = taken_back(until_ms=15_500).record(9_901, 1, "m1", NEW).silent(15_500, 20_000, restart=True)
    assert set(story.play(15_400).members) == {"m1", "old"}
    story.beats("m1", 20_100, 26_000).commit(20_500, "t", 0).beat(26_600, "m1", error=27)
    assert ends(story, 26_700).facts("session-expired", "member_id") == [("new",)]


def test_who_comes_after_a_replacement_taken_back_replaces_the_former_member():
    third = Who("third", instance_id="pod-1", port=5_003)
    story = taken_back().record(9_901, 1, "m1", NEW).record(15_100, 1, "m1", third)
    told = story.join(15_101, third, 1, asked="").beats("third", 16_000, 20_000).play(20_500)
    assert set(told.members) == {"m1", "third"}
    assert told.accusations == []


def test_a_static_leader_that_returns_twice_brings_nobody_back():
    """pod-1's first JoinGroup is answered 15 at 14,900, its second 0 at 16,000, which before v9 names its old id.

    It never syncs: its session of 6 s began as it came the second time, at 15,000.
    """
    ids = (f"pod-1-{n}" + "0" * 35 for n in (1, 2))
    old, new = (Who(member_id, instance_id="pod-1", port=5_001, partitions=(0, 1)) for member_id in ids)
    story = stable(old, "m1", poll_ms=POLL_MS).beats("m1", 1_000, 9_000).beats(old.member_id, 1_000, 8_000)
    story.join(14_900, Who("", instance_id="pod-1", port=5_002), -1, error=15, asked="", parked_ms=5_000)
    story.record(15_000, 1, new, "m1").join(16_000, new, 1, asked="", leader=old.member_id, parked_ms=1_000)
    story.beats("m1", 15_000, 20_500).beat(21_200, "m1", error=27)
    assert story.play(20_500).members[new.member_id]["assignment"] == [{"topic": "t", "partitions": [0, 1]}]
    told = ends(story, 21_500)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [(new.member_id, 21_000)]


def test_a_successor_in_a_stable_group_owes_no_sync():
    """pod-1, alone in its group, comes back at 10,000. It dies before it syncs, and its session of 12 s ends.

    It had 8 s to sync if it had been in the generation when that was announced.
    """
    old, new = (replace(who, session_ms=12_000, poll_ms=8_000) for who in (OLD, NEW))
    story = stable(old).beats("old", 1_000, 9_000).record(10_000, 1, new)
    told = story.join(13_000, new, 1, asked="", parked_ms=3_000).silent(22_000, 22_000).record(22_000, 2).play(25_000)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("new", 22_000)]


def test_a_replacement_taken_back_in_a_phase_gives_it_no_longer_timeout():
    """m3 begins the phase at 14,500, while the successor of 9,900 still holds pod-1: all may take 10 s to rejoin.

    The former member, which may take 25 s, comes back at 14,900. m2 misses the phase: its heartbeats wait until then.
    """
    old, third = replace(OLD, poll_ms=25_000), Who("third", instance_id="pod-1", port=5_003)
    story = (
        stable("m1", "m2", "m3", old, poll_ms=POLL_MS)
        .beats("old", 1_000, 8_000)
        .record(9_901, 1, "m1", "m2", "m3", NEW)
    )
    for member in ("m1", "m2", "m3"):
        story.beats(member, 1_000, 11_000)
    story.join(14_900, Who("", instance_id="pod-1", port=5_002), -1, error=15, asked="", parked_ms=5_000)
    story.join(19_500, "m3", -1, error=15, parked_ms=5_000).beat(21_000, "m2", error=15, parked_ms=5_000)
    story.join(24_500, third, 2, asked="", parked_ms=500)
    rebalance(story, 24_500, 2, "m1", "m3", third).beat(25_000, "m2", error=15, parked_ms=5_000)
    for member in ("m1", "m3", "third"):
        story.beats(member, 25_500, 31_000, generation=2)
    told = story.play(31_000)
    assert told.facts("rebalance-timeout", "member_id", "deadline_ms") == [("m2", 24_500)]


def test_a_parked_answer_may_name_a_leader_since_rolled_back():
    """pod-2, answered at 15,000, is told the leader of 12,000: pod-1's replacement, rolled back at 14,900."""
    pod = Who("pod-1-" + "0" * 36, instance_id="pod-1")
    other, next_ = (Who(name, instance_id="pod-2", port=5_010) for name in ("other", "next"))
    story = stable(OLD, "m1", other, poll_ms=POLL_MS).beats("m1", 1_000, 9_000).beats("old", 1_000, 8_000)
    story.record(9_901, 1, pod, "m1", other).beats("other", 1_000, 9_000).beat(14_901, "m1", error=15, parked_ms=4_900)
    story.join(14_900, Who("", instance_id="pod-1", port=5_002), -1, error=15, asked="", parked_ms=5_000)
    story.record(12_001, 1, pod, "m1", next_).join(15_000, next_, 1, asked="", leader=pod.member_id, parked_ms=3_000)
    story.beats("m1", 15_000, 20_500).beats("next", 15_500, 20_500)
    assert set(story.play(20_500).members) == {"m1", "old", "next"}


def test_a_leader_whose_own_answer_was_lost_is_known_by_what_the_others_are_told():
    """pod-2's JoinGroup was applied and answered 15; m1 is told that it leads, and it expires at 20,000."""
    pod = "pod-2-" + "0" * 36
    story = stable("m1", poll_ms=POLL_MS).beats("m1", 1_000, 8_000)
    story.join(13_900, Who("", instance_id="pod-2"), -1, error=15, asked="", parked_ms=5_000)
    story.know(Who(pod, instance_id="pod-2"))
    story.join(14_000, "m1", 2, leader=pod).beats("m1", 15_000, 19_000, generation=2, error=27)
    told = ends(story, 20_010, generation=3)
    assert told.facts("session-expired", "member_id", "instance_id", "deadline_ms") == [(pod, "pod-2", 20_000)]


def test_a_27_that_was_parked_before_a_generation_was_announced_takes_nothing_back():
    story = group().beat(9_000, "m1", error=27).join(10_000, "m1", 2, listed=["m1", "m2"]).join(10_000, "m2", 2)
    told = story.beat(10_500, "m2", error=27, parked_ms=1_000).play(10_600)
    assert (told.group["generation"], told.group["state"]) == (2, "CompletingRebalance")


# ------------------------------------------------------------------------------------------------ a deposed coordinator


def deposed():
    """broker-1 is paused from 9,000 to 21,000; broker-2 has taken over, and is heard first at 21,500.

    At 21,050 broker-1, which does not know that yet, lets m2 expire and announces generation 2 to m1 and m3.
    """
    story = group("m1", "m2").silent(9_000, 21_000)
    story.brokers["broker-2"] = 0
    story.join(21_050, "m1", 2, listed=["m1", "m3"], parked_ms=10).join(21_050, "m3", 2, parked_ms=12_300)
    story.broker = "broker-2"
    return story.beats("m1", 21_500, 24_500).join(22_000, "m3", -1, error=25)


def test_a_generation_that_a_deposed_coordinator_announces_is_not_believed():
    told = deposed().play(24_500)
    assert (told.group["generation"], set(told.members)) == (1, {"m1", "m2"})
    assert told.accusations == []


def test_whom_a_deposed_coordinator_let_expire_expires_at_its_successors():
    """broker-2 loaded the group between 9,000 and 21,500; it lets m2 expire, and a 27 tells at 25,500."""
    story = deposed().beat(25_500, "m1", error=27)
    told = ends(story, 26_000)
    assert told.accusations == [("session-expired", "m2")]
    [(deadline_ms,)] = told.facts("session-expired", "deadline_ms")
    assert 21_500 <= deadline_ms <= 26_000


def test_a_replacement_during_a_move_has_a_full_session_timeout():
    """broker-1, paused from 9,000 to 21,000, lets all expire as it wakes; broker-2 has pod-1 replaced at 21,300.

    Both it and m2 are silent from then on. So the 27 of 24,000 tells of m2's end, not of pod-1's at 27,300. m1, which
    asks again, is told first that pod-1 leads.
    """
    story = stable("m1", "m2", OLD, poll_ms=POLL_MS).silent(9_000, 21_000)
    for member in ("m1", "m2", "old"):
        story.beats(member, 1_000, 9_000).beat(21_050, member, error=25)
    story.brokers["broker-2"] = 0
    story.broker = "broker-2"
    story.record(21_300, 1, "m1", "m2", NEW, leader="new").join(21_700, "m1", 1, leader="new", parked_ms=1)
    story.join(21_800, NEW, 1, asked="", leader="old", parked_ms=500).sync(21_820, "new", 1)
    story.beats("m1", 22_000, 23_000).beats("m1", 24_000, 26_000, error=27)
    rebalance(story, 27_310, 2, "m1")
    told = story.beats("m1", 28_000, 31_000, generation=2).play(31_000)
    assert told.accusations == [("session-expired", "m2"), ("session-expired", "pod-1")]
    deadlines_ms = dict(told.facts("session-expired", "member_id", "deadline_ms"))
    assert deadlines_ms["m2"] <= 24_000
    assert 27_300 <= deadlines_ms["new"] <= 27_310


@pytest.mark.parametrize(("judged", "generation", "kept"), [(False, 2, True), (True, 2, False), (False, 3, False)])
def test_a_removal_is_kept_until_the_others_of_its_generation_are_judged(judged, generation, kept):
    """Its incident is over. But only a comparison shows whose session ended first and began the join phase."""
    replica = GroupReplica("g")
    for name, of_generation, is_judged in (("over", 2, True), ("other", generation, judged)):
        facts = Cause.SESSION_TIMEOUT, Evidence.OBSERVED, T0, T0, of_generation, "broker-1", T0
        replica.departures.append(Departure(Member(name), SESSION_EXPIRED, *facts, judged=is_judged))
    conclude(replica, {}, {(SESSION_EXPIRED, "over")})
    assert [d.member.member_id for d in replica.departures] == (["over", "other"] if kept else ["other"])

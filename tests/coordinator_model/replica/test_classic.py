"""The classic protocol, answer by answer: what each tells of the group's state, members and session clocks."""

from dataclasses import replace

import pytest

from coordinator_model.decode.parse import parse_row
from coordinator_model.replica.classic import record_heartbeat
from coordinator_model.replica.member import Member
from coordinator_model.replica.session_timer import Session, latest_session
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import T0, Story, Who, rebalance, stable


def state(story, at_ms):
    return story.play(at_ms).group["state"]


# ------------------------------------------------------------------------------------------------ heartbeats

# error, how long the answer was parked -> (counts as heard, state afterwards)
ANSWERS = {
    "0 is a heartbeat": (0, 0, True, "Stable"),
    "27 is one too, and starts a rebalance": (27, 0, True, "PreparingRebalance"),
    "14: a coordinator that loads": (14, 0, False, "Stable"),
    "15: a coordinator that is not there": (15, 0, False, "Stable"),
    "15 behind a stalled write: perhaps": (15, 4_000, False, "Stable"),
    "16: not the coordinator": (16, 0, False, "Stable"),
    "22: of another generation": (22, 0, False, "Stable"),
    "25: a member no more, so a rebalance is on": (25, 0, False, "PreparingRebalance"),
    "82: fenced": (82, 0, False, "Stable"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answered_heartbeat(name):
    error, parked_ms, heard, after = ANSWERS[name]
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m2", 1_000, 3_000)
    told = story.beat(9_000, "m2", error=error, parked_ms=parked_ms).play(9_400)
    assert told.members["m2"]["last_heartbeat_ms"] == T0 + (9_000 if heard else 3_000)
    assert told.group["state"] == after


# an answer 15 to m2 at 9,000, applied so much earlier -> the deadline that the timer names
STALLED = {
    "one that waited may have been applied": (4_000, 4_500 + 6_000),
    "one that did not is a refusal: every clock is open until it surely coordinates again": (0, 9_500 + 6_000),
}


@pytest.mark.parametrize("name", STALLED)
def test_a_heartbeat_answered_15_delays_the_verdict(name):
    parked_ms, deadline_ms = STALLED[name]
    story = stable("m1", "m2").beats("m1", 1_000, 30_000).beats("m2", 1_000, 3_000)
    story.beat(8_500, "m2", error=15, parked_ms=parked_ms).commit(9_500, "t", 9)
    assert story.play(20_000).facts("session-expired", "subject", "deadline_ms") == [("m2", deadline_ms)]


def test_only_who_is_in_the_group_is_heard():
    """A late heartbeat of a member that left brings nobody back."""
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m2", 1_000, 3_000).leave(3_500, "m2")
    story.beat(3_600, "m2", parked_ms=400)
    assert set(story.play(4_000).members) == {"m1"}


def test_one_27_puts_the_group_in_a_rebalance_until_a_join_names_a_higher_generation():
    story = stable("m1", "m2").beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000)
    story.beat(4_000, "m1", error=27).join(5_000, "m2", 1)  # a rejoin of the same generation ends nothing
    rebalance(story, 6_000, 2, "m1", "m2")
    story.beats("m1", 7_000, 9_000, generation=2).beats("m2", 7_000, 9_000, generation=2)
    steps = [(3_900, "Stable"), (4_100, "PreparingRebalance"), (5_500, "PreparingRebalance"),
             (6_010, "CompletingRebalance"), (6_045, "Stable"), (9_000, "Stable")]  # fmt: skip
    assert [(at_ms, state(story, at_ms)) for at_ms, _ in steps] == steps


def test_a_27_that_trails_the_end_of_its_rebalance_starts_no_other():
    story = stable("m1", "m2").beat(4_000, "m1", error=27)
    rebalance(story, 6_000, 2, "m1", "m2").beat(6_100, "m1", error=27, parked_ms=1_000)
    assert state(story, 6_500) == "Stable"


# ------------------------------------------------------------------------------------------------ joins and syncs


def test_a_follower_that_asks_again_is_told_its_generation_and_keeps_its_timeouts():
    story = stable("m1", "m2")
    story.know(replace(story.who["m2"], session_ms=3_000))
    assert story.join(5_000, "m2", 1, leader="m1").play(6_000).members["m2"]["session_timeout_ms"] == 6_000
    rebalance(story, 7_000, 2, "m1", "m2")
    assert story.play(8_000).members["m2"]["session_timeout_ms"] == 3_000


def test_a_static_member_that_leaves_its_instance_out_has_it_still():
    """As Kafka's own test of a classic member in a group of KIP-848 does; an old leader's list has none either."""
    story = stable("m1", OLD)
    story.know(replace(OLD, instance_id=None))
    assert story.join(5_000, "old", 1).play(6_000).members["old"]["instance_id"] == "pod-1"
    story.join(7_000, "m1", 2, listed=["m1", "old"]).join(7_000, "old", 2)
    assert story.play(8_000).members["old"]["instance_id"] == "pod-1"


def test_79_makes_no_member_and_its_silence_is_no_incident():
    story = stable("m1").beats("m1", 1_000, 20_000).join(2_000, "pending", -1, error=79, asked="")
    told = story.play(20_000)
    assert set(told.members) == {"m1"}
    assert told.accusations == []


REFUSED = [14, 15, 16, 22, 23, 24, 25, 26, 27, 30, 81, 82]


@pytest.mark.parametrize("error", REFUSED)
def test_a_refused_join_makes_no_member(error):
    told = stable("m1").beats("m1", 1_000, 3_000).join(2_000, "m2", -1, error=error).play(3_000)
    assert set(told.members) == {"m1"}


def test_a_member_waits_from_its_join_to_its_sync():
    """Whoever joined and was not answered a sync is not judged by the timer, however long that takes."""
    story = stable("m1", "m2").beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000).beat(4_000, "m1", error=27)
    everybody = ["m1", "m2"]
    story.join(5_000, "m1", 2, listed=everybody).join(5_000, "m2", 2).record(5_040, 2, *everybody)
    story.sync(5_050, "m1", 2, leader=True).beats("m1", 6_000, 30_000, generation=2)
    story.beats("m2", 6_000, 8_000, generation=2)
    assert story.play(30_000).accusations == []
    assert story.sync(8_100, "m2", 2).play(30_000).opened("session-expired") == ["m2"]


def silent_after(story, last_beat_ms, generation):
    """Everybody but m2 goes on; return the deadline that m2 is given."""
    story.beats("m1", last_beat_ms, 40_000, generation=generation)
    [(member, deadline_ms)] = story.play(40_000).facts("session-expired", "subject", "deadline_ms")
    assert member == "m2"
    return deadline_ms


def joined_twice(poll_ms=60_000):
    """m1 and m2 have been heard twice in generation 1, and generation 2 completes its join phase at 5,000."""
    story = stable("m1", "m2", poll_ms=poll_ms).beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000)
    return story.beat(4_000, "m1", error=27)


def test_the_end_of_a_join_phase_restarts_every_clock():
    story = rebalance(joined_twice(), 5_000, 2, "m1", "m2")
    story.rows = [r for r in story.rows if not (r[0] == 5_050 and b'"memberId":"m2"' in r[2].value)]
    story.sync(5_300, "m2", 2)  # from Stable: restarts nothing
    assert silent_after(story, 6_000, 2) == 5_000 + 6_000


def test_a_rejoin_of_a_stable_group_restarts_nothing():
    story = (
        stable("m1", "m2").beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000).join(5_000, "m2", 1).sync(5_100, "m2", 1)
    )
    assert silent_after(story, 4_000, 1) == 3_000 + 6_000


SYNCS = {
    "parked until the leader's came: restarts": (100, 5_050 + 6_000),
    "answered from Stable: does not": (1, 5_000 + 6_000),
}


@pytest.mark.parametrize("name", SYNCS)
def test_which_syncs_restart_the_session_timer(name):
    parked_ms, deadline_ms = SYNCS[name]
    story = joined_twice().join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2)
    story.sync(5_010, "m1", 2, leader=True).record(5_010, 2, "m1", "m2").sync(5_050, "m2", 2, parked_ms=parked_ms)
    assert silent_after(story, 6_000, 2) == deadline_ms


def test_a_sync_answered_27_restarts_nothing_and_ends_no_wait():
    story = joined_twice().join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2)
    story.record(5_040, 2, "m1", "m2").sync(5_050, "m1", 2, leader=True).sync(5_060, "m2", 2, error=27)
    assert story.beats("m1", 6_000, 30_000, generation=2).play(30_000).accusations == []


def test_a_leaders_sync_that_is_asked_once_more_restarts_nothing():
    """It is answered from Stable; the last thing heard of the leader then is this."""
    story = rebalance(joined_twice(), 5_000, 2, "m1", "m2").sync(7_000, "m1", 2, leader=True)
    story.beats("m2", 6_000, 40_000, generation=2)
    [(member, deadline_ms)] = story.play(40_000).facts("session-expired", "subject", "deadline_ms")
    assert (member, deadline_ms) == ("m1", 5_050 + 6_000)


def test_a_session_starts_when_a_sync_that_waited_is_answered():
    """From a live broker's log: the assignment's record, of 5,002, is stored at 9,000, and m2 is answered then."""
    story = joined_twice().join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2).record(5_002, 2, "m1", "m2")
    story.sync(9_000, "m1", 2, leader=True, parked_ms=3_999).sync(9_000, "m2", 2, parked_ms=3_996)
    story.beats("m1", 10_000, 14_000, generation=2).beat(15_100, "m1", 2, error=27)
    story.join(15_200, "m1", 3, listed=["m1"]).record(15_210, 3, "m1").beats("m1", 16_000, 18_000, generation=3)
    assert story.play(18_000).facts("session-expired", "subject", "deadline_ms") == [("m2", 15_000)]


def test_a_session_starts_when_a_sync_is_answered_with_the_leaders():
    """The assignment is stored at 5,130, 128 ms after its record is written. m2 asks at 5,030."""
    story = joined_twice().join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2).record(5_002, 2, "m1", "m2")
    story.sync(5_130, "m1", 2, leader=True, parked_ms=128).sync(5_130, "m2", 2, parked_ms=100)
    assert silent_after(story, 6_000, 2) == 5_130 + 6_000


def test_a_sync_answered_from_stable_restarts_nothing_though_it_stood_in_a_queue():
    """m2 joined and synced in time; what it asks once more comes long after, and waits for a busy broker only."""
    story = rebalance(joined_twice(), 5_000, 2, "m1", "m2").sync(9_300, "m2", 2, parked_ms=300)
    assert silent_after(story, 6_000, 2) == 5_050 + 6_000


def test_who_leads_a_stable_group_waits_for_no_sync_though_only_its_record_is_known():
    """The monitor begins with a record; a static member's return is the first line, and names m1 as the leader."""
    pod, next_ = (Who(name, instance_id="pod-1", port=5_010) for name in ("old", "next"))
    story = Story().record(1_000, 3, "m1", pod).join(2_000, next_, 3, asked="", leader="m1")
    story.record(2_000, 3, "m1", next_).beats("next", 3_000, 9_000, generation=3)
    assert story.play(3_500).members["m1"]["client_phase"] != "awaiting-assignment"


def test_a_line_that_trails_an_answer_25_does_not_take_that_back():
    """m2 is told 25 at 14,000; the line of a heartbeat applied at 13,000 comes after it, by another connection."""
    member = Member("m2", unknown_ms=14_000, last_heartbeat_ms=8_000)
    record_heartbeat(member, 13_000)
    assert (member.unknown_ms, member.last_heartbeat_ms) == (14_000, 13_000)
    record_heartbeat(member, 14_001)
    assert member.unknown_ms is None


def test_a_heartbeat_without_a_member_id_makes_no_member():
    """librdkafka sends them while it rejoins, and a coordinator that loads answers them 0, blindly."""
    assert set(stable("m1").beats("m1", 1_000, 3_000).beat(3_500, "").play(4_000).members) == {"m1"}


# how long m2's SyncGroup had waited at 14,000, and how it was answered -> when m2's session ends, silent since 6,000
WAITS = {
    "27, after its session ended unheeded": (8_900, 27, 20_000),
    "15, its leader's assignment was not stored": (8_900, 15, 20_000),
    "27 at once: it came into the next join phase": (1, 27, 12_000),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_parked_sync_stops_its_session_from_ending_and_its_answer_starts_it_anew(name):
    """A live broker's log shows it: an expiry is ignored while the SyncGroup waits, its answer restarts the timer."""
    parked_ms, error, deadline_ms = WAITS[name]
    story = joined_twice(poll_ms=9_000).join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2)
    story.beat(6_000, "m2", 2).beats("m1", 6_000, 13_000, generation=2).beat(14_200, "m1", 2, error=27)
    story.sync(14_000, "m2", 2, error=error, parked_ms=parked_ms).join(20_000, "m1", 3, listed=["m1"], parked_ms=5_000)
    story.record(20_040, 3, "m1").sync(20_050, "m1", 3, leader=True).beats("m1", 21_000, 24_000, generation=3)
    assert story.play(24_000).facts("session-expired", "subject", "deadline_ms") == [("m2", deadline_ms)]


def test_a_sync_that_waits_as_its_coordinator_wakes_starts_the_session_anew():
    """m1 leads and sends nothing: its session, due at 11,000, ends at 15,000, and begins the phase that answers m2."""
    story = joined_twice().join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2).beat(6_000, "m2", 2)
    story.silent(7_000, 15_000).sync(15_000, "m2", 2, error=27)
    told = story.join(21_000, "m3", 3, listed=["m3"], asked="", parked_ms=5_900).play(24_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 15_000), ("m2", 21_000)]


# what m2 sends after its SyncGroup -> when its session ends
SEEMED_TO_WAIT = {
    "a heartbeat, answered 25: its session had ended as the coordinator woke": (25, 15_000),
    "nothing: its session began as it was answered": (None, 21_001),
}


@pytest.mark.parametrize("name", SEEMED_TO_WAIT)
def test_a_sync_answered_as_its_coordinator_woke_restarts_no_session(name):
    """m1 leads and is answered at 15,000. m2's SyncGroup of 6,990 is handled a moment before or after that."""
    error, deadline_ms = SEEMED_TO_WAIT[name]
    story = joined_twice().join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2).silent(7_000, 15_000)
    story.record(6_990, 2, "m1", "m2").sync(15_000, "m1", 2, leader=True, parked_ms=8_010)
    story.sync(15_001, "m2", 2, parked_ms=8_011)
    if error:
        story.beat(15_100, "m2", 2, error=error)
    story.beats("m1", 16_000, 21_000, generation=2, error=27 if error else 0).beat(21_100, "m1", 2, error=27)
    story.join(22_000, "m1", 3, listed=["m1"], parked_ms=100).record(22_040, 3, "m1")
    told = story.sync(22_050, "m1", 3, leader=True).beats("m1", 23_000, 26_000, generation=3).play(26_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", deadline_ms)]
    assert not told.facts("member-removed", "subject")


# what ends the wait of m2's SyncGroup -> the answer to the leader's
WAITS_ON = {"the assignment is stored": 0, "the assignment is not stored": 15, "the next join phase begins": 27}


@pytest.mark.parametrize("name", WAITS_ON)
def test_a_sync_answered_15_behind_a_stalled_write_waits_on_with_the_leaders(name):
    """m2's SyncGroup of 5,020 is answered 15 at 10,020. The leader's of 8,005 is answered at 13,005, and m2 is dead."""
    error = WAITS_ON[name]
    story = joined_twice(poll_ms=30_000).join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2)
    story.sync(10_020, "m2", 2, error=15, parked_ms=5_000).sync(
        13_005, "m1", 2, leader=True, error=error, parked_ms=5_000
    )
    story.beats("m1", 13_500, 18_500, generation=2, error=27 if error else 0).beat(19_100, "m1", 2, error=27)
    story.join(19_200, "m1", 3, listed=["m1"]).record(19_240, 3, "m1").sync(19_250, "m1", 3, leader=True)
    told = story.beats("m1", 20_000, 23_000, generation=3).play(23_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 19_005)]


def test_a_leaders_session_starts_with_a_followers_answer():
    """From a live broker's log: the leader's JoinGroup was applied, answered 15, and the phase ended after that."""
    story = joined_twice().join(5_900, "m1", 2, error=15, parked_ms=1_500).join(6_000, "m2", 2, leader="m1")
    story.beats("m2", 7_000, 11_000, generation=2).beat(11_500, "m2", 2, error=27)
    story.join(12_100, "m2", 3, listed=["m2"]).record(12_140, 3, "m2").sync(12_150, "m2", 3, leader=True)
    told = story.beats("m2", 13_000, 16_000, generation=3).play(16_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 6_000 + 6_000)]


def test_who_is_not_on_the_leaders_list_was_dropped():
    """m2 had a heartbeat at 3,000 and was left out at 5,000, four seconds before its deadline: it had not rejoined."""
    story = joined_twice(poll_ms=1_000).join(5_000, "m1", 2, listed=["m1"]).record(5_040, 2, "m1")
    story.sync(5_050, "m1", 2, leader=True)
    told = story.beats("m1", 6_000, 8_000, generation=2).play(8_000)
    assert set(told.members) == {"m1"}
    assert told.facts("rebalance-timeout", "subject", "at_ms", "evidence") == [("m2", 5_000, "observed")]


def test_a_leave_that_waits_for_a_write_explains_no_earlier_removal():
    """m2 leaves 300 ms after it was left out. That is refused as part of an answer, which waits for a stalled write."""
    story = joined_twice(poll_ms=1_000).join(5_000, "m1", 2, listed=["m1"]).record(5_040, 2, "m1")
    story.sync(5_050, "m1", 2, leader=True).leave(10_300, "m2", error=15, parked_ms=5_000)
    told = story.beats("m1", 6_000, 12_000, generation=2).play(12_000)
    assert told.facts("rebalance-timeout", "subject", "at_ms") == [("m2", 5_000)]


# ------------------------------------------------------------------------------------------------ static members

OLD, NEW = Who("old", instance_id="pod-1", port=5_001), Who("new", instance_id="pod-1", port=5_002)


def test_a_static_member_that_returns_is_replaced_not_dropped():
    story = stable("m1", OLD).beats("m1", 1_000, 20_000).beats("old", 1_000, 3_000)
    story.join(5_000, NEW, 1, asked="").record(5_010, 1, "m1", NEW).sync(5_020, "new", 1).beats("new", 6_000, 20_000)
    told = story.play(20_000)
    assert set(told.members) == {"m1", "new"}
    assert told.accusations == []


def test_a_static_member_inherits_what_its_former_member_held():
    story = stable("m1", OLD, partitions=2).beats("m1", 1_000, 6_000).join(5_000, NEW, 1, asked="")
    assert story.play(5_005).members["new"]["assignment"] == [{"topic": "t", "partitions": [2, 3]}]


def test_a_static_member_starts_its_clock_anew_when_replaced():
    """Its former member was heard last at 3,000; replaced as its join came, at 4,990, then silent: gone at 10,990."""
    story = stable("m1", OLD).beats("m1", 1_000, 10_500).beats("old", 1_000, 3_000)
    story.join(5_000, NEW, 1, asked="").record(5_010, 1, "m1", NEW).sync(5_020, "new", 1).beat(10_999, "m1", error=27)
    story.join(11_200, "m1", 2, listed=["m1"])
    facts = story.play(13_000).facts("session-expired", "subject", "member_id", "deadline_ms")
    assert facts == [("pod-1", "new", 10_990)]


# the successor's own session timeout -> when its session ends; it came at 4,990 and is heard at these instants
@pytest.mark.parametrize(
    ("session_ms", "heard_ms", "deadline_ms"),
    [
        (10_000, [], 4_990 + 6_000),
        (10_000, [6_000, 7_000], 7_000 + 10_000),
        (3_000, [], 4_990 + 6_000),
        (3_000, [6_000, 7_000], 7_000 + 3_000),
    ],
)
@pytest.mark.parametrize("record_ms", [4_999, 5_010])
def test_a_static_successors_first_session_lasts_as_long_as_its_predecessors_did(
    session_ms, heard_ms, deadline_ms, record_ms
):
    """Kafka starts the timer before it takes the successor's own timeout (`GroupMetadataManager`, 7451 and 7457)."""
    story = stable("m1", OLD).beats("m1", 1_000, deadline_ms - 1_000).beats("old", 1_000, 3_000)
    successor = replace(NEW, session_ms=session_ms)
    story.record(record_ms, 1, "m1", successor).join(5_000, successor, 1, asked="").sync(5_020, "new", 1)
    for at_ms in heard_ms:
        story.beat(at_ms, "new")
    story.beat(deadline_ms + 30, "m1", error=27).join(deadline_ms + 200, "m1", 2, listed=["m1"])
    told = story.play(deadline_ms + 2_000)
    [(found_ms,)] = told.facts("session-expired", "deadline_ms")
    assert abs(found_ms - deadline_ms) <= 10


def test_a_first_session_from_before_the_start_lasts_as_its_predecessors_did():
    """`run` reads lines from some time before `live_from_ms`. The record of the replacement is older, too."""
    story = stable("m1", OLD).record(4_999, 1, "m1", replace(NEW, session_ms=10_000))
    story.join(5_000, replace(NEW, session_ms=10_000), 1, asked="").sync(5_020, "new", 1).beats("m1", 1_000, 6_000)
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=T0 + 5_300), None)
    shard.apply([event for row in story.source_rows(6_500) for event in parse_row(row)], final=True)
    context = shard._groups.context("orders", shard.clock.progress_ms)
    session = latest_session(shard._groups.replica("orders").members["new"], context)
    assert session == Session(T0 + 4_990, 6_000)


def test_the_fenced_former_member_is_heard_no_more():
    story = stable("m1", OLD).beats("m1", 1_000, 9_000).beats("old", 1_000, 3_000)
    story.join(5_000, NEW, 1, asked="").record(5_010, 1, "m1", NEW).sync(5_020, "new", 1)
    told = story.beat(6_000, "old", error=82).beat(7_000, "old", error=25).play(8_000)
    assert set(told.members) == {"m1", "new"}


def test_a_late_join_line_brings_no_replaced_static_member_back():
    """Lines come 40 ms after their answers: the record of the successor, 30 ms later, is read first."""
    story = stable("m1", OLD).beats("m1", 1_000, 8_000).beats("old", 1_000, 8_000).beat(8_500, "m1", error=27)
    story.record(9_002, 2, OLD, "m1").record(9_034, 2, NEW, "m1")
    story.join(9_040, OLD, 2, listed=["old", "m1"], sendTimeMs=40.0).join(9_040, "m1", 2, sendTimeMs=40.0)
    story.join(9_074, NEW, 2, asked="", sendTimeMs=40.0).beats("m1", 10_000, 20_000, 2).beats("new", 10_000, 20_000, 2)
    told = story.play(20_000)
    assert set(told.members) == {"m1", "new"}
    assert told.accusations == []


# ------------------------------------------------------------------------------------------------ leaving

LEAVES = {
    "close": ("the consumer is being closed", "left", []),
    "no reason given": (None, "left", []),
    "an admin": ("member was removed by an admin: maintenance", "admin", []),
    "Java's poll timeout": ("consumer poll timeout has expired.", "poll-interval", ["m2"]),
    "a Connect worker's poll timeout": ("worker poll timeout has expired.", "poll-interval", ["m2"]),
}


@pytest.mark.parametrize("name", LEAVES)
def test_which_leaves_are_poll_breaches(name):
    reason, _, accused = LEAVES[name]
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m2", 1_000, 3_000).leave(3_500, "m2", reason=reason)
    rebalance(story.beat(4_500, "m1", error=27), 5_000, 2, "m1").beats("m1", 6_000, 30_000, generation=2)
    told = story.play(30_000)
    assert told.opened("poll-exceeded") == accused
    assert told.opened("session-expired") == told.opened("rebalance-timeout") == []
    assert set(told.members) == {"m1"}


def test_of_a_batch_of_leaves_only_those_without_an_error_are_gone():
    story = stable("m1", "m2", "m3").beats("m1", 1_000, 2_000)
    told = story.leave(2_500, "m2", "m3", errors={"m3": 25}).play(3_000)
    assert set(told.members) == {"m1", "m3"}


def test_a_leave_right_behind_its_join_is_not_taken_for_one_before_it():
    """Both lines have whole milliseconds: the join's was written at 9,000, the leave was applied at 8,999.6."""
    story = stable("m1", "m2").beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000).beat(8_500, "m1", error=27)
    story.join(9_000, "m1", 2, listed=["m1", "m2"]).join(9_000, "m2", 2).leave(9_000, "m2", parked_ms=0.6)
    story.join(15_030, "m1", 3, listed=["m1"], parked_ms=6_000).record(15_040, 3, "m1")
    story.sync(15_050, "m1", 3, leader=True).beats("m1", 16_000, 18_000, generation=3)
    assert story.play(18_000).accusations == []


def test_a_leave_read_before_earlier_joins_is_final():
    """All lines come 40 ms late; a leave is ordered by when it was applied, a join by when its line came."""
    story = stable("m1", "m2").beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000).beat(8_500, "m1", error=27)
    story.record(9_002, 2, "m1", "m2")
    story.join(9_040, "m1", 2, listed=["m1", "m2"], sendTimeMs=40.0).join(9_040, "m2", 2, sendTimeMs=40.0)
    told = story.leave(9_075, "m2", sendTimeMs=40.0).beats("m1", 10_000, 12_000, 2).record(22_000, 3).play(24_000)
    assert told.accusations == [("session-expired", "m1")]


def test_a_leave_read_before_earlier_joins_begins_the_next_phase():
    """Found by simulation: m2 left the generation just announced, before any member could sync."""
    story = stable("m1", "m2").beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000).beat(8_500, "m1", error=27)
    story.join(9_040, "m1", 2, listed=["m1", "m2"], sendTimeMs=40.0).join(9_040, "m2", 2, sendTimeMs=40.0)
    group = story.leave(9_075, "m2", sendTimeMs=40.0).play(9_500).group
    assert (group["state"], group["generation"], len(group["members"])) == ("PreparingRebalance", 2, 1)


def test_a_leave_told_a_millisecond_after_the_record_that_it_led_to_begins_no_phase():
    """m2's leave ends the join phase. No line of the next generation has come yet."""
    story = stable("m1", "m2").beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000).beat(4_500, "m1", error=27)
    told = story.record(5_010, 2, "m1").leave(5_011, "m2").play(5_400)
    assert (told.group["state"], list(told.members)) == ("Stable", ["m1"])


def test_a_leave_refused_as_a_whole_moves_nobody():
    assert set(stable("m1", "m2").leave(2_500, "m2", error=25).play(3_000).members) == {"m1", "m2"}


def test_a_leave_by_instance_id_names_no_member():
    told = stable("m1", OLD).beats("m1", 1_000, 2_000)
    told.who[""] = Who("", instance_id="pod-1")
    assert set(told.leave(2_500, "").play(3_000).members) == {"m1"}


@pytest.mark.parametrize("trails_ms", [-5, 5])
def test_an_admin_who_removes_the_last_member_by_its_instance_lets_no_session_end(trails_ms):
    """Kafka's own test of it: the line names no member id, and its record tells that the group is empty."""
    story = stable(OLD).beats("old", 1_000, 4_000)
    story.who[""] = Who("", instance_id="pod-1")
    story.record(9_800, 2).leave(9_800 + trails_ms, "", reason="member was removed by an admin")
    assert story.play(20_000).accusations == []


@pytest.mark.parametrize("trails_ms", [-400, -1, 0, 1, 400])
def test_a_leave_explains_a_removal_within_the_grace_before_and_after(trails_ms):
    """The removal becomes known at 5,000 by the leader's list."""
    story = joined_twice().leave(5_000 + trails_ms, "m2")
    story.join(5_000, "m1", 2, listed=["m1"]).record(5_040, 2, "m1").sync(5_050, "m1", 2, leader=True)
    assert story.beats("m1", 6_000, 20_000, generation=2).play(20_000).accusations == []


def test_a_leave_whose_answer_waited_behind_a_stalled_write_explains_it_too():
    """Applied at 4,990, its line comes seconds later; its record came in time."""
    story = joined_twice().leave(9_990, "m2", parked_ms=5_000)
    story.join(5_000, "m1", 2, listed=["m1"]).record(5_040, 2, "m1").sync(5_050, "m1", 2, leader=True)
    assert story.beats("m1", 6_000, 20_000, generation=2).play(20_000).accusations == []


# how the leave of m2 at 5,000 was answered, after which wait -> who is a member then
LOST_LEAVES = {
    "15 behind a stalled write: it was applied": (15, 5_000, {"m1"}),
    "15 at once": (15, 0, {"m1", "m2"}),
    "16 after a wait": (16, 5_000, {"m1", "m2"}),
    "25 after a wait": (25, 5_000, {"m1", "m2"}),
}


@pytest.mark.parametrize("name", LOST_LEAVES)
def test_a_leave_whose_answer_was_lost_behind_a_stalled_write(name):
    error, parked_ms, members = LOST_LEAVES[name]
    story = stable("m1", "m2").beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000)
    told = story.leave(5_000 + parked_ms, "m2", error=error, parked_ms=parked_ms).play(5_000 + parked_ms)
    assert set(told.members) == members


def test_a_leave_answered_15_is_no_sign_of_a_coordinator_move():
    """Its answer was lost behind a stalled write; taken for a move, it would be blamed for the next expiry."""
    story = stable("m1", "m2", "m3")
    for member in ("m1", "m2", "m3"):
        story.beats(member, 1_000, 8_000)
    story.leave(13_500, "m3", error=15, parked_ms=5_000).beat(9_000, "m1", error=27)
    story.join(14_003, "m1", 2, listed=["m1"], parked_ms=4_500).record(14_040, 2, "m1")
    told = story.sync(14_050, "m1", 2, leader=True).beats("m1", 15_000, 16_000, generation=2).play(16_000)
    assert told.facts("session-expired", "subject", "deadline_ms", "cause") == [("m2", 14_000, "session-timeout")]


def test_a_silent_leave_and_a_join_on_the_same_connection_is_a_slept_over_poll():
    back = Who("m2-again", client_id="client-m2", port=5_001)
    story = stable("m1", "m2", poll_ms=3_000).beats("m1", 1_000, 9_000).beats("m2", 1_000, 3_000).leave(3_500, "m2")
    rebalance(story.beat(4_500, "m1", error=27), 5_000, 2, "m1", back)
    told = story.beats("m1", 6_000, 9_000, generation=2).play(9_000)
    assert told.facts("poll-exceeded", "subject", "evidence", "deadline_ms") == [("m2", "inferred", 3_500)]


@pytest.mark.parametrize("arrived_ms", [3_498, 3_499, 3_500])
def test_a_join_that_is_told_to_have_arrived_with_the_leave_came_after_it(arrived_ms):
    """Times are cut and rounded; on one connection nothing is read before the answer before it is sent."""
    back = Who("m2-again", client_id="client-m2", port=5_001)
    story = stable("m1", "m2", poll_ms=3_000).beats("m1", 1_000, 9_000).beats("m2", 1_000, 3_000).leave(3_500, "m2")
    story.beat(4_500, "m1", error=27).join(5_000, back, 2, parked_ms=5_000 - arrived_ms)
    story.join(5_000, "m1", 2, listed=["m1", "m2-again"]).record(5_040, 2, "m1", back)
    told = story.sync(5_050, "m1", 2, leader=True).beats("m1", 6_000, 9_000, generation=2).play(9_000)
    assert told.facts("poll-exceeded", "subject", "evidence", "deadline_ms") == [("m2", "inferred", 3_500)]


@pytest.mark.parametrize(("poll_ms", "accused"), [(3_300, ["m2"]), (10_000, []), (300_000, [])])
def test_who_leaves_and_joins_within_a_poll_interval_of_its_join_has_polled_in_time(poll_ms, accused):
    """``unsubscribe()`` and ``subscribe()``, 3.4 s after it had joined."""
    back = Who("m2-again", client_id="client-m2", port=5_001)
    story = stable("m1", "m2", poll_ms=poll_ms).beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000).leave(3_500, "m2")
    rebalance(story.beat(4_000, "m1", error=27), 4_200, 2, "m1", back)
    told = story.beats("m1", 6_000, 9_000, generation=2).beats("m2-again", 6_000, 9_000, generation=2).play(9_000)
    assert told.opened("poll-exceeded") == accused
    assert set(told.members) == {"m1", "m2-again"}


@pytest.mark.parametrize(("reported_ms", "accused"), [(3_000, []), (None, ["m2"])])
def test_who_has_told_of_a_poll_since_has_polled_in_time(reported_ms, accused):
    back = Who("m2-again", client_id="client-m2", port=5_001)
    story = stable("m1", "m2", poll_ms=3_000).beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000).leave(3_500, "m2")
    if reported_ms:
        story.reports(reported_ms, "m2", 100)
    rebalance(story.beat(4_000, "m1", error=27), 4_200, 2, "m1", back)
    assert story.beats("m1", 6_000, 9_000, generation=2).play(9_000).opened("poll-exceeded") == accused


@pytest.mark.parametrize(
    "changed", [{"port": 5_009}, {"port": 5_009, "client_id": "other"}], ids=["new connection", "stranger"]
)
def test_a_silent_leave_and_a_join_on_another_connection_is_a_close(changed):
    back = Who("m2-again", **{"client_id": "client-m2", **changed})
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m2", 1_000, 3_000).leave(3_500, "m2")
    rebalance(story.beat(4_500, "m1", error=27), 5_000, 2, "m1", back)
    assert story.beats("m1", 6_000, 9_000, generation=2).play(9_000).accusations == []


# ------------------------------------------------------------------------------------------------ records


def test_the_record_of_an_empty_group_ends_its_members():
    """The last member dies: no line tells, the record does, at the deadline."""
    story = stable("m1").beats("m1", 1_000, 3_000).record(9_010, 2)
    told = story.play(12_000)
    assert told.group["state"] == "Empty"
    assert told.facts("session-expired", "subject", "evidence", "deadline_ms") == [("m1", "observed", 9_000)]


def test_whose_end_came_just_before_its_groups_deletion_is_told():
    """The tombstone comes within the grace in which a leave might have trailed."""
    told = stable("m1").beats("m1", 1_000, 3_000).record(9_010, 2).deleted(9_300).play(12_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 9_000)]
    assert [reason for reason, _ in told.closed("session-expired")] == ["group-deleted"]


def test_a_deleted_group_is_gone_and_its_name_begins_a_new_life():
    story = stable("m1").beats("m1", 1_000, 3_000).record(9_010, 2).deleted(11_000)
    assert story.play(12_000).history.groups == []
    assert story.play(12_000).closed("session-expired") == [("group-deleted", 11_000)]
    story.record(13_000, 0)
    assert rebalance(story, 13_100, 1, "n1").play(14_000).group["incarnation"] == 1


def test_a_generation_that_starts_over_is_a_new_incarnation():
    """The tombstone of the group before it was compacted away."""
    story = rebalance(stable("m1"), 3_000, 7, "m1").record(5_000, 8).record(9_000, 0)
    assert story.play(9_500).group["incarnation"] == 1
    assert story.play(8_500).group["incarnation"] == 0


def test_a_record_of_an_earlier_generation_that_trails_changes_nothing():
    """Its write stalled: generation 2's record is read after generation 3's answers."""
    story = rebalance(stable("m1", "m2"), 3_000, 2, "m1", "m2")
    story.join(5_000, "m1", 3, listed=["m1", "m2", "m3"]).join(5_000, "m3", 3)
    late = story.record(4_990, 2, "m1", "m2").play(5_500)
    assert late.group["generation"] == 3
    assert set(late.members) == {"m1", "m2", "m3"}


def test_a_coordinator_that_loads_its_log_falls_back_to_the_last_record():
    """Generation 2 was announced to m1 and m3 and never written; after a restart generation 1 is heard again."""
    story = stable("m1", "m2").beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000).beat(3_500, "m1", error=27)
    story.join(4_000, "m1", 2, listed=["m1", "m3"]).join(4_000, "m3", 2).silent(4_100, 9_000)
    story.beat(9_500, "m1", 1).beat(9_600, "m2", 1)
    told = story.play(9_700)
    assert (told.group["generation"], set(told.members)) == (1, {"m1", "m2"})
    assert told.group["state"] == "Stable"


def test_a_generation_announced_a_second_time_to_others_is_another_one():
    """Generation 2 never reached the log; after the restart generation 2 is announced again, to m1 and m4."""
    story = stable("m1", "m2").beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000).beat(3_500, "m1", error=27)
    story.join(4_000, "m1", 2, listed=["m1", "m3"]).join(4_000, "m3", 2).silent(4_100, 9_000)
    rebalance(story, 9_500, 2, "m1", "m4")
    assert set(story.play(9_700).members) == {"m1", "m4"}


# members of generation 2 by its record -> whose sessions have expired
RECORDED = {"another coordinator's: it lacks who joined": ((), ["m1", "m2"]), "its own": (("m1", "m3"), [])}


@pytest.mark.parametrize("name", RECORDED)
def test_whose_sessions_end_when_an_announced_generation_is_recorded_late(name):
    """Generation 2 was announced to m1 and m3. A coordinator that loads the log first lacks m3, and counts from 1."""
    members, expired = RECORDED[name]
    story = stable("m1", "m2").beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000).beat(3_500, "m1", error=27)
    story.join(4_000, "m1", 2, listed=["m1", "m3"]).join(4_000, "m3", 2)
    told = story.record(30_000, 2, *members).play(35_000)
    assert sorted(told.opened("session-expired")) == expired
    assert set(told.members) == set(members)


def test_who_joins_a_generation_that_a_record_calls_empty_is_no_member():
    """The record is another coordinator's: who answers does not know yet that it was taken over from."""
    story = stable("m1").beats("m1", 1_000, 3_000).record(20_000, 2)
    story.beat(22_000, "m1", 1, error=27).join(22_500, "m1", 2, listed=["m1"])
    assert story.play(23_000).members == {}
    assert set(rebalance(story, 24_000, 3, "m2").play(25_000).members) == {"m2"}


def test_other_protocols_blobs_stay_opaque_and_their_members_are_members():
    story = Story()
    story.record(100, 1, Who("w1", partitions=(1, 2)))
    row = story.rows[0]
    value = row[2].value.replace(b"\0\x08consumer", b"\0\x07connect")
    story.rows = [(row[0], row[1], row[2]._replace(value=value))]
    told = story.play(1_000)
    assert told.members["w1"]["assignment"] == []
    assert told.group["protocol_type"] == "connect"


# ------------------------------------------------------------------------------------------------ a lost JoinGroup


@pytest.mark.parametrize("version", [3, 2])
def test_a_newcomer_whose_first_answer_was_lost_is_known_by_the_leaders_list(version):
    """Before version 4 it is let in at once, under an id that its client does not learn (answer 15)."""
    newcomer = Who("app-00000000-0000-4000-8000-000000000000", client_id="app", port=5_060)
    story = stable("m1").beats("m1", 1_000, 9_000).beat(9_500, "m1", error=27)
    story.join(14_000, newcomer, -1, asked="", error=15, parked_ms=5_000, version=version)
    shown = story.join(14_002, "m1", 2, listed=["m1", newcomer]).play(14_500).members[newcomer.member_id]
    assert (shown["client_id"], shown["session_timeout_ms"]) == ("app", 6_000)


def test_a_leader_that_has_left_is_not_let_in_by_a_late_answer_that_names_it():
    """A JoinGroup of its client was answered 15 before. It leads generation 2 and leaves as it is answered."""
    leader = Who("app-00000000-0000-4000-8000-000000000000", client_id="app", port=5_060)
    story = stable("m1").beats("m1", 1_000, 9_000).beat(9_500, "m1", error=27)
    story.join(14_000, leader, -1, asked="", error=15, parked_ms=5_000, version=2)
    story.join(14_002, leader, 2, listed=[leader, "m1"]).leave(14_010, leader.member_id)
    assert list(story.join(14_025, "m1", 2, parked_ms=4_000).play(15_000).members) == ["m1"]


# ------------------------------------------------------------------------------------------------ gone together


def test_the_longest_session_after_a_load_dates_the_shorter_ones():
    """broker-2's load started them all; the last ended at 14,100, so m1's, 4 s shorter, ended at 10,100."""
    story = stable("m1", Who("m2", client_id="client-m2", port=5_001, session_ms=10_000))
    story.beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000)
    story.beat(4_000, "m1", error=16).record(14_100, 2)
    story.brokers["broker-2"] = 0
    told = story.join(15_000, "m3", -1, error=79, asked="", broker="broker-2").play(20_000)
    assert sorted(told.facts("session-expired", "subject", "deadline_ms")) == [("m1", 10_100), ("m2", 14_100)]


# whom the record of generation 2 lists, which is read before m1 is answered that its assignment was not stored -> state
STORED = {"the leader": (("m1", "m2"), "PreparingRebalance"), "another coordinator's member": (("m3",), "Stable")}


@pytest.mark.parametrize("name", STORED)
def test_a_record_read_before_the_answer_15_is_the_leaders_if_it_lists_it(name):
    listed, state = STORED[name]
    story = joined_twice().join(5_000, "m1", 2, ("m1", "m2")).join(5_000, "m2", 2, leader="m1")
    story.record(8_000, 2, *listed).sync(10_100, "m1", 2, leader=True, error=15, parked_ms=5_000)
    assert story.play(10_400).group["state"] == state


# what shows generation 2 -> who is known to have announced it; broker-1 had announced generation 1
ANNOUNCED = {
    "JoinGroups": (lambda story: rebalance(story, 5_000, 2, "m1"), "broker-1"),
    "a record alone": (lambda story: story.record(5_000, 2, "m1"), ""),
    "a heartbeat alone": (lambda story: story.beat(5_000, "m1", 2), ""),
    "a record, and a JoinGroup whose line is late": (
        lambda story: story.record(5_000, 2, "m1").join(5_005, "m1", 2, listed=["m1"], parked_ms=10),
        "broker-1",
    ),
    "the epoch of an upgrade": (lambda story: story.epoch(5_000, 2).target(5_000, 2).member(5_000, "m1"), ""),
}


@pytest.mark.parametrize("name", ANNOUNCED)
def test_a_broker_has_announced_a_generation_only_if_its_joingroups_were_seen(name):
    adds, broker = ANNOUNCED[name]
    told = adds(stable("m1").beats("m1", 1_000, 4_000)).play(5_100)
    assert (told.group["generation"], told.group["announced_by"]) == (2, broker)

"""What a removal proves where another broker took over, or may have: seen first on Kafka's own coordinator."""

from dataclasses import replace

import pytest

from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.shard.shard import ShardSettings
from coordinator_model.states import Cause
from tests.oracle.monitor import Monitor
from tests.support.story import T0, Story, Who, consumers, stable

SESSION = {"consumer_session_timeouts_ms": {"": 6_000}}
OLD, NEW = Who("old", instance_id="pod-1", port=5_001), Who("new", instance_id="pod-1", port=5_002)


def two_brokers(story):
    story.brokers = {"broker-1": 0, "broker-2": 0}
    return story


# when the tombstones of c2 are written, whose leave of 10,000 was answered 15 behind a stalled write -> told
LEAVES = {
    "by its own write": (10_000, []),
    "by another coordinator, as its session ends": (14_400, [("session-expired", "c2")]),
}


@pytest.mark.parametrize("name", LEAVES)
def test_a_leave_behind_a_stalled_write_explains_what_is_written(name):
    gone_ms, told = LEAVES[name]
    story = two_brokers(consumers("c1", "c2")).hellos("c1", 1_000, 9_000, 2).hellos("c2", 1_000, 8_400, 2)
    story.hello(15_000, "c2", -1, -1, error=15, parked_ms=5_000).gone(gone_ms, "c2")
    for at_ms in range(15_500, 30_000, 1_000):
        story.hello(at_ms, "c1", 2, 2, broker="broker-2")
    said = story.play(30_000, **SESSION)
    assert said.accusations == told
    assert "refuted" not in [reason for reason, _ in said.closed("session-expired")]


@pytest.mark.parametrize(("gone_ms", "told"), [(10_000, []), (14_400, [("session-expired", "c2")])])
def test_a_leave_refused_by_an_unloaded_coordinator_explains_its_records(gone_ms, told):
    """The leave of 10,000 waited for its records, and was answered 16 a second later."""
    story = two_brokers(consumers("c1", "c2")).hellos("c1", 1_000, 9_000, 2).hellos("c2", 1_000, 8_400, 2)
    story.leads(0, "broker-1", 5_000, 10_000).leads(11_200, "broker-2", 16_000)
    story.hello(11_000, "c2", -1, -1, error=16, parked_ms=1_000).gone(gone_ms, "c2").epoch(gone_ms, 3)
    for at_ms in range(11_500, 30_000, 1_000):
        story.hello(at_ms, "c1", 2, 2, broker="broker-2")
    assert story.play(30_000, **SESSION).accusations == told


# when the tombstones of c2 are written that are read last, whose leave of 10,000 was refused -> told
@pytest.mark.parametrize(("gone_ms", "told"), [(10_000, set()), (14_400, {("session-expired", "c2")})])
def test_a_refused_leave_explains_records_that_are_read_after_its_line(gone_ms, told):
    """An unloaded coordinator answers the leave with 16 at 11,000. The tombstones are read a batch later."""
    story = two_brokers(consumers("c1", "c2")).hellos("c1", 1_000, 9_000, 2).hellos("c2", 1_000, 8_400, 2)
    story.leads(0, "broker-1", 5_000, 10_000).leads(11_200, "broker-2", 16_000)
    story.hello(11_000, "c2", -1, -1, error=16, parked_ms=1_000)
    for at_ms in range(11_500, 30_000, 1_000):
        story.hello(at_ms, "c1", 2, 2, broker="broker-2")
    monitor = Monitor(ShardSettings(cluster="c", partitions=1, live_from_ms=T0, **SESSION))
    first = story.source_rows(12_000)
    monitor.read(first)
    monitor.read([row for row in story.gone(gone_ms, "c2").epoch(gone_ms, 3).source_rows(30_000) if row not in first])
    assert {(t["rule"], t["subject"]) for t in monitor.incidents() if t["subject"] == "c2"} == told


def restarted(unknown_ms):
    """pod-1 was heard last at 4,000. Its next self replaces it at 9,600 on a broker that answers since 9,000."""
    story = two_brokers(stable("m1", OLD)).beats("m1", 1_000, 8_000).beats("old", 1_000, 4_000)
    story.leads(0, "broker-1").leads(9_200, "broker-2", 14_000)
    if unknown_ms:
        story.beat(unknown_ms, "old", error=25, broker="broker-2")
    story.beat(9_500, "m1", error=25, broker="broker-2").join(9_550, "m1", -1, error=79, asked="", broker="broker-2")
    story.join(9_900, "m3", 2, listed=["m3", NEW], parked_ms=300, broker="broker-2")
    return story.join(9_900, NEW, 2, asked="", parked_ms=300, broker="broker-2").record(9_950, 2, "m3", NEW)


# when the new coordinator said that it does not know pod-1's former member -> told
@pytest.mark.parametrize(("unknown_ms", "told"), [(9_400, [("session-expired", "pod-1")]), (None, [])])
def test_a_static_member_that_the_next_coordinator_does_not_know_had_expired(unknown_ms, told):
    said = restarted(unknown_ms).beats("m3", 10_500, 20_000, 2, broker="broker-2").play(20_000)
    assert [each for each in said.accusations if each[1] == "pod-1"] == told


def test_a_former_coordinators_25_does_not_say_that_a_session_ended_at_the_next():
    """broker-1 wrote nothing of the end of pod-1's session. broker-2 has loaded it after 11,000: replaced in time."""
    story = two_brokers(stable(OLD)).beats("old", 1_000, 4_000).leads(0, "broker-1").leads(11_100, "broker-2")
    story.beat(10_100, "old", error=25).join(11_000, "m3", -1, error=16, asked="", broker="broker-2")
    story.join(11_200, "m3", -1, error=79, asked="", broker="broker-2")
    story.join(16_850, "m3", 2, listed=["m3", NEW], parked_ms=5_600, broker="broker-2")
    story.join(16_850, NEW, 2, asked="", parked_ms=1, broker="broker-2").record(16_900, 2, "m3", NEW)
    told = story.beats("m3", 17_500, 25_000, 2, broker="broker-2").play(25_000)
    assert told.accusations == []
    assert told.opened("member-removed") == []


def test_a_deposed_coordinators_25_does_not_contradict_a_removal_by_the_next():
    """broker-2 has loaded c2 by 9,500 and lets its session end. broker-1, where that ended before, goes on until then.

    Metadata names broker-2 only at 11,500.
    """
    story = two_brokers(consumers("c1", "c2")).hellos("c1", 1_000, 8_000, 2).hellos("c2", 1_000, 4_000, 2)
    story.leads(0, "broker-1").leads(11_500, "broker-2")
    story.hello(9_000, "c1", 2, 2, error=16, broker="broker-2").hello(11_000, "c2", 2, 2, error=25)
    for at_ms in range(9_500, 20_000, 1_000):
        story.hello(at_ms, "c1", 2, 2, broker="broker-2")
    told = story.gone(15_200, "c2").play(20_000, **SESSION)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("c2", 15_200)]
    assert told.opened("member-removed") == []


# when c2 begins to revoke and is heard last, by the clock of broker-1, which is 2 s ahead -> rule and cause
BY_A_CLOCK_AHEAD = {
    "it did not revoke for 10 s": (5_000, 14_000, ("rebalance-timeout", "rebalance-timeout")),
    "its session ended": (None, 9_000, ("session-expired", "session-timeout")),
}


@pytest.mark.parametrize("name", BY_A_CLOCK_AHEAD)
def test_the_predecessor_whose_clock_is_ahead_removed_whom_the_next_does_not_know(name):
    """broker-1 removes c2 at 15,000. broker-2 has loaded the log since, and answers 25 at 13,600 by its own clock."""
    revokes_ms, heard_ms, (rule, cause) = BY_A_CLOCK_AHEAD[name]
    story = two_brokers(consumers("c1", "c2", poll_ms=10_000)).hellos("c1", 1_000, 14_500, 2)
    story.hellos("c2", 1_000, heard_ms, 2).hello(13_600, "c2", 2, 2, error=25, broker="broker-2")
    if revokes_ms is not None:
        story.current(revokes_ms, "c2", 2, state=1)
    for at_ms in range(13_700, 30_000, 1_000):
        story.hello(at_ms, "c1", 2, 2, broker="broker-2")
    told = story.gone(15_000, "c2").epoch(15_000, 3).play(30_000, **SESSION)
    assert told.accusations == [(rule, "c2")]
    assert told.facts(rule, "deadline_ms", "cause") == [(15_000, cause)]


def test_a_static_member_replaced_just_after_its_session_may_have_ended_is_unknown():
    """Nobody asks who leads: the next coordinator may have loaded the group a moment before it was heard."""
    story = two_brokers(stable("m1", OLD)).beats("m1", 1_000, 4_000).beats("old", 1_000, 4_000)
    story.join(9_000, "m3", -1, error=79, asked="", broker="broker-2")
    story.join(9_400, "m3", 2, listed=["m3", NEW], parked_ms=300, broker="broker-2")
    story.join(9_400, NEW, 2, asked="", parked_ms=300, broker="broker-2").record(9_450, 2, "m3", NEW)
    told = story.beats("m3", 10_000, 20_000, 2, broker="broker-2").play(20_000)
    assert "pod-1" in told.opened("member-removed")
    assert ("session-expired", "pod-1") not in told.accusations


def test_a_member_found_unknown_after_its_session_is_told_at_once():
    """m4 has begun a join phase, so m2 may wait in it; the phase goes on, as m3 does not rejoin, and no list tells."""
    story = stable("m1", "m2", "m3").beats("m1", 1_000, 7_000).beats("m2", 1_000, 4_000).beats("m3", 1_000, 7_900)
    story.join(8_000, "m4", -1, error=79, asked="").beat(8_200, "m1", error=27).beat(8_300, "m3", error=27)
    told = story.beat(10_600, "m2", error=25).beats("m3", 9_000, 16_000, error=27).play(16_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 10_000)]


def test_a_session_whose_end_cut_off_the_others_sync_is_told_at_once():
    """m2 has joined and never syncs: as its session ends, m1's SyncGroup is answered 27 and the next phase begins."""
    for who in ("m2", OLD):
        [subject] = {"m2"} if who == "m2" else {"pod-1"}
        story = stable("m1", who).beats("m1", 1_000, 4_000).beat(4_400, "m1", error=27)
        story.join(5_000, "m1", 2, listed=["m1", who]).join(5_000, who, 2)
        story.sync(11_000, "m1", 2, error=27, parked_ms=5_900)
        told = story.beats("m1", 11_500, 14_000, 2, error=27).play(14_000)
        assert told.facts("session-expired", "subject", "deadline_ms") == [(subject, 11_000)]


@pytest.mark.parametrize(("others", "accused"), [([], [("session-expired", "m2")]), (["m4"], [])])
def test_which_of_two_began_a_phase_is_unknown_where_no_heartbeat_is_seen(others, accused):
    """As above, but the request log has no heartbeats: one of those that were due at that instant may be alive."""
    listed = ["m1", "m2", *others]
    story = stable(*listed).join(4_400, "m3", -1, error=79, asked="")
    story.join(5_000, "m1", 2, listed=listed)
    for member in ("m2", *others):
        story.join(5_000, member, 2)
    assert story.sync(11_000, "m1", 2, error=27, parked_ms=5_900).play(14_000).accusations == accused


@pytest.mark.parametrize("others", [[], ["m3"]])
def test_a_member_unknown_in_a_group_that_never_was_empty_is_not_told(others):
    """The sessions of m2 and then of m1 end. Without m3, who knew m1 would have recorded an empty group."""
    members = ["m1", "m2", *others]
    story = stable(*members)
    for member in ("m1", *others):
        story.beats(member, 1_000, 4_000).beat(4_400, member, error=27)
    story.join(5_000, "m1", 2, listed=members).join(5_000, "m2", 2)
    for member in others:
        story.join(5_000, member, 2).sync(11_000, member, 2, error=27, parked_ms=5_900)
        story.beats(member, 11_500, 30_000, 2, error=27)
    story.sync(11_000, "m1", 2, error=27, parked_ms=5_900).beat(25_000, "m1", 2, error=25)
    told = story.play(30_000)
    assert (("session-expired", "m1") in told.accusations) == bool(others)


def test_a_group_that_is_emptied_late_had_all_its_sessions_begin_anew():
    """Its record is written as the last session ends: at 13,000, though both seem to have ended at 10,000."""
    story = stable("m1", "m2").beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000).record(13_000, 2)
    told = story.play(20_000)
    assert {row[1] for row in told.facts("session-expired", "subject", "deadline_ms")} == {13_000}


def test_a_group_that_the_timeout_of_a_phase_emptied_dates_no_session():
    """m2's session ends at 10,000, which begins the phase. m1, frozen, has one more commit accepted and misses it."""
    story = stable(Who("m1", partitions=(1,), port=5_001), "m2", poll_ms=10_000).beats("m1", 1_000, 9_950)
    told = story.beats("m2", 1_000, 4_000).commit(15_000, "t", 1).record(20_010, 2).play(30_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 10_000)]
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m1", 20_010)]


@pytest.mark.parametrize(("removed_ms", "interval"), [(12_150, (None, None)), (12_400, (10_000, 12_400))])
def test_a_group_emptied_a_little_late_leaves_the_earlier_sessions_open(removed_ms, interval):
    """m2's session was due at 12,000. Either a short pause delayed its end, or all sessions had begun anew unseen."""
    story = stable("m1", "m2").beats("m1", 1_000, 4_000).beats("m2", 1_000, 6_000).record(removed_ms, 2)
    told = story.play(20_000).facts("session-expired", "subject", "deadline_ms", "detail")
    ends = {
        subject: (ms, detail.get("deadline_from_ms"), detail.get("deadline_until_ms")) for subject, ms, detail in told
    }
    from_ms, until_ms = (None if ms is None else T0 + ms for ms in interval)
    assert ends == {"m1": (10_000, from_ms, until_ms), "m2": (12_000, None, None)}


# when the record of the empty group is written -> the interval in which m1's session ended
EARLY = {9_995: (None, None), 9_800: (7_800, 10_000)}


@pytest.mark.parametrize("removed_ms", EARLY)
def test_a_group_emptied_before_a_session_was_due_may_have_been_loaded_unseen(removed_ms):
    """m1's session was due at 10,000. Either its heartbeat is dated late, or all sessions had begun anew unseen.

    Then m2's, of 8 s, was the last to end.
    """
    story = stable("m1", Who("m2", session_ms=8_000, port=5_001)).beats("m1", 1_000, 4_000).record(removed_ms, 2)
    told = story.play(20_000).facts("session-expired", "subject", "deadline_ms", "detail")
    [(ms, detail)] = [(ms, detail) for subject, ms, detail in told if subject == "m1"]
    from_ms, until_ms = (None if ms is None else T0 + ms for ms in EARLY[removed_ms])
    assert (ms, detail.get("deadline_from_ms"), detail.get("deadline_until_ms")) == (10_000, from_ms, until_ms)


def test_a_group_is_emptied_by_one_that_loaded_while_metadata_named_its_predecessor():
    """broker-2 loads the group at 4,500. A broker that does not know it yet names broker-1 at 9,000."""
    story = two_brokers(stable("m1", Who("m2", session_ms=10_000, port=5_001))).leads(0, "broker-1", 9_000)
    story.beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000).leads(14_000, "broker-2").record(14_500, 2)
    told = story.beat(16_000, "m1", error=25, broker="broker-2").play(40_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 10_500), ("m2", 14_500)]


def test_who_was_replaced_at_a_deposed_coordinator_may_end_last_at_the_next():
    """broker-2 loads the group at 5,000, unseen. There pod-1's session of 10 s ends last, and the group is empty.

    Its successors wait at broker-1, which writes nothing; the first is answered 82 as the second comes.
    """
    old = replace(OLD, session_ms=10_000)
    story = two_brokers(stable("m1", old)).beats("m1", 1_000, 4_000).beats("old", 1_000, 4_000)
    story.join(9_500, NEW, -1, error=82, asked="", parked_ms=500).record(15_000, 2)
    told = story.play(20_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 11_000)]


def test_who_left_before_another_coordinator_loaded_the_log_may_end_last_there():
    """broker-2 loads the group at 5,000, unseen. The log still has m2, whose session of 10 s ends last."""
    story = two_brokers(stable("m1", Who("m2", session_ms=10_000, port=5_001)))
    story.beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000).leave(4_500, "m2").record(15_000, 2)
    told = story.play(20_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 11_000)]


def test_who_waits_behind_a_stalled_write_was_alive_there_though_a_record_lacks_it():
    """broker-2 empties the group. broker-1, deposed, had let a heartbeat of m1 and pod-1 wait at 9,800: no 25."""
    story = two_brokers(stable("m1", OLD)).beats("m1", 1_000, 3_000).beats("old", 1_000, 3_000)
    for member in ("m1", "old"):
        for answered_ms in (9_000, 14_000, 14_800):
            story.beat(answered_ms, member, error=15, parked_ms=5_000)
        story.beat(15_700, member, error=25, broker="broker-2")
    told = story.record(14_640, 2).play(30_000)
    assert set(told.facts("session-expired", "subject", "cause")) == {
        ("m1", "coordinator-moved"),
        ("pod-1", "coordinator-moved"),
    }


@pytest.mark.parametrize(("given_ms", "ended_ms"), [(7_000, 10_000), (9_000, 13_000)])
def test_a_newcomer_s_id_empties_a_group_only_when_it_runs_out(given_ms, ended_ms):
    """m3 got an id for 6 s (79) and did not join. The record is written at 13,000."""
    story = stable("m1", "m2").beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000)
    told = story.join(given_ms, "m3", -1, error=79, asked="").record(13_000, 2).play(20_000)
    assert {row[1] for row in told.facts("session-expired", "subject", "deadline_ms")} == {ended_ms}


def test_a_group_that_another_s_leave_emptied_tells_nothing_of_when_a_session_ended():
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m2", 1_000, 4_000)
    told = story.leave(11_900, "m1").record(11_900, 2).play(20_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 10_000)]


def test_a_move_makes_no_later_removal_doubtful():
    """The cause of m2's end is unknown, as its coordinator had just moved. m3, never heard, dies in a calm group."""
    story = two_brokers(stable("m1", "m2")).beats("m1", 1_000, 9_000).beats("m2", 1_000, 8_900)
    story.record(11_800, 2).beat(12_000, "m2", error=25, broker="broker-2")
    story.join(14_000, "m3", 3, listed=["m3"], broker="broker-2").record(14_040, 3, "m3")
    story.sync(14_050, "m3", 3, leader=True, broker="broker-2").record(20_050, 4)
    told = story.beat(21_000, "m3", 3, error=25, broker="broker-2").play(30_000)
    assert ("session-expired", "m3") in told.accusations


# where a timer is due, beside the last line before a pause of 10,000 to 14,000 -> whether it slept, and whether it did
# where its broker would have written at once what it does
SLEPT = {
    "before the last line": (9_900, False, False),
    "just after it": (10_002, False, True),
    "later": (10_400, True, True),
}


@pytest.mark.parametrize("name", SLEPT)
def test_a_timer_sleeps_that_is_due(name):
    due_ms, slept, slept_at_once = SLEPT[name]
    pause = TimerReset(10_000, 14_100, Cause.COORDINATOR_PAUSE, "broker-1", woke_ms=14_000)
    assert pause.delays(due_ms) is slept
    assert pause.delays(due_ms, written_at_once=True) is slept_at_once


# what broker-1 did with m1 and m2 before it died at 8,500, and broker-2 at 11,500 -> the group at 13,000, as metadata
# named broker-2 at 12,000
TAKEN_OVER = {
    "a rebalance began": (lambda s: s.beat(8_000, "m1", error=27), ("Stable", 1, ["m1", "m2"])),
    "one left": (lambda s: s.leave(8_000, "m2"), ("Stable", 1, ["m1", "m2"])),
    "a generation was announced and not stored": (
        lambda s: s.beat(7_000, "m1", error=27).join(8_000, "m1", 2, listed=["m1"]),
        ("Stable", 1, ["m1", "m2"]),
    ),
    "nothing": (lambda s: s, ("Stable", 1, ["m1", "m2"])),
    "a rebalance began, and another at the next coordinator": (
        lambda s: s.beat(8_000, "m1", error=27).join(11_500, "m3", 2, listed=["m3"], broker="broker-2"),
        ("CompletingRebalance", 2, ["m3"]),
    ),
}


@pytest.mark.parametrize("name", TAKEN_OVER)
def test_a_coordinator_that_takes_over_knows_of_no_rebalance(name):
    """Seen on real brokers: all members were frozen, so nobody asked the next one, and it had the group Stable."""
    happens, expected = TAKEN_OVER[name]
    story = two_brokers(stable("m1", "m2")).beats("m1", 1_000, 7_000).beats("m2", 1_000, 7_000).leads(0, "broker-1")
    group = happens(story).silent(8_500, 30_000).leads(12_000, "broker-2").play(13_000).group
    assert (group["state"], group["generation"], sorted(m["member_id"] for m in group["members"])) == expected


# what the log has of the group, and the generation that broker-1 announced and never wrote -> the group at 13,000, as
# metadata named broker-2 at 12,000
UNWRITTEN = {
    "nothing, before the first": (lambda s: s, 1, ("Dead", [])),
    "perhaps a record that was not read, before a later one": (lambda s: s, 5, ("Stable", ["m1"])),
    "its tombstone": (lambda s: s.record(1_000, 4).deleted(2_000), 1, ("Dead", [])),
    "offsets": (lambda s: s.commit(1_000, "t", 0), 1, ("Empty", [])),
    "an empty generation": (lambda s: s.record(1_000, 4), 5, ("Empty", [])),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_a_coordinator_that_takes_over_knows_only_what_is_in_the_log(name):
    written, generation, expected = UNWRITTEN[name]
    story = written(two_brokers(Story()).leads(0, "broker-1")).join(8_000, "m1", generation, listed=["m1"])
    group = story.silent(8_500, 30_000).leads(12_000, "broker-2").play(13_000).group
    assert (group["state"], sorted(m["member_id"] for m in group["members"])) == expected


# until when m3's SyncGroup waits, which then is answered 27; who else has not synced -> who missed it
UNSYNCED = {
    "it began the next phase": (13_000, [], [("rebalance-timeout", "m2")]),
    "something else began that before": (12_000, [], []),
    "perhaps the other did": (13_000, ["m4"], []),
}


@pytest.mark.parametrize("name", UNSYNCED)
def test_who_did_not_sync_in_time_at_a_coordinator_that_died_is_told(name):
    """broker-1 announced generation 2 at 8,000 and wrote nothing. m2 had to sync within 5 s, and was not heard again.

    broker-2 loads generation 1, in which m2 never was.
    """
    until_ms, others, told = UNSYNCED[name]
    story = two_brokers(stable("m1", poll_ms=5_000)).beats("m1", 1_000, 7_000).leads(0, "broker-1")
    story.leave(7_500, "m1").join(8_000, "m2", 2, listed=["m2", "m3", *others], parked_ms=400)
    for who in ("m3", *others):
        story.join(8_000, who, 2, leader="m2", parked_ms=400)
    story.sync(until_ms, "m3", 2, error=27, parked_ms=until_ms - 8_010)
    story.silent(until_ms + 100, 60_000).leads(until_ms + 1_000, "broker-2", 30_000)
    for at_ms in range(16_000, 40_000, 1_000):
        story.beat(at_ms, "m1", broker="broker-2")
    said = story.play(40_000)
    assert [each for each in said.accusations if "m1" not in each] == told
    assert {t["broker"] for t in said.transitions if t["rule"] == "rebalance-timeout"} <= {"broker-1"}


def test_a_sync_as_a_load_shows_restarts_no_session():
    """broker-1 announced generation 2 and wrote nothing. broker-2 has 1, and answers m2 at once, from Stable."""
    story = two_brokers(stable("m1", "m2")).beats("m1", 1_000, 7_000).beats("m2", 1_000, 6_000)
    story.beat(7_100, "m1", error=27).join(8_000, "m1", 2, listed=["m1", "m2"]).join(8_000, "m2", 2)
    story.join(12_000, "m2", 1, leader="m1", parked_ms=0, broker="broker-2")
    story.sync(12_000, "m2", 1, parked_ms=0, broker="broker-2")
    for at_ms in (12_100, 13_000, 14_000):
        story.beat(at_ms, "m1", broker="broker-2")
    story.beat(15_000, "m1", error=27, broker="broker-2").join(15_100, "m1", 2, listed=["m1"], broker="broker-2")
    story.record(15_140, 2, "m1").sync(15_150, "m1", 2, leader=True, broker="broker-2")
    for at_ms in range(16_000, 20_000, 1_000):
        story.beat(at_ms, "m1", 2, broker="broker-2")
    assert story.play(20_000).accusations == [("session-expired", "m2")]


def test_whom_the_next_coordinator_loaded_it_lets_expire_though_they_had_left():
    """m2 left in a generation that was never stored; m1 was frozen. Both sessions began as broker-2 had loaded."""
    story = two_brokers(stable("m1", "m2")).beats("m1", 1_000, 8_000).beats("m2", 1_000, 7_000).leads(0, "broker-1")
    story.leave(8_100, "m2").silent(8_500, 40_000).leads(9_500, "broker-2", 14_500)
    told = story.record(15_300, 2).play(20_000)
    assert told.group["state"] == "Empty"
    assert ("session-expired", "m1") in told.accusations


def test_a_last_leave_is_undone_if_the_next_coordinator_does_not_find_its_record():
    """m1's LeaveGroup was answered 15 behind a stalled write, and no record shows that the group became empty."""
    story = two_brokers(stable("m1")).beats("m1", 1_000, 8_000).leave(13_500, "m1", error=15, parked_ms=5_000)
    story.join(14_000, "m2", -1, error=79, asked="", broker="broker-2")
    group = story.play(15_000).group
    assert (group["state"], [member["member_id"] for member in group["members"]]) == ("Stable", ["m1"])
    story.join(19_900, "m2", 2, listed=["m2"], parked_ms=5_500, broker="broker-2").record(19_940, 2, "m2")
    told = story.sync(19_950, "m2", 2, leader=True, broker="broker-2").play(25_000)
    assert told.facts("session-expired", "subject", "cause") == [("m1", "coordinator-moved")]


def test_a_last_leave_counts_though_its_record_is_read_after_a_move():
    story = two_brokers(stable("m1")).beats("m1", 1_000, 8_000).leave(13_500, "m1", error=15, parked_ms=5_000)
    story.join(14_000, "m2", -1, error=79, asked="", broker="broker-2").record(8_500, 2)
    story.rows[-1] = (14_600, *story.rows[-1][1:])  # written at 8,500, read at 14,600
    told = story.play(25_000)
    assert (told.group["state"], told.accusations) == ("Empty", [])


# the first answer of the next coordinator, which may come while it loads
FIRST_ANSWERS = {
    "a heartbeat": lambda story: story.beat(9_000, "m1", 1, broker="broker-2"),
    "a refusal": lambda story: story.join(9_000, "m2", -1, error=25, asked="m2", broker="broker-2"),
}


@pytest.mark.parametrize("name", FIRST_ANSWERS)
def test_who_takes_over_reverts_to_its_log_whatever_it_answers_first(name):
    """broker-1 announced generation 2 as it let m1 expire, and wrote nothing. No metadata is asked for."""
    story = two_brokers(stable("m1")).beats("m1", 1_000, 2_000)
    story.join(8_100, "m2", 2, listed=["m2"], asked="", parked_ms=5)
    assert set(story.play(8_500).members) == {"m2"}
    group = FIRST_ANSWERS[name](story).play(10_000).group
    assert (group["state"], group["generation"]) == ("Stable", 1)
    assert [member["member_id"] for member in group["members"]] == ["m1"]


def test_who_takes_over_reverts_to_the_protocol_in_its_log():
    """broker-1 announced generation 2 with another assignor, and wrote nothing."""
    story = two_brokers(stable("m1")).beats("m1", 1_000, 2_000)
    story.join(8_100, "m2", 2, listed=["m2"], asked="", parked_ms=5)
    at_ms, place, row = story.rows[-1]
    story.rows[-1] = (at_ms, place, row._replace(value=row.value.replace(b'"range"', b'"roundrobin"')))
    assert story.play(8_500).group["protocol"] == "roundrobin"
    story.beat(9_000, "m2", 2, error=25, broker="broker-2")
    assert story.play(10_000).group["protocol"] == "range"


def test_a_blind_0_to_a_generation_that_was_never_stored_shows_no_lost_line():
    """Found by simulation: the next coordinator answers while it loads (``GroupCoordinatorService.heartbeat``)."""
    story = two_brokers(stable("m1", "m2")).beats("m1", 1_000, 7_000).beats("m2", 1_000, 6_000).leads(0, "broker-1")
    story.join(8_000, "m1", 2, listed=["m1", "m2"]).beat(8_200, "m1", 2, error=16).leads(8_500, "broker-2")
    story.beat(9_000, "m1", 2, broker="broker-2").beat(10_000, "m1", 2, broker="broker-2")
    story.join(10_500, "m3", -1, error=79, asked="", broker="broker-2").beat(
        11_000, "m1", 2, error=22, broker="broker-2"
    )
    story.join(16_400, "m3", 2, listed=["m3"], parked_ms=5_800, broker="broker-2").record(16_440, 2, "m3")
    told = story.sync(16_450, "m3", 2, leader=True, broker="broker-2").play(20_000)
    assert {subject for _, subject in told.accusations} == {"m1", "m2"}
    assert told.opened("member-removed") == []


def test_a_rejoin_after_a_blind_0_to_an_unstored_generation_restarts_nothing():
    """broker-2 answers m1's heartbeat of generation 2 while it loads. It has loaded by 11,000, with generation 1."""
    story = two_brokers(stable("m1", "m2")).beats("m1", 1_000, 7_000).beats("m2", 1_000, 7_000).leads(0, "broker-1")
    story.join(8_000, "m2", 2, listed=["m2", "m1"]).join(8_000, "m1", 2).beat(8_200, "m1", 2, error=16)
    story.leads(8_500, "broker-2").beat(9_000, "m1", 2, broker="broker-2")
    story.join(10_900, "m2", 1, error=14, broker="broker-2").join(11_000, "m2", 1, broker="broker-2")
    story.join(15_000, "m1", 1, broker="broker-2").beats("m2", 12_000, 16_000, 1, broker="broker-2")
    story.beat(17_000, "m2", 1, error=27, broker="broker-2").join(17_100, "m2", 2, listed=["m2"], broker="broker-2")
    story.record(17_110, 2, "m2").sync(17_120, "m2", 2, leader=True, broker="broker-2")
    told = story.beats("m2", 18_000, 22_000, 2, broker="broker-2").play(22_000)
    assert told.accusations == [("session-expired", "m1")]
    assert told.facts("session-expired", "deadline_ms")[0][0] <= 17_000


def test_a_generation_number_used_twice_is_of_two_phases():
    """broker-1 drops m1 as it gives out generation 2, and writes nothing; broker-2 writes its own 2 as m1 expires."""
    slow = Who("m1", session_ms=10_000)
    story = two_brokers(stable(slow, poll_ms=8_000)).beats("m1", 1_000, 4_000).beat(4_600, "m1", error=27)
    story.join(12_500, "m2", 2, listed=["m2"], asked="", parked_ms=8_000).beats("m2", 13_000, 16_000, 2)
    story.record(30_000, 2).join(31_000, "m3", 3, listed=["m3"], broker="broker-2").record(31_040, 3, "m3")
    story.sync(31_050, "m3", 3, leader=True, broker="broker-2").beats("m3", 32_000, 40_000, 3, broker="broker-2")
    told = story.play(40_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m1", 12_500)]
    assert ("m1", 30_000) in told.facts("session-expired", "subject", "deadline_ms")


def test_a_sync_of_another_generation_of_the_same_number_begins_no_phase():
    """broker-2 announces generation 2 and writes it while m1's SyncGroup for broker-1's own waits for a write."""
    story = two_brokers(stable("m1")).beats("m1", 1_000, 7_000).leads(0, "broker-1").join(8_000, "m1", 2, listed=["m1"])
    story.join(12_000, "m1", 2, listed=["m1"], broker="broker-2").record(12_040, 2, "m1")
    story.sync(12_050, "m1", 2, leader=True, broker="broker-2")
    story.sync(13_050, "m1", 2, leader=True, error=15, parked_ms=5_000).leads(14_000, "broker-2")
    assert story.play(14_500).group["state"] == "Stable"
    told = story.record(18_050, 3).play(20_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 18_050)]


# who is told by the next coordinator, a moment after another, that it is unknown -> whether its session had ended
@pytest.mark.parametrize(("who", "expired"), [(OLD, True), (Who("old"), False)])
def test_an_unknown_static_member_shows_that_the_predecessor_went_on(who, expired):
    """broker-1 answered both until 8,000, broker-2 had loaded by 5,000. No join phase removes a static member."""
    story = two_brokers(stable("m1", who)).beats("m1", 1_000, 8_000).beats("old", 1_000, 8_000)
    story.beat(11_000, "m1", error=27, broker="broker-2").beat(11_010, "old", error=25, broker="broker-2")
    new = NEW if who is OLD else "new"
    story.join(12_000, "m1", 2, listed=["m1", new], broker="broker-2")
    story.join(12_000, new, 2, asked="", parked_ms=600, broker="broker-2").record(12_010, 2, "m1", new)
    told = story.beats("m1", 13_000, 20_000, 2, broker="broker-2").play(20_000)
    assert [rule for rule, _ in told.accusations] == (["session-expired"] if expired else [])


def test_a_heartbeat_in_a_generation_that_a_record_emptied_makes_no_member():
    """broker-1 is deposed and does not know of the record."""
    story = two_brokers(stable("m1")).beats("m1", 1_000, 4_000).record(10_000, 2).beat(10_500, "m1", 2)
    assert story.play(11_000).group["state"] == "Empty"


def test_a_joingroup_with_a_leader_lets_nobody_into_a_group_of_kip_848():
    """broker-1 is deposed and does not know yet that another coordinator has upgraded the group."""
    told = consumers("c1").join(1_000, "m1", 2, listed=["m1", "m2"]).join(1_000, "m2", 2, leader="m1").play(2_000)
    assert [member["member_id"] for member in told.group["members"]] == ["c1"]


def lost(who="m2", until_ms=30_000):
    """Broker-2 answers the others from 9,000 on and does not know ``who`` (25 at 12,000), in a phase that goes on."""
    story = two_brokers(stable("m1", who, "m3")).beats("m1", 1_000, 8_000).beats("m3", 1_000, 8_000)
    story.beats(who if who == "m2" else "old", 1_000, 8_000).beat(9_000, "m1", broker="broker-2")
    story.beat(11_000, "m1", broker="broker-2").beat(12_000, who if who == "m2" else "old", error=25, broker="broker-2")
    return story.beats("m1", 12_500, until_ms, error=27, broker="broker-2").play(until_ms)


def test_an_unknown_dynamic_member_had_expired_at_a_coordinator_that_nothing_dates():
    """Its session, which lasts 6 s, cannot have ended by the predecessor's answers: broker-2 had loaded it before."""
    [(subject, deadline_ms, detail)] = lost().facts("session-expired", "subject", "deadline_ms", "detail")
    from_ms, until_ms = detail["deadline_from_ms"] - T0, detail["deadline_until_ms"] - T0
    assert (subject, deadline_ms, until_ms) == ("m2", 12_000, 12_000)
    assert from_ms <= 11_000


def test_an_unknown_static_member_may_have_been_replaced_unseen():
    assert lost(OLD).accusations == []


def test_a_generation_that_was_announced_before_metadata_named_its_coordinator_stays():
    """broker-2 announces generation 2 at 11,000; broker-1 answers until 11,500. m2 never syncs: it expires."""
    story = two_brokers(stable("m1")).beats("m1", 1_000, 4_000).leads(0, "broker-1", 5_000)
    story.join(4_900, "m2", -1, error=79, asked="", broker="broker-2")
    story.join(11_000, "m2", 2, listed=["m2", "m3"], parked_ms=6_000, broker="broker-2")
    story.join(11_000, "m3", 2, parked_ms=5_000, broker="broker-2").beat(11_500, "m1", error=27)
    story.leads(12_000, "broker-2").sync(17_000, "m3", 2, error=27, parked_ms=5_900, broker="broker-2")
    story.beat(17_200, "m3", 2, error=27, broker="broker-2").join(17_500, "m3", 3, listed=["m3"], broker="broker-2")
    story.record(17_540, 3, "m3").sync(17_550, "m3", 3, leader=True, broker="broker-2")
    told = story.beats("m3", 18_500, 20_500, 3, broker="broker-2").play(20_500)
    [deadline_ms] = [at_ms for who, at_ms in told.facts("session-expired", "subject", "deadline_ms") if who == "m2"]
    assert deadline_ms == pytest.approx(17_000, abs=500)  # broker-1's last answer dates the load


def test_a_coordinator_that_loads_the_log_makes_nobody_a_member():
    """No record names m2. broker-2 accepts its heartbeat: it has not loaded the log yet."""
    story = two_brokers(stable("m1")).beats("m1", 1_000, 2_000).leave(3_000, "m1").record(3_000, 2)
    story.join(5_000, "m2", 3, listed=["m2"]).beats("m2", 6_000, 9_000, 3).beat(9_500, "m2", 3, error=16)
    story.beat(10_000, "m2", 3, broker="broker-2")
    told = story.play(10_500)
    assert told.members == {}
    assert told.group["state"] == "Empty"


def test_nobody_expires_at_a_deposed_coordinator_while_another_has_the_last_record():
    """broker-1 announced generation 2 and wrote nothing. broker-2 has 1 by 11,200. Metadata names it only at 14,000.

    At broker-1 m2 waits for its sync, and m1 goes on with generation 2. At broker-2 both sessions began with the load.
    """
    story = two_brokers(stable("m1", "m2", "m3")).leads(0, "broker-1")
    for member in ("m1", "m2", "m3"):
        story.beats(member, 1_000, 4_000).join(5_000, member, 2, listed=["m1", "m2", "m3"] if member == "m1" else ())
    story.beats("m1", 6_000, 18_000, 2).beat(11_200, "m3", 2, error=22, broker="broker-2").leads(14_000, "broker-2")
    story.join(11_300, "m3", 1, parked_ms=0, broker="broker-2").sync(11_310, "m3", 1, broker="broker-2")
    story.beats("m3", 12_300, 16_300, broker="broker-2").beat(17_300, "m3", error=27, broker="broker-2")
    story.join(17_400, "m3", 2, listed=["m3"], broker="broker-2").record(17_440, 2, "m3")
    told = story.sync(17_450, "m3", 2, leader=True, broker="broker-2").play(20_000)
    facts = told.facts("session-expired", "subject", "deadline_ms", "evidence")
    assert facts == [(member, 16_800, "observed") for member in ("m1", "m2")]


def test_a_heartbeat_that_the_deposed_coordinator_accepted_dates_no_load():
    """broker-2 has loaded the group at 5,000, so m2's session ends at 11,000. broker-1 hears m2 until 9,000.

    broker-2 answers m1 from 8,500 on, but metadata names it only at 12,000.
    """
    story = two_brokers(stable("m1", "m2")).beats("m1", 1_000, 7_000).beats("m2", 1_000, 9_000).leads(0, "broker-1")
    story.beat(8_500, "m1", broker="broker-2").leads(12_000, "broker-2").beat(12_100, "m1", error=27, broker="broker-2")
    story.join(15_000, "m1", 2, listed=["m1"], broker="broker-2").record(15_040, 2, "m1")
    told = story.sync(15_050, "m1", 2, leader=True, broker="broker-2").play(20_000)
    [(subject, detail)] = told.facts("session-expired", "subject", "detail")
    assert (subject, detail["deadline_from_ms"] - T0, detail["deadline_until_ms"] - T0) == ("m2", 6_100, 15_000)


# when broker-2 tells m1 to rejoin -> when m2's session of 6 s ended; broker-1 answered until 6,000
@pytest.mark.parametrize(("told_ms", "deadline_ms"), [(11_600, 12_000), (9_600, 15_600), (13_600, 13_300)])
def test_a_phase_that_began_a_little_early_shows_that_its_group_was_loaded_earlier(told_ms, deadline_ms):
    """broker-1 may have gone on for up to 2 s after broker-2 had loaded the group. Then m2's end began the phase."""
    story = two_brokers(stable("m1", "m2")).beats("m1", 1_000, 6_000).beats("m2", 1_000, 5_500)
    story.beats("m1", 8_000, told_ms - 600, broker="broker-2").beat(told_ms, "m1", error=27, broker="broker-2")
    story.join(17_000, "m1", 2, listed=["m1"], broker="broker-2").record(17_040, 2, "m1")
    told = story.sync(17_050, "m1", 2, leader=True, broker="broker-2").play(20_000)
    [(subject, ended_ms)] = told.facts("session-expired", "subject", "deadline_ms")
    assert (subject, ended_ms) == ("m2", deadline_ms)


@pytest.mark.parametrize(("unknown_ms", "deadline_ms"), [(11_500, 11_500), (12_600, 12_400)])
def test_an_answer_25_dates_a_load_that_is_known_within_an_interval(unknown_ms, deadline_ms):
    """broker-2 seems to have loaded the group from 5,000 to 6,400, so m2's session ended from 11,000 to 12,400.

    But the 27 tells of an earlier end: broker-1 may have gone on long after the load, which came after m2's join.
    """
    story = two_brokers(stable("m1", "m2")).beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000)
    story.beat(5_000, "m1", error=16).beat(6_400, "m1", error=27, broker="broker-2")
    story.beats("m1", 7_400, 20_400, error=27, broker="broker-2").beat(unknown_ms, "m2", error=25, broker="broker-2")
    [(subject, told_ms, detail)] = story.play(20_400).facts("session-expired", "subject", "deadline_ms", "detail")
    assert (subject, told_ms) == ("m2", deadline_ms)
    assert (detail["deadline_from_ms"] - T0, detail["deadline_until_ms"] - T0) == (6_100, unknown_ms)


def test_after_a_restart_the_end_of_a_session_is_only_known_within_an_interval():
    """No line shows when broker-1 loaded the group again, and m1 asks again only after m2's session has ended."""
    story = stable("m1", "m2").beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000).silent(8_200, 28_000, restart=True)
    story.beat(35_000, "m1", error=27).join(35_500, "m1", 2, listed=["m1"]).record(35_540, 2, "m1")
    told = story.sync(35_550, "m1", 2, leader=True).beats("m1", 36_500, 40_000, generation=2).play(40_000)
    [(subject, detail)] = told.facts("session-expired", "subject", "detail")
    from_ms, until_ms = detail["deadline_from_ms"] - T0, detail["deadline_until_ms"] - T0
    assert (subject, from_ms, until_ms) == ("m2", 14_000, 35_500)


def test_a_phase_may_begin_before_metadata_names_its_coordinator():
    """broker-2 loads the group, and m1's JoinGroup arrives at 9,100. Metadata names broker-2 at 10,500."""
    story = two_brokers(stable("m1", "m2", "m3", poll_ms=20_000)).leads(0, "broker-1").leads(10_500, "broker-2", 14_000)
    story.beats("m1", 1_000, 7_000).beats("m2", 1_000, 7_000).beats("m3", 1_000, 7_000).leave(7_500, "m3")
    story.beat(8_000, "m1", error=27).beat(8_000, "m2", error=27)
    story.join(9_000, "m1", -1, error=14, broker="broker-2")
    for at_ms in range(12_000, 29_000, 2_000):
        story.beat(at_ms, "m2", error=27, broker="broker-2")
    story.join(29_100, "m1", 2, listed=["m1", "m4"], parked_ms=20_000, broker="broker-2")
    story.join(29_100, "m4", 2, parked_ms=19_800, broker="broker-2").record(29_140, 2, "m1", "m4")
    story.beats("m1", 30_000, 40_000, 2, broker="broker-2").beats("m4", 30_000, 40_000, 2, broker="broker-2")
    assert [rule for rule, member in story.play(40_000).accusations if member == "m2"] == ["rebalance-timeout"]


def test_a_leave_that_was_not_written_is_undone_by_the_next_coordinator():
    """m2's leave began a join phase. The next coordinator has loaded the log, which has m2, and answers m1 with 0."""
    story = two_brokers(stable("m1", "m2")).beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000)
    story.leave(8_100, "m2").beat(8_500, "m1", error=27).beats("m1", 9_000, 12_000, broker="broker-2")
    told = story.play(12_000)
    assert (told.group["state"], set(told.members)) == ("Stable", {"m1", "m2"})


def test_a_heartbeat_that_seems_later_than_a_leave_does_not_undo_it():
    story = stable("m1", "m2").beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000)
    assert set(story.leave(8_100, "m2").beat(8_103, "m1").play(8_500).members) == {"m1"}


@pytest.mark.parametrize(("by", "state"), [("broker-2", "Stable"), ("broker-1", "PreparingRebalance")])
def test_a_join_that_waited_for_a_write_begins_no_phase_where_another_broker_writes(by, state):
    """Metadata names broker-1 until 13,000. Generation 2 is written by broker-2, or by broker-1 itself."""
    story = two_brokers(stable("m1")).beats("m1", 1_000, 4_000).leads(0, "broker-1", 5_000, 9_000)
    story.join(5_000, "m1", 2, listed=["m1"], broker=by).record(5_010, 2, "m1")
    story.sync(5_020, "m1", 2, leader=True, broker=by).beats("m1", 6_000, 9_000, 2, broker=by)
    story.join(12_000, Who("m2", instance_id="pod-2"), -1, asked="", error=15, parked_ms=5_000)
    told = story.leads(13_000, "broker-2" if by == "broker-2" else "broker-1", 13_500).play(14_000)
    assert told.group["state"] == state


@pytest.mark.parametrize(("listed", "state"), [((), "Empty"), (("m2",), "CompletingRebalance")])
def test_a_generation_that_is_never_written_is_lost_once_all_its_timers_have_passed(listed, state):
    """m1 joined generation 3 and fell silent. broker-1 would write that the group is empty, if it went on.

    If the last record lists a member, the next coordinator would write that, and nothing is concluded.
    """
    story = stable("m1", "m2", poll_ms=8_000).leave(1_000, "m1", "m2").record(1_010, 2, *listed)
    story.join(4_000, "m1", 3, listed=["m1"])
    assert story.play(46_000).group["state"] == "CompletingRebalance"
    told = story.play(60_000)
    assert (told.group["state"], len(told.members)) == (state, int(state != "Empty"))
    assert bool(told.closed("rebalance-stuck")) == (state == "Empty")


def test_a_told_deadline_stays_though_its_session_began_earlier():
    """broker-1 restarts m2's timer at 16,001, after the load. broker-2 does not know m2 (25 at 22,400).

    As broker-2 announces generation 2 once more, only the load is known to have restarted m2's timer. m3's session,
    which ends last at 24,000, would date the end of m2's at 20,000, but another instant of its interval has been told.
    """
    story = two_brokers(stable("m1", "m2", Who("m3", session_ms=10_000))).leads(0, "broker-1", 5_000, 10_000)
    for who in ("m1", "m2"):
        story.beats(who, 1_000, 10_000).beat(10_300, who, error=27)
        story.join(11_000, who, 2, listed=["m1", "m2"] if who == "m1" else (), parked_ms=500)
        story.sync(16_001, who, 2, leader=who == "m1", error=15, parked_ms=5_000)
    story.leads(18_000, "broker-2").join(22_400, "m2", -1, error=25, asked="m2", broker="broker-2")
    back = Who("back", client_id="client-m2", port=5_001)
    story.join(24_000, "m1", 2, listed=["m1", back], parked_ms=7_900, broker="broker-2")
    story.join(24_000, back, 2, parked_ms=900, broker="broker-2").record(24_040, 2, "m1", back)
    for who in ("m1", "back"):
        story.sync(24_050, who, 2, leader=who == "m1", broker="broker-2")
        story.beats(who, 25_000, 30_000, 2, broker="broker-2")
    told = story.play(30_000)
    own = [t for t in told.transitions if (t["rule"], t["subject"]) == ("session-expired", "m2")]
    assert [(t["transition"], t["deadline_ms"] - T0) for t in own] == [("opened", 22_400), ("closed", 22_400)]


def test_whom_a_first_certain_answer_let_in_was_a_member_there():
    """broker-2 answers 0, as a loading broker may, until it ends a join phase at 17,000. m2 then never syncs."""
    story = two_brokers(stable("m1")).beats("m1", 1_000, 8_000).beat(9_000, "m1", error=16)
    story.beats("m1", 10_000, 11_000, broker="broker-2")
    story.join(17_000, "m2", 2, listed=["m2"], asked="", parked_ms=4_000, broker="broker-2").record(23_000, 3)
    told = story.play(26_000)
    assert told.facts("session-expired", "subject", "deadline_ms")[1:] == [("m2", 23_000)]


def test_a_record_of_the_last_written_generation_shows_a_replacement():
    """pod-1's session ends at broker-1, which has been deposed: its generation 2 is never written.

    broker-2 has loaded generation 1, and pod-1's next self comes before its session ends there.
    """
    story = two_brokers(stable("m1", OLD)).beats("m1", 1_000, 9_000).beats("old", 1_000, 4_000)
    story.beat(10_300, "m1", error=27).join(11_000, "m1", 2, listed=["m1"])
    story.record(15_000, 1, "m1", NEW)
    story.join(15_003, NEW, 1, asked="", leader="m1", parked_ms=3, broker="broker-2")
    told = story.beats("new", 16_000, 20_000, broker="broker-2").play(20_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("pod-1", 10_000)]
    assert told.opened("member-removed") == []


def test_whom_two_brokers_find_gone_at_once_is_reported_once():
    """pod-1's session ends at broker-1, deposed though metadata names it, as its next self comes; and at broker-2.

    The two answers that show it come within the grace: the first removal is not judged yet.
    """
    first, back = (Who(name, instance_id="pod-2", port=5_003) for name in ("first", "back"))
    story = two_brokers(stable(first, OLD)).leads(0, "broker-1", 10_000).leads(12_000, "broker-2")
    story.beats("first", 1_000, 3_000).beats("old", 1_000, 4_000)
    story.record(5_000, 1, "old", back).join(5_003, back, 1, asked="", leader="old", parked_ms=3, broker="broker-2")
    story.sync(5_006, "back", 1, broker="broker-2").beats("back", 6_000, 9_500, broker="broker-2")
    story.join(10_100, NEW, 3, listed=[NEW], asked="")
    story.beat(10_200, "back", error=27, broker="broker-2").join(10_350, "back", 2, listed=["back"], broker="broker-2")
    told = story.record(10_360, 2, "back").sync(10_370, "back", 2, leader=True, broker="broker-2").play(40_000)
    opened = [t["rule"] for t in told.transitions if t["transition"] == "opened" and t["subject"] == "pod-1"]
    assert [rule for rule in opened if rule != "session-at-risk"] == ["session-expired"]


def test_a_heartbeat_at_a_loading_coordinator_puts_off_the_end_of_a_session():
    """broker-2 takes over at any time until it answers 79 at 9,000. pod-1's next self waits there from 9,300 on."""
    story = two_brokers(stable("m1", OLD)).leads(0, "broker-1")
    for who in ("m1", "old"):
        story.beats(who, 1_000, 4_000).beat(5_000, who, error=16).beats(who, 6_500, 8_500, broker="broker-2")
    story.join(9_000, "m3", -1, error=79, asked="", broker="broker-2").beat(9_500, "m1", error=27, broker="broker-2")
    story.beat(10_500, "old", error=82, broker="broker-2").beat(12_000, "m1", error=27, broker="broker-2")
    story.join(15_000, NEW, -1, error=82, asked="", parked_ms=5_700, broker="broker-2")
    told = story.beat(16_000, "m1", error=27, broker="broker-2").play(40_000)
    assert [rule for rule, subject in told.accusations if subject == "pod-1"] == []


def let_expire_unnamed(*, written):
    """Metadata names broker-1 until 17,000, then broker-3, which answers from 15,100 on.

    broker-2 answers in between. Its generation 2, announced at 14,000, has neither m1 nor m2.
    """
    story = stable("m1", "m2").beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000)
    story.brokers = {"broker-1": 0, "broker-2": 0, "broker-3": 0}
    story.leads(0, "broker-1").leads(17_000, "broker-3").beat(12_000, "m1", error=25, broker="broker-2")
    story.join(14_000, "m3", 2, listed=["m3"], asked="", parked_ms=1_900, broker="broker-2")
    if written:
        story.record(14_010, 2, "m3").sync(14_020, "m3", 2, leader=True, broker="broker-2")
    story.beat(15_000, "m2", error=16)
    return story.join(15_100, "m1", -1, error=25, broker="broker-3")


def test_a_written_removal_stands_though_its_coordinator_was_never_named():
    story = let_expire_unnamed(written=True).beats("m3", 16_000, 38_000, 2, broker="broker-3")
    told = story.play(38_000)
    assert told.accusations == [("session-expired", "m1"), ("session-expired", "m2")]
    assert all(10_000 <= deadline_ms <= 14_000 for [deadline_ms] in told.facts("session-expired", "deadline_ms"))


def test_a_removal_that_is_never_written_is_not_told():
    """broker-3 has both members again. m2 leaves it, so its own generation 2 does not have m2 either."""
    story = let_expire_unnamed(written=False).beats("m1", 16_000, 18_000, broker="broker-3")
    story.leave(18_500, "m2", broker="broker-3").beat(19_000, "m1", error=27, broker="broker-3")
    story.join(19_500, "m1", 2, listed=["m1"], broker="broker-3").record(19_510, 2, "m1")
    story.sync(19_520, "m1", 2, leader=True, broker="broker-3").beats("m1", 20_500, 38_000, 2, broker="broker-3")
    assert story.play(38_000).accusations == []


def test_a_classic_member_of_a_kip_848_group_expires_by_its_own_timeout_after_a_load():
    """broker-2 loads the group by 13,300 and hears m2 once, at 13,200. The group's own session timeout is 45 s."""
    story = two_brokers(consumers("m1", "m2", poll_ms=60_000))
    story.leads(0, "broker-1", 5_000, 10_000).leads(12_600, "broker-2", 50_000)
    story.member(120, "m2", classic_session_ms=10_000).hellos("m1", 1_000, 11_500, 2).beats("m2", 1_000, 12_000, 2)
    story.beat(13_200, "m2", 2, broker="broker-2").hellos("m1", 13_300, 23_000, 2, broker="broker-2")
    story.gone(23_200, "m2").epoch(23_200, 3).target(23_200, 3).hellos("m1", 23_300, 45_000, 2, broker="broker-2")
    told = story.play(45_000, consumer_session_timeouts_ms={"": 45_000})
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 23_200)]


def test_a_broker_that_claims_to_coordinate_after_a_removal_makes_it_no_less_certain():
    """m2 has to revoke until 17,200, and goes a second later. broker-2 answers for the first time at 18,600."""
    story = two_brokers(consumers("m1", "m2")).hellos("m1", 1_000, 18_300, 2)
    story.poll_ms = 8_000
    story.leads(0, "broker-1", 5_000, 10_000, 15_000).member(500, "m2").hellos("m2", 1_000, 17_500, 2)
    story.current(9_200, "m2", 2, state=1).gone(18_200, "m2").epoch(18_200, 3)
    story.hellos("m1", 18_600, 59_600, 2, broker="broker-2").leads(22_000, "broker-2", 40_000)
    told = story.play(60_000, **SESSION)
    assert [each for each in told.accusations if "m2" in each] == [("rebalance-timeout", "m2")]

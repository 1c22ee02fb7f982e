"""What a coordinator does beside the plain course of a rebalance, each by its name."""

import pytest

from coordinator_model.decode.parse import parse_row
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.records import key
from tests.support.request_log import probe_line
from tests.support.story import T0, Story, Who, events_of, rebalance, stable


def replica_of(story, until_ms):
    """The replica itself, for what no view shows."""
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=T0), None)
    events = [event for row in story.source_rows(until_ms) for event in parse_row(row)]
    shard.apply(events, final=True)
    return shard._groups.replica(story.group)


def heard(*members, poll_ms=60_000):
    story = stable(*members, poll_ms=poll_ms)
    for member in members:
        story.beats(member if isinstance(member, str) else member.member_id, 1_000, 4_000)
    return story


# ------------------------------------------------------------------------------------------------ pending members (79)


def test_an_id_given_out_with_79_is_pending_until_it_joins():
    story = heard("m1").join(4_500, "m2", -1, error=79, asked="")
    assert list(replica_of(story, 4_900).pending) == ["m2"]
    rebalance(story, 5_000, 2, "m1", "m2")
    assert replica_of(story, 5_500).pending == {}


def test_an_id_given_out_with_79_is_forgotten_after_its_session_timeout():
    """As the coordinator does; nobody is told, and the next that is given out clears it away."""
    story = heard("m1").join(4_500, "m2", -1, error=79, asked="").beats("m1", 5_000, 11_000)
    story.join(11_000, "m3", -1, error=79, asked="")
    assert list(replica_of(story, 11_500).pending) == ["m3"]
    assert story.play(11_500).accusations == []


# ------------------------------------------------------------------------------------------------ leaders and syncs


def test_an_assignment_that_could_not_be_stored_starts_another_rebalance():
    story = heard("m1", "m2").beat(4_500, "m1", error=27)
    story.join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2).sync(5_100, "m1", 2, leader=True, error=15)
    assert story.play(5_200).group["state"] == "PreparingRebalance"


@pytest.mark.parametrize("recorded_ms", [5_110, 5_099])
def test_an_assignment_stored_too_late_starts_another_rebalance(recorded_ms):
    """Its record is read before the leader's SyncGroup of 5,100 is answered 15, and may seem to be older than that."""
    story = heard("m1", "m2").beat(4_500, "m1", error=27).join(5_000, "m1", 2, listed=["m1", "m2"])
    story.join(5_000, "m2", 2).record(recorded_ms, 2, "m1", "m2")
    story.sync(10_100, "m1", 2, leader=True, error=15, parked_ms=5_000)
    assert story.play(10_200).group["state"] == "PreparingRebalance"


def test_an_assignment_refused_by_a_coordinator_that_has_unloaded_starts_none():
    """The next coordinator has only the log, so the group is as its record has it once metadata names that one."""
    story = heard("m1", "m2").beat(4_500, "m1", error=27)
    story.join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2).sync(6_100, "m1", 2, leader=True, error=16)
    assert story.play(6_200).group["state"] == "CompletingRebalance"
    story.brokers = {"broker-1": 0, "broker-2": 0}
    assert story.leads(6_300, "broker-2").play(7_000).group["state"] == "Stable"


def test_a_followers_sync_that_failed_starts_none():
    story = heard("m1", "m2").beat(4_500, "m1", error=27)
    story.join(5_000, "m1", 2, listed=["m1", "m2"]).join(5_000, "m2", 2).sync(5_100, "m2", 2, error=15)
    assert story.play(5_200).group["state"] == "CompletingRebalance"


def test_a_leader_that_leaves_a_member_without_an_assignment_leaves_it_with_nothing():
    """No bytes at all is a legal assignment."""
    told = stable(Who("m1", partitions=(0, 1)), Who("m2", partitions=())).play(1_000)
    assert told.members["m1"]["assignment"] == [{"topic": "t", "partitions": [0, 1]}]
    assert told.members["m2"]["assignment"] in ([], [{"topic": "t", "partitions": []}])


# ------------------------------------------------------------------------------------------------ causes


def old_client(story):
    """m2 speaks JoinGroup v0: a client from before 0.10.1, which heartbeats inside its polls."""
    story.join(100, "m2", 1, version=0)
    return story.beats("m1", 1_000, 20_000).beats("m2", 1_000, 4_000)


def test_a_client_older_than_0_10_1_may_have_stopped_polling_or_have_died():
    told = old_client(stable("m1", "m2")).play(20_000)
    assert told.facts("session-expired", "subject", "cause") == [("m2", "session-or-poll")]


POD = Who("pod", instance_id="pod-1", port=5_001)


def removed(story):
    """m1 is told at 12,000 that the pod is no member any more."""
    story.beats("m1", 1_000, 10_500).beats("pod", 1_000, 4_000).beat(11_000, "m1", error=27)
    rebalance(story, 12_000, 2, "m1")
    return story.beats("m1", 13_000, 16_000, generation=2)


def causes(told):
    [opened] = [t for t in told.transitions if t["rule"] == "session-expired" and t["transition"] == "opened"]
    last = [t for t in told.history.transitions if t.incident.rule == "session-expired"][-1]
    return opened["cause"], last.incident.cause


def test_a_static_stall_that_its_client_reports_is_a_poll_breach_and_no_lost_session():
    """It sends no leave: its heartbeats stop, and its session ends."""
    story = removed(stable("m1", POD)).reports(9_000, "pod", 6_000, limit_ms=5_000)
    assert causes(story.play(16_000))[0] == "poll-interval"


def test_a_static_stall_that_nobody_reports_is_a_session_that_ended():
    assert causes(removed(stable("m1", POD)).play(16_000))[0] == "session-timeout"


def test_a_static_member_that_leaves_of_its_own_is_not_the_one_an_admin_removes():
    def cause(reason):
        [leave] = replica_of(
            stable("m1", POD).beats("pod", 1_000, 2_000).leave(3_000, "pod", reason=reason), 3_500
        ).leaves
        return leave.cause.value

    assert cause(None) == "static-left"
    assert cause("member was removed by an admin: scale-in") == "admin"


# ------------------------------------------------------------------------------------------------ contradictions


def test_a_generation_that_goes_back_without_a_restart_is_counted_and_adopted():
    story = rebalance(stable("m1"), 3_000, 7, "m1").record(5_000, 4, "m1")
    told = story.play(5_500)
    assert told.group["generation"] == 4
    assert told.group["unexpected"] == 1


def test_a_group_of_which_only_offsets_are_known_is_simple_and_empty():
    """assign() and commit: generation -1, no group record."""
    told = Story().commit(1_000, "t", 0).play(2_000)
    assert (told.group["type"], told.group["state"], told.group["members"]) == ("simple", "Empty", [])


HEAD, CLIENT = "08636f6e73756d657200000003000572616e676500026d31", "00026331" + "00092f31302e302e302e31"
SINCE, BLOBS = "0000018bcfe56800", "0000afc8" + "000000020001" + "000000020002"
VERSIONS = {
    0: f"000000{HEAD}0000000100026d31{CLIENT}{BLOBS}",
    1: f"000100{HEAD}0000000100026d31{CLIENT}000493e0{BLOBS}",
    2: f"000200{HEAD}{SINCE}0000000100026d31{CLIENT}000493e0{BLOBS}",
    3: f"000300{HEAD}{SINCE}0000000100026d31ffff{CLIENT}000493e0{BLOBS}",
}
"""GroupMetadata as brokers of different ages write it."""


def test_records_of_mixed_versions_during_a_rolling_upgrade_tell_the_same_group():
    """Version 0 has no rebalance timeout: the session timeout is it."""
    story, told = Story(), []
    for n, (version, value) in enumerate(VERSIONS.items()):
        at_ms = 1_000 * (n + 1)
        story.write(at_ms, key(2, story.group), bytes.fromhex(value))
        [member] = story.play(at_ms + 100).group["members"]
        told.append((version, member["member_id"], member["client_id"], member["rebalance_timeout_ms"]))
    assert told == [
        (0, "m1", "c1", 45_000),
        (1, "m1", "c1", 300_000),
        (2, "m1", "c1", 300_000),
        (3, "m1", "c1", 300_000),
    ]


def test_a_tombstone_of_an_unknown_group_says_nothing():
    assert Story().deleted(1_000).play(2_000).history.groups == []


def test_a_member_listed_twice_in_one_record_is_one_member():
    told = Story().record(1_000, 3, "m1", "m1").play(2_000)
    assert list(told.members) == ["m1"]
    assert told.group["unexpected"] == 1


def test_the_probe_itself_is_no_client_of_any_group():
    assert [type(event).__name__ for event in events_of(probe_line(1))] == ["Tick"]


def test_a_static_join_answered_15_after_an_expiry_replaces_nobody():
    """pod-1 was heard last at 4,000; its next self asks at 11,000, and once more as writes go on."""
    old, one, two = (Who(name, instance_id="pod-1", port=5_000 + n) for n, name in enumerate(("old", "one", "two")))
    story = stable("m1", old).beats("m1", 1_000, 8_000).beats("old", 1_000, 4_000)
    story.join(16_000, one, -1, error=15, asked="", parked_ms=5_000)
    story.beat(16_500, "m1", error=15, parked_ms=5_000).beat(17_000, "m1", error=27)
    story.join(18_000, "m1", 2, listed=["m1", two]).join(18_000, two, 2, asked="", parked_ms=1_500)
    told = story.record(18_010, 2, "m1", two).beats("m1", 19_000, 26_000, 2).play(26_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("pod-1", 10_000)]


def test_whose_join_was_answered_15_did_not_miss_an_untold_phase():
    """m2 rejoins at 4,500, is answered 15 and dies; the phase times out at 12,500, drops m1 and starts m2's session."""
    story = stable("m1", "m2", poll_ms=8_000).beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000)
    story.join(9_500, "m2", -1, error=15, parked_ms=5_000).beat(13_700, "m1", error=15, parked_ms=5_000)
    story.beat(14_000, "m1", error=25).join(18_500, "m3", 3, listed=["m3"], asked="", parked_ms=3_000)
    story.record(18_510, 3, "m3").sync(18_520, "m3", 3, leader=True)
    told = story.beats("m3", 19_500, 30_000, 3).play(30_000)
    assert ("m2", 18_500) in told.facts("session-expired", "subject", "deadline_ms")
    assert "m2" not in told.opened("rebalance-timeout")


def test_a_successor_that_only_a_list_names_hides_no_expiry():
    """pod-1's next self asks once, is answered 15, and is in the leader's list: from a live broker's log."""
    old, one = (Who(name, instance_id="pod-1", port=5_000 + n) for n, name in enumerate(("old", "one")))
    story = stable("m1", old).beats("m1", 1_000, 5_000).beats("old", 1_000, 4_000)
    story.join(16_000, Who("", instance_id="pod-1", port=5_001), -1, error=15, asked="", parked_ms=5_000)
    story.beat(16_500, "m1", error=15, parked_ms=5_000).beat(17_000, "m1", error=27)
    story.join(18_000, "m1", 2, listed=["m1", one], parked_ms=400).record(18_010, 2, "m1", one)
    told = story.beats("m1", 19_000, 26_000, 2).play(26_000)
    assert told.facts("session-expired", "member_id", "deadline_ms") == [("old", 10_000)]

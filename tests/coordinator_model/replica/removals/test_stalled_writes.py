"""What stalled writes explain: heartbeats that have no line yet, timers that run again. Seen in chaos seed 120001."""

from types import SimpleNamespace

import pytest

from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.client import who
from coordinator_model.events import JoinAnswered
from coordinator_model.replica import join
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.notes import Violation
from coordinator_model.replica.removals import judge, retried_timer
from coordinator_model.replica.removals.case import Uncertain
from coordinator_model.states import Cause, GroupState, GroupType
from coordinator_model.thresholds import Thresholds
from tests.support.story import Who, consumers, rebalance, stable

JOIN = (8_000, 10_000, -1, None, None, "", (), "", "client", "host", "connection", None, 5)
"""The rest of a JoinGroup, from the session timeout to the version."""

# whether m2's heartbeat of 17,900 waits behind a stalled write -> rule and deadline of m2, and of m4
HEARTBEATS = {
    "none waits": (False, [("session-expired", "m2", 18_050), ("rebalance-timeout", "m4", 19_003)]),
    "one waits": (True, [("rebalance-timeout", "m2", 19_003), ("session-expired", "m4", 18_550)]),
}


@pytest.mark.parametrize("name", HEARTBEATS)
def test_a_phase_that_timed_out_though_all_had_expired_waits_for_parked_heartbeats(name):
    """m3's leave begins the phase at 9,000. It lasts for its whole timeout, so somebody's session went on."""
    waits, expected = HEARTBEATS[name]
    story = stable("m1", "m2", "m3", "m4", poll_ms=10_000).beats("m3", 1_000, 8_000).leave(9_000, "m3")
    for member in ("m1", "m2", "m4"):
        story.beats(member, 1_000, 8_000)
    story.beats("m2", 9_050, 12_050, error=27).beats("m4", 9_050, 12_550, every_ms=500, error=27)
    if waits:
        story.beat(22_900, "m2", error=15, parked_ms=5_000)
    story.beat(9_500, "m1", error=27)
    told = rebalance(story, 19_003, 2, "m1").beats("m1", 20_000, 28_000, generation=2).play(28_000)
    rules = ("session-expired", "rebalance-timeout")
    said = [(rule, *fact) for rule in rules for fact in told.facts(rule, "subject", "deadline_ms")]
    assert sorted(said, key=lambda one: one[1]) == expected
    assert told.opened("member-removed") == []


def test_a_removal_that_a_late_heartbeat_explains_is_no_sign_of_lost_lines(monkeypatch):
    """m2's removal of 11,000 is doubted, until its heartbeat of 7,000 is answered 15."""
    replicas, ask = [], judge.judge

    def doubt_at_first(replica, *args):
        replicas.append(replica)
        return ask(replica, *args) if replicas[1:] else Uncertain(judge_again=True)

    monkeypatch.setattr(judge, "judge", doubt_at_first)
    first, second = Who("m1", session_ms=60_000, port=5_001), Who("m2", session_ms=7_000, port=5_002)
    story = stable(first, second, "m3", poll_ms=10_000).leave(1_000, "m3")
    story.join(11_000, first, 2, listed=[first], parked_ms=2).record(11_040, 2, first)
    told = story.sync(11_050, "m1", 2, leader=True).beat(12_000, "m2", error=15, parked_ms=5_000).play(15_000)
    assert told.opened("member-removed") == ["m2"]
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 11_000)]
    assert replicas[-1].unexplained_ms is None


# how late the timer runs again -> what is told of that
RETRIES = {
    "in time": (0, [("m2", 9_000), ("m2", 14_500)], []),
    "both of its timers run late": (90, [("m2", 9_000), ("m2", 14_590)], []),
    "too late": (150, [("m2", 9_000)], ["m2"]),
}


@pytest.mark.parametrize("name", RETRIES)
def test_a_timer_whose_write_timed_out_runs_again_as_late_as_its_two_timers(name):
    """m2's session ends at 9,000, the write times out at 14,000, and half a second later the timer removes m2 again."""
    late_ms, expired, unknown = RETRIES[name]
    story = consumers("m1", "m2").hellos("m1", 1_000, 8_000, 2).hellos("m2", 1_000, 3_000, 2)
    story.hello(13_900, "m1", 2, 2, error=15, parked_ms=5_000).gone(9_000, "m2")
    story.member(10_000, "m2").epoch(10_000, 4).current(10_000, "m2", 4).hello(14_300, "m2", 0, 4, parked_ms=4_250)
    story.gone(14_500 + late_ms, "m2").epoch(14_500 + late_ms, 5).hellos("m1", 16_500, 25_000, 5)
    told = story.play(25_000, consumer_session_timeouts_ms={"": 6_000})
    assert told.facts("session-expired", "subject", "deadline_ms") == expired
    assert told.opened("member-removed") == unknown


@pytest.mark.parametrize(("back_ms", "rule"), [(10_000, "session-expired"), (5_000, "member-removed")])
def test_a_timer_from_before_a_leave_does_not_run_once_a_new_one_has_replaced_it(back_ms, rule):
    """The session from before m2's leave would have ended at 9,000, and its timer would run again at 14,500."""
    story = consumers("m1", "m2").hellos("m1", 1_000, 8_000, 2).hellos("m2", 1_000, 3_000, 2)
    story.hello(3_400, "m2", -1, -1).gone(3_400, "m2").epoch(3_400, 3)
    story.member(back_ms, "m2").epoch(back_ms, 4).current(back_ms, "m2", 4).hello(back_ms, "m2", 0, 4)
    story.hello(10_400, "m2", 4, 4).hello(13_900, "m1", 2, 2, error=15, parked_ms=5_000)
    story.gone(14_500, "m2").epoch(14_500, 5).hellos("m1", 16_500, 25_000, 5)
    told = story.play(25_000, consumer_session_timeouts_ms={"": 6_000})
    assert [t["rule"] for t in told.transitions if t["subject"] == "m2" and t["transition"] == "opened"] == [rule]


@pytest.mark.parametrize(("loads", "is_gone"), [("broker-1", False), ("", False), ("broker-2", True)])
def test_what_another_broker_loads_restarts_no_session_at_the_one_whose_write_stalls(loads, is_gone):
    """pod-1's session ended at 10,567. Its next self asks broker-1 at 15,092, and waits for a write that stalls.

    Seen on real brokers (chaos seed 140002): a broker had named broker-2 too early, so this JoinGroup was taken for a
    replacement that timed out, and the former member for one that was alive.
    """
    old = Member("old", "pod-1", joined_ms=100, session_timeout_ms=8_000, last_heartbeat_ms=2_567, generation=1)
    replica = GroupReplica("g", type=GroupType.CLASSIC, state=GroupState.STABLE, generation=1, members={"old": old})
    asked = JoinAnswered(20_110, 0, "t", 0, 0, "g", "broker-1", 15, 20_110, 15_092, "", "", "pod-1", *JOIN)
    load = TimerReset(15_083, None, Cause.COORDINATOR_MOVED, loads, former="broker-1")
    join.join(replica, asked, JudgementContext(20_110, "broker-2", (load,), {}, 0, 0, 0, None, Thresholds()))
    assert ("old" not in replica.members, "pod-1" in replica.rolled_back_replacements) == (is_gone, not is_gone)


def test_a_session_that_a_stalled_heartbeat_restarted_began_no_join_phase():
    """Nobody is seen to begin it, because all heartbeats wait. m1's successor finds it still there and replaces it."""
    old, new = Who("m1", instance_id="pod-1", port=5_001), Who("m1-next", instance_id="pod-1", port=5_002)
    story = stable(old, "m2", session_ms=6_000).beats("m1", 1_000, 9_000).beats("m2", 1_000, 9_000)
    story.beat(15_500, "m1", error=15, parked_ms=5_000).beat(15_600, "m2", error=15, parked_ms=5_000)
    story.join(20_000, new, 2, asked="", parked_ms=3_700).join(20_000, "m2", 2, listed=["m2", new], parked_ms=3_000)
    story.record(20_040, 2, "m2", new).sync(20_050, "m2", 2, leader=True).sync(20_050, "m1-next", 2)
    told = story.beats("m2", 21_000, 30_000, 2).beats("m1-next", 21_000, 30_000, 2).play(30_000)
    assert told.accusations == []


# who removed m1 5,518 ms ago -> whether its removal is a retry of the rebalance timer that removed it 22,096 ms ago
REMOVED_SINCE = {"nobody": (None, True), "its session timer": (Cause.SESSION_TIMEOUT, False)}


@pytest.mark.parametrize("name", REMOVED_SINCE)
def test_a_retry_is_of_the_timer_that_removed_the_member_last(name):
    """A retry comes each 5,500 ms, so the older removal fits as well. Seen on real brokers (chaos seed 170001)."""
    cause, retried = REMOVED_SINCE[name]
    member, removed_ms = Member("m1", client_id="c"), 40_000
    replica = GroupReplica("g", violations=[Violation(who(member), removed_ms - 22_096, Cause.REBALANCE_TIMEOUT)])
    if cause is not None:
        replica.violations.append(Violation(who(member), removed_ms - 5_518, cause))
    departure = SimpleNamespace(member=member, removed_ms=removed_ms, may_be_retried=True)
    assert retried_timer.is_of_a_rebalance(replica, departure) is retried

"""`member-removed`: whose removal a line that is missing may explain is accused of nothing."""

import pytest

from coordinator_model.brokers.one_clock import PROBE_DUE_MS
from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.shard.shard import ShardSettings
from tests.coordinator_model.rules.test_departed_rules import group, without
from tests.support.request_log import heartbeat_line
from tests.support.story import Story, Told, Who, consumers, rebalance, stable

REMOVED, EXPIRED = ("member-removed",), ("session-expired",)


def rules(told, subject="m2"):
    """Return the rules that name a member, but those that only say that it is at risk."""
    found = {t["rule"] for t in told.transitions if t["transition"] == "opened" and t["subject"] == subject}
    return tuple(sorted(found - {"session-at-risk", "telemetry-uncovered"}))


def killed(*, removed_ms=16_000, **how):
    """m2 is heard last at 10,000 and, with a session of 6,000, removed at 16,000."""
    return without(group(last_ms=10_000, m1_until_ms=removed_ms - 20, **how), "m2", removed_ms)


def blind(story, from_ms, until_ms):
    """Let no line come between two instants, though the broker goes on answering."""
    rows = [row for row in story.rows if row[1] != 1 or not from_ms < row[0] < until_ms]
    story.rows[:] = rows
    story.silent(from_ms, until_ms)
    story.jumps.append(until_ms + -until_ms % 500)
    return story


# from when until when lines are missing -> what is told of m2
WINDOWS = {
    "nothing is missing": (None, EXPIRED),
    "before it was heard": ((5_000, 9_400), EXPIRED),
    "all the while": ((10_100, 15_900), REMOVED),
    "from its next heartbeat on until it was removed": ((10_900, 17_000), REMOVED),
    "when it would long have been heard": ((15_100, 17_000), EXPIRED),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_removal_has_no_cause_if_a_blind_window_may_explain_it(name):
    span, expected = WINDOWS[name]
    story = killed()
    told = (blind(story, *span) if span else story).play(40_000)
    assert rules(told) == expected


def test_what_is_unknown_is_never_a_page():
    """It is a warning once nobody has read its partitions for a minute, and says that it is not known."""
    story = blind(killed(partitions=2), 10_100, 17_000).beats("m1", 17_000, 90_000, generation=2)
    told = story.play(90_000)
    steps = [(t["transition"], t["severity"]) for t in told.transitions if t["rule"] == "member-removed"]
    assert steps == [("opened", "info"), ("escalated", "warn")]
    [removed] = told.of("member-removed")
    assert (removed["cause"], removed["evidence"], removed["deadline_ms"]) == ("unknown", "inferred", None)


def test_a_leave_whose_line_was_lost_is_told_as_unknown():
    """No timer runs before its time: who is removed then left, and nobody saw it."""
    told = consumers("m1", "m2").hellos("m1", 1_000, 30_000, 2).hellos("m2", 1_000, 8_000, 2).gone(9_000, "m2")
    assert rules(told.play(30_000, consumer_session_timeouts_ms={"": 6_000})) == REMOVED


@pytest.mark.parametrize(("removed_ms", "expected"), [(16_520, EXPIRED), (23_000, REMOVED)])
def test_a_kip_848_member_that_outlived_its_session_unseen_may_have_left_unseen(removed_ms, expected):
    """m2's session of 6 s begins at 10,500, by a heartbeat behind a stalled write. No line comes from 16,000 on."""
    story = consumers("m1", "m2").hellos("m1", 1_000, 40_000, 2).hellos("m2", 1_000, 8_000, 2)
    story.hello(15_500, "m2", 2, 2, error=15, parked_ms=5_000)
    story.gone(removed_ms, "m2").epoch(removed_ms, 3).target(removed_ms, 3)
    assert rules(blind(story, 16_000, 24_000).play(40_000, consumer_session_timeouts_ms={"": 6_000})) == expected


def test_a_leave_whose_line_trails_takes_it_back():
    story = killed(removed_ms=12_000).leave(12_000, "m2", trails_ms=3_000)
    told = story.play(40_000)
    assert [reason for reason, _ in told.closed("member-removed")] in ([], ["refuted"])
    assert told.accusations == []


def test_lines_that_a_filter_hides_accuse_nobody():
    """No heartbeat of anybody is seen, and m2 went long after its session would have ended."""
    story = Story().join(100, "m1", 1, listed=["m1", "m2"]).join(100, "m2", 1).record(140, 1, "m1", "m2")
    story.sync(150, "m1", 1, leader=True).sync(150, "m2", 1)
    told = rebalance(story, 60_000, 2, "m1").play(80_000)
    assert told.accusations == []


@pytest.mark.parametrize(("beats", "expected"), [(True, EXPIRED), (False, REMOVED)], ids=["it is", "it is not"])
def test_a_classic_member_never_heard_among_consumers_expired_if_another_is_heard(beats, expected):
    """m2 was removed 1 s after its session seems to have ended. A filter may hide the heartbeats of one protocol."""
    story = consumers("new").hellos("new", 1_000, 30_000, 2)
    for member in ("m1", "m2"):
        story.member(200, member, classic_session_ms=9_000).current(210, member, 2)
        story.join(2_000, member, 2).sync(2_010, member, 2)
    story = story.beats("m1", 3_000, 30_000, 2) if beats else story
    story.gone(9_010, "m2").epoch(9_010, 3).target(9_010, 3)
    assert rules(story.play(30_000, consumer_session_timeouts_ms={"": 6_000})) == expected


def test_who_is_heard_after_the_time_to_sync_had_synced():
    """A member whose SyncGroup's line was lost is not said to have missed it, minutes later."""
    story = group(last_ms=100_000, m1_until_ms=105_900)
    story.rows[:] = [
        row for row in story.rows if b"SYNC_GROUP" not in (row[2].value or b"") or b'"m2"' not in row[2].value
    ]
    told = without(story, "m2", 106_000).play(130_000)
    assert told.opened("rebalance-timeout") == []
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 106_000)]


def test_whose_group_is_stable_after_the_time_to_sync_had_synced():
    """The line of m2's SyncGroup was lost. It was due as the broker stood still, and m1 is heard afterwards."""
    story = stable("m1", "m2", session_ms=8_000, poll_ms=10_000).beats("m1", 1_000, 6_000).beats("m2", 1_000, 4_000)
    story.rows[:] = [
        row for row in story.rows if b"SYNC_GROUP" not in (row[2].value or b"") or b'"m2"' not in row[2].value
    ]
    story.silent(6_500, 11_000).beats("m1", 11_020, 12_020, every_ms=500).beat(13_000, "m1", error=27)
    told = without(story, "m2", 13_500).play(30_000)
    assert told.opened("rebalance-timeout") == []
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 12_000)]


@pytest.mark.parametrize("lines_lost", [False, True], ids=["the broker stood still", "it answered unseen"])
def test_the_probe_tells_a_pause_from_missing_lines(lines_lost):
    """Its number after the hole is the next one, or many more."""
    story = stable("m1").beats("m1", 1_000, 10_000).silent(10_000, 15_000).beats("m1", 15_100, 30_000)
    if lines_lost:
        story.jumps.append(15_000)
    history = story.play(30_000).history
    assert bool(history.blind) is lines_lost


def test_nothing_is_judged_before_the_probe_has_told():
    """The first line after a hole is a heartbeat's: what it makes due waits for the probe, but not for ever."""
    story = blind(killed(), 10_100, 17_250).beats("m1", 17_300, 40_000, generation=2)
    assert rules(story.play(40_000)) == REMOVED
    assert PROBE_DUE_MS < 3_000


@pytest.mark.parametrize(("span", "expected"), [(None, EXPIRED), ((20_000, 26_000), REMOVED)])
def test_who_may_have_waited_in_a_join_whose_answer_is_missing_is_not_accused(span, expected):
    """A parked JoinGroup is seen as it is answered; the coordinator expires nobody who waits."""
    story = group(last_ms=10_000, poll_ms=60_000).join(10_900, "m3", -1, error=79, asked="")  # m3 began the phase
    for at_ms in range(11_000, 27_000, 2_000):
        story.beat(at_ms, "m1", error=27)
    story = without(story, "m2", 27_000)
    told = (blind(story, *span) if span else story).play(40_000)
    assert rules(told) == expected


UNJOINED_MS = 5_040 + 500
"""When JoinGroups are known to be missing: a grace after the record of their generation."""


def unlogged(story, key, from_ms=0):
    """Let no line of a kind of request come from an instant on, as a filter of the broker's logger does."""
    story.rows[:] = [row for row in story.rows if row[0] < from_ms or key not in (row[2].value or b"")]
    return story


@pytest.mark.parametrize(
    ("stable_ms", "from_ms", "expected"),
    [(10_900, 30_000, EXPIRED), (10_900, 1_000, REMOVED), (15_900, 1_000, EXPIRED)],
    ids=["its lines come", "they are missing", "m2 was silent before"],
)
def test_nobody_is_accused_who_may_wait_in_a_join_phase_unseen(stable_ms, from_ms, expected):
    """m2 is removed at 16,000; m1 is last told at `stable_ms` that there is no rebalance."""
    story = without(group(last_ms=10_000, m1_until_ms=stable_ms), "m2", 16_000)
    assert rules(unlogged(story, b"JOIN_GROUP", from_ms).play(40_000)) == expected


@pytest.mark.parametrize(("from_ms", "expected"), [(30_000, EXPIRED), (1_000, REMOVED)])
def test_a_static_member_whose_heartbeats_are_filtered_out_may_have_been_replaced(from_ms, expected):
    """The sessions of two that were never heard end at 6,150 and 12,150; both are replaced at 10,000."""
    old = [Who(f"old-{n}", f"pod-{n}", port=5_010 + n, session_ms=6_000 * n) for n in (1, 2)]
    new = [Who(f"new-{n}", f"pod-{n}", port=5_020 + n, session_ms=6_000 * n) for n in (1, 2)]
    story = stable("m1", *old).beats("m1", 1_000, 9_000)
    story.join(10_050, "m1", 2, listed=["m1", *new])
    for who in new:
        story.join(10_050, who, 2, asked="", parked_ms=50)
    story = rebalance(story, 10_050, 2, "m1", *new).beats("m1", 11_000, 30_000, 2)
    assert rules(unlogged(story, b'"HEARTBEAT"', from_ms).play(30_000), "pod-1") == expected


def test_no_timer_runs_where_joingroup_lines_are_missing():
    """A generation began unseen, and m2, which was heard since, may wait in a join phase unseen."""
    story = rebalance(group(last_ms=4_000, m1_until_ms=4_500), 5_000, 2, "m1", "m2")
    story.beats("m2", 6_000, 10_000, generation=2).beats("m1", 6_000, 30_000, generation=2)
    assert rules(unlogged(story, b"nothing").play(30_000)) == EXPIRED
    assert rules(unlogged(story, b"JOIN_GROUP", 1_000).play(30_000)) == ()


# which JoinGroup lines are missing from 1,000 on -> when it is told, and when it is over
@pytest.mark.parametrize(
    ("missing", "opened", "closed"),
    [
        (b"JOIN_GROUP", [("info", UNJOINED_MS)], []),
        (b'"generationId":2,"protocolType"', [("info", UNJOINED_MS)], [("recovered", 20_000)]),
        (b"nothing", [], []),
    ],
    ids=["all", "those of one generation", "none"],
)
def test_it_is_told_once_that_joingroup_lines_are_missing(missing, opened, closed):
    story = rebalance(group(last_ms=4_000, m1_until_ms=4_500), 5_000, 2, "m1", "m2")
    story.beats("m1", 6_000, 19_000, generation=2).beats("m2", 6_000, 19_000, generation=2)
    told = unlogged(rebalance(story, 20_000, 3, "m1", "m2"), missing, 1_000).play(30_000)
    assert told.facts("telemetry-uncovered", "severity", "at_ms") == opened
    assert told.closed("telemetry-uncovered") == closed


def test_one_lost_joingroup_line_is_no_filter():
    story = rebalance(without(group(last_ms=4_000, m1_until_ms=4_500), "m2", 10_000), 15_000, 3, "m1")
    told = unlogged(story.beats("m1", 16_000, 30_000, generation=3), b"JOIN_GROUP", 11_000).play(30_000)
    assert told.of("telemetry-uncovered") == []


def test_who_leaves_alone_and_unseen_before_its_session_ends_missed_no_rebalance():
    """m1 is heard last at 10,000; its group is empty 8.5 s later, and nothing shows that a join phase began."""
    story = stable("m1", session_ms=10_000, poll_ms=8_000).beats("m1", 1_000, 10_000).record(18_500, 2)
    assert rules(story.play(30_000), "m1") == REMOVED


# whether an id had been given out (79) -> what is told of m2
@pytest.mark.parametrize(("given", "rule"), [(False, "member-removed"), (True, "session-expired")])
def test_a_newcomer_whose_request_was_never_answered_may_have_begun_a_rebalance(given, rule):
    """Found by simulation: m3 asked to join on a connection that broke, and once more before the phase ended.

    Lines were lost, so without m3 the rebalance may have begun with a leave of m2 that was not seen.
    """
    story = stable("m1", "m2").lose(3_000).beats("m1", 1_000, 9_000).beats("m2", 1_000, 8_000)
    if given:
        story.join(9_050, "m3", -1, error=79, asked="")
    story.beat(9_500, "m1", error=27).join(14_000, "m1", 2, listed=["m1", "m3"], parked_ms=4_000)
    story.join(14_000, "m3", 2, parked_ms=500).record(14_040, 2, "m1", "m3").sync(14_050, "m1", 2, leader=True)
    told = story.sync(14_050, "m3", 2).beats("m1", 15_000, 20_000, 2).beats("m3", 15_000, 20_000, 2).play(20_000)
    assert [each for each in ("member-removed", "session-expired") if "m2" in told.opened(each)] == [rule]


# the last answer of m2's coordinator in the group, when metadata last names it -> what is told of m2
DEATHS = {
    "it answers nobody after the removal": (20_000, 28_500, REMOVED),
    "it answers after the removal, so a leave would have had a line": (20_400, 28_500, EXPIRED),
    "it may have been deposed before": (20_000, 14_000, EXPIRED),
}


@pytest.mark.parametrize("name", DEATHS)
def test_a_kip_848_member_may_have_left_just_before_its_coordinator_died(name):
    """m2 is heard last at 20,000 and removed at 20,200; its session of 6 s would have ended later."""
    last_ms, named_ms, expected = DEATHS[name]
    story = consumers("m1", "m2")
    story.brokers["broker-2"] = 0
    story.leads(0, "broker-1", 5_000, 10_000, named_ms).leads(max(named_ms, 20_500) + 2_000, "broker-2", 50_000)
    story.hellos("m1", 1_000, 20_000, 2).hellos("m2", 1_000, 20_000, 2)
    story.gone(20_200, "m2").epoch(20_200, 3).target(20_200, 3)
    if last_ms > 20_200:
        story.hello(last_ms, "m1", 2, 2)
    story.silent(last_ms + 50, 90_000)
    for at_ms in range(32_000, 40_000, 1_000):
        story.hello(at_ms, "m1", 2, 3, broker="broker-2")
    assert rules(story.play(42_000, consumer_session_timeouts_ms={"": 6_000})) == expected


@pytest.mark.parametrize(("back_ms", "expected"), [(18_000, REMOVED), (12_000, (*REMOVED, *EXPIRED))])
def test_no_session_ends_that_is_longer_than_its_member_was_in_the_group(back_ms, expected):
    """m2 joins anew, is heard until 20,000 and removed at 20,200; just then its coordinator moves.

    The cause is unknown until the move is known, which may have been earlier. But a session of 6 s that a load starts
    cannot have ended 2.2 s after the join.
    """
    story = consumers("m1", "m2")
    story.brokers["broker-2"] = 0
    story.leads(0, "broker-1", 5_000, 10_000).leads(22_000, "broker-2", 50_000)
    story.hellos("m1", 1_000, 20_000, 2).hellos("m2", 1_000, 8_000, 2).hello(8_500, "m2", -1, -1)
    story.gone(8_500, "m2").epoch(8_500, 3).target(8_500, 3).member(back_ms, "m2").epoch(back_ms, 4)
    story.target(back_ms, 4).current(back_ms, "m2", 4).hello(back_ms, "m2", 0, 4).hellos("m2", back_ms, 20_000, 4)
    story.gone(20_200, "m2").epoch(20_200, 5).target(20_200, 5)
    for at_ms in range(20_201, 40_000, 1_000):
        story.hello(at_ms, "m1", 2, 5, broker="broker-2")
    assert rules(story.play(42_000, consumer_session_timeouts_ms={"": 6_000})) == expected


@pytest.mark.parametrize(
    ("probed", "removed"),
    [(True, ["session-expired", "rebalance-timeout"]), (False, ["member-removed", "rebalance-timeout"])],
)
def test_who_may_have_expired_before_a_hole_in_which_nobody_probed_missed_nothing(probed, removed):
    """m2's session ends at 12,000, m1 does not rejoin by 27,000, and no line of theirs comes from then to 30,500."""
    story = stable("m1", Who("m2", session_ms=10_000, port=5_001), poll_ms=15_000).beats("m1", 1_000, 12_000)
    story.beats("m2", 1_000, 2_000).beats("m1", 12_001, 26_001, error=27).record(27_000, 2)
    story.brokers = story.brokers if probed else {}
    told = story.join(30_500, "m3", -1, error=79, asked="").join(31_000, "m3", 3, listed=["m3"]).play(32_000)
    found = {t["subject"]: t["rule"] for t in told.transitions if t["transition"] == "opened"}
    assert [found["m2"], found["m1"]] == removed


@pytest.mark.parametrize(
    ("told", "expected"),
    [(("m1", "m3"), REMOVED), (("m3",), EXPIRED), (("m1",), EXPIRED)],
    ids=["all were told", "m1 began it", "m3 may have asked twice"],
)
def test_a_rebalance_that_no_member_began_may_be_a_leave_whose_line_is_lost(told, expected):
    """It began at 11,000, and m2's session ended at 16,000. No line of it is missing, but that of m2's leave may be."""
    story = stable("m1", "m2", "m3", poll_ms=60_000).beats("m2", 1_000, 10_000)
    story.beats("m1", 1_000, 10_000).beats("m3", 1_000, 10_000)
    for member, at_ms in (("m1", 11_000), ("m3", 16_900)):
        if member in told:
            story.beat(at_ms, member, error=27)
    story.join(17_000, "m1", 2, listed=["m1", "m3"], parked_ms=6_000).join(17_000, "m3", 2, parked_ms=50)
    story.record(17_010, 2, "m1", "m3").sync(17_020, "m1", 2, leader=True).sync(17_020, "m3", 2)
    story.beats("m1", 18_000, 40_000, 2).beats("m3", 18_000, 40_000, 2)
    assert rules(story.play(40_000)) == expected


@pytest.mark.parametrize(
    ("lines_lost", "removed_ms", "expected"),
    [(False, 36_000, EXPIRED), (True, 26_000, REMOVED)],
    ids=["all its lines come", "lines are missing"],
)
def test_lines_may_be_missing_beside_a_restart(lines_lost, removed_ms, expected):
    """The probe reconnects and goes on counting. If numbers are missing, the broker was back earlier, and so were m1
    and m2: m2's leave may be among the lost lines."""
    story = stable("m1", "m2").beats("m1", 1_000, 10_000).beats("m2", 1_000, 10_000)
    story.silent(10_000, 30_000, restart=True).record(removed_ms, 2, "m1")
    if lines_lost:
        story.jumps.append(30_000)
    told = story.beats("m1", 30_100, removed_ms - 100).beats("m1", max(30_100, removed_ms), 60_000, 2).play(60_000)
    assert rules(told) == expected


def after_a_leave(line):
    """m4 leaves at 5,000, of which no line comes unless `line` says so; the others go on in generation 2."""
    story = stable("m1", "m2", "m3", "m4", poll_ms=60_000)
    for member in ("m1", "m2", "m3", "m4"):
        story.beats(member, 1_000, 4_000)
    if line == "its own":
        story.leave(5_000, "m4")
    story = rebalance(story, 5_050, 2, "m1", "m2", "m3")
    if line == "a later one":
        story = rebalance(story.leave(5_500, "m3"), 5_550, 3, "m1", "m2")
    return story


# which leave has a line, when m2 is heard last, until when the group is seen stable, when m5 asks to join, when the
# phase ends -> what is told of m2, whose session is 6 s
UNSEEN_LEAVES = {
    "none, and m2's session ends in the phase": ("none", 10_000, 10_400, 10_500, 18_000, REMOVED),
    "none, and m2's session ends just after the phase began": ("none", 10_000, 10_400, 15_700, 18_000, REMOVED),
    "m4's own": ("its own", 10_000, 10_400, 10_500, 18_000, EXPIRED),
    "a later one": ("a later one", 10_000, 10_400, 10_500, 18_000, EXPIRED),
    "none, but the end of m2's session began the phase": ("none", 7_000, 7_400, 13_000, 18_000, EXPIRED),
    "none, but m2 was silent for long before the phase": ("none", 7_000, 10_400, 10_500, 18_000, EXPIRED),
    "none, but the end of m2's session ended the phase": ("none", 10_000, 10_400, 10_500, 16_020, EXPIRED),
}


@pytest.mark.parametrize("name", UNSEEN_LEAVES)
def test_where_leaves_have_no_lines_nobody_is_accused_who_may_have_left(name):
    """m5 begins a join phase by asking to join, so nothing shows when m2 was gone."""
    line, last_ms, stable_ms, asked_ms, ended_ms, expected = UNSEEN_LEAVES[name]
    story = after_a_leave(line)
    others, generation = (("m1",), 3) if line == "a later one" else (("m1", "m3"), 2)
    story.beats("m2", 6_000, last_ms, generation).join(ended_ms, "m5", generation + 1, parked_ms=ended_ms - asked_ms)
    for member in others:
        story.beats(member, 6_000, stable_ms, generation).beat(asked_ms + 200, member, generation, error=27)
    story = rebalance(story, ended_ms, generation + 1, *others, "m5")
    for member in (*others, "m5"):
        story.beats(member, ended_ms + 1_000, 50_000, generation + 1)
    assert rules(story.play(50_000)) == expected


@pytest.mark.parametrize(("gone_ms", "expected"), [(15_870, REMOVED), (16_000, EXPIRED)])
def test_where_leaves_have_no_lines_who_goes_before_its_session_ends_left(gone_ms, expected):
    """m3 left unseen at 5,500. m2 is heard last at 10,000, and a KIP-848 group writes a removal as it happens."""
    story = consumers("m1", "m2", "m3").hellos("m1", 1_000, 40_000, 2).hellos("m3", 1_000, 5_000, 2)
    story = story.gone(5_500, "m3").hellos("m2", 1_000, 10_000, 2).gone(gone_ms, "m2")
    told = story.play(40_000, consumer_session_timeouts_ms={"": 6_000})
    assert (rules(told, "m3"), rules(told)) == (REMOVED, expected)


def test_the_leave_of_one_member_is_proof_though_another_expired_at_that_instant():
    """m3 left unseen and m4 expired, both gone after one phase. The next phase hides how m2 went."""
    story = stable("m1", "m2", "m3", "m4", poll_ms=60_000).beats("m4", 1_000, 3_000)
    for member in ("m1", "m2", "m3"):
        story.beats(member, 1_000, 8_000)
    story = rebalance(story.beat(9_020, "m1", error=27), 9_100, 2, "m1", "m2").beats("m2", 10_000, 12_000, 2)
    story.beats("m1", 10_000, 12_400, 2).join(20_000, "m5", 3, parked_ms=7_500).beat(12_700, "m1", 2, error=27)
    story = rebalance(story, 20_000, 3, "m1", "m5").beats("m1", 21_000, 50_000, 3).beats("m5", 21_000, 50_000, 3)
    told = story.play(50_000)
    assert (rules(told, "m3"), rules(told, "m4"), rules(told)) == (REMOVED, EXPIRED, REMOVED)


@pytest.mark.parametrize(("left", "expected"), [(True, REMOVED), (False, EXPIRED)])
def test_a_leave_at_the_other_listener_of_its_coordinator_is_not_undone(left, expected):
    """m1 is on one listener, m2 and m3 on another. Until both are known to be one broker, each turn looks like a move,
    after which the next coordinator falls back to the record that lists m3. m3 is heard last at 10,000."""
    probed, other = "10.0.0.1:9092", "10.9.0.1:9192"
    story = stable("m1", "m2", "m3", poll_ms=60_000)
    story.rows[:] = [row for row in story.rows if row[1] != 1]  # the records stay; no line names the broker yet
    story.broker, story.brokers = probed, {probed: 0}
    story.beats("m2", 1_000, 10_000).beats("m3", 1_000, 10_000).beats("m1", 1_500, 10_500, broker=other)
    story = story.leave(10_600, "m3") if left else story.join(10_600, "m4", -1, error=79, asked="")
    story.beats("m1", 11_500, 16_500, error=27, broker=other).beats("m2", 11_000, 16_000, error=27)
    story = rebalance(story, 17_000, 2, "m1", "m2").beats("m2", 18_000, 40_000, 2)
    assert rules(story.beats("m1", 18_500, 40_000, 2, broker=other).play(40_000), "m3") == expected


def flushed(story, until_ms):
    """Play a story whose lines have the dates of a shipper that writes its buffer every second."""
    return dated(story, until_ms, lambda row: row.timestamp_ms + -row.timestamp_ms % 1_000)


def dated(story, until_ms, date):
    """Play a story whose lines have other dates."""
    rows = [
        row._replace(timestamp_ms=date(row)) if row.source == TELEMETRY else row for row in story.source_rows(until_ms)
    ]
    return Told(replay_rows(rows, ShardSettings(cluster="c", partitions=1, live_from_ms=0)))


def test_a_leave_is_awaited_for_as_long_as_dates_may_be_off():
    """m2 is heard at 3,400 and leaves at 10,050. The record shows it at once, and its line is dated 11,000."""
    story = stable("m1", "m2").beats("m1", 1_020, 10_020).beat(1_000, "m2").beat(3_400, "m2").leave(10_050, "m2")
    story.join(10_055, "m1", 2, listed=["m1"]).record(10_060, 2, "m1").sync(10_070, "m1", 2, leader=True)
    told = flushed(story.beats("m1", 11_020, 40_020, 2), 40_000)
    assert told.accusations == []


@pytest.mark.parametrize(("poll_ms", "expected"), [(4_000, REMOVED), (60_000, EXPIRED)])
def test_dates_that_are_off_do_not_tell_two_timers_apart(poll_ms, expected):
    """m2's session ends in a phase that lasts 3 s. By coarse dates, it may last 4 s, which is its timeout."""
    story = group(last_ms=10_000, m1_until_ms=15_900, poll_ms=poll_ms).beat(15_950, "m1", error=27)
    story = without(story.join(19_000, "m3", 2, parked_ms=3_060), "m2", 19_000, others=("m1", "m3"))
    assert rules(story.play(40_000)) == EXPIRED
    assert rules(flushed(story, 40_000)) == expected


# how much too early two lines are dated, the timeout of a rebalance -> what is told of a removal after 3 s of one
DISORDER = {
    "exact dates": (0, 3_200, EXPIRED),
    "threads that swap two lines": (20, 3_200, EXPIRED),
    "dates that are off": (160, 3_200, REMOVED),
    "dates that are off by less than the timers are apart": (160, 4_400, EXPIRED),
    "lines that come late": (2_000, 3_200, EXPIRED),
}


@pytest.mark.parametrize("name", DISORDER)
def test_lines_dated_before_earlier_ones_show_that_dates_are_off(name):
    """m2's session ends in a phase that lasts 3 s, and each date may be off by as much as those of p1 are."""
    early_ms, poll_ms, expected = DISORDER[name]
    story = group(last_ms=10_000, m1_until_ms=15_900, poll_ms=poll_ms).beat(15_950, "m1", error=27)
    story = without(story.join(19_000, "m3", 2, parked_ms=3_060), "m2", 19_000, others=("m1", "m3"))
    for at_ms in (5_010, 9_010):
        story.tell(at_ms, heartbeat_line("payments", "p1"))
    told = dated(story, 40_000, lambda row: row.timestamp_ms - early_ms * ("payments" in row.value.decode()))
    assert rules(told) == expected

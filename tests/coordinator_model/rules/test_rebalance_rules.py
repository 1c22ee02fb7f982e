"""Rebalances that hang, that come to nothing, and that never end; and those that only look like it."""

import pytest

from coordinator_model.replica import rebalances
from coordinator_model.replica.group import GroupReplica
from coordinator_model.thresholds import Thresholds
from tests.support.story import T0, Who, consumers, rebalance, stable

SLOW_MS = 48_000
"""80 % of the stories' rebalance timeout of 60,000, which is less than `rebalance_slow_ms`."""


def summary(told, rule):
    [opened] = told.of(rule)
    return opened["summary"]


def transitions(told, rule):
    return [
        (t.kind.value, t.incident.severity, t.at_ms - T0) for t in told.history.transitions if t.incident.rule == rule
    ]


# ------------------------------------------------------------------------------------------------ stuck


def joining(*, until_ms):
    """m1 is told to rejoin at 10,000 and goes on with its heartbeats; m2 rejoined, so it sends none."""
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m2", 1_000, 9_500)
    return story.beats("m1", 10_000, until_ms, error=27).beat(10_200, "m2", error=27)


def test_a_stuck_join_phase_names_who_still_sends_heartbeats():
    """The incident opens at the instant at which the phase has lasted for `SLOW_MS`."""
    told = joining(until_ms=70_000).play(70_000)
    assert transitions(told, "rebalance-stuck") == [("opened", "page", 10_000 + SLOW_MS)]
    assert "join phase" in summary(told, "rebalance-stuck")
    assert "m1 (client" in summary(told, "rebalance-stuck")
    assert "m2" not in summary(told, "rebalance-stuck")


def test_a_moment_before_it_is_only_slow_and_shown_with_whom_it_waits_for():
    told = joining(until_ms=57_900).play(57_900)
    assert told.of("rebalance-stuck") == []
    waits = {"phase": "join", "since_ms": T0 + 10_000, "waiting_for": ["m1"], "waiting_for_total": 1}
    assert told.group["rebalance"] == waits
    assert stable("m1").play(1_000).group["rebalance"] is None


def test_rebalance_slow_ms_counts_where_the_rebalance_timeout_is_longer():
    told = joining(until_ms=70_000).play(70_000, Thresholds(rebalance_slow_ms=20_000))
    assert transitions(told, "rebalance-stuck")[0] == ("opened", "page", 30_000)


def test_a_member_that_leaves_in_the_phase_does_not_make_it_shorter():
    """The timer was set when the phase began. Without m1, the longest timeout is 8 s."""
    story = stable("m1", Who("m2", poll_ms=8_000)).beats("m1", 1_000, 9_000).beats("m2", 1_000, 9_500)
    story.beats("m1", 10_000, 29_000, error=27).beats("m2", 10_500, 80_000, error=27).leave(30_000, "m1")
    assert story.play(57_000).of("rebalance-stuck") == []
    assert transitions(story.play(80_000), "rebalance-stuck") == [("opened", "page", 10_000 + SLOW_MS)]


AWAITED = {
    "nobody: m1 has rejoined, or is gone": (None, []),
    "an id that was given out": (Who("n1", session_ms=120_000), [("opened", "page", 10_000 + SLOW_MS)]),
    "an id that has expired": (Who("n1", session_ms=20_000), []),
}


@pytest.mark.parametrize("name", AWAITED)
def test_a_phase_that_seems_to_wait_for_nobody_may_have_ended_unseen(name):
    """m2 leaves. m1 sends no heartbeat any more, for longer than its session; the line that shows why may be lost."""
    newcomer, expected = AWAITED[name]
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m2", 1_000, 9_500).beat(10_000, "m1", error=27)
    if newcomer is not None:
        story.join(11_000, newcomer, 0, error=79)
    told = story.leave(10_500, "m2").play(80_000)
    assert transitions(told, "rebalance-stuck") == expected


def test_it_ends_when_the_group_is_stable():
    story = rebalance(joining(until_ms=65_000), 66_000, 2, "m1", "m2")
    told = story.beats("m1", 67_000, 70_000, generation=2).play(70_000)
    assert told.closed("rebalance-stuck") == [("recovered", 66_000)]  # the sync phase begins


def test_a_sync_phase_waits_for_its_leader():
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m2", 1_000, 9_000)
    story.join(10_000, "m1", 2, listed=("m1", "m2")).join(10_000, "m2", 2)
    told = story.beats("m2", 11_000, 60_000, generation=2).play(60_000)
    assert transitions(told, "rebalance-stuck") == [("opened", "page", 10_000 + SLOW_MS)]
    assert "waits for m1 (client" in summary(told, "rebalance-stuck")


def test_a_reconciliation_waits_for_who_has_not_given_up_its_partitions():
    story = consumers("m1", "m2").epoch(10_000, 3).target(10_000, 3).current(10_001, "m1", 2, 1, (0, 1))
    story.current(10_002, "m2", 3, 2).hellos("m1", 11_000, 60_000, 2).hellos("m2", 11_000, 60_000, 3)
    told = story.play(60_000)
    assert transitions(told, "rebalance-stuck") == [("opened", "page", 10_000 + SLOW_MS)]
    assert "waits for m1 (client" in summary(told, "rebalance-stuck")


def test_nobody_waits_for_a_static_member_that_is_away():
    """It left with epoch -2, for a restart that takes longer than 80 % of the rebalance timeout."""
    static = Who("s1", instance_id="pod-1")
    story = consumers("m1", static).hellos("m1", 1_000, 80_000, 2).hellos("s1", 1_000, 9_000, 2)
    told = story.hello(10_000, "s1", -2, -2).current(10_001, "s1", -2).play(80_000)
    assert told.of("rebalance-stuck") == []
    assert (told.group["state"], told.group["rebalance"]) == ("Reconciling", None)


def test_the_time_in_which_the_coordinator_stood_still_does_not_count():
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m1", 10_000, 20_000, error=27)
    told = story.silent(20_000, 65_000).beats("m1", 65_100, 80_000, error=27).play(80_000)
    assert told.of("rebalance-stuck") == []


def test_a_silence_of_the_coordinator_does_not_end_what_is_told():
    """It goes on after the silence, without a second count from its end, until the phase is over."""
    story = joining(until_ms=70_000).silent(70_000, 95_000).beats("m1", 95_100, 180_000, error=27)
    told = story.play(180_000)
    assert transitions(told, "rebalance-stuck") == [("opened", "page", 10_000 + SLOW_MS)]
    rebalance(story, 181_000, 2, "m1", "m2").beats("m1", 182_000, 190_000, generation=2)
    assert story.play(190_000).closed("rebalance-stuck") == [("recovered", 181_000)]


def test_a_phase_after_one_that_was_stuck_is_judged_by_its_own_length():
    """The sync phase begins in the silence's shadow, and its count is its own."""
    story = joining(until_ms=70_000).silent(70_000, 95_000).beats("m1", 95_100, 99_000, error=27)
    story.join(100_000, "m1", 2, listed=("m1", "m2")).join(100_000, "m2", 2)
    told = story.beats("m2", 101_000, 150_000, generation=2).play(150_000)
    assert [(kind, at_ms) for kind, _, at_ms in transitions(told, "rebalance-stuck")] == [
        ("opened", 10_000 + SLOW_MS),
        ("closed", 100_000),
        ("opened", 100_000 + SLOW_MS),
    ]


# ------------------------------------------------------------------------------------------------ aborted


def given_up(story, at_ms, generation):
    """A generation is answered to both, and to no purpose."""
    return story.join(at_ms, "m1", generation, listed=("m1", "m2")).join(at_ms, "m2", generation)


def test_generations_given_up_one_after_the_other_are_told_at_the_third():
    story = stable("m1", "m2").beats("m1", 1_000, 5_000)
    for n in range(3):
        given_up(story, 6_000 + 1_000 * n, 2 + n)
    assert story.play(12_000).of("rebalance-aborted") == []
    told = given_up(story, 9_000, 5).play(12_000)
    assert told.facts("rebalance-aborted", "severity", "at_ms", "opened_ms") == [("warn", 9_000, 7_000)]


def test_an_aborted_generation_is_told_if_the_group_stays_unstable():
    story = given_up(given_up(stable("m1", "m2"), 6_000, 2), 7_000, 3)
    assert story.play(20_000).facts("rebalance-aborted", "at_ms") == [(17_000,)]


def test_members_that_start_at_once_abort_a_generation_in_good_health():
    story = given_up(stable("m1", "m2"), 6_000, 2)
    told = rebalance(story, 6_300, 3, "m1", "m2").play(30_000)
    assert told.of("rebalance-aborted") == []


def test_it_ends_when_a_generation_is_synced():
    story = given_up(given_up(stable("m1", "m2"), 6_000, 2), 7_000, 3)
    assert rebalance(story, 20_000, 4, "m1", "m2").play(25_000).closed("rebalance-aborted") == [("recovered", 20_040)]


# ------------------------------------------------------------------------------------------------ storm


def pod(number, life=0):
    return Who(f"pod-{number}-{life}", client_id="orders", host=f"10.0.0.{number}", port=5_000 + 10 * number + life)


def begun(count):
    return stable(*(pod(n) for n in range(count)), session_ms=300_000)


def flapping(times, *, size=3, seen=True):
    """Pod 0 leaves and comes back, again and again; each costs two generations. ``seen``: there are leave lines."""
    story, others, at_ms = begun(size), [pod(n) for n in range(1, size)], 10_000
    for life in range(times):
        if seen:
            story.leave(at_ms, pod(0, life).member_id)
        rebalance(story, at_ms + 1_000, 2 + 2 * life, *others)
        rebalance(story, at_ms + 5_000, 3 + 2 * life, *others, pod(0, life + 1))
        at_ms += 10_000
    return story, at_ms


def deploy(count):
    """Every pod leaves once and its successor comes from the same place."""
    story, living, generation, at_ms = begun(count), [pod(n) for n in range(count)], 1, 10_000
    for n in range(count):
        story.leave(at_ms, living[n].member_id)
        rebalance(story, at_ms + 1_000, generation + 1, *living[:n], *living[n + 1 :])
        living[n] = pod(n, 1)
        rebalance(story, at_ms + 5_000, generation + 2, *living)
        generation, at_ms = generation + 2, at_ms + 10_000
    return story, at_ms


def growing(count):
    """One pod more every ten seconds."""
    story = begun(1)
    for n in range(1, count):
        rebalance(story, 10_000 * n, n + 1, *(pod(k) for k in range(n + 1)))
    return story, 10_000 * count


def rejoining(times):
    """The same members rejoin and rejoin: nobody goes, nobody comes."""
    story = begun(2)
    for n in range(times):
        rebalance(story, 700_000 + 10_000 * n, 2 + n, pod(0), pod(1))
    return story, 700_000 + 10_000 * times


STORIES = {
    "one flaps": (lambda: flapping(3), ["page"]),
    "one flaps, but not often": (lambda: flapping(2), []),
    "one flaps, and no line says that it left": (lambda: flapping(4, seen=False), ["info"]),
    "a rolling deploy": (lambda: deploy(4), ["info"]),
    "a group that grows": (lambda: growing(8), []),
    "members that rejoin by themselves": (lambda: rejoining(5), ["page"]),
    "members that rejoin, but not often": (lambda: rejoining(4), []),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_storm_is_told_from_a_deploy_and_a_start(name):
    make, severities = STORIES[name]
    story, until_ms = make()
    assert [t["severity"] for t in story.play(until_ms).of("rebalance-storm")] == severities


@pytest.mark.parametrize("line_ms", [-200, 0, 1, 200])
def test_the_rebalance_that_the_first_departure_causes_counts(line_ms):
    """In a KIP-848 group it comes with the leave. The date of the line is not exact."""
    story = consumers("m1", "m2").hellos("m1", 1_000, 60_000, 2).hello(10_000 + line_ms, "m2", -1, -1)
    story.gone(10_000, "m2")
    for n in range(5):
        story.epoch(10_000 * (n + 1), 3 + n)
    assert transitions(story.play(60_000), "rebalance-storm") == [("opened", "info", 50_000)]


def test_a_generation_counts_once_though_a_load_seemed_to_take_it_back():
    replica = GroupReplica("g", generation=2)
    for at_ms, before in ((1_000, 1), (2_000, 0), (3_000, -1), (4_000, 1)):
        rebalances.note(replica, before, at_ms)
    assert [each.at_ms for each in replica.rebalances] == [1_000]
    replica.generation = 3
    rebalances.note(replica, 2, 5_000)
    assert [each.generation for each in replica.rebalances] == [2, 3]


def test_a_storm_names_who_is_behind_it_and_counts_the_causes():
    story, until_ms = flapping(3)
    told = story.play(until_ms)
    assert "orders on 10.0.0.0, 3 times" in summary(told, "rebalance-storm")
    assert "(3 left)" in summary(told, "rebalance-storm")


def test_a_removal_that_is_not_judged_yet_explains_a_rebalance():
    """Nobody comes or goes for a while. Then a member is gone, which is not judged before its grace has passed."""
    story, _ = rejoining(4)
    rebalance(story, 740_000, 6, pod(0))
    assert story.play(745_000).of("rebalance-storm") == []


def test_two_expiries_among_leaves_are_no_deploy():
    """Two sessions end among the leaves."""
    story = stable(*(pod(n) for n in range(4)), session_ms=6_000).beats("pod-3-0", 1_000, 60_000)
    story.beats("pod-2-0", 1_000, 60_000).beats("pod-1-0", 1_000, 20_000)
    rebalance(story, 6_120, 2, *(pod(n) for n in range(1, 4)))
    for generation, at_ms in ((3, 10_000), (4, 15_000)):
        rebalance(story, at_ms, generation, *(pod(n) for n in range(1, 4)))
    for generation, at_ms in ((5, 26_100), (6, 30_000)):
        rebalance(story, at_ms, generation, pod(2), pod(3))
    told = story.play(40_000)
    assert [t["severity"] for t in told.of("rebalance-storm")] == ["page"]


def test_a_storm_is_over_when_its_window_holds_too_few():
    story, _ = flapping(3)
    told = story.play(700_000)
    # generations at 11, 15, 21, 25, 31 and 35 s: the fifth from the end falls out of the window 600 s after it
    assert told.closed("rebalance-storm") == [("recovered", 15_000 + 600_000)]

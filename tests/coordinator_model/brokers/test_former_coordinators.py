"""Brokers that another has taken over from and that go on answering: whose answers count, and until when not."""

import pytest

from coordinator_model.brokers.coordinator_check import Proof
from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.brokers.former_coordinators import (
    GOES_ON_MS,
    LONGEST_MS,
    MAX_ANNOUNCED,
    MAX_FORMER,
    FormerCoordinators,
)
from coordinator_model.decode.parse import parse_row
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.thresholds import Thresholds
from tests.support.records import key
from tests.support.story import T0, Who, stable

LIMITS = Thresholds()


def believed(*steps):
    """Who coordinates after answers ``(broker, at_ms, proof)``, those left out that a deposed broker gave."""
    clock = CoordinatorTracker()
    for broker, at_ms, proof in steps:
        for name in ("a", "b"):  # both are probed
            clock.advance(name, at_ms, LIMITS)
        if proof is Proof.REFUSES or not clock.is_deposed(broker, at_ms, LIMITS):
            clock.answered(broker, proof, at_ms, LIMITS)
    return clock


YES, NO = Proof.COORDINATES, Proof.REFUSES
MOVED = [("a", 1_000, YES), ("b", 3_000, YES)]
# answers -> who coordinates, whether the predecessor of the last move is seen to go on
ANSWERS = {
    "it goes on": ([*MOVED, ("a", 3_500, YES), ("a", 6_000, YES)], "b", True),
    "it stops": (MOVED, "b", False),
    "it refuses, and is elected again": ([*MOVED, ("a", 3_500, NO), ("a", 9_000, YES)], "a", False),
    "it refuses, another leads, and it is elected again": (
        [("a", 1_000, YES), ("a", 2_500, NO), ("b", 3_000, YES), ("a", 5_000, YES)],
        "a",
        False,
    ),
    "it comes back after a silence": (
        [*MOVED, *(("b", s * 1_000, YES) for s in range(4, 20)), ("a", 20_000, YES)],
        "a",
        False,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_who_coordinates_when_a_former_coordinator(name):
    steps, coordinator, went_on = ANSWERS[name]
    clock = believed(*steps)
    assert (clock.coordinator, clock.timer_resets[-1].went_on) == (coordinator, went_on)


def test_a_coordinator_that_refused_as_it_loaded_loaded_after_that():
    clock = believed(("a", 1_000, YES), ("b", 2_000, NO), ("b", 2_400, YES))
    assert clock.timer_resets[-1].since_ms == 2_000


def test_where_the_next_one_is_silent_the_former_may_coordinate_again():
    clock = believed(*MOVED)
    clock.advance("a", 6_000, LIMITS)
    assert not clock.is_deposed("a", 6_000, LIMITS)


def test_an_answer_within_its_time_keeps_it_going_on():
    former = FormerCoordinators()
    former.supersede("a", 1_000)
    assert former.note_answer("a", 1_000 + GOES_ON_MS)
    assert former.note_answer("a", 1_000 + 2 * GOES_ON_MS)
    assert not former.note_answer("a", 1_001 + 3 * GOES_ON_MS)


def test_who_goes_on_for_longer_than_a_deposed_broker_coordinates_again():
    """The one that took over may be asked by nobody, and so never refuses: the former one is not deposed for ever."""
    former = FormerCoordinators()
    former.supersede("a", 0)
    instants = range(3_000, 3_600_000, 3_000)
    answers = {at_ms: former.note_answer("a", at_ms) for at_ms in instants}
    assert [at_ms for at_ms, deposed in answers.items() if deposed] == list(range(3_000, LONGEST_MS + 1, 3_000))


def test_brokers_without_end_do_not_fill_the_memory():
    former = FormerCoordinators()
    for number in range(3 * MAX_FORMER):
        former.supersede(f"b{number}", number)
    assert len(former.answered_ms) == MAX_FORMER
    assert f"b{3 * MAX_FORMER - 1}" in former.answered_ms


def test_groups_without_end_do_not_fill_the_memory():
    former = FormerCoordinators()
    former.supersede("a", 1_000)
    for number in range(3 * MAX_ANNOUNCED):
        former.announce("a", f"g{number}", 7, 3_000)
    assert len(former.announced) == MAX_ANNOUNCED
    assert former.has_written("a", f"g{3 * MAX_ANNOUNCED - 1}", 7)


# ------------------------------------------------------------------------------------------------ with groups


def taken_over(until_ms=30_000):
    """broker-2 takes over from broker-1 at about 10 s and answers m1; broker-1 goes on answering m2 until 20 s."""
    story = stable("m1", "m2")
    story.brokers["broker-2"] = 0
    story.beats("m1", 1_000, 10_000).beats("m2", 1_000, 20_000)
    story.beat(11_000, "m1", error=22, generation=9, broker="broker-2")  # only who has loaded answers so
    return story.beats("m1", 11_500, until_ms, broker="broker-2")


def test_what_a_deposed_coordinator_accepts_keeps_nobody_alive():
    """m2's session began anew as broker-2 loaded the group, by 11 s, and ended at the latest at 17 s."""
    story = taken_over(17_000)
    for at_ms in range(17_500, 20_000, 500):
        story.beat(at_ms, "m1", error=27, broker="broker-2")
    story.broker = "broker-2"
    story.join(20_000, "m1", 2, listed=["m1"]).sync(20_100, "m1", 2, leader=True).record(20_050, 2, "m1")
    told = story.beats("m1", 21_000, 24_000, generation=2).play(24_000)
    [(member, deadline_ms, cause)] = told.facts("session-expired", "subject", "deadline_ms", "cause")
    assert (member, cause) == ("m2", "coordinator-moved")
    assert 16_000 <= deadline_ms <= 17_500


@pytest.mark.parametrize(("left_ms", "accused"), [(17_200, []), (16_900, ["m2"])])
def test_a_leave_at_a_deposed_coordinator_explains_a_record_of_its_instant(left_ms, accused):
    """broker-1 answers m2's leave. The record of 17.2 s shows whether it was still the coordinator."""
    story = taken_over(17_000)
    story.leave(left_ms, "m2", broker="broker-1")
    story.record(17_200, 2, "m1")
    told = story.beats("m1", 17_500, 24_000, generation=2, broker="broker-2").play(24_000)
    assert [member for _, member in told.accusations] == accused


@pytest.mark.parametrize(("stored", "exact"), [(True, True), (False, False)])
def test_a_record_that_a_deposed_coordinator_stored_shows_that_it_let_expire(stored, exact):
    """broker-1's clock is ahead, so it seems to end the phase of 10,000 after metadata has named broker-2.

    It accepts the leader's assignment, so the record of generation 2 is its own.
    """
    pod = Who("pod", instance_id="pod-1", port=5_010)
    story = stable("m1", pod)
    story.brokers["broker-2"] = 0
    story.leads(0, "broker-1").beats("m1", 1_000, 10_000).beats("pod", 1_000, 4_000).beat(10_100, "m1", error=27)
    story.leads(10_200, "broker-2").join(10_300, "m1", 2, listed=["m1"], parked_ms=50).record(10_340, 2, "m1")
    if stored:
        story.sync(10_350, "m1", 2, leader=True)
    story.beat(12_000, "m1", 2, error=16).beats("m1", 12_500, 16_000, generation=2, broker="broker-2")
    [told] = story.play(16_000).of("session-expired")
    assert (told["subject"], told["cause"] == "session-timeout") == ("pod-1", exact)
    assert ("deadline_from_ms" not in told["detail"], told["deadline_ms"] == T0 + 10_000) == (exact, exact)


def test_a_removal_that_nothing_explains_is_told_once_a_move_does():
    """broker-2 has loaded the group and let it expire; broker-1 answers m1 until it refuses, at 14 s.

    Only 5 s after the removal is a leave answered that had to wait for its write.
    """
    story = stable("m1")
    story.brokers["broker-2"] = 0
    story.beats("m1", 1_000, 13_000).record(12_000, 2)
    assert story.play(13_500).accusations == []
    assert story.beat(14_000, "m1", error=16).play(17_000).accusations == []
    told = story.play(18_500)
    assert told.facts("session-expired", "subject", "deadline_ms", "cause") == [("m1", 12_000, "coordinator-moved")]


def test_a_removal_without_a_move_stays_unexplained():
    told = stable("m1").beats("m1", 1_000, 13_000).record(12_000, 2).play(60_000)
    assert told.accusations == []


def blind(announced=False):
    """broker-1 begins a join phase at 10 s. broker-2, which loads the group at 11 s, answers even a stranger with 0."""
    story = stable("m1", "m2")
    story.brokers["broker-2"] = 0
    story.beats("m1", 1_000, 9_000).beats("m2", 1_000, 9_000).beat(10_000, "m1", error=27)
    if announced:
        story.join(10_500, "m1", 2, listed=["m1", "m2", "m3"]).join(10_500, "m2", 2).join(10_500, "m3", 2, asked="")
    return story.beat(11_000, "m9", broker="broker-2")


def refused(story):
    """Let broker-2 refuse a JoinGroup while it is loading."""
    return story.join(11_500, "m2", 2, error=14, broker="broker-2")


def newcomer(story):
    """Let broker-2 give an id to a newcomer: only a coordinator that has loaded the group does that."""
    return story.join(12_000, "m4", -1, error=79, asked="", broker="broker-2")


# what broker-2 does after its blind 0
LOADS = {
    "nothing": blind(),
    "nothing, a generation was announced": blind(announced=True),
    "it refuses": refused(blind(announced=True)),
    "it answers": newcomer(blind()),
    "it answers, a generation was announced": newcomer(blind(announced=True)),
    "it refuses and then answers": newcomer(refused(blind(announced=True))),
    "it writes a record of another group": blind(announced=True).write(12_500, key(2, "other"), None),
}


@pytest.mark.parametrize("name", LOADS)
def test_a_coordinator_that_answered_while_it_was_loading_has_only_what_its_log_has(name):
    group = LOADS[name].play(13_000).group
    assert (group["state"], group["generation"]) == ("Stable", 1)
    assert sorted(member["member_id"] for member in group["members"]) == ["m1", "m2"]


def again(joined_ms=14_000, generation=2, synced=("broker-1", 2), instance=None, leader="m1"):
    """m2, or a successor of the static member m3, joins broker-1 after broker-2 has taken over at 11 s.

    The record is of generation 1, whose leader is m1.
    """
    story = stable("m1", "m2", Who("m3", instance_id="i"))
    story.brokers["broker-2"] = 0
    story.beats("m1", 1_000, 10_000).beats("m2", 1_000, 20_000)
    story.beat(11_000, "m1", error=22, generation=9, broker="broker-2").beats("m1", 11_500, 12_000, broker="broker-2")
    who = Who("m3-again", instance_id=instance) if instance else "m2"
    if instance:
        story.join(joined_ms, who, generation, leader=leader, asked="", broker="broker-1")
    else:
        story.join(joined_ms, who, generation, listed=["m2"], broker="broker-1")
    if synced:
        broker, of_generation = synced
        story.sync(15_000, "m2", of_generation, leader=True, broker=broker)
    return story


def heartbeat(at_ms=14_000, asked=1, epoch=2, **how):
    """m9, of a KIP-848 group, sends broker-1 a heartbeat after broker-2 has taken over at 11 s."""
    return again(synced=None, generation=1).hello(at_ms, "m9", asked, epoch, broker="broker-1", **how)


TERMS = {
    "it syncs the generation that it announced": (again(), True),
    "it announced it as it was superseded": (again(12_000), False),
    "it syncs another generation": (again(synced=("broker-1", 1)), False),
    "it syncs nobody": (again(synced=None), False),
    "it announced no new generation": (again(generation=1, synced=("broker-1", 1)), False),
    "it replaces a static member": (again(generation=1, synced=None, instance="i"), True),
    "it replaces one as it was superseded": (again(12_000, generation=1, synced=None, instance="i"), False),
    "it replaces one in a rebalance": (again(synced=None, instance="i"), False),
    "it replaces one in a generation of its own": (again(generation=1, synced=None, instance="i", leader="m9"), False),
    "it replaces one in an earlier generation": (again(generation=0, synced=None, instance="i"), False),
    "it raises a member epoch": (heartbeat(), True),
    "it lets a KIP-848 member join": (heartbeat(asked=0), True),
    "it raises one as it was superseded": (heartbeat(12_000), False),
    "it answers the epoch that was sent": (heartbeat(asked=2), False),
    "it lets a KIP-848 member leave": (heartbeat(asked=-1, epoch=-1), False),
    "it cannot store a raised epoch": (heartbeat(error=15, parked_ms=5_000), False),
}


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
@pytest.mark.parametrize("name", TERMS)
def test_a_former_coordinator_that_writes_again_was_elected_again(name, restarted):
    story, elected = TERMS[name]
    settings = ShardSettings(cluster="c", partitions=1, live_from_ms=0)
    shard = Shard.restore(0, settings, None)
    for until_ms in (14_500, 16_000):
        shard.apply([event for row in story.source_rows(until_ms) for event in parse_row(row)], final=True)
        if restarted:
            shard = Shard.restore(0, settings, shard.dump())
    assert shard.clock.coordinator == ("broker-1" if elected else "broker-2")

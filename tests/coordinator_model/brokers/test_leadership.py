"""Who coordinates by the brokers' metadata: what confirms an answer, what disputes it, and what neither can say."""

import pytest

from coordinator_model.brokers.coordinator_check import Proof
from coordinator_model.brokers.leadership import DISPUTE_MS, MAX_CLAIMS, STALE_MS, UNLOGGED_AFTER_MS, Leadership
from coordinator_model.events import TELEMETRY_RANK, LeaderNamed
from coordinator_model.shard.shard_memory import ShardMemory
from coordinator_model.shard.snapshot import dump_memory, load_memory
from tests.support.story import consumers, rebalance, stable

SURE, BLIND = Proof.COORDINATES, Proof.LEADS


def named(at_ms, key="a", others=("b", "c"), node=1, epoch=-1):
    return LeaderNamed(at_ms, TELEMETRY_RANK, "", 0, at_ms, "", node, key, others, epoch)


# what metadata said, who answers when -> whether that is disputed
ANSWERS = {
    "no metadata": ([], "b", 1_000, False),
    "the leader": ([named(1_000)], "a", 2_000, False),
    "another broker": ([named(1_000)], "b", 2_000, True),
    "a broker that metadata does not know by its key": ([named(1_000)], "x", 2_000, False),
    "another broker, long after": ([named(1_000)], "b", 1_001 + STALE_MS, False),
    "another broker, as metadata goes on": ([named(1_000), named(9_000)], "b", 1_001 + STALE_MS, True),
    "while the leader's key is unknown, one known not to lead": ([named(1_000, key="")], "b", 2_000, True),
    "while the leader's key is unknown, one that may be it": ([named(1_000, key="")], "x", 2_000, False),
    "whom metadata names since": ([named(1_000), named(2_000, "b", ("a", "c"))], "b", 2_100, False),
    "metadata that comes late says nothing": ([named(2_000, "b", ("a",)), named(1_000)], "b", 2_100, False),
}


TO_B = ("b", ("a", "c"), 2)
# what metadata said, with epochs -> who leads
EPOCHS = {
    "of a later epoch": ([named(1_000, epoch=4), named(2_000, *TO_B, epoch=5)], "b"),
    "of an earlier one, by a broker that has not heard": ([named(1_000, *TO_B, epoch=5), named(2_000, epoch=4)], "b"),
    "of an earlier one that is the only one for a minute: the topic was made anew": (
        [named(1_000, *TO_B, epoch=5), named(1_001 + DISPUTE_MS, epoch=0)],
        "a",
    ),
    "without its epoch": ([named(1_000, *TO_B, epoch=5), named(2_000)], "a"),
}


@pytest.mark.parametrize("case", EPOCHS)
def test_a_leader_is_believed_that_is_named(case):
    events, leader = EPOCHS[case]
    leadership = Leadership()
    for event in events:
        leadership.name(event)
    assert leadership.leader == leader


@pytest.mark.parametrize("case", ANSWERS)
def test_which_answers_metadata_disputes(case):
    events, broker, line_ms, disputed = ANSWERS[case]
    leadership = Leadership()
    for event in events:
        leadership.name(event)
    assert leadership.disputes(broker, SURE, line_ms, 0) == disputed


def test_instants_by_a_clock_that_had_stepped_ahead_do_not_last():
    """In the state of an older monitor they are by the coordinator's clock, here an hour ahead."""
    leadership, ahead_ms = Leadership(), 3_600_000
    leadership.name(named(ahead_ms, *TO_B))
    leadership.resign("b", ahead_ms + 500, had_led=True)
    leadership.name(named(ahead_ms + 1_000, *TO_B))
    leadership.disputes("c", SURE, ahead_ms + 1_500, 0)
    leadership.resign("b", ahead_ms + 2_000, had_led=True)

    assert leadership.name(named(1_000)) is True
    assert (leadership.leader, leadership.replaced_ms) == ("a", 0)
    assert leadership.disputes("c", SURE, 1_500, 0)
    assert not leadership.was_claimed("c", 1_500)
    assert leadership.was_claimed("c", 1_501)
    assert leadership.name(named(1_000 - DISPUTE_MS, *TO_B)) is None


@pytest.mark.parametrize(("leader_answers", "believed"), [(False, True), (True, False)])
def test_a_broker_that_metadata_disputes_is_believed_after_a_minute(leader_answers, believed):
    """It goes on answering as the coordinator, and is not believed if the leader that metadata names answers too."""
    leadership, disputed = Leadership(), []
    for at_ms in range(1_000, 2_000 + DISPUTE_MS, 1_000):
        leadership.name(named(at_ms))
        disputed.append(leadership.disputes("b", SURE, at_ms, at_ms if leader_answers else 0))
    assert all(disputed[:-1])
    assert disputed[-1] != believed


def test_metadata_from_before_its_leader_resigned_disputes_nothing():
    leadership = Leadership()
    leadership.name(named(1_000))
    leadership.resign("b", 1_500, had_led=True)
    assert leadership.disputes("b", SURE, 2_000, 0)
    leadership.resign("a", 2_100, had_led=True)
    assert not leadership.disputes("b", SURE, 2_200, 0)
    leadership.name(named(3_000))
    assert leadership.disputes("b", SURE, 3_100, 0)


@pytest.mark.parametrize(("had_led", "outdated"), [(True, None), (False, False)])
def test_the_epoch_of_a_leader_that_has_resigned_is_over(had_led, outdated):
    """A broker that knows only that epoch may still name it. A leader that has not led yet may refuse, too."""
    leadership = Leadership()
    leadership.name(named(1_000, epoch=4))
    for at_ms in (2_000, 2_100):
        leadership.resign("a", at_ms, had_led=had_led)
    assert leadership.name(named(3_000, epoch=4)) is outdated
    assert leadership.disputes("b", SURE, 3_100, 0) != had_led
    assert leadership.name(named(4_000, *TO_B, epoch=5)) is True


def test_a_leader_is_known_to_have_led_until_metadata_last_named_it():
    leadership = Leadership()
    for event in (named(1_000), named(6_000), named(11_000, *TO_B), named(16_000, *TO_B)):
        leadership.name(event)
    assert leadership.replaced_ms == 6_000


def test_a_claim_that_was_given_up_begins_anew():
    leadership = Leadership()
    for at_ms in (1_000, 2_000 + STALE_MS, 3_000 + 2 * STALE_MS):
        leadership.name(named(at_ms))
        leadership.disputes("b", SURE, at_ms, 0)
        assert leadership.claims["b"].first_ms == at_ms


def test_claims_of_strangers_do_not_fill_the_memory():
    leadership = Leadership()
    leadership.name(named(1))
    for number in range(100):
        leadership.name(named(number, others=(f"stranger-{number}",)))
        leadership.disputes(f"stranger-{number}", SURE, number, 0)
    assert len(leadership.claims) == MAX_CLAIMS


def test_what_is_known_of_leadership_survives_a_restart():
    memory = ShardMemory()
    memory.clock.leadership.name(named(1_000, key=""))
    memory.clock.leadership.disputes("b", BLIND, 2_000, 0)
    again = ShardMemory.from_dict(load_memory(dump_memory(memory.as_dict())))
    assert again.clock.leadership == memory.clock.leadership


# ------------------------------------------------------------------------------------------------ with groups


def watched(until_ms, leader="broker-1", brokers=2, step_ms=5_000):
    """Two members of a group; all brokers are probed, and metadata names the leader every five seconds."""
    story = stable("m1", "m2")
    story.brokers |= {f"broker-{node}": 0 for node in range(2, brokers + 1)}
    return story.leads(0, leader, *range(step_ms, until_ms, step_ms))


def test_metadata_names_the_coordinator_before_it_has_answered():
    story = stable("m1")
    story.rows.clear()
    told = story.record(100, 1, "m1").leads(50, "broker-1").play(5_000)
    assert told.group["coordinator"] == "broker-1"


@pytest.mark.parametrize("error", [0, 25, 27])
def test_what_another_broker_answers_as_coordinator_moves_nothing_and_hides_no_death(error):
    """Lines that nobody but a coordinator writes, of one that metadata does not name."""
    story = watched(40_000).beats("m1", 1_000, 40_000).beats("m2", 1_000, 8_000)
    told = story.beats("m2", 8_500, 40_000, error=error, broker="broker-2").play(40_000)
    assert told.facts("session-expired", "subject", "deadline_ms", "broker") == [("m2", 14_000, "broker-1")]
    assert told.group["coordinator"] == "broker-1"


def failover(named_ms):
    """broker-1 is killed at 10 s; broker-2 answers m1 from 11 s on, m2 died with broker-1; metadata tells later."""
    story = watched(10_000).beats("m1", 1_000, 10_000).beats("m2", 1_000, 9_500)
    story.silent(10_000, 90_000).leads(named_ms, "broker-2", *range(named_ms + 5_000, 60_000, 5_000))
    story.beats("m1", 11_000, 17_000, broker="broker-2").beat(18_000, "m1", error=27, broker="broker-2")
    story.broker = "broker-2"
    return rebalance(story, 18_500, 2, "m1").beats("m1", 19_000, 30_000, generation=2)


@pytest.mark.parametrize("named_ms", [10_500, 12_500, 14_500])
def test_a_failover_is_judged_alike_whether_metadata_or_an_answer_tells_first(named_ms):
    told = failover(named_ms).play(30_000)
    assert told.accusations == [("session-expired", "m2")]
    [expired] = told.of("session-expired")
    assert (expired["cause"], expired["broker"]) == ("coordinator-moved", "broker-2")
    assert told.group["coordinator"] == "broker-2"


@pytest.mark.parametrize("named_ms", [10_500, 14_500])
def test_who_leaves_the_next_coordinator_before_metadata_names_it_has_left(named_ms):
    """The group is in a join phase when broker-1 dies; the record that broker-2 loads still has m2, which leaves it."""
    story = watched(10_000).beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000)
    story.beat(9_000, "m1", error=27).beat(9_000, "m2", error=27).silent(10_000, 90_000)
    story.broker = "broker-2"
    story.leave(12_000, "m2").leads(named_ms, "broker-2", *range(named_ms + 5_000, 60_000, 5_000))
    told = rebalance(story, 19_500, 2, "m1").beats("m1", 20_000, 30_000, generation=2).play(30_000)
    assert told.of("member-removed") == []
    assert told.accusations == []
    assert list(told.members) == ["m1"]


def test_who_has_left_the_next_coordinator_stays_away_as_an_answer_moves_the_group():
    """m2 leaves broker-2 while metadata names broker-1, which refuses before metadata is asked again."""
    story = watched(10_000).beats("m1", 1_000, 11_000).beats("m2", 1_000, 11_000)
    story.beat(12_000, "m1", error=27, broker="broker-2").leave(13_000, "m2", broker="broker-2")
    story.beat(14_000, "m1", error=16).beat(14_500, "m1", error=27, broker="broker-2")
    story.broker = "broker-2"
    told = rebalance(story, 19_500, 2, "m1").beats("m1", 20_000, 30_000, generation=2).play(30_000)
    assert told.accusations == []
    assert list(told.members) == ["m1"]


def moved(story, moved_ms):
    """broker-2 becomes the coordinator, and announces generation 2 of m1 and m2 once m3's session has ended there."""
    story.leads(moved_ms, "broker-2", *range(moved_ms + 2_000, 90_000, 2_000))
    story.broker, ended_ms = "broker-2", moved_ms + 6_020
    story.join(ended_ms, "m1", 2, listed=["m1", "m2"], parked_ms=5_000).join(ended_ms, "m2", 2, parked_ms=4_800)
    story.record(ended_ms + 40, 2, "m1", "m2")
    for who in ("m1", "m2"):
        story.sync(ended_ms + 50, who, 2, leader=who == "m1").beats(who, 70_000, 80_000, 2)
    return story.play(80_000)


def three_of():
    """Three members that are heard for a minute; metadata names broker-1."""
    story = stable("m1", "m2", "m3")
    story.brokers |= {"broker-2": 0}
    for who in ("m1", "m2", "m3"):
        story.beats(who, 1_000, 60_000)
    return story.leads(200, "broker-1", *range(2_000, 62_000, 2_000))


@pytest.mark.parametrize(("broker", "expired"), [("broker-1", ["m3"]), ("broker-2", [])])
def test_a_leave_counts_at_the_next_coordinator_if_that_has_answered_it(broker, expired):
    """broker-2 answers before metadata names it, while broker-1 goes on unaware."""
    story = three_of().beat(60_900, "m2", broker="broker-2").leave(61_000, "m3", broker=broker)
    assert moved(story.beat(61_200, "m1", error=27), 63_000).opened("session-expired") == expired


def test_an_answer_of_long_before_a_move_gives_no_leave_to_the_next_coordinator():
    """broker-2 answered once, a minute before it becomes the coordinator. m3's leave died with broker-1."""
    story = three_of().beat(4_100, "m1", broker="broker-2").leave(61_000, "m3")
    story.beat(61_200, "m1", error=27).silent(61_400, 999_000, "broker-1")
    assert moved(story, 63_000).opened("session-expired") == ["m3"]


def test_what_the_next_coordinator_announced_stays_as_an_answer_moves_the_group():
    """broker-2 announces generation 2 while metadata names broker-1, which refuses before metadata is asked again."""
    story = watched(10_000).beats("m1", 1_000, 10_000).beats("m2", 1_000, 8_000)
    story.join(12_000, "m3", 2, listed=["m3"], asked="", broker="broker-2").beat(13_000, "m1", error=16)
    told = story.beat(14_000, "m2", error=25, broker="broker-2").play(14_500)
    assert (told.group["coordinator"], told.group["generation"], list(told.members)) == ("broker-2", 2, ["m3"])


@pytest.mark.parametrize(("epoch", "coordinator"), [(4, "broker-2"), (5, "broker-1"), (None, "broker-1")])
def test_a_coordinator_that_has_refused_does_not_come_back_in_its_epoch(epoch, coordinator):
    """broker-2 answers as the coordinator; then metadata, which may be of a broker that is behind, names broker-1."""
    story = watched(0).leads(5_000, "broker-1", leader_epochs=[4]).beats("m1", 1_000, 7_000).beat(8_000, "m1", error=16)
    story.beats("m1", 8_500, 9_500, broker="broker-2").leads(10_000, "broker-1", leader_epochs=[epoch])
    assert story.play(10_500).group["coordinator"] == coordinator


def test_metadata_alone_moves_the_coordinator_of_frozen_members():
    """The old coordinator dies; the new one has only its probe's lines and the record that ends the members."""
    story = watched(10_000).beats("m1", 1_000, 10_000).beats("m2", 1_000, 10_000)
    story.silent(10_000, 90_000).leads(12_000, "broker-2", *range(15_000, 40_000, 5_000))
    told = story.record(18_500, 2).play(30_000)
    assert sorted(told.opened("session-expired")) == ["m1", "m2"]
    assert told.group["coordinator"] == "broker-2"


def test_a_coordinator_that_dies_after_it_removed_frozen_members_had_expired_them():
    """broker-2 takes over and dies before it answers anybody. broker-3 is the next coordinator."""
    story = consumers("m1", "m2").hellos("m1", 1_000, 10_000, 2).hellos("m2", 1_000, 10_000, 2)
    story.brokers |= {"broker-2": 0, "broker-3": 0}
    story.leads(0, "broker-1", 5_000, 10_000, session_timeouts_ms={"consumer": {"": 45_000}})
    story.silent(10_000, 90_000).leads(25_000, "broker-2", 30_000)
    story.gone(69_100, "m1").gone(69_130, "m2").epoch(69_130, 4).silent(69_300, 200_000, "broker-2")
    story.leads(85_000, "broker-3", *range(90_000, 120_000, 5_000))
    story.hello(84_500, "m3", 0, 0, error=16, broker="broker-3")
    told = story.hello(85_500, "m3", 0, 5, broker="broker-3").play(110_000)
    expired = told.facts("session-expired", "subject", "cause", "broker")
    assert sorted(expired) == [(who, "coordinator-moved", "broker-2") for who in ("m1", "m2")]
    assert told.group["coordinator"] == "broker-3"


def test_a_leader_without_a_request_log_is_reported_once():
    """The incident is `telemetry-uncovered`; nobody is accused, and whether its members live is unknown."""
    story = watched(10_000).beats("m1", 1_000, 10_000).beats("m2", 1_000, 10_000)
    told = story.leads(11_000, "broker-3", *range(15_000, 100_000, 5_000)).play(100_000)
    assert told.facts("telemetry-uncovered", "subject", "opened_ms", "severity") == [("node 3", 11_000, "info")]
    assert told.facts("telemetry-uncovered", "at_ms") == [(11_000 + UNLOGGED_AFTER_MS,)]
    assert told.accusations == []
    assert [member["liveness"] for member in told.members.values()] == ["unknown", "unknown"]


@pytest.mark.parametrize(
    ("named_ms", "covered_ms"),
    [(50_000, 50_000), (60_000, 50_500)],
    ids=["metadata knows its key first", "it answers first"],
)
def test_a_leader_is_covered_again_once_it_has_a_request_log(named_ms, covered_ms):
    """Its request log is switched on at 49 s, and it answers from 50.5 s on."""
    story = watched(10_000).beats("m1", 1_000, 10_000).leads(11_000, "broker-3", *range(15_000, named_ms, 5_000))
    story.brokers["broker-3"] = 49_000
    story.leads(named_ms, "broker-3", *range(named_ms + 5_000, 90_000, 5_000))
    told = story.beats("m1", 50_500, 90_000, broker="broker-3").play(90_000)
    assert told.closed("telemetry-uncovered") == [("recovered", covered_ms)]
    assert told.members["m1"]["liveness"] == "alive"


def test_a_leader_that_answers_under_another_key_keeps_its_shard():
    """As one does whose clients come over a second listener, where no record key names the broker."""
    story = watched(30_000).beats("m1", 1_000, 30_000, broker="10.0.0.1:9093")
    story.brokers["10.0.0.1:9093"] = 0
    story.join(900, "m3", -1, error=79, broker="10.0.0.1:9093")
    told = story.beats("m2", 1_000, 8_000, broker="10.0.0.1:9093").play(30_000)
    assert told.group["coordinator"] == "10.0.0.1:9093"
    assert told.opened("session-expired") == ["m2"]


def test_without_metadata_answers_alone_tell():
    told = stable("m1").beats("m1", 1_000, 5_000).beats("m1", 6_000, 9_000, broker="broker-2").play(9_000)
    assert told.group["coordinator"] == "broker-2"


# when the new coordinator answered first, by metadata of which time its predecessor still led -> metadata was outdated
@pytest.mark.parametrize(("answered_ms", "outdated"), [(7_000, True), (9_500, False)])
def test_metadata_is_outdated_where_the_next_leader_has_answered_before(answered_ms, outdated):
    leadership = Leadership(named_ms=5_000, node=1, leader="broker-1", others=("broker-2",))
    assert leadership.disputes("broker-2", Proof.LEADS, answered_ms, 0)
    assert leadership.was_claimed("broker-2", 9_000) is outdated

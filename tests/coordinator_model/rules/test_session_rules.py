"""The timer's verdict: each condition it waits for, how it ends, and the warning before it."""

import pytest

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.rules.session import judge_unjudged
from coordinator_model.states import Cause, Evidence
from coordinator_model.thresholds import Thresholds
from tests.support.story import T0, Story, Who, consumers, rebalance, stable

DEADLINE_MS = 16_000
"""m2 is heard every second up to 10,000 and has a session timeout of 6,000."""


def silence(proof_from_ms=11_000, until_ms=30_000):
    """m2 falls silent after 10,000, m1 does not."""
    story = stable("m1", "m2").beats("m1", 1_000, 10_000).beats("m2", 1_000, 10_000)
    return story.beats("m1", proof_from_ms, until_ms)


def verdicts(story, until=20_000):
    return story.play(until).facts("session-expired", "subject", "deadline_ms", "at_ms", "evidence")


def test_silence_past_the_deadline_and_a_grace_is_a_verdict():
    assert verdicts(silence()) == [("m2", DEADLINE_MS, DEADLINE_MS + 500, "inferred")]


def test_a_rebalance_first_told_of_after_the_deadline_shields_nobody():
    """The coordinator removes m2 at its deadline and tells m1 at its next heartbeat, long before m1 has rejoined."""
    story = silence(until_ms=15_900).beats("m1", 16_200, 20_000, error=27)
    assert verdicts(story) == [("m2", DEADLINE_MS, DEADLINE_MS + 500, "inferred")]


@pytest.mark.parametrize("told_ms", [15_900, DEADLINE_MS])
def test_a_rebalance_first_told_of_by_the_deadline_may_shield_a_member(told_ms):
    """It may be m2's own JoinGroup that began it and is parked."""
    assert verdicts(silence(until_ms=15_500).beats("m1", told_ms, 20_000, error=27)) == []


@pytest.mark.parametrize(("owned", "told"), [((0,), ["m2"]), ((0, 1), [])], ids=["nothing", "a partition"])
def test_who_has_to_give_up_partitions_may_rejoin_as_late_as_it_wakes(owned, told):
    """m2 is frozen at 10,000. A cooperative client that wakes then rejoins of its own accord, before 16,000."""
    story = stable("m1", Who("m2", partitions=(0,), owned=owned)).beats("m1", 1_000, 15_900)
    story.beats("m2", 1_000, 10_000).beats("m1", 16_200, 17_200, error=27)
    rebalance(story, 17_500, 2, "m1", "m2").beats("m1", 18_000, 20_000, generation=2)
    assert [who for who, *_ in verdicts(story)] == told


def test_the_first_line_after_a_stalled_write_is_no_proof_yet():
    """Writes stall from 13,400 on. m2's heartbeat of 15,000 restarted its timer; it and m1's are answered at 18,500."""
    story = stable("m1", "m2").beats("m1", 1_000, 13_000).beats("m2", 1_000, 10_000)
    story.beat(18_500, "m1", parked_ms=1_500).beat(18_500, "m2", parked_ms=3_500)
    assert verdicts(story.beats("m1", 19_000, 24_000).beats("m2", 19_500, 24_000), 24_000) == []


def told_to_rejoin(story, at_ms=7_000):
    """m1 is heard every second, and is told to rejoin. Nobody else is ever heard."""
    return story.beats("m1", 1_000, 6_900).beats("m1", at_ms, 9_000, error=27)


def owing(member):
    """A member's SyncGroup does not come. The next generation would begin once it is overdue, after a minute."""
    story = stable("m1", "m2", "m3").beats("m3", 1_000, 6_900)
    story.rows = [
        entry for entry in story.rows if not (b"SYNC_GROUP" in entry[2].value and member.encode() in entry[2].value)
    ]
    return story


def left(member):
    return stable("m1", "m2", member).beats(member, 1_000, 6_000).leave(6_500, member)


def gone(member):
    return stable("m1", "m2", member).beats(member, 1_000, 5_000).beat(6_500, member, error=25)


def test_a_member_never_heard_expired_if_only_its_end_can_have_begun_the_rebalance():
    """Chaos seed 70101: its coordinator dies soon after, so no record and no answer ever shows the removal."""
    assert verdicts(told_to_rejoin(stable("m1", "m2")), until=9_000) == [("m2", 6_150, 6_650, "inferred")]


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(lambda: told_to_rejoin(stable("m2", "m1")), id="it leads, so its JoinGroup begins one"),
        pytest.param(lambda: told_to_rejoin(stable("m1", "m2", "m3")), id="another's session ended, too"),
        pytest.param(lambda: told_to_rejoin(owing("m3")), id="another owes a SyncGroup"),
        pytest.param(lambda: told_to_rejoin(owing("m2")), id="it owes a SyncGroup itself"),
        pytest.param(lambda: told_to_rejoin(stable("m1", Who("m2", instance_id="pod-1"))), id="it is static"),
        pytest.param(lambda: told_to_rejoin(stable("m1", "m2"), 6_050), id="it was told before the deadline"),
        pytest.param(lambda: told_to_rejoin(stable("m1", "m2")).beat(6_500, "m1"), id="the group was stable after it"),
        pytest.param(lambda: told_to_rejoin(left("m3")), id="a leave began it"),
        pytest.param(lambda: told_to_rejoin(gone("m3")), id="another was removed before its session's end"),
        pytest.param(lambda: told_to_rejoin(stable("m1", "m2")).lose(3_000), id="lines are missing"),
        pytest.param(lambda: stable("m1", "m2").beats("m1", 1_000, 9_000), id="nobody is told to rejoin"),
    ],
)
def test_a_member_never_heard_is_not_accused_if_all_else_is_possible(story):
    assert verdicts(story(), until=9_000) == []


@pytest.mark.parametrize(("told", "accused"), [("m1", []), ("m2", [("m1", 11_000)])])
def test_who_is_told_to_rejoin_in_the_phase_did_not_begin_it_as_its_session_ended(told, accused):
    """The leader's SyncGroup does not come, or comes just before the leader's session ends, into a newcomer's phase."""
    story = stable("m1", "m2").beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000)
    story.beat(4_500, "m2", error=27).join(5_000, "m1", 2, listed=["m1", "m2"], parked_ms=400)
    story.join(5_000, "m2", 2, parked_ms=400).beats("m2", 6_000, 10_000, generation=2)
    story.join(10_500, "m3", -1, error=79, asked="")
    if told == "m1":
        story.sync(10_991, "m1", 2, error=27, parked_ms=0)
    else:
        story.beat(10_991, "m2", 2, error=27)
    story.beat(11_400, "m2", 2, error=27).beat(12_000, "m2", 2, error=27)
    assert story.play(14_000).facts("session-expired", "subject", "deadline_ms") == accused


@pytest.mark.parametrize(("third_ms", "accused"), [(5_000, ["m3"]), (7_000, ["m2"])])
def test_who_owes_a_sync_may_be_alive_if_another_session_was_due_before(third_ms, accused):
    """m2 joins at 5,000 and does not sync. It may have heard of a phase that m3 began at 10,000, and have rejoined."""
    who = ["m1", "m2", Who("m3", session_ms=third_ms)]
    story = stable(*who).beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000).beats("m3", 1_000, 4_000)
    for name in ("m1", "m2", "m3"):
        story.beat(4_500, name, error=27).join(5_000, name, 2, listed=["m1", "m2", "m3"] if name == "m1" else ())
    story.record(5_040, 2, *who).sync(5_050, "m1", 2, leader=True, parked_ms=20).sync(5_050, "m3", 2, parked_ms=20)
    story.beats("m1", 6_000, 9_900, generation=2).beats("m1", 11_000, 14_000, generation=2, error=27)
    assert [who for who, *_ in verdicts(story, until=14_000)] == accused


@pytest.mark.parametrize("told", ["by a 27", "by an id given out"])
def test_a_successor_may_wait_in_a_rebalance_reported_late(told):
    """It asks to join at 15,900, into a phase that m3 has begun at 15,860; m1 hears of it late, or not at all."""
    old, new = (Who(name, instance_id="pod-1", port=port) for name, port in (("old", 5_001), ("new", 5_002)))
    story = stable("m1", old).beats("m1", 1_000, 15_000).beats("old", 1_000, 10_000)
    story.join(15_850, "m3", -1, error=79, asked="")
    if told == "by a 27":
        story.beats("m1", 16_200, 19_200, error=27)
    story.group = "another"  # its heartbeats prove that the coordinator answers some
    story.beats("x", 11_000, 20_000)
    story.group = "orders"
    story.join(20_000, "m1", 2, listed=["m1", new, "m3"], parked_ms=700).join(20_000, new, 2, asked="", parked_ms=4_100)
    told_of = story.record(20_010, 2, "m1", new, "m3").play(24_000).accusations
    assert told_of == []


@pytest.mark.parametrize("hears", ["nothing of its own group", "its own group"])
def test_a_possible_rejoin_in_a_silent_group_is_not_accused(hears):
    """m2 rejoins at 10,500, which begins a join phase; m1 is cut off until 19,000; another group's heartbeats go on."""
    story = stable("m1", "m2").beats("m1", 1_000, 10_000).beats("m2", 1_000, 10_000)
    if hears == "its own group":
        story.beats("m1", 11_000, 15_500)  # answered 0 after m2 was last heard: no phase was on
    story.beat(19_000, "m1", error=27)
    story.group = "another"
    story.beats("x", 11_000, 20_000)
    story.group = "orders"
    assert [who for who, *_ in verdicts(story)] == ([] if hears == "nothing of its own group" else ["m2"])


def test_a_sync_is_a_sign_of_life_after_which_a_member_may_have_rejoined():
    """Answered from a stable group it restarts no timer: m2's session would end at 16,000."""
    story = silence(until_ms=15_500).sync(15_000, "m2", 1, parked_ms=0)
    assert verdicts(story.beats("m1", 16_200, 20_000, error=27)) == []


def joining(story):
    """m2 is answered a join of this generation and never a sync."""
    return story.join(9_500, "m2", 1)


def coordinator_refuses(story):
    """The coordinator answers 16 at 12,000, and nothing about the shard after that."""
    story.rows = [row for row in story.rows if row[0] <= 11_000]
    return story.beat(12_000, "m1", error=16)


def _heard_once():
    return stable("m1", "m2").beats("m1", 1_000, 30_000).beat(10_000, "m2")


def _heard_rarely():
    return stable("m1", "m2").beats("m1", 1_000, 30_000).beat(1_000, "m2").beat(10_000, "m2")


def _joins_and_syncs():
    story = silence(40_000)
    for at_ms in range(11_000, 20_000, 1_000):
        story.join(at_ms, "m1", 1).sync(at_ms + 100, "m1", 1)
    return story


def _commits(*instants_ms):
    mine = Who("m2", partitions=(3,))
    story = stable("m1", mine).beats("m1", 1_000, 30_000).beats("m2", 1_000, 10_000)
    for at_ms in instants_ms:
        story.commit(at_ms, "t", 3)
    return story


# the one thing that is missing -> a story in which no verdict falls by 20,000
MISSING = {
    "the group is not stable": lambda: silence(until_ms=11_900).beats("m1", 12_000, 20_000, error=27),
    "the member was heard only once: not covered": _heard_once,
    "the member was not heard twice at a usual interval": _heard_rarely,
    "lines were lost after it was heard": lambda: silence().lose(13_000),
    "it waits for its sync": lambda: joining(silence()),
    "a restart of the timers is open": lambda: coordinator_refuses(silence()),
    "nobody of the shard was heard since": lambda: silence(proof_from_ms=40_000),
    "the newest proof arrived within half its session timeout": lambda: silence(until_ms=12_900),
    "nobody was heard at the deadline: another broker may have loaded the group": lambda: silence(until_ms=15_900),
    "the newest proof's line is not a grace old": lambda: silence(19_600, 19_600),
    "only refused heartbeats were answered since": lambda: silence(40_000).beats("m1", 11_000, 20_000, error=25),
    "only joins and syncs were answered since": _joins_and_syncs,
    "it committed an offset of its own since": lambda: _commits(15_000),
}


@pytest.mark.parametrize("name", MISSING)
def test_no_session_is_said_to_have_expired_while(name):
    assert verdicts(MISSING[name]()) == []


def test_no_verdict_before_the_broker_itself_has_come_so_far():
    assert verdicts(silence(), until=16_499) == []


@pytest.mark.parametrize("name", ["half its session timeout later", "a grace old"])
def test_a_proof_at_its_limit_is_enough(name):
    proof_ms = {"half its session timeout later": 13_000, "a grace old": 19_500}[name]
    story = silence(proof_ms, proof_ms).beat(DEADLINE_MS, "m1")  # it still coordinates then
    assert [who for who, *_ in verdicts(story)] == ["m2"]


def test_anothers_commit_or_a_strangers_partition_is_no_sign_of_life():
    story = _commits().commit(15_000, "t", 4).commit(15_000, "other", 3)
    assert verdicts(story) == [("m2", DEADLINE_MS, DEADLINE_MS + 500, "inferred")]


def test_a_commit_delays_the_verdict_to_its_own_deadline():
    assert verdicts(_commits(12_000)) == [("m2", 18_000, 18_500, "inferred")]


def test_a_grace_of_the_configuration_is_kept():
    story = silence()
    told = story.play(20_000, thresholds=Thresholds(grace_ms=2_000))
    assert told.facts("session-expired", "at_ms") == [(DEADLINE_MS + 2_000,)]


# ------------------------------------------------------------------------------------------------ what follows


def test_a_verdict_persists_into_the_rebalance_that_follows():
    """The coordinator has stalled writes and removes it late; a 27 at 17,000 must not unsay what was found."""
    told = silence(until_ms=16_900).beats("m1", 17_000, 25_000, error=27).play(25_000)
    assert told.opened("session-expired") == ["m2"]
    assert told.closed("session-expired") == []


def test_a_verdict_that_the_removal_confirms_stays_one_incident_now_observed():
    story = silence(until_ms=16_900).beat(17_000, "m1", error=27).join(17_500, "m1", 2, listed=["m1"])
    story.record(17_540, 2, "m1").sync(17_550, "m1", 2, leader=True).beats("m1", 18_000, 20_000, generation=2)
    told = story.play(20_000)
    assert told.opened("session-expired") == ["m2"]
    assert told.closed("session-expired") == []
    assert told.members.keys() == {"m1"}


@pytest.mark.parametrize(
    ("how", "repeated"),
    [({}, True), ({"judged": True}, False), ({"rule": None}, False), ({"spoken_ms": None}, False)],
    ids=["not judged yet", "judged", "explained by a leave", "no verdict was given"],
)
def test_a_verdict_stands_until_the_removal_is_judged(how, repeated):
    """Otherwise a successor that comes in the meantime would end the incident, and the removal would open another."""
    how = {"rule": "session-expired", "judged": False, "spoken_ms": DEADLINE_MS, **how}
    member = Member("m2", last_heartbeat_ms=10_000, session_timeout_ms=6_000, verdict_session_from_ms=10_000)
    member.verdict_deadline_ms = how.pop("spoken_ms")
    where = {"removed_ms": 17_500, "deadline_ms": None, "generation": 2, "broker": "b", "judge_after_ms": 18_000}
    departure = Departure(member, cause=Cause.SESSION_TIMEOUT, evidence=Evidence.OBSERVED, **where, **how)
    context = JudgementContext(17_600, "b", (), {}, 0, 0, 0, None, Thresholds())
    found = judge_unjudged(GroupReplica("g", departures=[departure]), departure, context).finding
    assert (found is not None and found.deadline_ms == DEADLINE_MS) is repeated


def test_a_member_that_the_broker_accepts_after_the_verdict_refutes_it():
    told = silence().beat(18_000, "m2").play(20_000)
    assert told.closed("session-expired") == [("refuted", 18_000)]


def test_a_verdict_falls_at_its_own_instant_wherever_the_lines_lie():
    """m1 is heard once in 5 s: the verdict is of 16,500 though it is made later."""
    story = stable("m1", "m2").beats("m1", 1_000, 30_000, every_ms=2_500).beats("m2", 1_000, 10_000)
    assert verdicts(story) == [("m2", DEADLINE_MS, DEADLINE_MS + 500, "inferred")]


# ------------------------------------------------------------------------------------------------ the warning before


def test_two_thirds_of_the_session_in_silence_is_at_risk_until_it_is_heard():
    story = silence().beats("m2", 15_000, 20_000)
    told = story.play(20_000)
    assert told.facts("session-at-risk", "subject", "opened_ms", "severity", "deadline_ms") == [
        ("m2", 14_000, "info", DEADLINE_MS)
    ]
    assert told.closed("session-at-risk") == [("recovered", 15_000)]
    assert told.of("session-at-risk")[0]["summary"].endswith("sent no heartbeat for 4 s of its session timeout of 6 s")
    assert told.opened("session-expired") == []


def test_the_warning_is_superseded_by_the_verdict():
    assert silence().play(20_000).closed("session-at-risk") == [("superseded", DEADLINE_MS + 500)]


def test_who_leaves_while_at_risk_is_at_risk_no_more():
    told = silence().leave(15_000, "m2").play(20_000)
    assert told.closed("session-at-risk") == [("superseded", 15_000)]
    assert told.accusations == []


def test_a_rebalance_is_no_risk():
    story = stable("m1", "m2").beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000).beats("m1", 4_000, 20_000, error=27)
    assert story.play(20_000).transitions == []


# ------------------------------------------------------------------------------------------------ liveness as shown


@pytest.mark.parametrize(
    ("story", "shown"),
    [
        (silence, "violated"),
        (lambda: silence().beats("m2", 11_000, 20_000), "alive"),
        (_heard_once, "unknown"),
        (lambda: silence().lose(13_000), "unknown"),
    ],
    ids=["past its deadline", "heard", "heard once", "not covered since lines were lost"],
)
def test_liveness_has_three_values(story, shown):
    assert story().play(20_000).members["m2"]["liveness"] == shown


def test_headroom_is_what_is_left_of_the_session():
    told = silence().play(13_000)
    assert told.members["m2"]["heartbeat_headroom"] == 0.5
    assert told.members["m1"]["heartbeat_headroom"] == 1.0


def test_a_group_known_by_heartbeats_alone_has_no_timeouts_and_no_verdicts():
    told = Story().beats("m1", 1_000, 3_000).beats("m2", 1_000, 20_000).play(20_000)
    assert told.transitions == []
    assert told.members["m1"]["session_timeout_ms"] is None
    assert told.members["m1"]["last_heartbeat_ms"] == T0 + 3_000


def test_a_restart_of_the_group_by_another_generation_judges_by_the_new_one():
    story = stable("m1", "m2").beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000).beat(5_000, "m1", error=27)
    rebalance(story, 6_000, 2, "m1", "m2").beats("m1", 7_000, 20_000, generation=2).beats(
        "m2", 7_000, 9_000, generation=2
    )
    assert verdicts(story, 20_000) == [("m2", 15_000, 15_500, "inferred")]


# what happens to c2, which is heard up to 4,000 and refused (25, 69) at 11,000 while nothing is written -> what is told
UNWRITTEN = {
    "its session has ended": (lambda s: s.hello(11_000, "c2", 2, 2, error=25), [("session-expired", "c2")]),
    "it is answered 69 as it leaves: its end made the group classic": (
        lambda s: s.hello(11_000, "c2", -1, -1, error=69),
        [("session-expired", "c2")],
    ),
    "it is answered 69 as it joins": (lambda s: s.hello(11_000, "c2", 0, 0, error=69), []),
    "its session cannot have ended": (lambda s: s.hello(9_000, "c2", 2, 2, error=25), []),
    "another broker answers": (lambda s: s.hello(11_000, "c2", 2, 2, error=25, broker="broker-2"), []),
    "it had partitions to revoke": (
        lambda s: s.current(5_000, "c2", 2, state=1).hello(11_000, "c2", 2, 2, error=25),
        [],
    ),
    "it left, and that was not written": (
        lambda s: s.hello(10_500, "c2", -1, -1, error=15, parked_ms=5_000).hello(11_000, "c2", 2, 2, error=25),
        [],
    ),
    "lines were lost": (lambda s: s.lose(6_000).hello(11_000, "c2", 2, 2, error=25), []),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_a_kip_848_member_that_its_coordinator_no_longer_knows_has_expired(name):
    """Found by simulation: the coordinator was deposed, so it wrote no record of what it had done."""
    happens, told = UNWRITTEN[name]
    story = consumers("c1", "c2").hellos("c1", 1_000, 9_500, 2).hellos("c2", 1_000, 4_000, 2)
    story.brokers = {"broker-1": 0, "broker-2": 0}
    assert happens(story).play(20_000, consumer_session_timeouts_ms={"": 6_000}).accusations == told


def test_an_answer_25_that_a_record_follows_is_one_incident():
    story = consumers("c1", "c2").hellos("c1", 1_000, 15_000, 2).hellos("c2", 1_000, 4_000, 2)
    story.hello(11_000, "c2", 2, 2, error=25).gone(14_000, "c2")
    told = story.play(20_000, consumer_session_timeouts_ms={"": 6_000})
    assert told.facts("session-expired", "subject", "deadline_ms") == [("c2", 10_000)]

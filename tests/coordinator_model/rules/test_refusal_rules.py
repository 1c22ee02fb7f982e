"""Clients that go on being refused, groups without a coordinator, and records that contradict the replica."""

import pytest

from coordinator_model.decode.parse import parse_row
from coordinator_model.errors import Error
from coordinator_model.replica.refusals import MAX_NAMED
from coordinator_model.rules.evaluate import evaluate
from coordinator_model.rules.refused_unknown import MAX_CLIENTS
from coordinator_model.shard import group_judgement
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import T0, Story, Who, consumers, rebalance, stable

JOINER = Who("", client_id="worker", host="10.0.0.7")


def refusals(error, *instants, story=None):
    """A client asks to join and is refused."""
    story = story or stable("m1", session_ms=300_000)
    for at_ms in instants:
        story.join(at_ms, JOINER, -1, error=error)
    return story


# ------------------------------------------------------------------------------------------------ join-refused


@pytest.mark.parametrize("error", [23, 24, 26, 30, 81, 111, 112, 128])
def test_a_client_refused_three_times_is_told_with_the_errors_name(error):
    told = refusals(error, 1_000, 2_000, 3_000).play(5_000)
    assert told.facts("join-refused", "severity", "subject", "at_ms", "opened_ms") == [
        ("warn", "worker on 10.0.0.7", 3_000, 1_000)
    ]
    [refused] = told.of("join-refused")
    assert refused["detail"]["error"] == error
    assert refused["summary"] == (
        f"worker on 10.0.0.7 asked to join orders: the answer was {Error(error).name} ({error}) 3 times"
    )


@pytest.mark.parametrize(
    ("error", "instants"),
    [(81, (1_000, 2_000)), (79, (1_000, 2_000, 3_000)), (27, (1_000, 2_000, 3_000)), (81, (1_000, 2_000, 700_000))],
    ids=["twice", "asked to come back with an id", "a rebalance", "the third ten minutes later"],
)
def test_what_is_no_lasting_refusal(error, instants):
    assert refusals(error, *instants).play(710_000).of("join-refused") == []


def test_two_clients_are_two_incidents():
    story = refusals(81, 1_000, 2_000, 3_000)
    for at_ms in (4_000, 5_000, 6_000):
        story.join(at_ms, Who("", client_id="other"), -1, error=81)
    assert story.play(9_000).opened("join-refused") == ["worker on 10.0.0.7", "other on 10.0.0.7"]


def test_two_clients_with_one_name_are_two_incidents():
    story = stable("m1", session_ms=300_000)
    for at_ms in (1_000, 2_000, 3_000):
        story.join(at_ms, Who("", client_id=""), -1, error=81)
        story.join(at_ms, Who("", client_id="unknown client"), -1, error=81)
    told = story.play(700_000)
    assert told.opened("join-refused") == ["unknown client on 10.0.0.7"] * 2
    assert told.closed("join-refused") == [("recovered", 603_000)] * 2


def test_a_join_that_succeeds_ends_it():
    story = refusals(81, 1_000, 2_000, 3_000)
    rebalance(story, 6_000, 2, "m1", Who("m2", client_id="worker"))
    assert story.play(9_000).closed("join-refused") == [("recovered", 6_000)]


def test_it_ends_when_the_client_has_long_given_up():
    assert refusals(81, 1_000, 2_000, 3_000).play(700_000).closed("join-refused") == [("recovered", 603_000)]


def crowd(story, clients, error=81):
    for n in range(clients):
        for at_ms in (1_000, 2_000, 3_000):
            story.join(at_ms + n, Who("", client_id=f"c{n}"), -1, error=error)
    return story


def test_clients_beyond_a_bound_are_one_incident():
    """A stranger has as many client ids as it likes."""
    told = crowd(stable("m1", session_ms=300_000), MAX_NAMED + 40).play(9_000)
    subjects = told.opened("join-refused")
    assert len(subjects) == MAX_NAMED + 1
    assert subjects.count("other clients") == 1
    [others] = [one for one in told.of("join-refused") if one["subject"] == "other clients"]
    assert others["detail"]["error"] == 81
    assert others["summary"].startswith("other clients asked to join orders: the answer was ")


def test_the_incident_of_clients_beyond_the_bound_ends_too():
    told = crowd(stable("m1", session_ms=300_000), MAX_NAMED + 40).play(700_000)
    assert len(told.closed("join-refused")) == MAX_NAMED + 1


def test_members_that_are_fenced_beyond_a_bound_are_one_incident():
    story = stable("m1", session_ms=300_000)
    for n in range(MAX_NAMED + 40):
        for at_ms in (5_000, 8_000, 11_000):
            story.beat(at_ms + n, f"zombie-{n}", error=25)
    told = story.play(20_000).opened("member-fenced")
    assert len(told) == MAX_NAMED + 1
    assert told.count("other clients") == 1


# ------------------------------------------------------------------------------------------------ a flood of refusals

FLOOD_MS = range(2_000, 12_000, 10)


def flood(story):
    """Strangers, each under a few ids: joins that are refused, and heartbeats of members that never were."""
    for n, at_ms in enumerate(FLOOD_MS):
        stranger = f"stranger-{n % 50}"
        story.join(at_ms, Who("", client_id=stranger), -1, error=(23, 25, 26)[n % 3])
        story.beat(at_ms + 3, stranger, error=(22, 25)[n % 2])
    return story


def reports(story, until_ms=16_000, batches=1):
    """What a shard reports of a group."""
    events = [event for row in story.source_rows(until_ms) for event in parse_row(row)]
    shard, size = Shard.restore(0, ShardSettings("c", 1, T0), None), len(events) // batches + 1
    outputs = [output for start in range(0, len(events), size) for output in shard.apply(events[start : start + size])]
    return [output for output in outputs if output["kind"] == "report"]


def dying():
    return stable("m1", "m2").beats("m1", 1_000, 16_000).beats("m2", 1_000, 5_000)


def test_a_flood_is_told_when_it_begins_and_each_time_it_has_doubled():
    """Each refused request was a report of the whole group: 226 of them in 0.8 s on a real broker."""
    more = len(reports(flood(dying()))) - len(reports(dying()))
    assert MAX_NAMED < more < 10 * MAX_NAMED < len(FLOOD_MS)


def test_a_flood_has_a_group_evaluated_no_more_often_than_it_is_told(monkeypatch):
    """Members are judged one by one, and a group may have thousands of them."""
    evaluated = []
    monkeypatch.setattr(group_judgement, "evaluate", lambda *what: evaluated.append(what) or evaluate(*what))
    story = flood(dying())
    for at_ms in FLOOD_MS:
        story.join(at_ms + 5, Who(f"id-{at_ms}", client_id="stranger"), -1, error=79)
        story.leave(at_ms + 6, "nobody", error=25)
    reports(story)
    assert len(evaluated) < 10 * MAX_NAMED < len(FLOOD_MS)


def test_the_count_of_refusals_is_told_to_the_next_power_of_two():
    found = [finding["detail"]["count"] for report in reports(flood(dying())) for finding in report["findings"]
             if finding["rule"] == "join-refused" and finding["subject"] == "other clients"]  # fmt: skip
    assert found[-1] >= 512
    assert found == sorted(found)


def test_a_death_under_a_flood_is_told_as_without_it():
    told = [story.play(16_000).facts("session-expired", "member_id", "at_ms", "deadline_ms", "evidence", "severity")
            for story in (dying(), flood(dying()))]  # fmt: skip
    assert told[0] == told[1] != []


def test_ids_that_a_coordinator_gives_out_in_an_empty_group_are_told_once():
    """A JoinGroup answered 79 makes a pending id; a stranger may ask for as many as it likes."""
    story = Story().record(100, 1)
    for at_ms in FLOOD_MS:
        story.join(at_ms, Who(f"id-{at_ms}", client_id="stranger"), -1, error=79)
    told = reports(story, batches=50)
    assert len(told) < 10
    assert told[-1]["view"]["pending_members"]


def test_a_refused_leave_that_removes_a_member_has_its_group_evaluated():
    """The answer 25 shows that m2 is not in generation 2, whose list nobody has seen."""
    story = Story(poll_ms=10_000).record(100, 0)
    story.join(5_000, "m2", 1, leader="m1").beats("m2", 6_000, 8_000, error=27)
    story.join(11_000, "m3", 2, leader="m1", parked_ms=9_000).leave(11_500, "m2", errors={"m2": 25})
    found = [(one["rule"], one["subject"]) for one in reports(story, 13_500)[-1]["findings"]]
    assert found == [("member-removed", "m2")]


# ------------------------------------------------------------------------------------------------ members refused


def refused_heartbeats(*instants):
    """m2 has lost its right to the group; m1 has not."""
    story = stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_000, 5_000)
    for at_ms in instants:
        story.beat(at_ms, "m2", error=30)
    return story


def refused_syncs(error):
    """m2 is let into generation 2, and its SyncGroup is refused."""
    story = stable("m1", "m2", session_ms=300_000)
    story.join(5_000, "m1", 2, listed=("m1", "m2")).join(5_000, "m2", 2)
    story.record(5_040, 2, "m1", "m2").sync(5_050, "m1", 2, leader=True)
    for at_ms in (5_100, 5_200, 5_300):
        story.sync(at_ms, "m2", 2, error=error)
    return story


# what is refused -> when that is told, and which error
REFUSED_MEMBERS = {
    "a heartbeat, 30": (refused_heartbeats(6_000, 7_000, 8_000), 8_000, 30),
    "a SyncGroup, 30": (refused_syncs(30), 5_300, 30),
    "a SyncGroup, 23": (refused_syncs(23), 5_300, 23),
}


@pytest.mark.parametrize("name", REFUSED_MEMBERS)
def test_a_member_refused_three_times_is_told_as_its_client(name):
    story, at_ms, error = REFUSED_MEMBERS[name]
    told = story.play(10_000)
    assert told.facts("join-refused", "severity", "subject", "client_id", "member_id", "at_ms") == [
        ("warn", "client-m2 on 10.0.0.7", "client-m2", "m2", at_ms)
    ]
    [refused] = told.of("join-refused")
    assert refused["detail"]["error"] == error
    assert refused["summary"].startswith("client-m2 on 10.0.0.7 is a member of orders: the answer was ")
    assert told.accusations == []


@pytest.mark.parametrize("error", [22, 25, 27])
def test_what_a_sync_is_answered_on_the_way_into_a_generation_is_no_refused_join(error):
    assert refused_syncs(error).play(10_000).of("join-refused") == []


def test_a_session_that_ends_while_its_heartbeats_are_refused_says_so():
    """It was told as a client that had sent no heartbeat."""
    [expired] = refused_heartbeats(*range(6_000, 20_000, 1_000)).play(20_000).of("session-expired")
    assert "was refused with GROUP_AUTHORIZATION_FAILED (30)" in expired["summary"]


def test_a_removal_after_refused_heartbeats_says_so():
    story = refused_heartbeats(*range(6_000, 11_000, 1_000)).beat(11_100, "m1", 1, error=27)
    told = rebalance(story, 11_200, 2, "m1").play(14_000)
    [expired] = told.of("session-expired")
    assert expired["summary"].endswith("; it was refused with GROUP_AUTHORIZATION_FAILED (30)")


def test_a_client_that_is_let_in_again_and_refused_again_as_it_syncs_is_told():
    """Each JoinGroup is accepted, and only what comes after it is refused."""
    story = stable("m1", session_ms=300_000)
    for n, at_ms in enumerate((5_000, 15_000, 25_000)):
        worker = Who(f"w{n}", client_id="worker")
        story.join(at_ms, "m1", n + 2, listed=("m1", worker)).join(at_ms, worker, n + 2)
        story.sync(at_ms + 50, worker.member_id, n + 2, error=23)
    assert story.play(30_000).opened("join-refused") == ["worker on 10.0.0.7"]


def test_a_sync_that_succeeds_ends_it():
    assert refused_syncs(23).sync(6_000, "m2", 2).play(9_000).closed("join-refused") == [("recovered", 6_000)]


def test_it_ends_when_a_member_is_no_longer_refused():
    story = refused_heartbeats(6_000, 7_000, 8_000).beats("m2", 9_000, 80_000)
    assert story.play(80_000).closed("join-refused") == [("recovered", 68_000)]


def test_a_member_that_is_refused_again_after_its_incident_is_told_again():
    story = refused_heartbeats(6_000, 7_000, 8_000, 80_000, 81_000, 82_000).beats("m2", 9_000, 79_000)
    assert story.play(90_000).facts("join-refused", "opened_ms", "at_ms") == [(6_000, 8_000), (80_000, 82_000)]


def test_a_member_that_nobody_knows_is_told_by_its_id():
    story = stable("m1", session_ms=300_000)
    for at_ms in (5_000, 8_000, 11_000):
        story.beat(at_ms, "stranger", error=30)
    assert story.play(20_000).opened("join-refused") == ["stranger"]


# ------------------------------------------------------------------------------------------------ groups not known


def strangers(*askers, error=30, groups=3):
    """Clients that ask to join groups of which no record tells, beside a group that is."""
    story = stable("m1", session_ms=300_000)
    for n in range(groups):
        story.group = f"made-up-{n}"
        for who in askers:
            story.join(1_000 + n, Who("", client_id=who), -1, error=error)
    story.group = "orders"
    return story


def test_a_client_refused_for_groups_that_are_not_known_is_one_incident_and_no_group():
    """4,000 ids made 4,000 groups, incidents and messages."""
    told = strangers("worker", groups=4_000).play(9_000)
    assert [group["group"] for group in told.history.groups] == ["orders"]
    [incident] = told.of("join-refused")
    assert (incident["group"], incident["subject"]) == ("", "worker (User:ANONYMOUS)")
    assert incident["severity"] == "warn"
    assert incident["detail"]["groups"] == ["made-up-0", "made-up-1", "made-up-2"]


@pytest.mark.parametrize("error", [23, 26, 30, 81, 111, 112, 128])
def test_every_lasting_refusal_counts_for_groups_that_are_not_known(error):
    assert strangers("worker", error=error).play(9_000).opened("join-refused") == ["worker (User:ANONYMOUS)"]


@pytest.mark.parametrize(("error", "groups"), [(30, 2), (79, 9), (16, 9), (15, 9), (14, 9), (25, 9), (22, 9)])
def test_what_is_no_lasting_refusal_of_a_group_that_is_not_known(error, groups):
    assert strangers("worker", error=error, groups=groups).play(9_000).of("join-refused") == []


def nameless(*instants):
    """A client that asks to join a group without an id."""
    story = stable("m1", session_ms=300_000)
    story.group = ""
    for at_ms in instants:
        story.join(at_ms, JOINER, -1, error=24)
    story.group = "orders"
    return story


def test_a_client_that_names_no_group_is_told():
    """The one reason for an answer 24, and such lines were left out as those of no group."""
    [incident] = nameless(1_000, 2_000, 3_000).play(9_000).of("join-refused")
    assert (incident["group"], incident["subject"]) == ("", "worker (User:ANONYMOUS)")
    assert incident["summary"] == (
        "worker (User:ANONYMOUS) asked to join groups that are not known (one without an id):"
        " the answer was INVALID_GROUP_ID (24)"
    )


def test_it_ends_once_the_client_has_not_asked_for_ten_minutes():
    assert strangers("worker").play(700_000).closed("join-refused") == [("recovered", 601_002)]


def test_clients_that_no_group_knows_are_one_incident_beyond_a_bound():
    told = strangers(*(f"c{n}" for n in range(50))).play(9_000)
    assert told.opened("join-refused").count("other clients") == 1
    assert len(told.opened("join-refused")) == MAX_CLIENTS + 1


# ------------------------------------------------------------------------------------------------ member-fenced


@pytest.mark.parametrize("error", [22, 25, 82])
def test_a_member_that_goes_on_after_its_eviction_is_told(error):
    story = stable("m1", session_ms=300_000)
    for at_ms in (5_000, 8_000, 11_000):
        story.beat(at_ms, "zombie", error=error)
    told = story.play(20_000)
    assert told.facts("member-fenced", "severity", "member_id", "at_ms", "opened_ms") == [
        ("warn", "zombie", 11_000, 5_000)
    ]
    assert told.of("member-fenced")[0]["summary"].startswith("zombie went on as a member of orders: the answer was ")


def test_a_kip848_member_that_goes_on_with_a_fenced_epoch_is_told():
    story = stable("m1", session_ms=300_000)
    for at_ms in (5_000, 8_000, 11_000):
        story.hello(at_ms, "zombie", 4, 0, error=110)
    assert story.play(20_000).opened("member-fenced") == ["zombie"]


def test_one_refused_heartbeat_after_an_eviction_is_normal():
    story = stable("m1", session_ms=300_000).beat(5_000, "m2", error=25).beat(8_000, "m3", error=25)
    assert story.beat(9_000, "m4", error=25).play(20_000).of("member-fenced") == []


def test_it_ends_when_it_falls_silent():
    story = stable("m1", session_ms=300_000)
    for at_ms in (5_000, 8_000, 11_000):
        story.beat(at_ms, "zombie", error=25)
    assert story.play(80_000).closed("member-fenced") == [("recovered", 71_000)]


def fenced_every(step_ms, times):
    story = stable("m1", session_ms=300_000)
    for n in range(times):
        story.beat(5_000 + n * step_ms, "zombie", error=25)
    return story


def test_a_member_that_is_fenced_again_after_its_incident_is_told_again():
    """What has ended does not begin again under its id, so this is another incident, after three more answers."""
    told = fenced_every(120_000, 6).play(680_000)
    assert told.facts("member-fenced", "opened_ms", "at_ms") == [(5_000, 245_000), (365_000, 605_000)]
    assert told.closed("member-fenced") == [("recovered", 305_000), ("recovered", 665_000)]


def test_others_cannot_be_silenced_by_one_gap():
    story = stable("m1", session_ms=300_000)
    for n in range(MAX_NAMED):
        for at_ms in range(5_000, 400_000, 30_000):
            story.beat(at_ms + n, f"zombie-{n}", error=25)
    for at_ms in (6_000, 7_000, 8_000, 206_000, 207_000, 208_000):
        story.beat(at_ms, f"other-{at_ms}", error=25)
    told = story.play(400_000)
    assert [at_ms for who, at_ms in told.facts("member-fenced", "subject", "at_ms") if who == "other clients"] == [
        8_000,
        208_000,
    ]


@pytest.mark.parametrize("who", ["m1", Who("m1", instance_id="pod-1")], ids=["dynamic", "static"])
def test_a_member_that_is_one_again_after_each_fenced_heartbeat_is_no_trouble(who):
    """A heartbeat may be on its way while its member joins the next generation."""
    story = stable(who, session_ms=300_000)
    for generation, at_ms in enumerate((200_000, 400_000, 600_000), start=2):
        rebalance(story.beats("m1", at_ms - 100_000, at_ms, generation - 1, every_ms=50_000), at_ms, generation, who)
        story.beat(at_ms + 60, "m1", generation - 1, error=22)
    assert story.play(610_000).of("member-fenced") == []


def test_a_kip848_member_that_joins_again_each_time_is_no_trouble():
    story = consumers("m1")
    for n, at_ms in enumerate((2_000, 4_000, 6_000)):
        story.hello(at_ms, "m1", 2 + n, 0, error=110).hello(at_ms + 100, "m1", 0, 3 + n)
    assert story.play(8_000).of("member-fenced") == []


def test_the_lives_of_a_static_member_are_not_counted_together():
    """After each 25 its client joins again with the same instance id, and gets another member id."""
    story = stable(Who("a0", instance_id="pod-1"), session_ms=300_000)
    for n, at_ms in enumerate((100_000, 200_000, 300_000), start=1):
        story.beat(at_ms, f"a{n - 1}", n, error=25)
        rebalance(story, at_ms + 100, n + 1, Who(f"a{n}", instance_id="pod-1"))
    assert story.play(310_000).of("member-fenced") == []


def test_a_client_fenced_by_another_with_its_instance_id_is_told():
    """The other client's joins do not end it: there are two."""
    story = stable(Who("a", instance_id="pod-1"), session_ms=300_000)
    for generation, at_ms in enumerate((5_000, 8_000, 11_000), start=2):
        rebalance(story, at_ms, generation, Who("a", instance_id="pod-1"))
        story.join(at_ms + 100, Who("b", instance_id="pod-1"), -1, error=82)
    assert story.play(20_000).opened("member-fenced") == ["pod-1"]


# ------------------------------------------------------------------------------------------------ coordinator


def refused_until(end_ms, *, error=16):
    story = stable("m1").beats("m1", 1_000, 9_000)
    return story.beats("m1", 10_000, end_ms, error=error)


def unavailable(told):
    return [
        (t.kind.value, t.at_ms - T0, t.incident.severity, t.incident.subject)
        for t in told.history.transitions
        if t.incident.rule == "coordinator-unavailable"
    ]


@pytest.mark.parametrize("error", [14, 15, 16])
def test_a_group_without_a_coordinator_for_longer_than_a_failover_is_told(error):
    told = refused_until(50_000, error=error).play(50_000)
    assert unavailable(told) == [("opened", 40_000, "warn", "broker-1")]


def test_it_names_the_broker_that_gave_the_error_it_names():
    """Broker-1 no longer leads (16), and broker-2 does not finish loading (14): that is the one to look at."""
    story = refused_until(25_000)
    story.brokers["broker-2"] = 0
    told = story.beats("m1", 26_000, 50_000, error=14, broker="broker-2").play(50_000)
    assert [subject for *_, subject in unavailable(told)] == ["broker-1"]
    [summary] = [t["summary"] for t in told.of("coordinator-unavailable")]
    assert summary.endswith("broker-2 answers COORDINATOR_LOAD_IN_PROGRESS (14)")


def test_a_failover_is_no_trouble():
    assert unavailable(refused_until(38_000).beats("m1", 39_000, 60_000).play(60_000)) == []


def test_another_answer_closes_coordinator_unavailable():
    told = refused_until(50_000).beats("m1", 51_000, 60_000).play(60_000)
    assert unavailable(told)[1:] == [("closed", 51_000, "warn", "broker-1")]


def test_it_ends_when_nobody_asks_any_more():
    told = refused_until(50_000).play(120_000)
    assert unavailable(told)[1:] == [("closed", 110_000, "warn", "broker-1")]


def test_a_client_that_asks_the_wrong_broker_proves_nothing():
    story = stable("m1").beats("m1", 1_000, 60_000)
    story.brokers["broker-2"] = 0
    for at_ms in range(10_300, 60_000, 1_000):
        story.beat(at_ms, "lost", error=16, broker="broker-2")
    assert unavailable(story.play(60_000)) == []


# ------------------------------------------------------------------------------------------------ diverged


def test_a_record_that_lists_others_than_the_leader_was_told_is_a_divergence():
    story = stable("m1", "m2").join(5_000, "m1", 2, listed=("m1", "m2")).record(5_050, 2, "m1", "m3")
    told = story.play(10_000)
    assert told.facts("replica-diverged", "severity", "at_ms") == [("warn", 5_050)]
    assert told.of("replica-diverged")[0]["detail"] == {
        "missing": ["m2"],
        "more": ["m3"],
        "different": [],
        "unexpected": 1,
    }
    assert told.group["unexpected"] == 1


def announced():
    """m1 leads generation 2 by the word of its JoinGroup, m2 is in it."""
    return stable("m1", "m2").join(5_000, "m1", 2, listed=("m1", "m2")).join(5_000, "m2", 2)


def with_session(story, session_ms):
    story.session_ms = session_ms
    return story


# what the record of generation 2 says -> what is different from the answers before it
FACTS = {
    "the same": (lambda s: s.record(5_050, 2, "m1", "m2"), []),
    "another leader": (lambda s: s.record(5_050, 2, "m1", "m2", leader="m2"), ["leader m2, expected m1"]),
    "another session timeout": (
        lambda s: with_session(s, 7_000).record(5_050, 2, "m1", "m2"),
        [f"{m}: session timeout 7000, expected 6000" for m in ("m1", "m2")],
    ),
    "another instance": (
        lambda s: s.record(5_050, 2, "m1", Who("m2", instance_id="pod-2")),
        ["m2: instance pod-2, expected pod-1"],
    ),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_record_that_contradicts_the_answers_is_a_divergence(name):
    """The leader, a timeout or an instance id differs from what was answered before."""
    says, different = FACTS[name]
    story = announced() if name != "another instance" else named_instance()
    found = [told["detail"]["different"] for told in says(story).play(10_000).of("replica-diverged")]
    assert found == ([different] if different else [])


def named_instance():
    pod = Who("m2", instance_id="pod-1")
    return stable("m1", pod).join(5_000, "m1", 2, listed=("m1", pod)).join(5_000, pod, 2)


def test_an_assignment_answered_otherwise_than_recorded_is_a_divergence():
    story = announced().record(5_050, 2, Who("m1", partitions=(0,)), Who("m2", partitions=(1,)))
    story.know(Who("m1", partitions=(0,)), Who("m2", partitions=(1,)))
    agrees = story.sync(5_060, "m1", 2, leader=True)
    assert agrees.play(10_000).of("replica-diverged") == []
    story.know(Who("m2", partitions=(0, 1)))
    [told] = story.sync(5_070, "m2", 2).play(10_000).of("replica-diverged")
    assert told["detail"]["different"] == ["m2: assignment, answered another than recorded"]


@pytest.mark.parametrize("story", [
    Story().record(100, 1, "m1").record(5_000, 2, "m2").beat(6_000, "m2", 2),
    rebalance(stable("m1", "m2"), 5_000, 2, "m1"),
], ids=["nothing was expected", "as expected"])  # fmt: skip
def test_a_record_without_a_contradiction_is_no_divergence(story):
    assert story.play(10_000).of("replica-diverged") == []

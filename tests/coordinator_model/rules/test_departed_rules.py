"""A member is gone: which deadline its removal proves, how bad that is, and what ends the incident."""

import pytest

from coordinator_model.replica.group import MAX_DEPARTURES, GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.rules import departed
from coordinator_model.rules.departed import SUMMARIES
from coordinator_model.states import MEMBER_REMOVED, Cause, Evidence, GroupState, GroupType
from coordinator_model.thresholds import Thresholds
from tests.coordinator_model.replica.test_session_timer import context
from tests.support import records
from tests.support.records import key
from tests.support.story import SESSION_MS, T0, Story, Who, consumers, rebalance, stable


def without(story, member, at_ms, *, generation=2, others=("m1",), heard=True):
    """The group completes a join phase without a member at an instant; the others live on."""
    rebalance(story, at_ms, generation, *others)
    return story.beats("m1", at_ms + 1_000, at_ms + 90_000, generation=generation) if heard else story


def group(*, last_ms, m1_until_ms=None, partitions=0, poll_ms=60_000):
    """m1 and m2 are stable in generation 1; m2 is heard until `last_ms`."""
    story = stable("m1", "m2", partitions=partitions, poll_ms=poll_ms).beats("m2", 1_000, last_ms)
    return story.beats("m1", 1_000, m1_until_ms or last_ms)


# ------------------------------------------------------------------------------------------------ which deadline


def paused(until_ms=14_000, *, restart=False):
    """The broker stands still from 10,000 to 14,000; afterwards m1 is heard at once, m2 never again."""
    story = group(last_ms=10_000).silent(10_000, until_ms, restart=restart)
    return story.beats("m1", until_ms + 100, until_ms + 5_100)


def moved():
    """broker-1 dies at 10,000; broker-2 refuses while it loads, until 12,500, and answers from 13,000 on."""
    story = group(last_ms=10_000).silent(10_000, 99_000)
    story.brokers["broker-2"] = 0
    story.broker = "broker-2"
    return story.beat(12_500, "m1", error=14).beats("m1", 13_000, 18_000)


# story before the removal, instant of the removal -> rule, deadline, cause
REMOVALS = {
    "nearest is the last heartbeat": (
        lambda: group(last_ms=10_000),
        16_020,
        "session-expired",
        16_000,
        "session-timeout",
    ),
    "a little before its deadline, within the grace": (
        lambda: group(last_ms=10_000),
        15_600,
        "session-expired",
        16_000,
        "session-timeout",
    ),
    "long before its deadline: it did not rejoin": (
        lambda: group(last_ms=10_000, poll_ms=3_000).beat(11_000, "m1", error=27),
        14_000,
        "rebalance-timeout",
        14_000,
        "rebalance-timeout",
    ),
    "nearest is a commit": (
        lambda: commits(last_ms=10_000, commit_ms=13_000),
        19_010,
        "session-expired",
        19_000,
        "session-timeout",
    ),
    "a commit that was transactional restarted nothing": (
        lambda: commits(last_ms=10_000, commit_ms=13_000),
        16_010,
        "session-expired",
        16_000,
        "session-timeout",
    ),
    "nearest is a heartbeat behind a stalled write": (
        lambda: group(last_ms=10_000, m1_until_ms=17_000).beat(16_000, "m2", error=15, parked_ms=4_000),
        18_020,
        "session-expired",
        18_000,
        "session-timeout",
    ),
    "after a restart, a timer that started anew": (
        lambda: paused(restart=True),
        19_500,
        "session-expired",
        19_500,
        "coordinator-pause",
    ),
    "after a restart, the timer of before stays a candidate": (
        lambda: paused(restart=True),
        16_010,
        "session-expired",
        16_000,
        "coordinator-pause",
    ),
    "a pause that the broker survived stops no timer": (
        paused,
        19_500,
        "session-expired",
        16_000,
        "coordinator-pause",
    ),
    "what was due while the broker stood still ended when it woke": (
        lambda: paused(until_ms=18_000),
        22_000,
        "session-expired",
        18_000,
        "coordinator-pause",
    ),
    "after a move, only what the new coordinator loaded": (
        moved,
        18_800,
        "session-expired",
        18_800,
        "coordinator-moved",
    ),
}


def commits(*, last_ms, commit_ms):
    mine = Who("m2", partitions=(3,))
    return stable("m1", mine).beats("m1", 1_000, 15_000).beats("m2", 1_000, last_ms).commit(commit_ms, "t", 3)


@pytest.mark.parametrize("name", REMOVALS)
def test_a_removal_takes_the_possible_deadline_nearest_to_it(name):
    before, removed_ms, rule, deadline_ms, cause = REMOVALS[name]
    told = without(before(), "m2", removed_ms).play(removed_ms + 6_000)
    facts = [f for f in told.facts(rule, "subject", "deadline_ms") if f[0] == "m2"]
    last = [t for t in told.history.transitions if t.incident.rule == rule and t.incident.subject == "m2"][-1]
    assert len(facts) == 1
    assert (last.incident.deadline_ms or facts[0][1]) - T0 == pytest.approx(deadline_ms, abs=20)
    assert last.incident.cause == cause


def test_a_move_voids_the_deadlines_of_before_it():
    """m2's old deadline passes at 16,000, three seconds after the move: the new coordinator knows nothing of it."""
    told = without(moved(), "m2", 16_010).play(20_000)
    assert told.accusations == []


def taken_over():
    """broker-1 dies at 10,000; broker-2 answers m1's heartbeats 0 from 12,000 on, blindly as long as it loads."""
    story = group(last_ms=10_000).silent(10_000, 99_000)
    story.brokers["broker-2"] = 0
    story.broker = "broker-2"
    return story.beats("m1", 12_000, 22_000).beat(12_500, "m2")


def test_a_heartbeats_0_of_a_coordinator_that_may_be_loading_starts_no_timer():
    """It loaded until 17,000, so m2's session lasts until 23,000, whatever it was told at 12,500."""
    assert taken_over().beat(22_500, "m2").play(23_000).accusations == []


def test_whose_session_alone_can_have_begun_the_phase_ended_by_its_first_sign():
    """A 27 tells at 18,300 that m2's session has ended, after 17,000, when all was well: in between, so in the middle.

    m1, which hears it, dies too, and m3's join ends the phase.
    """
    story = group(last_ms=10_000).silent(10_000, 99_000)
    story.brokers["broker-2"] = 0
    story.broker = "broker-2"
    story.beats("m1", 12_000, 17_000).beat(18_300, "m1", error=27).join(19_000, "m3", -1, error=79, asked="")
    story.join(24_310, "m3", 2, listed=["m3"], parked_ms=5_300).record(24_320, 2, "m3")
    told = story.beats("m3", 25_000, 27_000, generation=2).play(27_000)
    assert sorted(told.facts("session-expired", "subject", "deadline_ms")) == [("m1", 24_300), ("m2", 17_650)]


def test_a_commit_that_a_new_coordinator_writes_tells_that_it_has_loaded():
    told = taken_over().commit(14_000, "t", 9).play(22_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 20_000)]


def test_a_refusal_leaves_deadlines_open_until_a_broker_coordinates():
    story = group(last_ms=10_000, m1_until_ms=11_000).beat(12_000, "m1", error=16).beats("m1", 14_000, 30_000)
    story.commit(14_500, "t", 9)
    assert story.play(20_400).accusations == []  # the latest end: 14,500 + 6,000
    assert story.play(21_500).facts("session-expired", "deadline_ms", "cause") == [(20_500, "coordinator-moved")]


@pytest.mark.parametrize(("removed_ms", "deadline_ms"), [(16_010, 16_000), (16_400, 16_000), (17_700, 17_700)])
def test_the_record_of_a_groups_only_member_dates_the_end_of_its_session(removed_ms, deadline_ms):
    """A short pause of the coordinator, in which the session is due, is not seen. The record tells when it ended."""
    told = stable("m1").beats("m1", 1_000, 10_000).record(removed_ms, 2).play(25_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", deadline_ms)]


def test_a_record_at_which_no_known_timer_can_have_run_dates_the_end_of_a_session():
    """m1's session was due at 16,000, or at 20,000 if its heartbeat behind a stalled write, of 14,000, counted."""
    story = stable("m1").beats("m1", 1_000, 10_000).beat(18_000, "m1", error=15, parked_ms=4_000)
    told = story.record(18_500, 2).play(30_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 18_500)]


# ------------------------------------------------------------------------------------------------ how bad


def severities(told, rule="session-expired"):
    return [(t["transition"], t["severity"], t["at_ms"] - T0) for t in told.transitions if t["rule"] == rule]


def test_one_dead_pod_is_a_warning():
    told = without(group(last_ms=10_000), "m2", 16_020).play(30_000)
    assert severities(told) == [("opened", "warn", 16_020)]


def test_the_last_member_of_a_group_is_a_page():
    told = stable("m1").beats("m1", 1_000, 10_000).record(16_010, 2).play(20_000)
    assert severities(told) == [("opened", "page", 16_010)]


def test_partitions_unowned_for_page_after_ms_make_it_a_page():
    """The group hangs in its rebalance: nobody reads m2's partitions."""
    story = group(last_ms=10_000, partitions=2).beat(16_100, "m1", error=27)
    story.join(16_200, "m1", 2, listed=["m1"]).beats("m1", 17_000, 90_000, generation=2)
    told = story.play(30_000, thresholds=Thresholds(page_after_ms=10_000))
    assert severities(told) == [("opened", "warn", 16_200), ("escalated", "page", 26_200)]


def test_partitions_taken_over_in_time_make_it_no_page():
    story = group(last_ms=10_000, partitions=2).beat(16_100, "m1", error=27)
    rebalance(story, 16_200, 2, Who("m1", client_id="client-m1", partitions=(0, 1, 2, 3))).beats(
        "m1", 17_000, 90_000, generation=2
    )
    told = story.play(30_000, thresholds=Thresholds(page_after_ms=10_000))
    assert severities(told) == [("opened", "warn", 16_200)]


def crash_loop(times, *, apart_ms=20_000):
    """A pod joins, is heard for two seconds, dies, and comes back under another id, again and again."""
    story = stable("m1").beats("m1", 1_000, 2_000)
    at_ms, generation = 3_000, 1
    for n in range(times):
        pod = Who(f"pod-{n}", client_id="pod", host="10.0.0.9", port=6_000 + n)
        rebalance(story, at_ms, generation + 1, "m1", pod)
        story.beats("m1", at_ms + 500, at_ms + 7_500, generation + 1).beats(
            pod.member_id, at_ms + 500, at_ms + 1_500, generation + 1
        )
        rebalance(story, at_ms + 7_600, generation + 2, "m1")
        story.beats("m1", at_ms + 8_500, at_ms + apart_ms - 500, generation + 2)
        at_ms, generation = at_ms + apart_ms, generation + 2
    return story.play(at_ms)


def test_the_third_time_within_ten_minutes_is_a_page():
    told = crash_loop(3)
    assert [t["severity"] for t in told.of("session-expired")] == ["warn", "warn", "page"]


def test_three_times_in_more_than_ten_minutes_is_no_page():
    told = crash_loop(3, apart_ms=301_000)
    assert [t["severity"] for t in told.of("session-expired")] == ["warn", "warn", "warn"]


# ------------------------------------------------------------------------------------------------ what ends it

GONE = Who("m2", client_id="worker", host="10.0.0.8", port=6_001)
STATIC = Who("m2", instance_id="pod-1", client_id="worker", host="10.0.0.8", port=6_001)
RETURNS = {
    "the same instance, elsewhere": (STATIC, Who("x", "pod-1", "other", "10.0.0.99", 7_000), True),
    "the same connection": (GONE, Who("x", None, "worker", "10.0.0.8", 6_001), True),
    "the same client on the same host": (GONE, Who("x", None, "worker", "10.0.0.8", 7_000), True),
    "the same client on another host": (GONE, Who("x", None, "worker", "10.0.0.99", 7_000), False),
    "another client on that host": (GONE, Who("x", None, "other", "10.0.0.8", 7_000), False),
    "another instance of that client": (STATIC, Who("x", "pod-2", "worker", "10.0.0.8", 7_000), False),
}


@pytest.mark.parametrize("name", RETURNS)
def test_who_comes_back_ends_the_incident(name):
    gone, back, ends = RETURNS[name]
    story = stable("m1", gone).beats("m1", 1_000, 16_000).beats("m2", 1_000, 10_000)
    rebalance(story, 16_020, 2, "m1").beats("m1", 17_000, 20_000, generation=2)
    rebalance(story, 21_000, 3, "m1", back)
    for member in ("m1", "x"):
        story.beats(member, 22_000, 30_000, generation=3)
    assert story.play(30_000).closed("session-expired") == ([("rejoined", 21_040)] if ends else [])


@pytest.mark.parametrize("early_ms", [0, 30, 200])
def test_a_return_that_is_dated_before_the_removal_ends_the_incident(early_ms):
    """The record that no longer lists m2 shows its removal. Its client has joined by then, by an inexact date."""
    gone, back = Who("m2", client_id="worker", host="10.0.0.8"), Who("x", client_id="worker", host="10.0.0.8")
    story = stable("m1", gone).beats("m1", 1_000, 15_000).beats("m2", 1_000, 10_000).beat(15_600, "m1", error=27)
    story.join(16_020 - early_ms, back, 2).record(16_020, 2, "m1", back)
    story.sync(16_030, "m1", 2, leader=True).sync(16_040, "x", 2)
    told = story.beats("m1", 17_000, 30_000, generation=2).beats("x", 17_000, 30_000, generation=2).play(30_000)
    assert told.closed("session-expired") == [("rejoined", 16_020)]


def test_two_of_one_client_on_one_host_come_back_one_by_one():
    twins = [Who(f"t{n}", client_id="worker", host="10.0.0.8", port=6_000 + n) for n in (1, 2)]
    story = stable("m1", *twins).beats("m1", 1_000, 16_000).beats("t1", 1_000, 10_000).beats("t2", 1_000, 10_000)
    rebalance(story, 16_020, 2, "m1").beats("m1", 17_000, 20_000, generation=2)
    rebalance(story, 21_000, 3, "m1", Who("n1", client_id="worker", host="10.0.0.8", port=7_001))
    told = story.beats("m1", 22_000, 30_000, generation=3).beats("n1", 22_000, 30_000, generation=3).play(30_000)
    assert len(told.of("session-expired")) == 2
    assert told.closed("session-expired") == [("rejoined", 21_040)]


@pytest.mark.parametrize(("lost", "severities"), [(True, ["warn"]), (False, ["warn", "page"])])
def test_a_group_that_became_empty_while_lines_were_missing_pages_nobody(lost, severities):
    """m2 expired long before. m1 may have been closed in the hole, after the group had been stable for long enough."""
    story = without(group(last_ms=10_000), "m2", 16_020, heard=False).beats("m1", 17_000, 60_000, generation=2)
    story.silent(60_000, 95_000).record(90_000, 3)
    if lost:
        story.lose(95_000)
    told = story.play(120_000)
    mine = [t for t in told.transitions if (t["rule"], t["subject"]) == ("session-expired", "m2")]
    assert [t["severity"] for t in mine if t["transition"] != "closed"] == severities


def test_a_group_stable_without_it_for_resolve_after_ms_has_recovered():
    told = without(group(last_ms=10_000), "m2", 16_020).play(90_000)
    assert told.closed("session-expired") == [("recovered", 76_060)]  # 60,000 after the record that made it Stable


def test_no_group_has_recovered_while_partitions_are_unowned():
    story = group(last_ms=10_000, partitions=2)
    told = without(story, "m2", 16_020).play(90_000)  # generation 2 leaves t-2 and t-3 to nobody
    assert told.closed("session-expired") == []
    assert severities(told) == [("opened", "warn", 16_020), ("escalated", "page", 76_020)]


def test_nobody_has_to_read_a_partition_that_does_not_exist_any_more():
    """The topic was recreated with two partitions; m2 had t-2 and t-3."""
    told = without(group(last_ms=10_000, partitions=2), "m2", 16_020).play(90_000, topic_partitions={"t": 2})
    assert severities(told) == [("opened", "warn", 16_020), ("closed", "warn", 76_060)]


def test_nobody_has_to_read_a_topic_that_no_member_subscribes_to_any_more():
    """A deploy kills the last member of the old version; the new version reads another topic."""
    story = stable("m1", partitions=1).beats("m1", 1_000, 10_000)
    new = records.ListedMember(
        "n1", None, "v2", "/10.0.0.3", 60_000, SESSION_MS, records.subscription(["u"]), records.assignment({"u": (0,)})
    )
    story.write(16_010, key(2, "orders"), records.group_metadata("consumer", 2, "range", "n1", T0, [new]))
    told = story.beats("n1", 17_000, 90_000, generation=2).play(90_000)
    assert severities(told) == [("opened", "warn", 16_010), ("closed", "warn", 76_010)]


@pytest.mark.parametrize("topics", [["u"], ["t"]], ids=["nobody subscribes to it", "its topic is deleted"])
def test_nobody_has_to_read_what_a_stable_kip848_group_leaves_without_an_owner(topics):
    """m2 had t-0 and t-1, whose topic is known by its id only."""
    story = consumers("m1", "m2")
    [m1, _] = story.know("m1", "m2")
    one = records.member_metadata(m1.client_id, f"/{m1.host}", topics, story.poll_ms, None)
    story.write(112, key(5, story.group, "m1"), one)
    story.current(120, "m1", 2).current(121, "m2", 2, partitions=(0, 1))
    story.hellos("m1", 1_000, 55_000, 2).hellos("m2", 1_000, 10_000, 2)
    story.gone(55_000, "m2").epoch(55_000, 3).target(55_001, 3)
    told = story.hello(55_500, "m1", 2, 3).current(55_501, "m1", 3).hellos("m1", 56_000, 130_000, 3).play(130_000)
    assert severities(told) == [("opened", "warn", 55_000), ("closed", "warn", 115_501)]


def test_a_kip848_partition_is_unowned_until_its_next_owner_has_reconciled():
    replica = GroupReplica("orders", type=GroupType.CONSUMER, state=GroupState.RECONCILING)
    replica.members["m1"] = Member("m1", topics=["t"], assignment={"an id": [0]})
    assert replica.unowned({"an id": [0, 1]}, {}) == [("an id", 1)]


def test_a_partition_is_not_unowned_while_not_all_owners_are_known():
    replica = GroupReplica("orders", type=GroupType.CLASSIC, state=GroupState.STABLE)
    replica.members["m1"] = Member("m1", topics=["t"], assignment={"t": [0]})
    assert replica.unowned({"t": [0, 1]}, {}) == [("t", 1)]
    replica.members["m1"].partitions_left_out = 1
    assert replica.unowned({"t": [0, 1]}, {}) == []


def test_the_deletion_of_its_group_closes_an_incident():
    told = stable("m1").beats("m1", 1_000, 10_000).record(16_010, 2).write(18_000, key(2, "orders"), None).play(20_000)
    assert told.closed("session-expired") == [("group-deleted", 18_000)]


# ------------------------------------------------------------------------------------------------ who is not accused


def unheard(first_error):
    """m1 and m2 are in the log; m1 is heard from 0 on, m2 never, and at 4,000 it is no longer listed."""
    story = Story().record(-60_000, 1, "m1", "m2").beats("m1", 0, 3_000, error=first_error)
    return without(story, "m2", 4_000).play(20_000)


def test_nobody_is_accused_of_what_was_before_we_looked():
    """The rebalance was on when we came: m2 may have gone before."""
    assert unheard(27).accusations == []


def test_who_was_never_heard_but_was_in_a_group_seen_stable_did_go_while_we_looked():
    """Its deadline can lie anywhere up to a session timeout after we came."""
    assert unheard(0).facts("session-expired", "subject", "deadline_ms") == [("m2", 4_000)]


@pytest.mark.parametrize("at_ms", [13_000, 15_500], ids=["before its deadline", "at its deadline"])
@pytest.mark.parametrize("how", ["offsets missing", "a jump of the probe's numbers"])
def test_when_lines_were_lost_a_removal_proves_an_expiry_only_at_its_deadline(how, at_ms):
    """Before it, the leave that explains it may be among the lines that were lost."""
    story = group(last_ms=10_000, m1_until_ms=12_500)
    if how == "offsets missing":
        story.lose(11_000)
    else:
        story.jumps.append(11_000)
    told = without(story, "m2", at_ms).play(30_000)
    assert told.accusations == ([] if at_ms < 15_500 else [("session-expired", "m2")])


def test_an_excess_of_departures_costs_memory_of_the_oldest_only():
    many = ["m1", *(f"d{n}" for n in range(MAX_DEPARTURES + 10))]
    story = Story().join(100, "m1", 1, listed=many).record(140, 1, *many).beats("m1", 1_000, 6_000)
    told = rebalance(story, 8_500, 2, "m1").beats("m1", 9_000, 10_000, generation=2).play(10_000)
    assert len(told.accusations) == MAX_DEPARTURES


@pytest.mark.parametrize("rule", SUMMARIES.keys() - {MEMBER_REMOVED})
def test_a_summary_names_a_timeout_only_where_it_is_known(rule):
    def summary(session_ms, poll_ms):
        member = Member("m1", session_timeout_ms=session_ms, rebalance_timeout_ms=poll_ms)
        departure = Departure(member, rule, Cause.UNKNOWN, Evidence.OBSERVED, 0, None, 1, "broker-1", 0)
        return departed.judge(GroupReplica("g"), departure, context()).finding.summary

    assert summary(None, None).endswith(("its session timeout", "the rebalance timeout", "max.poll.interval.ms"))
    assert summary(6_000, 6_000).endswith(" of 6 s")


def test_a_removal_without_a_known_cause_names_no_reason_that_nothing_shows():
    departure = Departure(Member("m1"), MEMBER_REMOVED, Cause.UNKNOWN, Evidence.INFERRED, 0, None, 1, "broker-1", 0)
    told = departed.judge(GroupReplica("g"), departure, context()).finding.summary
    assert told == "m1 (client unknown) was removed, and nothing that was seen shows why"

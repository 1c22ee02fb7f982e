"""How a group is set up, who covers it, and what nobody in it reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_model.added_partitions import NOTICED_AFTER_MS
from coordinator_model.decode.parse import parse_row
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.rules import setup
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.states import GroupState, GroupType
from coordinator_model.thresholds import Thresholds
from tests.support.story import SESSION_MS, T0, Story, Who, rebalance, stable

CONTEXT = JudgementContext(
    progress_ms=1_000_000,
    broker="broker-1",
    timer_resets=(),
    commits={},
    live_from_ms=0,
    covered_since_ms=0,
    proof_arrival_ms=0,
    consumer_session_timeout_ms=None,
    thresholds=Thresholds(),
)
SETTLED_MS = 88_000
"""Stable in the first second, settled 60,000 later, and its turn, by its name, comes within another 60,000."""


def members(*held, session_ms=45_000, poll_ms=300_000, topics=("t",), interval_ms=3_000, protocol="range"):
    """A stable group whose members hold so many partitions each."""
    replica = GroupReplica("g", type=GroupType.CLASSIC, state=GroupState.STABLE, protocol=protocol)
    for n, count in enumerate(held):
        replica.members[f"m{n}"] = Member(
            f"m{n}",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=poll_ms,
            topics=list(topics),
            assignment={"t": list(range(100 * n, 100 * n + count))} if count else {},
            heartbeat_interval_ms=interval_ms,
        )
    return replica


def with_member(replica, member_id, **changes):
    for name, value in changes.items():
        setattr(replica.members[member_id], name, value)
    return replica


# rule, group -> what its summary says, None: nothing is wrong
GROUPS = {
    "all alike": (setup.timeouts_inconsistent, members(1, 1), None),
    "two session timeouts": (
        setup.timeouts_inconsistent,
        with_member(members(1, 1), "m1", session_timeout_ms=10_000),
        "session timeouts differ: 10 s, 45 s",
    ),
    "two poll intervals": (
        setup.timeouts_inconsistent,
        with_member(members(1, 1), "m1", rebalance_timeout_ms=60_000),
        "rebalance timeouts differ: 60 s, 300 s",
    ),
    "the least that the broker allows": (setup.timeouts_inconsistent, members(1, session_ms=6_000, interval_ms=2_000),
        "a session timeout of 6 s is Kafka's default minimum"),
    "the greatest": (setup.timeouts_inconsistent, members(1, session_ms=1_800_000),
        "a session timeout of 1,800 s is Kafka's default maximum"),
    "a poll that may take for ever": (setup.timeouts_inconsistent, members(1, poll_ms=2**31 - 1),
        "max.poll.interval.ms is 2,147,483,647: it limits nothing"),
    "a poll that may take a day": (setup.timeouts_inconsistent, members(1, poll_ms=86_400_000),
        "max.poll.interval.ms is 86,400,000: it limits nothing"),
    "a poll that may take some hours": (setup.timeouts_inconsistent, members(1, poll_ms=6 * 3_600_000), None),
    "no heartbeat may be lost": (setup.timeouts_inconsistent, members(1, session_ms=10_000, interval_ms=4_000),
        "1 member with fewer than 3 heartbeats in a session timeout"),
    "a heartbeat that came a little late": (setup.timeouts_inconsistent, members(1, session_ms=10_000,
        interval_ms=3_800), None),
    "one topic": (setup.mixed_subscriptions, members(1, 1), None),
    "two applications": (
        setup.mixed_subscriptions,
        with_member(members(1, 1), "m1", topics=["other"]),
        "2 sets of members share no topic: other and t",
    ),
    "related through a third": (
        setup.mixed_subscriptions,
        with_member(with_member(members(1, 1, 1), "m1", topics=["other"]), "m2", topics=["other", "t"]),
        None,
    ),
    "topics unknown": (setup.mixed_subscriptions, with_member(members(1, 1), "m1", topics=[]), None),
    "as even as can be": (setup.assignment_skewed, members(2, 1, 1), None),
    "the first has it all": (setup.assignment_skewed, members(6, 1, 1), "m0 holds 6 partitions, others 1"),
    "fewer partitions than members": (setup.assignment_skewed, members(1, 0, 0), None),
    "other topics, other share": (
        setup.assignment_skewed,
        with_member(members(6, 1, 1), "m0", topics=["other"]),
        None,
    ),
    "tasks of Kafka Streams": (setup.assignment_skewed, members(6, 1, 1, protocol="stream"), None),
    "everybody works": (setup.member_idle, members(1, 1), None),
    "one waits": (setup.member_idle, members(1, 1, 0), "1 of 3 members without a partition"),
    "nothing to hold": (setup.member_idle, members(0, 0), None),
    "an instance of standbys": (setup.member_idle, members(1, 0, protocol="stream"), None),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_what_is_wrong_with_a_groups_setup(name):
    rule, replica, summary = GROUPS[name]
    finding = rule(replica, CONTEXT, 5)
    assert finding is None if summary is None else summary in finding.summary
    assert finding is None or (finding.severity, finding.at_ms) == ("info", 5)


def every_3_seconds(story, start_ms, *late_ms, until_ms=200_000, generation=1):
    """m1 sends a heartbeat every 3,000 ms in a session of 10,000; those named come 2,500 ms late."""
    for at_ms in range(start_ms, until_ms + 1, 3_000):
        story.beat(at_ms + 2_500 * (at_ms in late_ms), "m1", generation)
    return story.play(until_ms)


def test_a_rebalance_between_the_first_two_heartbeats_is_no_heartbeat_interval():
    """It made 8,000 ms out of 3,000, and the group was told for good to send too few heartbeats."""
    story = rebalance(stable("m1", session_ms=10_000).beat(1_000, "m1"), 8_000, 2, "m1")
    told = every_3_seconds(story, 9_000, generation=2)
    assert told.of("timeouts-inconsistent") == []
    assert told.members["m1"]["heartbeat_interval_ms"] == 3_000


def test_an_interval_that_a_lost_line_stretched_is_measured_again():
    told = every_3_seconds(stable("m1", session_ms=10_000).beat(1_000, "m1"), 7_000)
    assert told.of("timeouts-inconsistent") == []
    assert told.members["m1"]["heartbeat_interval_ms"] == 3_000


def test_one_that_was_stretched_twice_is_told_and_taken_back():
    """The second time just as the group is looked at."""
    told = every_3_seconds(stable("m1", session_ms=10_000).beat(1_000, "m1"), 7_000, SETTLED_MS - 3_000)
    assert told.facts("timeouts-inconsistent", "at_ms") == [(SETTLED_MS,)]
    assert told.closed("timeouts-inconsistent") == [("recovered", SETTLED_MS - 500 + 60_000)]
    assert told.members["m1"]["heartbeat_interval_ms"] == 3_000


def test_heartbeats_that_are_really_too_few_are_told_for_as_long_as_they_are():
    story = stable("m1", session_ms=10_000)
    told = story.beats("m1", 1_000, 300_000, every_ms=5_000).play(300_000)
    [incident] = told.of("timeouts-inconsistent")
    assert incident["detail"]["slow_heartbeats"] == ["m1"]
    assert told.closed("timeouts-inconsistent") == []


def test_a_group_is_looked_at_once_it_has_settled_and_not_before():
    story = stable("m1").beats("m1", 1_000, 130_000)
    assert story.play(SETTLED_MS - 100).of("timeouts-inconsistent") == []
    assert story.play(130_000).facts("timeouts-inconsistent", "severity", "at_ms") == [("info", SETTLED_MS)]


def test_a_deploy_begins_the_wait_anew():
    story = stable("m1").beats("m1", 1_000, 30_000)
    rebalance(story, 30_500, 2, "m1").beats("m1", 31_000, 115_000, generation=2)
    assert story.play(115_000).of("timeouts-inconsistent") == []


def test_an_idle_members_heartbeats_take_the_fast_path():
    """A finding that no heartbeat can change must not have every heartbeat look at the group."""
    story = stable(Who("m1", partitions=(0,)), "m2", session_ms=45_000)
    story.beats("m1", 1_000, 130_000).beats("m2", 1_000, 130_000)
    assert story.play(130_000).opened("member-idle") == ["orders"]
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=T0), None)
    rows = story.source_rows(130_000)
    for start_ms in range(0, 130_000, 10_000):  # batches, as a capture's end alone shows no path
        batch = [e for r in rows if start_ms <= r.timestamp_ms - T0 < start_ms + 10_000 for e in parse_row(r)]
        [*_, progress] = shard.apply(batch)
    assert progress["counts"]["heartbeats"] >= 18  # of 20: now and then the clock is looked at


@given(st.sets(st.frozensets(st.integers(0, 12), min_size=1, max_size=3), max_size=12))
def test_members_are_related_through_any_chain_of_topics(numbers):
    """As many parts as a walk from topic to topic finds."""
    subscriptions = {tuple(f"t{number}" for number in sorted(some)) for some in numbers}
    parts = setup._related(subscriptions)
    assert sorted(topic for part in parts for topic in part) == sorted({t for some in subscriptions for t in some})
    assert all(sum(not part.isdisjoint(some) for part in parts) == 1 for some in subscriptions)
    for part in parts:
        inside = [set(some) for some in subscriptions if some[0] in part]
        reached = inside.pop()
        while near := next((some for some in inside if some & reached), None):
            inside.remove(near)
            reached |= near
        assert reached == part


# ------------------------------------------------------------------------------------------------ unowned


def owning(*owned, until_ms=100_000):
    return stable(Who("m1", partitions=owned)).beats("m1", 1_000, until_ms)


def unowned(told):
    return [
        (t.kind.value, t.incident.severity, t.at_ms - T0, t.incident.partitions)
        for t in told.history.transitions
        if t.incident.rule == "partition-unowned"
    ]


def test_a_partition_that_nobody_owns_is_a_warning_and_then_a_page():
    told = owning(0, 1).play(100_000, topic_partitions={"t": 3, "elsewhere": 5})
    assert unowned(told) == [
        ("opened", "warn", 10_140, [["t", 2]]),
        ("escalated", "page", 60_140, [["t", 2]]),
    ]


def test_an_added_partition_is_judged_once_consumers_have_noticed_it():
    story = owning(0, 1, until_ms=400_000)
    story.leads(0, "broker-1", topic_partitions={"t": 2}).leads(20_000, "broker-1", topic_partitions={"t": 3})
    noticed_ms = 20_000 + NOTICED_AFTER_MS
    assert unowned(story.play(400_000)) == [
        ("opened", "warn", noticed_ms + 10_000, [["t", 2]]),
        ("escalated", "page", noticed_ms + 60_000, [["t", 2]]),
    ]


def test_an_added_partition_ends_nothing_about_the_partitions_before_it():
    story = owning(0, until_ms=100_000)
    story.leads(0, "broker-1", topic_partitions={"t": 2}).leads(30_000, "broker-1", topic_partitions={"t": 3})
    assert [step[:2] for step in unowned(story.play(100_000))] == [("opened", "warn"), ("escalated", "page")]


@pytest.mark.parametrize("counts", [{}, {"t": 2}, {"elsewhere": 5}])
def test_no_partition_is_missed_that_is_not_known_to_exist(counts):
    assert unowned(owning(0, 1).play(100_000, topic_partitions=counts)) == []


def test_while_the_group_rebalances_partitions_have_no_owner_in_good_health():
    story = owning(0, until_ms=8_000).beats("m1", 9_000, 30_000, error=27)
    assert unowned(story.play(30_000, topic_partitions={"t": 2})) == []


def test_it_ends_when_somebody_takes_it():
    story = owning(0, until_ms=20_000)
    rebalance(story, 20_500, 2, Who("m1", partitions=(0, 1)))
    told = story.beats("m1", 21_000, 30_000, generation=2).play(30_000, topic_partitions={"t": 2})
    assert told.closed("partition-unowned") == [("recovered", 20_500)]


def test_a_silence_of_the_coordinator_ends_nothing_that_is_told():
    """What is not known is not over: the page goes on, and ends once the partition has an owner."""
    story = owning(0, until_ms=70_000).silent(70_000, 95_000).beats("m1", 97_000, 150_000)
    rebalance(story, 150_500, 2, Who("m1", partitions=(0, 1)))
    told = story.beats("m1", 151_000, 160_000, generation=2).play(160_000, topic_partitions={"t": 2})
    assert [kind for kind, *_ in unowned(told)] == ["opened", "escalated", "closed"]
    assert told.closed("partition-unowned") == [("recovered", 150_500)]


@pytest.mark.parametrize(("silent_from_ms", "told"), [(5_000, []), (30_000, [("opened", "warn")])])
def test_in_a_silence_nothing_is_told_anew_and_nothing_becomes_a_page(silent_from_ms, told):
    """Lines of the broker come again from 65,000 on, and no answer of the coordinator."""
    story = owning(0, until_ms=silent_from_ms).silent(silent_from_ms, 65_000)
    assert [step[:2] for step in unowned(story.play(70_000, topic_partitions={"t": 2}))] == told


def test_it_ends_in_a_silence_if_a_record_says_that_the_group_is_empty():
    story = owning(0, until_ms=70_000).silent(70_000, 99_000).record(80_000, 2)
    [(reason, _)] = story.play(100_000, topic_partitions={"t": 2}).closed("partition-unowned")
    assert reason == "recovered"


# ------------------------------------------------------------------------------------------------ uncovered


def test_members_that_no_source_covers_are_told_once_their_session_has_passed_unseen():
    story = Story().record(100, 1, "m1", "m2").beats("m1", 1_000, 80_000)
    told = story.play(80_000)
    assert told.facts("telemetry-uncovered", "severity", "at_ms") == [("info", 60_100 + 900)]
    [opened] = told.of("telemetry-uncovered")
    assert "no heartbeat of 1 of 2 members of orders is seen" in opened["summary"]
    assert SESSION_MS < 60_000


def test_a_heartbeat_that_comes_after_all_ends_it():
    story = Story().record(100, 1, "m1", "m2").beats("m1", 1_000, 80_000).beats("m2", 70_000, 80_000)
    assert story.play(80_000).closed("telemetry-uncovered") == [("recovered", 70_000)]


def test_without_any_telemetry_the_tier_is_told_elsewhere():
    told = Story().record(100, 1, "m1", "m2").play(100_000)
    assert told.of("telemetry-uncovered") == []

"""Former members whose commits are refused: who went on processing, and which partitions are processed again."""

import json

import pytest

from coordinator_model.decode.parse import parse_row
from coordinator_model.events import CommitRefused
from coordinator_model.replica.refusals import MAX_NAME, MAX_NAMED
from coordinator_model.replica.zombies import MAX_PARTITIONS
from coordinator_model.shard import group_judgement
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.request_log import line
from tests.support.story import Who, events_of, rebalance, stable

ZOMBIE = Who("m2", client_id="billing", host="10.0.0.7", port=6_000)
RULE = "zombie-commit"


def evicted(zombie=ZOMBIE, until_ms=40_000):
    """m2 is silent from 10,000, m1 is told to rejoin at 16,000 and has all four partitions from 17,000."""
    story = stable("m1", zombie, partitions=2).beats("m1", 1_000, 15_500).beats(zombie.member_id, 1_000, 10_000)
    story.beat(16_500, "m1", error=27)
    rebalance(story, 17_000, 2, Who("m1", client_id="client-m1", partitions=(0, 1, 2, 3)))
    return story.beats("m1", 18_000, until_ms, generation=2)


def test_a_former_member_that_commits_is_reported():
    """The incident names its partitions and who reads them now."""
    told = evicted().refused_commit(20_000, "m2", 2, 3).play(30_000)
    facts = told.facts(RULE, "severity", "subject", "at_ms", "opened_ms", "client_id", "client_host", "partitions")
    assert facts == [("warn", "m2", 20_000, 20_000, "billing", "10.0.0.7", [["t", 2], ["t", 3]])]
    [opened] = told.of(RULE)
    assert opened["evidence"] == "observed"
    assert opened["detail"]["read_now_by"] == ["m1"]
    assert opened["summary"] == (
        "m2 (billing on 10.0.0.7) went on as a member of orders: its commit of 2 partitions was refused with"
        " UNKNOWN_MEMBER_ID (25); what it has processed is processed again"
    )


def test_a_client_that_names_no_member_once_it_has_left_is_known_by_its_connection():
    """librdkafka: an empty member id, and the generation that it was in."""
    story = evicted().refused_commit(20_000, "m2", 2, named="")
    assert story.play(30_000).opened(RULE) == ["m2"]


def test_an_admin_that_sets_offsets_of_a_running_group_is_no_zombie():
    """It is answered 25 too, and names neither member nor generation."""
    assert evicted().refused_commit(20_000, "m2", 2, named="", generation=-1).play(30_000).opened(RULE) == []


def test_a_stranger_that_says_it_was_a_member_is_only_info():
    story = evicted().refused_commit(20_000, "never-in", 2)
    assert story.play(30_000).facts(RULE, "severity", "subject") == [("info", "never-in")]


def test_two_that_look_alike_are_two_incidents():
    """Two processes on one host, both with librdkafka's default client id, that were never seen as members."""
    story = evicted(until_ms=90_000)
    for n in (1, 2):
        story.know(Who(f"x{n}", client_id="rdkafka", port=7_000 + n))
    for at_ms in (20_000, 21_000):
        story.refused_commit(at_ms, "x1", 2, named="").refused_commit(at_ms, "x2", 3, named="")
    told = story.play(90_000)
    assert told.facts(RULE, "subject", "partitions") == [
        ("rdkafka on 10.0.0.7", [["t", 2]]),
        ("rdkafka on 10.0.0.7", [["t", 3]]),
    ]
    assert told.closed(RULE) == [("recovered", 81_000)] * 2


def test_a_fenced_instance_is_named_by_its_instance():
    fenced = Who("m2", instance_id="pod-2", client_id="billing", host="10.0.0.7", port=6_000)
    told = evicted(fenced).refused_commit(20_000, "m2", 2, error=82).play(30_000)
    assert told.facts(RULE, "severity", "subject", "member_id") == [("warn", "pod-2", "m2")]


@pytest.mark.parametrize(
    ("number", "opened"), [(0, []), (3, ["m1"])], ids=["a partition that it still has", "one that another has"]
)
def test_of_a_member_that_is_behind_by_a_generation_only_what_another_has_counts(number, opened):
    story = stable("m1", ZOMBIE, partitions=2).beats("m1", 1_000, 30_000).beats("m2", 1_000, 30_000)
    assert story.refused_commit(20_000, "m1", number, error=22, generation=0).play(30_000).opened(RULE) == opened


@pytest.mark.parametrize("error", [0, 14, 15, 16, 27, 113])
def test_what_does_not_say_that_a_member_is_gone_is_none(error):
    """Of these only 27 is of the group: who is in is told to join again, and then commits."""
    story = evicted().refused_commit(20_000, "m2", 2, error=error)
    assert story.play(30_000).opened(RULE) == []


def test_a_transaction_is_void_so_nothing_is_processed_twice():
    told = evicted().refused_commit(20_000, "m2", 2, api="TXN_OFFSET_COMMIT").play(30_000)
    assert told.facts(RULE, "severity", "subject") == [("info", "m2")]
    assert told.of(RULE)[0]["summary"].endswith("; its transaction is void")


def test_it_closes_a_minute_after_the_last_refused_commit():
    story = evicted(until_ms=100_000).refused_commit(20_000, "m2", 2).refused_commit(25_000, "m2", 3)
    told = story.play(100_000)
    assert told.closed(RULE) == [("recovered", 85_000)]
    assert len(told.of(RULE)) == 1


def test_a_former_member_that_goes_on_after_a_pause_is_told_again():
    """What has ended does not begin again under its id, so this is another incident, with a count of its own."""
    story = evicted(until_ms=300_000)
    for at_ms in (20_000, 25_000, 145_000, 265_000):
        story.refused_commit(at_ms, "m2", 2)
    told = story.play(300_000)
    assert told.facts(RULE, "opened_ms") == [(20_000,), (145_000,), (265_000,)]
    assert [at_ms for _, at_ms in told.closed(RULE)] == [85_000, 205_000]
    assert told.of(RULE)[-1]["detail"]["count"] == 1


def test_a_stranger_that_goes_on_after_a_pause_is_told_at_once():
    """Its commit changes only counts, and the count is 1 again."""
    story = stable("m1", session_ms=300_000)
    for at_ms in (20_000, 145_000, 265_000):
        story.refused_commit(at_ms, "never-in", 2)
    assert story.play(265_500).facts(RULE, "opened_ms") == [(20_000,), (145_000,), (265_000,)]


def test_only_the_coordinators_word_counts():
    """A broker that coordinates the group no more, or not yet, knows nobody."""
    story = evicted().refused_commit(20_000, "m2", 2, broker="broker-2")
    assert story.play(30_000).opened(RULE) == []


def test_a_group_that_is_not_known_does_not_come_into_being():
    story = evicted()
    story.group = "other"
    told = story.refused_commit(20_000, "m2", 2).play(30_000)
    assert [group["group"] for group in told.history.groups] == ["orders"]
    assert told.opened(RULE) == []


def test_partitions_of_one_client_are_bounded_and_the_others_counted():
    story = evicted()
    for n in range(3):
        story.refused_commit(20_000 + n, "m2", *range(50 * n, 50 * n + 50))
    [opened] = story.play(30_000).of(RULE)
    assert len(opened["partitions"]) == 50  # of the first: what comes later betters the stored incident
    [row] = shard_of(story.source_rows(30_000)).group_store.replica("orders").zombies.values()
    assert len(row[10]) == MAX_PARTITIONS
    assert row[11] == 50  # at least: the last of them may be those left out before


def shard_of(rows):
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=0), None)
    shard.apply([event for row in rows for event in parse_row(row)], final=True)
    return Shard.restore(0, shard.settings, shard.dump())


def test_strangers_are_bounded_and_cost_no_look_at_the_group(monkeypatch):
    """A thousand names, each long and full of what no page may take for its own."""
    story = evicted()
    for n in range(1_000):
        story.refused_commit(20_000 + n, f"<b>{n}</b>\n" + "x" * 1_000, 2)
    looked = []
    evaluate = group_judgement.evaluate
    monkeypatch.setattr(group_judgement, "evaluate", lambda *args: looked.append(1) or evaluate(*args))
    zombies = shard_of(story.source_rows(30_000)).group_store.replica("orders").zombies
    assert len(zombies) == MAX_NAMED + 1
    assert all(len(text) <= MAX_NAME for row in zombies.values() for text in row if isinstance(text, str))
    assert len(looked) < 200
    assert story.play(30_000).opened(RULE)[-1] == "other clients"


REQUEST = {"groupId": "g", "memberId": "m", "generationIdOrMemberEpoch": 3, "topics": []}


def answer(*errors, **more):
    partitions = [{"partitionIndex": n, "errorCode": error} for n, error in enumerate(errors)]
    return {"topics": [{"name": "t", **more, "partitions": partitions}]}


def test_of_a_commit_the_refused_partitions_are_read():
    [event] = events_of(line("OFFSET_COMMIT", REQUEST, answer(0, 25, 25)))
    assert isinstance(event, CommitRefused)
    assert (event.error, event.generation, event.partitions) == (25, 3, (("t", 1), ("t", 2)))


def test_a_topic_may_be_known_by_its_id_only():
    [event] = events_of(line("OFFSET_COMMIT", REQUEST, answer(25, name=None, topicId="AQIDBAUGBwgJCgsMDQ4PEA")))
    assert event.partitions == (("AQIDBAUGBwgJCgsMDQ4PEA", 0),)


@pytest.mark.parametrize(
    "response",
    [{}, "", {"topics": []}, {"topics": [7]}, {"topics": [{"name": "t", "partitions": ["x"]}]}, answer(0), answer(27)],
    ids=json.dumps,
)
def test_a_commit_that_tells_nothing_is_nothing(response):
    assert events_of(line("OFFSET_COMMIT", REQUEST, response)) == []

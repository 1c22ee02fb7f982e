"""A group comes into being by a record or an answer that only its members get, and a deleted one leaves nothing."""

from collections import Counter

import pytest

from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.decode.parse import parse_row
from coordinator_model.replica.admission import makes_known
from coordinator_model.shard.groups import DELETED_MEMORY_MS
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.states import Cause
from tests.support.records import key, string
from tests.support.request_log import line
from tests.support.story import T0, Story, Who, events_of, rebalance, stable

SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=T0)
REFUSALS = (14, 15, 16, 22, 23, 24, 25, 26, 27, 30, 60, 69, 79, 81, 82, 110, 111, 112, 113, 128, -1)
"""What Kafka 4.3 answers to requests about groups, other than 0."""
JOINING = Who("m9", client_id="stranger")

ANSWERS = {
    "a heartbeat": (lambda error: Story().beat(0, "m9", error=error), {0, 27}),
    "a JoinGroup": (lambda error: Story().join(0, JOINING, 1, error=error), {0}),
    "a SyncGroup": (lambda error: Story().sync(0, "m9", 1, error=error), set()),
    "a LeaveGroup": (lambda error: Story().leave(0, "m9", errors={"m9": error}), set()),
    "a KIP-848 join": (lambda error: Story().hello(0, "m9", 0, 1, error=error), {0}),
    "a KIP-848 heartbeat": (lambda error: Story().hello(0, "m9", 3, 3, error=error), {0}),
    "a KIP-848 leave": (lambda error: Story().hello(0, "m9", -1, -1, error=error), set()),
    "a static KIP-848 leave": (lambda error: Story().hello(0, "m9", -2, -2, error=error), set()),
}


@pytest.mark.parametrize("error", [0, *REFUSALS])
@pytest.mark.parametrize("api", ANSWERS)
def test_of_a_group_that_is_not_known_only_an_accepted_answer_tells(api, error):
    story, accepted = ANSWERS[api]
    [event] = [event for row in story(error).source_rows(0)[:1] for event in parse_row(row)]
    assert makes_known(event, loading=False) == (error in accepted)
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply([event], final=True)
    assert shard.groups() == (["orders"] if error in accepted else [])


@pytest.mark.parametrize(
    ("story", "known"),
    [
        (Story().record(0, 1, "m1"), True),
        (Story().deleted(0), False),
        (Story().epoch(0, 3), True),
        (Story().epoch(0, None), False),
        (Story().commit(0, "t", 1), True),
        (Story().write(0, key(1, "orders") + string("t") + bytes(4), None), False),
        (Story().reports(0, "m1", 10), False),
    ],
    ids=["a record", "a tombstone", "an epoch", "its tombstone", "a commit", "its tombstone", "a client's report"],
)
def test_of_a_group_that_is_not_known_a_record_tells_and_a_tombstone_does_not(story, known):
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply([event for row in story.source_rows(0) for event in parse_row(row)], final=True)
    assert shard.groups() == (["orders"] if known else [])


def test_while_a_coordinator_loads_its_blind_answers_make_no_group():
    """It answers classic heartbeats 0 whoever sends them, for any group."""
    shard = Shard.restore(0, SETTINGS, None)
    shard.memory.clock = CoordinatorTracker(
        coordinator="broker-1", timer_resets=[TimerReset(T0 - 9, None, Cause.COORDINATOR_PAUSE, "broker-1")]
    )
    story = Story().beats("m9", 0, 5_000)
    story.brokers = {}
    shard.apply([event for row in story.source_rows(5_000) for event in parse_row(row)], final=True)
    assert shard.groups() == []


def test_refused_requests_under_made_up_group_ids_leave_no_state():
    """16,000 requests for 4,000 groups are counted; they make no group, at most one report and little state."""
    story = Story()
    for n in range(4_000):
        story.group = f"made-up-{n}" + "x" * 300
        story.join(n, Who("", client_id="worker"), -1, error=30)
        story.beat(n, "m1", error=25).hello(n, "m1", 3, 0, error=110).leave(n, "m1", errors={"m1": 25})
    shard = Shard.restore(0, SETTINGS, None)
    outputs = shard.apply([event for row in story.source_rows(5_000) for event in parse_row(row)])
    assert shard.groups() == []
    _, *parts = shard.dump()
    assert sum(map(len, parts)) < 3_000
    assert len([out for out in outputs if out["kind"] == "report"]) <= 1
    [progress] = [out for out in outputs if out["kind"] == "progress"]
    assert progress["counts"]["unknown_group"] == 16_000


def test_a_batch_that_names_no_member_says_nothing():
    """LeaveGroup without members is a request that anybody may send."""
    asked = {"groupId": "orders", "members": []}
    assert events_of(line("LEAVE_GROUP", asked, {"errorCode": 0, "members": []}, version=5)) == []


# ------------------------------------------------------------------------------------------------ deleted groups


def lives(count, apart_ms, id_bytes=1_000):
    """Groups that come, have two members, lose both and are deleted, one after the other."""
    story = Story()
    for n in range(count):
        begin_ms = n * apart_ms
        story.group = f"{n:06}" + "g" * id_bytes
        rebalance(story, begin_ms, 1, f"{n}-a", f"{n}-b")
        for member in (f"{n}-a", f"{n}-b"):
            story.beats(member, begin_ms + 1_000, begin_ms + 3_000).leave(begin_ms + 3_500, member)
        story.join(begin_ms + 3_600, Who("", client_id=f"c{n}"), -1, error=81)
        story.commit(begin_ms + 3_700, "t" * 200, 1).record(begin_ms + 4_000, 2).deleted(begin_ms + 5_000)
    return story


def state_bytes(shard):
    _, *parts = shard.dump()
    return sum(map(len, parts))


def test_groups_that_come_and_go_leave_nothing_behind():
    story, shard = lives(400, 30_000), Shard.restore(0, SETTINGS, None)
    story.brokers = {}
    rows = story.source_rows(400 * 30_000)
    empty_bytes, most_bytes = state_bytes(shard), 0
    for first in range(0, len(rows), 500):
        shard.apply([event for row in rows[first : first + 500] for event in parse_row(row)], final=True)
        most_bytes = max(most_bytes, state_bytes(shard))
    an_hour_of_them = DELETED_MEMORY_MS // 30_000
    assert len(shard.groups()) <= an_hour_of_them + 1
    assert most_bytes < an_hour_of_them * 2_500
    story.rows.clear()
    [event] = parse_row(
        story.beat(400 * 30_000 + DELETED_MEMORY_MS, "zombie", error=25).rows[0][2]._replace(offset=10**9)
    )
    shard.apply([event], final=True)
    assert shard.groups() == []
    assert shard._groups._thresholds == {}
    assert state_bytes(shard) < empty_bytes + 1_000


def test_a_group_that_comes_again_within_the_hour_is_another_life_of_it():
    story = rebalance(lives(1, 0, 0), 60_000, 1, "later")
    [group] = story.play(70_000).history.groups
    assert (group["incarnation"], [m["member_id"] for m in group["members"]]) == (1, ["later"])


@pytest.mark.parametrize("cut", [1, 3, 50])
def test_a_group_that_comes_again_after_the_hour_is_a_new_one(cut):
    """Its incarnation is 0 again, however the rows are cut into batches."""
    story = rebalance(lives(1, 0, 0), DELETED_MEMORY_MS + 60_000, 1, "later")
    story.brokers = {}
    rows, shard = story.source_rows(DELETED_MEMORY_MS + 70_000), Shard.restore(0, SETTINGS, None)
    for first in range(0, len(rows), cut):
        shard.apply([event for row in rows[first : first + cut] for event in parse_row(row)], final=True)
    [group] = shard.views()
    assert (group["incarnation"], [m["member_id"] for m in group["members"]]) == (0, ["later"])


def test_offsets_committed_under_a_deleted_group_make_it_exist_again():
    story = stable("m1").deleted(1_000).commit(5_000, "t", 0)
    [group] = story.play(9_000).history.groups
    assert (group["type"], group["state"], group["members"]) == ("simple", "Empty", [])


def test_a_line_that_trails_the_end_of_its_group_does_not_bring_it_back():
    story = stable("m1").deleted(1_000).beat(1_500, "m1", error=25).leave(1_600, "m1", errors={"m1": 25})
    told = story.join(1_700, Who("", client_id="c"), -1, error=79).play(9_000)
    assert told.history.groups == []
    assert Counter(t["rule"] for t in told.transitions) == Counter()

"""A capture of commits, end offsets and lines, replayed: who is stuck is named, and nobody else is."""

import random
from uuid import UUID

import pytest

from coordinator_model.brokers.blindness import COARSE_INSTANTS
from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.source_row import OFFSETS, TELEMETRY
from coordinator_model.decode.topic_ids import text_of
from coordinator_model.shard.shard import ShardSettings
from tests.support.story import T0, Story, Told, Who, rebalance

UNTIL_MS = 420_000
ROUND_MS = 10_000
SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=0)
OLD, NEW = UUID(int=7), UUID(int=8)
STUCK, SLOW, PAUSED, IDLE, BATCH, WELL, REWOUND, LOST = range(8)


def produced(at_ms):
    """Ten messages a second."""
    return max(0, at_ms) // 100


def ends(at_ms):
    idle = produced(min(at_ms, 50_000))
    recreated = produced(at_ms) if at_ms < 200_000 else produced(at_ms - 200_000)
    topics = {"t": [produced(at_ms)] * 8, "dead": [produced(at_ms)], "alone": [produced(at_ms)] * 2, "new": [recreated]}
    topics["t"][IDLE] = idle
    return topics


def starts(at_ms):
    return {"t": [0] * LOST + [produced(at_ms - 150_000)]}


def commits(story, number, every_ms, offset_at, *, topic="t", until_ms=UNTIL_MS, topic_id=None):
    for at_ms in range(1_000, until_ms, every_ms):
        story.commit(at_ms, topic, number, offset_at(at_ms), topic_id)


def workers(story):
    """One member, one partition for each way to commit."""
    story.group = "workers"
    rebalance(story, 100, 1, Who("m1", client_id="client-m1", host="10.0.0.7", partitions=tuple(range(8))))
    story.beats("m1", 1_000, UNTIL_MS, every_ms=2_000)
    commits(story, STUCK, 5_000, produced, until_ms=100_000)
    commits(story, SLOW, 5_000, lambda at_ms: produced(at_ms) // 2)
    commits(story, PAUSED, 5_000, lambda at_ms: produced(min(at_ms, 100_000)))
    commits(story, IDLE, 5_000, lambda at_ms: produced(min(at_ms, 50_000)), until_ms=60_000)
    commits(story, BATCH, 60_000, produced)
    commits(story, WELL, 5_000, produced)
    commits(story, REWOUND, 5_000, lambda at_ms: produced(at_ms) - (1_500 if 200_000 < at_ms < 300_000 else 0))
    commits(story, LOST, 5_000, produced, until_ms=3_000)


def starved(story):
    """A member that dies, and whom the coordinator removes."""
    story.group = "starved"
    rebalance(story, 100, 1, Who("m2", client_id="client-m2", partitions=(0,)))
    story.beats("m2", 1_000, 100_000, every_ms=2_000)
    commits(story, 0, 5_000, produced, topic="dead", until_ms=100_000)
    story.record(106_100, 2)


def simple(story):
    """Two partitions that are assigned by hand; one of them stops."""
    story.group = "simple"
    commits(story, 0, 5_000, produced, topic="alone")
    commits(story, 1, 5_000, produced, topic="alone", until_ms=100_000)


def recreated(story):
    """A topic that is deleted and made anew at 200 s; its consumer goes on from 0."""
    story.group = "recreated"
    commits(story, 0, 5_000, produced, topic="new", until_ms=200_000, topic_id=OLD)
    story.uncommit(199_000, "new", 0)
    for at_ms in range(211_000, UNTIL_MS, 5_000):
        story.commit(at_ms, "new", 0, produced(at_ms - 200_000), NEW)


@pytest.fixture(scope="module")
def rows():
    story = Story()
    for life in (workers, starved, simple, recreated):
        life(story)
    for at_ms in range(0, UNTIL_MS + 1, ROUND_MS):
        names = {text_of(OLD if at_ms < 200_000 else NEW): "new"}
        facts = {"end_offsets": ends(at_ms), "start_offsets": starts(at_ms), "topic_names": names}
        story.leads(at_ms, "broker-1", **facts)
    return story.source_rows(UNTIL_MS)


@pytest.fixture(scope="module")
def told(rows):
    return Told(replay_rows(rows, SETTINGS))


def of_lag(told):
    judged = ("partition-stalled", "lag-growing", "offset-rewound", "offsets-lost")
    return {(t["group"], t["rule"], t["subject"]) for t in told.transitions if t["rule"] in judged}


def test_a_replay_names_what_is_wrong_and_nothing_else(told):
    assert of_lag(told) == {
        ("workers", "partition-stalled", f"t-{STUCK}"),
        ("workers", "lag-growing", "t"),
        ("workers", "offset-rewound", "t"),
        ("workers", "offsets-lost", "t"),
        ("simple", "partition-stalled", "alone-1"),
    }
    assert told.opened("session-expired") == ["m2"]


def test_the_stuck_partition_is_named_with_its_member_in_its_rhythm(told):
    [stuck] = [t for t in told.of("partition-stalled") if t["group"] == "workers"]
    assert (stuck["member_id"], stuck["client_host"], stuck["generation"]) == ("m1", "10.0.0.7", 1)
    assert (stuck["opened_ms"] - T0, stuck["detail"]["interval_ms"], stuck["severity"]) == (96_000, 5_000, "warn")
    assert stuck["at_ms"] - T0 <= 96_000 + 3 * 5_000 + 30_000


def test_groups_tell_their_lag_and_partitions_what_they_look_like(told):
    lags = {group["group"]: group["lag"] for group in told.history.groups}
    assert set(lags) == {"workers", "starved", "simple", "recreated"}
    for group, judged in told.history.partitions.items():
        assert judged["lag"] == lags[group]
    columns = told.history.partitions["workers"]["columns"]
    at_end = dict(zip(columns["partition"], columns["lag"], strict=True))
    assert (at_end[STUCK], at_end[IDLE]) == (produced(UNTIL_MS) - produced(96_000), 0)
    assert columns["note"] == {str(STUCK): "stuck", str(SLOW): "slow", str(PAUSED): "paused"}
    assert told.history.partitions["starved"]["columns"]["note"] == {"0": "starved"}


def test_a_recreated_topic_begins_anew(told):
    columns = told.history.partitions["recreated"]["columns"]
    assert columns["topics"] == [["new", text_of(NEW), 1]]
    assert columns["lag"] == [produced(UNTIL_MS - 200_000) - produced(216_000)]


def test_order_and_duplicates_of_rows_do_not_matter(rows, told):
    shuffled = rows * 2
    random.Random(7).shuffle(shuffled)
    again = Told(replay_rows(shuffled, SETTINGS))
    assert again.transitions == told.transitions
    assert again.history.partitions == told.history.partitions


def test_the_instants_of_a_shippers_buffer_hide_no_stuck_partition(rows):
    """All lines of five seconds have the instant at which they were shipped."""
    shipped = [
        row._replace(timestamp_ms=-(-row.timestamp_ms // 5_000) * 5_000) if row.source == TELEMETRY else row
        for row in rows
    ]
    told = Told(replay_rows(shipped, SETTINGS))
    assert {window["why"] for window in told.history.blind} == {COARSE_INSTANTS}
    [stuck] = [t for t in told.of("partition-stalled") if t["group"] == "workers"]
    assert (stuck["subject"], stuck["member_id"], stuck["opened_ms"] - T0) == (f"t-{STUCK}", "m1", 96_000)
    assert stuck["at_ms"] - T0 <= 96_000 + 3 * 5_000 + 30_000


@pytest.mark.parametrize("written_ms", [51_000, UNTIL_MS - 4_000])
def test_a_commit_from_the_future_counts_where_it_lies_and_is_counted(rows, told, written_ms):
    """The second is the newest commit of its partition."""
    far = [
        row._replace(timestamp_ms=T0 + 365 * 86_400_000)
        if row.source == OFFSETS and row.timestamp_ms == T0 + written_ms
        else row
        for row in rows
    ]
    count = sum(before != after for before, after in zip(rows, far, strict=True))
    again = Told(replay_rows(far, SETTINGS))
    assert count > 1
    assert again.history.undecodable == {"offsets: commit from the future": count}
    assert of_lag(again) == of_lag(told)
    lags = {group: judged["columns"]["lag"] for group, judged in told.history.partitions.items()}
    assert {group: judged["columns"]["lag"] for group, judged in again.history.partitions.items()} == lags


def test_without_end_offsets_nothing_is_said_of_lag(rows):
    kept = [row for row in rows if row.source != "cluster"]
    history = replay_rows(kept, SETTINGS)
    assert (history.partitions, {group["lag"] for group in history.groups}) == ({}, {None})
    assert of_lag(Told(history)) == set()

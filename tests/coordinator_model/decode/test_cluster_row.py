"""Cluster rows: what metadata said, checked field by field, and what a replay takes from them."""

import json

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.cluster_row import read_cluster_row
from coordinator_model.decode.source_row import CLUSTER, SourceRow
from coordinator_model.decode.telemetry.fields import BadField
from coordinator_model.shard.shard import ShardSettings
from tests.support.story import T0, TOPIC_ID_TEXT, Story, consumers, stable

ROW = {
    "source": "cluster",
    "timestamp_ms": 5,
    "leaders": [1, None, 2],
    "leader_epochs": [7, None],
    "brokers": {"1": {"host": "a", "port": 9092, "key": "broker-1"}, "2": {"host": "b", "port": 9092, "key": None}},
    "session_timeouts_ms": {"consumer": {"": 45_000, "orders": 60_000}, "share": {"": 45_000}},
    "topic_partitions": {"t": 12},
    "topic_names": {"H8t3O2McQT-DvPMPlzpkIQ": "t"},
    "of a later version": [1, 2, 3],
}


def read(**changes):
    return read_cluster_row(json.dumps(ROW | changes).encode())


def test_a_row_tells_leaders_keys_timeouts_and_partitions():
    row = read()
    assert (row.timestamp_ms, row.leaders, row.keys) == (5, (1, None, 2), {1: "broker-1", 2: None})
    assert row.session_timeouts_ms["consumer"] == {"": 45_000, "orders": 60_000}
    assert row.topic_partitions == {"t": 12}
    assert row.topic_names == {"H8t3O2McQT-DvPMPlzpkIQ": "t"}


def test_a_row_tells_a_round_of_offsets():
    row = read(end_offsets={"t": [7, None, -1, 2**63 - 1]}, start_offsets={"t": [1]}, stable_offsets=None)
    assert row.end_offsets == {"t": (7, None, None, 2**63 - 1)}
    assert (row.start_offsets, row.stable_offsets) == ({"t": (1,)}, {})


def test_the_reason_of_a_broken_row_names_no_topic():
    """It labels a counter."""
    with pytest.raises(BadField, match=r"^end_offsets: not an integer in range$"):
        read(end_offsets={"any name": ["7"]})


@pytest.mark.parametrize(
    ("shard", "named"), [(0, (1, "broker-1", (), 7)), (1, None), (2, (2, "", ("broker-1",), -1)), (3, None)]
)
def test_a_shard_is_told_its_leader_and_who_else_there_is(shard, named):
    event = read().named(shard)
    assert (None if event is None else (event.node, event.key, event.others, event.epoch)) == named


def test_what_a_row_leaves_out_is_not_told():
    row = read_cluster_row(b'{"timestamp_ms": 5}')
    assert (row.leaders, row.keys, row.topic_partitions) == ((), {}, {})


BAD = [
    {"topic_names": {"H8t3O2McQT-DvPMPlzpkIQ": None}},
    {"timestamp_ms": None},
    {"timestamp_ms": -1},
    {"timestamp_ms": 2**60},
    {"leaders": {"0": 1}},
    {"leaders": ["1"]},
    {"leaders": [-1]},
    {"leaders": [2**40]},
    {"leader_epochs": [-1]},
    {"brokers": []},
    {"brokers": {"one": {}}},
    {"brokers": {"1" * 5_000: {}}},
    {"brokers": {"1": "broker-1"}},
    {"brokers": {"1": {"key": 7}}},
    {"session_timeouts_ms": {"consumer": [1]}},
    {"session_timeouts_ms": {"consumer": {"": -1}}},
    {"session_timeouts_ms": {"consumer": {"": 1.5}}},
    {"topic_partitions": {"t": "12"}},
    {"end_offsets": []},
    {"end_offsets": {"t": 7}},
    {"end_offsets": {"t": {"0": 7}}},
    {"end_offsets": {"t": ["7"]}},
    {"end_offsets": {"t": [True]}},
    {"end_offsets": {"t": [1.5]}},
    {"end_offsets": {"t": [2**63]}},
    {"start_offsets": {"t": [[]]}},
    {"stable_offsets": "t"},
]


@pytest.mark.parametrize("change", BAD, ids=str)
def test_a_broken_row_is_told_as_such(change):
    with pytest.raises(BadField):
        read(**change)


@pytest.mark.parametrize("change", BAD, ids=str)
def test_a_broken_row_of_a_capture_costs_only_itself(change):
    story = stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_000, 8_000)
    story.rows.append((0, 2, SourceRow(CLUSTER, "", 0, 0, 0, None, json.dumps(ROW | change).encode())))
    told = story.play(20_000)
    assert told.opened("session-expired") == ["m2"]
    assert sum(n for reason, n in told.history.undecodable.items() if reason.startswith("cluster: ")) == 1


def test_a_replay_judges_by_the_session_timeouts_that_the_capture_tells():
    def told(**facts):
        story = consumers("m1", "m2").hellos("m1", 1_000, 60_000, 2).hellos("m2", 1_000, 8_000, 2)
        return story.leads(0, "broker-1", **facts).play(60_000)

    assert told().opened("session-at-risk") == []
    known = told(session_timeouts_ms={"consumer": {"": 50_000, "orders": 6_000}})
    assert known.facts("session-at-risk", "subject", "deadline_ms") == [("m2", 14_000)]


def test_a_replay_judges_by_the_partition_counts_that_the_capture_tells():
    story = stable("m1", partitions=1).beats("m1", 1_000, 30_000).leads(0, "broker-1", topic_partitions={"t": 2})
    assert len(story.play(30_000).of("partition-unowned")) == 1


def test_a_replay_names_topics_as_the_capture_does():
    story = consumers("m1").current(120, "m1", 2, partitions=(0,)).hellos("m1", 1_000, 8_000, 2)
    story.leads(0, "broker-1", topic_names={TOPIC_ID_TEXT: "lines"})
    told = story.play(8_000)
    [group] = told.history.groups
    assert {held["topic"] for held in group["members"][0]["assignment"]} == {"lines"}


def test_what_is_set_counts_before_what_the_capture_tells():
    story = consumers("m1", "m2").hellos("m1", 1_000, 60_000, 2).hellos("m2", 1_000, 8_000, 2)
    story.leads(0, "broker-1", session_timeouts_ms={"consumer": {"": 6_000}})
    told = story.play(30_000, consumer_session_timeouts_ms={"": 55_000})
    assert told.opened("session-expired") == []


def test_the_number_of_partitions_is_that_of_the_leaders():
    value = json.dumps({"timestamp_ms": T0, "leaders": [1] * 7}).encode()
    rows = [SourceRow(CLUSTER, "", 0, T0, T0, None, value), *Story().record(100, 1, "m1").source_rows(1_000)]
    history = replay_rows(rows, ShardSettings(cluster="c", partitions=0, live_from_ms=0))
    assert history.coverage["partitions"] == 7

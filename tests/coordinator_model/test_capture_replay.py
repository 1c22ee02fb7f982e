"""A whole capture at once: duplicates, any order, what it counts, and what its end does not do."""

import random

from coordinator_model.capture_replay import _ticks, replay_rows
from coordinator_model.decode.parse import OFFSETS, REPORTS, TELEMETRY, SourceRow, parse_row
from coordinator_model.incidents import to_contract
from coordinator_model.shard.shard import ShardSettings
from coordinator_model.shard.sharding import shard_of
from tests.support.records import key
from tests.support.request_log import heartbeat_line
from tests.support.story import T0, Story, group_metadata, rebalance, stable

SETTINGS = ShardSettings(cluster="c", partitions=0, live_from_ms=0)


def rows():
    return stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_000, 8_000).source_rows(20_000)


def told(history):
    return [to_contract(t) for t in history.transitions]


def test_order_and_duplicates_of_rows_do_not_matter():
    shuffled = rows() * 2
    random.Random(7).shuffle(shuffled)
    first, second = replay_rows(rows(), SETTINGS), replay_rows(shuffled, SETTINGS)
    assert told(first) == told(second) != []
    assert (first.groups, first.rows, first.decoded) == (second.groups, second.rows, second.decoded)


def test_what_was_read_is_counted_by_kind():
    history = replay_rows(rows(), SETTINGS)
    assert history.rows == len(rows())
    assert history.decoded == {"join": 2, "sync": 2, "record-2": 1, "heartbeat": 28, "probe": 41}


def test_unreadable_rows_are_counted_and_cost_nothing_else():
    bad = [
        SourceRow(OFFSETS, "__consumer_offsets", 0, 90_000, T0, b"\0\x63\0\1g", b""),
        SourceRow(OFFSETS, "__consumer_offsets", 0, 90_001, T0, None, b""),
        SourceRow(TELEMETRY, "elsewhere", 0, 0, T0, None, b"noise"),
    ]
    history = replay_rows([*rows(), *bad], SETTINGS)
    assert sum(history.undecodable.values()) == 3
    assert {k.partition(":")[0] for k in history.undecodable} == {"offsets", "telemetry"}
    assert told(history) == told(replay_rows(rows(), SETTINGS))


def test_the_end_of_a_capture_opens_nothing():
    assert [
        t["rule"] for t in told(replay_rows(stable("m1", "m2").beats("m1", 1_000, 9_000).source_rows(9_000), SETTINGS))
    ] == []


def test_it_is_live_from_its_first_line_and_not_before():
    """The records of an hour before tell of two generations; nobody is accused of what happened between them."""
    story = Story().record(-3_600_000, 1, "m1", "m2").record(-1_800_000, 2, "m1").beats("m1", 0, 9_000, 2)
    history = replay_rows(story.source_rows(9_000), SETTINGS)
    assert told(history) == []
    assert [m["member_id"] for m in history.groups[0]["members"]] == ["m1"]


def test_records_alone_make_groups_and_accuse_nobody():
    story = stable("m1", "m2").record(30_000, 2, "m1")
    only_records = [r for r in story.source_rows(60_000) if r.source == OFFSETS]
    history = replay_rows(only_records, SETTINGS)
    assert [(t["rule"], t["subject"], t["severity"]) for t in told(history)] == [("member-removed", "m2", "info")]
    assert (history.groups[0]["state"], history.groups[0]["generation"]) == ("Stable", 2)
    assert history.groups[0]["members"][0]["liveness"] == "unknown"


def test_nothing_at_all_is_a_history_too():
    history = replay_rows([], SETTINGS)
    assert (history.transitions, history.groups, history.rows) == ([], [], 0)


def test_groups_are_sorted_and_carry_their_partition():
    made = []
    for n, group in enumerate(("zebra", "apple", 'q"\\\0')):
        record = group_metadata(1, [], None)
        made.append(SourceRow(OFFSETS, "__consumer_offsets", shard_of(group, 50), n, T0 + n, key(2, group), record))
    groups = replay_rows(made, SETTINGS).groups
    assert [(g["group"], g["partition"], g["state"]) for g in groups] == [
        (g, shard_of(g, 50), "Empty") for g in ("apple", 'q"\\\0', "zebra")
    ]


def test_missing_offsets_of_a_brokers_lines_end_its_coverage():
    story = stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_000, 8_000)
    assert [t["rule"] for t in told(replay_rows(story.lose(9_000).source_rows(20_000), SETTINGS))] == []


def test_transitions_are_in_the_order_of_their_instants():
    story = stable("m1", "m2", "m3").beats("m1", 1_000, 30_000).beats("m2", 1_000, 8_000).beats("m3", 1_000, 10_000)
    rebalance(story, 31_000, 2, "m1").beats("m1", 32_000, 99_000, 2)
    instants = [t["at_ms"] for t in told(replay_rows(story.source_rows(99_000), SETTINGS))]
    assert instants == sorted(instants)
    assert len(instants) >= 4


def test_a_line_of_the_first_instants_of_1970_is_a_tick_like_any():
    events = [parse_row(SourceRow(TELEMETRY, "lines", 0, n, 7, b"b", heartbeat_line().encode()))[0] for n in (0, 1)]
    assert [tick.order_ms for tick in _ticks(events, set())] == [7]


def forged_by_an_application(made):
    """Lines of a request log, in the topic into which every application may write."""
    return [row._replace(source=REPORTS, topic="group-client-telemetry") for row in made if row.source == TELEMETRY]


def test_forged_heartbeats_hide_no_death():
    """Nine of nine were hidden."""
    forged = stable("m1", "m2").beats("m2", 8_500, 20_000, every_ms=500)
    history = replay_rows([*rows(), *forged_by_an_application(forged.source_rows(20_000))], SETTINGS)
    assert told(history) == told(replay_rows(rows(), SETTINGS)) != []


def test_a_forged_leave_makes_no_departure():
    forged = Story().leave(5_000, "m1").leave(5_100, "m2")
    history = replay_rows([*rows(), *forged_by_an_application(forged.source_rows(6_000))], SETTINGS)
    assert told(history) == told(replay_rows(rows(), SETTINGS))
    assert history.groups == replay_rows(rows(), SETTINGS).groups

"""Records in the order in which they were written, though the clocks of two coordinators differ."""

import pytest

from coordinator_model.events import RECORD_RANK, TELEMETRY_RANK, Heartbeat, RecordRead
from coordinator_model.heartbeat_block import HeartbeatBlock
from coordinator_model.shard.batch import Part
from coordinator_model.shard.held_back import hold_back, moved_ahead, no_later
from coordinator_model.shard.shard_memory import ShardMemory

HOLD_MS = 10_000

# instants of records, by offset -> which offsets are applied before their own instant, and when
WRITTEN = {
    "one coordinator's": ([1_000, 1_000, 2_000], {}),
    "a clock that is behind its predecessor's": ([1_000, 5_000, 5_000, 4_000, 6_000], {1: 4_000, 2: 4_000}),
    "two moves, each to a clock that is further behind": ([5_000, 4_000, 3_000], {0: 3_000, 1: 3_000}),
    "a misdated record, far ahead": ([1_000, 900_000, 2_000], {}),
    "a misdated record, far behind": ([901_000, 1_000, 902_000], {}),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_record_is_applied_no_later_than_the_next(name):
    instants, moved = WRITTEN[name]
    records = [
        RecordRead(at_ms, RECORD_RANK, "offsets", 0, offset, "g", 3, {"groupId": "g"}, {"epoch": 1})
        for offset, at_ms in enumerate(instants)
    ]
    assert moved_ahead(sorted(records), HOLD_MS) == moved


# group, instant, and when its generation was announced, of each record, and its generation if it is not the first with
# that -> when records are applied before their own instant, by offset
GENERATIONS = {
    "answers of the next generation come after the last one's record": (
        [("g", 4_990, 4_980), ("g", 5_000, 4_995), ("g", 4_000, 3_990)],
        {0: 3_990, 1: 3_990},
    ),
    "of another group nothing follows": ([("h", 5_000, 4_995), ("g", 4_000, 3_990)], {0: 4_000}),
    "records of one group stay in order": (
        [("g", 3_995, 3_985), ("g", 5_000, 4_995), ("g", 4_000, 3_990)],
        {0: 3_990, 1: 3_990},
    ),
    "no clock differs": ([("g", 3_995, 3_985), ("g", 4_000, 3_990)], {}),
    "the instant is from the log, by the predecessor's clock": ([("g", 5_000, 4_995), ("g", 4_000, 4_995)], {0: 4_000}),
    "the next record is of the same generation, read from the log": (
        [("g", 5_000, 3_500, 7), ("g", 4_000, 3_500, 7)],
        {0: 4_000},
    ),
    "a jump ends what follows from the offsets": (
        [("g", 90_000, 89_990), ("g", 90_100, 90_000), ("h", 1_000, 900), ("g", 5_000, 4_990), ("g", 4_000, 3_990)],
        {3: 3_990},
    ),
    "the instant is from the log, of long ago": ([("g", 95_000, 94_995), ("g", 94_000, 2_000)], {0: 94_000}),
}


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_record_is_applied_before_the_next_generation_of_its_group_is_announced(name):
    written, moved = GENERATIONS[name]
    records = []
    for offset, (group, at_ms, announced_ms, *generation) in enumerate(written):
        value = {"generation": generation[0] if generation else offset, "currentStateTimestamp": announced_ms}
        records.append(RecordRead(at_ms, RECORD_RANK, "offsets", 0, offset, group, 2, {}, value))
    assert moved_ahead(sorted(records), HOLD_MS) == moved


# offset and instant of commits, and of records -> the instants of the commits by offset
COMMITTED = {
    "one coordinator's": ([(0, 1_000), (2, 3_000)], [(1, 2_000)], [1_000, 3_000]),
    "a clock that is behind its predecessor's": (
        [(0, 5_000), (1, 5_100), (3, 4_500)],
        [(2, 4_000)],
        [4_000, 4_000, 4_500],
    ),
    "two moves, each to a clock that is further behind": (
        [(0, 5_000), (2, 4_500)],
        [(1, 4_000), (3, 3_000)],
        [3_000] * 2,
    ),
    "a misdated commit, far ahead": ([(0, 900_000)], [(1, 2_000)], [900_000]),
    "no record": ([(0, 1_000), (1, 500)], [], [1_000, 500]),
}


@pytest.mark.parametrize("name", COMMITTED)
def test_a_commit_is_dated_no_later_than_the_next_record(name):
    commits, records, instants = COMMITTED[name]
    rows = sorted((at_ms, offset, b"p", False) for offset, at_ms in commits)
    dated = no_later(rows, records, HOLD_MS)
    assert dated == sorted(dated)
    assert [row[0] for row in sorted(dated, key=lambda row: row[1])] == instants


def heartbeat(order_ms, offset, broker):
    return Heartbeat(order_ms, TELEMETRY_RANK, "lines", 0, offset, "g", "m", 1, 0, order_ms, order_ms, broker, 0, False)


# how far the clocks of the coordinator and another broker have stepped; the brokers of the heartbeats -> rows are made
STEPPED = {
    "the coordinator's, and it dated all": ({"a": 60_000}, "aaa", False),
    "another one's, and the coordinator dated all": ({"b": 60_000}, "aaa", False),
    "another one's, and it dated all": ({"b": -60_000}, "bbb", False),
    "both, by as much": ({"a": 60_000, "b": 60_000}, "aba", False),
    "another one's, and each dated some": ({"b": 60_000}, "abab", True),
}


@pytest.mark.parametrize("name", STEPPED)
def test_heartbeats_are_divided_by_the_clock_that_dated_them(name, monkeypatch):
    """Those at 1 s and at 3 s by the coordinator's clock are divided at 2 s. One by one only if needed."""
    stepped, brokers, one_by_one = STEPPED[name]
    memory, made = ShardMemory(), []
    memory.clock.coordinator = "a"
    for broker in "ab":
        memory.clock.restart_reading(broker, stepped.get(broker, 0))
    beats = [
        heartbeat(at_ms + memory.clock.apart_ms(broker), at_ms + n, broker)
        for at_ms in (1_000, 3_000)
        for n, broker in enumerate(brokers)
    ]
    rows = HeartbeatBlock.rows
    monkeypatch.setattr(HeartbeatBlock, "rows", lambda block: made.append(block) or rows(block))
    part = hold_back(memory, Part(None, HeartbeatBlock.of_events(sorted(beats)), [], [], {}), 2_000)
    monkeypatch.undo()
    assert [beat.offset // 1_000 for beat in part.heartbeats.rows()] == [1] * len(brokers)
    assert [beat.offset // 1_000 for beat in memory.held_heartbeats.rows()] == [3] * len(brokers)
    assert bool(made) == one_by_one

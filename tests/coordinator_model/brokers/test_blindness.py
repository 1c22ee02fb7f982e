"""When lines of a broker are missing: which windows are noted, who may have lived in them unseen, how they are told."""

import pytest

from coordinator_model.brokers.blindness import (
    APART_MS,
    LINES_LOST,
    MAX_WINDOWS,
    MEMORY_MS,
    BlindWindow,
    add_window,
    blind_windows,
    may_have_lived_until_ms,
    may_miss_lines,
)
from coordinator_model.decode.parse import parse_row
from coordinator_model.events import TELEMETRY_RANK, LeaderNamed, Tick
from coordinator_model.shard.batch import OffsetsRead
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import T0, stable


def window(from_ms, until_ms, broker="a"):
    return BlindWindow(broker, from_ms, until_ms, LINES_LOST)


def noted(*new):
    windows = []
    for each in new:
        add_window(windows, window(*each))
    return [(w.broker, w.from_ms, w.until_ms) for w in windows]


NOTED = {
    "one": ([(1_000, 2_000)], [("a", 1_000, 2_000)]),
    "two apart": ([(1_000, 2_000), (9_000, 9_500)], [("a", 1_000, 2_000), ("a", 9_000, 9_500)]),
    "two that adjoin": ([(1_000, 2_000), (2_000 + APART_MS, 4_000)], [("a", 1_000, 4_000)]),
    "one within another": ([(1_000, 9_000), (2_000, 3_000)], [("a", 1_000, 9_000)]),
    "one that began earlier": ([(9_000, 12_000), (5_000, 13_000)], [("a", 5_000, 13_000)]),
    "one of another broker": ([(1_000, 2_000), (1_500, 2_500, "b")], [("a", 1_000, 2_000), ("b", 1_500, 2_500)]),
    "one that is forgotten": ([(0, 10), (MEMORY_MS + 20, MEMORY_MS + 30)], [("a", MEMORY_MS + 20, MEMORY_MS + 30)]),
}


@pytest.mark.parametrize("name", NOTED)
def test_a_window_is_noted(name):
    new, windows = NOTED[name]
    assert noted(*new) == windows


def test_windows_without_end_do_not_fill_the_memory():
    assert len(noted(*((n * 10_000, n * 10_000 + 10) for n in range(MAX_WINDOWS * 3)))) == MAX_WINDOWS


@pytest.mark.parametrize(("from_ms", "until_ms", "blind"), [(0, 1_000, False), (0, 1_001, True), (2_000, 3_000, False)])
def test_a_span_is_blind_if_a_window_overlaps_it(from_ms, until_ms, blind):
    assert may_miss_lines([window(1_000, 2_000)], from_ms, until_ms) is blind


# windows; heard at 1,000, a heartbeat at least every 3,000 -> until when it may have lived unseen
UNSEEN = {
    "no window: it was silent in sight": ([], 1_000),
    "a window before it was heard": ([(0, 900)], 1_000),
    "the next heartbeat may be in it": ([(3_500, 6_000)], 6_000),
    "that window comes too late": ([(4_001, 6_000)], 1_000),
    "from one window to the next": ([(3_500, 6_000), (8_000, 9_500)], 9_500),
    "not over a stretch in which it would have been heard": ([(3_500, 6_000), (9_001, 9_500)], 6_000),
    "beyond the end nobody asks": ([(3_500, 60_000)], 10_000),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_member_may_have_lived_unseen(name):
    windows, until_ms = UNSEEN[name]
    assert may_have_lived_until_ms([window(*w) for w in windows], 1_000, 3_000, 10_000) == until_ms


def told(from_ms, until_ms, broker="a", cluster="c"):
    return {"cluster": cluster, "broker": broker, "from_ms": from_ms, "until_ms": until_ms, "why": LINES_LOST}


TOLD = {
    "still open": ([told(1, None)], [(1, None)]),
    "its end is told later": ([told(1, None), told(1, 9)], [(1, 9)]),
    "or before": ([told(1, 9), told(1, None)], [(1, 9)]),
    "two shards tell of one": ([told(1, 9), told(3, 12)], [(1, 12)]),
    "one that comes later ends an open one": ([told(1, None), told(30, 42)], [(1, 42)]),
    "another broker's does not": ([told(1, None), told(30, 42, "b")], [(1, None), (30, 42)]),
    "another broker's": ([told(1, 9), told(3, 12, "b")], [(1, 9), (3, 12)]),
    "another cluster's": ([told(1, 9), told(3, 12, cluster="d")], [(1, 9), (3, 12)]),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_shards_tell_becomes_windows(name):
    rows, windows = TOLD[name]
    assert [(w["from_ms"], w["until_ms"]) for w in blind_windows(rows)] == windows


def test_a_replay_tells_when_lines_were_missing():
    story = stable("m1").beats("m1", 1_000, 30_000)
    story.jumps.append(11_000)
    [blind] = story.play(30_000).history.blind
    assert (blind["broker"], blind["why"]) == ("broker-1", LINES_LOST)
    assert blind["until_ms"] - blind["from_ms"] == 500


def test_a_silence_of_telemetry_is_told_as_no_lines():
    story = stable("m1").beats("m1", 1_000, 10_000).beats("m1", 40_000, 60_000).silent(10_000, 40_000)
    [blind] = story.play(60_000).history.blind
    assert (blind["broker"], blind["why"]) == ("broker-1", "no lines")
    assert 29_000 <= blind["until_ms"] - blind["from_ms"] <= 30_500


def test_the_silence_of_a_coordinator_is_its_own_though_another_answers_after_it():
    """It was told open for ever of the one, and ended of the other, which had been heard all along."""
    story = stable("m1").beats("m1", 1_000, 10_000).silent(10_000, 90_000)
    story.brokers["broker-2"] = 0
    story.broker = "broker-2"
    story.beat(40_000, "m1", error=14).beats("m1", 41_000, 60_000)
    events = [event for row in story.source_rows(60_000) for event in parse_row(row)]
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=0), None)
    told = []
    for start_ms in range(0, 60_001, 5_000):
        batch = [event for event in events if start_ms <= event[0] - T0 < start_ms + 5_000]
        told += shard.apply(batch, wall_ms=T0 + start_ms + 5_000)
    windows = [(o["broker"], o["from_ms"] - T0, o["until_ms"]) for o in told if o["kind"] == "blind"]
    assert {broker for broker, _, _ in windows} == {"broker-1"}
    assert [until_ms is None for _, _, until_ms in windows] == [True, False]


@pytest.mark.parametrize(("has_group", "blind"), [(False, []), (True, [T0 + 9_000])], ids=["no group", "a group"])
def test_lines_that_a_shard_without_groups_was_not_told_of_are_not_lost(has_group, blind):
    """It is told of lines in those batches only in which something comes for it: a client that is in no group."""
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=0), None)
    if has_group:
        shard.apply([event for row in stable("m1").source_rows(900) for event in parse_row(row)], wall_ms=T0 + 900)
    outputs = []
    for number, at_ms in ((10, T0 + 1_000), (20, T0 + 9_000)):
        leader = LeaderNamed(at_ms, TELEMETRY_RANK, "", 0, at_ms, "", 1, "broker-1", ())
        tick = Tick(at_ms, TELEMETRY_RANK, "lines", 0, number, "", "broker-1", number)
        outputs += shard.apply([leader, tick], wall_ms=at_ms + 100, read=[OffsetsRead("lines", 0, number, number)])
    assert [output["until_ms"] for output in outputs if output.get("why") == LINES_LOST] == blind


@pytest.mark.parametrize("has_member", [False, True], ids=["no member", "a member"])
def test_a_broker_is_uncovered_only_where_members_wait_for_its_lines(has_member):
    """Nobody would ever end the timer reset of a shard without members: not one heartbeat is answered in it."""
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=0), None)
    if has_member:
        rows = stable("m1").beats("m1", 1_000, 3_000).source_rows(3_000)
        shard.apply([event for row in rows for event in parse_row(row)], wall_ms=T0 + 3_000)
    outputs = []
    for number, at_ms in ((10, T0 + 4_000), (20, T0 + 12_000)):
        leader = LeaderNamed(at_ms, TELEMETRY_RANK, "", 0, at_ms, "", 1, "broker-1", ())
        tick = Tick(at_ms, TELEMETRY_RANK, "lines", 0, number, "", "broker-1", number)
        outputs = shard.apply([leader, tick], wall_ms=at_ms, read=[OffsetsRead("lines", 0, number, number)])
    [told] = [output["brokers"]["broker-1"]["covered"] for output in outputs if output["kind"] == "progress"]
    assert shard.clock.waiting
    assert told == (not has_member)


def test_a_held_line_of_a_shard_without_groups_proves_no_lost_lines():
    """The newest line of the faster broker waits for the other's; it is applied when the shard is called again."""
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=0), None)

    def batch(at_ms, number):
        leader = LeaderNamed(at_ms, TELEMETRY_RANK, "", 0, at_ms, "", 1, "broker-1", ())
        slower = Tick(at_ms, TELEMETRY_RANK, "lines", 1, number, "", "broker-2", None)
        ticks = [
            Tick(at_ms + more, TELEMETRY_RANK, "lines", 0, number + more, "", "broker-1", number + more)
            for more in (0, 1)
        ]
        return shard.apply([leader, slower, *ticks], wall_ms=at_ms + 100)

    assert not [
        output
        for at_ms in (1_000, 6_000, 11_000)
        for output in batch(T0 + at_ms, at_ms)
        if output.get("why") == LINES_LOST
    ]

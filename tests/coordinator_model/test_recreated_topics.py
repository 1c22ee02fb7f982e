"""Offsets of a topic that was recreated or cut short begin again, and nothing of that is a duplicate."""

import pytest

from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.capture_replay import MAX_RECREATED, replay_rows
from coordinator_model.decode.parse import parse_row
from coordinator_model.recreated import Place, begins_again_ms
from coordinator_model.shard.batch import OffsetsRead
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.states import Cause
from tests.support.story import T0, stable

SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=0)
LINES = ("lines-of-broker-1", 0)
YEAR_2100_MS = 4_102_444_800_000
ACCUSING = ("session-expired", "rebalance-timeout", "poll-exceeded")


def dying(until_ms=60_000):
    """m2 is heard for the last time at 40 s."""
    return stable("m1", "m2").beats("m1", 1_000, until_ms).beats("m2", 1_400, 40_400)


def recreated(rows, at_ms, first=0, topics=("lines-of-broker-1",)):
    """The rows as they lie where their topics were recreated at an instant, or cut down to an offset."""
    again, begins = [], {}
    for row in rows:
        if row.topic in topics and row.timestamp_ms - T0 >= at_ms:
            begin = begins.setdefault(row.topic, row.offset)
            again.append(row._replace(offset=row.offset - begin + first))
        else:
            again.append(row)
    return again


def dated(row, misdated_ms):
    misdated = row.topic == "__consumer_offsets" and row.timestamp_ms - T0 == misdated_ms
    return row._replace(timestamp_ms=YEAR_2100_MS) if misdated else row


def live(rows, *, restore=False, read=False, twice=False, misdated_ms=None):
    """Outputs of a run that reads the rows in batches of a second; `twice`: each batch comes again.

    What was written to the offsets topic at `misdated_ms` is dated 2100.
    """
    shard, outputs, batches = Shard.restore(0, SETTINGS, None), [], {}
    for row in rows:
        batches.setdefault((row.timestamp_ms - T0) // 1_000, []).append(row)
    for second, batch in sorted(batches.items()):
        lines = [row for row in batch if (row.topic, row.partition) == LINES]
        reads = [OffsetsRead(*LINES, lines[0].offset, lines[-1].offset)] if read and lines else []
        for _ in range(1 + twice):
            events = [event for row in batch for event in parse_row(dated(row, misdated_ms))]
            wall_ms = T0 + second * 1_000 + 1_200
            outputs += shard.apply(events, wall_ms=wall_ms, read=reads)
            if restore:
                shard = Shard.restore(0, SETTINGS, shard.dump())
    return outputs, shard


def found(outputs, *rules):
    findings = [f for o in outputs if o["kind"] == "report" for f in o["findings"]]
    return {(f["rule"], f["subject"]) for f in findings if f["rule"] in rules}


def counted(outputs, name):
    return sum(o["counts"].get(name, 0) for o in outputs if o["kind"] == "progress")


@pytest.mark.parametrize("first", [0, 10], ids=["recreated", "cut"])
@pytest.mark.parametrize("restore", [False, True], ids=["", "with restarts"])
def test_a_death_after_its_telemetry_topic_begins_again_is_told(first, restore):
    outputs, shard = live(recreated(dying().source_rows(60_000), 20_000, first), restore=restore)
    assert found(outputs, *ACCUSING) == {("session-expired", "m2")}
    assert counted(outputs, "duplicates") == 0
    assert shard.clock.covered_since_ms == T0 + 20_000


def test_lines_that_come_again_are_duplicates_still_before_and_after():
    outputs, _ = live(recreated(dying().source_rows(60_000), 20_000), twice=True)
    events = [event for row in dying().source_rows(60_000) for event in parse_row(row)]
    assert counted(outputs, "duplicates") == len(events)
    assert found(outputs, *ACCUSING) == {("session-expired", "m2")}


def test_a_recreated_topic_is_lost_lines_and_no_pause():
    story = stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_400, 20_000).silent(20_000, 40_000)
    story.beats("m1", 40_000, 60_000).beats("m2", 40_400, 60_000)
    outputs, shard = live(recreated(story.source_rows(60_000), 30_000))
    assert found(outputs, "coordinator-paused", *ACCUSING) == set()
    assert [restart.cause for restart in shard.clock.timer_resets] == [Cause.UNKNOWN]


def test_retention_that_passed_what_had_not_been_read_is_lost_lines():
    rows = dying().source_rows(60_000)
    missing = [row for row in rows if not (row.topic == LINES[0] and 10_000 <= row.timestamp_ms - T0 < 30_000)]
    outputs, shard = live(missing, read=True)
    assert [restart.cause for restart in shard.clock.timer_resets] == [Cause.UNKNOWN]
    assert shard.clock.covered_since_ms == T0 + 30_000
    assert found(outputs, "coordinator-paused", *ACCUSING) == {("session-expired", "m2")}
    outputs, shard = live(rows, read=True)
    assert shard.clock.timer_resets == []


def test_lines_deleted_by_retention_are_no_coordinator_pause():
    """The run was away meanwhile; without the offsets the hole looks like a broker that stood still."""
    story = stable("m1", "m2").beats("m1", 1_000, 90_000).beats("m2", 1_400, 90_000)
    rows = story.silent(9_900, 70_000, restart=True).source_rows(90_000)
    missing = [row for row in rows if not (row.topic == LINES[0] and 10_000 <= row.timestamp_ms - T0 < 70_000)]
    for read, cause in ((False, Cause.COORDINATOR_PAUSE), (True, Cause.UNKNOWN)):
        _, shard = live(missing, read=read)
        assert [restart.cause for restart in shard.clock.timer_resets] == [cause]


def test_records_that_begin_again_are_read():
    story = stable("m1").beats("m1", 1_000, 30_000).record(20_000, 2, "m1", "m3")
    outputs, shard = live(recreated(story.source_rows(30_000), 15_000, topics=("__consumer_offsets",)))
    [group] = shard.views()
    assert [member["member_id"] for member in group["members"]] == ["m1", "m3"]
    assert counted(outputs, "duplicates") == 0


def test_a_record_and_a_commit_from_the_future_hide_nothing_that_begins_again():
    story = stable("m1").beats("m1", 1_000, 30_000).record(10_000, 2, "m1").commit(10_000, "t", 0)
    story.record(20_000, 3, "m1", "m3").commit(21_000, "t", 0)
    rows = recreated(story.source_rows(30_000), 15_000, topics=("__consumer_offsets",))
    outputs, shard = live(rows, misdated_ms=10_000)
    [group] = shard.views()
    assert [member["member_id"] for member in group["members"]] == ["m1", "m3"]
    assert counted(outputs, "duplicates") == 0


def test_a_gap_is_a_loss_of_those_brokers_only_that_write_to_the_partition():
    clock = CoordinatorTracker()
    clock.read("a", "t/0", 1_000)
    clock.read("b", "t/1", 1_000)
    assert (clock.brokers["a"].lost_to_ms, clock.brokers["b"].lost_to_ms) == (0, 0)
    clock.lost_lines("a", 2_000, 1_000)
    assert (clock.brokers["a"].lost_to_ms, clock.brokers["b"].lost_to_ms) == (2_000, 0)


# ------------------------------------------------------------------------------------------------ in a replay


@pytest.mark.parametrize("order", ["as written", "back to front"])
@pytest.mark.parametrize("first", [0, 10], ids=["recreated", "cut"])
def test_a_replay_reads_a_recreated_topic_too(first, order):
    rows = recreated(dying().source_rows(60_000), 20_000, first)
    history = replay_rows(rows if order == "as written" else rows[::-1], SETTINGS)
    told = [(t.incident.rule, t.incident.subject) for t in history.transitions if t.incident.rule in ACCUSING]
    assert told == [("session-expired", "m2")]
    assert history.rows == len(rows)


def test_a_replay_reads_a_topic_that_was_recreated_twice():
    rows = recreated(recreated(dying().source_rows(60_000), 15_000), 30_000)
    history = replay_rows(rows, SETTINGS)
    assert [t.incident.subject for t in history.transitions if t.incident.rule in ACCUSING] == ["m2"]
    assert history.rows == len(rows)


def test_a_capture_of_one_stretch_over_and_over_costs_a_bounded_number_of_passes():
    rows = [row for row in dying(4_000).source_rows(4_000) if row.topic == LINES[0]][:20]
    again = [
        row._replace(timestamp_ms=row.timestamp_ms + number * 10_000)
        for number in range(2 * MAX_RECREATED)
        for row in rows
    ]
    assert replay_rows(again, SETTINGS).rows == len(rows) * (MAX_RECREATED + 1)


def test_a_replay_leaves_out_what_lies_there_twice_also_with_another_instant():
    rows = dying().source_rows(60_000)
    again = [row._replace(timestamp_ms=row.timestamp_ms + 5_000) for row in rows[20:60]]
    history = replay_rows([*rows, *rows, *again], SETTINGS)
    assert [t.incident.subject for t in history.transitions if t.incident.rule in ACCUSING] == ["m2"]
    assert history.rows == len(rows)


def at(*pairs):
    return {offset: Place(offset, at_ms, "b") for offset, at_ms in pairs}


# rows by offset and instant, and others at those offsets -> when they begin again
CASES = {
    "nothing comes again": (at((0, 1), (1, 2)), [], None),
    "all comes again, later": (at((0, 1), (1, 2), (2, 3)), at((0, 11), (1, 12), (2, 13)), 11),
    "all came before": (at((0, 11), (1, 12), (2, 13)), at((0, 1), (1, 2), (2, 3)), 11),
    "a longer topic after a shorter one": (at(*((n, n) for n in range(3)), (3, 14)), at((0, 11), (1, 12), (2, 13)), 11),
    "one row with a wrong instant": (at((0, 1), (1, 2), (2, 3), (3, 4)), at((1, 4)), None),
    "a stretch sent again, while others come": (at(*((n, n) for n in range(9))), at((2, 5), (3, 6), (4, 7)), None),
}


@pytest.mark.parametrize("case", CASES)
def test_offsets_begin_again(case):
    first, again, begins_ms = CASES[case]
    assert begins_again_ms(first, again.values() if again else []) == begins_ms

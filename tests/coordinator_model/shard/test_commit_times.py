"""Offset commits in a shard: signs of life by partition, simple groups that begin and end with them, what waits."""

from dataclasses import replace

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.commit_block import NO_OFFSET, CommitBlock, key_of, place_of
from coordinator_model.decode.parse import parse_row
from coordinator_model.events import OffsetCommitted, RecordRead, Tick
from coordinator_model.shard.commit_times import COMMIT_MEMORY_MS, SWEEP_EVERY_MS
from coordinator_model.shard.event_loop import EventLoop
from coordinator_model.shard.intake import CREDIBLE_COMMIT_MS
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.coordinator_model.brokers.test_line_clocks import MINUTE_MS, Lived
from tests.support.records import commit_key
from tests.support.story import T0, Story, Who, stable

SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=T0, view_refresh_ms=0)


def commit(offset, at_ms, group="batch", partition=0, *, gone=False):
    head = (T0 + at_ms, 0, "__consumer_offsets", 0, offset)
    return OffsetCommitted(*head, group, "t", partition, gone, committed_offset=offset)


def tick(at_ms, offset=0):
    return Tick(T0 + at_ms, 1, "lines", 0, offset, "", "broker-1", None)


def restored(shard, **how):
    return Shard.restore(0, SETTINGS, shard.dump(), **how)


def apply(shard, *events, as_block=False, **how):
    if not as_block:
        return shard.apply(events, **how)
    commits = [event for event in events if isinstance(event, OffsetCommitted)]
    others = [event for event in events if not isinstance(event, OffsetCommitted)]
    return shard.apply(others, commits=[CommitBlock.of_events(commits)], **how)


def times_of(shard, group="batch"):
    times = shard._groups.commit_times
    placed = {place_of(key): times.last[slot] - T0 for key, slot in times.slots.items()}
    return {place[2]: at_ms for place, at_ms in placed.items() if place[0] == group}


@pytest.mark.parametrize("as_block", [False, True])
def test_the_newest_commit_of_a_partition_is_a_sign_of_life(as_block):
    shard = Shard.restore(0, SETTINGS, None)
    apply(shard, commit(0, 100), commit(1, 300, partition=1), commit(2, 250), as_block=as_block)
    apply(shard, commit(3, 900, partition=1), commit(4, 200), as_block=as_block)
    assert times_of(shard) == times_of(restored(shard)) == {0: 250, 1: 900}
    apply(shard, commit(5, 950, gone=True), as_block=as_block)
    assert times_of(shard) == times_of(restored(shard)) == {1: 900}
    assert shard._groups.commit_times.of_group("batch", T0 + 1_000).get(("t", 1)) == T0 + 900
    assert shard._groups.commit_times.of_group("batch", T0 + 1_000).get(("t", 0)) is None


@pytest.mark.parametrize("as_block", [False, True])
def test_commits_that_are_ahead_of_the_lines_wait_and_are_kept_meanwhile(as_block):
    shard = Shard.restore(0, SETTINGS, None)
    outputs = apply(
        shard, tick(1_000), commit(0, 900), commit(1, 1_100), commit(2, 1_500, partition=1), as_block=as_block
    )
    assert (times_of(shard), outputs[-1]["held"]) == ({0: 900}, 2)
    shard = restored(shard)
    outputs = apply(shard, tick(1_200, 1), as_block=as_block)
    assert (times_of(shard), outputs[-1]["held"]) == ({0: 1_100}, 1)
    apply(shard, final=True)
    assert times_of(shard) == {0: 1_100, 1: 1_500}


@pytest.mark.parametrize("behind_ms", [0, CREDIBLE_COMMIT_MS // 2])
def test_a_commit_from_the_far_future_is_counted_and_not_held(behind_ms):
    """It would be held until its instant has come. A job that is behind holds what is new by this machine's clock."""
    shard, wall_ms = Shard.restore(0, SETTINGS, None), T0 + 1_000 + behind_ms
    far, near = commit(1, 1_000 + behind_ms + CREDIBLE_COMMIT_MS + 1), commit(2, 1_000 + behind_ms + CREDIBLE_COMMIT_MS)
    outputs = apply(shard, tick(1_000), commit(0, 900, partition=1), far, near, wall_ms=wall_ms)
    assert (outputs[-1]["counts"]["commits_from_the_future"], outputs[-1]["held"]) == (1, 1)
    shard = restored(shard)
    outputs = apply(shard, tick(1_200, 1), wall_ms=wall_ms + 200)
    assert ("commits_from_the_future" in outputs[-1]["counts"], outputs[-1]["held"]) == (False, 1)
    assert times_of(shard) == {1: 900}


def test_a_capture_knows_no_present_and_holds_all_commits_until_its_end():
    shard = Shard.restore(0, SETTINGS, None)
    outputs = apply(shard, tick(1_000), commit(0, 1_000 + 2 * CREDIBLE_COMMIT_MS))
    assert outputs[-1]["held"] == 1
    apply(shard, final=True)
    assert times_of(shard) == {0: 1_000 + 2 * CREDIBLE_COMMIT_MS}


@pytest.mark.parametrize("as_block", [False, True])
def test_commits_that_come_again_change_nothing(as_block):
    """A tombstone is not undone by the commit before it."""
    shard, first = (
        Shard.restore(0, SETTINGS, None),
        [commit(0, 100), commit(1, 200, gone=True), commit(2, 300, partition=1)],
    )
    apply(shard, *first, as_block=as_block)
    told = apply(restored(shard), *first, commit(3, 400, partition=1), as_block=as_block)
    assert told[-1]["counts"]["duplicates"] == 3
    assert times_of(shard) == {1: 300}


def test_commits_of_a_topic_that_begins_again_are_new():
    shard = Shard.restore(0, SETTINGS, None)
    apply(shard, commit(500, 100), commit(501, 200))
    apply(shard, commit(0, 300), commit(1, 400))
    apply(shard, commit(2, 400, partition=1))
    assert times_of(shard) == {0: 400, 1: 400}


@pytest.mark.parametrize("as_block", [False, True])
def test_a_group_without_members_begins_with_its_first_commit_and_ends_with_its_last(as_block):
    """Before Kafka 4.0 no tombstone of such a group is written: the coordinator forgets it with its last offset."""
    shard = Shard.restore(0, SETTINGS, None)
    apply(shard, commit(0, 100), commit(1, 200, partition=1), as_block=as_block)
    [view] = shard.views()
    assert (view["group"], view["type"], view["state"]) == ("batch", "simple", "Empty")
    shard = restored(shard)
    apply(shard, commit(2, 300, gone=True), as_block=as_block)
    assert [view["group"] for view in shard.views()] == ["batch"]
    outputs = apply(restored(shard), commit(3, 400, partition=1, gone=True), as_block=as_block)
    assert [(o["group"], o["deleted"]) for o in outputs if o["kind"] == "report"] == [("batch", True)]
    apply(shard, commit(3, 400, partition=1, gone=True), as_block=as_block)
    assert shard.views() == []
    apply(shard, commit(4, 500), as_block=as_block)
    assert [view["incarnation"] for view in shard.views()] == [1]


def test_a_commit_of_a_simple_group_long_ago_keeps_it():
    """Its partitions are kept however old their commits are: the one that is left ends it."""
    shard, day_ms = Shard.restore(0, replace(SETTINGS, live_from_ms=T0 + 86_400_000), None), 86_400_000
    shard.apply([commit(0, 0), commit(1, 0, partition=1), tick(day_ms)])
    assert times_of(shard) == {}
    shard = Shard.restore(0, shard.settings, shard.dump())
    shard.apply([commit(2, day_ms, gone=True)])
    assert len(shard.views()) == 1
    shard.apply([commit(3, day_ms, partition=1, gone=True)])
    assert shard.views() == []


OF_AN_HOUR_AGO = {
    "classic": Story().commit(10, "t", 0).record(20, 1, "m1").commit(30, "t", 1).commit(40, "t", 0),
    "empty": Story().commit(10, "t", 0).record(20, 0).commit(30, "t", 1),
    "no member is left": Story().commit(10, "t", 0).record(20, 1, "m1").record(30, 2).commit(40, "t", 1),
    "KIP-848": Story()
    .commit(10, "t", 0)
    .member(20, "m1")
    .epoch(20, 1)
    .target(20, 1)
    .current(20, "m1", 1)
    .commit(40, "t", 1),
    "deleted": Story().commit(10, "t", 0).record(20, 1, "m1").deleted(30).commit(40, "t", 0),
    "simple": Story().commit(10, "t", 0).commit(20, "t", 1).commit(30, "t", 2),
    "ended": Story().commit(10, "t", 0).uncommit(20, "t", 0).record(30, 1, "m1").commit(40, "t", 1),
}


@pytest.mark.parametrize("name", OF_AN_HOUR_AGO)
def test_old_commits_beside_the_records_of_their_group_change_nothing(name, monkeypatch):
    """In one batch, or divided into two at any place, groups are the same as if every commit were applied."""
    rows = OF_AN_HOUR_AGO[name].source_rows(100)
    events = [event for row in rows for event in parse_row(row) if isinstance(event, OffsetCommitted | RecordRead)]
    settings = replace(SETTINGS, live_from_ms=T0 + 3_600_000)

    def known(first):
        shard = Shard.restore(0, settings, None)
        for batch in (events[:first], events[first:]):
            shard.apply(batch, wall_ms=settings.live_from_ms)
        return shard.views(), shard.memory.deleted, shard._groups.commit_times.simple, shard.clock.progress_ms

    found = list(map(known, range(len(events))))
    monkeypatch.setattr(EventLoop, "_commits_that_tell", lambda _, part: part.commits)
    assert found == list(map(known, range(len(events))))


def test_old_commits_of_a_deleted_group_begin_a_simple_group():
    rows = Story().record(100, 1, "m1").deleted(200).source_rows(300)
    records = [event for row in rows for event in parse_row(row) if isinstance(event, RecordRead)]
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply([*records, commit(8, 2_000)], wall_ms=T0 + 3_000)
    assert [*shard.memory.deleted] == ["orders"]
    shard.apply([commit(9 + n, n - 3_600_000, "orders", n) for n in range(3)], wall_ms=T0 + 3_000)
    assert {place_of(key)[2] for key in shard._groups.commit_times.simple["orders"]} == {0, 1, 2}


def test_a_group_that_gets_members_does_not_end_with_its_commits():
    story = stable("m1").commit(200, "t", 0).write(300, commit_key("orders", "t", 0), None)
    history = replay_rows(story.source_rows(5_000), SETTINGS)
    assert [group["state"] for group in history.groups] == ["Stable"]


def test_a_tombstone_of_a_group_that_is_not_known_makes_none():
    shard = Shard.restore(0, SETTINGS, None)
    outputs = shard.apply([commit(0, 100, gone=True)])
    assert (shard.views(), outputs[-1]["counts"]["unknown_group"]) == ([], 1)


def test_a_commit_matters_for_as_long_whether_it_was_swept_or_not():
    """A replay does not sweep, and judges like a live run."""
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply([commit(0, 0)])
    told = [shard._groups.commit_times.of_group("batch", T0 + at_ms).get(("t", 0)) for at_ms in (1, COMMIT_MEMORY_MS)]
    assert told == [T0, None]


def test_a_commit_extends_a_session_of_twenty_minutes():
    story = stable(Who("m1", partitions=(0,)), Who("m2", partitions=(1,)), session_ms=20 * MINUTE_MS)
    story.beats("m1", 1_000, 23 * MINUTE_MS, every_ms=3_000).beats("m2", 1_000, 10_000).commit(MINUTE_MS, "t", 1)
    lived = Lived(story, 23 * MINUTE_MS, batch_ms=MINUTE_MS, restore=True)
    assert [incident.deadline_ms - T0 for incident in lived.of("session-expired")] == [21 * MINUTE_MS]


def test_commits_that_are_no_signs_of_life_any_more_are_swept_now_and_then():
    shard, newest_ms = Shard.restore(0, SETTINGS, None), COMMIT_MEMORY_MS - 1
    for offset, at_ms in enumerate((newest_ms, newest_ms + SWEEP_EVERY_MS - 1)):
        shard.apply([commit(2 * offset, 0), commit(2 * offset + 1, at_ms, partition=1)])
        shard.dump()
        assert times_of(shard) == {0: 0, 1: at_ms}
    shard.apply([commit(4, newest_ms + SWEEP_EVERY_MS, partition=2)])
    assert times_of(restored(shard)) == {1: newest_ms + SWEEP_EVERY_MS - 1, 2: newest_ms + SWEEP_EVERY_MS}
    assert len(shard.views()) == 1


def test_the_index_stays_the_same_bytes_while_no_partition_is_new():
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply([commit(0, 0), commit(1, 10, partition=1)])
    before = shard.dump()
    shard.apply([commit(2, 20), commit(3, 30, partition=1)])
    after = shard.dump()
    assert after[6] is before[6]
    assert after[5] != before[5]
    shard.apply([commit(4, 40, partition=2)])
    assert shard.dump()[6] != before[6]


def test_a_copy_that_knows_the_partitions_takes_only_their_instants_from_the_state():
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply([commit(0, 0)])
    old = restored(shard)
    shard.apply([commit(1, 500)])
    new = restored(shard, reuse_from=old)
    assert new._groups.commit_times.slots is old._groups.commit_times.slots
    assert times_of(new) == {0: 500}


def test_commits_move_with_the_coordinators_clock():
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply([commit(0, 100)])
    shard._groups.rebase(3_600_000, T0 + 1_000)
    assert times_of(shard) == {0: 3_600_100}


@pytest.mark.parametrize("group", ["", "g", "ü\0\U0001f480", "x" * 32_767, "�" * 30_000])
def test_a_key_can_be_made_of_any_text(group):
    """Bytes that are no UTF-8 read as text are longer than they were: such a key is cut, and still whole."""
    assert place_of(key_of(group, "t", -1)) in ((group, "t", -1), (group[:10_922] + "�", "t", -1))


def test_what_a_hostile_commit_says_is_no_tombstone():
    block = CommitBlock.of_events([commit(0, 0)._replace(committed_offset=NO_OFFSET)])
    assert list(block.offsets) == [NO_OFFSET + 1]
    assert CommitBlock.of_events([commit(0, 0, gone=True)]).offsets[0] == NO_OFFSET
    assert CommitBlock.of_tuple(block.as_tuple()) == block

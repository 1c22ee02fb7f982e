"""A shard's batches: order, holding back, duplicates, catching up, and what a long silence costs."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from coordinator_model.brokers.gone_brokers import GONE_MS
from coordinator_model.decode.parse import parse_row
from coordinator_model.events import TELEMETRY_RANK, LeaderNamed
from coordinator_model.shard import group_judgement
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.thresholds import Thresholds
from tests.support.story import T0, Story, Who, consumers, rebalance, stable

SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=T0)


def events_until(story, at_ms):
    return [event for row in story.source_rows(at_ms) for event in parse_row(row)]


def findings(outputs, rule="session-expired"):
    return {f["subject"] for o in outputs if o["kind"] == "report" for f in o["findings"] if f["rule"] == rule}


def progress(outputs):
    return next(o for o in reversed(outputs) if o["kind"] == "progress")


def dying():
    return stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_000, 8_000)


def test_the_order_of_a_batch_does_not_matter():
    events = events_until(dying(), 20_000)
    random.Random(1).shuffle(events)
    assert findings(Shard.restore(0, SETTINGS, None).apply(events)) == {"m2"}


def test_rows_that_come_again_in_a_later_batch_are_counted_and_left_out():
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply(events_until(dying(), 5_000))
    assert progress(shard.apply(events_until(dying(), 5_000)))["counts"] == {
        "duplicates": len(events_until(dying(), 5_000))
    }


def test_rows_twice_in_one_batch_make_no_second_incident_of_a_poll():
    """A leave row twice, then the join on its connection twice: one slept-over poll, over once it is back."""
    story = stable("m1", "m2", poll_ms=3_000).beats("m1", 1_000, 9_000).beats("m2", 1_000, 3_000).leave(3_500, "m2")
    rebalance(story.beat(4_500, "m1", error=27), 5_000, 2, "m1", Who("m2-again", client_id="client-m2", port=5_001))
    events = events_until(story, 9_000)
    once = Shard.restore(0, SETTINGS, None).apply(events, final=True)
    twice = Shard.restore(0, SETTINGS, None).apply([*events, *events], final=True)
    told = [[f["closed_reason"] for o in outputs for f in o.get("findings", [])] for outputs in (once, twice)]
    assert told[0] == told[1] != []


def test_what_is_newer_than_the_slowest_broker_waits_at_most_hold_ms():
    story = dying()
    story.brokers["broker-2"] = 0
    story.silent(4_000, 99_000, "broker-2")
    for until_ms, held in ((4_000, False), (8_000, True), (13_500, True), (15_000, False)):
        shard = Shard.restore(0, SETTINGS, None)
        out = progress(shard.apply(events_until(story, until_ms)))
        assert bool(out["held"]) == held
        assert out["at_ms"] - T0 >= until_ms - SETTINGS.thresholds.hold_ms


def test_records_that_are_read_late_hold_the_lines_back():
    out = progress(Shard.restore(0, SETTINGS, None).apply(events_until(dying(), 8_000), records_read_ms=T0 + 5_000))
    assert out["at_ms"] == T0 + 5_000
    assert out["held"] > 0


def test_catching_up_raises_nothing_that_was_decided_before():
    events = events_until(dying(), 20_000)
    late = Shard.restore(0, replace(SETTINGS, live_from_ms=T0 + 19_000), None).apply(events)
    assert findings(late) == findings(late, "session-at-risk") == set()


def test_what_a_restart_with_a_checkpoint_missed_is_raised():
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply(events_until(dying(), 5_000))
    after = Shard.restore(0, SETTINGS, shard.dump())
    assert findings(after.apply(events_until(dying(), 20_000))) == {"m2"}


def test_a_group_has_its_own_thresholds_or_those_of_all():
    settings = replace(SETTINGS, group_thresholds={"orders": Thresholds(grace_ms=7)}.get)
    assert [settings.thresholds_of(group).grace_ms for group in ("orders", "other")] == [7, 500]


def test_kip_848_timeouts_are_the_groups_else_the_brokers():
    story = consumers("m1", "m2").hellos("m1", 1_000, 60_000, 2).hellos("m2", 1_000, 8_000, 2)
    for timeouts, found in (
        ({"": 6_000}, {"m2"}),
        ({"orders": 6_000, "": 50_000}, {"m2"}),
        ({"": 55_000}, set()),
        ({}, set()),
    ):
        shard = Shard.restore(0, replace(SETTINGS, consumer_session_timeouts_ms=timeouts), None)
        assert findings(shard.apply(events_until(story, 20_000)), "session-at-risk") == found


def test_every_group_is_shown_again_within_the_refresh_period():
    story = stable("m1").beats("m1", 1_000, 40_000)
    shard, shown = Shard.restore(0, SETTINGS, None), []
    for at_ms in range(1_000, 40_000, 1_000):
        shown += [at_ms for o in shard.apply(events_until(story, at_ms)) if o["kind"] == "report"]
    assert [b - a for a, b in pairwise(shown[1:])] == [10_000] * (len(shown) - 2)


def test_heartbeats_of_a_calm_group_make_no_report():
    shard = Shard.restore(0, replace(SETTINGS, view_refresh_ms=0), None)
    shard.apply(events_until(dying(), 4_000))
    outputs = shard.apply(events_until(dying(), 7_000))
    assert [o["kind"] for o in outputs] == ["progress"]
    counts = progress(outputs)["counts"]
    assert counts["heartbeats"] + counts.get("Heartbeat", 0) == 6


@pytest.mark.timeout(60)
def test_an_hours_silence_of_the_broker_costs_no_more_than_a_seconds(monkeypatch):
    """Counted, not timed: how often a group is looked at while nobody knows anything."""
    looks, evaluate = [], group_judgement.evaluate

    def watched(*args):
        looks.append(args)
        return evaluate(*args)

    monkeypatch.setattr(group_judgement, "evaluate", watched)
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply(events_until(stable("m1", "m2").beats("m1", 1_000, 5_000).beats("m2", 1_000, 5_000), 5_000))
    looks.clear()
    late = Story().beat(3_605_000, "m1").beat(3_606_000, "m1").rows
    for offset, (_, _, row) in enumerate(late, start=10_000):
        shard.apply(parse_row(row._replace(offset=offset)))
    assert 0 < len(looks) < 20


def test_a_broker_has_a_delay_while_its_lines_come_and_none_while_it_is_silent():
    """`delay_ms` is how late a line came. How long none has come is told by `progress_ms`."""
    shard = Shard.restore(0, SETTINGS, None)
    events = events_until(dying(), 8_000)
    told = [shard.apply(batch, wall_ms=T0 + wall_ms) for batch, wall_ms in ((events, 8_100), ([], 188_000))]
    brokers = [progress(outputs)["brokers"]["broker-1"] for outputs in told]
    assert [broker["delay_ms"] for broker in brokers] == [8_100 - (brokers[0]["progress_ms"] - T0), None]
    assert brokers[0]["progress_ms"] == brokers[1]["progress_ms"]


def test_a_broker_that_left_the_cluster_is_no_longer_reported():
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply(events_until(dying(), 8_000), wall_ms=T0 + 8_100)
    shard.clock.read("gone", "t/0", T0 - 2 * GONE_MS)
    shard.clock.leadership.named_ms = T0
    assert progress(shard.apply([], wall_ms=T0 + 9_000))["brokers"].keys() == {"broker-1"}


def test_a_clock_that_stepped_is_forgotten_with_its_broker():
    """Later a broker of that name is a new one, so nothing else would end the finding."""
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply(events_until(dying(), 8_000), wall_ms=T0 + 8_100)
    shard.clock.read("gone", "t/0", T0 - 2 * GONE_MS)
    shard.memory.watch.stepped("gone", T0 - 2 * GONE_MS, -3_600_000, lasting=True)
    shard.apply([], wall_ms=T0 + 8_500)
    assert shard.memory.watch.clocks.keys() == {"gone"}
    shard.clock.leadership.named_ms = T0
    told = [output for output in shard.apply([], wall_ms=T0 + 9_000) if output["kind"] == "report"]
    assert [output["findings"] for output in told if not output["group"]] == [[]]
    assert shard.memory.watch.clocks == {}


def test_a_deleted_group_leaves_its_name_and_count_of_lives_only():
    story = stable("m1").beats("m1", 1_000, 3_000).deleted(4_000)
    shard = Shard.restore(0, SETTINGS, None)
    outputs = shard.apply(events_until(story, 6_000))
    assert [o["deleted"] for o in outputs if o["kind"] == "report"][-1]
    assert shard.views() == []
    assert progress(outputs)["members"] == 0


def test_metadata_is_read_after_this_machines_clock_was_set_back():
    """That clock was an hour ahead for a while. Then broker-2 takes over, and says nothing about the groups yet."""
    story = stable("m1").beats("m1", 1_000, 60_000)
    story.brokers["broker-2"] = 0
    shard, events = Shard.restore(0, SETTINGS, None), events_until(story, 60_000)
    for at_ms in range(2_000, 60_001, 2_000):
        wall_ms = T0 + at_ms + (3_600_000 if 10_000 <= at_ms < 20_000 else 0)
        leads = (1, "broker-1", ("broker-2",)) if at_ms < 30_000 else (2, "broker-2", ("broker-1",))
        leader = LeaderNamed(wall_ms, TELEMETRY_RANK, "", 0, wall_ms, "", *leads)
        shard.apply([*(e for e in events if at_ms - 2_000 < e.order_ms - T0 <= at_ms), leader], wall_ms=wall_ms)
    assert shard.clock.coordinator == "broker-2"

"""A failure of our own costs the group that it was on, for as long as its next record takes; nobody else anything."""

import base64

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.parse import parse_row
from coordinator_model.events import RecordRead
from coordinator_model.shard import group_events, group_judgement, group_store, snapshot
from coordinator_model.shard.event_loop import EventLoop
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import T0, Told, rebalance, stable

BAD, GOOD = "orders", "billing"
SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=T0, view_refresh_ms=1_000)


def two_groups(until_ms=20_000):
    """Both lose a member at 8 s: m2 of the bad group, b2 of the good one. At 5 s comes what the bad group fails on."""
    story = stable("m1", "m2").join(5_000, "m9", -1, error=79)
    story.beats("m1", 1_000, until_ms).beats("m2", 1_000, 8_000)
    story.group = GOOD
    rebalance(story, 100, 1, "b1", "b2").beats("b1", 1_000, until_ms).beats("b2", 1_000, 8_000)
    story.group = BAD
    return story


def fail_on(monkeypatch, name, when=lambda *_: True):
    """Let one of the functions fail on the bad group, as often as a condition holds."""
    module = group_events if name in ("replay", "judge") else group_judgement
    whole = getattr(module, name)

    def fails(subject, *more, **how):
        group = getattr(subject, "group", subject)
        if group == BAD and when(*more):
            raise ZeroDivisionError(f"{name} has failed")
        return whole(subject, *more, **how)

    monkeypatch.setattr(module, name, fails)


def at_5_s(event, *_):
    return event.order_ms == T0 + 5_000


def once(ms):
    """A condition that holds once: of what is replayed or judged, the first that is not before an instant."""
    met = []

    def holds(*given):
        instants_ms = [getattr(each, "order_ms", getattr(each, "progress_ms", 0)) for each in given]
        if met or max(instants_ms) < T0 + ms:
            return False
        met.append(given)
        return True

    return holds


def of_group(told, group):
    return [line for line in told.transitions if line["group"] == group]


FAILURES = {
    "an event is applied": ("replay", 5_000),
    "a group is judged": ("evaluate", 5_000),
    "a group that is due is judged": ("evaluate", 12_000),
    "removals are concluded": ("advance", 5_000),
    "a group is shown": ("view", 5_000),
    "a heartbeat is judged": ("judge", 1_000),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_group_that_fails_is_set_aside_and_its_neighbours_lose_nothing(name, monkeypatch):
    alone = two_groups().play(20_000, may_fail=True)
    failing, since_ms = FAILURES[name]
    fail_on(monkeypatch, failing, once(since_ms))
    told = two_groups().play(20_000, may_fail=True)
    assert of_group(told, GOOD) == of_group(alone, GOOD) != []
    assert [line["rule"] for line in of_group(told, BAD) if line["transition"] == "opened"][-1] == "group-set-aside"
    assert "session-expired" not in [line["rule"] for line in of_group(told, BAD)]
    [incident] = told.of("group-set-aside")
    assert (incident["severity"], incident["detail"]["error"]) == ("warn", "ZeroDivisionError")
    [shown] = [group for group in told.history.groups if group["group"] == BAD]
    assert (shown["state"], shown["members"]) == ("Unknown", [])
    assert told.history.undecodable["group: failed: ZeroDivisionError"] > 0


def test_the_next_record_begins_the_group_anew_and_it_is_over_after_a_while(monkeypatch):
    fail_on(monkeypatch, "replay", at_5_s)
    story = rebalance(two_groups(8_500), 9_000, 2, "m1", "m3").beats("m3", 10_000, 12_000, 2)
    told = story.beats("m1", 9_500, 120_000, 2).play(120_000, may_fail=True)
    assert told.facts("group-set-aside", "at_ms", "opened_ms") == [(5_000, 5_000)]
    assert told.closed("group-set-aside") == [("recovered", 69_040)]
    assert ("session-expired", "m3") in [(line["rule"], line["subject"]) for line in of_group(told, BAD)]
    assert [group["state"] for group in told.history.groups] == ["Stable", "Stable"]


def test_a_record_that_fails_again_and_again_makes_one_incident(monkeypatch):
    fail_on(monkeypatch, "replay", lambda event, _: isinstance(event, RecordRead) and event.order_ms > T0 + 5_000)
    story = two_groups(70_000)
    for second in range(6, 60):
        story.record(second * 1_000 + 40, second, "m1", "m2")
    told = story.play(70_000, may_fail=True)
    [incident] = told.of("group-set-aside")
    assert told.closed("group-set-aside") == []
    assert told.history.undecodable["group: failed: ZeroDivisionError"] == 54
    assert incident["opened_ms"] == T0 + 6_040


def test_until_its_record_nothing_else_makes_a_group_that_failed(monkeypatch):
    fail_on(monkeypatch, "replay", at_5_s)
    story = two_groups().commit(7_000, "t", 0).join(7_500, "m9", 5).hello(7_600, "m8", 0, 3).leave(7_700, "m1")
    told = story.play(20_000, may_fail=True)
    assert [line["rule"] for line in of_group(told, BAD)] == ["group-set-aside"]
    [shown] = [group for group in told.history.groups if group["group"] == BAD]
    assert shown["members"] == []


def test_open_incidents_outlive_a_group_that_is_set_aside(monkeypatch):
    """They stay open until the new replica shows how they ended."""
    fail_on(monkeypatch, "replay", lambda event, _: event.order_ms == T0 + 17_000)
    story = two_groups(14_000).beat(14_300, "m1", error=27)
    rebalance(story, 15_000, 2, "m1").join(17_000, "m9", -1, error=79)
    told = rebalance(story, 20_000, 3, "m1").beats("m1", 21_000, 120_000, 3).play(120_000, may_fail=True)
    told_of_m2 = [line for line in of_group(told, BAD) if line["rule"] == "session-expired"]
    assert [(line["transition"], line["at_ms"] - T0) for line in told_of_m2] == [("opened", 14_500), ("closed", 80_040)]
    assert told.facts("group-set-aside", "at_ms") == [(17_000,)]


def test_a_group_that_is_deleted_ends_what_was_told_of_its_failure(monkeypatch):
    fail_on(monkeypatch, "replay", at_5_s)
    told = two_groups().deleted(9_000).play(20_000, may_fail=True)
    assert [reason for reason, _ in told.closed("group-set-aside")] == ["group-deleted"]


# ------------------------------------------------------------------------------------------------ its state


def events_between(story, start_ms, end_ms):
    rows = [row for row in story.source_rows(end_ms) if row.timestamp_ms > T0 + start_ms]
    return [event for row in rows for event in parse_row(row)]


def played(story, until_ms):
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply(events_between(story, -1, until_ms))
    return shard


def reported(outputs, group):
    return [out for out in outputs if out["kind"] == "report" and out["group"] == group]


def quarantined(outputs):
    return [out for out in outputs if out["kind"] == "quarantine"]


def test_state_that_cannot_be_decoded_costs_its_group(monkeypatch):
    state = played(two_groups(), 5_000).dump()
    joined = snapshot.load_slices(state[4])
    joined[BAD] = joined[BAD][:-9] + b"?" * 9
    spoiled = (*state[:4], snapshot.dump_slices(joined), *state[5:])
    outputs = Shard.restore(0, SETTINGS, spoiled).apply(events_between(two_groups(), 5_000, 20_000))
    whole = Shard.restore(0, SETTINGS, state).apply(events_between(two_groups(), 5_000, 20_000))
    told = [finding["rule"] for out in reported(outputs, BAD) for finding in out["findings"]]
    assert set(told) == {"group-set-aside"}
    assert quarantined(outputs)
    same = [[out["findings"] for out in reported(each, GOOD)] for each in (outputs, whole)]
    assert same[0] == same[1] != []


def test_a_group_that_cannot_be_encoded_is_set_aside_and_the_others_are_kept(monkeypatch):
    shard = played(two_groups(), 5_000)
    outputs = shard.apply(events_between(two_groups(), 5_000, 5_500))
    whole, calls = group_store.snapshot.dump_group, []

    def fails(replica):
        calls.append(replica.group)
        if replica.group == BAD and calls.count(BAD) == 1:
            raise TypeError("not JSON")
        return whole(replica)

    monkeypatch.setattr(group_store.snapshot, "dump_group", fails)
    shard.group_store.replica(BAD)
    shard.group_store.touch(BAD)
    state = shard.dump()
    assert [out["reason"] for out in quarantined(outputs)] == ["failed: TypeError"]
    again = Shard.restore(0, SETTINGS, state)
    assert [view["state"] for view in again.views()] == ["Stable", "Unknown"]


def test_a_group_that_cannot_be_shown_is_told_by_the_outputs_before(monkeypatch):
    shard = played(two_groups(), 5_000)
    outputs = shard.apply(events_between(two_groups(), 5_000, 5_500))
    fail_on(monkeypatch, "view", lambda *_: True)
    assert [view["group"] for view in shard.views()] == [GOOD]
    assert next(out["reason"] for out in quarantined(outputs)) == "failed: ZeroDivisionError"


# ------------------------------------------------------------------------------------------------ what is kept of it


def test_the_event_is_kept_with_its_place_its_error_and_its_beginning(monkeypatch):
    fail_on(monkeypatch, "replay", lambda event, _: event.order_ms == T0 + 8_040)
    outputs = played(two_groups().record(8_040, 9, "m" * 30_000), 5_000).apply(
        events_between(two_groups().record(8_040, 9, "m" * 30_000), 5_000, 9_000)
    )
    [row] = quarantined(outputs)
    assert (row["source"], row["topic"], row["partition"]) == ("group", "__consumer_offsets", 0)
    assert (row["reason"], row["detail"]) == ("failed: ZeroDivisionError", "replay has failed")
    head = base64.b64decode(row["head"]).decode()
    assert head.startswith("RecordRead('orders'")
    assert len(head) <= 1_000
    [progress] = [out for out in outputs if out["kind"] == "progress"]
    assert progress["counts"]["set_aside"] == 1


def test_an_event_that_fails_before_it_comes_to_its_group_costs_itself(monkeypatch):
    whole = EventLoop._apply

    def fails(loop, event):
        if event.order_ms == T0 + 5_000 and event.group == BAD:
            raise IndexError("no such clock")
        return whole(loop, event)

    monkeypatch.setattr(EventLoop, "_apply", fails)
    told = two_groups().play(20_000, may_fail=True)
    assert told.history.undecodable == {"group: failed: IndexError": 1}
    assert sorted(told.opened("session-expired")) == ["b2", "m2"]


def test_batches_cut_otherwise_tell_the_same_of_a_group_that_failed(monkeypatch):
    fail_on(monkeypatch, "replay", at_5_s)

    def told(cut_ms):
        outputs, shard = [], Shard.restore(0, SETTINGS, None)
        for start_ms in range(-1, 20_000, cut_ms):
            outputs += shard.apply(events_between(two_groups(), start_ms, min(start_ms + cut_ms, 20_000)))
            shard = Shard.restore(0, SETTINGS, shard.dump())
        return {
            (finding["rule"], finding["subject"], finding["opened_ms"])
            for out in outputs
            if out["kind"] == "report"
            for finding in out["findings"]
        }

    assert told(700) == told(3_000) == told(30_000)
    assert ("group-set-aside", BAD) in {(rule, subject) for rule, subject, _ in told(700)}


def test_a_capture_with_a_group_that_fails_is_replayed_to_its_end(monkeypatch):
    fail_on(monkeypatch, "view")
    history = replay_rows(two_groups().source_rows(20_000), ShardSettings(cluster="c", partitions=1, live_from_ms=0))
    assert [group["group"] for group in history.groups] == [GOOD]
    assert Told(history).opened("session-expired") == ["b2"]

"""A quiet group is shown again by its heartbeats alone, and what is shown is what its replica would show."""

from dataclasses import replace

import pytest

from coordinator_model.decode.parse import parse_row
from coordinator_model.shard import view_refresh
from coordinator_model.shard.heartbeat_update import with_heartbeats
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import T0, stable

SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=T0, view_refresh_ms=1_000)


def quiet():
    return stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_500, 20_000)


class Screen:
    """Applies a story in one-second batches and keeps what is shown of its group, as the store does."""

    def __init__(self, **settings):
        self.shard = Shard.restore(0, replace(SETTINGS, **settings), None)
        self.shown, self.kinds = None, []

    def play(self, story, from_s, until_s):
        rows = story.source_rows(until_s * 1_000)
        for second in range(from_s, until_s):
            span = range(T0 + second * 1_000, T0 + second * 1_000 + 1_000)
            self.kinds.append(set())
            events = [event for row in rows if row.timestamp_ms in span for event in parse_row(row)]
            for output in self.shard.apply(events):
                self.take(output)
            self.shard.dump()
        return self

    def take(self, output):
        if output["kind"] == "report" and output["view"]:
            self.shown = output["view"]
        elif output["kind"] == "heartbeats":
            [[_, _, heard_ms]] = output["groups"]
            self.shown = with_heartbeats(self.shown, heard_ms, output["at_ms"])
        self.kinds[-1].add(output["kind"])


def test_a_quiet_group_is_refreshed_without_its_replica():
    screen = Screen().play(quiet(), 0, 20)
    assert screen.kinds[10:] == [{"heartbeats", "progress"}] * 10


def test_what_is_shown_after_refreshes_is_what_the_replica_shows():
    screen = Screen().play(quiet(), 0, 20)
    assert screen.shown == screen.shard.views()[0]
    assert [member["last_heartbeat_ms"] for member in screen.shown["members"]] == [T0 + 19_000, T0 + 19_500]


@pytest.mark.parametrize("event", ["a member leaves", "a member dies"])
def test_whatever_else_happens_shows_the_whole_group_again(event):
    story = stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_500, 10_000)
    if event == "a member leaves":
        story.leave(10_600, "m2")
    screen = Screen().play(story, 0, 20)
    assert any("report" in kinds for kinds in screen.kinds[10:])
    assert screen.shown["members"] == screen.shard.views()[0]["members"]


@pytest.mark.parametrize("moved", [True, False])
def test_a_restored_shard_shows_its_groups_whole_first_unless_it_only_moved(moved):
    story, screen = quiet(), Screen().play(quiet(), 0, 12)
    screen.shard = Shard.restore(0, SETTINGS, screen.shard.dump(), views_kept=moved)
    screen.kinds = []
    screen.play(story, 12, 16)
    assert ["report" in kinds for kinds in screen.kinds] == [not moved, False, False, False]
    assert screen.shown == screen.shard.views()[0]


@pytest.mark.parametrize("timeouts_ms", [[], [6_000], [6_000, None], [6_000, 6_000, 6_000]])
def test_heartbeats_of_another_partitions_view_change_nothing(timeouts_ms):
    """A view of no member and heartbeats of two made every answer of `serve` fail: found by `make fuzz`, seed 60605."""
    view = {"members": [{"member_id": str(n), "session_timeout_ms": ms} for n, ms in enumerate(timeouts_ms)]}
    assert with_heartbeats(view, [1_000, 2_000], 3_000) == view


def test_groups_with_findings_are_shown_whole_by_turns(monkeypatch):
    """A batch that took long has all groups in turn: it shows some, the next one others, and none is left out."""
    monkeypatch.setattr(view_refresh, "shown_plain", lambda *_: False)
    monkeypatch.setattr(view_refresh, "WHOLE_AT_ONCE", 3)
    shard = Shard.restore(0, replace(SETTINGS, view_refresh_ms=10_000), None)
    names = [f"group-{number}" for number in range(9)]
    story = stable("m1").beats("m1", 1_000, 200_000)
    events = [event for row in story.source_rows(200_000) for event in parse_row(row)]
    shown = []
    for until_ms in range(2_000, 200_000, 17_000):
        span = range(T0 + until_ms - 17_000, T0 + until_ms)
        batch = [event for event in events if event.order_ms in span]
        outputs = shard.apply([event._replace(group=name) for name in names for event in batch if event.group])
        shown.append({output["group"] for output in outputs if output["kind"] == "report"})
    quiet_batches = shown[-5:]  # nothing changes in them
    assert [len(groups) for groups in quiet_batches] == [3] * 5
    assert set.union(*quiet_batches) == set(names)

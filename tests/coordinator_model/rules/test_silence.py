"""While telemetry stands still nobody is known to live; once it is back everybody is again."""

import pytest

from coordinator_model.decode.parse import parse_row
from coordinator_model.events import TELEMETRY_RANK, LeaderNamed, Tick
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import T0, stable

LAST_LINE_MS, BACK_MS = 20_000, 50_000


def liveness(outputs):
    """How the members were shown, one entry a view."""
    views = [output["view"] for output in outputs if output["kind"] == "report" and output["view"]]
    return [[member["liveness"] for member in view["members"]] for view in views]


def test_members_are_unknown_while_telemetry_is_stalled():
    """All become unknown at once, 15 s after the last line and a batch later, and alive again with the next one."""
    _, play = watched()

    assert liveness(play(0, LAST_LINE_MS))[-1] == ["alive", "alive"]
    assert liveness(play(LAST_LINE_MS + 1, LAST_LINE_MS + 15_000)) == []
    assert liveness(play(LAST_LINE_MS + 15_001, LAST_LINE_MS + 15_500)) == []
    assert liveness(play(LAST_LINE_MS + 15_501, LAST_LINE_MS + 16_300)) == [["unknown", "unknown"]]
    assert liveness(play(BACK_MS, BACK_MS + 5_000))[-1] == ["alive", "alive"]


def test_a_batch_that_begins_late_is_no_silence():
    """Its instant is 20 s later than what it has read; the next one reads on."""
    _, play = watched()
    late = play(0, LAST_LINE_MS - 5_000, wall_ms=LAST_LINE_MS + 15_000)
    after = play(LAST_LINE_MS - 4_999, LAST_LINE_MS, wall_ms=LAST_LINE_MS + 15_001)
    reports = [output for output in (*late, *after) if output["kind"] == "report"]
    assert not [finding for report in reports for finding in report["findings"]]


def test_a_shard_without_groups_misses_no_line():
    """It is given lines only together with something else for it, such as who leads its partition."""
    shard, outputs = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=0), None), []
    for number, at_ms in ((1, T0 + 1_000), (40, T0 + 20_500), (41, T0 + 21_000)):
        leader = LeaderNamed(at_ms, TELEMETRY_RANK, "", 0, at_ms, "", 1, "broker-1", ())
        tick = Tick(at_ms, TELEMETRY_RANK, "lines", 0, number, "", "broker-1", number)
        outputs += shard.apply([leader, tick], wall_ms=at_ms + 100)
    assert shard.clock.coordinator == "broker-1"
    assert not [output for output in outputs if output["kind"] in ("report", "blind")]


FAST_CLOCKS = {
    "20 s ahead": lambda at_ms: 20_000,
    "100 s ahead": lambda at_ms: 100_000,
    "faster, up to 18 s ahead": lambda at_ms: min(at_ms, 72_000) // 4,
}


@pytest.mark.parametrize("ahead_ms", FAST_CLOCKS.values(), ids=FAST_CLOCKS)
@pytest.mark.parametrize("dies_ms", [None, 60_000])
def test_a_fast_clock_of_another_broker_is_no_silence_of_the_coordinator(ahead_ms, dies_ms):
    """Broker-2's clock is wrong, and it may die, too. From 80 s on broker-1 is silent: that is noticed after 15 s."""
    story = stable("m1", "m2").beats("m1", 1_000, 80_000).beats("m2", 1_000, 80_000).silent(80_000, 999_000)
    story.brokers["broker-2"] = 0
    if dies_ms is not None:
        story.silent(dies_ms, 999_000, "broker-2")
    config, state = ShardSettings(cluster="c", partitions=1, live_from_ms=T0), None

    def play(from_ms, until_ms):
        nonlocal state
        opened = []
        for at_ms in range(from_ms, until_ms, 1_000):
            rows = [row for row in story.source_rows(at_ms) if row.timestamp_ms > T0 + at_ms - 1_000]
            events = [event for row in rows for event in parse_row(shifted(row, ahead_ms))]
            shard = Shard.restore(0, config, state)
            outputs, state = shard.apply(events, wall_ms=T0 + at_ms + 200), shard.dump()
            told = [f for o in outputs if o["kind"] == "report" and not o["group"] for f in o["findings"]]
            opened += [(finding["opened_ms"] - T0, finding["subject"]) for finding in told]
        return set(opened)

    assert play(1_000, 95_000) == set()
    assert play(95_000, 99_000) == {(80_000, "broker-1")}


def shifted(row, ahead_ms):
    """A line of broker-2 as its fast clock dates it."""
    if row.topic != "lines-of-broker-2":
        return row
    return row._replace(timestamp_ms=row.timestamp_ms + ahead_ms(row.timestamp_ms - T0))


def watched():
    """A shard, and what plays the rows between two instants to it."""
    story = stable("m1", "m2")
    for member in ("m1", "m2"):
        story.beats(member, 1_000, LAST_LINE_MS).beats(member, BACK_MS, BACK_MS + 5_000)
    story.silent(LAST_LINE_MS + 1, BACK_MS - 1)
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=T0), None)

    def play(from_ms, until_ms, wall_ms=None):
        rows = [row for row in story.source_rows(until_ms) if row.timestamp_ms >= T0 + from_ms]
        events = [event for row in rows for event in parse_row(row)]
        return shard.apply(events, wall_ms=T0 + (until_ms if wall_ms is None else wall_ms))

    return shard, play

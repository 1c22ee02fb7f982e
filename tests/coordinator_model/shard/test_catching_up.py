"""A job that was away reads a minute's records at once, the lines bit by bit, with a wall clock far ahead of both."""

import itertools

import pytest

from coordinator_model.decode.parse import OFFSETS, parse_row
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import SESSION_MS, T0, rebalance, stable

LAST_BEAT_MS, END_MS = 40_000, 90_000
GONE_MS = LAST_BEAT_MS + SESSION_MS


def a_death():
    """One of three falls silent; the others are told to rejoin, and the next generation is written."""
    story = stable("m1", "m2", "m3").beats("m3", 1_000, LAST_BEAT_MS)
    for member in ("m1", "m2"):
        story.beats(member, 1_000, GONE_MS)
        story.beat(GONE_MS + 100, member, error=27)
    rebalance(story, GONE_MS + 300, 2, "m1", "m2")
    for member in ("m1", "m2"):
        story.beats(member, GONE_MS + 1_000, END_MS, generation=2)
    return story


def findings(rows_of_batches, wall_ms):
    """What is found in batches that all begin long after what they tell."""
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=T0), None)
    outputs = [
        output
        for rows in rows_of_batches
        for output in shard.apply([event for row in rows for event in parse_row(row)], wall_ms=wall_ms)
    ]
    found = [f for output in outputs if output["kind"] == "report" for f in output["findings"]]
    return {(f["rule"], f["subject"], f["deadline_ms"] - T0) for f in found if f["rule"] != "session-at-risk"}


@pytest.mark.parametrize("lines_a_batch", [10, 50, 10_000])
def test_records_far_ahead_of_the_lines_wait_for_them(lines_a_batch):
    """No telemetry is called stalled meanwhile, and the one death is found."""
    rows = a_death().source_rows(END_MS)
    records = [row for row in rows if row.source == OFFSETS]
    lines = iter([row for row in rows if row.source != OFFSETS])
    slices = iter(lambda: list(itertools.islice(lines, lines_a_batch)), [])
    idle = itertools.repeat([])  # a key is also woken when nothing came for it
    batches = itertools.chain.from_iterable(zip([records + next(slices), *slices], idle, strict=False))
    [(rule, subject, deadline_ms)] = findings(batches, T0 + END_MS + 60_000)
    assert (rule, subject) == ("session-expired", "m3")
    assert deadline_ms == pytest.approx(GONE_MS, abs=5)

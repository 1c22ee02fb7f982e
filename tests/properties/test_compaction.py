"""A compacted log ends in the same replica as the full one.

Compaction drops records that a later one of the same key supersedes, in any window; a tombstone stays as long as an
earlier record of its key does.
"""

import functools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.parse import OFFSETS
from coordinator_model.shard.shard import ShardSettings
from streaming.capture.file import open_text, read_rows

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
NAMES = ["kills", "classic", "static", "failover", "java"]
SHOWN = ("group", "type", "state", "generation", "protocol_type", "protocol", "leader", "members_total")


@functools.cache
def records(name):
    with open_text(CAPTURES / f"{name}.jsonl.gz") as lines:
        rows = [row for row in read_rows(lines) if row.source == OFFSETS]
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def compacted(rows, window):
    """Drop what is superseded among the rows of a window, as a cleaner does that has come so far."""
    low, high = window
    newest = {(row.partition, row.key): n for n, row in enumerate(rows) if low <= n < high}
    return [row for n, row in enumerate(rows) if not low <= n < high or newest[row.partition, row.key] == n]


def ends(rows):
    history = replay_rows(rows, ShardSettings(cluster="c", partitions=50, live_from_ms=0))
    assert not history.undecodable
    return [
        [group[field] for field in SHOWN]
        + [
            [(m["member_id"], m["instance_id"], m["session_timeout_ms"], m["topics"], m["assignment"])]
            for m in group["members"]
        ]
        for group in history.groups
    ]


@st.composite
def windows(draw):
    name = draw(st.sampled_from(NAMES))
    total = len(records(name))
    low = draw(st.integers(0, total - 1))
    return name, (low, draw(st.integers(low + 1, total)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(windows())
def test_compacting_any_window_ends_in_the_same_groups(plan):
    name, window = plan
    assert ends(compacted(records(name), window)) == ends(records(name))


@pytest.mark.parametrize("name", NAMES)
def test_compacting_everything_ends_in_the_same_groups(name):
    rows = records(name)
    whole = compacted(rows, (0, len(rows)))
    assert len(whole) < len(rows)
    assert ends(whole) == ends(rows)

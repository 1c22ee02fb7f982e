"""The same events give the same incidents, in whatever batches, with duplicates, and with one source or broker late.

The events are a real broker's: captures of real clusters under faults (tests/fixtures/captures). The live run's world
is imitated honestly: every partition is read in its own order, a late one with its newest line up to ten seconds
behind, and a batch holds whatever has come since the last one.
"""

import bisect
import functools
import random
from array import array
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator_model.capture_replay import _read, _route, _ticks, _transitions
from coordinator_model.commit_block import key_of
from coordinator_model.events import Heartbeat, OffsetCommitted, RecordRead
from coordinator_model.group_report import read_outputs
from coordinator_model.heartbeat_block import HeartbeatBlock
from coordinator_model.incidents import to_contract
from coordinator_model.shard.shard import Shard, ShardSettings
from streaming.capture.file import open_text, read_rows
from streaming.run.commit_columns import CommitColumns
from streaming.run.packing import Routing
from streaming.run.partition_rows import PartitionRows
from tests.support.records import commit_value

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
NAMES = ["kills", "classic", "failover", "broker", "java"]
HOLD_MS = 10_000
LATEST_MS = HOLD_MS - 2_500
"""How far behind a source is here at most: its newest line is what counts, which may itself be a gap in them old."""


@functools.cache
def world(name):
    """A capture's events by shard, ticks in, as the operator gets them: ``(shard, events)`` and the settings."""
    with open_text(CAPTURES / f"{name}.jsonl.gz") as lines:
        reading = _read(read_rows(lines))
    broker_lines = [e for e in reading.events if hasattr(e, "broker")]
    ticks = _ticks(broker_lines, set())
    live_from_ms = min(e.order_ms for e in broker_lines)
    config = ShardSettings(cluster="c", partitions=50, live_from_ms=live_from_ms, view_refresh_ms=0)
    shards = {n: [*events, *ticks] for n, events in _route(reading.events, 50).items()}
    return shards, config


def told(name, outputs):
    """What people are told, without what only betters a stored incident."""
    _, config = world(name)
    lines = [to_contract(t) for t in _transitions(read_outputs(outputs), config)]
    return sorted((x["at_ms"], x["transition"], x["rule"], x["group"], x["subject"], x["evidence"], x["cause"],
                   x["deadline_ms"], x["severity"], x.get("reason"), x["incident_id"]) for x in lines)  # fmt: skip


@functools.cache
def whole(name):
    shards, config = world(name)
    shown = [o for n, events in shards.items() for o in Shard.restore(n, config, None).apply(events, final=True)]
    assert [output for output in shown if output["kind"] == "quarantine"] == []
    return told(name, shown)


def is_record(event):
    return isinstance(event, RecordRead | OffsetCommitted)


def source_of(event):
    return "records" if is_record(event) else event.broker


def commits_as_blocks(records, live_from_ms):
    """Commits as the source stage reads them by columns; other records stand between them."""
    rows = []
    for event in sorted(records, key=lambda record: record.offset):
        key, value = b"\0\2\0\1g", None
        if isinstance(event, OffsetCommitted):
            key = b"\0\1" + key_of(event.group, event.committed_topic, event.committed_partition)
            value = None if event.tombstone else commit_value(event.committed_offset, 0)
        rows.append((event.offset, event.order_ms, key, value))
    if not rows:
        return []
    offsets, instants_ms, keys, values = zip(*rows, strict=True)
    binary = (pa.array(column, pa.binary()) for column in (keys, values))
    run = PartitionRows(*records[0][2:4], np.array(offsets), np.array(instants_ms), *binary)
    return [block for _, block in CommitColumns(Routing(50), live_from_ms).decode([run]).blocks]


def as_blocks(events):
    """Columns as the source stage makes them: a block of each source's heartbeats, and the other events."""
    of_source = defaultdict(list)
    for event in events:
        of_source[(event.broker, *event[2:4]) if type(event) is Heartbeat else None].append(event)
    others = [event for event in of_source.pop(None, []) if type(event) is not OffsetCommitted]
    blocks = []
    for beats in of_source.values():
        columns = zip(*sorted(beats), strict=True)
        shared = [[values[0]] if len(set(values)) == 1 else values for values in columns]
        packed = [v if isinstance(v, list) or type(v[0]) is not int else array("q", v).tobytes() for v in shared]
        order_ms = array("q", [beat.order_ms for beat in sorted(beats)]).tobytes()
        blocks.append(HeartbeatBlock.of(len(beats), [order_ms, *packed[1:]]))
    return others, blocks


def in_batches(name, cuts, delays, repeat, restore, columns):
    """Feed every shard in batches cut at the same instants; return the outputs of all."""
    shards, config = world(name)
    outputs = []
    for number, events in shards.items():
        arrivals, read_until = defaultdict(list), defaultdict(int)
        for event in sorted(events, key=lambda e: e[2:5]):  # a partition is read in its own order
            at_ms = max(read_until[event[2:4]], event.order_ms + delays.get(source_of(event), 0))
            read_until[event[2:4]] = at_ms
            arrivals[bisect.bisect_left(cuts, at_ms)].append(event)
        shard, seq = Shard.restore(number, config, None), 0
        for n in range(len(cuts) + 1):
            batch = arrivals[n] + (random.Random(n).sample(arrivals[n], len(arrivals[n]) // 2) if repeat else [])
            random.Random(n).shuffle(batch)
            late_ms = delays.get("records", 0)
            read_ms = cuts[n] - late_ms if n < len(cuts) else 2**62
            rest, blocks, commits = batch, [], []
            if columns:
                rest, blocks = as_blocks(batch)
                commits = commits_as_blocks([event for event in batch if is_record(event)], config.live_from_ms)
            batch_outputs = shard.apply(
                rest, heartbeats=blocks, commits=commits, records_read_ms=read_ms, final=n == len(cuts)
            )
            outputs += [{**o, "seq": seq + o["seq"]} for o in batch_outputs]
            seq += len(batch_outputs)
            if restore:
                shard = Shard.restore(number, config, shard.dump())
    return outputs


@st.composite
def plans(draw):
    name = draw(st.sampled_from(NAMES))
    shards, _ = world(name)
    instants = [e.order_ms for events in shards.values() for e in events]
    low, high = min(instants), max(instants) + HOLD_MS
    cuts = sorted(draw(st.lists(st.integers(low, high), min_size=1, max_size=25, unique=True)))
    sources = sorted({source_of(e) for events in shards.values() for e in events})
    late = draw(st.sampled_from([None, *sources]))
    delay_ms = draw(st.integers(0, LATEST_MS))
    return name, tuple(cuts), {} if late is None else {late: delay_ms}, *(draw(st.booleans()) for _ in range(3))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans())
def test_any_cut_any_duplicates_any_late_source_gives_the_same_incidents(plan):
    name, *how = plan
    assert told(name, in_batches(name, *how)) == whole(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_dump_and_restore_after_every_second_changes_nothing(name):
    shards, _ = world(name)
    instants = [e.order_ms for events in shards.values() for e in events]
    cuts = tuple(range(min(instants), max(instants), 1_000))
    assert told(name, in_batches(name, cuts, {}, False, True, True)) == whole(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_capture_read_at_once_tells_the_same_of_commits_by_columns(name):
    """Of each partition, tenth of a second and stretch between group records two commits are left, of old ones one."""
    assert told(name, in_batches(name, (), {}, False, False, True)) == whole(name)


def test_the_captures_do_tell_something():
    """A property over captures without incidents, or without commits, would prove nothing."""
    committed = {n: sum(type(e) is OffsetCommitted for es in world(n)[0].values() for e in es) for n in NAMES}
    assert min(committed.values()) >= 100, committed
    assert all(len([x for x in whole(name) if x[2] == "session-expired"]) >= 4 for name in NAMES)
    assert replace(world("kills")[1], cluster="d").cluster == "d"

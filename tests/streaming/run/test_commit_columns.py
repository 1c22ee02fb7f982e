"""Offset commits read by columns are what the core's decoder reads row by row; what is irregular is left to it."""

import struct
from collections import Counter, defaultdict
from itertools import pairwise
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_model.commit_block import NO_OFFSET, CommitBlock, key_of
from coordinator_model.decode.decode_counts import DecodeCounts
from coordinator_model.decode.parse import RejectedRow, SourceRow, parse_row
from coordinator_model.events import OffsetCommitted
from streaming.run import source
from streaming.run.commit_columns import CELL_MS, CommitColumns
from streaming.run.packing import (
    QUARANTINE_KEY,
    Routing,
    commit_block,
    commits_in,
    decoded_in,
    events_in,
    rejected_in,
    unpack,
)
from streaming.run.partition_rows import partition_rows_of
from streaming.run.source import PackRows
from tests.benchmarks import synthetic
from tests.support.records import commit_key, commit_value, compact_string, int16, int32, int64, string, uvarint
from tests.support.story import T0

TOPIC = "__consumer_offsets"
ROUTING = Routing(50)
TOPIC_ID = bytes(range(1, 17))
FIELDS = CommitBlock._fields


def row(key, value, offset=0, at_ms=T0, partition=12):
    return SourceRow("offsets", TOPIC, partition, offset, at_ms, key, value)


def arrow(rows):
    """An Arrow batch that is a slice of a larger one, as a reader may hand it on."""
    names = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp_ms": pa.int64(),
             "key": pa.binary(), "value": pa.binary()}  # fmt: skip
    padded = [row(b"\0\1before", None), *rows, row(b"\0\1after", b"x" * 9)]
    columns = zip(*(each[1:] for each in padded), strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, names.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(names)).slice(1, len(rows))


def packed(tmp_path, rows, live_from_ms=0, routing=ROUTING, cut=10**6, history_from_ms=0):
    """What the source stage makes of rows: payloads by operator key."""
    stage = PackRows(
        routing, TOPIC, tmp_path / "live-keys.json", live_from_ms=live_from_ms, history_from_ms=history_from_ms
    )
    batches = [arrow(rows[start : start + cut]) for start in range(0, len(rows), cut)]
    read = defaultdict(list)
    for out in stage(iter(batches)):
        for each in out.to_pylist():
            read[each["key"]].append(each["payload"])
    return {key: unpack(payloads) for key, payloads in read.items()}


def lines_of(block):
    """A block's rows, each as it would be told."""
    columns = zip(*(getattr(block, name) for name in FIELDS[:-1]), strict=True)
    return [(*line, block.metadata.get(number, "")) for number, line in enumerate(columns)]


def lines_in(payloads):
    return [line for block in map(commit_block, commits_in(payloads)) for line in lines_of(block)]


def without_count(line):
    return line[:6] + line[7:]


# ------------------------------------------------------------------------------------------ Kafka's own bytes

KEY = "000100016700017400000007"
VALUES = {
    "v0": "0000000000000000002a00016d0000018bcfe56800",
    "v1": "0001000000000000002a00016d0000018bcfe568000000018bcfe65260",
    "v2": "0002000000000000002a00016d0000018bcfe56800",
    "v3": "0003000000000000002a0000000500016d0000018bcfe56800",
    "v4": "0004000000000000002a00000005026d0000018bcfe5680000",
    "v4 with topic id": "0004000000000000002a00000005026d0000018bcfe568000100100102030405060708090a0b0c0d0e0f10",
}


@pytest.mark.parametrize("name", VALUES)
def test_every_version_that_kafka_writes_is_read_by_columns(name, monkeypatch):
    monkeypatch.setattr(source, "parse_row", None)
    run = next(partition_rows_of(arrow([row(bytes.fromhex(KEY), bytes.fromhex(VALUES[name]), 5)])))
    found = CommitColumns(ROUTING, 0).decode([run])
    [(key, block)] = found.blocks
    epoch = 5 if name >= "v3" else -1
    topic_id = TOPIC_ID if "id" in name else b""
    expected = (key_of("g", "t", 7), 5, T0, 42, 1_700_000_000_000, epoch, 1, topic_id, "m")
    assert (key, lines_of(block), found.others) == ("012", [expected], [])
    assert [(kind.key_type, kind.version, kind.rows) for kind in found.counts] == [(1, int(name[1]), 1)]


def test_a_key_of_either_type_is_of_the_same_partition():
    old, new = bytes.fromhex("0000" + KEY[4:]), bytes.fromhex(KEY)
    run = next(partition_rows_of(arrow([row(old, bytes.fromhex(VALUES["v0"]), 1), row(new, None, 2)])))
    [(_, block)] = CommitColumns(ROUTING, T0 + 1).decode([run]).blocks
    assert lines_of(block) == [(key_of("g", "t", 7), 2, T0, NO_OFFSET, 0, -1, 2, b"", "")]


# ------------------------------------------------------------------------------------------ any bytes

GROUPS = ["g", "orders", "ü", "\U0001f480", "x" * 300]


@st.composite
def keys(draw):
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.none() | st.binary(max_size=30))
    group = draw(st.sampled_from([*GROUPS, ""] if kind == 1 else GROUPS))
    whole = int16(draw(st.sampled_from([0, 1, 1, 1]))) + string(group)
    whole += string(draw(st.sampled_from(["t", "", "téma"]))) + int32(draw(st.sampled_from([0, 1, -1, 2**31 - 1])))
    return mutated(draw, whole) if kind == 2 else whole


def mutated(draw, whole):
    """Change, cut or lengthen bytes somewhere."""
    at = draw(st.integers(0, len(whole)))
    how = draw(st.integers(0, 2))
    if how == 0:
        return whole[:at]
    if how == 1:
        return whole + draw(st.binary(min_size=1, max_size=3))
    return whole[:at] + draw(st.binary(min_size=1, max_size=2)) + whole[at + 1 :]


TEXTS = ["", "m", "ü" * 70, "x" * 126, "x" * 127, "\U0001f480" * 100, "y" * 4_096, "z" * 17_000]


@st.composite
def values(draw):
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.binary(max_size=40))
    if kind == 1:
        return None
    version = draw(st.integers(0, 5))
    offset, epoch = draw(st.sampled_from([0, 42, -1, 2**63 - 1, NO_OFFSET])), draw(st.sampled_from([-1, 0, 7]))
    text, at_ms = draw(st.sampled_from(TEXTS)), draw(st.sampled_from([T0, -1, 0]))
    whole = int16(version) + int64(offset) + (int32(epoch) if version >= 3 else b"")
    whole += (compact_string(text) if version >= 4 else string(text)) + int64(at_ms)
    whole += int64(T0) if version == 1 else draw(tags()) if version >= 4 else b""
    return mutated(draw, whole) if kind == 2 else whole


@st.composite
def tags(draw):
    known = b"\x00\x10" + draw(st.sampled_from([TOPIC_ID, bytes(16)]))
    unknown = b"\x07\x02ab"
    return draw(st.sampled_from([b"\0", b"\0", b"\1" + known, b"\1" + known, b"\2" + known + unknown, b"\1" + unknown,
                                 b"\2" + known + known, b"\x80\0", b"\x81\0" + known,
                                 b"\1\0\x11" + TOPIC_ID]))  # fmt: skip


@st.composite
def topics(draw):
    """Rows of some partitions of the offsets topic, in order, with group records among the commits."""
    rows = []
    for partition in draw(st.sets(st.integers(0, 3), min_size=1)):
        offset, at_ms = draw(st.integers(0, 5)), T0
        for _ in range(draw(st.integers(1, 12))):
            offset, at_ms = offset + draw(st.integers(1, 3)), at_ms + draw(st.sampled_from([0, 1, CELL_MS, -50]))
            bad_ms = draw(st.sampled_from([None] * 20 + [-1, 2**62]))
            key, value = draw(st.tuples(keys(), values()))
            if draw(st.integers(0, 7)) == 0:
                key, value = synthetic.group_record("orders", 3, [synthetic.Member(1)], T0)
            rows.append(row(key, value, offset, at_ms if bad_ms is None else bad_ms, partition))
    return rows


@settings(max_examples=200, deadline=None)
@given(rows=topics(), live_from_ms=st.sampled_from([0, T0, T0 + 150, T0 + 10**6]), cut=st.sampled_from([1, 3, 10**6]),
       routing=st.sampled_from([Routing(50), Routing(50, split=3), Routing(50, "group")]),
       joined_bytes=st.sampled_from([1, source.JOINED_BYTES]))  # fmt: skip
def test_columns_and_the_rest_are_what_the_core_reads_row_by_row(
    tmp_path_factory, rows, live_from_ms, cut, routing, joined_bytes
):
    with mock.patch.object(source, "JOINED_BYTES", joined_bytes):
        read = packed(tmp_path_factory.getbasetemp(), rows, live_from_ms, routing, cut)
    commits, records, rejected, counts = defaultdict(list), [], [], DecodeCounts()
    for each in rows:
        events = parse_row(each)
        counts.add(each, events)
        if isinstance(events, RejectedRow):
            rejected.append(events)
            continue
        for event in events:
            if isinstance(event, OffsetCommitted):
                commits[routing.key_of(event.group, each.partition)].append(event)
            else:
                records.append(event)
    quarantine = read.pop(QUARANTINE_KEY, [])
    assert sorted(rejected_in(quarantine)) == sorted(rejected)
    every = [payload for payloads in read.values() for payload in payloads] + quarantine
    assert sorted(event for payloads in read.values() for event in events_in(payloads)) == sorted(records)
    assert decoded_in(every) == counts.take()
    assert {key for key, payloads in read.items() if commits_in(payloads)} == set(commits)
    for key, events in commits.items():
        check(lines_in(read[key]), lines_of(CommitBlock.of_events(events)), live_from_ms, rows)


def check(found, expected, live_from_ms, rows):
    """Hold the rows of a key's blocks to all commits of it: each is one, none is twice, and the telling are there."""
    by_partition = defaultdict(list)
    for line in expected:
        by_partition[line[0]].append(line)
    assert Counter(map(without_count, found)) <= Counter(map(without_count, expected))
    kept = {without_count(line) for line in found}
    for partition, lines in by_partition.items():
        assert sum(line[6] for line in found if line[0] == partition) == len(lines)
        assert without_count(max(lines, key=lambda line: line[1])) in kept
        cells = defaultdict(list)
        for line in lines:
            if line[2] >= live_from_ms:
                cells[segment_of(line, rows), line[2] // CELL_MS].append(line)
        for cell in cells.values():
            assert without_count(cell[0]) in kept
            assert without_count(cell[-1]) in kept


def segment_of(line, rows):
    """How many rows that are no commits lie before one; offsets tell of one partition only, so others are no harm."""
    return sum(each.offset < line[1] and (each.key or b"")[:2] == b"\0\2" for each in rows)


# ------------------------------------------------------------------------------------------ what is kept


def commit(offset, at_ms, partition=0, value=None):
    return row(commit_key("g", "t", partition), value or plain(offset), offset, T0 + at_ms)


def plain(offset):
    return commit_value(offset, T0, leader_epoch=5)


def group_row(offset, at_ms):
    return row(*synthetic.group_record("g", 3, [synthetic.Member(1)], T0), offset, T0 + at_ms)


def kept(tmp_path, rows, live_from_ms):
    [payloads] = packed(tmp_path, rows, live_from_ms).values()
    return [(line[1], line[6]) for line in lines_in(payloads)]


def test_of_old_commits_only_the_newest_of_a_partition_is_kept(tmp_path):
    rows = [commit(n, 10 * n, n % 2) for n in range(10)]
    assert kept(tmp_path, rows, T0 + 1_000) == [(8, 5), (9, 5)]


def test_a_group_record_between_two_signs_of_life_keeps_both(tmp_path):
    rows = [commit(0, 0), commit(1, 1), commit(2, 2), group_row(3, 3), commit(4, 4), commit(5, 5), commit(6, 6)]
    assert kept(tmp_path, rows, T0) == [(0, 1), (2, 2), (4, 1), (6, 2)]
    assert kept(tmp_path, rows, T0 + 1_000) == [(6, 6)]


def test_signs_of_life_are_kept_every_tenth_of_a_second(tmp_path):
    rows = [commit(n, 20 * n) for n in range(50)]
    told = kept(tmp_path, rows, T0)
    assert sum(count for _, count in told) == 50
    assert all(later - earlier <= CELL_MS / 20 for (earlier, _), (later, _) in pairwise(told))
    assert len(told) == 20


def test_regular_commits_are_read_by_no_python_row_by_row(tmp_path, monkeypatch):
    """However many they are, live or old: the parser is asked for nothing but the group's record."""
    parsed = []
    monkeypatch.setattr(source, "parse_row", lambda each: parsed.append(each.offset) or parse_row(each))
    rows = [commit(n, n, n % 7) for n in range(500)] + [group_row(500, 500)]
    for live_from_ms in (T0, T0 + 10**6):
        packed(tmp_path, rows, live_from_ms)
    assert parsed == [500, 500]


def test_a_fault_in_the_columns_costs_no_commit(tmp_path, monkeypatch):
    rows = [commit(n, n, n) for n in range(3)]
    whole = packed(tmp_path, rows)
    monkeypatch.setattr(CommitColumns, "_blocks", lambda *_: 1 / 0)
    one_by_one = packed(tmp_path, rows)
    assert lines_in(one_by_one["012"]) == lines_in(whole["012"])
    assert decoded_in(one_by_one["012"]) == decoded_in(whole["012"]) == {"OffsetCommit:3:decoded": 3}


def test_a_long_metadata_is_kept_as_its_head(tmp_path):
    long = commit_value(1, T0, leader_epoch=5, metadata="é" * 3_000)
    flexible = struct.pack(">hqi", 4, 1, 5) + uvarint(6_001) + "é".encode() * 3_000 + int64(T0) + b"\0"
    for value in (long, flexible):
        [payloads] = packed(tmp_path, [commit(0, 0, value=value)]).values()
        assert [line[-1] for line in lines_in(payloads)] == ["é" * 64]


def test_a_metadata_of_a_megabyte_is_rejected_and_hides_no_other_commit(tmp_path):
    """Kafka's own reader accepts no text of more than 32,767 bytes."""
    huge = struct.pack(">hqi", 4, 1, 5) + uvarint(2**20 + 1) + b"m" * 2**20 + int64(T0) + b"\0"
    read = packed(tmp_path, [commit(0, 0, value=huge), commit(1, 1)])
    quarantine = read.pop(QUARANTINE_KEY)
    [payloads] = read.values()
    assert [line[1] for line in lines_in(payloads)] == [1]
    assert decoded_in([*payloads, *quarantine]) == {"OffsetCommit:4:malformed": 1, "OffsetCommit:3:decoded": 1}
    assert len(rejected_in(quarantine)) == 1
    assert sum(map(len, quarantine)) < 10_000

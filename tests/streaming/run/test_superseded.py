"""Of records older than all that rules look at, only the newest of each key is parsed."""

from collections import defaultdict

import pytest

from coordinator_model.decode.parse import OFFSETS, parse_row
from coordinator_model.shard.shard import Shard, ShardSettings
from streaming.capture.file import open_text, read_rows
from streaming.run import source
from streaming.run.commit_columns import SUPERSEDED, CommitColumns
from streaming.run.packing import Routing
from streaming.run.partition_rows import partition_rows_of
from tests.benchmarks import synthetic
from tests.coordinator_model.test_captures import CAPTURES
from tests.streaming.run.test_commit_columns import arrow, packed, row
from tests.support.story import T0

ROUTING = Routing(50)
NEVER_MS = 2**52


def group_rows(*instants_ms, group="orders", partition=12, value=b""):
    key, written = synthetic.group_record(group, 3, [synthetic.Member(1)], T0)
    return [row(key, value or written, 10 + n, at_ms, partition) for n, at_ms in enumerate(instants_ms)]


def decode(rows, history_from_ms):
    return CommitColumns(ROUTING, NEVER_MS, history_from_ms).decode(list(partition_rows_of(arrow(rows))))


def offsets_left(rows, history_from_ms):
    """By partition."""
    found = decode(rows, history_from_ms)
    return {run.partition: run.offsets[indexes].tolist() for run, indexes in found.others}


@pytest.mark.parametrize(
    ("history_from_ms", "left"),
    [(0, [10, 11, 12, 13]), (T0 + 2, [11, 12, 13]), (T0 + 3, [12, 13]), (NEVER_MS, [13])],
)
def test_only_records_older_than_history_are_superseded(history_from_ms, left):
    """The newest of them stays, even where a later record follows: it is what that one is compared with."""
    assert offsets_left(group_rows(T0, T0 + 1, T0 + 2, T0 + 3), history_from_ms) == {12: left}


def test_a_key_of_another_group_or_partition_supersedes_nothing():
    rows = group_rows(T0) + group_rows(T0, group="other") + group_rows(T0, partition=13)
    assert offsets_left(rows, NEVER_MS) == {12: [10, 10], 13: [10]}


def test_a_tombstone_supersedes_what_it_deletes():
    rows = [*group_rows(T0), group_rows(T0)[0]._replace(value=None, offset=11)]
    assert offsets_left(rows, NEVER_MS) == {12: [11]}


@pytest.mark.parametrize("key", [None, b"", b"\0"])
def test_rows_without_a_type_are_left_to_be_rejected(key):
    rows = [row(key, b"\0\3x", 10), row(key, b"\0\3x", 11)]
    assert offsets_left(rows, NEVER_MS) == {12: [10, 11]}


def test_what_is_superseded_is_counted_by_type_and_version():
    rows = group_rows(T0, T0 + 1) + group_rows(T0 + 2, T0 + 3, value=b"x")
    counts = {(each.key_type, each.version, each.outcome): each.rows for each in decode(rows, NEVER_MS).counts}
    assert counts == {(2, 3, SUPERSEDED): 2, (2, ord("x"), SUPERSEDED): 1}


def test_the_counts_of_superseded_records_reach_the_metrics(tmp_path):
    payloads = packed(tmp_path, group_rows(T0, T0 + 1), history_from_ms=NEVER_MS)
    counts = [counts for rows in payloads.values() for payload in rows for counts in [payload.get(-2)] if counts]
    assert counts == [{"GroupMetadata:3:superseded": 1, "GroupMetadata:3:decoded": 1}]


def test_where_a_task_has_read_enough_to_pack_it_does_not_cut_a_partition(tmp_path, monkeypatch):
    """Otherwise the newest record of a key before the cut would be parsed, and applied, in vain."""
    rows = group_rows(T0, T0 + 1, partition=11) + group_rows(T0, T0 + 1, T0 + 2, T0 + 3)
    whole = packed(tmp_path, rows, history_from_ms=NEVER_MS)
    monkeypatch.setattr(source, "JOINED_BYTES", 1)
    assert packed(tmp_path, rows, cut=3, history_from_ms=NEVER_MS) == whole


@pytest.mark.parametrize("name", ["chaos-both-sources", "chaos-three-brokers", "java", "static", "frozen-groups"])
def test_groups_are_as_if_every_record_had_been_read(name):
    """Real captures: what a group is at their end does not depend on the records that the log cleaner may remove."""
    with open_text(CAPTURES / f"{name}.jsonl.gz") as lines:
        rows = [each for each in read_rows(lines) if each.source == OFFSETS]
    by_partition = defaultdict(list)
    for each in rows:
        by_partition[each.partition].append(each)
    skipped = 0
    for partition, own in by_partition.items():
        own.sort(key=lambda each: each.offset)
        left = decode(own, NEVER_MS).others
        kept = {int(offset) for run, indexes in left for offset in run.offsets[indexes]}
        commits = {each.offset for each in own if each.key is not None and each.key[:2] in (b"\0\0", b"\0\1")}
        chosen = [each for each in own if each.offset in kept | commits]
        skipped += len(own) - len(chosen)
        assert views(partition, chosen) == views(partition, own)
    assert skipped


def views(partition, rows):
    """A partition's groups after its records, but since when they and their members are as they are."""
    shard = Shard.restore(partition, ShardSettings("c", 50, NEVER_MS), None)
    shard.apply([event for each in rows for event in parse_row(each)], wall_ms=rows[-1].timestamp_ms, final=True)
    for view in (shown := shard.views()):
        for name in ("state_since_ms", "stable_since_ms", "incarnation"):
            del view[name]
        for member in view["members"]:
            del member["joined_ms"]
    return shown

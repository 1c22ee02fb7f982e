"""Snapshot and journal: whatever is cut, torn or damaged, it is known again or it is said."""

import gc
import os
import resource

import pytest

from streaming.run.lag import kept
from streaming.run.lag.kept import JOURNAL_FILE, SNAPSHOT_FILE, Batch, BrokenError, Kept, committed_batch


def written(folder, *numbers, snapshot=None):
    files = Kept(folder)
    files.load(None)
    for number in numbers:
        files.append(Batch(number, [b"block-%d" % number]))
    if snapshot is not None:
        files.snapshot({"batch_id": snapshot})
    files.close()
    return folder


def numbers(loaded):
    return [batch.batch_id for batch in loaded[1]]


def test_what_was_appended_comes_again(tmp_path):
    written(tmp_path, 0, 1, 2)
    assert Kept(tmp_path).load(2) == (None, [Batch(number, [b"block-%d" % number]) for number in range(3)])


def test_a_journal_cut_anywhere_loses_its_last_batch_only(tmp_path):
    whole = (written(tmp_path, 0, 1) / JOURNAL_FILE).read_bytes()
    for length in range(len(whole)):
        (tmp_path / JOURNAL_FILE).write_bytes(whole[:length])
        expected = [] if length < len(whole) // 2 else [0]
        assert numbers(Kept(tmp_path).load(None)) == expected
        files = Kept(tmp_path)
        files.load(None)
        files.append(Batch(len(expected), []))
        files.close()
        assert numbers(Kept(tmp_path).load(None)) == [*expected, len(expected)]


def test_a_snapshot_takes_the_place_of_the_journal(tmp_path):
    written(tmp_path, 0, 1, 2, snapshot=2)
    assert Kept(tmp_path).load(2) == ({"batch_id": 2}, [])
    assert (tmp_path / JOURNAL_FILE).stat().st_size == 0


def test_killed_between_snapshot_and_journal_nothing_comes_twice(tmp_path):
    journal = (written(tmp_path, 0, 1, 2) / JOURNAL_FILE).read_bytes()
    written(tmp_path, snapshot=1)
    (tmp_path / JOURNAL_FILE).write_bytes(journal)
    assert numbers(Kept(tmp_path).load(2)) == [2]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_snapshot_is_told(tmp_path, damage):
    file = written(tmp_path, 0, snapshot=0) / SNAPSHOT_FILE
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes({"flip": bytes(data), "cut": data[:-3], "empty": b""}[damage])
    with pytest.raises(BrokenError, match="damaged"):
        Kept(tmp_path).load(0)


def test_a_journal_damaged_before_its_end_is_told(tmp_path):
    file = written(tmp_path, 0, 1, 2) / JOURNAL_FILE
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(BrokenError, match="ends with batch 0, the query with batch 2"):
        Kept(tmp_path).load(2)


def test_batches_that_are_missing_are_told(tmp_path):
    written(tmp_path, 0, 3)
    with pytest.raises(BrokenError, match="missing"):
        Kept(tmp_path).load(None)


def test_a_folder_that_is_gone_is_told_where_the_query_went_on(tmp_path):
    assert Kept(tmp_path / "new").load(None) == (None, [])
    with pytest.raises(BrokenError):
        Kept(tmp_path / "lost").load(0)


@pytest.mark.parametrize("is_first_after_snapshot", [False, True])
def test_a_write_that_fails_leaves_no_part_behind(tmp_path, monkeypatch, is_first_after_snapshot):
    files = Kept(tmp_path)
    files.load(None)
    files.append(Batch(0, [b"a"]))
    if is_first_after_snapshot:
        files.snapshot({"batch_id": 0})

    def full(_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(OSError, match="no space"):
            files.append(Batch(1, [b"lost"]))
    files.append(Batch(1, [b"kept"]))
    files.close()
    before = [] if is_first_after_snapshot else [Batch(0, [b"a"])]
    assert Kept(tmp_path).load(1)[1] == [*before, Batch(1, [b"kept"])]


def test_a_full_disk_leaves_nothing_that_is_written_later(tmp_path):
    """A buffered file that is dropped writes the rest of its buffer when it is freed, here after the next batch."""
    files = Kept(tmp_path)
    files.load(None)
    files.append(Batch(0, [b"a"]))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / JOURNAL_FILE).stat().st_size + 10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as kept_error:
            files.append(Batch(1, [b"lost" * 10]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    files.append(Batch(1, [b"kept"]))
    del kept_error
    gc.collect()
    files.append(Batch(2, [b"kept"]))
    files.close()
    assert numbers(Kept(tmp_path).load(2)) == [0, 1, 2]


def test_the_journal_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "JOURNAL_BYTES", 1_000)
    files = Kept(tmp_path)
    files.load(None)
    files.append(Batch(0, [b"x" * 500]))
    assert not files.is_long
    files.append(Batch(1, [b"x" * 500]))
    assert files.is_long
    files.snapshot({"batch_id": 1})
    assert not files.is_long


def test_the_last_batch_of_a_checkpoint_is_that_of_its_commit_log(tmp_path):
    assert committed_batch(tmp_path) is None
    (tmp_path / "commits").mkdir()
    for name in ("9", "10", ".10.crc", "11.tmp"):
        (tmp_path / "commits" / name).write_text("v1")
    assert committed_batch(tmp_path) == 10

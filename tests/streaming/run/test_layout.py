import dataclasses
import errno
import fcntl
import os

import pytest

from coordinator_model.shard import snapshot
from streaming.run.errors import RunError
from streaming.run.layout import Layout, locked, open_checkpoint, remembered_shuffle_partitions, retire_checkpoint

LAYOUT = Layout("prod", "__consumer_offsets", 50, "shard", 1, 2, 1, 1, "topic-id")


def never():
    raise AssertionError("asked although the checkpoint goes on")


def test_a_checkpoint_of_the_same_layout_goes_on(tmp_path):
    fresh = open_checkpoint(tmp_path, LAYOUT, lambda: 1_234)
    again = open_checkpoint(tmp_path, LAYOUT, never)
    assert (fresh.resumed, again.resumed) == (False, True)
    assert (again.checkpoint_id, again.folder, again.live_from_ms) == (fresh.checkpoint_id, fresh.folder, 1_234)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Layout)])
def test_whatever_differs_a_fresh_checkpoint_begins_and_the_old_one_stays(tmp_path, field):
    old = open_checkpoint(tmp_path, LAYOUT, lambda: 1)
    old.folder.mkdir()
    value = getattr(LAYOUT, field)
    changed = dataclasses.replace(LAYOUT, **{field: value + 1 if isinstance(value, int) else value + "-2"})
    new = open_checkpoint(tmp_path, changed, lambda: 2)
    assert new.folder != old.folder
    assert old.folder.exists()
    assert not new.resumed
    assert new.changes == (f"{field}: {value} -> {getattr(changed, field)}",)
    assert open_checkpoint(tmp_path, changed, never).checkpoint_id == new.checkpoint_id


def test_a_topic_id_that_is_not_known_changes_nothing_and_counts_once_it_is(tmp_path):
    unknown = dataclasses.replace(LAYOUT, offsets_topic_id="")
    old = open_checkpoint(tmp_path, unknown, lambda: 1)
    for layout in (LAYOUT, unknown, LAYOUT):
        assert open_checkpoint(tmp_path, layout, never).checkpoint_id == old.checkpoint_id
    recreated = dataclasses.replace(LAYOUT, offsets_topic_id="another")
    assert open_checkpoint(tmp_path, recreated, lambda: 2).changes == ("offsets_topic_id: topic-id -> another",)


@pytest.mark.parametrize("version", [version for version in snapshot.READABLE if version != snapshot.VERSION])
def test_a_checkpoint_of_a_readable_state_format_goes_on_and_is_of_the_new_one(tmp_path, version):
    readable, current = (dataclasses.replace(LAYOUT, state_version=each) for each in (version, snapshot.VERSION))
    old = open_checkpoint(tmp_path, readable, lambda: 1)
    assert open_checkpoint(tmp_path, current, never).checkpoint_id == old.checkpoint_id
    [changed] = open_checkpoint(tmp_path, readable, lambda: 2).changes
    assert changed == f"state_version: {current.state_version} -> {readable.state_version}"


def test_a_checkpoint_that_cannot_be_continued_is_left_with_its_reason(tmp_path):
    old = open_checkpoint(tmp_path, LAYOUT, lambda: 1)
    new = open_checkpoint(tmp_path, LAYOUT, lambda: 2, ("the offsets topic was cut short",))
    assert new.checkpoint_id != old.checkpoint_id
    assert new.changes == ("the offsets topic was cut short",)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"layout": {}}', '{"checkpoint_id": 1, "live_from_ms": "x", "layout": {}}']
)
def test_a_layout_file_that_cannot_be_read_begins_a_fresh_checkpoint_and_says_why(tmp_path, text):
    (tmp_path / "layout.json").write_text(text)
    assert remembered_shuffle_partitions(tmp_path) is None
    fresh = open_checkpoint(tmp_path, LAYOUT, lambda: 7)
    assert (fresh.resumed, fresh.live_from_ms) == (False, 7)
    assert "layout.json cannot be read" in fresh.changes[0]
    assert open_checkpoint(tmp_path, LAYOUT, never).checkpoint_id == fresh.checkpoint_id


def test_a_checkpoint_that_is_retired_is_followed_by_a_fresh_one_and_stays(tmp_path):
    old = open_checkpoint(tmp_path, LAYOUT, lambda: 1)
    assert not old.committed
    (old.folder / "commits").mkdir(parents=True)
    (old.folder / "commits" / "0").write_text("v1")
    assert old.committed
    retire_checkpoint(tmp_path)
    assert open_checkpoint(tmp_path, LAYOUT, lambda: 2).checkpoint_id != old.checkpoint_id
    assert old.folder.exists()


def test_of_the_checkpoints_set_aside_only_the_newest_stays(tmp_path):
    folders = []
    for number in range(4):
        checkpoint = open_checkpoint(tmp_path, LAYOUT, lambda number=number: number)
        (checkpoint.folder / "state").mkdir(parents=True)
        os.utime(checkpoint.folder, (number, number))  # file systems round times
        folders.append(checkpoint.folder)
        retire_checkpoint(tmp_path)
    (tmp_path / "lag").mkdir()
    open_checkpoint(tmp_path, LAYOUT, lambda: 9)
    assert [folder.exists() for folder in folders] == [False, False, False, True]
    assert (tmp_path / "lag").exists()


def test_a_machine_with_more_cores_goes_on_with_the_partitions_there_are(tmp_path):
    assert remembered_shuffle_partitions(tmp_path) is None
    open_checkpoint(tmp_path, LAYOUT, lambda: 1)
    assert remembered_shuffle_partitions(tmp_path) == LAYOUT.shuffle_partitions


def test_a_second_run_is_kept_out_of_the_folder(tmp_path):
    with locked(tmp_path), pytest.raises(RunError, match="another run works in"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_a_folder_that_cannot_be_used_is_said_so_and_why(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file/data cannot be used: Not a directory"), locked(tmp_path / "file" / "data"):
        pass

    def without_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with pytest.raises(RunError, match="cannot be used: No locks available"), locked(tmp_path):
        pass

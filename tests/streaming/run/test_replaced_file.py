"""Files that have the old content or the new one."""

import resource

import pytest

from streaming.run.replaced_file import replaced, write_atomically


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    """Else the part of a snapshot, hundreds of megabytes, would keep the disk full."""
    file = tmp_path / "layout.json"
    write_atomically(file, "old ü")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_atomically(file, "new" * 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_text(encoding="utf-8") == "old ü"
    assert list(tmp_path.iterdir()) == [file]


def test_whatever_ends_the_writing_leaves_nothing_beside_the_old_file(tmp_path):
    file = tmp_path / "layout.json"
    write_atomically(file, "old")
    with pytest.raises(TypeError), replaced(file) as out:
        out.write("no bytes")
    assert (file.read_text(encoding="utf-8"), list(tmp_path.iterdir())) == ("old", [file])

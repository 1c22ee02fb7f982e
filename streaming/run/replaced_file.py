"""Files after a crash: one that is replaced has its old content or the new one, and one that is synced is there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replaced(file: Path) -> Iterator[IO[bytes]]:
    """Return where to write the new content; after an error the file has the old one, and nothing else is left."""
    temporary = file.with_suffix(".tmp")
    try:
        with temporary.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(file: Path, text: str) -> None:
    """Replace a file by a text."""
    with replaced(file) as out:
        out.write(text.encode("utf-8"))


def sync(file: Path) -> None:
    """Bring a file and its name to the disk, so that a power cut leaves both."""
    for path in (file, file.parent):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

"""Writing a capture that stays readable however its writer ends."""

import gzip
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

FLUSH_S: Final = 1.0


class CaptureWriter:
    """A new file, plain or gzip by its name; raises `FileExistsError` if it exists.

    While lines are written, they are flushed at least once a second: if the process is killed, `replay` can read the
    complete lines of the file. Threads may share it; lines written after `close` are dropped.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._flushed_s = time.monotonic()
        self._file: IO[str] = (
            gzip.open(path, "xt", encoding="utf-8", compresslevel=5)  # noqa: SIM115 - closed by `close`
            if path.suffix == ".gz"
            else path.open("x", encoding="utf-8")
        )

    def write(self, lines: Iterable[str]) -> None:
        """Append lines, each without its line end; raises `OSError`, for example if the disk is full."""
        with self._lock:
            if self._file.closed:
                return
            self._file.writelines(f"{line}\n" for line in lines)
            if time.monotonic() - self._flushed_s >= FLUSH_S:
                self._file.flush()
                self._flushed_s = time.monotonic()

    def close(self) -> None:
        """Write what is left."""
        with self._lock:
            self._file.close()

"""What is known of commits, on disk beside the checkpoint: a snapshot, and a journal of the batches since.

A batch's commits are written before its transaction, under its number. So wherever the process is killed, the next
start reads the state after the last committed batch or a later one, and a batch that is repeated is recognized by its
number. Checksums cover everything; a partly written end of the journal is dropped. Any other damage raises
`BrokenError`, and the job begins a fresh checkpoint: groups that have stopped would never send their commits again, and
those are the ones whose lag matters.
"""

import marshal
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from coordinator_model.events import FAR_MS
from coordinator_model.rules.outages import Dumped
from streaming.run.replaced_file import replaced

SNAPSHOT_FILE, JOURNAL_FILE = "snapshot", "journal"
JOURNAL_BYTES = 256 * 1024 * 1024
"""The size of the journal at which a snapshot replaces it."""
JOURNAL_BATCHES = 750
_MARSHAL = 2  # the newest version whose bytes do not depend on how many references an object has
_FRAME = struct.Struct(">4sIQ")
_MAGIC = b"lag2"


class BrokenError(Exception):
    """What was kept cannot be used; the text says why."""


class Batch(NamedTuple):
    """A batch: its commits, as blocks that the operator dumped, and the groups whose views contain news."""

    batch_id: int
    blocks: list[bytes]
    groups: list[tuple[str, int, tuple[Any, ...] | None]] = []  # noqa: RUF012 # nobody adds to it
    """Group id, instant, and the dumped group; None: it was deleted."""
    round: tuple[Any, ...] | None = None
    """The round of end offsets that was new with this batch, if any."""
    read_ms: int = FAR_MS
    """When its commits were read; commits with later timestamps are misdated."""
    outages: Dumped | None = None
    """The outages of the shards, if the batch changed them."""


class Kept:
    """The snapshot and the journal in a folder; call `load` before batches are appended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal: IO[bytes] | None = None
        self._batches = 0
        self._is_closed = False

    def load(self, committed: int | None) -> tuple[dict[str, Any] | None, list[Batch]]:
        """Return the snapshot and the batches since; raises `BrokenError`.

        `committed` is the last batch that the query committed (None: none). What is kept must reach at least that far.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        snapshot = self._snapshot()
        applied = -1 if snapshot is None else int(snapshot["batch_id"])
        by_number = {batch.batch_id: batch for batch in self._read_journal() if batch.batch_id > applied}
        batches = [by_number[number] for number in sorted(by_number)]
        last = batches[-1].batch_id if batches else applied
        if len(batches) != last - applied:
            raise BrokenError(f"batches are missing between {applied} and {last}")
        if committed is not None and last < committed:
            raise BrokenError(f"it ends with batch {last}, the query with batch {committed}")
        self._batches = len(batches)
        return snapshot, batches

    def append(self, batch: Batch) -> None:
        """Write a batch's commits; they are on disk when this returns."""
        journal = self._opened()
        end = journal.tell()
        try:
            journal.write(_framed(tuple(batch)))
            journal.flush()
            if batch.blocks or batch.groups or batch.round or batch.outages:
                os.fdatasync(journal.fileno())
        except OSError:
            self._journal = None
            with suppress(OSError):
                journal.close()  # else it writes the rest of its buffer when it is freed, behind later batches
            os.truncate(self._folder / JOURNAL_FILE, end)
            raise
        self._batches += 1

    @property
    def is_long(self) -> bool:
        """Whether a snapshot should replace the journal."""
        return self._batches >= JOURNAL_BATCHES or (self._batches > 0 and self._opened().tell() >= JOURNAL_BYTES)

    def snapshot(self, state: dict[str, Any]) -> None:
        """Write the state after batch `state["batch_id"]`, and empty the journal."""
        with replaced(self._folder / SNAPSHOT_FILE) as out:
            out.write(_framed(state))
        self._begin_journal()  # if killed before this, the journal repeats batches of the snapshot

    def _begin_journal(self) -> None:
        journal = self._opened()
        journal.truncate(0)
        journal.seek(0)  # else `tell` still says where it ended
        self._batches = 0

    def close(self) -> None:
        """Close the journal; any later attempt to write fails."""
        self._is_closed = True
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _opened(self) -> IO[bytes]:
        if self._is_closed:
            raise OSError("what is kept of commits is closed")
        if self._journal is None:
            self._journal = (self._folder / JOURNAL_FILE).open("ab")
        return self._journal

    def _snapshot(self) -> dict[str, Any] | None:
        try:
            data = (self._folder / SNAPSHOT_FILE).read_bytes()
        except FileNotFoundError:
            return None
        frames = list(_frames(data))
        if len(frames) != 1 or frames[0][1] != len(data):
            raise BrokenError("the snapshot is damaged")
        state: dict[str, Any] = marshal.loads(frames[0][0])  # noqa: S302 # our own bytes, checked by their sum
        return state

    def _read_journal(self) -> Iterator[Batch]:
        """Yield the journal's batches; cut off what follows the last complete one."""
        file, end = self._folder / JOURNAL_FILE, 0
        data = file.read_bytes() if file.exists() else b""
        for payload, end in _frames(data):  # noqa: B007 # where the last one ends
            yield Batch(*marshal.loads(payload))  # noqa: S302 # our own bytes, checked by their sum
        if end < len(data):
            os.truncate(file, end)


def committed_batch(checkpoint: Path) -> int | None:
    """Return the last batch that a checkpoint of Spark has committed, or None."""
    names = [path.name for path in (checkpoint / "commits").glob("[0-9]*")]
    return max((int(name) for name in names if name.isdigit()), default=None)


def _framed(what: Any) -> bytes:
    payload = marshal.dumps(what, _MARSHAL)
    return _FRAME.pack(_MAGIC, zlib.crc32(payload), len(payload)) + payload


def _frames(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield complete frames and the end of each, up to the first one that is incomplete or damaged."""
    start = 0
    while start + _FRAME.size <= len(data):
        magic, crc, length = _FRAME.unpack_from(data, start)
        end = start + _FRAME.size + length
        payload = data[start + _FRAME.size : end]
        if magic != _MAGIC or end > len(data) or zlib.crc32(payload) != crc:
            return
        yield payload, end
        start = end

"""Why a query failed, in one line, and whether waiting helps.

If the cause is outside `run` (brokers, database, disk), the job waits as long as it lasts, and the log says how to fix
it. Any other failure may never end by itself: after some attempts the checkpoint is assumed to be unreadable.
"""

import errno
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from kafka.errors import KafkaError
from sqlalchemy.exc import SQLAlchemyError

from streaming.store.trouble import trouble

REASON_CHARACTERS = 500
_DISK = {errno.ENOSPC: "full", errno.EDQUOT: "full", errno.EROFS: "read-only", errno.EACCES: "not writable"}
_JVM_DISK = {
    "full": r"No space left on device|Disk quota exceeded",
    "read-only": r"Read-only file system",
    "not writable": r"Permission denied",
}
_OF_JVM = r"\w*(?:IOException|FileSystemException|FileNotFoundException|RocksDBException|AccessControlException)\b.*"


class Failure(NamedTuple):
    """What the log says about a failure."""

    reason: str
    advice: str | None = None
    """How to fix a cause outside `run`, so waiting helps; None for any other cause."""


def failure_of(error: BaseException, data_folder: Path) -> Failure:
    """Find out why a query failed; the sink's own exception is the `__cause__` of the one that Spark reports."""
    for known in (error, error.__cause__):
        if isinstance(known, SQLAlchemyError):
            message, advice = trouble(known)
            return Failure(f"the database: {message}", advice)
        if isinstance(known, OSError) and (state := _DISK.get(known.errno or 0)):
            return _disk(str(known), state, data_folder)
    text = str(error)
    for state, words in _JVM_DISK.items():
        if found := re.search(rf"{_OF_JVM}(?:{words})", text):
            return _disk(found[0], state, data_folder)
    reason = reason_of(error)
    if re.search(r"org\.apache\.kafka\.\S*AuthorizationException", reason):
        return Failure(reason, "grant the rights: `group-monitor doctor --acls` prints the commands")
    if isinstance(error, KafkaError) or "org.apache.kafka." in reason:
        return Failure(reason, "see that the brokers answer and that each partition has a leader: group-monitor doctor")
    return Failure(reason)


def reason_of(error: BaseException) -> str:
    """Reduce a query's failure, pages of Java and Python, to the line that names the cause."""
    text = str(error).strip()
    named = re.findall(r"^(?:Caused by: )?([\w.$]*(?:Error|Exception)\b.*)$", text, re.MULTILINE)
    # If a query failed while it read its own files, Spark's text names no exception; PySpark keeps it in `_cause`.
    hidden = [str(cause).strip() for cause in [getattr(error, "_cause", None)] if cause is not None]
    lines = named[-1:] or [line for cause in hidden for line in cause.splitlines()[:1]] or text.splitlines()[:1]
    return str((lines or [type(error).__name__])[0]).strip()[:REASON_CHARACTERS]


def _disk(message: str, state: str, data_folder: Path) -> Failure:
    folders = f"{data_folder.absolute()} ([run] data_folder) or of {tempfile.gettempdir()} (Spark's files of a batch)"
    what = "free space there" if state == "full" else "make it writable for this user"
    return Failure(message[:REASON_CHARACTERS], f"the disk of {folders} is {state}: {what}")

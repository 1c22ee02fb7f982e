"""The capture format: raw Kafka rows as JSON Lines, plain or gzip, in any order (docs/capture.md)."""

import base64
import binascii
import gzip
import io
import json
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from coordinator_model.decode.parse import PARSERS
from coordinator_model.decode.source_row import CLIENT_TOPICS, CLUSTER, OFFSETS, REPORTS, TELEMETRY, SourceRow

INT64 = 2**63
MAX_REASON = 200


class BadRow(ValueError):
    """A line of a capture that is not a row, or not one that this version reads."""


CAPTURED = PARSERS.keys() - {REPORTS}
"""The sources that a row may name. Reports are captured as telemetry and recognized by their configured topic."""
OTHER_SOURCE = "another source"
"""The error for rows that another version may write: they are skipped and counted."""


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """Open a capture for reading; gzip is recognized by its first bytes, not by its name. It may be a pipe."""
    with path.open("rb") as raw:
        zipped = raw.peek(2).startswith(b"\x1f\x8b")  # nothing is read: a pipe cannot be read again
        unzipped: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
        with io.TextIOWrapper(unzipped, encoding="utf-8", errors="replace") as text:
            yield text


def position_bytes(text: IO[str]) -> int:
    """Return how far an opened capture has been read, as a position in the file on disk; 0 in a pipe."""
    buffer: Any = text.buffer  # type: ignore[attr-defined]  # both are text over bytes
    raw = getattr(buffer, "fileobj", buffer)
    return int(raw.tell()) if raw.seekable() else 0


def read_rows(
    lines: Iterator[str] | IO[str], client_topics: Collection[str] = CLIENT_TOPICS
) -> Iterator[SourceRow | BadRow]:
    """Read a capture; yield a ``BadRow`` for a line that is not a row, and nothing for an empty line.

    For telemetry the topic decides what a row may be: reports of clients in ``client_topics``, lines of the brokers'
    request log in all others. A gzip file that is damaged or was cut short, for example because its writer was killed,
    ends with one ``BadRow``.
    """
    for line in _until_cut(lines):
        if line is None:
            yield BadRow("cut short")
            return
        if line.strip():
            try:
                yield _row(line, client_topics)
            except BadRow as bad:
                yield bad
            except Exception as error:  # noqa: BLE001 # a bad row must not affect others
                yield BadRow(f"{type(error).__name__}: {error}"[:MAX_REASON])


def _until_cut(lines: Iterator[str] | IO[str]) -> Iterator[str | None]:
    try:
        yield from lines
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield None


def _row(line: str, client_topics: Collection[str]) -> SourceRow:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRow("not JSON") from error
    if not isinstance(row, dict) or not isinstance(row.get("source"), str):
        raise BadRow("no source")
    if row["source"] == CLUSTER:
        timestamp_ms = _an_int(row, "timestamp_ms")
        return SourceRow(CLUSTER, "", 0, timestamp_ms, timestamp_ms, None, line.encode("utf-8", "replace"))
    if row["source"] not in CAPTURED:
        raise BadRow(OTHER_SOURCE)
    if not isinstance(row.get("topic"), str):
        raise BadRow("topic: not a string")
    decode = _from_base64 if row["source"] == OFFSETS else _from_text
    is_report = row["source"] == TELEMETRY and row["topic"] in client_topics
    return SourceRow(
        source=REPORTS if is_report else row["source"],
        topic=row["topic"],
        partition=_an_int(row, "partition", least=0),
        offset=_an_int(row, "offset", least=0),
        timestamp_ms=_an_int(row, "timestamp_ms"),
        key=decode(row.get("key")),
        value=_from_base64(row["value_base64"]) if "value_base64" in row else decode(row.get("value")),
    )


def _an_int(row: dict[str, Any], name: str, least: int = 1 - INT64) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < INT64:
        raise BadRow(f"{name}: not an integer" if least < 0 else f"{name}: not a natural number")
    return value


def _from_base64(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise BadRow("key or value: not base64") from error


def _from_text(value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadRow("key or value: not a string")
    return value.encode("utf-8", "replace")

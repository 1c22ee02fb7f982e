"""`decode`: read raw records as JSON Lines, and write for each the JSON that Kafka's own converters print."""

import json
import sys
from base64 import b64encode
from binascii import unhexlify
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from coordinator_model.decode.records import Outcome, Record, decode

READ_BYTES = 1 << 16


@click.command("decode")
def decode_command() -> None:
    """Decode raw records of __consumer_offsets.

    Reads one {"key": "<hex>", "value": "<hex>" | null} per line from stdin, and writes one line for each, in order.
    A line that cannot be read has the outcome "malformed" and an "error".
    """
    for lines in _arrivals(sys.stdin.buffer):
        sys.stdout.buffer.write("".join(f"{_answer(line)}\n" for line in lines).encode())
        sys.stdout.buffer.flush()


def _arrivals(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the complete lines of each read, so that they are answered before the next read waits for more."""
    unfinished = bytearray()
    while chunk := stream.read1(READ_BYTES):  # type: ignore[attr-defined]  # every buffered stream has it
        first, *rest = chunk.split(b"\n")
        unfinished += first
        if rest:
            yield [bytes(unfinished), *rest[:-1]]
            unfinished = bytearray(rest[-1])
    if unfinished:
        yield [bytes(unfinished)]


def _answer(line: bytes) -> str:
    try:
        key, value = _raw_record(line)
    except (ValueError, TypeError, RecursionError) as problem:
        record = Record(Outcome.MALFORMED, error=f"line: {problem}")
    else:
        record = decode(key, value)
    return _encode(_as_json(record))


def _raw_record(line: bytes) -> tuple[bytes | None, bytes | None]:
    """Parse one line of input; raise ValueError or TypeError, whose message says what is wrong."""
    row = json.loads(line.decode())
    if not isinstance(row, dict) or not {"key", "value"} <= row.keys():
        raise TypeError('not an object with "key" and "value"')
    return _unhex("key", row["key"]), _unhex("value", row["value"])


def _unhex(name: str, text: object) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{name} is neither hex nor null")
    try:
        return unhexlify(text)
    except ValueError as problem:
        raise ValueError(f"{name} is not hex: {problem}") from problem


def _as_json(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {
        "outcome": record.outcome,
        "key": None if record.key is None else {"type": record.type, "data": record.key},
        "value": None if record.value is None else {"version": record.version, "data": record.value},
    }
    return row if record.error is None else row | {"error": record.error}


def _base64(blob: bytes) -> str:
    return b64encode(blob).decode()


_encode = json.JSONEncoder(default=_base64, separators=(",", ":")).encode

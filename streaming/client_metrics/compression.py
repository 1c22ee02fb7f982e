"""Decompression of pushed metrics, for all compression types that a client may use (KIP-714).

The output goes to a buffer of bounded size, so a decompression bomb costs no more memory than that.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

import cramjam

from coordinator_model.decode.telemetry.fields import BadField

MAX_BYTES: Final = 4 * 1024 * 1024
"""Of uncompressed metrics. A broker accepts 1 MiB compressed, and a consumer of 1,000 partitions sends less."""
NONE: Final = 0
SNAPPY: Final = 2
_DECOMPRESS_INTO: Final[dict[int, Callable[[bytes, Any], int]]] = {
    1: cramjam.gzip.decompress_into,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES: Final = 16
_BROKEN: Final = "pushed metrics: cannot be decompressed"
_TOO_LARGE: Final = "pushed metrics: too large when decompressed"


def decompress(data: bytes, compression: int) -> bytes:
    """Decompress metrics; `compression` is Kafka's id. Raises only ``BadField``."""
    if compression == NONE:
        if len(data) > MAX_BYTES:
            raise BadField(_TOO_LARGE)
        return data
    if compression == SNAPPY:
        return _unsnapped(data)
    into = _DECOMPRESS_INTO.get(compression)
    if into is None:
        raise BadField("pushed metrics: unknown compression")
    return _bounded(into, data)


def _bounded(into: Callable[[bytes, Any], int], data: bytes) -> bytes:
    buffer = bytearray(MAX_BYTES + 1)
    try:
        size = into(data, buffer)
    except cramjam.DecompressionError as error:
        raise BadField(_TOO_LARGE if "whole buffer" in str(error) else _BROKEN) from None
    if size > MAX_BYTES:
        raise BadField(_TOO_LARGE)
    return bytes(memoryview(buffer)[:size])


def _unsnapped(data: bytes) -> bytes:
    """Decompress Snappy: blocks with their lengths after a head of 16 bytes (Java), or a single block (librdkafka)."""
    if not data.startswith(_XERIAL):
        return _block(data, MAX_BYTES)
    parts, size, at = [], 0, _XERIAL_HEAD_BYTES
    while at < len(data):
        if at + 4 > len(data):
            raise BadField(_BROKEN)
        (length,) = struct.unpack_from(">I", data, at)
        parts.append(_block(data[at + 4 : at + 4 + length], MAX_BYTES - size))
        at, size = at + 4 + length, size + len(parts[-1])
    return b"".join(parts)


def _block(data: bytes, limit: int) -> bytes:
    """Decompress one block. It begins with its size, so one that is too large is refused before anything is written."""
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > limit:
            raise BadField(_TOO_LARGE)
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: cramjam.snappy.decompress_raw_into(data, buffer)])
    except cramjam.DecompressionError:
        raise BadField(_BROKEN) from None

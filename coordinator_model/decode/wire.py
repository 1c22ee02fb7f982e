"""Kafka's wire primitives: a reader of bytes that stays failed after its first failure.

Theory of operation. A decoder reads all its fields in order, and checks once, at the end, whether that succeeded. The
first read that fails sets `failure` and moves the position to the end, so every later read fails too and returns a zero
of its type. Nothing here raises, and memory for a length or a count is allocated only after checking that there are so
many bytes.

The reader accepts and refuses what Kafka 4.3's generated classes do, corner cases included: any negative length is
null, a varint's fifth byte overflows like a Java int, a string may have at most 32,767 bytes.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from struct import Struct, unpack

MAX_STRING_BYTES = 0x7FFF

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


def java_text(raw: bytes) -> str:
    """Decode bytes that are not valid UTF-8 as Java's `new String(raw, UTF_8)` does: ill-formed parts become U+FFFD.

    Python and Java do so alike, with one exception: an encoded surrogate (CESU-8, ED A0..BF xx) becomes a single U+FFFD
    in Java, and one for each byte in Python.
    """
    return _SURROGATE.sub(_REPLACEMENT, raw).decode(errors="replace")


def _fixed(layout: str) -> Callable[["Reader"], int]:
    """Make the method that reads one big-endian integer."""
    size_bytes, unpack_from = Struct(layout).size, Struct(layout).unpack_from

    def read(reader: "Reader") -> int:
        start = reader.position
        end = start + size_bytes
        if end > reader.end:
            reader.fail(f"{size_bytes} bytes needed")
            return 0
        reader.position = end
        value: int = unpack_from(reader.data, start)[0]
        return value

    return read


class Reader:
    """Reads Kafka primitives from `data`. `failure` says why the first failed read failed; None: none has failed."""

    __slots__ = ("data", "end", "failure", "position", "unknown_tags")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)
        self.failure: str | None = None
        self.unknown_tags = 0
        """How many tagged fields were skipped so far because the schema does not have them."""

    int8 = _fixed(">b")
    int16 = _fixed(">h")
    uint16 = _fixed(">H")
    int32 = _fixed(">i")
    int64 = _fixed(">q")

    @property
    def remaining_bytes(self) -> int:
        """How many bytes have not been read yet; 0 after a failure."""
        return self.end - self.position

    def fail(self, reason: str) -> None:
        """Note the first reason, and make every further read fail."""
        if self.failure is None:
            self.failure = f"{reason} at byte {self.position} of {self.end}"
        self.position = self.end

    def finish(self) -> str | None:
        """Return why the bytes are not exactly one value: a read failed, or bytes are left over. None: they are."""
        if self.failure is None and self.position != self.end:
            self.fail(f"{self.remaining_bytes} bytes left over")
        return self.failure

    def uvarint(self) -> int:
        """Read at most five bytes of seven bits each, the lowest bits first. It overflows like Java's int."""
        value = shift = 0
        while shift < 35:
            if self.position >= self.end:
                self.fail("varint cut off")
                return 0
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value if shift < 28 else ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
            shift += 7
        self.fail("varint longer than five bytes")
        return 0

    def raw(self, size_bytes: int) -> bytes:
        """Read the next `size_bytes` bytes; empty after a failure."""
        start = self.position
        end = start + size_bytes
        if size_bytes < 0 or end > self.end:
            self.fail(f"{size_bytes} bytes needed" if size_bytes >= 0 else "null or negative length")
            return b""
        self.position = end
        return self.data[start:end]

    def uuid(self) -> str:
        """Read 16 bytes as Kafka prints them: base64url without padding."""
        return urlsafe_b64encode(self.raw(16)).decode().rstrip("=")

    def string(self) -> str:
        """Read an int16 length, then UTF-8."""
        return self._text(self.int16())

    def nullable_string(self) -> str | None:
        """Read like `string`; a negative length is null."""
        length_bytes = self.int16()
        return None if length_bytes < 0 else self._text(length_bytes)

    def compact_string(self) -> str:
        """Read the length + 1 as a uvarint, then UTF-8."""
        return self._text(self._compact_length())

    def compact_nullable_string(self) -> str | None:
        """Read like `compact_string`; 0 is null."""
        length_bytes = self._compact_length()
        return None if length_bytes < 0 else self._text(length_bytes)

    def bytes_(self) -> bytes:
        """Read an int32 length, then bytes."""
        return self.raw(self.int32())

    def nullable_bytes(self) -> bytes | None:
        """Read like `bytes_`; a negative length is null."""
        length_bytes = self.int32()
        return None if length_bytes < 0 else self.raw(length_bytes)

    def compact_bytes(self) -> bytes:
        """Read the length + 1 as a uvarint, then bytes."""
        return self.raw(self._compact_length())

    def array_count(self) -> int | None:
        """Read an int32 element count. A negative count is None (null); more elements than bytes left is a failure."""
        return self._count(self.int32())

    def compact_array_count(self) -> int | None:
        """Read the count + 1 as a uvarint, otherwise like `array_count`."""
        return self._count(self._compact_length())

    def int32s(self, count: int) -> list[int]:
        """Read `count` int32s at once; empty after a failure."""
        raw = self.raw(4 * count)
        return [*unpack(f">{len(raw) // 4}i", raw)]

    def _compact_length(self) -> int:
        length = self.uvarint() - 1
        return length if length >= -0x80000000 else 0x7FFFFFFF  # Java's int wraps around

    def _text(self, length_bytes: int) -> str:
        if length_bytes > MAX_STRING_BYTES:
            self.fail(f"string of {length_bytes} bytes")
            return ""
        raw = self.raw(length_bytes)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return java_text(raw)

    def _count(self, count: int) -> int | None:
        if count > self.remaining_bytes:
            self.fail(f"array of {count} elements")
            return 0
        return None if count < 0 else count

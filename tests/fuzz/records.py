"""One record of ``__consumer_offsets``, changed field by field; the decoder itself shows where the fields are."""

import struct
from random import Random

from coordinator_model.decode import records
from coordinator_model.decode.records import _CODECS
from coordinator_model.decode.wire import Reader
from tests.fuzz import values

Span = tuple[int, int]
_INTEGERS = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}


class Tracing(Reader):
    """A reader that remembers where each read ended."""

    __slots__ = ("ends",)

    def __init__(self, data: bytes) -> None:
        self.ends: list[int] = []
        super().__init__(data)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "position" and isinstance(value, int):
            self.ends.append(value)
        super().__setattr__(name, value)


def spans(key: bytes, value: bytes | None) -> tuple[list[Span], list[Span]]:
    """Return where the fields of a key and of a value are; none if they cannot be read."""
    type_ = records.record_type(key)
    codec = _CODECS.get(type_) if type_ is not None else None
    if codec is None:
        return [], []
    reader = Tracing(key)
    reader.int16()
    codec.key(reader)
    in_key = _spans(reader)
    if value is None or len(value) < 2:
        return in_key, []
    reader = Tracing(value)
    version = reader.int16()
    if 0 <= version < len(codec.values):
        codec.values[version](reader)
    return in_key, _spans(reader)


def _spans(reader: Tracing) -> list[Span]:
    ends = sorted({end for end in reader.ends if end <= len(reader.data)})
    return [(start, end) for start, end in zip([0, *ends], ends, strict=False) if end > start]


def mutated(key: bytes | None, value: bytes | None, chance: Random) -> tuple[bytes | None, bytes | None]:
    """Change a record: nearly always a field, else its type, its version, its length, or whether it is null."""
    kind = chance.random()
    if kind < 0.04:
        return None, value
    if kind < 0.10 or key is None:
        return key, None if value is not None else b""
    if kind < 0.16:
        return _cut(key, chance), value
    if kind < 0.22:
        return key, _cut(value or b"", chance)
    if kind < 0.26:
        return struct.pack(">h", chance.choice([*range(-1, 26), 99, 2**15 - 1])) + key[2:], value
    if kind < 0.30:
        return key, struct.pack(">h", chance.choice([-1, 0, 1, 2, 3, 4, 5, 99])) + (value or b"")[2:]
    in_key, in_value = spans(key, value)
    if in_value and chance.random() < 0.85 and value is not None:
        return key, _change(value, in_value, chance)
    return (_change(key, in_key, chance) if in_key else key), value


def _cut(raw: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(raw) + 1)
    return chance.choice([raw[:at], raw[at:], raw + raw[:at], raw[:at] + bytes(chance.randrange(9)) + raw[at:]])


def _change(raw: bytes, fields: list[Span], chance: Random) -> bytes:
    """Overwrite a field with another of its size, or a text with another text and its length."""
    for _ in range(chance.choice([1, 1, 1, 3])):
        index = chance.randrange(len(fields))
        start, end = fields[index]
        size = end - start
        if size in _INTEGERS and chance.random() < 0.7:
            limit = 1 << (8 * size - 1)
            near = int.from_bytes(raw[start:end], "big", signed=True)
            number = chance.choice([0, -1, 1, limit - 1, -limit, near + 1, near - 1, chance.randrange(-limit, limit)])
            made = struct.pack(_INTEGERS[size], max(-limit, min(limit - 1, number)))
            raw = raw[:start] + made + raw[end:]
        else:
            return _replace_text(raw, fields, index, chance)
    return raw


def _replace_text(raw: bytes, fields: list[Span], index: int, chance: Random) -> bytes:
    """Replace a field with another text; if its length is right before it, correct the length."""
    start, end = fields[index]
    made = values.name(chance).encode("utf-8", "surrogatepass")
    if index:
        before, _ = fields[index - 1]
        width = start - before
        said = int.from_bytes(raw[before:start], "big")
        if width in (2, 4) and said == end - start:
            return raw[:before] + len(made).to_bytes(width, "big") + made + raw[end:]
        if width == 1 and said == end - start + 1:  # a compact length: one more, in seven bits
            made = made[:120]
            return raw[:before] + bytes([len(made) + 1]) + made + raw[end:]
    return raw[:start] + made + raw[end:]

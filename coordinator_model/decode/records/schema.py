"""The layouts of records as data, and a compiler that turns a layout into a reader.

The modules beside this one repeat Kafka's own message schemas (`group-coordinator/src/main/resources/common/message`)
field by field, with the versions that have the field. `compile_struct` turns a layout and a version into a function
that reads a dict with the structure that Kafka's own JSON converters print: names are camelCase, fields that the
version does not have are absent, and tagged fields are absent while they have their default. Bytes stay `bytes` (JSON
would need base64), and uuids are text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from coordinator_model.decode.wire import Reader

Fields = dict[str, Any]
Read = Callable[[Reader], Any]

NO_UUID = "AAAAAAAAAAAAAAAAAAAAAA"
NEVER = 0x7FFF
"""A version number that no record has."""


class Primitive(Enum):
    """A type that is not composed of others."""

    INT8 = auto()
    INT16 = auto()
    UINT16 = auto()
    INT32 = auto()
    INT64 = auto()
    UUID = auto()
    STRING = auto()
    BYTES = auto()


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in wire order."""

    fields: tuple["Field", ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A count, then that many elements."""

    of: Primitive | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """One field, which versions `since` to `until` have: in place or, if it has a `tag`, in the tagged section.

    `default` is the value of a tagged field that is absent. Kafka prints a tagged field only if it differs from that.
    """

    name: str
    type: Primitive | Array | Struct
    since: int = 0
    until: int = NEVER
    nullable: bool = False
    tag: int | None = None
    default: Any = 0


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """One record type: its key (always version 0, never flexible) and its value in versions 0 to `latest_version`."""

    type: int
    name: str
    key: Struct
    value: Struct
    latest_version: int = 0
    flexible_since: int = 0


def struct(*fields: Field) -> Struct:
    """Make a struct of fields, without a tuple's parentheses."""
    return Struct(fields)


_FIXED: Mapping[Primitive, Read] = {
    Primitive.INT8: Reader.int8,
    Primitive.INT16: Reader.int16,
    Primitive.UINT16: Reader.uint16,
    Primitive.INT32: Reader.int32,
    Primitive.INT64: Reader.int64,
    Primitive.UUID: Reader.uuid,
}
_SIZED: Mapping[tuple[Primitive, bool, bool], Read] = {
    # (type, flexible, nullable)
    (Primitive.STRING, False, False): Reader.string,
    (Primitive.STRING, False, True): Reader.nullable_string,
    (Primitive.STRING, True, False): Reader.compact_string,
    (Primitive.STRING, True, True): Reader.compact_nullable_string,
    (Primitive.BYTES, False, False): Reader.bytes_,
    (Primitive.BYTES, False, True): Reader.nullable_bytes,
    (Primitive.BYTES, True, False): Reader.compact_bytes,
}


def compile_struct(layout: Struct, version: int, *, flexible: bool) -> Read:
    """Make a reader of `layout` in one version."""
    present = [field for field in layout.fields if field.since <= version <= field.until]
    plain = [(field.name, _compile(field, version, flexible)) for field in present if field.tag is None]
    tagged = {field.tag: (field, _compile(field, version, flexible)) for field in present if field.tag is not None}

    def read_plain(reader: Reader) -> Fields:
        return {name: read(reader) for name, read in plain}

    def read_flexible(reader: Reader) -> Fields:
        fields = {name: read(reader) for name, read in plain}
        if tags := reader.uvarint():
            _read_tags(reader, tags, tagged, fields)
        return fields

    return read_flexible if flexible else read_plain


def _read_tags(reader: Reader, tags: int, tagged: Mapping[int, tuple[Field, Read]], fields: Fields) -> None:
    """Read a tagged section into `fields`, as Kafka does: the written size counts only for unknown tags."""
    for _ in range(tags):
        tag, size_bytes = reader.uvarint(), reader.uvarint()
        if reader.failure is not None:
            return
        if tag not in tagged:
            reader.raw(size_bytes)
            reader.unknown_tags += 1
            continue
        field, read = tagged[tag]
        unknown_before = reader.unknown_tags
        value = read(reader)
        # To Kafka a struct with unknown tags differs from the default, even if all known fields are equal.
        if value == field.default and reader.unknown_tags == unknown_before:
            fields.pop(field.name, None)
        else:
            fields[field.name] = value


def _compile(field: Field, version: int, flexible: bool) -> Read:
    read = _compile_type(field.type, version, flexible=flexible, nullable=field.nullable)
    if not (field.nullable and isinstance(field.type, Struct)):
        return read
    # Null is an int8 -1 for a field in place, and a uvarint 0 for a tagged field.
    return _nullable(read, Reader.int8, present_from=0) if field.tag is None else _nullable(read, Reader.uvarint, 1)


def _compile_type(kind: Primitive | Array | Struct, version: int, *, flexible: bool, nullable: bool = False) -> Read:
    match kind:
        case Array(of):
            count = Reader.compact_array_count if flexible else Reader.array_count
            return _array(of, count, _compile_type(of, version, flexible=flexible), nullable=nullable)
        case Struct():
            return compile_struct(kind, version, flexible=flexible)
        case _:
            return _FIXED.get(kind) or _SIZED[kind, flexible, nullable]


def _nullable(read: Read, marker: Callable[[Reader], int], present_from: int) -> Read:
    def read_nullable(reader: Reader) -> Fields | None:
        return read(reader) if marker(reader) >= present_from else None

    return read_nullable


def _array(of: Primitive | Struct, count_of: Callable[[Reader], int | None], element: Read, *, nullable: bool) -> Read:
    def read_array(reader: Reader) -> list[Any] | None:
        count = count_of(reader)
        if count is None:
            if not nullable:
                reader.fail("null where null is not allowed")
            return None
        if of is Primitive.INT32:
            return reader.int32s(count)
        elements: list[Any] = []
        for _ in range(count):
            elements.append(element(reader))
            if reader.failure is not None:  # a count of a million must not go on for a million zeros
                break
        return elements

    return read_array

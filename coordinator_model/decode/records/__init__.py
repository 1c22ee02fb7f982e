"""What the log can say: `decode(key, value)` turns one raw record of `__consumer_offsets` into a `Record`.

Every record type and value version that Kafka 4.3 knows. Bad data is a value, never an exception: the `Outcome` says
which kind of bad, `error` says where.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from coordinator_model.decode.records import consumer_group, group_metadata, offset_commit, share_group, streams_group
from coordinator_model.decode.records.schema import Fields, Read, RecordSchema, compile_struct
from coordinator_model.decode.wire import Reader

__all__ = [
    "Outcome",
    "Record",
    "RecordType",
    "decode",
    "group_of",
    "latest_version",
    "offset_commit_key",
    "record_type",
    "type_name",
]


class Outcome(StrEnum):
    """What became of a record's bytes."""

    DECODED = "decoded"
    TOMBSTONE = "tombstone"
    """The value is null: what the key names is gone."""
    UNKNOWN_TYPE = "unknown-type"
    """Written by a newer (or older preview) broker; Kafka itself skips these."""
    UNKNOWN_VERSION = "unknown-version"
    """The key is read, the value's version is none that Kafka 4.3 knows."""
    MALFORMED = "malformed"
    """Cut off, left-over bytes, or a length, count or null that cannot be."""
    NO_KEY = "no-key"


class RecordType(IntEnum):
    """Kafka's `CoordinatorRecordType`: the int16 that every key starts with."""

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    SHARE_GROUP_MEMBER_METADATA = 10
    SHARE_GROUP_METADATA = 11
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = 12
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = 13
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = 14
    SHARE_GROUP_STATE_PARTITION_METADATA = 15
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16
    STREAMS_GROUP_METADATA = 17
    STREAMS_GROUP_MEMBER_METADATA = 19
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = 20
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = 21
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = 22
    STREAMS_GROUP_TOPOLOGY = 23


@dataclass(frozen=True, slots=True)
class Record:
    """One record, as far as it could be read.

    `type` is None only where the key is missing or shorter than two bytes. `key` is there once all of it was read,
    `version` and `value` only if `decoded`, `error` for every outcome but `decoded` and `tombstone`. `key` and `value`
    have the names and shapes of Kafka's JSON converters, except that bytes are `bytes`.
    """

    outcome: Outcome
    type: int | None = None
    key: Fields | None = None
    version: int | None = None
    value: Fields | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Codec:
    name: str
    key: Read
    values: tuple[Read, ...]
    """By version."""


def _codec(schema: RecordSchema) -> _Codec:
    return _Codec(
        schema.name,
        compile_struct(schema.key, 0, flexible=False),
        tuple(
            compile_struct(schema.value, version, flexible=version >= schema.flexible_since)
            for version in range(schema.latest_version + 1)
        ),
    )


_CODECS = {
    schema.type: _codec(schema)
    for family in (offset_commit, group_metadata, consumer_group, share_group, streams_group)
    for schema in family.SCHEMAS
}
_NO_KEY = Record(Outcome.NO_KEY, error="the record has no key")


def decode(key: bytes | None, value: bytes | None) -> Record:
    """Decode one record. Never raises, whatever the bytes are."""
    if key is None:
        return _NO_KEY
    reader = Reader(key)
    type_ = reader.int16()
    if reader.failure is not None:
        return Record(Outcome.MALFORMED, error=f"key: {reader.failure}")
    codec = _CODECS.get(type_)
    if codec is None:
        return Record(Outcome.UNKNOWN_TYPE, type_, error=f"record type {type_} is unknown")
    key_fields = codec.key(reader)
    if problem := reader.finish():
        return Record(Outcome.MALFORMED, type_, error=f"key of {codec.name}: {problem}")
    if value is None:
        return Record(Outcome.TOMBSTONE, type_, key_fields)
    return _decode_value(codec, type_, key_fields, value)


def _decode_value(codec: _Codec, type_: int, key_fields: Fields, value: bytes) -> Record:
    reader = Reader(value)
    version = reader.int16()
    if reader.failure is None and not 0 <= version < len(codec.values):
        error = f"value version {version} of {codec.name} is unknown, the latest is {len(codec.values) - 1}"
        return Record(Outcome.UNKNOWN_VERSION, type_, key_fields, error=error)
    value_fields = codec.values[version](reader)
    if problem := reader.finish():
        return Record(Outcome.MALFORMED, type_, key_fields, error=f"value of {codec.name}: {problem}")
    return Record(Outcome.DECODED, type_, key_fields, version, value_fields)


def record_type(key: bytes | None) -> int | None:
    """Read the record type a key starts with, known or not; None without two bytes to read it from."""
    return int.from_bytes(key[:2], "big", signed=True) if key is not None and len(key) >= 2 else None


def type_name(type_: int) -> str | None:
    """Give Kafka's name of a record type, None where it is unknown."""
    codec = _CODECS.get(type_)
    return None if codec is None else codec.name


def latest_version(type_: int) -> int | None:
    """Give the newest version of a record type's value, None where the type is unknown."""
    codec = _CODECS.get(type_)
    return None if codec is None else len(codec.values) - 1


def offset_commit_key(key: bytes | None) -> tuple[str, str, int] | None:
    """Read (group, topic, partition) of a well-formed key of type 0 or 1, else None. Cheaper than `decode`."""
    if key is None:
        return None
    reader = Reader(key)
    if reader.int16() not in (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT):
        return None
    group, topic, partition = reader.string(), reader.string(), reader.int32()
    return None if reader.finish() else (group, topic, partition)


def group_of(key: bytes | None) -> str | None:
    """Read the group that a well-formed key of a known type belongs to, else None."""
    if key is None:
        return None
    reader = Reader(key)
    codec = _CODECS.get(reader.int16())
    if codec is None:
        return None
    fields = codec.key(reader)
    group: str = fields["group"] if "group" in fields else fields["groupId"]
    return None if reader.finish() else group

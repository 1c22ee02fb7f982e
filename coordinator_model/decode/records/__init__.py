"""The records of `__consumer_offsets`: `decode(key, value)` turns one raw record into a `Record`.

It knows every record type and value version of Kafka 4.3. Bad data never raises: the `Outcome` says what is wrong, and
`error` says where.
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
    """The value is null: what the key names was deleted."""
    UNKNOWN_TYPE = "unknown-type"
    """The record was written by a newer broker, or by an old preview version. Kafka itself skips such records."""
    UNKNOWN_VERSION = "unknown-version"
    """The key was read, but Kafka 4.3 does not know the value's version."""
    MALFORMED = "malformed"
    """The bytes are cut off or left over, or a length, a count or a null is not valid."""
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

    `type` is None only if the key is missing or shorter than two bytes. `key` is set if all of it could be read,
    `version` and `value` only if the outcome is `decoded`, `error` for every outcome but `decoded` and `tombstone`.
    `key` and `value` have the names and the structure of Kafka's JSON converters, except that bytes are `bytes`.
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
    """Read the record type at the start of a key, known or not; None: the key has fewer than two bytes."""
    return int.from_bytes(key[:2], "big", signed=True) if key is not None and len(key) >= 2 else None


def type_name(type_: int) -> str | None:
    """Return Kafka's name of a record type; None: the type is unknown."""
    codec = _CODECS.get(type_)
    return None if codec is None else codec.name


def latest_version(type_: int) -> int | None:
    """Return the newest version of a record type's value; None: the type is unknown."""
    codec = _CODECS.get(type_)
    return None if codec is None else len(codec.values) - 1


def offset_commit_key(key: bytes | None) -> tuple[str, str, int] | None:
    """Read (group, topic, partition) of a well-formed key of type 0 or 1; None: another key. Cheaper than `decode`."""
    if key is None:
        return None
    reader = Reader(key)
    if reader.int16() not in (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT):
        return None
    group, topic, partition = reader.string(), reader.string(), reader.int32()
    return None if reader.finish() else (group, topic, partition)


def group_of(key: bytes | None) -> str | None:
    """Read the group of a well-formed key of a known type; None: any other key."""
    if key is None:
        return None
    reader = Reader(key)
    codec = _CODECS.get(reader.int16())
    if codec is None:
        return None
    fields = codec.key(reader)
    group: str = fields["group"] if "group" in fields else fields["groupId"]
    return None if reader.finish() else group

"""Golden decodes: bytes written by Kafka's own classes, and what they say."""

import json
from pathlib import Path

import pytest

from coordinator_model.decode.records import Outcome, RecordType, decode, group_of, offset_commit_key, record_type
from coordinator_model.decode.records.schema import Array, Field, Primitive, compile_struct, struct
from coordinator_model.decode.wire import Reader

FIXTURE = Path(__file__).parents[3] / "fixtures/consumer_offsets/kafka-4.3.1.jsonl"

TOPIC_ID = "0102030405060708090a0b0c0d0e0f10"
TOPIC_ID_TEXT = "AQIDBAUGBwgJCgsMDQ4PEA"
COMMIT = {"offset": 42, "metadata": "m", "commitTimestamp": 1_700_000_000_000}
MEMBER = {"memberId": "m1", "clientId": "c1", "clientHost": "/10.0.0.1", "sessionTimeout": 45_000}
BLOBS = {"subscription": b"\x00\x01", "assignment": b"\x00\x02"}
GROUP = {"protocolType": "consumer", "generation": 3, "protocol": "range", "leader": "m1"}
CONSUMER_MEMBER = {
    "instanceId": None,
    "rackId": None,
    "clientId": "c1",
    "clientHost": "/10.0.0.1",
    "subscribedTopicNames": ["t"],
    "subscribedTopicRegex": "",
    "rebalanceTimeoutMs": 300_000,
    "serverAssignor": None,
}
OWNED = {"topicId": TOPIC_ID_TEXT, "partitions": [0, 1]}


def group_metadata(changes=(), member=()):
    timestamp = {"currentStateTimestamp": 1_700_000_000_000}
    return (
        GROUP | timestamp | dict(changes) | {"members": [MEMBER | {"rebalanceTimeout": 300_000} | BLOBS | dict(member)]}
    )


# (type, version), value bytes, decoded value
VALUES = {
    "legacy offset commit": ((0, 0), "0000 000000000000002a 00016d 0000018bcfe56800", COMMIT),
    "offset commit v0": ((1, 0), "0000 000000000000002a 00016d 0000018bcfe56800", COMMIT),
    "offset commit v1 with expiry": (
        (1, 1),
        "0001 000000000000002a 00016d 0000018bcfe56800 0000018bcfe65260",
        COMMIT | {"expireTimestamp": 1_700_000_060_000},
    ),
    "offset commit v3": (
        (1, 3),
        "0003 000000000000002a 00000005 00016d 0000018bcfe56800",
        COMMIT | {"leaderEpoch": 5},
    ),
    "offset commit v4 without topic id": (
        (1, 4),
        "0004 000000000000002a 00000005 026d 0000018bcfe56800 00",
        COMMIT | {"leaderEpoch": 5},
    ),
    "offset commit v4 with topic id": (
        (1, 4),
        f"0004 000000000000002a 00000005 026d 0000018bcfe56800 010010 {TOPIC_ID}",
        COMMIT | {"leaderEpoch": 5, "topicId": TOPIC_ID_TEXT},
    ),
    "group metadata v0": (
        (2, 0),
        (
            "00000008636f6e73756d657200000003000572616e676500026d310000000100026d310002633100092f31302e302e302e31"
            "0000afc8000000020001000000020002"
        ),
        GROUP | {"members": [MEMBER | BLOBS]},
    ),
    "group metadata v1": (
        (2, 1),
        (
            "00010008636f6e73756d657200000003000572616e676500026d310000000100026d310002633100092f31302e302e302e31"
            "000493e00000afc8000000020001000000020002"
        ),
        GROUP | {"members": [MEMBER | {"rebalanceTimeout": 300_000} | BLOBS]},
    ),
    "group metadata v2": (
        (2, 2),
        (
            "00020008636f6e73756d657200000003000572616e676500026d310000018bcfe568000000000100026d310002633100092f"
            "31302e302e302e31000493e00000afc8000000020001000000020002"
        ),
        group_metadata(),
    ),
    "group metadata v3": (
        (2, 3),
        (
            "00030008636f6e73756d657200000003000572616e676500026d310000018bcfe568000000000100026d3100026931000263"
            "3100092f31302e302e302e31000493e00000afc8000000020001000000020002"
        ),
        group_metadata(member={"groupInstanceId": "i1"}),
    ),
    "group metadata v4": (
        (2, 4),
        (
            "000409636f6e73756d6572000000030672616e6765036d310000018bcfe5680002036d310369310363310a2f31302e302e30"
            "2e31000493e00000afc80300010300020000"
        ),
        group_metadata(member={"groupInstanceId": "i1"}),
    ),
    "group metadata of a new group": (
        (2, 3),
        "0003 0000 00000000 ffff ffff 0000018bcfe56800 00000000",
        {
            "protocolType": "",
            "generation": 0,
            "protocol": None,
            "leader": None,
            "currentStateTimestamp": 1_700_000_000_000,
            "members": [],
        },
    ),
    "group metadata of a group that became empty": (
        (2, 3),
        "0003 0008636f6e73756d6572 00000004 ffff ffff 0000018bcfe56800 00000000",
        {
            "protocolType": "consumer",
            "generation": 4,
            "protocol": None,
            "leader": None,
            "currentStateTimestamp": 1_700_000_000_000,
            "members": [],
        },
    ),
    "consumer group, hash at its default": ((3, 0), "0000 00000005 00", {"epoch": 5}),
    "consumer group, hash set": (
        (3, 0),
        "0000 00000005 010008 1122334455667788",
        {"epoch": 5, "metadataHash": 0x1122334455667788},
    ),
    "consumer member": (
        (5, 0),
        "0000 00 00 036331 0a2f31302e302e302e31 020274 01 000493e0 00 01000100",
        CONSUMER_MEMBER | {"classicMemberMetadata": None},
    ),
    "consumer member, classic part absent": (
        (5, 0),
        "0000 00 00 036331 0a2f31302e302e302e31 020274 01 000493e0 00 00",
        CONSUMER_MEMBER,
    ),
    "classic member in a consumer group": (
        (5, 0),
        "0000 00 00 036331 0a2f31302e302e302e31 020274 01 000493e0 00 010011 01 0000afc8 020672616e6765 030001 00 00",
        CONSUMER_MEMBER
        | {
            "classicMemberMetadata": {
                "sessionTimeoutMs": 45_000,
                "supportedProtocols": [{"name": "range", "metadata": b"\x00\x01"}],
            },
        },
    ),
    "target assignment epoch": ((6, 0), "0000 00000005 00", {"assignmentEpoch": 5}),
    "target assignment epoch with timestamp": (
        (6, 0),
        "0000 00000005 010008 0000018bcfe56800",
        {"assignmentEpoch": 5, "assignmentTimestamp": 1_700_000_000_000},
    ),
    "target assignment": (
        (7, 0),
        f"0000 02 {TOPIC_ID} 03 00000000 00000001 00 00",
        {"topicPartitions": [OWNED]},
    ),
    "current assignment without epochs": (
        (8, 0),
        f"0000 00000005 00000004 00 02 {TOPIC_ID} 03 00000000 00000001 00 01 00",
        {
            "memberEpoch": 5,
            "previousMemberEpoch": 4,
            "state": 0,
            "assignedPartitions": [OWNED],
            "partitionsPendingRevocation": [],
        },
    ),
    "current assignment with epochs": (
        (8, 0),
        f"0000 00000005 00000004 01 02 {TOPIC_ID} 03 00000000 00000001 010009 03 00000004 00000005 01 00",
        {
            "memberEpoch": 5,
            "previousMemberEpoch": 4,
            "state": 1,
            "assignedPartitions": [OWNED | {"assignmentEpochs": [4, 5]}],
            "partitionsPendingRevocation": [],
        },
    ),
    "current assignment, static member away for a while": (
        (8, 0),
        f"0000 fffffffe 00000005 00 02 {TOPIC_ID} 03 00000000 00000001 010009 03 00000000 00000000 01 00",
        {
            "memberEpoch": -2,
            "previousMemberEpoch": 5,
            "state": 0,
            "assignedPartitions": [OWNED | {"assignmentEpochs": [0, 0]}],
            "partitionsPendingRevocation": [],
        },
    ),
    "resolved regular expression": (
        (16, 0),
        "0000 0204666f6f 000000000000000a 0000018bcfe56800 00",
        {"topics": ["foo"], "version": 10, "timestamp": 1_700_000_000_000},
    ),
    "streams member": (
        (19, 0),
        "0000 00 00 036331 0a2f31302e302e302e31 000493e0 00000001 0270 01 0268 2382 00 01 00",
        {
            "instanceId": None,
            "rackId": None,
            "clientId": "c1",
            "clientHost": "/10.0.0.1",
            "rebalanceTimeoutMs": 300_000,
            "topologyEpoch": 1,
            "processId": "p",
            "userEndpoint": {"host": "h", "port": 9090},
            "clientTags": [],
        },
    ),
}

KEYS = {
    "000000016700017400000007": (0, {"group": "g", "topic": "t", "partition": 7}),
    "000100016700017400000007": (1, {"group": "g", "topic": "t", "partition": 7}),
    "0002000167": (2, {"group": "g"}),
    "0003000167": (3, {"groupId": "g"}),
    "000500016700026d31": (5, {"groupId": "g", "memberId": "m1"}),
    "0006000167": (6, {"groupId": "g"}),
    "000700016700026d31": (7, {"groupId": "g", "memberId": "m1"}),
    "000800016700026d31": (8, {"groupId": "g", "memberId": "m1"}),
    "00100001670003662e2a": (16, {"groupId": "g", "regularExpression": "f.*"}),
    "001300016700026d31": (19, {"groupId": "g", "memberId": "m1"}),
}
KEY_OF = {type_: bytes.fromhex(key) for key, (type_, _) in KEYS.items()}


@pytest.mark.parametrize("name", VALUES)
def test_golden_value(name):
    (type_, version), value, expected = VALUES[name]
    record = decode(KEY_OF[type_], bytes.fromhex(value))
    assert (record.outcome, record.type, record.version, record.error) == (Outcome.DECODED, type_, version, None)
    assert record.value == expected


@pytest.mark.parametrize("key", KEYS)
def test_golden_key_of_a_tombstone(key):
    type_, expected = KEYS[key]
    record = decode(bytes.fromhex(key), None)
    assert (record.outcome, record.type, record.key, record.value) == (Outcome.TOMBSTONE, type_, expected, None)
    assert (record_type(bytes.fromhex(key)), group_of(bytes.fromhex(key))) == (type_, "g")
    assert offset_commit_key(bytes.fromhex(key)) == (("g", "t", 7) if type_ < 2 else None)


@pytest.mark.parametrize("type_", set(range(-1, 25)) - set(RecordType))
def test_a_type_that_kafka_4_3_does_not_know_is_unknown(type_):
    """Types 9 and 18 are gaps, 24 is the next one; the value may be anything."""
    key = type_.to_bytes(2, "big", signed=True) + b"\x00\x01g"
    for value in (None, b"", b"\x00\x00"):
        assert decode(key, value).outcome == Outcome.UNKNOWN_TYPE
    assert (record_type(key), group_of(key), offset_commit_key(key)) == (type_, None, None)


@pytest.mark.parametrize(("type_", "version"), [(0, 1), (1, 5), (2, 5), (3, 1), (1, -1), (2, 32_767)])
def test_an_unknown_version_keeps_the_key(type_, version):
    record = decode(KEY_OF[type_], version.to_bytes(2, "big", signed=True) + b"whatever")
    assert (record.outcome, record.value, record.version) == (Outcome.UNKNOWN_VERSION, None, None)
    assert record.key == KEYS[KEY_OF[type_].hex()][1]


def test_no_key_is_an_outcome_of_its_own():
    assert decode(None, b"\x00\x00").outcome == Outcome.NO_KEY
    assert (record_type(None), group_of(None), offset_commit_key(None)) == (None, None, None)


HOSTILE = {
    "an array of two thousand million": ("0002000167", "0003 0000 00000000 ffff ffff 0000018bcfe56800 7fffffff"),
    "a null array": ("0002000167", "0003 0000 00000000 ffff ffff 0000018bcfe56800 ffffffff"),
    "a null string": ("0002000167", "0003 ffff 00000000 ffff ffff 0000018bcfe56800 00000000"),
    "a string longer than its value": ("0002000167", "0003 7fff 61"),
    "a compact string of four thousand million": ("0002000167", "0004 ffffffff0f 61"),
    "a varint of six bytes": ("0002000167", "0004 808080808000 61"),
    "an unknown tag larger than the rest": ("0003000167", "0000 00000005 01 09 7f 00"),
    "more tags than there are": ("0003000167", "0000 00000005 ffffff7f"),
    "a key without a group": ("0002", "0003"),
    "a key with a null group": ("0002ffff", "0003"),
    "half a type": ("00", "0003"),
    "an empty key": ("", None),
    "an empty value": ("0002000167", ""),
    "half a version": ("0002000167", "00"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_malformed(name):
    key, value = HOSTILE[name]
    record = decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert record.outcome == Outcome.MALFORMED
    assert record.value is None
    assert record.error


class CountingReader(Reader):
    failures = 0

    def fail(self, reason):
        self.failures += 1
        super().fail(reason)


def test_a_failed_array_stops_at_its_first_bad_element():
    """A count near the value's size costs one element's work, not a million."""
    members = struct(Field("members", Array(struct(Field("memberId", Primitive.STRING)))))
    reader = CountingReader((0x100000).to_bytes(4, "big") + b"\xff" * 0x100000)
    compile_struct(members, 0, flexible=False)(reader)
    assert reader.failures == 1
    assert reader.failure == "null or negative length at byte 6 of 1048580"


# version of an offset commit -> what stands before and after its metadata
AROUND_METADATA = {
    0: ("0000 000000000000002a", "0000018bcfe56800"),
    1: ("0001 000000000000002a", "0000018bcfe56800 0000018bcfe65260"),
    2: ("0002 000000000000002a", "0000018bcfe56800"),
    3: ("0003 000000000000002a 00000005", "0000018bcfe56800"),
    4: ("0004 000000000000002a 00000005", "0000018bcfe56800 00"),
}


@pytest.mark.parametrize("version", AROUND_METADATA)
@pytest.mark.parametrize("length", [126, 127, 128, 16_382, 16_383])
def test_every_version_of_a_commit_is_read_however_long_its_metadata(version, length):
    """Burrow knows no version 2, and reads the length of version 4 as one byte."""
    before, after = map(bytes.fromhex, AROUND_METADATA[version])
    count, varint = length + 1, b""
    while count > 0x7F:
        varint, count = varint + bytes([count & 0x7F | 0x80]), count >> 7
    size = varint + bytes([count]) if version == 4 else length.to_bytes(2, "big")
    record = decode(KEY_OF[1], before + size + b"m" * length + after)
    assert (record.outcome, record.version) == (Outcome.DECODED, version)
    assert record.value["metadata"] == "m" * length


@pytest.mark.parametrize(
    "tags",
    ["01 05 03 aabbcc", "02 05 00 ffffffff07 01 aa", "02 00 08 0000000000000000 05 00"],
)
def test_unknown_tags_are_skipped(tags):
    record = decode(bytes.fromhex("0003000167"), bytes.fromhex("0000 00000005" + tags))
    assert (record.outcome, record.value) == (Outcome.DECODED, {"epoch": 5})


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("e9", "\ufffd"),
        ("c0af", "\ufffd\ufffd"),
        ("e282", "\ufffd"),
        ("f09f9a80", "\U0001f680"),
        ("f4908080", "\ufffd" * 4),
        ("eda080", "\ufffd"),  # one for an encoded surrogate, where Python would write three
        ("eda0bdedba80", "\ufffd\ufffd"),
        ("61eda062", "a\ufffdb"),
    ],
)
def test_what_is_not_utf8_becomes_a_replacement_character_as_in_java(raw, text):
    key = bytes.fromhex("0002") + len(raw[::2]).to_bytes(2, "big") + bytes.fromhex(raw)
    assert group_of(key) == text


def kept_answers():
    for line in FIXTURE.read_text(encoding="ascii").splitlines():
        row = json.loads(line)
        yield bytes.fromhex(row["key"]), bytes.fromhex(row["value"]), row["expected"]


def test_outcomes_are_those_kafka_4_3_1_gave():
    """The oracle's kept answers (`RecordOracle 434 1`): random and damaged records of every type and version."""
    for key, value, expected in kept_answers():
        record = decode(key, value)
        assert record.outcome == expected["outcome"], (key.hex(), value.hex(), record.error)
        assert (record.key is None) == (expected["key"] is None)

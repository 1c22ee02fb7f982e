# ruff: noqa: E501 (a vector is a line)
"""The simulation's encoder writes what Kafka's own generated classes write: byte vectors made with them."""

from uuid import UUID

import pytest

from tests.support import records as encoder

AT_MS = 1_700_000_000_000
TOPIC_ID = UUID(bytes=bytes(range(1, 17)))
MEMBER = encoder.ListedMember("m1", "i1", "c1", "/10.0.0.1", 300_000, 45_000, b"\0\1", b"\0\2")
ID = "0102030405060708090a0b0c0d0e0f10"


def metadata(version, members=(MEMBER,), **changes):
    said = {"protocol_type": "consumer", "generation": 3, "protocol": "range", "leader": "m1"} | changes
    return encoder.group_metadata(**said, state_ms=AT_MS, members=members, version=version)


VECTORS = {
    "K OffsetCommit": (encoder.commit_key("g", "t", 7), "000100016700017400000007"),
    "K GroupMetadata": (encoder.key(2, "g"), "0002000167"),
    "K 3": (encoder.key(3, "g"), "0003000167"),
    "K 5": (encoder.key(5, "g", "m1"), "000500016700026d31"),
    "K 8": (encoder.key(8, "g", "m1"), "000800016700026d31"),
    "V GroupMetadata v0": (metadata(0), "00000008636f6e73756d657200000003000572616e676500026d310000000100026d310002633100092f31302e302e302e310000afc8000000020001000000020002"),
    "V GroupMetadata v1": (metadata(1), "00010008636f6e73756d657200000003000572616e676500026d310000000100026d310002633100092f31302e302e302e31000493e00000afc8000000020001000000020002"),
    "V GroupMetadata v2": (metadata(2), "00020008636f6e73756d657200000003000572616e676500026d310000018bcfe568000000000100026d310002633100092f31302e302e302e31000493e00000afc8000000020001000000020002"),
    "V GroupMetadata v3": (metadata(3), "00030008636f6e73756d657200000003000572616e676500026d310000018bcfe568000000000100026d31000269310002633100092f31302e302e302e31000493e00000afc8000000020001000000020002"),
    "V new group": (metadata(3, (), protocol_type="", generation=0, protocol=None, leader=None), "0003 0000 00000000 ffff ffff 0000018bcfe56800 00000000"),
    "V became Empty": (metadata(3, (), generation=4, protocol=None, leader=None), "0003 0008636f6e73756d6572 00000004 ffff ffff 0000018bcfe56800 00000000"),
    "V Subscription v0": (encoder.subscription(["t"]), "0000 00000001000174 ffffffff"),
    "V Assignment v0": (encoder.assignment({"t": [0, 1]}), "0000 00000001000174000000020000000000000001 ffffffff"),
    "V 3": (encoder.group_epoch(5), "0000 00000005 00"),
    "V 5": (encoder.member_metadata("c1", "/10.0.0.1", ["t"], 300_000), "0000 00 00 036331 0a2f31302e302e302e31 020274 01 000493e0 00 01000100"),
    "V 6": (encoder.target_epoch(5), "0000 00000005 00"),
    "V 7": (encoder.target({TOPIC_ID: [0, 1]}), f"0000 02 {ID} 03 00000000 00000001 00 00"),
    "V 8": (encoder.current(5, 4, 0, {TOPIC_ID: [0, 1]}, {}), f"0000 00000005 00000004 00 02 {ID} 03 00000000 00000001 00 01 00"),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
def test_the_bytes_are_kafkas_own(name):
    written, expected = VECTORS[name]
    assert written.hex() == expected.replace(" ", "")

"""Members' blobs: every version of the consumer's and of Connect's, and clients that lie about theirs."""

import pytest

from coordinator_model.decode.member_protocol import (
    ConnectAssignment,
    ConnectWorker,
    StreamsTasks,
    Subscription,
    assignment,
    connect_assignment,
    connect_worker,
    streams_tasks,
    subscription,
)

OWNED = (("t", (0, 1)),)
TOPICS = "00000001000174"
OWNED_BYTES = "00000001000174000000020000000000000001"

SUBSCRIPTIONS = {
    f"0000 {TOPICS} ffffffff": Subscription(0, ("t",), None, (), -1, None),
    f"0001 {TOPICS} ffffffff {OWNED_BYTES}": Subscription(1, ("t",), None, OWNED, -1, None),
    f"0002 {TOPICS} ffffffff {OWNED_BYTES} 00000003": Subscription(2, ("t",), None, OWNED, 3, None),
    f"0003 {TOPICS} ffffffff {OWNED_BYTES} 00000003 000172": Subscription(3, ("t",), None, OWNED, 3, "r"),
    f"0003 {TOPICS} 00000002cafe {OWNED_BYTES} ffffffff ffff": Subscription(3, ("t",), b"\xca\xfe", OWNED, -1, None),
    f"0009 {TOPICS} ffffffff {OWNED_BYTES} 00000003 000172 abcdef": Subscription(9, ("t",), None, OWNED, 3, "r"),
    f"0000 {TOPICS} ffffffff abcdef": Subscription(0, ("t",), None, (), -1, None),
    f"0001 {TOPICS} ffffffff": Subscription(1, ("t",), None, (), -1, None),  # bsm/sarama-cluster's
}


@pytest.mark.parametrize("blob", SUBSCRIPTIONS)
def test_subscription(blob):
    assert subscription(bytes.fromhex(blob)) == SUBSCRIPTIONS[blob]


@pytest.mark.parametrize("blob", ["", "00", "0000", "ffff00000000ffffffff", "0000ffffffff00000000", "00007fffffff"])
def test_a_subscription_that_cannot_be_read_is_none(blob):
    assert subscription(bytes.fromhex(blob)) is None


@pytest.mark.parametrize(
    ("blob", "expected"),
    [
        ("", ()),  # the leader left this member out
        ("0000 00000000 ffffffff", ()),
        (f"0000 {OWNED_BYTES} ffffffff", OWNED),
        (f"0003 {OWNED_BYTES} 00000001aa", OWNED),
        (f"0007 {OWNED_BYTES} ffffffff abcd", OWNED),
        (f"ffff {OWNED_BYTES} ffffffff", None),
        (f"0000 {OWNED_BYTES}", None),
        ("0000", None),
    ],
)
def test_assignment(blob, expected):
    assert assignment(bytes.fromhex(blob)) == expected


TASKS = "00000002 00000000 00000001  00000001 00000002"  # 0_1 and 1_2
NAMED = "00000001 00000000 00000001 00000000"  # 0_1 of the topology without a name
STANDBY = "00000001 00000001 00000000 00000001 000163 00000000"  # 1_0 with its changelog c:0


def streams_blob(user_data):
    """An assignment of no partitions with these user data."""
    return bytes.fromhex(f"0000 00000000 {len(bytes.fromhex(user_data)):08x} {user_data}")


@pytest.mark.parametrize(
    ("user_data", "expected"),
    [
        (f"00000001 {TASKS} {STANDBY}", StreamsTasks(((0, 1), (1, 2)), ((1, 0),))),
        (f"00000009 0000000b {TASKS} {STANDBY} ffff", StreamsTasks(((0, 1), (1, 2)), ((1, 0),))),
        (f"0000000b 0000000b {NAMED} 00000000", StreamsTasks(((0, 1),), ())),
        ("00000001 00000000 00000000", StreamsTasks((), ())),
        ("00000001 7fffffff", None),
        (f"00000001 00000000 {STANDBY[:-2]}", None),
        ("00000000 00000000 00000000", None),
        ("aa", None),
    ],
)
def test_streams_tasks(user_data, expected):
    assert streams_tasks(streams_blob(user_data)) == expected


def test_streams_tasks_of_an_assignment_without_user_data():
    assert streams_tasks(b"") is None
    assert streams_tasks(bytes.fromhex(f"0000 {OWNED_BYTES} ffffffff")) is None


URL = "0003" + b"u:1".hex()
CONNECT_V0 = f"0000 0000 000177 {URL} 0000000000000009 00000001 000163 00000002 ffffffff 00000000"
CONNECT_V1 = f"0001 0000 000177 {URL} 0000000000000009 ffffffff 00000001 000163 00000001 00000000 0000ea60"
GIVEN_V0 = ConnectAssignment(0, 0, "w", "u:1", 9, (("c", (-1, 0)),), (), 0)
GIVEN_V1 = ConnectAssignment(1, 0, "w", "u:1", 9, (), (("c", (0,)),), 60_000)


@pytest.mark.parametrize(
    ("blob", "expected"),
    [(CONNECT_V0, GIVEN_V0), (CONNECT_V1, GIVEN_V1), ("", None), ("0001 0000", None), ("ffff", None)],
)
def test_connect_assignment(blob, expected):
    assert connect_assignment(bytes.fromhex(blob)) == expected


@pytest.mark.parametrize(
    ("blob", "expected"),
    [
        (f"0000 {URL} 0000000000000009", ConnectWorker(0, "u:1", 9, None)),
        (f"0001 {URL} 0000000000000009 ffffffff", ConnectWorker(1, "u:1", 9, None)),
        (f"0001 {URL} 0000000000000009", ConnectWorker(1, "u:1", 9, None)),
        (
            f"0002 {URL} 0000000000000009 {len(bytes.fromhex(CONNECT_V1)):08x} {CONNECT_V1}",
            ConnectWorker(2, "u:1", 9, GIVEN_V1),
        ),
        ("0000", None),
    ],
)
def test_connect_worker(blob, expected):
    assert connect_worker(bytes.fromhex(blob)) == expected

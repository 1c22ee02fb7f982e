"""Classic groups of Connect workers and of Kafka Streams: what each member runs, and a stop that is no page."""

import base64
import struct

import pytest

from tests.support.records import ListedMember, data, group_metadata, key, string, subscription
from tests.support.request_log import line
from tests.support.story import POLL_MS, SESSION_MS, T0, Story, Who, stable


def connectors(**tasks):
    """[(connector, [task, ...])] as Connect's protocol lists them; task -1 is the connector itself."""
    body = b"".join(string(name) + struct.pack(f">i{len(n)}i", len(n), *n) for name, n in tasks.items())
    return struct.pack(">i", len(tasks)) + body


def given(version, assigned, revoked=None, delay_ms=0):
    """A Connect worker's assignment."""
    head = struct.pack(">hh", version, 0) + string("w1") + string("http://w1") + struct.pack(">q", 9)
    return (
        head
        + connectors(**assigned)
        + (connectors(**(revoked or {})) + struct.pack(">i", delay_ms) if version else b"")
    )


def worker(version, runs=None):
    """What a Connect worker says of itself as it joins."""
    head = struct.pack(">h", version) + string("http://w1") + struct.pack(">q", 9)
    return head + (data(given(version, runs)) if runs is not None else b"\xff\xff\xff\xff" if version else b"")


def group_of(protocol_type, protocol, subscribed, assigned, *, client_id="client"):
    """A classic group of one member with these bytes."""
    member = ListedMember("w1", None, client_id, "/10.0.0.7", POLL_MS, SESSION_MS, subscribed, assigned)
    value = group_metadata(protocol_type, 1, protocol, "w1", T0, [member])
    return Story().write(100, key(2, "orders"), value)


# protocol -> (what the worker runs as it joins, its assignment) -> what it runs then
WORKERS = {
    "eager: the assignment is whole": ("default", worker(0), given(0, {"jdbc": [-1, 0]}), {"jdbc": [-1, 0]}),
    "compatible: it runs on what it was not told to give up": (
        "compatible",
        worker(1, {"jdbc": [-1, 0, 1]}),
        given(1, {"s3": [0]}, {"jdbc": [1]}),
        {"jdbc": [-1, 0], "s3": [0]},
    ),
    "sessioned: the same": ("sessioned", worker(2, {"jdbc": [-1]}), given(2, {}), {"jdbc": [-1]}),
    "sessioned: a worker that has just come": ("sessioned", worker(2), given(2, {"s3": [0]}), {"s3": [0]}),
}


@pytest.mark.parametrize("name", WORKERS)
def test_a_connect_workers_connectors_and_tasks_are_shown(name):
    protocol, subscribed, assigned, runs = WORKERS[name]
    told = group_of("connect", protocol, subscribed, assigned).play(200)
    member = told.members["w1"]
    assert (told.group["protocol_type"], told.group["protocol"]) == ("connect", protocol)
    assert (member["tasks"], member["assignment"]) == ({"connectors": runs}, [])


def test_bytes_that_are_no_assignment_of_connect_show_nothing():
    assert group_of("connect", "sessioned", b"junk", b"\x00\x02junk").play(200).members["w1"]["tasks"] == {}


def test_the_bytes_of_any_other_protocol_stay_opaque():
    member = group_of("sr", "v0", b"{}", given(0, {"jdbc": [0]})).play(200).members["w1"]
    assert (member["tasks"], member["assignment"], member["topics"]) == ({}, [], [])


def streams_assignment():
    """Partition 1 of topic t, active task 0_1 and standby 1_0."""
    user_data = struct.pack(">iiiiii", 11, 11, 1, 0, 1, 0) + struct.pack(">iiiii", 1, 1, 0, 0, 0)
    return struct.pack(">hi", 1, 1) + string("t") + struct.pack(">ii", 1, 1) + data(user_data)


def test_a_kafka_streams_consumers_tasks_are_shown():
    subscribed = struct.pack(">hi", 1, 1) + string("t") + struct.pack(">i", -1) + struct.pack(">i", 0)
    member = group_of("consumer", "stream", subscribed, streams_assignment()).play(200).members["w1"]
    assert member["tasks"] == {"active": {"0": [1]}, "standby": {"1": [0]}}
    assert member["assignment"] == [{"topic": "t", "partitions": [1]}]


# ------------------------------------------------------------------------------------------- a stop without a leave

THREAD = "app-5f0c1c5e-StreamThread-{}-consumer"


def stopped(*client_ids, protocol="range", empties=False):
    """m1 falls silent at 3,000, its session ends at 9,000; the others go on, or the group empties."""
    names = [Who(f"m{n}", client_id=client_id, port=5_000 + n) for n, client_id in enumerate(client_ids, 1)]
    story = stable(*names, partitions=2).beats("m1", 1_000, 3_000)
    if empties:
        return story.record(9_004, 2)
    story.beats("m2", 1_000, 9_000).beat(9_100, "m2", 1, 27).join(9_300, "m2", 2, listed=("m2",))
    return story.record(9_340, 2, "m2").sync(9_350, "m2", 2, leader=True).beats("m2", 10_000, 150_000, 2)


def severities(story, until=150_000):
    return {t["severity"] for t in story.play(until).transitions if t["rule"] == "session-expired"}


def test_a_stop_of_a_kafka_streams_instance_is_information():
    assert severities(stopped(THREAD.format(1), THREAD.format(2))) == {"info"}


def test_a_stop_of_a_whole_kafka_streams_application_does_not_page():
    assert severities(stopped(THREAD.format(1), empties=True), 90_000) == {"info"}


def test_a_stop_of_all_of_another_application_pages():
    assert severities(stopped("app", empties=True), 90_000) == {"page"}


def test_a_client_that_only_looks_like_a_thread_of_streams_is_told_as_others_are():
    assert "info" not in severities(stopped("StreamThread-1-consumer-x", "app"))


def test_streams_consumers_with_client_ids_of_their_own_are_known_by_their_protocol():
    metadata = base64.b64encode(subscription(["t"])).decode()
    protocols = [{"name": "stream", "metadata": metadata}]
    request = {"groupId": "orders", "memberId": "m1", "protocolType": "consumer", "protocols": protocols}
    request |= {"sessionTimeoutMs": SESSION_MS, "rebalanceTimeoutMs": POLL_MS}
    listed = [{"memberId": "m1", "groupInstanceId": None, "metadata": metadata}]
    answer = {"errorCode": 0, "generationId": 1, "protocolType": "consumer", "protocolName": "stream"}
    answer |= {"leader": "m1", "memberId": "m1", "members": listed}
    story = Story()
    story.know("m1")
    story.tell(100, line("JOIN_GROUP", request, answer, client="client-m1", version=9)).sync(150, "m1", 1, leader=True)
    assert severities(story.beats("m1", 1_000, 3_000).record(9_004, 2), 20_000) == {"info"}


def test_a_streams_consumer_whose_session_ended_is_still_shown_as_gone():
    story = stable(*(Who(f"m{n}", client_id=THREAD.format(n), port=5_000 + n) for n in (1, 2)))
    member = story.beats("m1", 1_000, 3_000).beats("m2", 1_000, 12_000).play(12_000).members["m1"]
    assert member["liveness"] == "violated"

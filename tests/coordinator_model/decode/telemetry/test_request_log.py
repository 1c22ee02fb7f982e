"""What each line of the request log becomes, and that no line whatever does harm."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_model.decode.parse import RejectedRow, RowParser, parse_row
from coordinator_model.decode.telemetry import heartbeats as heartbeats_module
from coordinator_model.decode.telemetry import request_log
from coordinator_model.decode.telemetry.heartbeats import HeartbeatLines
from coordinator_model.events import (
    ClientSeen,
    ConsumerHeartbeat,
    Heartbeat,
    JoinAnswered,
    LeaveAnswered,
    SyncAnswered,
    Tick,
)
from tests.support.request_log import heartbeat_line, line, probe_line
from tests.support.story import T0, Story, events_of, telemetry

HEARTBEAT = heartbeat_line(total_ms=9.5, remote_ms=2.25, responseQueueTimeMs=0.75, sendTimeMs=1.5)


def only(story):
    [(_, _, row)] = story.rows
    return parse_row(row)


# ------------------------------------------------------------------------------------------------ instants


@pytest.mark.parametrize("wrapped", ["{}", "[2023-11-14T22:13:20,000] DEBUG {} (kafka.request.logger)"])
def test_instants_are_taken_back_from_the_line_to_arrival_and_application(wrapped):
    """answer = T - response queue - send; arrival = T - total; applied = answer - remote."""
    made = line(
        "HEARTBEAT",
        {"groupId": "g", "generationId": 3, "memberId": "m1"},
        {"errorCode": 27},
        total_ms=5_010.0,
        remote_ms=5_000.0,
        responseQueueTimeMs=2.0,
        sendTimeMs=3.0,
    )
    [beat] = events_of(wrapped.format(made))
    assert isinstance(beat, Heartbeat)
    assert (beat.order_ms, beat.arrival_ms, beat.applied_ms) == (T0, T0 - 5_010, T0 - 5_005)
    assert (beat.group, beat.member_id, beat.generation, beat.error, beat.kip848) == ("g", "m1", 3, 27, False)


def test_a_leave_is_ordered_by_when_it_was_applied_not_by_when_it_was_answered():
    [leave] = only(Story().leave(9_000, "m1", parked_ms=7_000))
    assert leave.applied_ms == T0 + 2_000
    assert leave.order_ms == T0 + 2_001  # at the latest: both times are whole milliseconds


@pytest.mark.parametrize(("key", "broker"), [("broker-7", "broker-7"), (None, "127.0.0.1:9092")])
@pytest.mark.parametrize("made", [HEARTBEAT, probe_line(3)])
def test_a_broker_is_named_by_the_record_key_else_by_its_own_address(made, key, broker):
    assert [event.broker for event in events_of(made, broker=key)] == [broker]


# ------------------------------------------------------------------------------------------------ one row an API

CONSUMER = {"groupId": "g", "memberId": "m", "instanceId": None, "rebalanceTimeoutMs": -1}
LINES = {
    "heartbeat": (HEARTBEAT, [(Heartbeat, {"error": 0, "member_id": "m1"})]),
    "heartbeat refused": (heartbeat_line(error=25), [(Heartbeat, {"error": 25})]),
    "KIP-848 heartbeat that says nothing new": (
        line("CONSUMER_GROUP_HEARTBEAT", CONSUMER | {"memberEpoch": 4}, {"errorCode": 0, "memberEpoch": 4}),
        [(Heartbeat, {"kip848": True, "generation": 4})],
    ),
    "KIP-848 heartbeat that moves to the next epoch": (
        line("CONSUMER_GROUP_HEARTBEAT", CONSUMER | {"memberEpoch": 4}, {"errorCode": 0, "memberEpoch": 5}),
        [(ConsumerHeartbeat, {"request_epoch": 4, "epoch": 5})],
    ),
    "KIP-848 heartbeat refused": (
        line("CONSUMER_GROUP_HEARTBEAT", CONSUMER | {"memberEpoch": 4}, {"errorCode": 110, "memberEpoch": 0}),
        [(ConsumerHeartbeat, {"error": 110})],
    ),
    "KIP-848 join by a client that lets the broker choose its id": (
        line(
            "CONSUMER_GROUP_HEARTBEAT",
            CONSUMER | {"memberId": "", "memberEpoch": 0, "rebalanceTimeoutMs": 300_000},
            {"errorCode": 0, "memberId": "chosen", "memberEpoch": 1},
            version=0,
        ),
        [(ConsumerHeartbeat, {"member_id": "chosen", "rebalance_timeout_ms": 300_000})],
    ),
    "leave v0 names one member at the top": (
        line("LEAVE_GROUP", {"groupId": "g", "memberId": "m1"}, {"errorCode": 0}, version=0),
        [(LeaveAnswered, {"member_id": "m1", "error": 0, "reason": None})],
    ),
    "leave v3 is a batch with an error each": (
        line(
            "LEAVE_GROUP",
            {"groupId": "g", "members": [{"memberId": "a"}, {"memberId": "b", "groupInstanceId": "i"}]},
            {"errorCode": 0, "members": [{"memberId": "a", "errorCode": 25}, {"memberId": "b", "errorCode": 0}]},
            version=3,
        ),
        [(LeaveAnswered, {"member_id": "a", "error": 25}), (LeaveAnswered, {"member_id": "b", "instance_id": "i"})],
    ),
    "leave refused as a whole": (
        line("LEAVE_GROUP", {"groupId": "g", "members": [{"memberId": "a"}]}, {"errorCode": 16, "members": []}),
        [(LeaveAnswered, {"member_id": "a", "error": 16})],
    ),
    "leave v5 gives a reason": (
        line(
            "LEAVE_GROUP",
            {"groupId": "g", "members": [{"memberId": "a", "reason": "consumer poll timeout has expired."}]},
            {"errorCode": 0, "members": [{"memberId": "a", "errorCode": 0}]},
            version=5,
        ),
        [(LeaveAnswered, {"reason": "consumer poll timeout has expired."})],
    ),
    "join v0 has one timeout for both": (
        line(
            "JOIN_GROUP",
            {"groupId": "g", "sessionTimeoutMs": 30_000, "memberId": "", "protocolType": "consumer", "protocols": []},
            {"errorCode": 0, "generationId": 1, "protocolName": "range", "leader": "x", "memberId": "m", "members": []},
            version=0,
        ),
        [(JoinAnswered, {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"})],
    ),
    "sync of a follower": (
        line(
            "SYNC_GROUP",
            {"groupId": "g", "generationId": 2, "memberId": "m", "assignments": []},
            {"errorCode": 0, "assignment": "AAE="},
        ),
        [(SyncAnswered, {"from_leader": False, "assignment": "AAE="})],
    ),
    "the probe": (probe_line(17), [(Tick, {"probe": 17, "group": ""})]),
    "somebody else's ListGroups": (line("LIST_GROUPS", {"statesFilter": ["probe-1"]}, {"errorCode": 0}), []),
    "a probe whose number is no number": (
        line("LIST_GROUPS", {"statesFilter": ["probe-x", 7]}, {"errorCode": 0}, client="group-monitor-probe"),
        [(Tick, {"probe": None})],
    ),
    "produce": (line("PRODUCE", {"acks": 1}, {"responses": []}), []),
    "a request whose channel closed unanswered, up to 4.3": (line("JOIN_GROUP", {"groupId": "g"}, ""), []),
    "a request whose channel closed unanswered, later": (line("JOIN_GROUP", {"groupId": "g"}, None), []),
    "an unknown field here and there": (
        heartbeat_line(mood="fine").replace('"errorCode"', '"hue":1,"errorCode"'),
        [(Heartbeat, {"error": 0})],
    ),
    "an IPv6 connection of Kafka 3": (
        line(
            "LEAVE_GROUP", {"groupId": "g", "memberId": "m"}, {"errorCode": 0}, connection="0:0:0:1:9092-fe:0:9:5000-3"
        ),
        [(LeaveAnswered, {"client_host": "fe:0:9"})],
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_becomes(name):
    made, expected = LINES[name]
    events = events_of(made)
    assert not isinstance(events, RejectedRow), events
    assert [
        (type(event), {n: getattr(event, n) for n in want}) for event, (_, want) in zip(events, expected, strict=True)
    ] == expected


# ------------------------------------------------------------------------------------------------ bad lines

BODY = json.loads(HEARTBEAT.partition(":")[2])


def with_field(path, value):
    body = json.loads(json.dumps(BODY))
    at = body
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return "Completed request:" + json.dumps(body)


REJECTED = {
    "nothing": (b"", "not a line"),
    "another logger": (b"[2026] INFO started (kafka.server.KafkaServer)", "not a line"),
    "the text format before 2.8": (
        b"Completed request:RequestHeader(apiKey=HEARTBEAT, apiVersion=4) -- {..}",
        "before Kafka 2.8",
    ),
    "NaN": (HEARTBEAT.replace("2.25", "NaN").encode(), "not JSON: NaN"),
    "Infinity": (HEARTBEAT.replace("2.25", "-Infinity").encode(), "not JSON: -Infinity"),
    "a time too large to be one": (HEARTBEAT.replace("2.25", "1E300").encode(), "remoteTimeMs"),
    "a time beyond all digits": (HEARTBEAT.replace("2.25", "9" * 24).encode(), "remoteTimeMs"),
    "a negative time": (HEARTBEAT.replace("2.25", "-2.25").encode(), "remoteTimeMs"),
    "a number of 10,000 digits": (
        HEARTBEAT.replace('"generationId":1', '"generationId":' + "9" * 10_000).encode(),
        "not JSON",
    ),
    "a generation beyond int32": (
        HEARTBEAT.replace('"generationId":1', '"generationId":2147483648').encode(),
        "generationId",
    ),
    "nesting 100,000 deep": (b"Completed request:" + b'{"a":' * 100_000, "not JSON"),
    "arrays 100,000 deep": (b"Completed request:" + b"[" * 100_000, "not JSON"),
    "an array": (b"Completed request:[]", "not a JSON object"),
    "17 MB": (b"Completed request:" + b" " * (17 * 1024 * 1024), "too long"),
    "a connection made to be slow to read": (with_field(["connection"], ":1-" * 400_000 + "x").encode(), "connection"),
    "a group of 1 MB, cut": (heartbeat_line(group="g" * 1_000_000).encode()[:-3], "not JSON"),
}


@pytest.mark.parametrize("name", REJECTED)
@pytest.mark.timeout(10)
def test_a_bad_line_is_rejected_with_its_reason_and_first_bytes(name):
    raw, reason = REJECTED[name]
    rejected = events_of(raw)
    assert isinstance(rejected, RejectedRow), rejected
    assert reason in rejected.reason
    assert rejected.head == raw[:96]


@pytest.mark.parametrize("wrong", [None, True, 1.5, "x", [], {}, -(2**70)], ids=repr)
@pytest.mark.parametrize(
    "path",
    [["requestHeader"], ["requestHeader", "requestApiKeyName"], ["requestHeader", "requestApiVersion"], ["request"],
     ["request", "groupId"], ["request", "memberId"], ["request", "generationId"], ["response", "errorCode"],
     ["connection"], ["totalTimeMs"], ["remoteTimeMs"], ["sendTimeMs"], ["responseQueueTimeMs"]],
    ids=".".join,
)  # fmt: skip
def test_a_field_of_the_wrong_type_never_makes_an_event_of_nonsense(path, wrong):
    made = events_of(with_field(path, wrong))
    if not isinstance(made, RejectedRow):  # a string where a string belongs, an absent body, a duration
        assert all(isinstance(e.group, str) and isinstance(e.applied_ms, int) for e in made)


@pytest.mark.parametrize("made", [HEARTBEAT, Story().leave(0, "m1").rows[0][2].value.decode(), probe_line(1)])
def test_a_line_cut_in_half_anywhere_is_rejected_or_says_nothing(made):
    raw = made.encode()
    for length in range(len(raw)):
        assert isinstance(events_of(raw[:length]), RejectedRow), raw[:length][-40:]


HOSTILE = [
    'a"b',
    "a\\b",
    "a\nb",
    "a\0b",
    "\U0001f600",
    "\ud800",
    "\udc00\ud800",
    "<script>",
    "'; drop",
    "é" * 300,
    " ",
]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_group_id_of_any_string_arrives_whole_but_for_lone_surrogates(name):
    for made in (heartbeat_line(group=name, member=name), Story(group=name).leave(0, "m").rows[0][2].value.decode()):
        [event] = events_of(made)
        assert event.group == re.sub("[\ud800-\udfff]", "�", name)
        event.group.encode()


# ------------------------------------------------------------------------------------------------ two paths, one answer


TEXT = st.text(st.characters(), max_size=12)
NUMBERS = st.integers(0, 9_999_999).map(lambda n: n / 1_000) | st.sampled_from(
    [0.0, 1e-4, 1e7, 2147483647.0, 2147483648.0]
)


@st.composite
def heartbeats(draw):
    """Two heartbeats of one member: the same but for the correlation id and the times."""
    what = [draw(TEXT), draw(TEXT), draw(st.integers(-(2**33), 2**33)), draw(st.integers(-2, 130))]
    how = {"client": draw(st.none() | TEXT), "version": draw(st.integers(0, 5)), "principal": draw(TEXT)}
    return tuple(
        heartbeat_line(
            *what, total_ms=draw(NUMBERS), remote_ms=draw(NUMBERS), sendTimeMs=draw(NUMBERS), **how
        ).replace('"correlationId":7', f'"correlationId":{draw(st.integers(-5, 2**40))}')
        for _ in range(2)
    )  # fmt: skip


def reads_like_ingest(*rows):
    """A reader that has seen the earlier rows says of each what `parse_row` says, which has seen none."""
    reader = RowParser()
    for row in rows:
        assert reader.read(row) == parse_row(row)


@settings(max_examples=200, deadline=None)
@given(heartbeats(), st.booleans(), st.booleans())
def test_a_heartbeat_known_but_for_its_times_says_what_a_full_reading_says(pair, first_keyed, second_keyed):
    keys = ("b" if first_keyed else None, "b" if second_keyed else None)
    reads_like_ingest(*(telemetry(made, broker=key) for made, key in zip(pair, keys, strict=True)))


SPLICES = st.sampled_from(
    [b"", b'"', b"\\", b"{", b"}", b",", b"0", b"00", b"-", b".", b"E9", b"1E300", b"\xff", b"\n", b"\0", b"null", b" ",
     "٣".encode(), b"NaN", b"[", b'"x":1,', b":1-", b',"totalTimeMs":2.0', b',"sendTimeMs":9.0', b',"clientId":"x"',
     b'"correlationId":9,']
)  # fmt: skip


def mutated(data, raw):
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(raw)))
        raw = raw[:start] + data.draw(SPLICES) + raw[start + data.draw(st.integers(0, 3)) :]
    return raw


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_mutation_of_a_known_heartbeat_passes_for_it(data):
    first = mutated(data, HEARTBEAT.encode())
    later = first.replace(b"9.5", b"12.25").replace(b'Id":7', b'Id":8')
    reads_like_ingest(*map(telemetry, (first, later, mutated(data, later), mutated(data, first))))


@pytest.mark.parametrize(
    "tail", ['"sendTimeMs":9.0', '"send\\u0054imeMs":9.0', '"totalTimeMs":3.0'], ids=["twice", "escaped", "total"]
)
def test_a_time_given_twice_counts_where_it_stands_last(tail):
    first, later = (
        heartbeat_line(total_ms=total_ms).replace('"securityProtocol"', f'"securityProtocol":"",{tail},"x"')
        for total_ms in (9.5, 11.5)
    )
    reads_like_ingest(telemetry(first), telemetry(later))


def test_a_known_heartbeat_is_not_parsed_again(monkeypatch):
    """Else the tests above would prove nothing, and every line would cost four times as much."""
    reader = RowParser()
    assert reader.read(telemetry(HEARTBEAT))
    monkeypatch.setattr(request_log, "parse_object", lambda _: pytest.fail("parsed again"))
    [known] = reader.read(telemetry(HEARTBEAT.replace('"correlationId":7', '"correlationId":12'), offset=1))
    assert (known.offset, known.applied_ms) == (1, T0 - round(0.75 + 1.5) - 2)


def test_the_memory_of_heartbeats_is_bounded(monkeypatch):
    monkeypatch.setattr(heartbeats_module, "MAX_MEMBERS", 10)
    lines = HeartbeatLines()
    for number in range(25):
        row = telemetry(heartbeat_line(member=f"m{number}"))
        lines.learn(row, parse_row(row))
    known = [lines.read(row, row.value) for n in range(25) for row in [telemetry(heartbeat_line(member=f"m{n}"))]]
    assert sum(found is not None for found in known) == 5


# ------------------------------------------------------------------------------------------------ who asks for whom


def asks(request, **how):
    answer = {"throttleTimeMs": 0, "errorCode": 0, "nodeId": 1, "host": "h", "port": 9092}
    return line("FIND_COORDINATOR", request, answer, **how)


@pytest.mark.parametrize(
    ("request_", "version"),
    [({"key": "g"}, 0), ({"key": "g", "keyType": 0}, 3), ({"key": "", "keyType": 0, "coordinatorKeys": ["g"]}, 4)],
    ids=["version 0", "version 3", "version 4"],
)
def test_a_client_that_asks_for_its_group_s_coordinator_tells_that_it_lives(request_, version):
    [event] = events_of(asks(request_, version=version))
    assert isinstance(event, ClientSeen)
    assert (event.order_ms, event.group, event.broker) == (T0, "g", "broker-1")
    assert (event.client_id, event.client_host) == ("client", "10.0.0.7")


@pytest.mark.parametrize(
    "request_",
    [{"key": "g", "keyType": 1}, {"keyType": 0, "coordinatorKeys": ["g", "h"]}, {"key": "", "keyType": 0}, {"key": 7},
     {"key": None}, {"keyType": 0, "coordinatorKeys": []}, {}],
    ids=str,
)  # fmt: skip
def test_other_questions_tell_nothing(request_):
    """Of a producer for its transactions, of an admin tool for many groups."""
    assert events_of(asks(request_)) == []

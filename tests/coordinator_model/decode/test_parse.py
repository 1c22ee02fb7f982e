"""Parsing: what lies in the two topics becomes events, a rejection or nothing, never an exception."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_model.decode import parse as ingest_module
from coordinator_model.decode.parse import OFFSETS, REPORTS, TELEMETRY, RejectedRow, RowParser, SourceRow, parse_row
from coordinator_model.events import ClientPoll, Event, OffsetCommitted, RecordRead, Tick
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.records import key
from tests.support.request_log import heartbeat_line, line, probe_line
from tests.support.story import T0, Story, events_of, group_metadata, telemetry

REPORT = {
    "group_monitor_reporter": 1,
    "group": "g",
    "member_id": "m",
    "instance_id": None,
    "client_id": "c",
    "poll_age_ms": 7,
    "max_poll_interval_ms": 300_000,
}


def reported(value, source=REPORTS):
    """What parsing makes of a row in the topic of reports."""
    raw = (value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))).encode()
    return parse_row(SourceRow(source, "group-client-telemetry", 0, 0, T0, b"g", raw))


def record(key_, value):
    return parse_row(SourceRow(OFFSETS, "__consumer_offsets", 3, 42, T0, key_, value))


def commit(group):
    [(_, _, row)] = Story(group=group).commit(0, "t", 5).rows
    return parse_row(row)


def test_a_record_keeps_its_place_and_goes_before_a_line_of_the_same_instant():
    [event] = record(key(2, "g"), group_metadata(1, [], None))
    assert isinstance(event, RecordRead)
    assert (event.order_ms, event.topic, event.partition, event.offset, event.group) == (
        T0,
        "__consumer_offsets",
        3,
        42,
        "g",
    )
    assert event < events_of(probe_line(1))[0]


def test_a_commit_names_its_partition_and_a_tombstone_says_so():
    [event] = commit("g")
    assert isinstance(event, OffsetCommitted)
    assert (event.committed_topic, event.committed_partition, event.tombstone) == ("t", 5, False)
    [gone] = record(b"\0\1\0\1g\0\1t\0\0\0\5", None)
    assert gone.tombstone


REJECTED = {
    "no key": (None, b"x", "no-key"),
    "an unknown type": (b"\0\x63\0\1g", b"", "unknown-type"),
    "an unknown version": (key(2, "g"), b"\0\x63", "unknown-version"),
    "cut off": (key(2, "g"), group_metadata(1, [], None)[:-1], "malformed"),
    "bytes left over": (key(2, "g"), group_metadata(1, [], None) + b"!", "malformed"),
    "a key of one byte": (b"\0", b"", "malformed"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_a_record_that_cannot_be_read_is_rejected_with_place_and_reason(name):
    key_, value, reason = REJECTED[name]
    rejected = record(key_, value)
    assert isinstance(rejected, RejectedRow)
    assert rejected.reason.startswith(reason)
    assert rejected[:5] == (OFFSETS, "__consumer_offsets", 3, 42, T0)


@pytest.mark.parametrize("at_ms", [-1, 2**53, 2**70])
@pytest.mark.parametrize("source", [OFFSETS, TELEMETRY])
def test_an_instant_that_is_none_is_rejected(source, at_ms):
    assert isinstance(
        parse_row(SourceRow(source, "t", 0, 0, at_ms, key(2, "g"), heartbeat_line().encode())), RejectedRow
    )


def test_a_line_without_a_value_is_rejected():
    assert isinstance(parse_row(SourceRow(TELEMETRY, "t", 0, 0, T0, b"b", None)), RejectedRow)


def test_the_empty_group_id_has_no_members_and_is_left_alone():
    """Old clients commit offsets under it; in reports the empty id means a broker."""
    assert commit("") == []
    assert record(key(2, ""), None) == []
    assert events_of(heartbeat_line(group="")) == []
    assert events_of(line("LEAVE_GROUP", {"groupId": "", "memberId": "m"}, {"errorCode": 25})) == []
    assert isinstance(events_of(probe_line(1))[0], Tick)


LINES_OF_A_BROKER = [
    heartbeat_line(),
    probe_line(1),
    line("LEAVE_GROUP", {"groupId": "g", "memberId": "m"}, {"errorCode": 0}),
    "no line at all",
]
# ------------------------------------------------------------------------------------------------ clients' own reports


def test_a_clients_report_is_its_poll_age():
    [event] = reported(REPORT)
    assert isinstance(event, ClientPoll)
    assert (event.order_ms, event.group, event.member_id, event.poll_age_ms, event.max_poll_interval_ms) == (
        T0,
        "g",
        "m",
        7,
        300_000,
    )


@pytest.mark.parametrize(
    "change",
    [{"group_monitor_reporter": 2}, {"group": 7},
     {"group": ""}, {"member_id": None}, {"instance_id": 1}, {"poll_age_ms": "7"},
     {"poll_age_ms": 1.5}, {"poll_age_ms": True}, {"max_poll_interval_ms": 2**31}, {"client_id": None},
     {"poll_age_ms": -1}, {"max_poll_interval_ms": -1}],
    ids=str,
)  # fmt: skip
def test_a_report_of_another_shape_is_rejected(change):
    assert isinstance(reported(REPORT | change), RejectedRow)


@pytest.mark.parametrize("value", LINES_OF_A_BROKER)
def test_a_brokers_line_is_not_believed_where_every_application_may_write(value):
    """Forged heartbeats hid nine deaths of nine; a forged leave made a page."""
    rejected = reported(value)
    assert isinstance(rejected, RejectedRow)
    assert rejected.reason == "not a client's report, in a topic of reports"


def test_a_report_is_not_believed_in_a_topic_of_the_request_log():
    rejected = reported(REPORT, TELEMETRY)
    assert isinstance(rejected, RejectedRow)
    assert rejected.reason == "a client's report, in a topic of the request log"


# ------------------------------------------------------------------------------------------------ never an exception


@pytest.mark.parametrize("digits", [19, 4_301, 5_000, 1_000_000])
def test_a_probe_with_a_number_too_long_to_read_is_a_line_like_any_other(digits):
    """Anybody may send ListGroups under this client id; Python refuses to read 4,301 digits (one ended the job)."""
    request = {"statesFilter": ["probe-" + "1" * digits]}
    [tick] = events_of(line("LIST_GROUPS", request, {"errorCode": 0, "groups": []}, client="group-monitor-probe"))
    assert isinstance(tick, Tick)
    assert tick.probe is None


@pytest.mark.parametrize(
    "number", ["1" * 5_000, "-" + "9" * 5_000, "1e999", "NaN", "-Infinity", "1" * 400, "{" * 90_000]
)
@pytest.mark.parametrize("name", ['"generationId":1', '"totalTimeMs":0.5', '"errorCode":0', '"requestApiVersion":4'])
def test_a_number_that_is_none_rejects_its_line(number, name):
    made = heartbeat_line().replace(name, f"{name.partition(':')[0]}:{number}")
    assert made != heartbeat_line()
    assert isinstance(events_of(made), RejectedRow)
    assert isinstance(RowParser().read(telemetry(made)), RejectedRow)
    assert isinstance(reported(json.dumps(REPORT, separators=(",", ":")).replace(":7", f":{number}")), RejectedRow)


def test_whatever_a_reader_raises_costs_its_row_only(monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("secrets of " + "x" * 10_000)

    for name, source in (("parse_line", TELEMETRY), ("parse_report", REPORTS), ("decode", OFFSETS)):
        monkeypatch.setattr(ingest_module, name, fails)
        values = {TELEMETRY: b"Completed request:x", REPORTS: b'{"group_monitor_reporter"', OFFSETS: b"x"}
        row = SourceRow(source, "t", 3, 4, T0, key(2, "g"), values[source])
        rejected = parse_row(row)
        assert isinstance(rejected, RejectedRow)
        assert (rejected[:5], rejected.reason) == (row[:5], "failed: ZeroDivisionError")
        assert len(rejected.detail) < 200


def test_the_reasons_for_which_rows_are_rejected_are_few_whatever_strangers_send():
    """They label a counter and name rows of a table: places and bytes belong into the detail."""
    whole = group_metadata(1, [], None)
    cuts = [record(key(2, "g"), whole[:length]) for length in range(len(whole))]
    cuts += [record(key(2, "g"), bytes([1, number])) for number in range(99)]
    types = [record(number.to_bytes(2, "big") + b"\0\1g", b"") for number in range(100, 400)]
    rejected = [each for each in cuts + types if isinstance(each, RejectedRow)]
    assert len(rejected) > 300
    assert {each.reason for each in rejected} == {"malformed", "unknown-type", "unknown-version"}
    assert len({each.detail for each in rejected}) > 300


LINES = [
    heartbeat_line(),
    probe_line(1),
    *(row.value.decode() for _, _, row in Story().join(0, "m", 1, listed=["m"]).sync(0, "m", 1, leader=True).rows),
    *(
        row.value.decode()
        for _, _, row in Story().leave(0, "m", "n", reason="r").hello(0, "m", 0, 1).hello(0, "m", -1, -1).rows
    ),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def mutate(value, draw):
    """Put something else somewhere into a JSON value, or leave something out."""
    if isinstance(value, dict) and value:
        name = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 5)) == 0:
            return {n: v for n, v in value.items() if n != name}
        return value | {name: mutate(value[name], draw)}
    if isinstance(value, list) and value:
        return [mutate(value[0], draw), *value[1:]]
    return draw(VALUES)


@st.composite
def mutated_lines(draw):
    raw = draw(st.sampled_from(LINES))
    prefix, brace, rest = raw.partition("{")

    return prefix + json.dumps(mutate(json.loads(brace + rest), draw), separators=(",", ":"))


def feed(shard, events):
    outputs = shard.apply(events, wall_ms=T0)
    assert [output for output in outputs if output["kind"] == "quarantine"] == []
    return Shard.restore(0, shard.settings, shard.dump())


@settings(max_examples=120, deadline=None)
@given(st.lists(mutated_lines(), min_size=1, max_size=5))
def test_no_mutation_of_a_line_raises_in_the_parser_or_the_shard(lines):
    """The shard applies, dumps and reads back whatever is parsed."""
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=0), None)
    for offset, made in enumerate(lines):
        events = parse_row(telemetry(made, at_ms=T0 + offset, offset=offset))
        if not isinstance(events, RejectedRow):
            assert all(isinstance(event, Event) for event in events)
            shard = feed(shard, events)
    assert [output for output in shard.apply([], final=True) if output["kind"] == "quarantine"] == []


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([OFFSETS, TELEMETRY]),
    st.none() | st.binary(max_size=60),
    st.none() | st.binary(max_size=200),
    st.integers(),
)
def test_no_bytes_raise(source, key_, value, at_ms):
    made = parse_row(SourceRow(source, "t", 0, 0, at_ms, key_, value))
    assert isinstance(made, RejectedRow | list)
    if isinstance(made, RejectedRow):
        assert made.reason

"""The captures of real clusters without their telemetry: nobody is accused, and what the records tell is told once."""

from collections import Counter

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.parse import OFFSETS, SourceRow, parse_row
from coordinator_model.decode.records import RecordType
from coordinator_model.incidents import Kind
from coordinator_model.shard.shard import ShardSettings
from streaming.capture.file import open_text, read_rows
from tests.coordinator_model.test_captures import CAPTURES
from tests.support.records import commit_key, commit_value

ACCUSATIONS = {"session-expired", "rebalance-timeout", "poll-exceeded", "session-at-risk", "member-fenced"}
SETTINGS = ShardSettings(cluster="c", partitions=0, live_from_ms=0)
HALF_HOUR_MS = 1_800_000
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in CAPTURES.glob("*.jsonl.gz"))


@pytest.fixture(scope="module", params=NAMES)
def rows(request):
    with open_text(CAPTURES / f"{request.param}.jsonl.gz") as lines:
        return [row for row in read_rows(lines) if row.source != "telemetry"]


def removals(rows):
    """(group, member) of each removal, told from the records by themselves: no model, no time."""
    begun_ms = min((row.timestamp_ms for row in rows if row.source != OFFSETS), default=0)
    members, gone = {}, []
    for row in sorted((row for row in rows if row.source == OFFSETS), key=lambda row: (row.partition, row.offset)):
        for event in parse_row(row):
            if type(event).__name__ == "RecordRead":
                gone += [
                    (event.group, who, event.order_ms) for who in _removed(members.setdefault(event.group, {}), event)
                ]
    return Counter((group, who) for group, who, at_ms in gone if at_ms >= begun_ms)


def _removed(members, event):
    """Take a record into ``members``, id to (instance, removed at), and return who is gone by it."""
    if event.record_type == RecordType.GROUP_METADATA and event.value is not None:
        listed = {item["memberId"]: item["groupInstanceId"] for item in event.value["members"]}
        instances = set(listed.values()) - {None}
        gone = [who for who, instance in members.items() if who not in listed and instance not in instances]
        members.clear()
        members.update(listed)
        return gone
    if event.record_type == RecordType.CONSUMER_GROUP_MEMBER_METADATA:
        who = event.key["memberId"]
        if event.value is not None:
            members[who] = event.value["instanceId"]
        elif who in members and members.pop(who) is None:  # static ones are replaced in the same write
            return [who]
    return []


def opened(history):
    return [t.incident for t in history.transitions if t.kind is Kind.OPENED]


def test_nobody_is_accused_and_each_removal_is_told_once(rows):
    told = opened(replay_rows(rows, SETTINGS))
    assert {incident.rule for incident in told} & ACCUSATIONS == set()
    removed = [incident for incident in told if incident.rule == "member-removed"]
    assert len({(i.group, i.member_id, i.at_ms) for i in removed}) == len(removed)
    assert {(i.severity, i.cause, i.evidence) for i in removed} <= {("info", "unknown", "inferred")}
    dynamic = Counter((i.group, i.member_id) for i in removed if i.instance_id is None)
    expected = removals(rows)
    static = {(i.group, i.member_id) for i in removed if i.instance_id is not None}
    assert dynamic == Counter({who: times for who, times in expected.items() if who not in static})
    assert expected


def test_whoever_is_in_is_of_unknown_liveness_and_nobody_is_called_stable(rows):
    members = [member for group in replay_rows(rows, SETTINGS).groups for member in group["members"]]
    assert {(m["liveness"], m["client_phase"], m["heartbeat_headroom"]) for m in members} == {("unknown", None, None)}


def test_no_page_stays_open_once_records_of_others_tell_that_time_goes_on(rows):
    last_ms = max(row.timestamp_ms for row in rows if row.source == OFFSETS)
    value = commit_value(42, last_ms)
    others = [
        SourceRow(
            OFFSETS,
            "__consumer_offsets",
            49,
            10_000_000 + n,
            last_ms + n * HALF_HOUR_MS,
            commit_key("another-group", "t", 0),
            value,
        )
        for n in (1, 2)
    ]
    history = replay_rows([*rows, *others], SETTINGS)
    assert {name for name, _ in left_open(replay_rows(rows, SETTINGS))} <= {"member-removed", "rebalance-storm"}
    assert [left for left in left_open(history) if left[1] == "page" or left[0] == "rebalance-storm"] == []


def left_open(history):
    incidents = {}
    for transition in history.transitions:
        incidents[transition.incident.incident_id] = transition
    return [(t.incident.rule, t.incident.severity) for t in incidents.values() if t.kind is not Kind.CLOSED]

"""Days, weeks and years: nothing comes due that never is, and nothing is looked at again and again."""

import pytest

from coordinator_model.decode.parse import parse_row
from coordinator_model.decode.telemetry.fields import INT32, LATEST_MS
from coordinator_model.events import FAR_MS, TELEMETRY_RANK, LeaderNamed, Tick
from coordinator_model.replica.advance import take_heartbeats
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.shard import group_judgement
from coordinator_model.shard.heartbeat_table import HeartbeatTable
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import SESSION_MS, T0, consumers, stable

DAY_MS = 24 * 3_600_000
SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=T0)
MAX_LOOKS = 200
"""More looks at groups than this within one test would be one too many at a time."""


@pytest.fixture(autouse=True)
def looks(monkeypatch):
    """Count the looks at groups; too many fail, where they would else go on for ever."""
    seen, evaluate = [], group_judgement.evaluate

    def counted(replica, context):
        seen.append(context.progress_ms)
        if len(seen) > MAX_LOOKS:
            pytest.fail(
                f"looked at again and again, at last at {context.progress_ms}"
            )  # an assertion would set it aside
        return evaluate(replica, context)

    monkeypatch.setattr(group_judgement, "evaluate", counted)
    return seen


def shard_of(story, until_ms):
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply([event for row in story.source_rows(until_ms) for event in parse_row(row)], wall_ms=T0 + until_ms)
    return shard


def tick(at_ms, number=99):
    return Tick(T0 + at_ms, TELEMETRY_RANK, "lines-of-broker-1", 0, 1_000_000 + number, "", "broker-1", number)


# what was the last that was heard of the group
LIVES = {
    "its members were well": lambda: stable("m1", "m2").beats("m1", 1_000, 5_000).beats("m2", 1_000, 5_000),
    "a rebalance had begun": lambda: stable("m1", "m2").beats("m1", 1_000, 5_000).beat(5_500, "m2", error=27),
    "no session timeout was known": lambda: consumers("m1", "m2").hellos("m1", 1_000, 5_000, 2),
    "a member was silent": lambda: stable("m1", "m2").beats("m1", 1_000, 5_000).beats("m2", 1_000, 2_000),
    "its coordinator refused": lambda: stable("m1").beats("m1", 1_000, 5_000).beat(5_500, "m1", error=16),
    "it was empty": lambda: stable("m1").leave(3_000, "m1").record(3_000, 2),
}


@pytest.mark.parametrize("days", [1, 24, 25, 26, 400, 4_000])
@pytest.mark.parametrize("life", LIVES)
def test_quiet_days_end_and_cost_a_bounded_number_of_looks(life, days):
    shard = shard_of(LIVES[life](), 6_000)
    shard.apply([tick(days * DAY_MS)], wall_ms=T0 + days * DAY_MS)
    assert shard.clock.progress_ms == T0 + days * DAY_MS


def unlogged(last_line):
    """A shard that moves to a broker without a request log, while its old coordinator's lines go on."""
    story = stable("m1", "m2").beats("m1", 1_000, 10_000).beats("m2", 1_000, 10_000)
    return story if last_line is None else story.beat(10_500, "m1", error=last_line)


@pytest.mark.parametrize("last_line", [None, 16], ids=["silently", "after it refused"])
def test_a_shard_on_a_broker_without_a_request_log_is_reported_once(last_line, looks):
    """The incident is `telemetry-uncovered`; nobody is accused, and the group is seldom looked at."""
    told = unlogged(last_line).play(400_000)
    assert [t["detail"]["total"] for t in told.of("telemetry-uncovered")] == [2]
    assert told.closed("telemetry-uncovered") == []
    assert told.accusations == []
    assert len(looks) < 40
    assert [member["liveness"] for member in told.members.values()] == ["unknown", "unknown"]


@pytest.mark.parametrize("named", [False, True], ids=["", "and metadata names it"])
@pytest.mark.parametrize("last_line", [None, 16], ids=["silently", "after it refused"])
def test_a_live_run_looks_at_the_groups_of_such_a_shard_only_to_show_them(last_line, named, looks):
    story, until_ms, shard = unlogged(last_line), 300_000, Shard.restore(0, SETTINGS, None)
    events = [event for row in story.source_rows(until_ms) for event in parse_row(row)]
    if named:
        instants_ms = range(T0 + 11_000, T0 + until_ms, 5_000)
        events += [LeaderNamed(at_ms, TELEMETRY_RANK, "", 0, at_ms, "", 3, "", ("broker-1",)) for at_ms in instants_ms]
    for end_ms in range(T0 + 1_000, T0 + until_ms + 1, 1_000):
        batch = [event for event in events if end_ms - 1_000 <= event.order_ms < end_ms]
        shard.apply(batch, wall_ms=end_ms + 200)
    assert len(looks) <= 10 + until_ms // SETTINGS.view_refresh_ms
    [group] = shard.views()
    assert [member["liveness"] for member in group["members"]] == ["unknown", "unknown"]


def test_whom_nobody_can_judge_any_more_is_not_at_risk_but_unknown():
    told = unlogged(None).play(400_000)
    assert told.opened("session-at-risk") == ["m1", "m2"]
    uncovered_ms = 10_000 + SESSION_MS + 60_000
    assert told.closed("session-at-risk") == [("superseded", uncovered_ms)] * 2
    assert told.facts("telemetry-uncovered", "at_ms") == [(uncovered_ms,)]


def test_members_that_are_heard_again_are_covered_again():
    story = unlogged(None).beats("m1", 300_000, 310_000).beats("m2", 300_500, 310_000)
    assert story.play(310_000).closed("telemetry-uncovered") == [("recovered", 300_500)]


def test_a_verdict_waits_for_its_proof_and_is_given_once_that_is_a_grace_old():
    """m2 dies, and the only other member is not heard for a while: its next heartbeat is the proof."""
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m2", 1_000, 9_000).beats("m1", 20_000, 24_000)
    shard = Shard.restore(0, SETTINGS, None)
    shard.apply(events_of(story, 0, 20_400))
    assert not expired(shard.apply([]))
    shard = Shard.restore(0, SETTINGS, shard.dump())
    assert expired(shard.apply(events_of(story, 20_401, 24_000))) == {"m2"}


def events_of(story, from_ms, until_ms):
    rows = [row for row in story.source_rows(until_ms) if row.timestamp_ms >= T0 + from_ms]
    return [event for row in rows for event in parse_row(row)]


def expired(outputs):
    found = [f for o in outputs if o["kind"] == "report" for f in o["findings"]]
    return {f["subject"] for f in found if f["rule"] == "session-expired"}


def test_a_span_of_never_is_never_due():
    table = HeartbeatTable()
    slot = table.add("g", "m")
    for last_ms in (0, T0, LATEST_MS, FAR_MS):
        table.last_ms[slot], table.span_ms[slot] = last_ms, FAR_MS
        assert table.due_ms() == FAR_MS
        assert table.groups_due(LATEST_MS) == set()


@pytest.mark.parametrize("span_ms", [0, 45_000, INT32 - 1, INT32, 40 * DAY_MS])
def test_a_members_due_instant_is_kept_whatever_its_span(span_ms):
    """A session timeout is an int32: no sum of one and an instant may be cut to another instant."""
    table, member = HeartbeatTable(), Member("m", last_heartbeat_ms=T0, previous_heartbeat_ms=T0 - 3_000, generation=1)
    table.put("g", member, T0 + span_ms, fast=True)
    assert table.due_ms() == T0 + span_ms
    assert table.groups_due(T0 + span_ms - 1) == set()
    assert table.groups_due(T0 + span_ms) == {"g"}


@pytest.mark.parametrize("apart_ms", [-INT32 - 5, -1, 3_000, INT32, 400 * DAY_MS])
def test_an_interval_of_any_length_is_kept_or_bounded(apart_ms):
    table, replica = HeartbeatTable(), GroupReplica("g")
    table.put(
        "g", Member("m", last_heartbeat_ms=T0, previous_heartbeat_ms=T0 - apart_ms, generation=1), None, fast=True
    )
    replica.members["m"] = member = Member("m")
    take_heartbeats(replica, table.heard("g"))
    assert member.last_heartbeat_ms == T0
    assert member.previous_heartbeat_ms is None or T0 - INT32 < member.previous_heartbeat_ms <= T0


def test_a_look_that_changes_nothing_is_not_repeated(monkeypatch):
    """Whatever a rule says: what is due after its look at the same instant is dropped, and counted."""
    shard = shard_of(LIVES["its members were well"](), 6_000)
    evaluate = group_judgement.evaluate

    def stubborn(replica, context):
        return evaluate(replica, context)._replace(
            due_ms=context.progress_ms, member_due_ms={"m1": context.progress_ms}
        )

    monkeypatch.setattr(group_judgement, "evaluate", stubborn)
    ticks = [tick(60_000), tick(63_000, 100)]  # nothing is judged just after a hole if the probe's connection is new
    outputs = shard.apply(ticks, wall_ms=T0 + 63_000)
    [counts] = [output["counts"] for output in outputs if output["kind"] == "progress"]
    assert counts["put_off"] > 0

"""Captures of real clusters under faults, against the brokers' own logs: who expired, when, and nobody else.

`tests/e2e` makes such captures; these were kept so that every change of the model meets them in seconds.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.decode.telemetry.shipped import is_coordinator_line
from coordinator_model.incidents import Kind, to_contract
from coordinator_model.rules.registry import VIOLATIONS
from coordinator_model.shard.shard import ShardSettings
from coordinator_model.thresholds import Thresholds
from streaming.capture.file import open_text, read_rows
from streaming.embedded.truth import TruthEvent
from tests.e2e.compare import opened_twice, rebalance_rows, refuted, session_rows

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
NAMES = ["kills", "classic", "static", "failover", "broker", "java", "chaos-one-broker"]
TRAILING_MS = 1_000
"""What expires in a capture's last second may have left no trace in it."""
AFTER_RESTART_MS = 3_000
NOT_OBSERVABLE = {
    # Expired 240 ms before its broker went down: no answer tells, and the broker came back with the member in its log.
    ("chaos-one-broker", "confluent-static-i1-02ea9bc3-6c90-489a-b5d1-ddc6aa1f61fb"),
}


def replayed(name, **thresholds):
    settings = ShardSettings(cluster="c", partitions=0, live_from_ms=0, thresholds=Thresholds(**thresholds))
    with open_text(CAPTURES / f"{name}.jsonl.gz") as lines:
        history = replay_rows(read_rows(lines), settings)
    assert not history.undecodable
    return history


def truth(name, kind, history):
    seen = history.coverage["brokers"].values()
    first_ms, last_ms = min(b["first_ms"] for b in seen), max(b["last_ms"] for b in seen)
    events = json.loads((CAPTURES / f"{name}.truth.json").read_text())
    return [
        e
        for e in events
        if e["kind"] == kind
        and first_ms <= e["at_ms"] <= last_ms - TRAILING_MS
        and (name, e["member_id"]) not in NOT_OBSERVABLE
    ]


@pytest.mark.parametrize("name", NAMES)
def test_sessions_expire_for_exactly_those_whom_the_brokers_log_names(name):
    history = replayed(name)
    expired = [
        t.incident for t in history.transitions if t.kind is Kind.OPENED and t.incident.rule == "session-expired"
    ]
    expected = truth(name, "session-expired", history)
    assert Counter((i.group, i.member_id) for i in expired) == Counter((e["group"], e["member_id"]) for e in expected)
    by_member = {}
    for event in expected:
        by_member.setdefault((event["group"], event["member_id"]), []).append(event["at_ms"])
    limit_ms = AFTER_RESTART_MS if name in ("broker", "failover", "chaos-one-broker") else 1_000
    for incident in expired:
        logged_ms = by_member[incident.group, incident.member_id].pop(0)
        assert abs(incident.deadline_ms - logged_ms) <= limit_ms, incident.member_id


@pytest.mark.parametrize("name", NAMES)
def test_no_verdict_is_ever_refuted(name):
    assert [t for t in replayed(name).transitions if t.incident.reason == "refuted"] == []


@pytest.mark.parametrize("name", ["chaos-three-brokers", "frozen-groups"])
def test_random_chaos_on_three_brokers_names_exactly_whom_the_logs_name(name):
    """Brokers killed and paused, writes that stall, members that crash, freeze, stall: expiries and missed phases.

    In *frozen-groups* coordinators are killed while all members of a group are frozen: nobody asks the next one.
    """
    history = replayed(name, consumer_session_timeout_ms=7_000)
    printed = [to_contract(t) for t in history.transitions] + [{"kind": "summary", "coverage": history.coverage}]
    logged = [TruthEvent(**event) for event in json.loads((CAPTURES / f"{name}.truth.json").read_text())]
    rows = session_rows(logged, printed) + rebalance_rows(logged, printed)
    assert len(rows) > 60
    assert [row for row in rows if row.verdict != "ok"] == []
    assert refuted(printed) == opened_twice(printed) == []


def test_rebalance_timeouts_are_those_of_the_log():
    history = replayed("static")
    found = {
        (t.incident.group, t.incident.member_id) for t in history.transitions if t.incident.rule == "rebalance-timeout"
    }
    assert found == {(e["group"], e["member_id"]) for e in truth("static", "rebalance-timeout", history)}
    assert found


def test_a_poll_breach_is_never_called_a_session_expiry():
    """Java says so in its leave; kafka-python, librdkafka and KIP-848 clients leave without a word and come back."""
    java = [t.incident for t in replayed("java").transitions if t.incident.rule == "poll-exceeded"]
    assert {(i.group, i.evidence, i.cause) for i in java} == {
        ("poll-java", "observed", "poll-interval"),
        ("poll-java848", "inferred", "poll-interval"),
    }
    others = [t.incident for t in replayed("static").transitions if t.incident.rule == "poll-exceeded"]
    assert {(i.group, i.evidence) for i in others} == {("poll-python", "inferred"), ("poll-rdkafka", "inferred")}


def test_a_rolling_restart_of_static_members_accuses_nobody():
    history = replayed("static")
    replaced = {e["member_id"] for e in truth("static", "replaced", history)}
    expired = {t.incident.member_id for t in history.transitions if t.incident.rule == "session-expired"}
    logged = {e["member_id"] for e in truth("static", "session-expired", history)}
    assert replaced
    assert expired <= logged


def test_a_pause_that_ends_in_refusals_is_one_restart():
    """The broker woke, let the sessions expire that had run out, and only then learned to answer 16 for a while."""
    name = "paused-then-refused"
    history = replayed(name, consumer_session_timeout_ms=7_000)
    incidents = [t.incident for t in history.transitions if t.kind is Kind.OPENED]
    said = [(i.member_id, i.deadline_ms, i.cause) for i in incidents if i.group == "confluent-848"]
    expected = [e for e in truth(name, "session-expired", history) if e["group"] == "confluent-848"]
    assert len(expected) == 4
    for event in expected:
        offs_ms = [abs(deadline_ms - event["at_ms"]) for who, deadline_ms, _ in said if who == event["member_id"]]
        assert min(offs_ms) <= AFTER_RESTART_MS


def stripped_of(kept):
    """The capture that holds both sources, with the lines of one; offsets are numbered anew, for nothing was lost."""
    numbers, rows = Counter(), []
    with open_text(CAPTURES / "coordinator-log.jsonl.gz") as lines:
        for row in read_rows(lines):
            if row.source == TELEMETRY:
                if is_coordinator_line(row.value) != (kept == "coordinator's log"):
                    continue
                numbers[row.partition] += 1
                row = row._replace(offset=numbers[row.partition])  # noqa: PLW2901
            rows.append(row)
    settings = ShardSettings(cluster="c", partitions=0, live_from_ms=0)
    return replay_rows(rows, replace(settings, thresholds=Thresholds(consumer_session_timeout_ms=7_000)))


def accused(history):
    opened = [t.incident for t in history.transitions if t.kind is Kind.OPENED]
    return {(i.rule, i.group, i.member_id): i for i in opened if i.rule in VIOLATIONS}


def test_the_coordinators_log_names_whom_the_request_log_names():
    """Each log alone accuses the same members and nobody else, for the same cause, within a second."""
    alone, request_log = accused(stripped_of("coordinator's log")), accused(stripped_of("request log"))
    assert alone.keys() == request_log.keys()
    assert Counter(rule for rule, _, _ in alone) == {"session-expired": 7, "rebalance-timeout": 1}
    for subject, incident in alone.items():
        assert abs(incident.deadline_ms - request_log[subject].deadline_ms) <= 1_000
        assert (incident.evidence, incident.cause) == ("observed", request_log[subject].cause)


def test_its_verdicts_are_the_lines_of_the_broker_s_log_to_the_millisecond():
    logged = json.loads((CAPTURES / "coordinator-log.truth.json").read_text())
    expected = {
        (e["kind"], e["group"], e["member_id"], e["at_ms"])
        for e in logged
        if e["kind"] in ("session-expired", "rebalance-timeout")
    }
    found = {
        (*subject, incident.deadline_ms) for subject, incident in accused(stripped_of("coordinator's log")).items()
    }
    assert found == expected


def test_beside_the_request_log_the_coordinator_s_log_changes_no_verdict():
    both, request_log = replayed("coordinator-log", consumer_session_timeout_ms=7_000), stripped_of("request log")
    assert [to_contract(t) for t in both.transitions] == [to_contract(t) for t in request_log.transitions]
    assert both.coverage["coordinator_log"]["broker-1"]["lines"] > 50
    assert both.coverage["brokers"] == request_log.coverage["brokers"]

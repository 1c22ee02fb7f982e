"""What an alert says: whom it concerns, who reads its partitions now, what came before, what to do."""

import json

import pytest

from streaming.config.settings import Serve
from streaming.serve.events import ranges
from streaming.serve.notify.message import MessageEnricher, shown, unread_partitions
from tests.support.outputs import START_MS, ended, finding, member, report, view

SERVE = Serve.model_validate({"public_url": "https://monitor.example/", "rules_url": "https://docs.example/rules"})


@pytest.fixture
def told(apply, store):
    """The newest message, completed."""

    def _told(*outputs, serve=SERVE):
        apply(*outputs)
        store.outbox.fan_out({"log": ("info", "warn", "page")})
        newest = max(store.outbox.due("log", START_MS * 2), key=lambda message: message.id)
        store.outbox.done([newest.id], START_MS)
        return MessageEnricher(store.read, serve).complete(json.loads(newest.payload))

    return _told


def test_it_names_group_member_host_library_deadline_cause_and_what_nobody_reads(told):
    other = member("m-2", assignment=[{"topic": "orders", "partitions": [1]}])
    said = told(report("payments", finding("payments"), view=view("payments") | {"members": [other]}))
    assert said["missed_by_ms"] == 500
    assert said["unread_partitions"] == [["orders", 0]]
    assert said["runbook_url"] == "https://docs.example/rules/session-expired.md"
    assert said["group_url"] == "https://monitor.example/groups/payments?cluster=prod"
    assert said["description"].splitlines() == [
        "m-1 missed its session timeout",
        "group payments, generation 3, cluster prod, broker broker-1",
        "member m-1, host 10.0.0.7, client worker (apache-kafka-java 4.3.1)",
        "deadline 2026-09-21T14:13:20.000+00:00, missed by 0.5 s",
        "cause session-timeout, observed",
        "nobody reads now: orders 0",
        "before: 2026-09-21T14:12:20.000+00:00 generation 3: 1 member",
        "runbook: https://docs.example/rules/session-expired.md",
        "group: https://monitor.example/groups/payments?cluster=prod",
    ]


def test_a_partition_whose_reader_is_violated_is_read_by_nobody():
    members = [member("m-1", liveness="violated"), member("m-2", assignment=[{"topic": "t", "partitions": [5]}])]
    assert unread_partitions([["orders", 0], ["t", 5]], view() | {"members": members}) == [["orders", 0]]
    assert unread_partitions([["t", 5]], None) == [["t", 5]]


def test_it_tells_what_happened_just_before_newest_last(told):
    earlier = finding(member="m-9", opened_ms=START_MS - 30_000)
    told(report("orders", earlier, view=view()))
    now = view(generation=4, members=2, stable_since_ms=START_MS - 10_000)
    said = told(report("orders", earlier, finding(), view=now))
    assert [event["text"] for event in said["recent_events"]] == [
        "generation 3: 1 member",
        "session-expired opened, warn: m-9 missed its session timeout",
        "generation 4: 2 members, joined m-1, 2 partitions moved",
    ]


def test_a_closing_says_why_it_is_over_and_no_longer_what_is_unread(told):
    told(report("orders", finding()))
    lines = told(report("orders", ended(finding(), START_MS + 9_000)))["description"].splitlines()
    assert "over: rejoined" in lines
    assert not [line for line in lines if line.startswith("nobody reads")]


def test_a_runbook_of_the_team_wins_over_the_rules_own_page(told):
    assert told(report("orders", finding()))["runbook_url"] == "https://runbooks/orders"


def test_without_an_external_address_there_is_no_link_that_leads_nowhere(told):
    assert told(report("orders", finding()), serve=Serve())["group_url"] is None


STALLED = {"rule": "partition-stalled", "detail": {"owned_since_ms": START_MS, "stable_since_ms": START_MS}}


@pytest.mark.parametrize(
    ("detail", "line"),
    [
        (
            {"rebalance_reason": "topic metadata changed"},
            "owned since 2026-09-21T14:13:20.000+00:00, after a rebalance: topic metadata changed",
        ),
        (
            {"rebalance_reason": None},
            "owned since 2026-09-21T14:13:20.000+00:00, after a rebalance: reason unknown",
        ),
        (
            {"stable_since_ms": START_MS + 1_000, "rebalance_reason": "a\u202eb"},
            "owned since 2026-09-21T14:13:20.000+00:00, last rebalance 2026-09-21T14:13:21.000+00:00: a\\u202eb",
        ),
        ({"stable_since_ms": None}, "owned since 2026-09-21T14:13:20.000+00:00"),
    ],
)
def test_a_stall_says_since_when_it_is_owned_and_after_which_rebalance(told, detail, line):
    said = told(report("orders", finding(**STALLED | {"detail": STALLED["detail"] | detail})))
    assert said["description"].splitlines()[3] == line


def test_an_incident_without_an_owner_says_nothing_of_ownership(told):
    simple = finding(**STALLED | {"detail": STALLED["detail"] | {"owned_since_ms": None}})
    assert "owned since" not in told(report("orders", simple))["description"]


def test_what_steers_a_terminal_or_turns_the_writing_is_spelled_out(told):
    evil = "a\u202eb\x1b[2Jc\nd\x00"
    said = told(report(evil, finding(evil, evil, summary=evil, client_host=evil)))
    assert not {"\u202e", "\x1b", "\x00"} & set(said["description"])
    assert len([line for line in said["description"].splitlines() if line.startswith("member")]) == 1
    assert shown("g" * 32_000, 400) == "g" * 400


def test_partitions_are_written_shortly():
    assert ranges([["b", 1], ["a", 3], ["a", 0], ["a", 1], ["a", 2], ["a", 7]]) == "a 0-3, 7; b 1"

"""The demo's judge is not to be pleased easily: missing, extra and late alerts each fail it."""

import pytest

from streaming.demo.verdict import EXTRA, MISSING, OFF, OK, Left, judge
from streaming.embedded.truth import LEFT, SESSION_EXPIRED, TruthEvent

EXPIRED_MS = 1_000_000


def logged(kind, member_id, at_ms=EXPIRED_MS):
    return TruthEvent(kind, "g", member_id, at_ms, "broker-1", 3, "", "")


def alert(rule, member_id, deadline_ms=EXPIRED_MS, transition="opened"):
    return {
        "transition": transition,
        "incident_id": f"{rule} {member_id} {deadline_ms}",
        "rule": rule,
        "group": "g",
        "member_id": member_id,
        "client_id": member_id,
        "deadline_ms": deadline_ms,
        "at_ms": deadline_ms,
    }


def verdicts(truth=(), alerts=(), killed=(), left=()):
    return [(row.what, row.verdict) for row in judge(truth, alerts, killed, left)]


@pytest.mark.parametrize(("off_ms", "verdict"), [(0, OK), (-1_000, OK), (1_000, OK), (1_001, OFF), (-1_001, OFF)])
def test_an_alert_may_be_off_by_a_second(off_ms, verdict):
    assert verdicts(
        [logged(SESSION_EXPIRED, "a")], [alert("session-expired", "a", EXPIRED_MS + off_ms)], [("g", "a")]
    ) == [("session-expired", verdict)]


def test_an_expiry_without_an_alert_is_missing_whoever_caused_it():
    assert verdicts([logged(SESSION_EXPIRED, "a")]) == [("session-expired", MISSING)]


def test_an_alert_without_an_expiry_is_extra():
    assert verdicts((), [alert("session-expired", "a")]) == [("session-expired", EXTRA)]


def test_a_page_about_the_broker_is_extra_too():
    assert verdicts((), [alert("coordinator-paused", None)]) == [("coordinator-paused", EXTRA)]


def test_an_alert_about_somebody_else_does_not_count():
    assert verdicts([logged(SESSION_EXPIRED, "a")], [alert("session-expired", "b")]) == [
        ("session-expired", MISSING),
        ("session-expired", EXTRA),
    ]


def test_a_killed_member_that_the_log_does_not_know_proves_nothing():
    assert verdicts((), [alert("session-expired", "a")], [("g", "a")]) == [("session-expired", MISSING)]


def test_a_stall_needs_its_alert_and_a_redeploy_none():
    truth = [logged(LEFT, "stalled"), logged(LEFT, "redeployed")]
    left = [Left("g", "stalled", stalled=True), Left("g", "redeployed", stalled=False)]
    assert verdicts(truth, [alert("poll-exceeded", "stalled")], left=left) == [
        ("poll-exceeded", OK),
        ("redeployed: no alert", OK),
    ]
    assert ("poll-exceeded", MISSING) in verdicts(truth, (), left=left)
    assert ("poll-exceeded", EXTRA) in verdicts(
        truth, [alert("poll-exceeded", "stalled"), alert("poll-exceeded", "redeployed")], left=left
    )


def test_a_message_delivered_twice_and_a_closing_are_no_second_alert():
    said = alert("session-expired", "a")
    closing = alert("session-expired", "a", transition="closed")
    assert verdicts([logged(SESSION_EXPIRED, "a")], [said, said, closing], [("g", "a")]) == [("session-expired", OK)]

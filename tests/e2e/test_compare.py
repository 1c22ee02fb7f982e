"""The judge itself: what is missing, extra, off or right must come out as such."""

import pytest

from streaming.embedded.truth import TruthEvent
from tests.e2e.compare import rebalance_rows, session_rows


def logged(at_ms: int, *, kind: str = "session-expired", member_id: str = "m", partition: int = 3) -> TruthEvent:
    return TruthEvent(
        kind, "" if kind == "coordinator-loaded" else "g", member_id, at_ms, "broker-1", partition, "", ""
    )


def said(deadline_ms: int | None, *, at_ms: int = 0, rule: str = "session-expired", member_id: str = "m") -> dict:
    return {
        "kind": "incident",
        "transition": "opened",
        "rule": rule,
        "group": "g",
        "member_id": member_id,
        "deadline_ms": deadline_ms,
        "at_ms": at_ms,
        "evidence": "observed",
        "cause": "session-timeout",
    }


def recorded(*incidents: dict, until_ms: int = 1_000_000) -> list[dict]:
    return [*incidents, {"kind": "summary", "coverage": {"brokers": {"broker-1": {"last_ms": until_ms}}}}]


@pytest.mark.parametrize(
    ("truth", "printed", "verdicts"),
    [
        ([logged(50_000)], [said(50_900)], ["ok"]),
        ([logged(50_000)], [said(51_100)], ["OFF"]),
        ([logged(50_000)], [said(None, at_ms=50_100)], ["ok"]),
        ([logged(50_000)], [], ["MISSING"]),
        ([logged(50_000)], [said(80_000)], ["MISSING", "EXTRA"]),
        ([], [said(50_000)], ["EXTRA"]),
        ([logged(50_000)], [said(50_000, rule="session-at-risk")], ["MISSING"]),
        ([logged(50_000), logged(51_000, member_id="n")], [said(50_000), said(51_000, member_id="n")], ["ok", "ok"]),
    ],
)
def test_an_expiry_is_right_missing_extra_or_off(truth, printed, verdicts):
    assert [row.verdict for row in session_rows(truth, recorded(*printed))] == verdicts


def test_a_removal_logged_twice_needs_one_incident_and_may_have_two():
    truth = [logged(50_000), logged(55_000)]
    assert [row.verdict for row in session_rows(truth, recorded(said(55_100)))] == ["ok"]
    assert [row.verdict for row in session_rows(truth, recorded(said(50_000), said(55_000)))] == ["ok", "ok"]
    assert "EXTRA" in [row.verdict for row in session_rows(truth, recorded(said(50_000), said(51_000), said(55_000)))]


def test_three_seconds_are_allowed_only_soon_after_the_partition_was_loaded():
    load = logged(40_000, kind="coordinator-loaded", member_id="")
    elsewhere = load._replace(partition=4)
    assert [row.verdict for row in session_rows([load, logged(50_000)], recorded(said(52_500)))] == ["ok"]
    assert [row.verdict for row in session_rows([elsewhere, logged(50_000)], recorded(said(52_500)))] == ["OFF"]


def test_a_sync_timer_that_outlives_a_replacement_is_nobodys_timeout():
    replaced, timeout = logged(1_000, kind="replaced"), logged(9_000, kind="rebalance-timeout")
    assert rebalance_rows([replaced, timeout], recorded()) == []
    assert [row.verdict for row in rebalance_rows([timeout], recorded())] == ["MISSING"]


def test_what_the_capture_does_not_reach_is_not_asked_for():
    assert session_rows([logged(50_000)], recorded(until_ms=50_500)) == []
    assert [row.verdict for row in session_rows([logged(50_000)], recorded(until_ms=51_500))] == ["MISSING"]

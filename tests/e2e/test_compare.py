"""Tests of the judge: what is missing, extra, off or right must be found to be so."""

import base64
import gzip
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from streaming.embedded.truth import TruthEvent
from tests.e2e import compare, limits, quiet
from tests.e2e.compare import (
    Row,
    captured,
    judge,
    named,
    pauses,
    poll_rows,
    rebalance_rows,
    score,
    session_rows,
    with_ties,
)
from tests.e2e.poll_truth import EXCEEDED, Sleepers, polled_in_time, returns, slept
from tests.e2e.world import Played
from tests.support.pushes import metrics_data
from tests.support.request_log import heartbeat_line, line


def logged(at_ms: int, *, kind: str = "session-expired", member_id: str = "m", partition: int = 3) -> TruthEvent:
    return TruthEvent(
        kind, "" if kind == "coordinator-loaded" else "g", member_id, at_ms, "broker-1", partition, "", ""
    )


def said(deadline_ms: int | None, *, at_ms: int = 0, rule: str = "session-expired", member_id: str = "m") -> dict:
    return {
        "kind": "incident",
        "transition": "opened",
        "incident_id": f"{rule} {member_id}",
        "severity": "warn",
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


@pytest.mark.parametrize(("later_ms", "verdicts"), [(62_000, ["ok", "ok"]), (51_000, ["ok", "MISSING"])])
def test_an_incident_that_goes_on_with_another_removal_tells_that_too(later_ms, verdicts):
    """The member joined in between and was never heard: its incident stayed open, and has the other deadline."""
    truth = [logged(50_000), logged(55_000, kind="joined"), logged(62_100)]
    printed = recorded(said(50_000), {**said(later_ms), "transition": "closed", "reason": "rejoined"})
    assert [row.verdict for row in session_rows(truth, printed)] == verdicts


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


# what the log has of the group besides the end of a session at 50,000 -> the verdict if we report nothing
PHASES = {
    "in a phase that ended with its coordinator": (["rebalance 45,000", "coordinator-loaded 60,000"], "UNTOLD"),
    "in a phase that ended": (
        ["rebalance 45,000", "generation 55,000", "coordinator-loaded 60,000"],
        "MISSING",
    ),
    "it began the phase": (["generation 45,000", "rebalance 50,000", "coordinator-loaded 60,000"], "MISSING"),
    "in no phase": (["rebalance 44,000", "generation 45,000", "coordinator-loaded 60,000"], "MISSING"),
    "in a phase that goes on": (["rebalance 45,000"], "MISSING"),
}


@pytest.mark.parametrize("name", PHASES)
def test_an_expiry_in_a_phase_that_ends_with_its_coordinator_is_not_demanded(name):
    lines, verdict = PHASES[name]
    truth = [logged(50_000)]
    for text in lines:
        kind, _, at_ms = text.partition(" ")
        truth.append(logged(int(at_ms.replace(",", "")), kind=kind, member_id=""))
    rows = session_rows(sorted(truth, key=lambda event: event.at_ms), recorded())
    assert [row.verdict for row in rows] == [verdict]


# what came of broker-1 after 45,000, and who loads the group at 60,000 -> the verdict on a removal at 50,000
REPLACED = {
    "nothing": (None, "broker-2", "UNTOLD"),
    "nothing before the load": (61_000, "broker-2", "UNTOLD"),
    "a line": (55_000, "broker-2", "MISSING"),
    "nothing, and it loads the group itself": (None, "broker-1", "MISSING"),
}


@pytest.mark.parametrize("name", REPLACED)
def test_a_removal_that_its_coordinator_did_not_outlive_is_not_demanded(name, tmp_path):
    line_ms, loader, verdict = REPLACED[name]
    lines = [(at_ms, line("LIST_GROUPS", {}, {"errorCode": 0})) for at_ms in (45_000, line_ms) if at_ms is not None]
    capture = captured_lines(tmp_path, lines, key="broker-1")
    loaded = logged(60_000, kind="coordinator-loaded", member_id="")._replace(broker=loader)
    truth = [logged(50_000), loaded]
    rows = session_rows(truth, recorded(), capture=capture)
    assert [row.verdict for row in rows] == [verdict]


INSTANCE, ANOTHER = (f"pod-1-{digit * 8}-0000-0000-0000-000000000000" for digit in "12")
# what was logged before broker-2 loaded the group, whether a line of broker-1 came -> verdict
SUCCEEDED = {
    "nothing": ([], False, "UNTOLD"),
    "nothing, but the broker answered somebody": ([], True, "MISSING"),
    "a generation without the member": ([("generation", "", "")], False, "MISSING"),
    "a static successor and its generation": (
        [("joined", ANOTHER, "Static member joins"), ("generation", "", "")],
        False,
        "UNTOLD",
    ),
    "a static successor, but the broker answered": ([("joined", ANOTHER, "Static member joins")], True, "MISSING"),
    "a dynamic member of the same client": (
        [("joined", ANOTHER, "Pending dynamic member"), ("generation", "", "")],
        False,
        "MISSING",
    ),
}


@pytest.mark.parametrize("name", SUCCEEDED)
def test_a_removal_by_a_coordinator_that_is_replaced_unseen_is_not_demanded(name, tmp_path):
    events, telling, verdict = SUCCEEDED[name]
    lines = [(51_000, heartbeat_line("other"))] if telling else []
    capture = captured_lines(tmp_path, lines, key="broker-1")
    truth = [
        logged(50_000, member_id=INSTANCE),
        *(logged(50_500, kind=kind, member_id=member)._replace(line=text) for kind, member, text in events),
        logged(60_000, kind="coordinator-loaded", member_id="")._replace(broker="broker-2"),
    ]
    assert [row.verdict for row in session_rows(truth, recorded(), capture=capture)] == [verdict]


# the instants of broker-1's lines, and what we report of its removal at 50,000 -> the verdict
SILENCES = {
    "its lines were lost": ([40_000, 60_000], "unknown", "UNTOLD"),
    "its lines were lost for good": ([40_000], "unknown", "UNTOLD"),
    "it was heard before": ([49_500, 60_000], "unknown", "MISSING"),
    "it was heard after": ([40_000, 50_500], "unknown", "MISSING"),
    "it was never heard": ([], "unknown", "MISSING"),
    "another cause is told": ([40_000, 60_000], "left", "MISSING"),
    "nothing is told": ([40_000, 60_000], None, "MISSING"),
}


@pytest.mark.parametrize("name", SILENCES)
def test_an_expiry_at_a_broker_whose_lines_were_lost_may_have_an_unknown_cause(name):
    lines_ms, cause, verdict = SILENCES[name]
    removed = said(None, rule="member-removed") | {"cause": cause, "opened_ms": 50_100}
    printed = recorded() if cause is None else recorded(removed)
    heard = {"broker-1": lines_ms, "broker-2": [50_000]}
    rows = session_rows([logged(50_000)], printed, lines_ms=heard)
    assert [row.verdict for row in rows] == [verdict]


# when a heartbeat of the group was accepted, and the cause that we report -> the verdict on a newcomer of 43,000
HEARD = {
    "nobody was, since it joined": ([42_000, 51_000], "unknown", "UNTOLD"),
    "another member was": ([45_000], "unknown", "MISSING"),
    "nobody was, and we report another cause": ([], "left", "MISSING"),
}


@pytest.mark.parametrize("name", HEARD)
def test_a_newcomer_that_expired_unheard_may_have_an_unknown_cause(name):
    """A filter that hides heartbeats looks the same."""
    heard_ms, cause, verdict = HEARD[name]
    printed = recorded(said(None, rule="member-removed") | {"cause": cause, "opened_ms": 50_100})
    truth = [logged(43_000, kind="joined"), logged(50_000)]
    rows = session_rows(truth, printed, lines_ms={"broker-1": [50_000]}, heard_ms={"g": heard_ms})
    assert [row.verdict for row in rows] == [verdict]


# when a partition was loaded, the deadline that we report and the interval that we state for it -> the verdict on a
# session's end at 50,000
STATED = {
    "it holds the end": (40_000, 53_500, (45_000, 54_000), "WITHIN"),
    "it ends before": (40_000, 53_500, (45_000, 48_900), "OFF"),
    "none is stated": (40_000, 53_500, (None, None), "OFF"),
    "long after a load": (20_000, 53_500, (45_000, 54_000), "OFF"),
    "the deadline is near": (40_000, 48_500, (45_000, 49_100), "ok"),
    "the deadline is near, but it ends before": (40_000, 48_500, (45_000, 48_900), "OFF"),
    "the deadline is near, but it begins after": (40_000, 51_200, (51_100, 54_000), "OFF"),
    "the deadline is near, and none is stated": (40_000, 48_500, (None, None), "ok"),
}


@pytest.mark.parametrize("name", STATED)
def test_soon_after_a_load_a_stated_interval_that_holds_the_end_will_do(name):
    loaded_ms, deadline_ms, (from_ms, until_ms), verdict = STATED[name]
    incident = said(deadline_ms) | {"detail": {"deadline_from_ms": from_ms, "deadline_until_ms": until_ms}}
    load = logged(loaded_ms, kind="coordinator-loaded", member_id="")
    rows = session_rows([load, logged(50_000)], recorded(incident))
    assert [row.verdict for row in rows] == [verdict]
    assert ("1 dated by an interval" in score("session-expired", rows)) is (verdict == "WITHIN")


# the stated interval, and when the session ended -> the verdict, with broker-1 paused from 50,000 to 54,000
PAUSED = {
    "it ended as the broker went on": ((50_080, 54_000), 54_010, "WITHIN"),
    "it ended as the broker was stopped": ((50_080, 54_000), 50_010, "ok"),
    "it ended in between": ((50_080, 54_000), 52_000, "OFF"),
    "the interval is not the pause": ((50_080, 52_500), 52_400, "OFF"),
    "none is stated": ((None, None), 54_010, "OFF"),
}


@pytest.mark.parametrize("name", PAUSED)
def test_of_a_session_that_was_due_in_a_pause_an_interval_will_do(name):
    (from_ms, until_ms), ended_ms, verdict = PAUSED[name]
    incident = said(50_080) | {"detail": {"deadline_from_ms": from_ms, "deadline_until_ms": until_ms}}
    actions = [
        {"action": "start", "at_ms": 10},
        {"action": "pause broker-1 for 4 s", "at_ms": 50_000},
        {"action": "broker-2 is back", "at_ms": 51_000},
        {"action": "broker-1 is back", "at_ms": 54_000},
    ]
    assert [row.verdict for row in session_rows([logged(ended_ms)], recorded(incident), pauses(actions))] == [verdict]


def test_a_sync_timer_that_outlives_a_replacement_is_nobodys_timeout():
    replaced, timeout = logged(1_000, kind="replaced"), logged(9_000, kind="rebalance-timeout")
    assert rebalance_rows([replaced, timeout], recorded()) == []
    assert [row.verdict for row in rebalance_rows([timeout], recorded())] == ["MISSING"]


def test_a_member_that_replaced_itself_goes_on_and_may_miss_a_revocation():
    replaced, timeout = logged(1_000, kind="replaced")._replace(detail="m"), logged(9_000, kind="rebalance-timeout")
    assert [row.verdict for row in rebalance_rows([replaced, timeout], recorded())] == ["MISSING"]


@pytest.mark.parametrize(("loaded_ms", "verdicts"), [(9_700, []), (13_000, ["MISSING"])])
def test_who_missed_a_phase_as_another_broker_took_over_need_not_be_told(loaded_ms, verdicts):
    """The old coordinator drops it and cannot write that; the new one has it in its log, and may let it expire."""
    timeout = logged(9_000, kind="rebalance-timeout")
    load = logged(loaded_ms, kind="coordinator-loaded", member_id="")._replace(broker="broker-2")
    assert [row.verdict for row in rebalance_rows([timeout, load], recorded())] == verdicts
    told = recorded(said(9_000, rule="rebalance-timeout"))
    assert [row.verdict for row in rebalance_rows([timeout, load], told)] == ["ok"]


# the last line of broker-1, which removes m at 50,000, and of broker-2 -> the verdicts if we report nothing
REACHES = {
    "its broker's lines": ({"broker-1": 1_000_000, "broker-2": 10_000}, ["MISSING"]),
    "only another broker's": ({"broker-1": 10_000, "broker-2": 1_000_000}, []),
    "nothing": ({}, []),
}


@pytest.mark.parametrize("name", REACHES)
def test_a_recording_is_judged_as_far_as_it_reaches(name, capsys):
    last_ms, verdicts = REACHES[name]
    brokers = {broker: {"last_ms": ms} for broker, ms in last_ms.items()}
    printed = [{"kind": "summary", "coverage": {"brokers": brokers}}]
    assert [row.verdict for row in session_rows([logged(50_000)], printed)] == verdicts
    assert limits.reached(captured([logged(50_000)], printed), [logged(50_000)]) is bool(verdicts)
    assert f"{len(verdicts)} of 1 logged removals judged" in capsys.readouterr().out
    assert not limits.reached([], [])


# what happened to the brokers at 10,000, and whom a report of 50,000 blames for what -> whether that is for nothing
BLAMES = {
    "its own pause": ("pause broker-1 for 4 s", "coordinator-pause", 50_000, False),
    "another broker's pause": ("pause broker-2 for 4 s", "coordinator-pause", 50_000, True),
    "a move away from another broker": ("kill broker-2 for 12 s", "coordinator-moved", 50_000, False),
    "a pause long before": ("pause broker-1 for 4 s", "coordinator-pause", 71_000, True),
    "a kill of a client": ("kill", "coordinator-moved", 50_000, True),
}


@pytest.mark.parametrize(
    ("rule", "told_ms", "wrongly"),
    [("telemetry-stalled", 15_000, False), ("telemetry-stalled", 9_000, True), ("coordinator-paused", 15_000, True)],
)
def test_a_broker_may_die_before_the_silence_of_its_telemetry_is_told(rule, told_ms, wrongly):
    report = said(None, rule=rule, at_ms=told_ms) | {"broker": "broker-1", "opened_ms": 0, "summary": "silent"}
    done = [{"at_ms": 10_000, "action": "kill broker-1"}]
    assert limits.blamed([report], done) == ["blamed for nothing at 0: silent"] * wrongly


@pytest.mark.parametrize("name", BLAMES)
def test_a_broker_is_blamed_only_for_what_was_done(name):
    action, cause, at_ms, wrongly = BLAMES[name]
    report = said(None, rule="coordinator-paused") | {"cause": cause, "broker": "broker-1", "opened_ms": at_ms}
    found = limits.blamed([report | {"summary": "broker-1 paused"}], [{"at_ms": 10_000, "action": action}])
    assert found == [f"blamed for nothing at {at_ms}: broker-1 paused"] * wrongly


def test_pages_are_counted_by_rule_and_once_an_incident():
    lines = [said(1), said(2) | {"transition": "escalated", "severity": "page"}, said(3, member_id="n")]
    lines.append(said(4, rule="poll-exceeded") | {"severity": "page"})
    assert limits.pages([*lines, lines[1]]) == "pages: 1 session-expired, 1 poll-exceeded"


# how many of 200 rows have a verdict that excuses them, how many of 100 members are unnamed -> how many are too many
@pytest.mark.parametrize(
    ("excused", "unnamed", "wrong"),
    [
        ({}, 15, 0),
        ({}, 16, 1),
        ({"UNTOLD": 12, "UNHEARD": 6, "WITHIN": 6, "TIE": 4}, 0, 0),
        ({"UNTOLD": 13, "UNHEARD": 7, "WITHIN": 7, "TIE": 5}, 0, 4),
    ],
)
def test_verdicts_that_excuse_a_difference_have_a_limit(excused, unnamed, wrong):
    verdicts = [verdict for verdict, count in excused.items() for _ in range(count)]
    rows = [SimpleNamespace(verdict=verdict) for verdict in [*verdicts, *["ok"] * (200 - len(verdicts))]]
    assert len(limits.within({"session-expired": rows}, unnamed, 100)) == wrong


# whether a coordinator had just loaded, how wide the stated interval is, and the verdict for an instant that is far off
@pytest.mark.parametrize(
    ("moved", "width_ms", "verdict"), [(True, 120_000, "WITHIN"), (True, 120_100, "OFF"), (False, 20_000, "OFF")]
)
def test_a_missed_rebalance_is_dated_by_an_interval_only_after_a_move(moved, width_ms, verdict):
    row = Row("rebalance-timeout", "g", "m", 50_000, 60_000, 3_000, between_ms=(45_000, 45_000 + width_ms))
    assert replace(row, moved=moved).verdict == verdict


def test_what_the_capture_does_not_reach_is_not_asked_for():
    assert session_rows([logged(50_000)], recorded(until_ms=50_500)) == []
    assert [row.verdict for row in session_rows([logged(50_000)], recorded(until_ms=51_500))] == ["MISSING"]


# what the consumer c did, and when its member left -> whether that leave was a poll breach (its limit: 10 s)
LEAVES = {
    "while it stalled, past its limit": ([("stalled", 1_000), ("polling", 21_000)], 11_000, True),
    "while it stalled twice in a row": (
        [("stalled", 1_000), ("polling", 9_000), ("stalled", 9_001), ("polling", 17_000)],
        11_500,
        True,
    ),
    "while it stalled, too soon": ([("stalled", 1_000), ("polling", 21_000)], 9_000, False),
    "while it stalled, and was frozen for a part of it": (
        [("stalled", 1_000), ("freeze", 4_000), ("thaw", 6_000), ("polling", 14_000)],
        14_000,
        True,
    ),
    "once it had revoked, after it stalled again": (
        [("stalled", 1_000), ("polling", 13_000), ("error", 13_000), ("stalled", 14_000), ("revoked", 21_000)],
        21_050,
        True,
    ),
    "after it stalled again, with nothing to revoke": (
        [("stalled", 1_000), ("polling", 13_000), ("error", 13_000), ("stalled", 14_000), ("polling", 21_000)],
        21_050,
        False,
    ),
    "while it was frozen, past its limit": ([("freeze", 1_000), ("thaw", 17_000)], 17_100, True),
    "after it was closed": ([("stalled", 1_000), ("polling", 13_000), ("close", 13_100)], 13_200, False),
    "while it stalled, and was closed after that": ([("stalled", 1_000), ("close", 14_000)], 11_900, True),
    "of itself": ([], 11_000, False),
}


TOLD = ("stalled", "polling", "error", "revoked")


@pytest.mark.parametrize("name", LEAVES)
def test_a_leave_is_a_poll_breach_by_what_its_consumer_did(name):
    did, left_ms, breach = LEAVES[name]
    told = [{"client": "c", "limit_ms": 10_000, "event": "assigned", "at_ms": 0, "member_id": "m", "text": EXCEEDED}]
    told += [{**told[0], "event": what, "at_ms": at_ms} for what, at_ms in did if what in TOLD]
    actions = [{"client": "c", "action": what, "at_ms": at_ms} for what, at_ms in did if what not in TOLD]
    left = logged(left_ms, kind="left")
    assert slept([left], Sleepers(told, actions)) == ([left] if breach else [])


def test_of_a_consumer_that_never_told_its_limit_nobody_knows_that_it_broke_it():
    actions = [{"client": "c", "action": what, "at_ms": ms} for what, ms in (("freeze", 1_000), ("thaw", 3_000))]
    left = logged(3_500, kind="left", member_id="c-" + "u" * 36)
    assert slept([left], Sleepers([], actions)) == []


# when we report that it broke its limit, when its leave was answered and how
UNHEARD = {
    "as its leave was refused": ([11_000], (11_010, 16), ["UNHEARD"]),
    "twice, and one leave was refused": ([11_000, 11_500], (11_010, 16), ["UNHEARD", "EXTRA"]),
    "as its leave was taken": ([11_000], (11_010, 0), ["EXTRA"]),
    "long before its leave was refused": ([11_000], (15_000, 16), ["EXTRA"]),
    "before its limit": ([9_000], (9_010, 16), ["EXTRA"]),
    "long after it woke": ([28_000], (28_010, 16), ["EXTRA"]),
}


@pytest.mark.parametrize("name", UNHEARD)
def test_a_breach_whose_leave_no_broker_took_is_judged_by_its_clients_word(name, tmp_path):
    """It stalled from 1,000 until 21,000, and may stall for 10 s."""
    told_ms, (left_ms, error), verdicts = UNHEARD[name]
    leave = line("CONSUMER_GROUP_HEARTBEAT", {"memberId": "m", "memberEpoch": -1}, {"errorCode": error})
    with gzip.open(tmp_path / "c.jsonl.gz", "wt") as capture:
        capture.write(captured_lines(tmp_path, [(left_ms, leave)]).read_text())
    tell = {"client": "c", "limit_ms": 10_000, "member_id": "m"}
    did = [{**tell, "event": what, "at_ms": ms} for what, ms in (("stalled", 1_000), ("polling", 21_000))]
    (tmp_path / "c.clients.json").write_text(json.dumps(did))
    (tmp_path / "c.actions.json").write_text("[]")
    told = recorded(*(said(at_ms, rule="poll-exceeded") for at_ms in told_ms))
    assert [row.verdict for row in poll_rows(Played("c", tmp_path), [], told)] == verdicts


# what a KIP-848 member's client asked when, of which epoch -> whether it came back after its leave at 9,000
RETURNS = {
    "it joins again": ([(9_000, -1), (12_000, 0)], True),
    "it never joins again": ([(1_000, 0), (9_000, -1)], False),
    "it had left, expired, and joined before": ([(3_000, -1), (3_100, 0), (9_000, -1)], False),
}


@pytest.mark.parametrize("name", RETURNS)
def test_only_what_comes_after_a_leave_is_a_return(name, tmp_path):
    asked, back = RETURNS[name]
    lines = [
        (at_ms, line("CONSUMER_GROUP_HEARTBEAT", {"memberId": "m", "memberEpoch": epoch}, {"errorCode": 0}))
        for at_ms, epoch in asked
    ]
    left = logged(9_000, kind="left")
    assert returns(captured_lines(tmp_path, lines), [left]) == ({left} if back else set())


# when m asked to join, or joined, with a limit of 10 s, before its leave at 19,000 -> whether its return tells a breach
IN_SINCE = {
    "for its limit": (9_500, True),
    "for less: it unsubscribed, for all that lines tell": (11_000, False),
}


@pytest.mark.parametrize("name", IN_SINCE)
@pytest.mark.parametrize("kip848", [False, True])
def test_only_who_was_in_for_its_limit_is_told_by_its_return(name, kip848, tmp_path):
    """If its coordinator moved, a client that overslept its limit may join as another member without a poll."""
    joined_ms, back = IN_SINCE[name]
    if kip848:
        asks = [(joined_ms, 0), (19_000, -1), (19_300, 0)]
        lines = [
            (at_ms, line("CONSUMER_GROUP_HEARTBEAT", {**KIP848, "memberEpoch": epoch}, {"errorCode": 0}))
            for at_ms, epoch in asks
        ]
    else:
        lines = [
            (at_ms, line("JOIN_GROUP", {"rebalanceTimeoutMs": 10_000}, {"errorCode": 0, "memberId": member}))
            for at_ms, member in ((joined_ms, "m"), (19_300, "n"))
        ]
        lines.insert(1, (19_000, line("LEAVE_GROUP", {"members": [{"memberId": "m"}]}, {"errorCode": 0})))
    left = logged(19_000, kind="left")
    assert returns(captured_lines(tmp_path, lines), [left]) == ({left} if back else set())


def test_a_return_after_a_later_leave_tells_nothing_of_an_earlier_one(tmp_path):
    """The first leave came too soon to be one of a client that overslept. Its member joined again, and left again."""
    asks = [(11_000, 0), (19_000, -1), (22_000, 0), (51_000, -1), (51_100, 0)]
    lines = [
        (at_ms, line("CONSUMER_GROUP_HEARTBEAT", {**KIP848, "memberEpoch": epoch}, {"errorCode": 0}))
        for at_ms, epoch in asks
    ]
    first, second = (logged(at_ms, kind="left") for at_ms in (19_000, 51_000))
    assert returns(captured_lines(tmp_path, lines), [first]) == set()
    assert returns(captured_lines(tmp_path, lines), [first, second]) == {second}


# when m, whose limit is 10 s, pushed every 5 s that it polled, before its leave at 29,000 -> whether that was in time
IN_TIME = {
    "its limit may not have passed when the push's interval began": ((17_000, 27_000), True),
    "no poll began in a whole limit before": ((7_000, 27_000), False),
    "it pushed no poll since": ((12_000,), False),
    "a push is missing in between": ((7_000, 27_000), True),
}


@pytest.mark.parametrize("name", IN_TIME)
def test_who_pushed_a_poll_that_may_have_been_in_time_is_not_told_by_its_return(name, tmp_path):
    polls_ms, in_time = IN_TIME[name]
    asks = [(2_000, 0), (29_000, -1), (29_300, 0)]
    lines = [
        (at_ms, line("CONSUMER_GROUP_HEARTBEAT", {**KIP848, "memberEpoch": epoch}, {"errorCode": 0}))
        for at_ms, epoch in asks
    ]
    for at_ms in range(2_000, 30_000, 5_000):
        data = metrics_data("g", "m", None, idle=(0.9 if at_ms in polls_ms else 0.0, 5_000))
        push = {"metrics": base64.b64encode(data).decode(), "compressionType": 0}
        if at_ms != 17_000 or "missing" not in name:
            lines.append((at_ms, line("PUSH_TELEMETRY", push, {"errorCode": 0})))
    left = logged(29_000, kind="left")
    assert polled_in_time(captured_lines(tmp_path, lines), [left]) == ({left} if in_time else set())


@pytest.mark.parametrize(("polled", "in_time"), [(True, True), (False, False)])
def test_a_push_after_a_leave_may_tell_of_a_poll_before_it(polled, in_time, tmp_path):
    """m, of the classic protocol, polled last between 17,000 and 22,000, or between 28,600 and 33,600."""
    joined = {"errorCode": 0, "memberId": "m"}
    lines = [(2_000, line("JOIN_GROUP", {"rebalanceTimeoutMs": 10_000}, joined))]
    lines += [(29_000, line("LEAVE_GROUP", {"members": [{"memberId": "m"}]}, {"errorCode": 0}))]
    for at_ms, member, share in ((22_000, "m", 0.9), (28_600, "m", 0.0), (33_600, None, 0.9 if polled else 0.0)):
        data = metrics_data("g", member, None, idle=(share, 5_000))
        push = {"metrics": base64.b64encode(data).decode(), "compressionType": 0, "clientInstanceId": "process"}
        lines.append((at_ms, line("PUSH_TELEMETRY", push, {"errorCode": 0})))
    left = logged(29_000, kind="left")
    assert polled_in_time(captured_lines(tmp_path, lines), [left]) == ({left} if in_time else set())


KIP848 = {"memberId": "m", "rebalanceTimeoutMs": 10_000}


# what we report about a member that stalled at 1,000 for more than its limit of 10 s, and left at 14,000
BY_ITS_WORD = {
    "its limit, as it pushed": (11_200, "observed", 200, "ok"),
    "its leave": (14_200, "observed", 200, "ok"),
    "neither": (12_500, "observed", 1_500, "OFF"),
    "its limit, though it told nothing": (11_200, "inferred", -2_800, "OFF"),
}


@pytest.mark.parametrize("name", BY_ITS_WORD)
def test_a_leave_that_trails_its_limit_is_held_to_its_clients_word(name, tmp_path):
    """A KIP-848 client cannot leave while its heartbeat waits behind a stalled write; what it pushed was true."""
    told_ms, evidence, off_ms, verdict = BY_ITS_WORD[name]
    with gzip.open(tmp_path / "c.jsonl.gz", "wt") as capture:
        capture.write("")
    tell = {"client": "c", "limit_ms": 10_000, "member_id": "m"}
    did = [{**tell, "event": what, "at_ms": ms} for what, ms in (("stalled", 1_000), ("polling", 21_000))]
    (tmp_path / "c.clients.json").write_text(json.dumps(did))
    (tmp_path / "c.actions.json").write_text("[]")
    told = recorded({**said(told_ms, rule="poll-exceeded"), "evidence": evidence})
    [row] = poll_rows(Played("c", tmp_path), [logged(14_000, kind="left")], told)
    assert (row.difference_ms, row.verdict) == (off_ms, verdict)


@pytest.mark.parametrize(("errors", "back"), [((79, 0), True), ((79,), False)])
def test_who_asks_to_join_again_and_is_not_let_in_has_not_returned(errors, back, tmp_path):
    """It may have died meanwhile, or asked a broker that no longer coordinates."""
    lines = [(9_000, line("LEAVE_GROUP", {"members": [{"memberId": "m"}]}, {"errorCode": 0}))]
    for n, error in enumerate(errors):
        lines.append((12_000 + n, line("JOIN_GROUP", {"memberId": ""}, {"errorCode": error})))
    left = logged(9_000, kind="left")
    assert returns(captured_lines(tmp_path, lines), [left]) == ({left} if back else set())


def captured_lines(folder, lines, key=None):
    rows = [
        {
            "source": "telemetry",
            "key": key,
            "topic": "group-telemetry",
            "partition": 0,
            "offset": at_ms,
            "timestamp_ms": at_ms,
            "value": value,
        }
        for at_ms, value in lines
    ]
    capture = folder / "c.jsonl"
    capture.write_text("\n".join(map(json.dumps, rows)))
    return capture


def test_a_score_counts_what_was_said_and_what_was_true():
    rows = session_rows(
        [logged(50_000), logged(60_000, member_id="n"), logged(70_000, member_id="o")],
        recorded(said(50_100), said(61_500, member_id="n"), said(80_000, member_id="p")),
    )
    assert score("session-expired", rows) == (
        "session-expired    said    3, precision 0.667; true    3, recall 0.667;"
        " deadlines off by p50 1500 ms, max 1500 ms, 1 too far"
    )


def test_what_nothing_tells_is_counted_beside_the_score():
    rows = [Row("poll-exceeded", "g", "m", 50_000, None, 1_000, untold=True)]
    assert score("poll-exceeded", rows) == (
        "poll-exceeded      said    0, precision   -  ; true    0, recall   -  ; deadlines off by -, 0 too far;"
        " 1 more not observable"
    )


@pytest.mark.parametrize(("set_aside", "good"), [(5, True), (6, False)])
def test_a_run_that_sets_too_many_quiet_points_aside_is_not_good(set_aside, good, tmp_path, monkeypatch, capsys):
    for kind, events in (("truth", [logged(50_000)._asdict()]), ("actions", []), ("clients", [])):
        (tmp_path / f"c.{kind}.json").write_text(json.dumps(events))
    (tmp_path / "c.moments.json").write_text("[{}]")
    (tmp_path / "c.jsonl.gz").touch()
    monkeypatch.setattr(compare, "replay", lambda _: recorded(said(50_000)))
    monkeypatch.setattr(compare, "named", lambda *_: True)
    monkeypatch.setattr(quiet, "compare", lambda _: quiet.Findings(agreed=100 - set_aside, untold=set_aside))
    assert judge(Played("c", tmp_path)) is good
    assert f"{set_aside} more set aside" in capsys.readouterr().out


TIES = {
    "at once": (50_013, "m", "session-expired", True),
    "too far apart": (50_021, "m", "session-expired", False),
    "another member's": (50_013, "n", "session-expired", False),
    "the other way round: a rebalance's deadline is where the member went": (50_013, "m", "rebalance-timeout", False),
}


@pytest.mark.parametrize("name", TIES)
def test_of_two_timers_due_at_once_nobody_can_tell_which_ran(name):
    at_ms, member_id, ours, tied = TIES[name]
    logs = "rebalance-timeout" if ours == "session-expired" else "session-expired"
    truth, printed = [logged(at_ms, kind=logs, member_id=member_id)], recorded(said(50_000, rule=ours))
    rows = with_ties(session_rows(truth, printed), rebalance_rows(truth, printed))
    verdicts = {row.verdict for each in rows for row in each}
    assert verdicts == ({"TIE"} if tied else {"EXTRA", "MISSING"})


@pytest.mark.parametrize(("of", "good"), [(100, True), (99, False)])
def test_a_run_with_too_many_ties_is_not_good(of, good, tmp_path, monkeypatch, capsys):
    plain = [logged(60_000 + n, member_id=f"n{n}") for n in range(of - 2)]
    truth = [logged(50_013, kind="rebalance-timeout"), *plain]
    for kind, events in (("truth", truth), ("actions", []), ("clients", [])):
        (tmp_path / f"c.{kind}.json").write_text(json.dumps([event._asdict() for event in events]))
    (tmp_path / "c.jsonl.gz").touch()
    ours = [said(50_000), *(said(60_000 + n, member_id=f"n{n}") for n in range(of - 2))]
    monkeypatch.setattr(compare, "replay", lambda _: recorded(*ours))
    monkeypatch.setattr(compare, "named", lambda *_: True)
    assert judge(Played("c", tmp_path)) is good
    assert "1 more where two timers were due at once" in capsys.readouterr().out


JOIN = {"groupId": "g", "memberId": "m", "protocols": []}


@pytest.mark.parametrize(
    ("value", "tells"),
    [
        (heartbeat_line("g", "m"), True),
        (line("JOIN_GROUP", JOIN, {"throttleTimeMs": 0, "errorCode": 0, "memberId": "m"}), True),
        (line("JOIN_GROUP", JOIN, {"throttleTimeMs": 0, "errorCode": 15, "memberId": ""}), False),
        (line("JOIN_GROUP", JOIN, {"throttleTimeMs": 0, "errorCode": 79, "memberId": "m"}), False),
    ],
    ids=["a heartbeat", "a join", "a join behind a stalled write", "an id given out"],
)
def test_a_member_is_named_by_what_tells_that_it_was_one(value, tells, tmp_path):
    row = {"source": "telemetry", "topic": "t", "partition": 0, "offset": 0, "timestamp_ms": 0, "value": value}
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    member = logged(9_000, member_id='"m"')
    assert named(Played("c", tmp_path), member) is tells


def answered(*members):
    """The line of another member's JoinGroup, as the leader if it gets the members."""
    answer = {"throttleTimeMs": 0, "errorCode": 0, "memberId": "other", "members": list(members)}
    return line("JOIN_GROUP", {**JOIN, "memberId": "other"}, answer)


UNSEEN = {
    "replaced before anything showed it": ([], "broker-2", 0, "UNTOLD"),
    "the broker answered the member": (["line"], "broker-2", 0, "MISSING"),
    "the broker answered another follower": (["follower"], "broker-2", 0, "UNTOLD"),
    "the broker answered the leader": (["leader"], "broker-2", 0, "MISSING"),
    "a record was written": (["record"], "broker-2", 0, "MISSING"),
    "another broker's line shows nothing": (["other"], "broker-2", 0, "UNTOLD"),
    "the broker itself loaded it again": ([], "broker-1", 0, "MISSING"),
    "the next phase began, and nobody is seen to end it": ([], "broker-2", 2_000, "UNTOLD"),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_generation_that_nothing_showed_can_have_had_any_members(name, tmp_path):
    rows, loaded_by, next_ms, verdict = UNSEEN[name]
    place = {"topic": "t", "partition": 3, "offset": 0, "timestamp_ms": 51_000}
    made = {
        "line": {**place, "source": "telemetry", "key": "broker-1", "value": heartbeat_line(member="m", error=25)},
        "follower": {**place, "source": "telemetry", "key": "broker-1", "value": answered()},
        "leader": {**place, "source": "telemetry", "key": "broker-1", "value": answered({"memberId": "other"})},
        "other": {**place, "source": "telemetry", "key": "broker-2", "value": heartbeat_line(error=16)},
        "record": {**place, "source": "offsets", "key": base64.b64encode(b"\x00\x02\x00\x01g").decode(), "value": ""},
    }
    capture = tmp_path / "c.jsonl.gz"
    with gzip.open(capture, "wt") as written:
        written.writelines(json.dumps(made[row]) + "\n" for row in rows)
    truth = [
        logged(50_000, kind="rebalance-timeout"),
        logged(50_001, kind="generation", member_id=""),
        *([logged(50_001 + next_ms, kind="rebalance", member_id="")] if next_ms else []),
        logged(60_000, kind="coordinator-loaded", member_id="")._replace(broker=loaded_by),
    ]
    assert [row.verdict for row in rebalance_rows(truth, recorded(), capture)] == [verdict]

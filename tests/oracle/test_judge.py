"""How close a reported instant or interval has to be to a member's removal."""

from collections import Counter

import pytest

from coordinator_model.decode.source_row import TELEMETRY, SourceRow
from streaming.embedded.truth import TruthEvent
from tests.oracle.judge import _Doubts, _is_heard_since_its_load, _logged, disagreements
from tests.oracle.life import Life, Look
from tests.oracle.plans import Event, Plan

LONG, SHORT = _Doubts([], [(20_000, 50_000)]), _Doubts([], [(20_000, 21_500)])
MOVE, MOVED_LATE, TWICE = (
    _Doubts(loads_ms, [], phase_ms=10_000) for loads_ms in ([20_000], [60_000], [20_000, 60_000])
)
# what happened to the coordinator, when the member was removed, when it is reported to be -> whether that is near
# enough
INSTANTS = [
    (SHORT, 30_000, 30_900, True),
    (SHORT, 30_000, 31_100, False),
    (SHORT, 21_500, 20_100, True),  # due in the pause, it ran as the coordinator woke
    (SHORT, 21_500, 18_900, False),
    (SHORT, 21_500, 22_600, False),  # a deadline is never after its timer has run
    (SHORT, 19_500, 18_400, False),  # it ran before the pause, in time
    (LONG, 50_000, 48_900, False),  # a pause that is long enough to be told from a busy coordinator
    (MOVE, 30_000, 32_900, True),
    (MOVE, 41_000, 43_900, False),
]
# what happened to the coordinator, when the member was removed, the reported interval -> whether that is acceptable
INTERVALS = [
    (LONG, 20_100, (20_300, 50_200), True),
    (LONG, 50_000, (20_300, 50_200), True),
    (LONG, 35_000, (20_300, 50_200), False),  # no timer runs in a pause
    (LONG, 50_000, (15_000, 50_200), False),  # wider than the pause
    (LONG, 50_000, (20_300, 60_000), False),
    (LONG, 80_000, (70_000, 90_000), False),
    (MOVE, 30_000, (25_000, 35_000), True),
    (MOVE, 30_000, (31_500, 35_000), False),
    (MOVE, 15_000, (10_000, 23_000), True),  # a coordinator loaded before the removal was seen
    (MOVE, 15_000, (10_000, 18_000), False),
    (MOVE, 30_000, (-3_600_000, 3_600_000), False),  # nothing had been loaded before 0
    (MOVE, 30_000, (0, 60_000), True),  # it shows by the end of the join phase, and the move 20 s later
    (MOVE, 30_000, (0, 60_100), False),
    (MOVE, 15_000, (0, 3_600_000), False),
    (MOVED_LATE, 15_000, (10_000, 90_000), False),  # so late no load says anything of the removal
    (TWICE, 70_000, (20_000, 75_000), True),
    (TWICE, 70_000, (18_000, 75_000), False),  # before the coordinator that was replaced had loaded
]

REPORT = {
    "rule": "session-expired",
    "group": "g",
    "member_id": "m",
    "incident_id": "i",
    "transition": "opened",
    "severity": "warn",
    "deadline_ms": 10_000,
    "at_ms": 10_500,
    "evidence": "inferred",
    "summary": "",
    "detail": {},
}


@pytest.mark.parametrize(("doubts", "at_ms", "told_ms", "near"), INSTANTS)
def test_an_instant_is_near_enough_to_a_removal(doubts, at_ms, told_ms, near):
    assert doubts.near(at_ms, told_ms) is near


@pytest.mark.parametrize(("doubts", "at_ms", "told", "holds"), INTERVALS)
def test_an_interval_holds_a_removal(doubts, at_ms, told, holds):
    assert doubts.holds(at_ms, *told) is holds


# after a move: the deadline and the interval of a report on a session that ended at 20,000 -> what is wrong
AFTER_A_MOVE = {
    "near, no interval": (22_900, None, []),
    "near, in the interval": (22_900, (17_000, 23_000), []),
    "near, but the interval ends before": (18_000, (15_000, 18_900), ["off"]),
    "near, but the interval begins after": (22_900, (21_100, 23_000), ["off"]),
    "far, in the interval": (24_000, (17_000, 25_000), []),
}


@pytest.mark.parametrize("name", AFTER_A_MOVE)
def test_after_a_move_a_stated_interval_holds_the_end(name):
    deadline_ms, interval, wrong = AFTER_A_MOVE[name]
    logged = [("coordinator-loaded", "", "", 0), ("coordinator-loaded", "", "", 14_000)]
    logged.append(("session-expired", "g", "m", 20_000))
    truth = [TruthEvent(kind, group, member, ms, "broker-1", 0, "", "") for kind, group, member, ms in logged]
    detail = {} if interval is None else {"deadline_from_ms": interval[0], "deadline_until_ms": interval[1]}
    told = [{**REPORT, "deadline_ms": deadline_ms, "detail": detail}]
    rows = [SourceRow(TELEMETRY, "", 0, 0, 60_000, b"broker-1", b"")]
    life = Life(Plan(1, "classic", 60_000, (), (), start_ms=0), rows=rows, truth=truth)
    assert [each.what for each in disagreements(life, told, Counter())] == wrong


# loads of broker-1, and of broker-2 in between; when broker-1 answered last -> whether that was since its last load
@pytest.mark.parametrize(("answered_ms", "heard"), [(20_000, False), (40_000, True)])
def test_a_sessions_end_is_compared_if_its_coordinator_was_heard_since_it_loaded(answered_ms, heard):
    loads = ((0, "broker-1"), (25_000, "broker-2"), (30_000, "broker-1"), (60_000, "broker-1"))
    truth = [TruthEvent("coordinator-loaded", "", "", at_ms, broker, 0, "", "") for at_ms, broker in loads]
    assert _is_heard_since_its_load(truth, Look(0, "broker-1", 50_000, []), answered_ms) is heard


@pytest.mark.parametrize(("escalates", "pages"), [(False, False), (True, True)])
def test_a_false_report_pages_though_it_opens_as_a_warning(escalates, pages):
    told = [REPORT, {**REPORT, "transition": "escalated", "severity": "page", "at_ms": 70_500}]
    life = Life(Plan(1, "classic", 60_000, (), ()))
    [extra] = disagreements(life, told if escalates else told[:1], Counter())
    assert (extra.what, extra.pages) == ("extra", pages)


@pytest.mark.parametrize(("events", "false"), [((), True), ((Event(5_000, "pause", "1"),), False)])
def test_no_broker_is_blamed_where_nothing_happened_to_one(events, false):
    blamed = {"rule": "coordinator-paused", "transition": "opened", "severity": "page", "deadline_ms": None}
    told = [{**blamed, "at_ms": 9_000, "summary": "broker-1 paused", "incident_id": "i"}]
    found = disagreements(Life(Plan(1, "classic", 60_000, (), events)), told, Counter())
    assert [(each.what, each.rule, each.pages) for each in found] == [("extra", "coordinator-paused", True)] * false


# how far the clocks of broker-1 and broker-2 are ahead -> whether broker-1 certainly removed the member, by its clock
# 1.5 s after broker-2 has loaded the groups by its own
@pytest.mark.parametrize(("ahead_ms", "certain"), [((0, 0), False), ((2_500, -2_500), True), ((-2_500, 2_500), False)])
def test_whether_a_coordinator_was_deposed_is_decided_by_the_clock_of_the_life(ahead_ms, certain):
    expired = TruthEvent("session-expired", "g", "m", 30_000 + ahead_ms[0], "broker-1", 0, "", "")
    loaded = TruthEvent("coordinator-loaded", "", "", 28_500 + ahead_ms[0], "broker-2", 0, "", "")
    life = Life(Plan(1, "classic+skew", 60_000, (), (), clock_offsets_ms=ahead_ms), truth=[expired, loaded])
    [removal] = _logged(life)
    assert (removal.certain, removal.at_ms) == (certain, (30_000 + ahead_ms[0],))


def test_of_two_reports_with_an_unknown_cause_the_nearest_is_of_a_removal():
    """m is removed at 20,000 and joins again. Its session ends at two coordinators, at 23,000 and at 40,000."""
    logged = (("session-expired", 20_000), ("joined", 21_000), ("session-expired", 23_000), ("session-expired", 40_000))
    truth = [TruthEvent(kind, "g", "m", at_ms, "broker-1", 0, "", "") for kind, at_ms in logged]
    row = SourceRow(TELEMETRY, "", 0, 0, 55_000, b"broker-1", b"")
    report = {"rule": "member-removed", "group": "g", "member_id": "m", "transition": "opened", "deadline_ms": None}
    told = [{**report, "incident_id": str(at_ms), "severity": "info", "at_ms": at_ms} for at_ms in (20_000, 40_000)]
    life = Life(Plan(1, "classic", 60_000, (), (), start_ms=0), rows=[row], truth=truth)
    found = [(each.what, each.truth_ms) for each in disagreements(life, told, Counter())]
    assert found == [("unknown", 20_000), ("unknown", 40_000)]


LOADS = [("loaded", "broker-1", 0), ("loaded", "broker-2", 20_000)]
# what is logged by the life's clock once broker-2 has loaded: broker-1, whose clock is 1.5 s behind, goes on unaware;
# the deadlines that are reported -> what is wrong
DEPOSED_TOO = {
    "by both at once": ([("expired", "broker-1", 36_400)], [34_900], []),
    "by both, one after the other": ([("expired", "broker-1", 46_500)], [34_900, 45_000], []),
    "by the next one, told twice": ([("expired", "broker-1", 36_400)], [34_900, 40_000], ["off"]),
    "by both, and again": ([("expired", "broker-1", 31_000), ("expired", "broker-1", 38_000)], [29_400, 35_000], []),
}


@pytest.mark.parametrize("name", DEPOSED_TOO)
def test_a_deposed_coordinators_removal_takes_no_report_of_another(name):
    logged, deadlines_ms, wrong = DEPOSED_TOO[name]
    logged = [*LOADS, ("expired", "broker-2", 35_000), ("joined", "broker-2", 36_000), *logged]
    kinds = {"loaded": "coordinator-loaded", "expired": "session-expired", "joined": "joined"}
    truth = [
        TruthEvent(kinds[what], "g", "m", at_ms - 1_500 * (broker == "broker-1"), broker, 0, "", "")
        for what, broker, at_ms in logged
    ]
    told = [{**REPORT, "incident_id": str(at_ms), "deadline_ms": at_ms} for at_ms in deadlines_ms]
    plan = Plan(1, "classic+skew", 60_000, (), (), clock_offsets_ms=(-1_500, 0), start_ms=0)
    end = SourceRow(TELEMETRY, "", 0, 0, 60_000, b"broker-2", b"")
    found = disagreements(Life(plan, [end], truth=truth), told, Counter())
    assert [each.what for each in found] == wrong

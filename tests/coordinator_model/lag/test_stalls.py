"""Who is stalled, who only looks so, and what ends it: lives of groups, judged round by round."""

from dataclasses import replace
from itertools import pairwise
from statistics import median

import pytest

from coordinator_model.brokers.blindness import (
    CLOCK_STEPPED,
    COARSE_INSTANTS,
    LINES_LOST,
    NO_LINES,
    NO_REQUEST_LOG,
)
from coordinator_model.thresholds import Thresholds
from tests.support.lags import T0, Life, Partition, keeps_up, listed, never, paused, played, slow

STALLED = "partition-stalled"
MINUTE_MS = 60_000


def beside(consumer, **how):
    """A partition of m1, and one beside it that m1 keeps up with."""
    return Life({0: Partition(consumer, **how), 1: Partition(keeps_up())}).view(100)


@pytest.mark.parametrize("every_ms", [1_000, 2_000, 3_000, 5_000, 10_000, 30_000, 60_000])
def test_a_stuck_partition_is_named_in_its_own_rhythm(every_ms):
    stops_ms = 12 * every_ms + 500
    life = Life({0: Partition(keeps_up(every_ms, until_ms=stops_ms)), 1: Partition(keeps_up(every_ms))}).view(100)
    told = life.play(stops_ms + 5 * every_ms + MINUTE_MS)
    assert told.openings == [(STALLED, "t-0")]
    last_ms = max(event.order_ms for event in life.events(stops_ms) if event.committed_partition == 0) - T0
    assert last_ms + 3 * every_ms < told.opened_at[STALLED, "t-0"] <= last_ms + 3 * every_ms + 30_000


def test_it_names_the_member_the_rhythm_and_when_it_began():
    life = beside(keeps_up(until_ms=100_000))
    life.reports[0].view["members"][0]["rejoin_reason"] = "topic metadata changed"
    told = life.play(3 * MINUTE_MS)
    assert told.openings == [(STALLED, "t-0")]
    incident = told.transitions[0].incident
    assert (incident.opened_ms - T0, incident.severity, incident.evidence) == (96_000, "warn", "observed")
    who = (incident.member_id, incident.client_id, incident.client_host, incident.generation, incident.broker)
    assert who == ("m1", "client-m1", "10.0.0.7", 1, "broker-1")
    assert incident.partitions == [["t", 0]]
    assert incident.detail["note"] == "stuck"
    assert (incident.detail["committed_ms"] - T0, incident.detail["interval_ms"]) == (96_000, 5_000)
    assert (incident.detail["stable_since_ms"], incident.detail["owned_since_ms"]) == (T0 + 100, T0 + 100)
    assert (incident.detail["rebalance_reason"], incident.detail["lag"]) == ("topic metadata changed", 340)
    assert "m1 (client client-m1 on 10.0.0.7) is alive, owns t-0 and does not commit it" in incident.summary
    assert "was 5 s" in incident.summary


def resumes(from_ms):
    """Keep up until 100 s, and again from an instant on."""
    first, again = keeps_up(until_ms=100_000), keeps_up(from_ms=from_ms)
    return lambda end_ms, log: [*first(end_ms, log), *again(end_ms, log)]


def test_it_has_recovered_once_it_is_committed():
    told = beside(resumes(205_000)).play(5 * MINUTE_MS)
    assert told.closings == [(STALLED, "t-0", "recovered", 210_000)]
    assert told.notes() == {}


FALSE = {
    "idle": Partition(keeps_up(until_ms=100_000), log=lambda at_ms: min(at_ms, 90_000) // 100),
    "paused by a client that commits where it stands": Partition(paused(100_000)),
    "slow": Partition(slow()),
    "very slow": Partition(slow(0.01), rate=1_000),
    "a batch each minute": Partition(keeps_up(60_000)),
    "not committing by design": Partition(never),
    "few commits, then none": Partition(listed((1_000, 1), (2_000, 2), (3_000, 3))),
    "one short of the end": Partition(
        keeps_up(until_ms=100_000, late_ms=0), log=lambda at_ms: min(at_ms, 97_000) // 1_000
    ),
    "at the end of what is stable": Partition(
        keeps_up(until_ms=100_000, late_ms=0), stable=lambda at_ms: min(at_ms, 96_000) // 100
    ),
    "of an unknown last stable offset": Partition(keeps_up(until_ms=100_000), stable=lambda _: None),
    "no longer owned": Partition(keeps_up(until_ms=100_000), member=None),
}
"""Partitions that are behind or silent, and not stalled; beside each m1 keeps up with another."""


@pytest.mark.parametrize("case", FALSE)
def test_what_is_not_stalled_raises_nothing(case):
    life = Life({0: FALSE[case], 1: Partition(keeps_up()), 2: Partition(keeps_up(60_000))}).view(100)
    assert [opening for opening in life.play(15 * MINUTE_MS).openings if opening[0] == STALLED] == []


def test_an_owner_that_works_through_its_partitions_in_turn_stalls_none():
    """m1 is 30 s behind on all as a rebalance ends. It reads t-2 to its end, then t-1. t-0 is last."""
    behind = [(at_ms, (at_ms - 30_000) // 100) for at_ms in range(32_000, 100_000, 2_000)]
    first = [(at_ms, min(at_ms // 100, 700 + (at_ms - 100_000) // 40)) for at_ms in range(100_500, 125_000, 2_000)]
    second = [(at_ms, 700 + (at_ms - 126_000) // 60) for at_ms in range(126_500, 200_000, 2_000)]
    logs = [listed(*behind), listed(*behind, *second), listed(*behind, *first)]
    life = Life({n: Partition(commits) for n, commits in enumerate(logs)}).view(100)
    life.view(99_000, state="PreparingRebalance", generation=2).view(100_000, generation=2)
    told = life.play(160_000)
    assert (told.openings, told.notes()[0]) == ([], "slow")


NOTES = {
    "idle": None,
    "paused by a client that commits where it stands": "paused",
    "slow": "slow",
    "very slow": "slow",
    "a batch each minute": None,
    "not committing by design": "not-committing",
    "few commits, then none": None,
    "one short of the end": "last-message",
    "at the end of what is stable": "waits-for-transaction",
    "of an unknown last stable offset": None,
    "no longer owned": "starved",
}


@pytest.mark.parametrize("case", NOTES)
def test_the_table_says_what_it_looks_like(case):
    life = Life({0: FALSE[case], 1: Partition(keeps_up())}).view(100)
    assert life.play(5 * MINUTE_MS).notes().get(0) == NOTES[case]


def test_an_owner_that_has_committed_nothing_since_it_owns_may_do_so_by_design():
    life = Life({0: Partition(keeps_up(until_ms=100_000)), 1: Partition(keeps_up(until_ms=100_000))}).view(100)
    life.view(110_000, state="PreparingRebalance", generation=2).view(111_000, generation=2, m1="m2")
    told = life.play(15 * MINUTE_MS)
    assert (told.openings, told.notes()) == ([], {0: "not-committing", 1: "not-committing"})


def test_a_partition_that_its_next_owner_leaves_out_is_stalled_since_the_rebalance():
    life = beside(keeps_up(until_ms=100_000))
    life.view(110_000, state="PreparingRebalance", generation=2).view(111_000, generation=2, m1="m2")
    told = life.play(5 * MINUTE_MS)
    assert told.openings == [(STALLED, "t-0")]
    incident = told.transitions[0].incident
    assert (incident.member_id, incident.generation, incident.opened_ms - T0) == ("m2", 2, 111_000)
    assert 111_000 + 30_000 <= told.opened_at[STALLED, "t-0"] <= 111_000 + 45_000


def test_rows_without_any_last_stable_offset_are_judged_all_the_same():
    """There is nobody to ask for them later."""
    life = beside(keeps_up(until_ms=100_000))
    rows = [replace(row, stable_offsets={}) for row in life.rows(3 * MINUTE_MS)]
    assert played(life, life.events(3 * MINUTE_MS), rows).openings == [(STALLED, "t-0")]


def test_a_last_stable_offset_that_is_unknown_for_a_while_closes_nothing():
    life = beside(keeps_up(until_ms=100_000), stable=lambda at_ms: None if at_ms > 150_000 else at_ms // 100)
    told = life.play(5 * MINUTE_MS)
    assert (told.openings, told.closings) == ([(STALLED, "t-0")], [])


# ------------------------------------------------------------------ a whole member


def test_a_silent_member_may_be_at_work_for_its_poll_interval():
    """All that it owns is waiting, but it may work on what one poll has returned."""
    both = {n: Partition(keeps_up(until_ms=100_000)) for n in (0, 1)}
    told = Life(both).view(100).play(5 * MINUTE_MS)
    assert told.openings == [(STALLED, "m1")]
    assert 96_000 + 60_000 < told.opened_at[STALLED, "m1"] <= 96_000 + 60_000 + 15_000 + 10_000
    incident = told.transitions[0].incident
    assert (incident.partitions, incident.detail["note"]) == ([["t", 0], ["t", 1]], "silent")


def test_a_silent_member_has_recovered_once_it_commits_anything():
    both = {n: Partition(resumes(300_000) if n else keeps_up(until_ms=100_000)) for n in (0, 1)}
    told = Life(both).view(100).play(7 * MINUTE_MS)
    assert (STALLED, "m1", "recovered", 300_000) in told.closings
    assert told.openings == [(STALLED, "m1"), (STALLED, "t-0")]


@pytest.mark.parametrize(
    ("stopped", "why"),
    [((0,), "; it is stuck, or paused by the client"), ((0, 1), "; they are stuck, or paused by the client")],
)
def test_what_its_client_may_have_paused_is_never_called_only_stuck_and_never_pages(stopped, why):
    """A client of librdkafka that pauses partitions commits nothing for them, and no request tells that it does."""
    life = Life({n: Partition(keeps_up(until_ms=100_000 if n in stopped else 10**9)) for n in (0, 1)}).view(100)
    steps = life.play(15 * MINUTE_MS).transitions
    assert {step.incident.severity for step in steps} == {"warn"}
    assert all(step.incident.summary.endswith(why) for step in steps)


def test_many_stuck_partitions_of_one_member_are_one_finding():
    life = Life({n: Partition(keeps_up(until_ms=100_000)) for n in range(1, 101)} | {0: Partition(keeps_up())}).view(
        100
    )
    told = life.play(4 * MINUTE_MS)
    assert told.openings == [(STALLED, "m1")]
    incident = told.transitions[0].incident
    assert (len(incident.partitions), incident.detail["stalled"], incident.detail["note"]) == (64, 100, "stuck")


@pytest.mark.parametrize("turn_ms", [40_000, 240_000])
def test_who_takes_its_partitions_in_turn_and_is_behind_on_all_is_slow(turn_ms):
    """A client that reads a large fetch of one partition after the other, and commits only what it has read.

    A turn is many polls, so no `max.poll.interval.ms` bounds it.
    """

    def turns(mine):
        return lambda end_ms, _: [
            (at_ms, at_ms // 200) for at_ms in range(1_000, end_ms, 2_000) if at_ms // turn_ms % 2 == mine
        ]

    told = Life({n: Partition(turns(n)) for n in (0, 1)}).view(100).play(15 * MINUTE_MS)
    assert [opening for opening in told.openings if opening[0] == STALLED] == []
    assert "slow" in told.every_note(0)


# ------------------------------------------------------------------ what is left out


def test_a_rebalance_begins_the_count_anew_and_does_not_end_what_is_open():
    life = beside(keeps_up(until_ms=100_000))
    life.view(200_000, state="PreparingRebalance", generation=2).view(205_000, generation=2)
    told = life.play(5 * MINUTE_MS)
    assert (told.openings, told.closings) == ([(STALLED, "t-0")], [])


def test_in_a_rebalance_nothing_opens_though_members_work_on():
    """As those of KIP-848 groups do."""
    life = beside(keeps_up(until_ms=100_000)).view(110_000, state="Reconciling", generation=2)
    assert life.play(5 * MINUTE_MS).openings == []


def test_lines_of_the_coordinator_that_are_missing_open_nothing():
    life = beside(keeps_up(until_ms=100_000))
    life.reports.append(blind(106_000, None, NO_LINES))
    told = life.play(5 * MINUTE_MS)
    assert (told.openings, told.notes()[0]) == ([], "starved")
    life.reports.append(blind(200_000, 200_000, NO_LINES))
    told = life.play(5 * MINUTE_MS)
    assert told.opened_at == {(STALLED, "t-0"): 230_000}


def blind(at_ms, until_ms, why):
    """A blind window that is told at an instant."""
    until_ms = None if until_ms is None else T0 + until_ms
    window = {"broker": "broker-1", "from_ms": T0 + at_ms - 10_000, "until_ms": until_ms, "why": why}
    return {"kind": "blind", "cluster": "c", "shard": 0, "at_ms": T0 + at_ms, **window}


# kind of a blind window, told each five seconds -> whether the stuck partition is named all the same
KINDS = {NO_LINES: False, CLOCK_STEPPED: False, LINES_LOST: True, COARSE_INSTANTS: True, NO_REQUEST_LOG: True}


@pytest.mark.parametrize("why", KINDS)
def test_only_blind_windows_in_which_nobody_can_commit_begin_the_count_anew(why):
    life = beside(keeps_up(until_ms=100_000))
    life.reports += [blind(at_ms, at_ms, why) for at_ms in range(5_000, 5 * MINUTE_MS, 5_000)]
    named = {(STALLED, "t-0"): 130_000} if KINDS[why] else {}
    assert life.play(5 * MINUTE_MS).opened_at == named


def test_partitions_of_a_streams_group_have_no_owner_by_name():
    """Its members hold parts of a topology."""
    told = (
        Life({0: Partition(keeps_up(until_ms=100_000)), 1: Partition(keeps_up())}, type="streams")
        .view(100)
        .play(300_000)
    )
    assert (told.openings, told.notes(), told.columns()["owner"]) == ([], {}, [None, None])


def test_an_outage_of_brokers_is_left_out():
    def outage(end_ms, log):
        return [c for c in keeps_up()(end_ms, log) if not 100_000 < c[0] < 262_000]

    life = Life({n: Partition(outage) for n in (0, 1)}, missing_rounds=(100_000, 260_000)).view(100)
    assert life.play(8 * MINUTE_MS).openings == []


def test_a_leader_that_was_away_is_left_out():
    """The consumer kept up with the other partition, whose leader was there."""

    def away(at_ms):
        return 100_000 < at_ms < 142_000

    life = Life(
        {
            0: Partition(lambda end, log: [c for c in keeps_up(1_000)(end, log) if not 100_000 < c[0] < 165_000]),
            1: Partition(keeps_up(1_000)),
        }
    ).view(100)
    rows = [
        replace(row, end_offsets={"t": (None, *row.end_offsets["t"][1:])}) if away(row.timestamp_ms - T0) else row
        for row in life.rows(5 * MINUTE_MS)
    ]
    assert played(life, life.events(5 * MINUTE_MS), rows).openings == []


def test_end_offsets_that_are_old_open_and_close_nothing():
    life = beside(keeps_up(until_ms=100_000))
    life.missing_rounds = (115_000, 400_000)
    told = life.play(400_000)
    assert told.openings == []
    life.missing_rounds = (155_000, 10**9)
    life.round_ms = 5_000
    told = life.play(400_000)
    assert (told.openings, told.closings) == ([(STALLED, "t-0")], [])


def test_an_owner_that_may_be_dead_is_left_to_the_rules_of_sessions():
    life = beside(keeps_up(until_ms=100_000)).view(105_000, liveness="violated")
    told = life.play(5 * MINUTE_MS)
    assert (told.openings, told.notes()[0]) == ([], "starved")


def test_an_owner_whose_session_ends_supersedes_it():
    life = beside(keeps_up(until_ms=100_000)).view(200_000, liveness="violated")
    assert life.play(5 * MINUTE_MS).closings == [(STALLED, "t-0", "superseded", 200_000)]
    life = beside(keeps_up(until_ms=100_000)).view(200_000, state="Empty")
    assert life.play(5 * MINUTE_MS).closings == [(STALLED, "t-0", "superseded", 200_000)]


def test_an_owner_of_whom_nobody_knows_leaves_it_open():
    life = beside(keeps_up(until_ms=100_000)).view(200_000, liveness="unknown")
    assert life.play(5 * MINUTE_MS).closings == []


def test_the_end_of_the_group_ends_it():
    life = Life({n: Partition(keeps_up(until_ms=100_000 * (n + 1) - 5_000)) for n in (0, 1)}).view(100).delete(200_000)
    told = life.play(5 * MINUTE_MS)
    assert told.closings == [(STALLED, "t-0", "group-deleted", 200_000)]
    assert told.outputs[-1].at_ms == T0 + 200_000


def test_nothing_is_said_before_anybody_has_seen_the_group():
    life = Life({0: Partition(keeps_up(until_ms=100_000)), 1: Partition(keeps_up())})
    told = life.play(5 * MINUTE_MS)
    assert (told.openings, told.columns()["lag"][0] > 0) == ([], True)


def test_thresholds_are_the_groups_own():
    told = beside(keeps_up(until_ms=100_000)).play(
        MINUTE_MS * 10, Thresholds(stall_intervals=6, stall_margin_ms=90_000)
    )
    assert 96_000 + 120_000 < told.opened_at[STALLED, "t-0"] <= 96_000 + 130_000
    life = beside(keeps_up(until_ms=100_000, late_ms=0), log=lambda at_ms: min(at_ms, 97_000) // 1_000)
    assert life.play(5 * MINUTE_MS, Thresholds(stall_lag=1)).openings == [(STALLED, "t-0")]


# ------------------------------------------------------------------ groups without members


def test_a_simple_group_is_judged_by_its_rhythm_alone():
    life = Life({0: Partition(keeps_up(until_ms=100_000)), 1: Partition(keeps_up())}, type="simple").view(
        100, state="Empty"
    )
    told = life.play(5 * MINUTE_MS)
    assert told.openings == [(STALLED, "t-0")]
    assert told.opened_at[STALLED, "t-0"] <= 96_000 + 15_000 + 30_000
    assert (told.transitions[0].incident.member_id, told.columns()["owner"]) == (None, [None, None])


def test_a_simple_group_that_stopped_is_named_once():
    life = Life({n: Partition(keeps_up(until_ms=100_000)) for n in (0, 1)}, type="simple").view(100, state="Empty")
    told = life.play(10 * MINUTE_MS)
    assert told.openings == [(STALLED, "g")]
    assert told.opened_at[STALLED, "g"] > 96_000 + 300_000


def test_of_share_groups_nothing_is_known_and_that_is_said():
    told = Life({0: Partition(never)}, type="share").view(100).play(MINUTE_MS)
    assert (told.openings, told.notes(), told.columns()["lag"]) == ([], {0: "share-group"}, [None])
    assert (told.columns()["status"], told.outputs[-2]["complete"]) == (["unknown"], False)


def test_the_median_is_the_rhythm():
    """One long pause among regular commits changes nothing."""
    instants = [*range(1_000, 40_000, 5_000), *range(70_000, 100_000, 5_000)]
    assert median(b - a for a, b in pairwise(instants)) == 5_000
    told = beside(lambda end_ms, log: [(at_ms, log(at_ms - 100)) for at_ms in instants if at_ms < end_ms]).play(200_000)
    assert told.opened_at[STALLED, "t-0"] <= 95_000 + 15_000 + 30_000

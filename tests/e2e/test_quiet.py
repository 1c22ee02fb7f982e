"""Tests of quiet points: which answers of the brokers make one."""

from math import inf

import pytest

from coordinator_model.decode.parse import parse_row
from coordinator_model.events import Heartbeat, LeaderNamed
from streaming.embedded.truth import TruthEvent
from tests.e2e.quiet import Findings, Watcher, committed, taken_back, unseen_loads
from tests.support.story import T0, Story, Who

BEAT = Heartbeat(5_000, 1, "t", 0, 7, "g", "m1", 1, 0, 4_990, 4_980, "broker-2", 0, kip848=False)


def said(*members, state="Stable", epoch=None):
    return {"state": state, "epoch": epoch, "members": {member: [["t", 0]] for member in members}}


STABLE, OTHER = said("m1"), said("m1", "m2")

# question and answer times, and the answer for group g -> instants of its quiet points
ANSWERS = {
    "the same for long enough": ([(0, 10, STABLE), (1_000, 1_010, STABLE), (2_600, 2_610, STABLE)], [2_600]),
    "the same, but not for long enough": ([(0, 10, STABLE), (2_400, 2_410, STABLE)], []),
    "another meanwhile": ([(0, 10, STABLE), (1_000, 1_010, OTHER), (2_600, 2_610, STABLE)], []),
    "a first answer that took three seconds": ([(0, 3_010, STABLE), (3_800, 3_810, STABLE)], []),
    "a last answer that took three seconds": ([(0, 10, STABLE), (2_000, 5_000, STABLE)], []),
    "no answer meanwhile": ([(0, 10, STABLE), (1_000, 1_010, None), (2_600, 2_610, STABLE)], []),
    "in a rebalance": (
        [(0, 10, said(state="PreparingRebalance")), (9_000, 9_010, said(state="PreparingRebalance"))],
        [],
    ),
    "an epoch that came and went": ([(0, 10, said("m1", epoch=2)), (9_000, 9_010, said("m1", epoch=4))], []),
    "once in ten seconds": ([(at_ms, at_ms, STABLE) for at_ms in range(0, 14_000, 1_000)], [3_000, 13_000]),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_group_is_quiet_once_the_same_was_said_of_it_for_a_while(name):
    answers, instants = ANSWERS[name]
    watcher = Watcher()
    points = [
        point
        for asked_ms, answered_ms, truth in answers
        for point in watcher.hear(T0 + asked_ms, T0 + answered_ms, {} if truth is None else {"g": truth})
    ]
    assert [(point["group"], point["at_ms"]) for point in points] == [("g", T0 + at_ms) for at_ms in instants]


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (Findings(agreed=95, untold=5), True),
        (Findings(agreed=94, untold=6), False),
        (Findings(agreed=100, wrong=["g at 7"]), False),
        (Findings(untold=1), False),
    ],
)
def test_a_replica_is_right_where_it_never_differs_and_few_points_were_set_aside(found, right):
    assert found.right is right


# when records were made, and when heartbeats were applied and answered -> until when each record may be uncommitted
COMMITS = {
    "the next heartbeat's answer tells": ([1_000], [(900, 901), (1_200, 1_201), (2_000, 2_000)], [(1_000, 1_201)]),
    "be it late": ([1_000], [(1_200, 4_000), (2_000, 4_000)], [(1_000, 4_000)]),
    "one that waited before tells nothing": ([1_000], [(900, 1_100), (1_500, 1_501)], [(1_000, 1_501)]),
    "nothing tells": ([1_000], [(900, 1_100)], [(1_000, inf)]),
}


@pytest.mark.parametrize("name", COMMITS)
def test_a_record_is_committed_once_a_heartbeat_after_it_is_answered(name):
    made_ms, let_go, spans = COMMITS[name]
    assert list(committed(made_ms, let_go)) == spans


# a static member's JoinGroups: arrived, answered, error, asked as -> from when to when log and coordinator may differ
TAKEN_BACK = {
    "until it asks again": ([(1_000, 6_000, 15, ""), (6_500, 6_510, 0, "")], [(1_000, 6_500)]),
    "for good, where it does not": ([(1_000, 6_000, 15, "")], [(1_000, inf)]),
    "not where it was refused at once": ([(1_000, 1_005, 15, "")], []),
    "not where it rejoined under its id": ([(1_000, 6_000, 15, "m1")], []),
}


@pytest.mark.parametrize("name", TAKEN_BACK)
def test_a_replacement_that_timed_out_leaves_log_and_coordinator_apart(name):
    asked, spans = TAKEN_BACK[name]
    story = Story()
    for arrival_ms, answer_ms, error, member_id in asked:
        who = Who(member_id, instance_id="pod-1")
        story.join(answer_ms, who, -1, error=error, asked=member_id, parked_ms=answer_ms - arrival_ms)
    joins = [event for _, _, row in story.rows for event in parse_row(row)]
    found = [(since_ms - T0, until_ms - T0) for _, (since_ms, until_ms) in taken_back(joins)]
    assert found == [pytest.approx(span, abs=2) for span in spans]


# when broker-2 loaded shard 3, and the event that first shows it, with its time -> until when nobody outside can know
LOADED = {
    "metadata names it": (LeaderNamed(4_000, 1, "", 3, 4_000, "", 2, "broker-2", ()), 4_000),
    "metadata names another": (LeaderNamed(4_000, 1, "", 3, 4_000, "", 1, "broker-1", ()), inf),
    "it answers": (BEAT, 5_000),
    "it refuses": (BEAT._replace(error=16), inf),
    "another answers": (BEAT._replace(broker="broker-1"), inf),
}


@pytest.mark.parametrize("name", LOADED)
def test_a_coordinator_that_has_loaded_is_unseen_until_an_answer_or_metadata_tells(name):
    event, until_ms = LOADED[name]
    load = TruthEvent("coordinator-loaded", "", "", 1_000, "broker-2", 3, "", "")
    assert unseen_loads([load], {3: [event]}) == {3: [(1_000, until_ms)]}
    assert unseen_loads([load, load._replace(broker="broker-1", at_ms=2_000)], {3: [event]})[3][0] == (1_000, 2_000)
    assert unseen_loads([load._replace(partition=4)], {3: [event]}) == {}

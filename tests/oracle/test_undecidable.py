"""The classes of undecidable disagreements: each takes what belongs to it, and nothing else."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from streaming.embedded.truth import TruthEvent
from tests.oracle.life import Life, Look
from tests.oracle.plans import Client, Event, Plan
from tests.oracle.undecidable import CLASSES, LOADED_UNSEEN, class_of, class_of_view

AT_MS = 20_000
NEVER, UNSEEN = "a newcomer that nothing had named", "a coordinator that nobody saw"
CUT = "the join phase went on past the end"
DIED, LEFT = "a join phase that died with its coordinator", "a leave sent to a deposed coordinator"
OUTLASTED = "a session that may have outlasted its coordinator"


def life(
    *lines,
    protocol="classic",
    metadata_ms=5_000,
    loads=(),
    named=(),
    logged=(),
    paused=(),
    instance=None,
    ahead_ms=(0, 0),
):
    """Return a life with lines ``(at_ms, broker, member id, api, error)``, and how long the request waited if it did.

    ``loads``: ``(at_ms, broker)``; ``named``: ``(at_ms, number of the leader)``; ``logged``: more of the brokers' logs;
    ``paused``: from when to when the coordinator was paused; ``instance``: the instance id of all members;
    ``ahead_ms``: how far the clocks of broker-1 and broker-2 are ahead.
    """
    rows = [
        {
            "source": "telemetry",
            "topic": "t",
            "partition": 0,
            "offset": number,
            "timestamp_ms": at_ms,
            "key": broker,
            "value": "Completed request:"
            + json.dumps(
                {
                    "requestHeader": {"requestApiKeyName": api},
                    "request": {
                        "memberId": member,
                        "groupInstanceId": instance,
                        "sessionTimeoutMs": 8_000,
                        "rebalanceTimeoutMs": 30_000,
                    },
                    "response": {"errorCode": error, "memberId": member, "generationId": 3, "members": []},
                    "remoteTimeMs": sum(waited),
                    "totalTimeMs": sum(waited),
                },
                separators=(",", ":"),
            ),
        }
        for number, (at_ms, broker, member, api, error, *waited) in enumerate(lines)
    ]
    rows += [{"source": "cluster", "timestamp_ms": at_ms, "leaders": [node]} for at_ms, node in named]
    events = tuple(
        Event(at_ms, do, "2") for pause in paused for at_ms, do in zip(pause, ("pause", "resume"), strict=True)
    )
    plan = Plan(1, "classic", 60_000, (Client("c", protocol),), events, metadata_ms=metadata_ms, start_ms=0)
    plan = replace(plan, clock_offsets_ms=ahead_ms)
    made = Life.parse(plan, [json.dumps(row).encode() for row in rows])
    made.truth = [TruthEvent("coordinator-loaded", "", "", at_ms, broker, 0, "", "") for at_ms, broker in loads]
    made.truth.append(TruthEvent("session-expired", "g", "m", AT_MS, "broker-2", 0, "", ""))
    made.truth += [TruthEvent(kind, "g", who, at_ms, by, 0, "", line) for at_ms, by, kind, who, line in logged]
    made.truth.sort(key=lambda event: event.at_ms)
    return made


HEARD = (10_000, "broker-1", "m", "HEARTBEAT", 0)
JOINED = (30_000, "broker-2", "n", "JOIN_GROUP", 0)
MOVED = ((0, "broker-1"), (12_000, "broker-2"))
# the life -> the class of m's removal, which is not reported
MISSING = {
    "a phase that nothing ended": (life(HEARD), CUT),
    "a phase whose end names none of the two that expired": (
        life(HEARD, JOINED, logged=[(AT_MS, "broker-2", "session-expired", "o", "")]),
        CUT,
    ),
    "a phase that a JoinGroup ended": (life(HEARD, (30_000, "broker-1", "n", "JOIN_GROUP", 0)), None),
    "a phase of which a 25 told": (life(HEARD, (30_000, "broker-1", "m", "HEARTBEAT", 25)), None),
    "a group of KIP-848": (life(HEARD, protocol="consumer"), None),
    "a KIP-848 member of a group that has classic members": (
        life((10_000, "broker-1", "m", "CONSUMER_GROUP_HEARTBEAT", 0)),
        None,
    ),
    "an id that was given out and never accepted": (
        life((5_000, "broker-1", "m", "JOIN_GROUP", 79), protocol="consumer"),
        NEVER,
    ),
    "a coordinator that nobody asked": (life(HEARD, protocol="consumer", metadata_ms=0, loads=MOVED), UNSEEN),
    "one that only refused": (
        life(HEARD, (15_000, "broker-2", "n", "HEARTBEAT", 15), protocol="consumer", metadata_ms=0, loads=MOVED),
        UNSEEN,
    ),
    "the first one, which only refused": (
        life((5_000, "broker-2", "m", "HEARTBEAT", 15), protocol="consumer", metadata_ms=0, loads=((0, "broker-2"),)),
        NEVER,
    ),
    "one that metadata named": (life(HEARD, protocol="consumer", loads=MOVED), None),
    "one that answered": (
        life(HEARD, (30_000, "broker-2", "n", "HEARTBEAT", 0), protocol="consumer", metadata_ms=0, loads=MOVED),
        None,
    ),
}


def unloaded(*lines, began_ms=AT_MS, named=()):
    """Return a life in which broker-2 begins a join phase, and is unloaded before the phase ends."""
    logged = [(began_ms, "broker-2", "rebalance", "", ""), (25_000, "broker-2", "coordinator-unloaded", "", "")]
    return life(HEARD, *lines, JOINED, loads=((0, "broker-2"),), named=named, logged=logged)


def left(at_ms, by, ahead_ms=(0, 0), line="explicit `LeaveGroup` request"):
    """Return a life in which a broker logs m's leave; broker-2 loads the group at 12,000 by its own clock."""
    return life(HEARD, JOINED, loads=MOVED, logged=[(at_ms, by, "left", "m", line)], ahead_ms=ahead_ms)


MISSING |= {
    "a phase of which its end tells too late": (life(HEARD, (59_000, "broker-1", "n", "JOIN_GROUP", 0)), CUT),
    "a phase that its coordinator did not live to end": (unloaded(began_ms=15_000), DIED),
    "a phase that its own end began": (unloaded((21_000, "broker-2", "n", "HEARTBEAT", 27)), None),
    "a phase that its own end began, of which nobody was told": (unloaded(), DIED),
    "such a phase of a coordinator that metadata still names": (unloaded(named=((22_000, 2),)), None),
    "a leave to a deposed coordinator": (left(15_000, "broker-1"), LEFT),
    "one that seems to be older than the load": (left(11_000, "broker-1", ahead_ms=(-1_000, 1_000)), LEFT),
    "a leave before the load": (left(11_000, "broker-1"), None),
    "one that seems to be younger": (left(13_000, "broker-1", ahead_ms=(1_000, -1_000)), None),
    "a leave to the coordinator": (left(15_000, "broker-2"), None),
    "a leave of KIP-848": (left(15_000, "broker-1", line="left the consumer group"), None),
}


def loaded_late(*lines, asked_ms=21_000):
    """Return a life in which broker-2 loads the group at 12,000 and is unloaded at 25,000; m's timeout is 8 s.

    A newcomer's JoinGroup waits there from ``asked_ms`` on.
    """
    asks = (25_000, "broker-2", "n", "JOIN_GROUP", 16, 25_000 - asked_ms)
    joined = (5_000, "broker-1", "m", "JOIN_GROUP", 0)
    logged = [(25_000, "broker-2", "coordinator-unloaded", "", "")]
    return life(joined, HEARD, *lines, asks, JOINED, loads=MOVED, logged=logged)


MISSING |= {
    "a coordinator that may have loaded at any time": (loaded_late(), OUTLASTED),
    "one that answers heartbeats as it loads": (loaded_late((16_000, "broker-2", "o", "HEARTBEAT", 0)), OUTLASTED),
    "one that had surely loaded": (loaded_late((16_000, "broker-2", "o", "JOIN_GROUP", 79)), None),
    "one that had loaded when a JoinGroup began to wait": (loaded_late(asked_ms=16_000), None),
    "one that had heard the member": (loaded_late((13_000, "broker-2", "m", "HEARTBEAT", 0)), None),
    "one that told somebody": (loaded_late((22_000, "broker-2", "o", "HEARTBEAT", 27)), None),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_removal_that_is_not_told_is_of_the_class_of(name):
    played, expected = MISSING[name]
    assert class_of(played, "missing", "session-expired", "m", AT_MS, None) == expected


LOADED_BY_THEN = (13_000, "broker-2", "n", "JOIN_GROUP", 79)
OVERLAPPED = {
    "that its predecessor outlived": (life(HEARD, (15_000, "broker-1", "n", "HEARTBEAT", 0), loads=MOVED), True),
    "whose predecessor refused": (
        life(HEARD, (15_000, "broker-1", "n", "HEARTBEAT", 16), loads=MOVED, named=[(14_000, 2)]),
        False,
    ),
    "whose predecessor took a request that it refused": (
        life(HEARD, (15_000, "broker-1", "n", "LEAVE_GROUP", 16, 1_000), loads=MOVED, named=[(14_000, 2)]),
        True,
    ),
    "whose predecessor had taken one before": (
        life(HEARD, (15_000, "broker-1", "n", "LEAVE_GROUP", 16, 4_000), loads=MOVED, named=[(14_000, 2)]),
        False,
    ),
    "of which no broker that was asked knew": (
        life(HEARD, (15_000, "broker-1", "n", "HEARTBEAT", 16), loads=MOVED, named=[(14_000, 1)]),
        True,
    ),
    "of which metadata does not tell": (life(HEARD, metadata_ms=0, loads=MOVED), True),
    "by one that had loaded when it heard the member": (
        life(HEARD, LOADED_BY_THEN, (14_000, "broker-2", "m", "HEARTBEAT", 0), metadata_ms=0, loads=MOVED),
        False,
    ),
    "by one that may have been loading when it heard the member": (
        life(HEARD, (12_500, "broker-2", "m", "HEARTBEAT", 0), LOADED_BY_THEN, metadata_ms=0, loads=MOVED),
        True,
    ),
    "of a KIP-848 member, which no loading coordinator accepts": (
        life(HEARD, (14_000, "broker-2", "m", "CONSUMER_GROUP_HEARTBEAT", 0, 5), metadata_ms=0, loads=MOVED),
        False,
    ),
    "that came long before": (life(HEARD, metadata_ms=0, loads=((-9_000, "broker-1"), (-5_000, "broker-2"))), False),
}


@pytest.mark.parametrize("name", OVERLAPPED)
def test_an_unknown_cause_depends_on_a_move(name):
    played, listed = OVERLAPPED[name]
    expected = "a cause that depends on when a coordinator loaded" if listed else None
    assert class_of(played, "unknown", "session-expired", "m", AT_MS, None) == expected


# how a heartbeat was answered since m joined -> whether a filter that hides all heartbeats looks the same
@pytest.mark.parametrize(("error", "listed"), [(25, True), (0, False), (27, False)])
def test_an_unknown_cause_of_a_member_never_heard_is_listed_if_nobody_was(error, listed):
    played = life((10_000, "broker-2", "m", "JOIN_GROUP", 0), (12_000, "broker-2", "n", "HEARTBEAT", error))
    expected = "never heard, nor was anybody since it joined" if listed else None
    assert class_of(played, "unknown", "session-expired", "m", AT_MS, None) == expected


def test_an_unknown_cause_of_a_member_that_nothing_named_is_of_that_class():
    played = life((12_000, "broker-2", "n", "HEARTBEAT", 25), JOINED)
    assert class_of(played, "unknown", "session-expired", "m", AT_MS, None) == NEVER


BEGAN = [(12_000, "broker-2", "rebalance", "", "")]
SHORT = [(19_000, 19_990)]
ASLEEP = {
    "a phase that no line shows to begin": (life(HEARD, logged=BEGAN, paused=SHORT), 19_500, True),
    "a phase that a JoinGroup began": (
        life(HEARD, (16_000, "broker-2", "n", "JOIN_GROUP", 0, 4_000), logged=BEGAN, paused=SHORT),
        19_500,
        False,
    ),
    "a phase that a LeaveGroup began": (
        life(HEARD, (12_000, "broker-2", "n", "LEAVE_GROUP", 0), logged=BEGAN, paused=SHORT),
        19_500,
        False,
    ),
    "a session that ended before the pause": (life(HEARD, logged=BEGAN, paused=SHORT), 18_500, False),
    "a pause that is known as one": (life(HEARD, logged=BEGAN, paused=[(16_000, 19_990)]), 19_500, False),
    "a coordinator that was awake": (life(HEARD, logged=BEGAN), 19_500, False),
}


@pytest.mark.parametrize("name", ASLEEP)
def test_a_session_told_for_a_rebalance_timeout_is_listed_in(name):
    played, told_ms, listed = ASLEEP[name]
    expected = "two timers in a short pause" if listed else None
    assert class_of(played, "cause", "rebalance-timeout", "m", AT_MS, told_ms) == expected


LOADED = [(12_000, "broker-2")]
JOINED_BEFORE = (5_000, "broker-1", "m", "JOIN_GROUP", 0)
BEGAN_SINCE = [(13_000, "broker-2", "rebalance", "", "")]
AFTER_A_LOAD = {
    "a phase that no line shows to begin": (life(JOINED_BEFORE, loads=LOADED, logged=BEGAN_SINCE), AT_MS, True),
    "a phase that a JoinGroup began": (
        life(JOINED_BEFORE, (17_000, "broker-2", "n", "JOIN_GROUP", 0, 4_000), loads=LOADED, logged=BEGAN_SINCE),
        AT_MS,
        False,
    ),
    "another instant": (life(JOINED_BEFORE, loads=LOADED, logged=BEGAN_SINCE), AT_MS - 500, False),
    "a session that began with no load": (life(JOINED_BEFORE, logged=BEGAN_SINCE), AT_MS, False),
    "another broker's load": (life(JOINED_BEFORE, loads=[(12_000, "broker-1")], logged=BEGAN_SINCE), AT_MS, False),
    "a session that began long after the load": (
        life(JOINED_BEFORE, loads=[(11_000, "broker-2")], logged=BEGAN_SINCE),
        AT_MS,
        False,
    ),
}


@pytest.mark.parametrize("name", AFTER_A_LOAD)
def test_a_rebalance_timeout_told_for_a_session_is_listed_in(name):
    played, told_ms, listed = AFTER_A_LOAD[name]
    expected = "two timers after a load" if listed else None
    assert class_of(played, "cause", "session-expired", "m", AT_MS, told_ms) == expected


SHOWN_LATE = (12_500, "broker-2", "n", "JOIN_GROUP", 79)
OR_IN_THE_PHASE = {
    "a load that no line dates": (
        life(JOINED_BEFORE, SHOWN_LATE, loads=[(11_000, "broker-2")], logged=BEGAN_SINCE),
        True,
    ),
    "a coordinator that had loaded before": (
        life(
            JOINED_BEFORE, (11_900, "broker-2", "n", "JOIN_GROUP", 79), loads=[(11_000, "broker-2")], logged=BEGAN_SINCE
        ),
        False,
    ),
    "a member that was heard since": (
        life(
            JOINED_BEFORE, (13_000, "broker-2", "m", "HEARTBEAT", 0), loads=[(12_500, "broker-2")], logged=BEGAN_SINCE
        ),
        False,
    ),
    "a phase that a JoinGroup began": (
        life(
            JOINED_BEFORE,
            (17_000, "broker-2", "n", "JOIN_GROUP", 0, 4_000),
            loads=[(11_000, "broker-2")],
            logged=BEGAN_SINCE,
        ),
        False,
    ),
}


@pytest.mark.parametrize("name", OR_IN_THE_PHASE)
def test_a_session_told_for_a_rebalance_timeout_after_a_load_is_listed_in(name):
    played, listed = OR_IN_THE_PHASE[name]
    expected = "two timers after a load" if listed else None
    assert class_of(played, "cause", "rebalance-timeout", "m", AT_MS, AT_MS) == expected
    assert class_of(played, "cause", "rebalance-timeout", "m", AT_MS, AT_MS - 100) is None


# how far the clocks of broker-1 and broker-2 are ahead, when m is reported -> whether nobody outside can decide it
@pytest.mark.parametrize(
    ("ahead_ms", "told_ms", "listed"),
    [
        ((2_500, 0), 22_000, True),
        ((0, 0), 22_000, False),
        ((2_500, 0), 22_600, False),  # broker-2's own answer of 14,500 shows an earlier load
        ((2_500, 0), 18_000, False),
    ],
)
def test_a_load_that_seems_to_come_before_its_predecessors_last_answer_is_not_dated(ahead_ms, told_ms, listed):
    answers = (14_000, "broker-1", "x", "HEARTBEAT", 0), (14_500, "broker-2", "n", "JOIN_GROUP", 79)
    played = life(JOINED_BEFORE, *answers, loads=LOADED, ahead_ms=ahead_ms)
    expected = "a load that only another broker's clock dates" if listed else None
    assert class_of(played, "off", "session-expired", "m", AT_MS, told_ms) == expected


# when m was heard last -> whether its session of 8 s ended as its rebalance timeout ran out
@pytest.mark.parametrize(
    ("heard_ms", "api", "error", "listed"),
    [
        (12_000, "HEARTBEAT", 27, True),
        (12_000, "SYNC_GROUP", 27, True),
        (12_000, "HEARTBEAT", 25, False),
        (11_900, "HEARTBEAT", 0, False),
    ],
)
def test_a_cause_is_listed_if_both_timers_ended_in_one_instant(heard_ms, api, error, listed):
    played = life((5_000, "broker-2", "m", "JOIN_GROUP", 0), (heard_ms, "broker-2", "m", api, error))
    expected = "two timers in one instant" if listed else None
    assert class_of(played, "cause", "rebalance-timeout", "m", AT_MS, AT_MS) == expected
    assert class_of(played, "cause", "rebalance-timeout", "m", AT_MS, AT_MS - 100) is None


BACK = (24_000, "broker-2", "n", "JOIN_GROUP", 0, 1_000)
RETURNED = {
    "where nobody asks who leads": (life(HEARD, BACK, metadata_ms=0, loads=MOVED, instance="i"), True),
    "after the predecessor had gone on": (
        life(HEARD, (15_000, "broker-1", "x", "HEARTBEAT", 0), BACK, loads=MOVED, named=[(14_000, 2)], instance="i"),
        True,
    ),
    "where metadata dates the move": (life(HEARD, BACK, loads=MOVED, named=[(14_000, 2)], instance="i"), False),
    "after another was told to rejoin": (
        life(HEARD, (22_000, "broker-2", "x", "HEARTBEAT", 27), BACK, metadata_ms=0, loads=MOVED, instance="i"),
        False,
    ),
    "after it was told that it is unknown": (
        life(HEARD, (22_000, "broker-2", "m", "HEARTBEAT", 25), BACK, metadata_ms=0, loads=MOVED, instance="i"),
        False,
    ),
    "without a move": (life(HEARD, BACK, metadata_ms=0, loads=((0, "broker-2"),), instance="i"), False),
    "as a dynamic member": (life(HEARD, BACK, metadata_ms=0, loads=MOVED), False),
}


@pytest.mark.parametrize("name", RETURNED)
def test_a_missing_removal_is_listed_if_the_static_member_came_back(name):
    played, listed = RETURNED[name]
    expected = "a static member that came back after a move" if listed else None
    assert class_of(played, "missing", "session-expired", "m", AT_MS, None) == expected


DUE_19 = (11_000, "broker-2", "m", "HEARTBEAT", 0)
AS_IT_WOKE = (24_000, "broker-2", "n", "JOIN_GROUP", 0, 4_005)
SHORTLY = [(18_500, 19_990)]
WOKEN = {
    "in a join phase": (life(DUE_19, AS_IT_WOKE, logged=BEGAN, paused=SHORTLY, instance="i"), True),
    "in a phase that its session's end began": (
        life(DUE_19, AS_IT_WOKE, logged=[(20_000, *BEGAN[0][1:])], paused=SHORTLY, instance="i"),
        False,
    ),
    "after a session that ended before": (life(HEARD, AS_IT_WOKE, logged=BEGAN, paused=SHORTLY, instance="i"), False),
    "later": (
        life(DUE_19, (24_000, "broker-2", "n", "JOIN_GROUP", 0, 3_000), logged=BEGAN, paused=SHORTLY, instance="i"),
        False,
    ),
    "from a pause that is known as one": (
        life(DUE_19, AS_IT_WOKE, logged=BEGAN, paused=[(16_000, 19_990)], instance="i"),
        False,
    ),
}


@pytest.mark.parametrize("name", WOKEN)
def test_a_missing_removal_is_listed_if_the_successor_came_as_the_coordinator_woke(name):
    played, listed = WOKEN[name]
    expected = "a static member that came back as its coordinator woke" if listed else None
    assert class_of(played, "missing", "session-expired", "m", AT_MS, None) == expected


def test_a_wrong_instant_or_an_extra_report_is_never_listed():
    for what, told_ms in (("off", 25_000), ("extra", 20_000), ("group", None), ("refuted", 20_000)):
        assert class_of(life(HEARD), what, "session-expired", "m", AT_MS, told_ms) is None


JOINED_3 = (8_000, "broker-1", "m", "JOIN_GROUP", 0)
AGAIN = ((0, "broker-1"), (12_000, "broker-2"), (15_000, "broker-1"))
# the life, the live group's generation and type at a look of 21,000 -> whether nobody could know better
VIEWS = {
    "a load that nothing shows": (life(JOINED_3, metadata_ms=0, loads=AGAIN), 2, "classic", True),
    "a load before the last line": (
        life(JOINED_3, (16_000, "broker-1", "m", "HEARTBEAT", 0), loads=AGAIN),
        2,
        "classic",
        False,
    ),
    "a load before a 25 to a member whose session had ended": (
        life(JOINED_3, HEARD, (18_500, "broker-1", "m", "HEARTBEAT", 25), metadata_ms=0, loads=AGAIN),
        2,
        "classic",
        True,
    ),
    "a load before a 25 to a member whose session went on": (
        life(JOINED_3, HEARD, (17_500, "broker-1", "m", "HEARTBEAT", 25), metadata_ms=0, loads=AGAIN),
        2,
        "classic",
        False,
    ),
    "a load before metadata": (life(JOINED_3, named=[(16_000, 1)], loads=AGAIN), 2, "classic", False),
    "a generation that was written": (life(JOINED_3, metadata_ms=0, loads=AGAIN), 3, "classic", False),
    "a generation that nobody announced": (life(HEARD, metadata_ms=0, loads=AGAIN), 2, "classic", False),
    "a KIP-848 group": (life(JOINED_3, metadata_ms=0, loads=AGAIN), 2, "consumer", False),
    "no load since": (life(JOINED_3, metadata_ms=0, loads=((0, "broker-1"),)), 2, "classic", False),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_differs_is_listed_after(name):
    played, generation, kind, listed = VIEWS[name]
    look = Look(len(played.rows), "broker-1", 21_000, [{"group": "g", "type": kind, "generation": generation}])
    assert class_of_view(played, look, "g") == ("a load that nothing shows yet" if listed else None)


@pytest.mark.parametrize(("at_ms", "listed"), [(48_000, True), (48_001, False)])
def test_a_view_that_differs_is_listed_until_all_timers_have_run_out(at_ms, listed):
    """The clients' sessions last 10 s, and their rebalances 30 s. After that a coordinator that went on had written."""
    played = life(JOINED_3, metadata_ms=0, loads=AGAIN)
    look = Look(len(played.rows), "broker-1", at_ms, [{"group": "g", "type": "classic", "generation": 2}])
    assert (class_of_view(played, look, "g") is not None) == listed


def test_the_classes_are_those_of_the_table_in_docs_truth():
    page = (Path(__file__).parents[2] / "docs" / "truth.md").read_text()
    section = page.partition("### What nobody outside can decide")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| ([^|]+) \| +\d+ \|", section, re.MULTILINE)
    assert sorted(listed) == sorted([*CLASSES, LOADED_UNSEEN])

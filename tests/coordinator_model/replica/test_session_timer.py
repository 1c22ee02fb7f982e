"""When a session can have ended: every candidate, at the instants where the answer changes."""

import pytest

from coordinator_model.brokers.leadership import STALE_MS, Claim
from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.session_timer import (
    blamed_reset,
    deadlines,
    is_covered,
    latest_session,
    session_timeout_ms,
)
from coordinator_model.states import Cause, Evidence, MemberState
from coordinator_model.thresholds import Thresholds

PAUSE = TimerReset(20_000, 24_000, Cause.COORDINATOR_PAUSE, "broker-1")
MOVE = TimerReset(20_000, 24_000, Cause.COORDINATOR_MOVED, "broker-2")
OPEN = TimerReset(20_000, None, Cause.COORDINATOR_PAUSE, "broker-1")
BLIND = TimerReset(20_000, None, Cause.COORDINATOR_PAUSE, "broker-1", blind_ms=22_000)
LOADED = TimerReset(20_000, 26_000, Cause.COORDINATOR_PAUSE, "broker-1", blind_ms=22_000)


def member(**changes):
    fields = {"session_timeout_ms": 6_000, "last_heartbeat_ms": 10_000, "previous_heartbeat_ms": 9_000, **changes}
    return Member("m", assignment={"t": [0]}, **fields)


def context(*restarts, commits=None, covered_since_ms=0, timeout_ms=None):
    return JudgementContext(
        progress_ms=0,
        broker="broker-1",
        timer_resets=restarts,
        commits=commits or {},
        live_from_ms=0,
        covered_since_ms=covered_since_ms,
        proof_arrival_ms=0,
        consumer_session_timeout_ms=timeout_ms,
        thresholds=Thresholds(),
    )


LENT = {"lent_timeout_ms": 9_000, "lent_from_ms": 10_000}
# member, scene -> the latest instant at which its timer can have started, None: open or unknown
BASES = {
    "its last heartbeat": (member(), context(), 10_000),
    "the end of its join phase, if that was later": (member(timer_reset_ms=11_000), context(), 11_000),
    "the end of a pause, if it was not heard since": (member(), context(PAUSE), 24_000),
    "not of a pause before it was heard": (member(last_heartbeat_ms=20_001), context(PAUSE), 20_001),
    "the end of a move, though one that may be deposed heard it in between": (
        member(last_heartbeat_ms=21_000),
        context(MOVE),
        24_000,
    ),
    "not of a move whose first answer it was": (member(last_heartbeat_ms=23_990), context(MOVE), 23_990),
    "unknown while a restart is open": (member(), context(OPEN), None),
    "unknown if a coordinator that may be loading said 0 to it": (
        member(last_heartbeat_ms=23_000),
        context(BLIND),
        None,
    ),
    "the end of that load, as far as it is known": (member(last_heartbeat_ms=23_000), context(LOADED), 26_000),
    "the end of that load, if it was heard just before": (member(last_heartbeat_ms=25_900), context(LOADED), 26_000),
    "an open restart does not matter to who was heard in it": (member(last_heartbeat_ms=21_000), context(OPEN), 21_000),
    "a commit of its own": (member(), context(commits={("t", 0): 12_000}), 12_000),
    "not a commit before its heartbeat": (member(), context(commits={("t", 0): 9_000}), 10_000),
    "not another's commit": (member(), context(commits={("t", 1): 12_000}), 10_000),
    "no commit for KIP-848": (member(kip848=True), context(commits={("t", 0): 12_000}), 10_000),
    "a heartbeat behind a stalled write": (member(parked_heartbeat_ms=13_000), context(), 13_000),
    "and for KIP-848 too": (member(parked_heartbeat_ms=13_000, kip848=True), context(), 13_000),
    "unknown if it was never heard": (member(last_heartbeat_ms=None), context(), None),
}


@pytest.mark.parametrize("name", BASES)
def test_the_timers_base_is(name):
    who, where, base_ms = BASES[name]
    session = latest_session(who, where)
    assert (session and session.start_ms) == base_ms


# member, scene -> when the session that began last ends
ENDS = {
    "one timeout after its last heartbeat": (member(), context(), 16_000),
    "a static successor's first one timeout of its predecessor after it came": (
        member(last_heartbeat_ms=None, timer_reset_ms=10_000, **LENT),
        context(),
        19_000,
    ),
    "as much by its record, which says so a few milliseconds off": (
        member(last_heartbeat_ms=None, timer_reset_ms=10_004, **LENT),
        context(),
        19_004,
    ),
    "its own timeout after its first heartbeat": (
        member(last_heartbeat_ms=11_000, timer_reset_ms=10_000, **LENT),
        context(),
        17_000,
    ),
    "its own timeout after a heartbeat that a loading coordinator may have answered, if the groups' is shorter": (
        member(last_heartbeat_ms=22_000, session_timeout_ms=10_000, state=MemberState.STABLE),
        context(MOVE, timeout_ms=7_000),
        32_000,
    ),
    "the groups' timeout after a load, if that may have ended later": (
        member(last_heartbeat_ms=22_000, session_timeout_ms=8_000, state=MemberState.STABLE),
        context(MOVE, timeout_ms=7_000),
        31_000,
    ),
    "its own timeout after a disputed heartbeat of before the load's end, if the groups' is shorter": (
        member(claimed_ms=23_000, session_timeout_ms=10_000, state=MemberState.STABLE),
        context(MOVE, timeout_ms=7_000),
        33_000,
    ),
    "one timeout after a disputed heartbeat, if no coordinator was known before it": (
        member(claimed_ms=12_000),
        context(covered_since_ms=13_000),
        18_000,
    ),
    "not after one that another broker than the known coordinator accepted": (
        member(claimed_ms=12_000),
        context(covered_since_ms=1_000),
        16_000,
    ),
    "its own timeout after a load": (
        member(last_heartbeat_ms=None, timer_reset_ms=10_000, **LENT),
        context(MOVE),
        30_000,
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_latest_session_ends(name):
    who, where, end_ms = ENDS[name]
    assert latest_session(who, where).end_ms == end_ms


COVERED = {
    "heard twice at a usual interval": (member(), context(), True),
    "heard once": (member(previous_heartbeat_ms=None), context(), False),
    "heard twice too far apart": (member(previous_heartbeat_ms=3_999), context(), False),
    "at the session timeout apart": (member(previous_heartbeat_ms=4_000), context(), True),
    "once of it before coverage began": (member(), context(covered_since_ms=9_001), False),
    "with no known timeout": (member(session_timeout_ms=None), context(), False),
}


@pytest.mark.parametrize("name", COVERED)
def test_a_member_is_covered_when(name):
    who, where, covered = COVERED[name]
    assert is_covered(who, where) is covered


def test_a_classic_members_timeout_is_its_own_and_a_kip_848_members_the_configured():
    assert session_timeout_ms(member(), context(timeout_ms=45_000)) == 6_000
    assert session_timeout_ms(member(session_timeout_ms=None, kip848=True), context(timeout_ms=45_000)) == 45_000
    assert session_timeout_ms(member(session_timeout_ms=None), context(timeout_ms=45_000)) is None


# deadline -> the restart that is to blame
BLAMED = {
    "before it began": (19_999, None),
    "as it begins": (20_000, PAUSE),
    "within a session timeout of its end": (30_000, PAUSE),
    "later": (30_001, None),
    "no deadline": (None, None),
}


@pytest.mark.parametrize("name", BLAMED)
def test_a_pause_is_to_blame_for_a_deadline(name):
    deadline_ms, blamed = BLAMED[name]
    assert blamed_reset(deadline_ms, 6_000, [PAUSE]) is blamed


def test_lost_lines_are_nobodys_fault():
    assert blamed_reset(22_000, 6_000, [TimerReset(20_000, 24_000, Cause.UNKNOWN, "b")]) is None


def test_a_restart_still_open_is_to_blame_for_what_follows():
    assert blamed_reset(99_000, 6_000, [OPEN]) is OPEN
    assert blamed_reset(22_000, 6_000, [MOVE]) is MOVE


# A session that ended at 16,000 in a pause of 12,000 to 24,000 -> the removal's record, and when the session ended
SLEPT_OVER = {
    "as the broker woke": (24_060, 24_000),
    "at its record, where that is older than the first line": (23_987, 23_987),
    "at a record up to one probe older": (23_500, 23_500),
    "in time, where the record is older than that: the broker was awake": (16_100, 16_000),
}


def gone(who, removed_ms):
    return Departure(
        who,
        rule=None,
        cause=Cause.UNKNOWN,
        evidence=Evidence.OBSERVED,
        removed_ms=removed_ms,
        deadline_ms=None,
        generation=1,
        broker="broker-1",
        judge_after_ms=removed_ms,
        touches_ms=[] if who.parked_heartbeat_ms is None else [who.parked_heartbeat_ms],
    )


@pytest.mark.parametrize("name", SLEPT_OVER)
def test_a_session_that_ran_out_in_a_pause_ends(name):
    removed_ms, end_ms = SLEPT_OVER[name]
    pause = TimerReset(12_000, 24_100, Cause.COORDINATOR_PAUSE, "broker-1", woke_ms=24_000)
    (span,) = deadlines(gone(member(), removed_ms), context(pause))
    assert span[:2] == (end_ms, end_ms)


@pytest.mark.parametrize(("removed_ms", "ends_ms"), [(20_000, [19_000]), (18_000, [16_000, 19_000])])
def test_a_heartbeat_behind_a_stalled_write_rules_out_an_earlier_end(removed_ms, ends_ms):
    """A member that was gone by 13,000 would have been answered 25 at once, unless that broker had been deposed."""
    spans = deadlines(gone(member(parked_heartbeat_ms=13_000), removed_ms), context())
    assert [end_ms for end_ms, _, _ in spans] == ends_ms


# when other brokers began to answer as the coordinator -> until when it is doubtful at 100,000 who coordinates
CLAIMS = {
    "nobody did": ([], 0),
    "just before": ([99_000], 99_000 + STALE_MS),
    "two did": ([99_000, 95_000], 99_000 + STALE_MS),
    "its clock is ahead a little": ([101_000], 101_000 + STALE_MS),
    "its clock is ahead by minutes": ([700_000], 0),
    "long before": ([100_000 - STALE_MS], 0),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_answers_of_another_broker_leave_doubt_for_a_while(name):
    begun_ms, until_ms = CLAIMS[name]
    claims = [Claim(first_ms, first_ms + 1_000) for first_ms in begun_ms]
    assert context()._replace(claims=claims).disputed_until_ms(100_000) == until_ms

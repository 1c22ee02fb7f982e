"""Lag is judged the same whatever the order, the duplicates and the restarts; consumers differ, and none is accused."""

import random
from itertools import pairwise
from statistics import median

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_model.incidents import Kind
from tests.support.lags import T0, Life, Partition, keeps_up, never, paused, played, slow

STALLED = "partition-stalled"
MINUTE_MS = 60_000
QUIET_MS = 10**9


def uneven(every_ms, seed, until_ms=QUIET_MS, from_ms=1_000, behind_ms=100):
    """Commit each so often and a fifth of that sooner or later, all that had come a moment before."""

    def commits(end_ms, log):
        chance, at_ms = random.Random(seed), from_ms
        while at_ms < min(end_ms, until_ms):
            yield at_ms, log(at_ms - behind_ms)
            at_ms += int(every_ms * chance.uniform(0.8, 1.2))

    return commits


def resuming(every_ms, seed, stops_ms, resumes_ms):
    before = uneven(every_ms, seed, until_ms=stops_ms)
    after = uneven(every_ms, seed, from_ms=resumes_ms)
    return lambda end_ms, log: [*before(end_ms, log), *after(end_ms, log)]


def world(seed):
    """A group in which one partition is stuck for a while, one goes back, one is slow, and the others are well."""

    def rewinds(end_ms, log):
        return [(at_ms, log(at_ms) - (900 if 200_000 <= at_ms < 260_000 else 0)) for at_ms in range(999, end_ms, 5_000)]

    return Life(
        {
            0: Partition(resuming(5_000, seed, 100_000, 700_000)),
            1: Partition(uneven(5_000, seed + 1)),
            2: Partition(slow(), topic="behind"),
            3: Partition(rewinds, topic="back"),
            4: Partition(keeps_up(60_000), topic="batch"),
            5: Partition(paused(50_000), topic="paused"),
        }
    ).view(100)


UNTIL_MS = 14 * MINUTE_MS
EXPECTED = {(STALLED, "t-0", "recovered"), ("lag-growing", "behind", None), ("offset-rewound", "back", "recovered")}


def judged(life, events, rows, **how):
    return played(life, events, rows, **how).incidents


def said(incidents):
    return {(rule, subject, reason) for _, rule, subject, reason in incidents}


@given(seed=st.integers(0, 2**32), repeated=st.booleans())
@settings(max_examples=10, deadline=None)
def test_order_and_duplicates_of_commits_and_rounds_do_not_matter(seed, repeated):
    life = world(seed)
    events, rows = life.events(UNTIL_MS), life.rows(UNTIL_MS)
    straight = judged(life, events, rows)
    chance = random.Random(seed)
    mixed, rounds = (list(read) * (2 if repeated else 1) for read in (events, rows))
    chance.shuffle(mixed)
    chance.shuffle(rounds)
    assert judged(life, mixed, rounds) == straight
    assert said(straight) >= EXPECTED


@given(seed=st.integers(0, 2**32), stops_ms=st.integers(60_000, 500_000), down_ms=st.integers(0, 20_000))
@settings(max_examples=10, deadline=None)
def test_a_restart_finds_the_same_incidents_under_the_same_ids(seed, stops_ms, down_ms):
    """A fresh monitor reads the log again and knows no old end offset; what was open, and the history, is stored."""
    life = world(seed)
    events, rows = life.events(UNTIL_MS), life.rows(UNTIL_MS)
    straight = judged(life, events, rows)
    first = played(
        life,
        [event for event in events if event.order_ms <= T0 + stops_ms],
        [row for row in rows if row.timestamp_ms <= T0 + stops_ms],
    )
    later = [row for row in rows if row.timestamp_ms > T0 + stops_ms + down_ms]
    history = [tuple(point) for point in first.columns()["history"]]
    second = played(life, events, later, opened=first.opened, history=history)
    both = {transition.incident.incident_id for told in (first, second) for transition in told.transitions}
    ended = {t.incident.incident_id: t.incident.reason for told in (first, second) for t in told.transitions
             if t.kind is Kind.CLOSED}  # fmt: skip
    assert both == {incident_id for incident_id, *_ in straight}
    assert ended == {incident_id: reason for incident_id, _, _, reason in straight if reason is not None}


def test_a_compacted_log_ends_nothing_that_is_open():
    """Of each partition only the newest commit is left: its rhythm is not known any more."""
    life = Life({0: Partition(keeps_up(until_ms=100_000)), 1: Partition(keeps_up(until_ms=600_000))}).view(100)
    events, rows = life.events(UNTIL_MS), life.rows(UNTIL_MS)
    first = played(life, [e for e in events if e.order_ms < T0 + 300_000], rows[:30])
    assert first.openings == [(STALLED, "t-0")]
    newest = {e.committed_partition: e for e in events if e.order_ms < T0 + 300_000}
    kept = [*newest.values(), *(e for e in events if e.order_ms >= T0 + 300_000)]
    second = played(life, kept, rows[31:58], opened=first.opened)
    assert (second.openings, second.closings) == ([], [])


@given(
    seed=st.integers(0, 2**32),
    every_ms=st.integers(1_000, 60_000),
    stopped_after=st.integers(10, 20),
    first_round_ms=st.integers(0, 9_999),
    rate=st.integers(2, 5_000),
)
@settings(max_examples=30, deadline=None)
def test_a_stuck_partition_is_named_within_three_intervals_and_thirty_seconds(
    seed, every_ms, stopped_after, first_round_ms, rate
):
    stops_ms = stopped_after * every_ms
    stuck = Partition(uneven(every_ms, seed, until_ms=stops_ms), rate=rate)
    life = Life({0: stuck, 1: Partition(uneven(every_ms, seed + 1), rate=rate)}, first_round_ms=first_round_ms).view(
        100
    )
    until_ms = stops_ms + 4 * every_ms + MINUTE_MS
    told = life.play(until_ms)
    instants = [event.order_ms - T0 for event in life.events(until_ms) if event.committed_partition == 0][-10:]
    usual_ms = median(after - before for before, after in pairwise(instants))
    assert told.openings == [(STALLED, "t-0")]
    named_ms = told.opened_at[STALLED, "t-0"] - instants[-1]
    assert 3 * usual_ms * 0.8 <= named_ms <= 3 * usual_ms + 30_000


KINDS = {
    "keeps up": lambda every_ms, seed: Partition(uneven(every_ms, seed)),
    "idle": lambda every_ms, seed: Partition(uneven(every_ms, seed, until_ms=90_000), log=lambda at: min(at, 60_000)),
    "now and then": lambda every_ms, seed: Partition(uneven(every_ms, seed), log=lambda at: at // 97_000 * 3),
    "paused": lambda every_ms, _: Partition(paused(120_000, every_ms)),
    "never commits": lambda *_: Partition(never),
    "slow": lambda every_ms, seed: Partition(uneven(every_ms, seed, behind_ms=0), rate=100),
    "falls behind": lambda every_ms, _: Partition(slow(0.3, every_ms)),
    "a batch each minute": lambda _, seed: Partition(uneven(60_000, seed, behind_ms=5_000)),
}


@given(
    seed=st.integers(0, 2**32),
    every_ms=st.integers(1_000, 30_000),
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4),
    rebalances_ms=st.lists(st.integers(20_000, 800_000), max_size=4),
    outage_ms=st.integers(100_000, 700_000),
)
@settings(max_examples=30, deadline=None)
def test_nobody_who_is_well_is_said_to_be_stalled(seed, every_ms, kinds, rebalances_ms, outage_ms):
    """For fifteen minutes with rebalances and an outage of brokers."""
    partitions = {n: KINDS[kind](every_ms, seed + n) for n, kind in enumerate(kinds)}
    missing = (outage_ms, outage_ms + 45_000)
    for p in partitions.values():
        p.consumer = without(p.consumer, *missing)
    life = Life(partitions, missing_rounds=missing).view(100)
    for generation, at_ms in enumerate(sorted(rebalances_ms), start=2):
        life.view(at_ms, state="PreparingRebalance", generation=generation)
        life.view(at_ms + 3_000, generation=generation, m1=f"m{generation}")
    assert [opening for opening in life.play(15 * MINUTE_MS).openings if opening[0] == STALLED] == []


def without(consumer, from_ms, until_ms):
    """Nobody commits while the brokers do not answer."""
    return lambda end_ms, log: [commit for commit in consumer(end_ms, log) if not from_ms < commit[0] < until_ms]

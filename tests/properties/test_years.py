"""Whatever happens to a group, and however long nothing does: time goes on, at a bounded number of looks.

Lives of a few steps with gaps of a moment, of days, of weeks and of years between them, over all kinds of groups and
states of members, in one batch a step, with the state put away and taken out at any of them.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator_model.decode.parse import parse_row
from coordinator_model.shard import group_judgement
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.request_log import probe_line
from tests.support.story import T0, Story, Who, consumers, rebalance, stable

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=T0, consumer_session_timeouts_ms={"": 45_000})
LOOKS_A_BATCH = 60
"""A group has some twenty instants at which something may become true of it; a batch may pass all of them."""
MEMBERS = ("m1", "m2")

GAPS = st.one_of(
    st.integers(1, 1_000),
    st.integers(1_000, 120_000),
    st.integers(120_000, DAY_MS),
    st.integers(DAY_MS, 30 * DAY_MS),
    st.integers(30 * DAY_MS, 4_000 * DAY_MS),
    st.sampled_from([2**31 - 1, 2**31, 2**31 - 500, 2**32]),
)


def tick(story, at_ms, member, broker, number):
    return story.tell(at_ms, probe_line(number), broker)


STEPS = {
    "a probe": tick,
    "a heartbeat": lambda story, at_ms, member, broker, n: story.beat(at_ms, member, broker=broker),
    "of the next generation": lambda story, at_ms, member, broker, n: story.beat(at_ms, member, 2, broker=broker),
    "told to rejoin": lambda story, at_ms, member, broker, n: story.beat(at_ms, member, error=27, broker=broker),
    "unknown": lambda story, at_ms, member, broker, n: story.beat(at_ms, member, error=25, broker=broker),
    "refused": lambda story, at_ms, member, broker, n: story.beat(at_ms, member, error=16, broker=broker),
    "behind a write": lambda s, at_ms, m, b, n: s.beat(at_ms, m, error=15, parked_ms=1_500, broker=b),
    "a KIP-848 heartbeat": lambda story, at_ms, member, broker, n: story.hello(at_ms, member, 2, 2, broker=broker),
    "a KIP-848 leave": lambda story, at_ms, member, broker, n: story.hello(at_ms, member, -1, -1, broker=broker),
    "a join": lambda story, at_ms, member, broker, n: story.join(at_ms, member, 2, MEMBERS, broker=broker),
    "a sync": lambda story, at_ms, member, broker, n: story.sync(at_ms, member, 2, leader=True, broker=broker),
    "a leave": lambda story, at_ms, member, broker, n: story.leave(at_ms, member),
    "a rebalance": lambda story, at_ms, member, broker, n: rebalance(story, at_ms, 2, *MEMBERS),
    "a record without it": lambda story, at_ms, member, broker, n: story.record(at_ms, 2, member),
    "an empty group": lambda story, at_ms, member, broker, n: story.record(at_ms, 3),
    "its deletion": lambda story, at_ms, member, broker, n: story.deleted(at_ms),
    "a commit": lambda story, at_ms, member, broker, n: story.commit(at_ms, "t", 0),
    "a report": lambda story, at_ms, member, broker, n: story.reports(at_ms, member, 50_000),
    "a KIP-848 member gone": lambda story, at_ms, member, broker, n: story.gone(at_ms, member),
    "a revocation": lambda story, at_ms, member, broker, n: story.current(at_ms, member, 2, 1, (0,)),
}
BEGINNINGS = {
    "classic": lambda: stable(*MEMBERS, partitions=1),
    "static": lambda: stable(Who("m1", "i1"), Who("m2", "i2"), partitions=1),
    "KIP-848": lambda: consumers(*MEMBERS),
    "the longest timeouts": lambda: stable(*MEMBERS, session_ms=2**31 - 1, poll_ms=2**31 - 1),
    "records only": lambda: Story().record(100, 1, *MEMBERS),
}
STEP = st.tuples(
    GAPS, st.sampled_from(sorted(STEPS)), st.sampled_from(MEMBERS), st.sampled_from(["broker-1", "broker-2"])
)


def batches(beginning, steps):
    """The story's rows, in one batch a step."""
    story, at_ms, ends = BEGINNINGS[beginning](), 1_000, [1_000]
    for number, (gap_ms, name, member, broker) in enumerate(steps, 1):
        at_ms += gap_ms
        STEPS[name](story, at_ms, member, broker, number)
        ends.append(at_ms + 100)
        at_ms += 100
    rows = Story(rows=story.rows, brokers={}).source_rows(at_ms)
    for low_ms, high_ms in zip([-1, *ends], ends, strict=False):
        yield high_ms, [row for row in rows if low_ms < row.timestamp_ms - T0 <= high_ms]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(BEGINNINGS)),
    st.lists(STEP, min_size=1, max_size=12),
    st.booleans(),
    st.booleans(),
)
@example("classic", [(25 * DAY_MS, "a probe", "m1", "broker-1")], False, False)
@example("classic", [(500, "a probe", "m1", "broker-1")] * 12, False, True)
def test_time_goes_on_and_costs_a_bounded_number_of_looks(beginning, steps, kept, live):
    looks, evaluate = [], group_judgement.evaluate

    def counted(replica, context):
        looks.append(context.progress_ms)
        if len(looks) > LOOKS_A_BATCH:
            pytest.fail("looked at again and again")  # an assertion would set the group aside
        return evaluate(replica, context)

    group_judgement.evaluate = counted
    try:
        shard = Shard.restore(0, SETTINGS, None)
        for end_ms, rows in batches(beginning, steps):
            looks.clear()
            events = [event for row in rows for event in parse_row(row)]
            outputs = shard.apply(events, wall_ms=T0 + end_ms if live else None, final=not live)
            [progress] = [output for output in outputs if output["kind"] == "progress"]
            assert not {"put_off", "set_aside"} & progress["counts"].keys()
            clock = shard.clock
            judged_ms = clock.progress_ms - clock.by_records  # the rest of the newest record's write may come
            assert shard.agenda.next_ms() > judged_ms or clock.hole_is_open  # nothing is judged then
            if kept:
                shard = Shard.restore(0, SETTINGS, shard.dump())
    finally:
        group_judgement.evaluate = evaluate

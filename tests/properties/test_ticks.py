"""Holes in a broker's lines begin and end for every shard where they do, in whatever order and batches lines come."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from coordinator_model.brokers.ticks import HOLE_MS, TICK_EVERY_MS, Ticker
from coordinator_model.events import TELEMETRY_RANK, Tick


def tick(order_ms: int, probed: bool) -> Tick:
    return Tick(order_ms, TELEMETRY_RANK, "lines", 0, order_ms, "", "b", None, connection="c" if probed else "")


def said(batches) -> list[Tick]:
    ticks = []
    for batch in batches:
        ticker = Ticker()
        for line in batch:
            ticker.observe(line)
        ticks += ticker.take()
    return ticks


def ends_of_holes(instants) -> set[int]:
    rising = sorted(instants)
    holes = [pair for pair in pairwise(rising) if pair[1] - pair[0] >= HOLE_MS]
    return {rising[0], rising[-1], *(end for hole in holes for end in hole)}


steps = st.sampled_from([0, 1, 3, 50, 499, 500, 501, 999, 1_000, 1_001, 2_600, 12_000])


@st.composite
def orders(draw):
    """Lines of one broker in some order, cut into batches."""
    at_ms, lines = 1_000_000, []
    for step in draw(st.lists(steps, min_size=1, max_size=40)):
        at_ms += step
        lines.append(tick(at_ms, draw(st.integers(0, 9)) == 0))
    if draw(st.booleans()):
        lines = draw(st.permutations(lines))
    cuts = sorted(draw(st.lists(st.integers(0, len(lines)), max_size=4)))
    return [lines[start:end] for start, end in pairwise([0, *cuts, len(lines)])]


@given(orders())
def test_the_ends_of_every_hole_are_ticks(batches):
    instants = [line.order_ms for batch in batches for line in batch]
    assert ends_of_holes(instants) <= {line.order_ms for line in said(batches)} <= set(instants)


@given(orders())
def test_every_probe_is_a_tick_once(batches):
    probes = {line for batch in batches for line in batch if line.connection}
    ticks = [line for line in said(batches) if line.connection]
    assert set(ticks) == probes
    assert len(said(batches)) == len({line[:5] for line in said(batches)}) or len(batches) > 1


def test_a_busy_broker_makes_two_ticks_a_second_in_whatever_order_its_lines_come():
    lines = [tick(1_000_000 + ms, False) for ms in range(10_000)]
    for order in (lines, lines[::-1], lines[5_000:] + lines[:5_000]):
        assert len(said([order])) <= 10_000 / TICK_EVERY_MS + 2

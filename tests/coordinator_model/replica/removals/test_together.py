"""Removals that are judged together: however many they are, each costs about the same, and its verdict is its own."""

import sys

import pytest

from coordinator_model.replica import advance
from coordinator_model.replica.group import MAX_DEPARTURES
from coordinator_model.replica.removals import judge
from coordinator_model.replica.removals.together import Shared
from tests.support.story import Story, Who, consumers, rebalance, stable


def never_synced(count):
    """All joined, and only m1 goes on: the next generation lacks the others."""
    listed = ["m1", *(f"d{n}" for n in range(count))]
    story = Story().join(100, "m1", 1, listed=listed).record(140, 1, *listed).beats("m1", 1_000, 6_000)
    return rebalance(story, 8_500, 2, "m1").beats("m1", 9_000, 10_000, generation=2).play(10_000)


def heard(count, *, static=False):
    """All have synced and are heard once; the end of their sessions begins a join phase."""
    others = [Who(f"d{n}", f"i{n}" if static else None, port=6_000 + n) for n in range(count)]
    story = stable("m1", *others, poll_ms=3_000).beats("m1", 1_000, 8_000)
    for n, other in enumerate(others):
        story.beat(2_000 + n, other.member_id)
    return story, others


def expired(count, *, static=False):
    story, _ = heard(count, static=static)
    story.beat(9_050, "m1", error=27)
    return rebalance(story, 11_500, 2, "m1").beats("m1", 12_000, 15_000, generation=2).play(15_000)


def replaced(count):
    """Static members come back one after another in one generation. Each takes the place of its former life."""
    story, others = heard(count, static=True)
    for n, other in enumerate(others):
        story.join(3_500 + n, Who(f"e{n}", other.instance_id, port=9_000 + n), 1, asked="")
    return story.play(12_000)


def moved(count):
    """The coordinator dies. The next one never hears more than m1."""
    story, _ = heard(count)
    story.silent(8_000, 99_000)
    story.brokers["broker-2"], story.broker = 0, "broker-2"
    story.beat(10_500, "m1", error=14).beats("m1", 11_000, 17_000)
    story.beat(17_500, "m1", error=27)
    return rebalance(story, 19_000, 2, "m1").beats("m1", 20_000, 23_000, generation=2).play(23_000)


def of_kip848(count):
    """A group of KIP-848 writes each removal by itself."""
    others = [f"d{n}" for n in range(count)]
    story = consumers("m1", *others).hellos("m1", 1_000, 8_000, 2)
    for n, other in enumerate(others):
        story.gone(45_100, other).epoch(45_100, 3 + n)
    return story.hellos("m1", 45_000, 60_000, 2 + count).play(60_000)


LIVES = {
    "never synced": (never_synced, MAX_DEPARTURES),
    "expired": (expired, 128),
    "static": (lambda count: expired(count, static=True), 128),
    "replaced": (replaced, 128),
    "moved": (moved, 128),
    "KIP-848": (of_kip848, 128),
}
"""A life with so many removals, and how many."""


@pytest.fixture
def work(monkeypatch):
    """The most that one call of `judge_removals` did: how many removals it judged, with how many calls of functions."""
    calls, verdicts, done, ask, verdict = [0], [0], [(0, 0)], advance.judge_removals, judge.judge

    def count(_frame, event, _arg):
        calls[0] += event in ("call", "c_call")

    def counted(*args):
        calls[0] = verdicts[0] = 0
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            return ask(*args)
        finally:
            sys.setprofile(before)
            done.append((verdicts[0], calls[0]))

    def one_more(*args):
        verdicts[0] += 1
        return verdict(*args)

    def of(life, removals):
        done.clear()
        life(removals)
        return max(done)

    monkeypatch.setattr(advance, "judge_removals", counted)
    monkeypatch.setattr(judge, "judge", one_more)
    return of


# Each of the "replaced" has an instant and a phase of its own, so these share nothing.
@pytest.mark.parametrize("name", sorted(LIVES.keys() - {"replaced"}))
def test_four_times_the_removals_make_about_four_times_the_calls(name, work):
    life, most = LIVES[name]
    few, calls_for_few = work(life, most // 4)
    many, calls_for_many = work(life, most)
    assert (few, many) == (most // 4, most)
    assert calls_for_many < 5 * calls_for_few


@pytest.fixture
def compared(monkeypatch):
    """Every verdict, twice: of a removal that shares with the others of its call, and of the same one that does not."""
    verdicts, ask = [], judge.judge

    def both(replica, departure, context, shared):
        verdicts.append((ask(replica, departure, context, shared), ask(replica, departure, context, Shared(replica))))
        return verdicts[-1][0]

    monkeypatch.setattr(judge, "judge", both)
    return verdicts


@pytest.mark.parametrize("name", LIVES)
def test_a_removal_is_judged_beside_others_as_by_itself(name, compared):
    LIVES[name][0](16)
    assert len(compared) >= 16
    assert all(beside == alone for beside, alone in compared)

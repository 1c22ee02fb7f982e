"""The judge of removals: its causes are asked in one order, and none of them writes anything."""

import pytest

from coordinator_model.replica.removals import judge
from coordinator_model.replica.removals.case import RebalanceTimeout, SessionExpired
from coordinator_model.shard.snapshot import dump_group
from tests.support.story import rebalance, stable


def missed():
    """m3's leave begins a join phase at 9,000; m2 is answered 27 and does not rejoin, its session goes on."""
    story = stable("m1", "m2", "m3", poll_ms=10_000).beats("m3", 1_000, 8_000).leave(9_000, "m3")
    story.beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000)
    return story.beats("m2", 9_050, 13_050, error=27).beat(9_500, "m1", error=27)


def expired():
    """m2 is silent from 1,000, so its session of 6 s ends in the join phase that its end begins."""
    return stable("m1", "m2", poll_ms=10_000).beats("m1", 1_000, 8_000).beat(1_000, "m2")


@pytest.fixture
def verdicts(monkeypatch):
    """Every verdict, and whether the replica was the same before and after."""
    given, ask = [], judge.judge

    def watched(replica, *args):
        before = dump_group(replica)
        verdict = ask(replica, *args)
        given.append((type(verdict), dump_group(replica) == before))
        return verdict

    monkeypatch.setattr(judge, "judge", watched)
    return given


@pytest.mark.parametrize(("story", "verdict"), [(missed, RebalanceTimeout), (expired, SessionExpired)])
def test_a_verdict_is_a_value_and_asking_for_it_writes_nothing(story, verdict, verdicts):
    told = rebalance(story(), 19_003, 2, "m1").beats("m1", 20_000, 23_000, generation=2).play(23_000)
    assert len(told.accusations) == 1
    assert verdicts == [(verdict, True)]

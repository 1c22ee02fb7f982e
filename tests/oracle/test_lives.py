"""The monitor reads random lives that Kafka's own coordinator played, and agrees with the coordinator's log.

`make lives` plays as many as you like; these are some of each kind, always the same: a thousand in all.
"""

import subprocess
import sys
from collections import Counter

import pytest

from streaming.embedded.truth import REBALANCE_TIMEOUT, SESSION_EXPIRED
from tests.oracle.judge import judge
from tests.oracle.kinds import ALL_KINDS, draw
from tests.oracle.lives import Played, lists_too_many, summary

LIVES_OF_A_KIND = 17


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_monitor_and_coordinator_agree_on_every_removal_and_at_every_quiet_moment(driver, kind):
    removals = looks = 0
    for seed in range(1, LIVES_OF_A_KIND + 1):
        life = driver.play(draw(kind, seed))
        judgement = judge(life)
        assert [*map(str, judgement.disagreements), *life.trouble()] == [], f"{kind}/{seed}"
        looks += judgement.compared["looks"]
        removals += judgement.compared[SESSION_EXPIRED] + judgement.compared[REBALANCE_TIMEOUT]
    assert removals > 0
    assert looks > 10 * LIVES_OF_A_KIND


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("mixed", 9701622),  # a JoinGroup replaced a static member, and was answered 27 because the conversion failed
        ("static+stalls", 9702547),  # a fenced member's second request hid that its JoinGroup had been pending
        ("regex+stalls", 9701977),  # a heartbeat that waited was answered 0 as the stall ended
    ],
)
def test_a_life_that_was_once_judged_wrong_is_judged_right(driver, kind, seed):
    """The smallest lives that show these faults have no other removal, so they are played whole."""
    assert [*map(str, judge(driver.play(draw(kind, seed))).disagreements)] == []


@pytest.mark.parametrize(("listed", "too_many"), [(5, False), (6, True)])
def test_lives_are_wrong_if_too_many_removals_are_called_undecidable(listed, too_many):
    lives = [Played("classic/1", 60_000, 9, True, Counter({SESSION_EXPIRED: 100}), listed=Counter({"a class": listed}))]
    assert lists_too_many(lives) is too_many
    assert ("which is wrong" in summary(lives, 1, 1)) is too_many


ENDLESS = """
from concurrent.futures import ProcessPoolExecutor
from os import getpid
from tests.oracle.lives import end_with_parent
with ProcessPoolExecutor(1, initializer=end_with_parent) as pool:
    print(pool.submit(getpid).result(), flush=True)
    input()
"""


def test_workers_end_when_their_parent_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline().strip().isdigit()
        parent.kill()
        assert parent.stdout.read() == ""  # up to the end of the file, which comes when the worker has ended too

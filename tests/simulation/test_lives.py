"""Lives drawn by seed: the same again, right, and shrunk where they are not."""

import pytest

from tests.simulation.lives import MACHINES, failure, life, shrunk
from tests.simulation.test_classic_group import ClassicGroupMachine

STEPS = 100


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_seed_draws_the_same_life_again(machine):
    drawn = [[str(step) for step in life(machine, seed, STEPS)] for seed in (7, 7, 8)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("seed", [15, 323, 393, 708])
def test_classic_lives_that_were_told_wrong_once_are_told_right(seed):
    assert failure(ClassicGroupMachine, life(ClassicGroupMachine, seed, STEPS)) is None


class Forgetful(ClassicGroupMachine):
    """Wrong once somebody is dead and somebody was removed."""

    killed = False

    def compare(self):
        self.killed = self.killed or any(not client.alive for client in self.clients)
        assert not (self.killed and self.group.removals), "wrong"


def test_a_failure_is_shrunk_to_the_steps_that_it_needs():
    steps = life(Forgetful, 3, STEPS)
    wrong = failure(Forgetful, steps)
    assert wrong is not None
    fewer = shrunk(Forgetful, steps, wrong)
    assert failure(Forgetful, fewer) is not None
    assert fewer[0] is steps[0]
    assert len(fewer) <= 6 < len(steps)

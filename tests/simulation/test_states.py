"""docs/states.md shows what the simulated coordinators do, and they do everything that Kafka allows."""

from tests.simulation.classic import VALID_FROM
from tests.simulation.states import LIVES, PAGE, classic_life, page

DEAD_WITH_MEMBERS = 3
"""Of Kafka's transitions, those to Dead with members: a partition moved away, or an upgrade to KIP-848."""


def test_the_page_is_what_the_simulation_does():
    assert PAGE.read_text() == page(), "run python -m tests.simulation.states"


def test_every_transition_of_a_classic_group_is_played():
    seen = {(t.before, t.after) for seed in range(LIVES) for t in classic_life(seed)}
    missing = {(b, a) for a, befores in VALID_FROM.items() for b in befores} - seen
    assert {after for _, after in missing} == {"Dead"}
    assert len(missing) == DEAD_WITH_MEMBERS

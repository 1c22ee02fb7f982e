"""What a step of a broker's clock makes uncertain, and that a life is read by a clock that never steps."""

import pytest

from streaming.embedded.truth import SESSION_EXPIRED
from tests.oracle.clock_steps import is_of_steps, steps_after, unseen_ms
from tests.oracle.life import Life
from tests.oracle.plans import Client, Event, Plan

START_MS = 1_764_547_200_000
SESSION_MS = 6_000


def plan(*steps):
    events = tuple(Event(at_ms, "step-clock", "1", {"by_ms": by_ms}) for at_ms, by_ms in steps)
    return Plan(1, "classic+steps", 90_000, (Client("c", "classic", session_ms=SESSION_MS),), events)


@pytest.mark.parametrize(
    ("steps", "span"),
    [
        ([], (0, 0)),
        ([(15_000, 5_000)], (-5_000, 0)),
        ([(15_000, -5_000)], (0, 5_000)),
        ([(13_000, 5_000), (15_000, -1_000)], (-4_000, 1_000)),
        ([(15_000, 30_000)], (0, 0)),  # it is seen
        ([(9_000, 5_000)], (0, 0)),  # before the session
        ([(21_000, 5_000)], (0, 0)),  # after its end
    ],
)
def test_an_unseen_step_in_a_session_makes_its_end_uncertain_by(steps, span):
    assert unseen_ms(plan(*steps), START_MS + 16_000, SESSION_MS) == span


def test_a_removal_is_reported_by_the_clock_before_or_after_a_step_that_follows_it():
    assert steps_after(plan((17_000, 30_000), (40_000, 200)), START_MS + 16_000) == (0, 30_000)


@pytest.mark.parametrize(("moved_ms", "is_it"), [(30_400, True), (3_630_900, True), (-30_400, True), (9_000, False)])
def test_a_deadline_that_moves_as_far_as_steps_is_the_same_one(moved_ms, is_it):
    assert is_of_steps([30_000, 3_600_000], moved_ms) is is_it


def read(made, life_ms, stepped_ms, member):
    message = f"[GroupCoordinator id=1] Member {member} in group g has failed, removing it from the group."
    row = {"broker": 1, "timestamp_ms": life_ms + stepped_ms, "life_ms": life_ms, "level": "INFO", "logger": "k"}
    made.read_log(row | {"message": message})


def test_how_far_a_clock_had_stepped_is_known_for_each_line_of_the_log():
    made = Life(plan((20_000, -3_600_000)))
    read(made, START_MS + 10_000, 0, "c-1")
    read(made, START_MS + 30_000, -3_600_000, "c-2")
    assert [(event.kind, made.stepped[event]) for event in made.truth] == [
        (SESSION_EXPIRED, 0),
        (SESSION_EXPIRED, -3_600_000),
    ]

"""The shrinker keeps what makes a life wrong, and nothing else. This needs no coordinator."""

import pytest

from tests.oracle.kept import keep, load
from tests.oracle.kinds import ALL_KINDS, draw
from tests.oracle.shrink import shrink


def wrong_if_two_are_killed(plan):
    killed = {event.who for event in plan.events if event.do == "kill" and event.at_ms < plan.until_ms}
    started = {event.who for event in plan.events if event.do == "start"}
    return [("missing", "session-expired")] if len(killed & started) >= 2 else []


def test_a_shrunk_life_keeps_only_what_makes_it_wrong():
    small = shrink(draw("static+moves", 8), wrong_if_two_are_killed)
    assert sorted(event.do for event in small.events) == ["kill", "kill", "start", "start"]
    assert len(small.clients) == 2
    assert small.until_ms < draw("static+moves", 8).until_ms


def test_a_life_that_is_right_is_not_shrunk():
    with pytest.raises(ValueError, match="is not wrong"):
        shrink(draw("classic", 1), lambda _: [])


def test_a_life_is_shrunk_in_the_way_that_is_wanted():
    """The life is wrong in two ways: one needs two killed clients, the other any client at all."""

    def wrong(plan):
        return [*wrong_if_two_are_killed(plan), *([("off", "session-expired")] if plan.clients else [])]

    small = shrink(draw("static+moves", 8), wrong, ("off", "session-expired"))
    assert len(small.events) <= 1
    with pytest.raises(ValueError, match="is not wrong as extra/session-expired"):
        shrink(draw("static+moves", 8), wrong, ("extra", "session-expired"))


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_plan_is_the_same_each_time_and_after_it_was_kept(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.oracle.kept.FOLDER", tmp_path)
    plan = draw(kind, 3)
    assert plan == draw(kind, 3)
    assert plan != draw(kind, 4)
    assert load(keep("a-life", plan, [])).plan == plan

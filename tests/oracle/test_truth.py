"""Telemetry that is lost, late or doubled accuses nobody falsely: some lives, always the same."""

import pytest

from tests.oracle.driver import Driver, why_not
from tests.oracle.kinds import draw
from tests.oracle.truth import KINDS, count

NO_FALSE_WORD = [
    "as played",
    "1 % of lines lost",
    "2 % lost in bursts of 0.3-2 s",
    "30 s sent again after 5 s",
    "late by 15 s",
]
SEED = 1


@pytest.fixture(scope="module")
def lives():
    if missing := why_not():
        pytest.skip(missing)
    with Driver() as driver:
        return [driver.play(draw(kind, SEED)) for kind in KINDS.split(",")]


@pytest.mark.parametrize("name", NO_FALSE_WORD)
def test_nobody_is_accused_falsely_though_telemetry_is_bad(lives, name):
    counted = {life.plan.kind: count(life, name) for life in lives}
    assert sum(each["true"] + each["off"] for each in counted.values()) > 10
    assert {kind: each["false"] for kind, each in counted.items() if each["false"]} == {}

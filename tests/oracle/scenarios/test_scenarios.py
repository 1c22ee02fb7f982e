"""Every scenario of Kafka's own `GroupMetadataManagerTest` that leaves something visible, judged as a life is.

A scenario shows little beside its one point. So after its end the clock runs on for two minutes without clients: every
session that the coordinator has left then ends, and is judged too.
"""

from collections import Counter, defaultdict

import pytest

from streaming.embedded.truth import REBALANCE_TIMEOUT, SESSION_EXPIRED
from tests.oracle.scenarios.record import Scenario, record, why_not
from tests.oracle.scenarios.verdicts import BY_HAND, CLASSES, INVISIBLE, JUDGED, compared, wrong

NEVER_RIGHT = {"extra", "refuted", "crash"}


@pytest.fixture(scope="module")
def scenarios() -> dict[str, list[Scenario]]:
    """The scenarios of each test method: several if it has parameters, or builds several coordinators."""
    if missing := why_not():
        pytest.skip(missing)
    by_method = defaultdict(list)
    for scenario in record().values():
        by_method[scenario.method].append(scenario)
    return dict(by_method)


def test_every_scenario_is_classified_once(scenarios):
    listed = Counter(method for methods in CLASSES.values() for method in methods)
    assert [method for method, times in listed.items() if times > 1] == []
    assert sorted(set(scenarios) - set(listed)) == [], "new in Kafka: to be put into one of the lists of classes.toml"
    assert sorted(set(listed) - set(scenarios)) == [], "gone from Kafka"


def test_the_recording_disturbs_no_test_of_kafka(scenarios):
    assert {each.name: each.failure for them in scenarios.values() for each in them if each.failure} == {}


@pytest.mark.parametrize("method", CLASSES[JUDGED])
def test_the_monitor_agrees_with_the_coordinator_in(scenarios, method):
    for scenario in scenarios[method]:
        assert scenario.is_visible
        assert [str(each) for each in wrong(scenario)] == [], scenario.name


@pytest.mark.parametrize("method", CLASSES[INVISIBLE])
def test_nothing_is_visible_from_outside_of(scenarios, method):
    assert [scenario.name for scenario in scenarios[method] if scenario.is_visible] == []


@pytest.mark.parametrize("method", CLASSES[BY_HAND])
def test_nobody_is_accused_falsely_in(scenarios, method):
    found = [each for scenario in scenarios[method] for each in wrong(scenario)]
    assert found, "listed in vain"
    assert [str(each) for each in found if each.what in NEVER_RIGHT] == []


def test_enough_was_compared(scenarios):
    counted = compared([scenario for them in scenarios.values() for scenario in them])
    assert counted[SESSION_EXPIRED] > 280
    assert counted[REBALANCE_TIMEOUT] > 40
    assert counted["looks"] > 1_500
    assert counted["unknown"] < (counted[SESSION_EXPIRED] + counted[REBALANCE_TIMEOUT]) // 10

"""Captures of real clusters whose telemetry is lost, late or misdated: nobody is accused falsely, and nobody is paged.

`make capture-truth` tries every perturbation on every capture; these take seconds.
"""

from collections import Counter

import pytest

from tests.oracle.capture_truth import count

SMALL = ("kills", "failover", "broker", "java")
TRIED = (
    "as played",
    "5 % of lines lost",
    "off for 20 s",
    "every second heartbeat",
    "leave lines lost",
    "join lines lost",
    "no probe",
    "late by 15 s",
    "no record keys",
)
# captures in which bad telemetry once led to a false report, what was bad, and how many true reports are left at least
ONCE_FALSE = (
    ("chaos-both-sources", "heartbeat lines lost", 65),
    ("chaos-both-sources", "instants off by up to 200 ms", 65),
    ("chaos-one-broker", "5 % of lines lost", 40),
    ("chaos-one-broker", "instants of a flush every second", 17),
    ("chaos-one-broker", "leave lines lost", 50),
    ("chaos-one-broker", "off for 60 s", 21),
    ("chaos-one-broker", "one of several brokers off for 60 s", 21),
    ("chaos-three-brokers", "leave lines lost", 66),
    ("chaos-three-brokers", "off for 20 s", 60),
    ("frozen-groups", "instants of a flush every second", 45),
    ("frozen-groups", "instants off by up to 200 ms", 70),
    ("frozen-groups", "leave lines lost", 140),
    ("frozen-groups", "no probe", 125),
    ("frozen-groups", "whole seconds", 45),
)


@pytest.mark.parametrize("how", TRIED)
def test_nobody_is_accused_falsely_in_a_capture_with_bad_telemetry(how):
    counted = sum((count(name, how)[0] for name in SMALL), Counter())
    assert counted["true"] + counted["unknown"] > 10
    assert (counted["false"], counted["false pages"]) == (0, 0)


@pytest.mark.parametrize(("name", "how", "least_true"), ONCE_FALSE)
def test_who_was_once_accused_falsely_in_a_capture_is_not_any_more(name, how, least_true):
    counted, listed = count(name, how)
    assert listed == []
    assert counted["true"] >= least_true

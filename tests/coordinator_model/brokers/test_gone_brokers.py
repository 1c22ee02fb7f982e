"""Which silent brokers are forgotten, because they have left the cluster, and which stay to be reported as silent."""

import pytest

from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.brokers.gone_brokers import GONE_MS, forget_gone
from coordinator_model.events import TELEMETRY_RANK, LeaderNamed
from coordinator_model.thresholds import Thresholds

HOUR_MS = 3_600_000
NOW_MS = 10 * GONE_MS
LONG_AGO_MS = NOW_MS - GONE_MS - 1
# the last line of b, who is listed beside the leader a, when metadata said so, what others are heard -> is b kept?
CASES = {
    "it left a day ago": (LONG_AGO_MS, (), NOW_MS, True, False),
    "it has been down for an hour": (NOW_MS - HOUR_MS, (), NOW_MS, True, True),
    "it is listed, only its log is silent": (LONG_AGO_MS, ("b",), NOW_MS, True, True),
    "metadata is as old as its last line": (LONG_AGO_MS, (), LONG_AGO_MS + 5_000, True, True),
    "nobody asks for metadata": (LONG_AGO_MS, (), 0, True, True),
    "all brokers are silent": (LONG_AGO_MS, (), NOW_MS, False, True),
}


@pytest.mark.parametrize("case", CASES)
def test_a_silent_broker_is_kept_unless_it_has_left(case):
    line_ms, others, named_ms, heard, kept = CASES[case]
    clock = CoordinatorTracker()
    for broker, at_ms in (("a", NOW_MS if heard else line_ms), ("b", line_ms)):
        clock.read(broker, "t/0", at_ms)
        clock.advance(broker, at_ms, Thresholds())
    if named_ms:
        clock.named(LeaderNamed(named_ms, TELEMETRY_RANK, "", 0, named_ms, "", 1, "a", others, -1))
    forget_gone(clock)
    assert clock.brokers.keys() == ({"a", "b"} if kept else {"a"})


def test_a_coordinator_is_never_forgotten():
    clock = CoordinatorTracker(coordinator="b")
    clock.read("b", "t/0", LONG_AGO_MS)
    clock.read("a", "t/0", NOW_MS)
    clock.named(LeaderNamed(NOW_MS, TELEMETRY_RANK, "", 0, NOW_MS, "", 1, "a", (), -1))
    forget_gone(clock)
    assert clock.brokers.keys() == {"a", "b"}

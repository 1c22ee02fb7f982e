import time

import pytest

from streaming.run.probe import Probe
from tests.support.waiting import await_true

pytestmark = pytest.mark.e2e


def answers(probe):
    return {node: state.answers for node, state in probe.brokers.items()}


def test_a_broker_that_is_killed_or_paused_silences_no_other(three_brokers):
    """It is asked again once it is back."""
    cluster = three_brokers
    with Probe({"bootstrap_servers": cluster.bootstrap_servers.split(",")}, interval_ms=100) as probe:
        await_true(lambda: len(probe.brokers) == 3 and min(answers(probe).values()) >= 3, answers(probe))
        cluster.node(3).kill()
        before = answers(probe)
        await_true(lambda: all(answers(probe)[node] >= before[node] + 10 for node in (1, 2)), "the others fell silent")
        gone = answers(probe)[3]
        cluster.node(3).start()
        await_true(lambda: answers(probe)[3] >= gone + 3, "the broker that came back on its port is not asked again")
        cluster.node(1).pause()
        before = answers(probe)
        await_true(lambda: answers(probe)[2] >= before[2] + 10, "a paused broker silenced another")
        cluster.node(1).resume()
        await_true(lambda: answers(probe)[1] > before[1] + 1, "a broker that was paused is not asked again")


def test_a_cluster_that_cannot_be_reached_is_tried_again(broker):
    with Probe({"bootstrap_servers": ["127.0.0.1:1"]}, interval_ms=50) as probe:
        time.sleep(0.3)
        assert probe.brokers == {}

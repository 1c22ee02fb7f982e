import pytest
from kafka.net.manager import KafkaConnectionManager

from streaming.run import probe as probing
from streaming.run.probe import Probe
from tests.support.waiting import await_true


def answers(probe):
    return {node: state.answers for node, state in probe.brokers.items()}


@pytest.mark.e2e
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


def test_a_cluster_that_cannot_be_reached_is_tried_again(monkeypatch):
    attempts, bootstrap = [], KafkaConnectionManager.bootstrap

    def counted(manager, timeout_ms):
        attempts.append(manager)
        return bootstrap(manager, timeout_ms)

    monkeypatch.setattr(KafkaConnectionManager, "bootstrap", counted)
    monkeypatch.setattr(probing, "BOOTSTRAP_TIMEOUT_MS", 100)
    with Probe({"bootstrap_servers": ["127.0.0.1:1"]}) as probe:
        await_true(lambda: len(attempts) > 2, "the first failure ended it")
        assert probe.brokers == {}

from itertools import chain, repeat
from types import SimpleNamespace

import pytest
from kafka.errors import SaslAuthenticationFailedError
from kafka.future import Future
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


class Connections:
    """Stands in for kafka-python's connections to brokers 1 and 2; subclasses spoil what it does."""

    def __init__(self, _net, **_client):
        self.cluster = SimpleNamespace(brokers=lambda: [SimpleNamespace(node_id=node) for node in (1, 2)])

    def bootstrap(self, _timeout_ms):
        """Connect."""

    def auth_failure(self, _node):
        """Return none."""

    def send(self, _request, node_id):
        return Future().success(node_id)

    def close(self):
        """Nothing is open."""


def spoilt(**methods):
    """Connections whose first ones do what these methods say, and whose next ones are good."""
    kinds = chain([type("Spoilt", (Connections,), methods)], repeat(Connections))

    def connect(net, **client):
        return next(kinds)(net, **client)

    return connect


def refused(_connections, node_id):
    return SaslAuthenticationFailedError("not now") if node_id == 2 else None


def raising_the_refusal(connections, _request, node_id):
    if (refusal := refused(connections, node_id)) is not None:
        raise refusal  # as kafka-python does from then on, without asking the broker
    return Future().success(node_id)


def a_bad_answer(*_, **__):
    raise KeyError("endpoint_type")


def no_answer(*_, **__):
    return Future()


def lost(_connections, _node):
    raise RuntimeError("the event loop has ended")


@pytest.mark.parametrize(
    "methods",
    [
        {"auth_failure": refused, "send": raising_the_refusal},
        {"__init__": a_bad_answer},
        {"send": a_bad_answer},
        {"send": no_answer, "auth_failure": lost},
    ],
    ids=["a login refused once", "no connections", "a bad answer", "connections lost with requests on them"],
)
def test_what_fails_once_does_not_end_the_probe(monkeypatch, methods):
    monkeypatch.setattr(probing, "KafkaConnectionManager", spoilt(**methods))
    monkeypatch.setattr(probing, "LOG_IN_AGAIN_S", 0.0)
    with Probe({}, interval_ms=1) as probe:
        await_true(lambda: answers(probe).get(2, 0) > 2, "a broker is not asked any more")

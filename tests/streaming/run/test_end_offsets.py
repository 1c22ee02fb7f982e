"""Rounds of end offsets: what brokers tell, what they do not, and what is made of it."""

import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from pydantic import SecretStr

from coordinator_model.commit_block import NO_OFFSET
from streaming.config.kafka import Kafka
from streaming.run.lag import end_offsets
from streaming.run.lag.end_offsets import EndOffsets
from streaming.run.lag.names import Names
from streaming.run.lag.rounds import NO_ROUND, History, Round
from tests.streaming.run.lag_story import T0, round_of
from tests.support.secured import PASSWORD, USER

PATIENCE_S = 180


@contextmanager
def asking(servers, topics, **client):
    """A way to ask one round after the other."""
    client = {"bootstrap_servers": servers, **client}
    asked = EndOffsets(client, lambda: topics, suspects=lambda: None)
    with KafkaAdminClient(**client) as admin:
        asked.admin = admin

        def ask():
            asked._metadata.asked_s = float("-inf")  # as after half a minute
            return asked.ask(admin._manager, frozenset(topics))

        asked.round = ask
        yield asked


def until(look, enough):
    deadline = time.monotonic() + PATIENCE_S
    while not enough(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def topic_of(told, name):
    place = told.places[name]
    own = slice(place.first, place.first + place.size)
    return [column[own].tolist() for column in (told.ends, told.starts, told.asked_ms)]


def produce(servers, topic, partition, count):
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    producer.flush()


def test_without_an_answer_there_is_no_first_round(monkeypatch):
    monkeypatch.setattr(end_offsets, "TIMEOUT_MS", 200)
    taken = []
    EndOffsets({"bootstrap_servers": "localhost:1"}, list).ask_first(["orders"], taken.append)
    assert taken == []


# ------------------------------------------------------------------------------------------------ on brokers


@pytest.mark.e2e
def test_a_first_round_is_asked_at_once_and_the_next_one_knows_nothing_of_it(broker):
    name, servers = f"t-{uuid.uuid4().hex[:6]}", broker.bootstrap_servers
    broker.create_topic(name, partitions=2)
    produce(servers, name, 1, 5)
    asked, taken = EndOffsets({"bootstrap_servers": servers}, list), []

    def ask():
        asked.ask_first([name], taken.append)
        return topic_of(taken[-1], name)[0] if name in taken[-1].places else None

    until(ask, [0, 5].__eq__)
    assert asked.newest is NO_ROUND


@pytest.mark.e2e
def test_ends_and_starts_of_topics_that_change(broker, monkeypatch):
    monkeypatch.setattr(end_offsets, "PARTITIONS_AT_ONCE", 2)
    name, servers = f"t-{uuid.uuid4().hex[:6]}", broker.bootstrap_servers
    broker.create_topic(name, partitions=3)
    produce(servers, name, 1, 5)
    with asking(servers, [name, "nobody.has.this"]) as asked:
        told = until(asked.round, lambda told: told.places.get(name, ("", 0, 0)).size == 3 and not asked.unanswered)
        assert topic_of(told, name)[:2] == [[0, 5, 0], [0, 0, 0]]
        assert told.stable == {(name, 0): 0, (name, 1): 5, (name, 2): 0}
        assert told.gone == {"nobody.has.this"}
        asked.admin.delete_records({TopicPartition(name, 1): 3})
        asked.admin.create_partitions({name: 4})
        told = until(asked.round, lambda told: told.places[name].size == 4 and not asked.unanswered)
        assert topic_of(told, name)[:2] == [[0, 5, 0, 0], [0, 3, 0, 0]]
        before = told.places[name].topic_id
        asked.admin.delete_topics([name])
        until(asked.round, lambda told: name in told.gone)
        broker.create_topic(name, partitions=1)
        told = until(asked.round, lambda told: name in told.places and not asked.unanswered)
        assert topic_of(told, name)[0] == [0]
        assert told.places[name].topic_id != before


@pytest.mark.e2e
def test_what_is_stable_ends_before_an_open_transaction(broker):
    """A consumer with `read_committed` waits there, however healthy it is."""
    name, servers = f"t-{uuid.uuid4().hex[:6]}", broker.bootstrap_servers
    broker.create_topic(name, partitions=1)
    produce(servers, name, 0, 5)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(name, b"m", partition=0)
    producer.flush()
    with asking(servers, [name]) as asked:
        told = until(asked.round, lambda told: name in told.places and topic_of(told, name)[0] == [8])
        assert told.stable == {(name, 0): 5}
        producer.commit_transaction()
        told = until(asked.round, lambda told: told.stable == {(name, 0): 9})  # with the marker
        assert topic_of(told, name)[0] == [9]


@pytest.mark.e2e
def test_a_topic_that_may_not_be_described_costs_only_itself(secured):
    login = {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": SecretStr(PASSWORD)}
    kafka = Kafka(bootstrap_servers=secured.server("SASL_PLAINTEXT"), security_protocol="SASL_PLAINTEXT", **login)
    for name in ("open-to-all", "secret"):
        secured.cluster.create_topic(name, partitions=1)
    with KafkaAdminClient(bootstrap_servers=secured.cluster.bootstrap_servers) as admin:
        pattern = ResourcePattern(ResourceType.TOPIC, "secret")
        admin.create_acls([ACL(f"User:{USER}", "*", ACLOperation.DESCRIBE, ACLPermissionType.DENY, pattern)])
    client = kafka.python_client()
    with asking(client.pop("bootstrap_servers"), ["open-to-all", "secret"], **client) as asked:
        told = until(asked.round, lambda told: "secret" not in told.places and "open-to-all" in told.places)
        assert topic_of(told, "open-to-all")[0] == [0]
        assert told.unanswered == {"TopicAuthorizationFailedError": 1}


@pytest.mark.e2e
def test_a_leader_that_is_gone_costs_only_the_news_of_its_partitions(three_brokers):
    name, servers = f"t-{uuid.uuid4().hex[:6]}", three_brokers.bootstrap_servers
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics({name: {"num_partitions": 6, "replication_factor": 1}}, wait_for_metadata=True)
    with asking(servers, [name], request_timeout_ms=5_000) as asked:
        first = until(asked.round, lambda told: NO_OFFSET not in told.ends and not asked.unanswered)
        three_brokers.node(3).kill()
        try:
            told = asked.round()
            fresh = topic_of(told, name)[2].count(told.at_ms)
            assert 0 < fresh < 6
            assert topic_of(told, name)[0] == [0] * 6  # as they were
            assert min(topic_of(told, name)[2]) == first.at_ms
        finally:
            three_brokers.node(3).launch()  # rounds go on while it starts: a long time without any is an outage of all
        told = until(asked.round, lambda told: (told.asked_ms == told.at_ms).all())
        three_brokers.node(3).await_ready({1, 2, 3})
        assert sorted((told.answered_since_ms > 0).tolist()) == [False] * fresh + [True] * (6 - fresh)


class LostOnce:
    """A stand-in for the client. Its first connection is lost, as if that broker had just been killed."""

    def __init__(self):
        self.runs = 0

    def run(self, *_):
        self.runs += 1
        if self.runs == 1:
            raise KafkaConnectionError
        return end_offsets._Metadata()


def test_metadata_are_asked_again_after_a_lost_connection():
    """The client chooses the broker that it asks, so a test on real brokers cannot kill that broker on purpose."""
    assert end_offsets._asked_metadata(LostOnce(), frozenset({"t"})).topics == {}


@pytest.mark.e2e
def test_the_thread_asks_again_and_again_and_ends(broker):
    name = f"t-{uuid.uuid4().hex[:6]}"
    broker.create_topic(name, partitions=1)
    taken = []
    client = {"bootstrap_servers": broker.bootstrap_servers}
    with EndOffsets(client, lambda: [name, "no topic's name"], take=taken.append, every_s=0.1) as asked:
        until(lambda: len(taken), lambda rounds: rounds > 2)
    assert not asked._thread.is_alive()
    assert {*taken[-1].places, *taken[-1].gone} == {name}


def test_no_broker_is_no_error():
    with EndOffsets({"bootstrap_servers": "127.0.0.1:1"}, lambda: ["orders"], every_s=0.1) as asked:
        assert asked.newest.at_ms == 0
    assert not asked._thread.is_alive()


def test_a_leader_that_refused_the_login_once_is_asked_on_new_connections(monkeypatch):
    """kafka-python raises its refusal from then on, without asking it."""
    made, two = [], threading.Event()

    def connect(**_client):
        made.append(SimpleNamespace(_manager=RefusedOnce() if not made else AllAnswer(), close=lambda: None))
        if len(made) > 1:
            two.set()
        return made[-1]

    monkeypatch.setattr(end_offsets, "KafkaAdminClient", connect)
    monkeypatch.setattr(end_offsets, "LOOK_EVERY_S", 0.0)
    with EndOffsets({}, list):
        assert two.wait(PATIENCE_S), "the client is kept although it never asks the leader again"


def test_of_very_many_topics_a_bounded_number_is_asked_for(monkeypatch):
    """Members may claim any number of topics that do not exist."""
    asked, once = [], threading.Event()

    def ask(_self, _manager, topics):
        asked.append(topics)
        once.set()

    client = SimpleNamespace(_manager=AllAnswer(), close=lambda: None)
    monkeypatch.setattr(end_offsets, "KafkaAdminClient", lambda **_: client)
    monkeypatch.setattr(end_offsets, "MAX_TOPICS", 2)
    monkeypatch.setattr(EndOffsets, "ask", ask)
    with EndOffsets({}, lambda: ["no topic's name", "c", "a", "b"]):
        assert once.wait(PATIENCE_S)
    assert asked[0] == {"c", "a"}


def test_topics_that_are_not_asked_for_are_counted_in_each_round(monkeypatch):
    monkeypatch.setattr(end_offsets, "MAX_TOPICS", 2)
    topics = ["orders", "no topic's name", "bills", "claimed", "claimed-too"]
    many = EndOffsets({}, lambda: topics)
    many._metadata = end_offsets._Metadata(
        {"orders": end_offsets._Topic(None, [1])}, frozenset({"orders", "bills"}), asked_s=time.monotonic()
    )
    told = [many._asked(AllAnswer(), many._topics_to_ask_for()).unanswered for _ in range(2)]
    assert told == [{"TooManyTopics": 2}, {"TooManyTopics": 2}]
    assert not many._metadata_is_old(frozenset({"orders", "bills"})), "metadata are asked again in each round"
    topics[3:] = []
    assert many._asked(AllAnswer(), many._topics_to_ask_for()).unanswered == {}


class RefusedOnce:
    """Connections that remember that broker 1 has refused the login."""

    cluster = SimpleNamespace(brokers=lambda: [SimpleNamespace(node_id=1)])

    def auth_failure(self, _node):
        return SaslAuthenticationFailedError("not now")


# ------------------------------------------------------------------------------------------------ history


@pytest.mark.parametrize("kept", [True, False])
def test_who_had_no_answer_before_a_restart_is_known_after_it(kept):
    """Partition 1 had none in the last round, partition 2 has been back for a minute; an hour later all answer."""
    last = round_of(T0, {"orders": [50, 3, 7]})
    last = replace(last, asked_ms=last.asked_ms - [0, 10_000, 0], answered_since_ms=np.array([0, 0, T0 - 60_000]))
    again = EndOffsets({}, list, kept=Round.load(last.dump()) if kept else NO_ROUND)
    topic = end_offsets._Topic("id-of-orders", [1, 1, 1])
    again._metadata = end_offsets._Metadata({"orders": topic}, frozenset({"orders"}), asked_s=time.monotonic())
    told = again._asked(AllAnswer(), frozenset({"orders"}))
    assert told.answered_since_ms.tolist() == ([0, told.at_ms, T0 - 60_000] if kept else [0, 0, 0])


class AllAnswer:
    """Brokers that tell all end offsets."""

    cluster = SimpleNamespace(brokers=list)

    def run(self, _ask, _manager, columns):
        columns.ends[:], columns.starts[:] = 60, 0


def waits(history, *places):
    """Since when messages wait: (topic, partition, committed offset)."""
    names = Names()
    topics = np.array([names.use(topic) for topic, _, _ in places], np.int32)
    partitions = np.array([partition for _, partition, _ in places], np.int32)
    committed = np.array([offset for _, _, offset in places], np.int64)
    return history.waits_since_ms(names, topics, partitions, committed).tolist()


def test_earlier_rounds_are_few_and_tell_an_instant_to_a_part_of_its_age():
    history = History()
    now_ms = T0 + 3 * 86_400_000
    for at_ms in range(T0, now_ms, 10_000):
        history.add(round_of(at_ms, {"orders": [(at_ms - T0) // 10_000]}))
    assert len(history.rounds) < 100
    for age in (1, 2, 5, 60, 360, 8_640, 20_000):
        [since_ms] = waits(history, ("orders", 0, 3 * 8_640 - 1 - age))
        assert age * 10_000 * (1 - 1 / 6) - 10_000 <= now_ms - since_ms <= age * 10_000


def test_a_topic_that_was_recreated_has_no_earlier_rounds():
    history = History()
    history.add(round_of(T0, {"orders": [50], "bills": [5]}))
    history.add(round_of(T0 + 10_000, {"orders": [50], "bills": [5]}, ids={"orders": "new"}))
    assert waits(history, ("orders", 0, 3), ("bills", 0, 3), ("unknown", 0, 3), ("bills", 7, 3)) == [
        T0 + 10_000,
        T0,
        0,
        0,
    ]


def test_rounds_outlive_a_restart():
    history = History()
    history.add(round_of(T0, {"orders": [40, None]}))
    history.add(round_of(T0 + 10_000, {"orders": [50, 3]}))
    again = History.load(history.dump())
    places = (("orders", 0, 40), ("orders", 0, 30), ("orders", 1, 0))
    assert waits(again, *places) == waits(history, *places) == [T0 + 10_000, T0, T0 + 10_000]

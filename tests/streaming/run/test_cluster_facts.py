"""What the log does not hold: names of topic ids, session timeouts of brokers and groups."""

import json
from types import SimpleNamespace
from uuid import UUID

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, KafkaTimeoutError

from coordinator_model.decode.parse import parse_row
from coordinator_model.decode.topic_ids import id_of, text_of
from coordinator_model.group_report import GroupReport
from coordinator_model.shard.shard import Shard, ShardSettings
from streaming.config.settings import Settings
from streaming.run import cluster_facts
from streaming.run.catch_up import CatchUp
from streaming.run.cluster_facts import ASK_AGAIN_S, TopicNames, ask_topic_names, read_session_timeouts
from streaming.run.cluster_watch import ClusterWatch
from streaming.run.lag.group_lags import GroupLags
from streaming.run.live_keys import LiveKeys
from streaming.run.sink import Sink
from streaming.store import Store
from streaming.store.lease import Lease
from tests.support.story import TOPIC_ID, TOPIC_ID_TEXT, consumers
from tests.support.waiting import await_true

OTHER = text_of(UUID(int=7))


def report(*topics, type_="consumer"):
    """A report of one member that owns partition 0 of these topics, and of a finding about them."""
    owned = [{"topic": topic, "partitions": [0]} for topic in topics]
    waits = [{"member_id": "m2", "partitions": [[topic, 0] for topic in topics]}]
    member = {"member_id": "m1", "assignment": owned, "target": [dict(row) for row in owned], "waits_for": waits}
    finding = {"rule": "session-expired", "partitions": [[topic, 0] for topic in topics]}
    view = {"type": type_, "members": [member]}
    return GroupReport(cluster="c", group="g", at_ms=1, view=view, findings=[finding])


def names_in(output):
    member = output.view["members"][0]
    rows = [row["topic"] for name in ("assignment", "target") for row in member[name]]
    pairs = [*member["waits_for"][0]["partitions"], *output.findings[0]["partitions"]]
    return {*rows, *(topic for topic, _ in pairs)}


class Cluster:
    """Answers what a cluster would, and counts."""

    def __init__(self, error=None, **names):
        self.names, self.error, self.asked, self.now_s = names, error, [], 0.0

    def ask(self, ids):
        self.asked.append({text_of(topic_id) for topic_id in ids})
        if self.error:
            raise self.error
        return {text: name for text, name in self.names.items() if text in self.asked[-1]}

    def resolver(self):
        return TopicNames(self.ask, lambda: self.now_s)


def test_ids_become_names_wherever_a_report_names_topics():
    output = report(TOPIC_ID_TEXT)
    Cluster(**{TOPIC_ID_TEXT: "orders"}).resolver().resolve([output])
    assert names_in(output) == {"orders"}


def test_an_id_is_asked_for_once():
    cluster = Cluster(**{TOPIC_ID_TEXT: "orders"})
    resolver = cluster.resolver()
    for _ in range(3):
        resolver.resolve([report(TOPIC_ID_TEXT)])
    assert cluster.asked == [{TOPIC_ID_TEXT}]


def test_an_unknown_id_stays_an_id_and_is_asked_for_again_after_a_while():
    cluster, output = Cluster(**{TOPIC_ID_TEXT: "orders"}), report(OTHER)
    resolver = cluster.resolver()
    resolver.resolve([output])
    resolver.resolve([report(OTHER)])
    assert names_in(output) == {OTHER}
    cluster.names[OTHER], cluster.now_s = "late", ASK_AGAIN_S
    resolver.resolve([output])
    assert names_in(output) == {"late"}
    assert cluster.asked == [{OTHER}, {OTHER}]


@pytest.mark.parametrize("error", [KafkaTimeoutError(), KeyError("topics")], ids=["none", "one that is no answer"])
def test_a_cluster_without_an_answer_leaves_ids(error):
    """It fails no batch: eight failures end `run`."""
    output = report(TOPIC_ID_TEXT)
    Cluster(error).resolver().resolve([output])
    assert names_in(output) == {TOPIC_ID_TEXT}


def test_no_batch_waits_long_for_names(monkeypatch):
    """Neither for an answer nor for a broker: kafka-python looks for one for 30 s, and then `run` looks dead."""
    given = {}

    def connect(**client):
        given.update(client)
        raise KafkaTimeoutError

    monkeypatch.setattr(cluster_facts, "KafkaAdminClient", connect)
    with pytest.raises(KafkaTimeoutError):
        ask_topic_names({"bootstrap_servers": "b:9092", "request_timeout_ms": 40_000}, [TOPIC_ID])
    assert given == {"bootstrap_servers": "b:9092", "request_timeout_ms": 5_000, "bootstrap_timeout_ms": 5_000}


def test_a_classic_groups_topic_that_looks_like_an_id_is_a_name():
    cluster = Cluster(**{TOPIC_ID_TEXT: "orders"})
    output = report(TOPIC_ID_TEXT, type_="classic")
    cluster.resolver().resolve([output])
    assert (names_in(output), cluster.asked) == ({TOPIC_ID_TEXT}, [])


@pytest.mark.parametrize("text", ["orders", "", "a" * 23, "!" * 22, "AQIDBAUGBwgJCgsMDQ4PEB", "é" * 22])
def test_what_is_no_id_is_a_name(text):
    assert id_of(text) is None


def test_an_id_is_read_as_kafka_prints_it():
    assert (id_of(TOPIC_ID_TEXT), text_of(TOPIC_ID)) == (TOPIC_ID, TOPIC_ID_TEXT)


class Frame:
    """A batch's rows as Spark hands them to the sink."""

    def __init__(self, outputs):
        self.outputs = outputs

    def collect(self):
        return [SimpleNamespace(key="0", outputs=json.dumps(self.outputs))]


def test_the_sink_stores_a_kip_848_group_with_the_names_of_its_topics(tmp_path):
    rows = consumers("m1").current(200, "m1", 2, partitions=(0, 3)).source_rows(300)
    events = [event for row in rows for event in parse_row(row)]
    shard = Shard.restore(0, ShardSettings(cluster="default", partitions=1, live_from_ms=0), None)
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    resolver = Cluster(**{TOPIC_ID_TEXT: "orders"}).resolver()
    watch, lease = ClusterWatch({}, "offsets", "nonce", print), Lease(store.engine, "default")
    lags = GroupLags("default", tmp_path / "lag")
    keys = LiveKeys(tmp_path / "keys")
    sink = Sink(store, Settings(), "c", -1, keys, resolver, watch, lease, lags, CatchUp({}), tmp_path)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()  # what Spark plans before it makes a batch
    sink(Frame(shard.apply(events, final=True)), 0)
    [member] = store.read.group("default", "orders")["members"]
    store.close()
    assert member["assignment"] == [{"topic": "orders", "partitions": [0, 3]}]


@pytest.mark.e2e
def test_a_broker_tells_the_names_of_ids_and_nothing_of_ids_it_does_not_know(broker):
    broker.create_topic("named-by-id", partitions=1)
    client = {"bootstrap_servers": broker.bootstrap_servers}
    with_topics = KafkaAdminClient(**client)
    [topic] = with_topics.describe_topics(["named-by-id"])
    with_topics.close()
    topic_id = UUID(str(topic["topic_id"]))
    assert ask_topic_names(client, [topic_id, UUID(int=7)]) == {text_of(topic_id): "named-by-id"}


class Admin:
    """An admin client of brokers 3 and 1, each with its own default for consumers, and none that may be read."""

    def __init__(self, **_client):
        self.brokers = [{"broker_id": 3}, {"broker_id": 1}]

    def describe_cluster(self):
        return {"brokers": self.brokers}

    def list_config_resources(self, _kinds):
        return {"GROUP": ["slow"]}

    def describe_configs(self, resources, config_filter):
        [resource] = resources
        consumer = {"1": "45000", "3": "30000", "slow": "50000"}[resource.name]
        prefix = "group." if config_filter == "all" else ""
        values = {f"{prefix}consumer.session.timeout.ms": {"value": consumer}}
        return {"any": {resource.name: values | {f"{prefix}share.session.timeout.ms": {"value": None}}}}

    def close(self):
        """Nothing is open."""


def test_one_broker_tells_the_defaults_and_what_cannot_be_read_is_left_out(monkeypatch):
    monkeypatch.setattr(cluster_facts, "KafkaAdminClient", Admin)
    timeouts = read_session_timeouts({})
    assert (timeouts.consumer, timeouts.share) == ({"": 45_000, "slow": 50_000}, {})


def test_a_cluster_with_fenced_brokers_only_does_not_answer(monkeypatch):
    admin = Admin()
    admin.brokers = [{"broker_id": 3, "is_fenced": True}]
    monkeypatch.setattr(cluster_facts, "KafkaAdminClient", lambda **_: admin)
    with pytest.raises(KafkaError):
        read_session_timeouts({})


@pytest.mark.e2e
def test_brokers_and_groups_tell_their_session_timeouts(broker):
    client = {"bootstrap_servers": broker.bootstrap_servers}
    assert read_session_timeouts(client).share == {"": 45_000}
    admin = KafkaAdminClient(**client)
    for group, key in (("slow", "consumer.session.timeout.ms"), ("shared", "share.session.timeout.ms")):
        admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, group, {key: "50000"})])
    admin.close()
    # The controller answers before the brokers, which are asked, have applied a change.
    await_true(lambda: read_session_timeouts(client).share == {"": 45_000, "shared": 50_000})
    timeouts = read_session_timeouts(client)
    assert timeouts.consumer == {"": 45_000, "slow": 50_000}
    assert timeouts.streams == {"": 45_000}

"""Lag beside what a real broker says when it is asked directly: classic, KIP-848 and simple groups, through changes."""

import json
import time
from contextlib import ExitStack, closing
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError, UnknownBrokerIdError
from kafka.structs import OffsetAndMetadata

from streaming.embedded import EmbeddedCluster
from tests.e2e.clients import Client, Spec
from tests.streaming.run.conftest import Monitor
from tests.support.parts import skip_without_broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

GROUPS = ("classic", "modern", "simple")
BUSY_MS = 600_000  # no poll is ever missed: who stalls keeps its partitions
SESSION_MS = 20_000  # nor a session while Spark starts, on a busy machine


@pytest.fixture
def broker():
    skip_without_broker()
    with EmbeddedCluster(properties={"group.initial.rebalance.delay.ms": "0"}) as cluster:
        yield cluster


@pytest.fixture
def three_brokers():
    """Three brokers, of which one coordinates all groups."""
    skip_without_broker()
    properties = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with EmbeddedCluster(nodes=3, properties=properties) as cluster:
        yield cluster


class World:
    """A broker or three, their clients, and the monitor beside them."""

    def __init__(self, broker, stack):
        self.broker, self._stack = broker, stack
        self.producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all", metadata_max_age_ms=1_000)
        stack.callback(self.producer.close)

    def client(self, software, group, *topics):
        name = f"{group}-{time.monotonic_ns()}"
        spec = Spec(software, group, name, topics, session_timeout_ms=SESSION_MS, max_poll_interval_ms=BUSY_MS)
        client = Client(spec, self.broker.bootstrap_servers, lambda *_: None)
        self._stack.callback(client.end)
        client.wait_for("assigned")
        return client

    def monitor(self, folder):
        topics = SimpleNamespace(broker=self.broker, records="__consumer_offsets", lines="group-telemetry")
        monitor = Monitor(topics, folder).start()
        self._stack.callback(monitor.kill)
        return monitor

    def leaders(self, topic):
        """The leader of each partition of a topic; nothing while brokers cannot say."""
        try:
            with self.admin() as admin:
                [told] = admin.describe_topics([topic])
        except KafkaError:
            return []
        return [partition["leader_id"] for partition in told["partitions"]]

    def produce(self, topic, partitions, count):
        for number in range(count):
            for partition in range(partitions):
                self.producer.send(topic, b"%d" % number, partition=partition)
        self.producer.flush()

    def commit_alone(self, **offsets):
        """Commit as a simple group does: assigned by itself, no member; one partition of each topic."""
        parts = {TopicPartition(topic, 0): OffsetAndMetadata(at, "by hand", -1) for topic, at in offsets.items()}
        servers = self.broker.bootstrap_servers
        with closing(KafkaConsumer(bootstrap_servers=servers, group_id="simple", enable_auto_commit=False)) as consumer:
            consumer.assign(list(parts))
            consumer.commit(parts)

    def admin(self):
        return KafkaAdminClient(bootstrap_servers=self.broker.bootstrap_servers)

    def truth(self):
        """Committed and end offset by group, topic and partition; nothing while the broker cannot say."""
        try:
            return self._asked()
        except UnknownBrokerIdError:  # -1: a partition has no leader
            return {}
        except KafkaError as error:  # it loads the groups, or their leaders are away
            if not error.retriable:
                raise
            return {}

    def _asked(self):
        with self.admin() as admin:
            committed = admin.list_group_offsets(dict.fromkeys(GROUPS))
            places = {place for told in committed.values() for place in told}
            ends = admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
        return {
            (group, place.topic, place.partition): (told.offset, ends[place].offset)
            for group in GROUPS
            for place, told in committed[group].items()
        }


def shown(monitor):
    """The same as the monitor tells it, and each lag: only of groups that are shown."""
    told = {}
    for group, body in monitor.rows("SELECT l.group_id, l.body FROM lags l JOIN groups g USING (group_key)"):
        columns = json.loads(body)
        topics = [name for name, _, rows in columns["topics"] for _ in range(rows)]
        names = ("partition", "committed_offset", "end_offset", "lag")
        for topic, partition, committed, end, lag in zip(topics, *(columns[name] for name in names), strict=True):
            if committed is not None and group in GROUPS:
                told[group, topic, partition] = (committed, end, lag)
    return told


def agrees(monitor, world):
    """Wait until the monitor tells what the broker does of every partition; returns it."""

    def both():
        truth = {place: (committed, end, end - committed) for place, (committed, end) in world.truth().items()}
        return truth, shown(monitor)

    return monitor.until(both, lambda found: found[0] == found[1] != {}, "the broker's lags, and ours")[0]


def test_lag_is_the_brokers_end_less_the_commit(broker, tmp_path):
    with ExitStack() as stack:
        world = World(broker, stack)
        broker.create_topic("orders", partitions=3)
        broker.create_topic("bills", partitions=2)
        world.produce("orders", 3, 40)
        first, second = (world.client("confluent", "classic", "orders") for _ in range(2))
        modern = world.client("confluent-848", "modern", "orders", "bills")
        world.produce("bills", 2, 7)
        world.commit_alone(orders=11, bills=3)
        monitor = world.monitor(tmp_path)
        told = agrees(monitor, world)
        assert len(told) == 3 + 5 + 2
        assert told["simple", "orders", 0] == (11, 40, 29)

        monitor.until(lambda: (first.assigned, second.assigned), all, "both members have their partitions")
        first.stall(600)  # alive, and reads nothing: its lag is that of a member that has its partitions
        first.wait_for("stalled")
        world.produce("orders", 3, 5)
        told = agrees(monitor, world)
        lag = max(lag for (group, *_), (*_, lag) in told.items() if group == "classic")
        assert lag >= 5, (told, first.events, second.events)

        first.kill()  # a rebalance: the other one takes all
        told = monitor.until(
            lambda: shown(monitor),
            lambda told: all(lag == 0 for (group, *_), (*_, lag) in told.items() if group == "classic"),
            "the other member has read what the first one left",
        )
        agrees(monitor, world)

        broker.node(1).stop()
        broker.node(1).start()
        world.produce("orders", 3, 2)
        second.kill()
        world.produce("orders", 3, 2)
        agrees(monitor, world)

        with world.admin() as admin:
            admin.create_partitions({"bills": 4})
        monitor.until(lambda: world.producer.partitions_for("bills"), lambda found: len(found) == 4, "new partitions")
        world.produce("bills", 4, 3)
        monitor.until(world.truth, lambda truth: ("modern", "bills", 3) in truth, "the new ones are read")
        assert ("modern", "bills", 3) in agrees(monitor, world)
        monitor.said("topics in use have other partitions")  # the shards learn it too, by a new start of the query
        world.produce("orders", 3, 1)
        agrees(monitor, world)

        modern.kill()
        with world.admin() as admin:
            admin.delete_topics(["bills"])
        told = monitor.until(
            lambda: shown(monitor),
            lambda told: not any(topic == "bills" for _, topic, _ in told),
            "a topic that was deleted is gone",
        )
        assert {group for group, *_ in told} == set(GROUPS)
        assert monitor.rows("SELECT count(*) FROM incidents WHERE rule = 'offsets-lost'") == [(0,)]


def test_lag_is_the_next_leaders_end_less_the_commit_after_a_failover(three_brokers, tmp_path):
    """The broker that coordinates all groups, and leads a partition of each topic, dies."""
    with ExitStack() as stack:
        world = World(three_brokers, stack)
        three_brokers.create_topic("orders", partitions=3)
        world.produce("orders", 3, 10)
        first, second = (world.client("confluent", "classic", "orders") for _ in range(2))
        world.client("confluent-848", "modern", "orders")
        world.commit_alone(orders=4)
        monitor = world.monitor(tmp_path)
        assert len(agrees(monitor, world)) == 3 + 3 + 1

        monitor.until(lambda: (first.assigned, second.assigned), all, "both members have their partitions")
        first.stall(600)
        first.wait_for("stalled")
        [coordinator] = world.leaders("__consumer_offsets")
        assert coordinator in world.leaders("orders")
        three_brokers.node(coordinator).kill()
        monitor.until(
            lambda: world.leaders("__consumer_offsets") + world.leaders("orders"),
            lambda leaders: len(leaders) == 4 and not {-1, coordinator} & {*leaders},
            "the next leaders",
        )
        world.produce("orders", 3, 5)
        world.commit_alone(orders=6)
        truth = monitor.until(
            world.truth,
            lambda truth: (
                truth.get(("simple", "orders", 0)) == (6, 15)
                and all(committed == end == 15 for (group, *_), (committed, end) in truth.items() if group == "modern")
            ),
            "commits at the next coordinator",
        )
        told = agrees(monitor, world)
        assert told.keys() == truth.keys()
        assert told["simple", "orders", 0] == (6, 15, 9)
        assert 5 in {lag for (group, *_), (*_, lag) in told.items() if group == "classic"}
        assert monitor.rows("SELECT count(*) FROM incidents WHERE rule = 'offsets-lost'") == [(0,)]

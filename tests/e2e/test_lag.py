"""`run` and `serve` on one broker: who no longer commits a partition is named, and all numbers are the broker's."""

import time

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.lag_chaos import until
from tests.e2e.lag_world import Cast, LagWorld
from tests.streaming.serve.test_command import serving
from tests.support.needs import need_broker

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(300)]

STUCK = Cast("stuck", "confluent", count=1, every_s=1.0)
CASTS = (
    STUCK,
    Cast("paused", "kafka-python", count=1, every_s=1.0, paused=(0,)),
    Cast("idle", "confluent", count=1, messages_per_s=0.0),
    Cast("simple", "simple", count=1, every_s=1.0),
)
PARTITION = 2
ALLOWED_S = 3 * STUCK.every_s + 30
BUSY_S = 60
"""How much later it may be reported if other tests use the cores; `make lag-chaos` allows nothing."""
ROUND_S = 10


class Served:
    """`serve` of the same monitor."""

    def __init__(self, world, url):
        self.world, self.url = world, url

    def json(self, path):
        answer = requests.get(self.url + path, timeout=10)
        answer.raise_for_status()
        return answer.json()

    def samples(self, path, name, *labels):
        """Return the samples of a metric, by values of its labels."""
        families = text_string_to_metric_families(requests.get(self.url + path, timeout=10).text)
        return {
            tuple(sample.labels[label] for label in labels): sample.value
            for family in families
            for sample in family.samples
            if sample.name == name
        }

    def lag_incidents(self):
        """Return all lag incidents of all groups."""
        rules = ("partition-stalled", "lag-growing", "offset-rewound", "offsets-lost")
        return [incident for rule in rules for incident in self.json(f"/api/v1/incidents?rule={rule}")]

    def lags(self):
        """Return the lag of each partition according to the three endpoints."""
        listed = {
            (cast.group, p["topic"], str(p["partition"])): p["lag"]
            for cast in CASTS
            for p in self.json(f"/api/v1/groups/{cast.group}/partitions")["partitions"]
        }
        ours = self.samples("/metrics", "group_monitor_group_partition_lag", "group", "topic", "partition")
        kminion = self.samples(
            "/metrics/kminion",
            "kminion_kafka_consumer_group_topic_partition_lag",
            "group_id",
            "topic_name",
            "partition_id",
        )
        return listed, ours, kminion


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    need_broker()
    with LagWorld("lag", tmp_path_factory.mktemp("lag"), recorded=False) as world:
        with world.job.config.open("a") as config:
            config.write("partition_metrics = true\n")
        world.play(CASTS)
        world.job.await_rows("SELECT 1 FROM runs WHERE caught_up")
        with serving(world.job.config) as process:
            yield Served(world, process.url)


def test_a_stall_is_told_in_time_and_every_lag_is_the_broker_s(served):
    world = served.world
    until(lambda: world.usual_interval_ms(STUCK, PARTITION), 60)
    world.stick(STUCK, PARTITION)
    last_ms = world.commits(STUCK, PARTITION)[-1]
    [incident] = until(served.lag_incidents, 120)
    waited_s = time.time() - last_ms / 1_000
    assert (incident["rule"], incident["group"], incident["severity"]) == ("partition-stalled", "stuck", "warn")
    assert incident["partitions"] == [[STUCK.topic, PARTITION]]
    assert [incident["member_id"]] == world.owners("stuck", STUCK.topic, PARTITION)
    assert incident["client_id"] == "stuck-0"
    assert incident["at_ms"] - last_ms < 1_000 * ALLOWED_S
    assert waited_s < ALLOWED_S + BUSY_S

    world.pause_production()
    brokers = world.at_rest()
    truth = {(group, topic, str(n)): told.end - told.committed for (group, topic, n), told in brokers.items()}
    assert len(truth) == sum(cast.partitions for cast in CASTS)
    assert truth["stuck", STUCK.topic, str(PARTITION)] > 50
    until(lambda: served.lags() == (truth, truth, truth), 3 * ROUND_S)
    assert world.brokers.offsets([cast.group for cast in CASTS]) == brokers
    assert served.lag_incidents()[1:] == []

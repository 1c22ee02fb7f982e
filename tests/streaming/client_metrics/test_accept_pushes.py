"""The broker's plugin: its jar is what its sources make, and with it a broker takes the metrics that clients push."""

import json
import subprocess

import pytest
from confluent_kafka import Consumer
from kafka.admin import ConfigResource, ConfigResourceType

from streaming.client_metrics.compile_plugin import compile_plugin
from streaming.client_metrics.plugin import LAST_POLL, PLUGIN_CLASS, PLUGIN_JAR, SUBSCRIPTION, subscription
from streaming.connection.pushes import Pushes, pushes
from streaming.embedded import TELEMETRY_TOPIC, EmbeddedBrokerError, EmbeddedCluster
from streaming.embedded.jars import broker_class_path
from streaming.embedded.java import JavaMissingError, java_command
from tests.support.kafka_io import read_until
from tests.support.parts import skip_without_broker
from tests.support.waiting import await_true

JAR_MADE_BY = "17"  # Java: another compiler may lay a class out in another way


def require_compiler():
    try:
        java, class_path = java_command(), broker_class_path()
    except (EmbeddedBrokerError, JavaMissingError) as missing:
        pytest.skip(str(missing))
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if f"jdk.compiler@{JAR_MADE_BY}" not in modules:
        pytest.skip(f"no compiler of Java {JAR_MADE_BY}, which made the jar")
    return java, class_path


def test_the_jar_is_what_its_sources_make(tmp_path):
    compile_plugin(tmp_path / "made.jar", *require_compiler())
    made = (tmp_path / "made.jar").read_bytes()
    assert made == PLUGIN_JAR.read_bytes(), "run `python -m streaming.client_metrics.compile_plugin`"
    assert len(made) < 8_000


@pytest.fixture(scope="module")
def asking():
    """A broker of our own: others count the lines of theirs."""
    skip_without_broker()
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.mark.e2e
def test_a_broker_with_the_plugin_takes_pushes(asking):
    asking.create_topic("pushed", partitions=1)
    settings = {"bootstrap.servers": asking.bootstrap_servers, "group.id": "pushed", "client.id": "pushes"}
    consumer = Consumer(settings)
    consumer.subscribe(["pushed"])

    def pushed(records):
        consumer.poll(0.05)
        return any(b'"PUSH_TELEMETRY"' in record.value for record in records)

    records = read_until(asking.bootstrap_servers, TELEMETRY_TOPIC, pushed)
    consumer.close()
    line = next(record.value for record in records if b'"PUSH_TELEMETRY"' in record.value)
    envelope = json.loads(line.removeprefix(b"Completed request:"))
    assert envelope["requestHeader"]["clientId"] == "pushes"
    assert envelope["response"]["errorCode"] == 0


@pytest.mark.e2e
def test_the_embedded_broker_asks_for_what_tells_of_polls_and_keeps_jmx(asking):
    configured = (asking.node(1).folder / "server.properties").read_text()
    assert f"metric.reporters=org.apache.kafka.common.metrics.JmxReporter,{PLUGIN_CLASS}\n" in configured
    with asking._admin() as admin:
        ours = ConfigResource(ConfigResourceType.CLIENT_METRICS, SUBSCRIPTION)
        await_true(lambda: LAST_POLL in str(admin.describe_configs([ours])))
        assert "5000" in str(admin.describe_configs([ours]))


@pytest.mark.e2e
def test_it_is_known_whether_a_subscription_asks_for_what_tells_of_polls(asking):
    """Each change is awaited: the controller answers before the broker, which is asked, has applied it."""
    ours = ConfigResource(ConfigResourceType.CLIENT_METRICS, SUBSCRIPTION, dict(subscription()))
    producers = {"metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.fetch", "interval.ms": "60000"}
    with asking._admin() as admin:
        await_true(lambda: pushes(admin) is Pushes.ASKED_FOR)
        other = ConfigResource(ConfigResourceType.CLIENT_METRICS, "other", producers)
        admin.alter_configs([other])
        admin.reset_configs([ours])
        await_true(lambda: pushes(admin) is Pushes.NOT_ASKED_FOR)
        other.configs = {"metrics": "*"}
        admin.alter_configs([other])
        await_true(lambda: pushes(admin) is Pushes.ASKED_FOR)

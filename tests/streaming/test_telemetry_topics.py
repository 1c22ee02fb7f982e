"""The telemetry topics: made as they should be, looked at as they are, and measured."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient, KafkaProducer

from streaming.cli import main
from streaming.config.kafka import Kafka
from streaming.doctor import topics
from streaming.doctor.check import Status
from streaming.doctor.topics import check_disk, check_settings
from streaming.embedded import EmbeddedCluster
from streaming.telemetry_topics import creation_command, replication_for, wanted_configs
from tests.support.parts import skip_without_broker
from tests.support.waiting import await_true

ROOT = Path(__file__).parents[2]
LINES, REPORTS = "group-telemetry", "group-client-telemetry"


@pytest.mark.parametrize(("brokers", "spread"), [(1, (3, 1)), (2, (3, 2)), (3, (3, 3)), (12, (12, 3))])
def test_a_topic_is_spread_over_the_brokers_there_are(brokers, spread):
    assert replication_for(brokers) == spread


@pytest.mark.parametrize(("replicas", "in_sync"), [(1, "1"), (2, "1"), (3, "2")])
def test_one_replica_may_be_away(replicas, in_sync):
    assert wanted_configs(Kafka(), LINES, replicas)["min.insync.replicas"] == in_sync


@pytest.mark.parametrize("topic", [LINES, REPORTS])
def test_the_document_has_the_very_commands(topic):
    command = creation_command(Kafka(bootstrap_servers="h:1"), topic, 3).replace("h:1", "HOST:PORT")
    assert command in (ROOT / "docs" / "telemetry.md").read_text().splitlines()


GOOD = {**wanted_configs(Kafka(), LINES, 3), "retention.bytes": "-1"}


class TestSettings:
    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"retention.ms": "604800000"}, "retention.ms is 604800000"),
            ({"retention.ms": "-1"}, "retention.ms is -1"),
            ({"min.insync.replicas": "3"}, "min.insync.replicas is 3"),
            ({"cleanup.policy": "compact"}, "cleanup.policy is compact"),
            ({"message.timestamp.type": "LogAppendTime"}, "message.timestamp.type is LogAppendTime"),
            ({"max.message.bytes": "1048588"}, "max.message.bytes is 1048588"),
        ],
    )
    def test_what_is_wrong_is_named_with_the_command_that_mends_it(self, changed, words):
        check = check_settings(Kafka(), topic_of(3), {**GOOD, **changed}, 3)
        assert check.status is Status.WARN
        assert words in check.found
        (key,) = changed
        assert f"--add-config {key}={GOOD[key]}" in check.advice

    @pytest.mark.parametrize(
        "changed",
        [
            {},
            {"retention.ms": "3600000"},
            {"retention.ms": "604800000", "retention.bytes": "1000000000"},
            {"min.insync.replicas": "1"},
            {"max.message.bytes": "33554432"},
        ],
    )
    def test_settings_that_suffice_are_accepted(self, changed):
        assert check_settings(Kafka(), topic_of(3), {**GOOD, **changed}, 3).status is Status.OK

    @pytest.mark.parametrize("missing", sorted(GOOD))
    def test_a_setting_that_the_broker_does_not_tell_is_not_judged(self, missing):
        told = {key: value for key, value in GOOD.items() if key != missing}
        assert check_settings(Kafka(), topic_of(3), told, 3).status is Status.OK
        assert check_settings(Kafka(), topic_of(3), {**told, missing: None}, 3).status is Status.OK

    def test_one_replica_of_three_brokers_is_a_warning_and_of_one_broker_is_not(self):
        alone = {**GOOD, "min.insync.replicas": "1"}
        assert "replication factor 1 with 3 brokers" in check_settings(Kafka(), topic_of(1), alone, 3).found
        assert check_settings(Kafka(), topic_of(1), alone, 1).status is Status.OK

    def test_settings_that_may_not_be_read_are_not_guessed(self):
        check = check_settings(Kafka(), topic_of(3), None, 3)
        assert check.status is Status.WARN
        assert "may not be read" in check.found


def topic_of(replicas, partitions=1, name=LINES):
    nodes = list(range(1, replicas + 1))
    return {"name": name, "partitions": [{"partition_index": p, "replica_nodes": nodes} for p in range(partitions)]}


def volume(records_per_s, record_bytes=700.0, *, on_disk=True):
    return topics.Volume(records_per_s, record_bytes, on_disk, measured_s=3_600)


class TestCost:
    def cost(self, monkeypatch, found, configs=GOOD, replicas=3):
        monkeypatch.setattr(topics, "measure", lambda *_: found)
        return check_disk(None, None, topic_of(replicas), configs).found

    def test_the_cost_is_that_of_all_replicas_for_as_long_as_they_are_kept(self, monkeypatch):
        week = {**GOOD, "retention.ms": "604800000"}
        said = self.cost(monkeypatch, volume(33_000), week, replicas=1)
        assert "33,000.0 lines a second (measured over 60 min), 700 bytes a line" in said
        assert "2 TB a day on all brokers, kept 7 days: 14 TB in all" in said
        assert "5.99 TB a day" in self.cost(monkeypatch, volume(33_000))

    def test_what_is_kept_for_ever_has_no_sum(self, monkeypatch):
        assert "kept for ever: more every day" in self.cost(monkeypatch, volume(1), {**GOOD, "retention.ms": "-1"})

    def test_a_size_that_was_not_measured_is_said_to_be_before_compression(self, monkeypatch):
        assert "bytes a line before compression" in self.cost(monkeypatch, volume(1, on_disk=False))


@pytest.fixture(scope="module")
def cluster():
    skip_without_broker()
    with EmbeddedCluster(telemetry=False, create_telemetry_topic=False) as running:
        yield running


@pytest.mark.e2e
class TestOnABroker:
    def doctor(self, cluster, folder, *options):
        config = folder / "monitor.toml"
        store = f'[store]\nurl = "sqlite:///{folder}/monitor.db"\n[serve]\nport = 0\n'
        config.write_text(f'[kafka]\nbootstrap_servers = "{cluster.bootstrap_servers}"\n{store}')
        return CliRunner().invoke(main, ["doctor", "--config", str(config), *options])

    def test_they_are_created_once_as_they_should_be_and_measured(self, cluster, tmp_path):
        first = self.doctor(cluster, tmp_path, "--create-topics")
        assert first.exit_code == 0, first.output
        assert first.output.count(" created: 3 partitions, replication factor 1") == 2
        again = self.doctor(cluster, tmp_path, "--create-topics")
        assert again.exit_code == 0
        assert again.output.count("exists and is left as it is") == 2
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            for topic in (LINES, REPORTS):
                await_true(lambda topic=topic: topics.configs_of(admin, topic))  # the broker hears of it a moment later
                wanted = wanted_configs(Kafka(), topic, 1)
                assert wanted.items() <= topics.configs_of(admin, topic).items()
        self.fill(cluster, LINES, 600)
        said = self.doctor(cluster, tmp_path).output
        (cost,) = [line for line in said.splitlines() if "telemetry disk" in line and LINES in line]
        rate, seconds = re.search(r"([\d,.]+) lines a second \(measured over ([\d.]+) s\)", cost).groups()
        assert float(rate.replace(",", "")) * float(seconds) == pytest.approx(600, rel=0.1)
        on_disk = float(re.search(r"([\d.]+) bytes a line,", cost)[1])
        assert 600 < on_disk < 900  # sent one by one, and uncompressed
        assert f"{REPORTS}: no line in the last hour" in said
        assert said.count("topic settings     ") == 2
        assert "warn  topic settings" not in said

    def fill(self, cluster, topic, records):
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        for _ in range(records):
            producer.send(topic, b"x" * 600, partition=0)
        producer.flush()
        producer.close()

    def test_a_topic_of_the_broker_s_own_defaults_is_a_warning(self, cluster, tmp_path):
        cluster.create_topic("by-default", partitions=1)
        config = tmp_path / "monitor.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{cluster.bootstrap_servers}"\ntelemetry_topics = ["by-default"]\n'
        )
        said = CliRunner().invoke(main, ["doctor", "--config", str(config)]).output
        assert "warn  topic settings     by-default: retention.ms is 604800000; max.message.bytes is 1048588" in said
        assert "--entity-name by-default --add-config retention.ms=86400000,max.message.bytes=16777216" in said

    def test_a_cluster_that_is_away_creates_nothing_and_fails(self, tmp_path):
        config = tmp_path / "monitor.toml"
        config.write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
        result = CliRunner().invoke(main, ["doctor", "--config", str(config), "--create-topics"])
        assert result.exit_code == 1
        assert "nothing listens on this port" in result.output

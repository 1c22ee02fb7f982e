"""A real consumer that oversleeps its poll, is removed, and commits: what `--refused-commits` ships and tells."""

import json

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.source_row import OFFSETS, TELEMETRY, SourceRow
from coordinator_model.incidents import to_contract
from coordinator_model.shard.shard import ShardSettings
from streaming.cli import main
from streaming.embedded import TELEMETRY_TOPIC, EmbeddedCluster
from streaming.embedded.ports import free_ports
from tests.embedded.kafka_io import produce, read_until
from tests.embedded.waiting import await_true

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("broker_parts")]
GROUP = "oversleeps"
REQUEST_LOG_LINE = b"Completed request:"
COMMITS = ("OFFSET_COMMIT", "TXN_OFFSET_COMMIT")


def snippet(port):
    where = ["--bootstrap-servers", f"127.0.0.1:{port}", "--key", "broker-1"]
    result = CliRunner().invoke(main, ["log4j2", "--alone", "--refused-commits", *where])
    assert result.exit_code == 0, result.output
    return {"log4j2.yaml": result.output}


def member(servers, client_id):
    settings = {
        "bootstrap.servers": servers,
        "group.id": GROUP,
        "client.id": client_id,
        "max.poll.interval.ms": 6_000,
        "session.timeout.ms": 6_000,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["events"])
    return consumer


def polled(consumer):
    """A message."""
    while True:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            return message


def has_both(consumer):
    consumer.poll(0.2)
    return len(consumer.assignment()) == 2


def commits(records):
    """The requests to commit among the telemetry lines; the coordinator's own log lies between them."""
    requests = [record.value for record in records if record.value.startswith(REQUEST_LOG_LINE)]
    lines = [json.loads(request.removeprefix(REQUEST_LOG_LINE)) for request in requests]
    return [line for line in lines if line["requestHeader"]["requestApiKeyName"] in COMMITS]


def rows(records, source):
    return [SourceRow(source, r.topic, r.partition, r.offset, r.timestamp, r.key, r.value) for r in records]


def test_a_commit_after_an_exceeded_poll_interval_is_reported():
    """The incident names the client and its partitions."""
    (port,) = free_ports(1)
    with EmbeddedCluster(port=port, telemetry=False, log4j2=snippet(port)) as cluster:
        servers = cluster.bootstrap_servers
        cluster.set_request_log("DEBUG")
        cluster.create_topic("events", partitions=2)
        produce(servers, "events", *[b"x"] * 20)
        zombie = member(servers, "zombie")
        message = polled(zombie)
        zombie.commit(polled(zombie), asynchronous=False)
        heir = member(servers, "heir")
        await_true(lambda: has_both(heir))
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            zombie.commit(message, asynchronous=False)
        heir.commit(polled(heir), asynchronous=False)
        telemetry = read_until(servers, TELEMETRY_TOPIC, commits)
        offsets = read_until(servers, "__consumer_offsets", len)
        heir.close()
    [line] = commits(telemetry)
    assert line["requestHeader"]["clientId"] == "zombie"
    settings = ShardSettings(cluster="c", partitions=50, live_from_ms=0)
    history = replay_rows([*rows(telemetry, TELEMETRY), *rows(offsets, OFFSETS)], settings)
    told = [told for told in map(to_contract, history.transitions) if told["rule"] == "zombie-commit"]
    [opened] = [told for told in told if told["transition"] == "opened"]
    assert (opened["severity"], opened["client_id"], opened["partitions"]) == (
        "warn",
        "zombie",
        [["events", message.partition()]],
    )
    assert opened["member_id"].startswith("zombie-")
    assert len(opened["detail"]["read_now_by"]) == 1
    assert opened["detail"]["read_now_by"][0].startswith("heir-")

"""A real consumer that oversleeps its poll, is removed, and commits: what `--refused-commits` ships and tells."""

import json
from functools import partial

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.source_row import OFFSETS, TELEMETRY, SourceRow
from coordinator_model.incidents import to_contract
from coordinator_model.shard.shard import ShardSettings
from streaming.cli import main
from streaming.embedded import TELEMETRY_TOPIC, EmbeddedCluster
from streaming.embedded.ports import free_ports
from tests.support.kafka_io import produce, read_until
from tests.support.waiting import await_true

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("broker_parts")]
GROUP, TRANSACTS = "oversleeps", "transacts"
GROUP_METADATA = b"\0\2"
REQUEST_LOG_LINE = b"Completed request:"
COMMITS = ("OFFSET_COMMIT", "TXN_OFFSET_COMMIT")


def snippet(port):
    where = ["--bootstrap-servers", f"127.0.0.1:{port}", "--key", "broker-1"]
    result = CliRunner().invoke(main, ["log4j2", "--alone", "--refused-commits", *where])
    assert result.exit_code == 0, result.output
    return {"log4j2.yaml": result.output}


def member(servers, client_id, group=GROUP):
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
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


def taken_over(records):
    """Whether the heir is all that each group has."""
    of_groups = [record for record in records if record.key.startswith(GROUP_METADATA) and record.value]
    alone = [record.key for record in of_groups if b"heir-" in record.value and b"zombie-" not in record.value]
    return all(any(key.endswith(group.encode()) for key in alone) for group in (GROUP, TRANSACTS))


def rows(records, source):
    return [SourceRow(source, r.topic, r.partition, r.offset, r.timestamp, r.key, r.value) for r in records]


def transacts(servers, message, metadata):
    """Let a producer commit the offset of a message in a transaction, for a member as it was."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t", "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    place = TopicPartition("events", message.partition(), message.offset() + 1)
    with pytest.raises(KafkaException):
        producer.send_offsets_to_transaction([place], metadata)
    producer.abort_transaction()


@pytest.fixture(scope="module")
def told():
    """Messages that were handled by a former member, one a group; the lines of refused commits; what is told."""
    (port,) = free_ports(1)
    with EmbeddedCluster(port=port, telemetry=False, log4j2=snippet(port)) as cluster:
        servers = cluster.bootstrap_servers
        cluster.set_request_log("DEBUG")
        cluster.create_topic("events", partitions=2)
        produce(servers, "events", *[b"x"] * 20)
        zombies = {group: member(servers, "zombie", group) for group in (GROUP, TRANSACTS)}
        messages = {group: polled(zombie) for group, zombie in zombies.items()}
        metadata = zombies[TRANSACTS].consumer_group_metadata()
        zombies[GROUP].commit(polled(zombies[GROUP]), asynchronous=False)
        heirs = [member(servers, "heir", group) for group in zombies]
        for heir in heirs:
            await_true(partial(has_both, heir))
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            zombies[GROUP].commit(messages[GROUP], asynchronous=False)
        transacts(servers, messages[TRANSACTS], metadata)
        heirs[0].commit(polled(heirs[0]), asynchronous=False)
        telemetry = read_until(servers, TELEMETRY_TOPIC, lambda records: len(commits(records)) > 1)
        offsets = read_until(servers, "__consumer_offsets", taken_over)
        for heir in heirs:
            heir.close()
    settings = ShardSettings(cluster="c", partitions=50, live_from_ms=0)
    history = replay_rows([*rows(telemetry, TELEMETRY), *rows(offsets, OFFSETS)], settings)
    transitions = [told for told in map(to_contract, history.transitions) if told["rule"] == "zombie-commit"]
    opened = {told["group"]: told for told in transitions if told["transition"] == "opened"}
    return messages, commits(telemetry), opened


def test_only_refused_commits_cost_a_line(told):
    apis = [line["requestHeader"]["requestApiKeyName"] for line in told[1]]
    assert apis == ["OFFSET_COMMIT", "TXN_OFFSET_COMMIT"]
    assert told[1][0]["requestHeader"]["clientId"] == "zombie"


@pytest.mark.parametrize(("group", "severity"), [(GROUP, "warn"), (TRANSACTS, "info")])
def test_a_commit_after_an_exceeded_poll_interval_is_reported(told, group, severity):
    """A transaction is void, so nothing of it is handled twice."""
    messages, _, opened = told
    assert (opened[group]["severity"], opened[group]["partitions"]) == (
        severity,
        [["events", messages[group].partition()]],
    )
    assert opened[group]["member_id"].startswith("zombie-")
    assert len(opened[group]["detail"]["read_now_by"]) == 1
    assert opened[group]["detail"]["read_now_by"][0].startswith("heir-")

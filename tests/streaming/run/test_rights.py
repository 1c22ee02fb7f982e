"""What `doctor --acls` prints is enough where a cluster refuses all else: `doctor` and Spark's source can read."""

import shlex
from itertools import pairwise

import pyarrow as pa
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from kafka.structs import OffsetAndMetadata
from pydantic import SecretStr

from coordinator_model.shard.sharding import shard_of
from streaming.config.kafka import Kafka
from streaming.config.settings import Run, Settings
from streaming.doctor.check import Status
from streaming.doctor.cluster import check_cluster, create_topics
from streaming.doctor.rights import acl_lines
from streaming.run.packing import Routing
from streaming.run.read_ahead import FOLDER, ReadAhead, rows_of
from streaming.run.session import Spark
from tests.streaming.run.test_source import read
from tests.support.parts import skip_without_broker
from tests.support.secured import AUTHORIZER, PASSWORD, USER, secured_broker

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker that refuses what no ACL allows; who comes without a login is a super user."""
    skip_without_broker()
    properties = {**AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with secured_broker(tmp_path_factory.mktemp("secured"), **properties) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(secured):
    servers = secured.server("SASL_PLAINTEXT")
    login = {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": SecretStr(PASSWORD)}
    return Kafka(bootstrap_servers=servers, security_protocol="SASL_PLAINTEXT", **login)


@pytest.fixture(scope="module")
def admin(secured):
    with KafkaAdminClient(bootstrap_servers=secured.cluster.bootstrap_servers) as made:
        yield made


def acls_of(command):
    """Do what `kafka-acls` does with such a command."""
    words = shlex.split(command)

    def values(option):
        return [after for word, after in pairwise(words) if word == option]

    (principal,) = values("--allow-principal")
    pattern = ACLResourcePatternType.PREFIXED if "prefixed" in words else ACLResourcePatternType.LITERAL
    resources = [ResourcePattern(ResourceType.TOPIC, name, pattern) for name in values("--topic")]
    resources += [ResourcePattern(ResourceType.GROUP, name, pattern) for name in values("--group")]
    resources += [ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")] * ("--cluster" in words)
    operations = [getattr(ACLOperation, OPERATIONS[name]) for name in values("--operation")]
    return [ACL(principal, "*", op, ACLPermissionType.ALLOW, what) for op in operations for what in resources]


OPERATIONS = {"Read": "READ", "Write": "WRITE", "Describe": "DESCRIBE", "DescribeConfigs": "DESCRIBE_CONFIGS"}


def problems(checks):
    return {check.name for check in checks if check.status is not Status.OK}


def test_what_doctor_prints_is_enough_to_read_and_no_more_is_asked_for(secured, kafka, admin, tmp_path):
    list(create_topics(Kafka(bootstrap_servers=secured.cluster.bootstrap_servers)))
    with KafkaConsumer(bootstrap_servers=secured.cluster.bootstrap_servers, group_id="canary") as consumer:
        consumer.commit({TopicPartition("group-telemetry", 0): OffsetAndMetadata(1, "", -1)})
    assert "records" in problems(check_cluster(kafka))

    topics, *others = acl_lines(kafka)[1::2]
    admin.create_acls(acls_of(topics))
    assert problems(check_cluster(kafka)) == {"readers"}

    for command in others:
        admin.create_acls(acls_of(command))
    assert problems(check_cluster(kafka)) == set()
    session = Spark(Run(master="local[2]"), 2).session
    try:
        rows = read(session, Settings(kafka=kafka), tmp_path)
    finally:
        session.stop()
    assert any(b"canary" in row.key for row in rows)
    with ReadAhead(kafka.librdkafka_client(), kafka.offsets_topic, range(50), named) as reading:
        reading._thread.join(60)
    reading.keep(tmp_path, Routing(50, lanes=("0",)))
    assert rows_of(tmp_path / FOLDER, "0") == {f"{shard_of('canary', 50):03}": [b"canary"]}


def named(batches):
    """Pack nothing but the name of the group that the test uses."""
    for batch in batches:
        for row in batch.to_pylist():
            if b"canary" in row["key"]:
                yield pa.RecordBatch.from_pydict({"key": [f"{row['partition']:03}"], "payload": [b"canary"]})


def test_who_may_not_create_topics_gets_the_command_for_somebody_who_may(kafka):
    missing = kafka.model_copy(update={"telemetry_topics": ("nobody-made-this",), "client_telemetry_topics": ()})
    (check,) = create_topics(missing)
    assert check.status is Status.FAIL
    assert check.found == f'nobody-made-this cannot be created: user "{USER}" may not create topics'
    assert "--create --topic nobody-made-this" in check.advice
    assert "--config max.message.bytes=16777216" in check.advice

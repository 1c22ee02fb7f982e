"""The broker of docker-compose.yml, from its own files and the command of its container, with local addresses."""

import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from streaming.embedded import TELEMETRY_TOPIC, EmbeddedBrokerError, ask
from streaming.embedded.jars import broker_class_path
from streaming.embedded.java import JavaMissingError, java_command
from streaming.embedded.ports import free_ports
from streaming.embedded.settings import SNIPPET
from tests.support.kafka_io import read_until
from tests.support.waiting import await_true

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
KAFKA = YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"]["kafka"]
BIN = """#!/bin/sh
exec {java} $KAFKA_HEAP_OPTS $KAFKA_LOG4J_OPTS -cp '{class_path}' {main} "$@"
"""


def moved(text: str, *replacements: tuple[str, str]) -> str:
    for here, there in replacements:
        assert here in text
        text = text.replace(here, there)
    return text


@pytest.fixture
def container(tmp_path):
    """Kafka's image as a folder: the mounted files and the two programs that the command calls."""
    try:
        java, class_path = java_command(), broker_class_path()
    except (EmbeddedBrokerError, JavaMissingError) as missing:
        pytest.skip(str(missing))
    port, controller_port = free_ports(2)
    properties = moved(
        (ROOT / "deploy" / "kafka" / "server.properties").read_text(),
        ("1@kafka:19093", f"1@127.0.0.1:{controller_port}"),
        ("PLAINTEXT://:9092", f"PLAINTEXT://127.0.0.1:{port}"),
        ("CONTROLLER://:19093", f"CONTROLLER://127.0.0.1:{controller_port}"),
        ("PLAINTEXT://kafka:9092", f"PLAINTEXT://127.0.0.1:{port}"),
        ("/var/lib/kafka/data", f"{tmp_path}/data"),
    )
    (tmp_path / "server.properties").write_text(properties)
    snippet = moved(SNIPPET.read_text(), ("127.0.0.1:9092", f"127.0.0.1:{port}"))
    (tmp_path / "log4j2.yaml").write_text(snippet)
    for name, main in (("kafka-storage.sh", "kafka.tools.StorageTool"), ("kafka-server-start.sh", "kafka.Kafka")):
        program = tmp_path / name
        program.write_text(BIN.format(java=java, class_path=class_path, main=main))
        program.chmod(0o755)
    script = moved(KAFKA["command"][0], ("/opt/kafka/bin", str(tmp_path)), ("/etc/group-monitor", str(tmp_path)))
    return [*KAFKA["entrypoint"], script], port


def test_it_starts_twice_and_ships_its_group_telemetry(container, tmp_path):
    from kafka.admin import KafkaAdminClient, NewTopic

    command, port = container
    address = f"127.0.0.1:{port}"
    for start in (1, 2):  # the second time finds the volume formatted
        with (tmp_path / "log").open("ab") as log:
            broker = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            await_true(lambda broker=broker: broker.poll() is not None or ask.live_brokers(port))
            assert broker.poll() is None, (tmp_path / "log").read_text()
            if start == 1:
                admin = KafkaAdminClient(bootstrap_servers=address)
                admin.create_topics([NewTopic(TELEMETRY_TOPIC, 3, 1)])
                admin.close()
            lines = read_until(address, TELEMETRY_TOPIC, lambda lines, start=start: _shipped(port, lines) >= start)
            assert all(re.match(rb"Completed request:\{", line.value) for line in lines)
        finally:
            broker.terminate()
            broker.wait(60)


def _shipped(port: int, lines: list) -> int:
    """How many lines there are; asks for one more, since lines are dropped until the appender knows the topic."""
    ask.list_groups(port)
    return len(lines)

"""The settings of a node: Kafka's server.properties."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streaming.client_metrics.plugin import REPORTERS

SNIPPET: Final = Path(__file__).with_name("broker-log4j2.yaml")
"""The output of `group-monitor log4j2 --alone` for one broker: an example for people, used by docker-compose.yml."""


def server_properties(
    *,
    node_id: int,
    ports: Mapping[int, int],
    controller_ports: Mapping[int, int],
    data_folder: Path,
    overrides: Mapping[str, str],
) -> str:
    """Return server.properties of a node that is broker and controller; `ports` and `controller_ports` are by node id.

    It has Kafka's defaults except for: a replication factor that fits the number of nodes, no automatic topic creation
    (a metadata request of the telemetry's producer would create its topic with the wrong number of partitions), lower
    bounds that let tests use short session timeouts, and a plugin that receives the metrics that clients push.
    `overrides` take precedence.
    """
    replicas = min(3, len(ports))
    in_sync = max(1, replicas - 1)
    settings = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": ",".join(f"{id_}@127.0.0.1:{port}" for id_, port in controller_ports.items()),
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[node_id]},CONTROLLER://127.0.0.1:{controller_ports[node_id]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[node_id]}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data_folder).replace("\\", "\\\\"),
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.min.session.timeout.ms": 1000,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "metric.reporters": REPORTERS,
        **overrides,
    }
    return _in_ascii("".join(f"{name}={value}\n" for name, value in settings.items()))


def _in_ascii(text: str) -> str:
    """Escape what is not ASCII: Kafka reads the file as ISO 8859-1 (java.util.Properties.load)."""
    return re.sub(r"[^\x00-\x7f]", lambda letter: _units(letter[0]), text)


def _units(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

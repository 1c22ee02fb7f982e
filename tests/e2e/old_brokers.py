"""Brokers of older releases, run once for fixtures: their records, their request log, their coordinator's own log.

    python -m tests.e2e.old_brokers --jars DIR --out DIR [2.8 3.9 …]

Ivy fetches the brokers into `--jars` (`old-brokers.xml`). Each runs the same scene. It leaves a capture as a log
shipper would make it, with lines as they are in the broker's files, and a list of what was done to whom.
`tests/coordinator_model/test_old_brokers.py` compares the model with it.
"""

import argparse
import gzip
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from streaming.capture.recorder import Recording
from streaming.client_metrics.plugin import PLUGIN_JAR, SUBSCRIPTION, subscription
from streaming.config.kafka import Kafka
from streaming.embedded import ask
from streaming.embedded.fetch import IVY_FOLDER, resolve
from streaming.embedded.java import java_command
from streaming.embedded.ports import free_ports
from streaming.log4j2 import APIS, Snippet, as_yaml
from streaming.telemetry_topics import TELEMETRY_TOPIC
from tests.e2e.clients import Client, Spec
from tests.support.waiting import await_true

IVY_FILE = Path(__file__).with_name("old-brokers.xml")
KEY = "broker-1"
SESSION_MS = 6_000
POLL_LIMIT_MS = 8_000
COORDINATORS = ("[GroupCoordinator ", "[GroupMetadataManager brokerId=")
PROPERTIES = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "1000",
}
MODERN = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
PUSHES = {"metric.reporters": "kafkagroupmonitor.AcceptPushesBefore42"}
LOG4J = """\
log4j.rootLogger=INFO, server
log4j.appender.server=org.apache.log4j.FileAppender
log4j.appender.server.File={folder}/server.log
log4j.appender.server.layout=org.apache.log4j.PatternLayout
log4j.appender.server.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.request.logger=DEBUG, requests
log4j.additivity.kafka.request.logger=false
log4j.appender.requests=org.apache.log4j.FileAppender
log4j.appender.requests.File={folder}/requests.log
log4j.appender.requests.layout=org.apache.log4j.PatternLayout
log4j.appender.requests.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
DATE = re.compile(r"\[(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{3})")
API = re.compile(rf'"requestApiKeyName":"(?:{"|".join(APIS)})"')


class Release(NamedTuple):
    """A broker to run; `jars` is the name of its folder."""

    jars: str
    properties: Mapping[str, str] = MappingProxyType({})
    zookeeper: bool = False
    log4j2: bool = False
    modern: bool = False
    """Whether it accepts current KIP-848 clients."""


RELEASES = {
    "2.8-scala": Release("2.8", zookeeper=True),
    "3.9-scala": Release("3.9", PUSHES),
    "3.7-java": Release("3.7", PUSHES | {"group.coordinator.new.enable": "true"}),
    "3.9-java": Release("3.9", PUSHES | MODERN | {"group.coordinator.rebalance.protocols": "classic,consumer"}),
    "4.0": Release("4.0", PUSHES | MODERN, log4j2=True, modern=True),
    "4.1": Release("4.1", PUSHES | MODERN, log4j2=True, modern=True),
    "4.2": Release("4.2", MODERN | {"metric.reporters": "kafkagroupmonitor.AcceptPushes"}, log4j2=True, modern=True),
}


class Broker:
    """A broker process of any release, in a folder of its own."""

    def __init__(self, release: Release, jars: Path, folder: Path) -> None:
        self.release, self.folder = release, folder
        self.port, self._controller, self._zookeeper = free_ports(3)
        paths = [*sorted((jars / release.jars).glob("*.jar")), PLUGIN_JAR]
        self._class_path = os.pathsep.join(map(str, paths))
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, stack: ExitStack) -> None:
        """Start it and return once it answers; `stack` ends it."""
        stack.callback(self._end)
        self.folder.mkdir(parents=True)
        (self.folder / "log4j.properties").write_text(LOG4J.format(folder=self.folder))
        snippet = Snippet(key=KEY, alone=True, file=str(self.folder / "telemetry.log"), refused_commits=True)
        (self.folder / "log4j2.yaml").write_text(as_yaml(snippet))
        settings = PROPERTIES | (self._zookeeper_settings() if self.release.zookeeper else self._kraft_settings())
        self._write("server.properties", settings | self.release.properties)
        if self.release.zookeeper:
            self._write("zookeeper.properties", {"dataDir": self.folder / "zk", "clientPort": self._zookeeper})
            self._run("org.apache.zookeeper.server.quorum.QuorumPeerMain", self.folder / "zookeeper.properties")
        else:
            options = ["format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(self.folder / "server.properties")]
            if self._run("kafka.tools.StorageTool", *options).wait(60) != 0:
                raise RuntimeError((self.folder / "console.log").read_text())
        self._run("kafka.Kafka", self.folder / "server.properties")
        await_true(lambda: 1 in ask.live_brokers(self.port), f"no broker in {self.folder}")
        await_true(lambda: ask.has_coordinator(self.port), "no coordinator")

    def lines(self) -> Iterator[str]:
        """Yield the lines that a shipper would send: about groups, and of the coordinator."""
        for file in ("server.log", "requests.log", "telemetry.log"):
            path = self.folder / file
            for line in path.read_text().splitlines() if path.exists() else ():
                message = line.partition("] ")[2].partition(" ")[2].lstrip()
                if DATE.match(line) and (message.startswith(COORDINATORS) or API.search(line)):
                    yield line

    def _write(self, name: str, settings: Mapping[str, object]) -> None:
        (self.folder / name).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _zookeeper_settings(self) -> dict[str, object]:
        return {
            "broker.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper}",
            "log.dirs": self.folder / "data",
        }

    def _kraft_settings(self) -> dict[str, object]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
        }

    def _run(self, *arguments: object) -> subprocess.Popen[bytes]:
        log = f"-Dlog4j.configuration=file:{self.folder}/log4j.properties"
        if self.release.log4j2:
            log = f"-Dlog4j2.configurationFile={self.folder}/log4j2.yaml"
        command = [java_command(), "-Xmx512m", "-Duser.timezone=UTC", log, "-cp", self._class_path, *arguments]
        with (self.folder / "console.log").open("ab") as console:
            process = subprocess.Popen(list(map(str, command)), stdout=console, stderr=console)
        self._processes.append(process)
        return process

    def _end(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


class Scene:
    """The consumers of a scene, and what was done to them: group, member id and what the broker must have logged."""

    def __init__(self, servers: str, stack: ExitStack) -> None:
        self._servers, self._stack = servers, stack
        self.deeds: list[dict[str, str]] = []

    def start(self, software: str, group: str, name: str, **settings: object) -> Client:
        spec = Spec(software, group, f"{group}-{name}", ("orders",), session_timeout_ms=SESSION_MS, **settings)
        client = Client(spec, self._servers, lambda *_: None)
        self._stack.callback(client.end)
        return client

    def note(self, client: Client, what: str) -> None:
        self.deeds.append({"group": client.spec.group, "member_id": client.member_id, "what": what})

    def play(self, *, modern: bool) -> None:
        """Kill, close, stall and replace members, each in a group of its own kind; all at the same time."""
        plain = [self.start("kafka-python", "plain", name) for name in ("killed", "closed", "stays")]
        static = [self.start("kafka-python", "static", n, instance_id=n) for n in ("replaced", "killed", "stays")]
        slow = {"max_poll_interval_ms": POLL_LIMIT_MS}
        missed = [self.start("kafka-python", "missed", "stubborn", stubborn=True, **slow)]
        missed += [self.start("kafka-python", "missed", "stays", **slow)]
        java = [self.start("java", "slept", name, **slow) for name in ("sleeps", "stays")]
        consumers = [self.start("confluent-848", "modern", n) for n in ("killed", "closed", "stays") * modern]
        everybody = [*plain, *static, *missed, *java, *consumers]
        await_true(lambda: all(client.assigned for client in everybody), "not all are assigned")
        time.sleep(4)  # the last rebalances are over
        for client, what in ((plain[0], "session-expired"), (plain[1], "left"), (static[1], "session-expired")):
            self.note(client, what)
        self.note(static[0], "replaced")
        self.note(missed[0], "rebalance-timeout")
        self.note(java[0], "poll-exceeded")
        for client, what in zip(consumers, ("session-expired", "left"), strict=False):
            self.note(client, what)
        for client in everybody:
            if client.spec.name.endswith("-killed"):
                client.kill()
            elif client.spec.name.endswith("-closed"):
                client.close()
        static[0].kill()
        self._stack.callback(static[0].again().end)
        missed[0].stall(POLL_LIMIT_MS * 3 / 1_000)
        java[0].stall(POLL_LIMIT_MS * 2 / 1_000)
        time.sleep(1)
        self.start("kafka-python", "missed", "joins", **slow)
        time.sleep(POLL_LIMIT_MS * 3 / 1_000 + 4)  # the last deadline, the sleeper's return, the aftermath


def play(name: str, jars: Path, out: Path) -> None:
    """Write NAME.jsonl.gz and NAME.deeds.json."""
    release, folder = RELEASES[name], out / f"{name}.broker"
    records = out / f"{name}.records.jsonl"
    with ExitStack() as stack:
        broker = Broker(release, jars, folder)
        broker.start(stack)
        servers = f"127.0.0.1:{broker.port}"
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics({"orders": {"num_partitions": 6, "replication_factor": 1}}, wait_for_metadata=True)
            if "metric.reporters" in release.properties:
                told = ConfigResource(ConfigResourceType.CLIENT_METRICS, SUBSCRIPTION, dict(subscription(2_000)))
                admin.alter_configs([told], raise_on_unknown=False)
        recording = Recording(Kafka(bootstrap_servers=servers), records, from_beginning=True, probing=True)
        recording.start()
        stack.callback(recording.finish)
        scene = Scene(servers, stack)
        scene.play(modern=release.modern)
        recording.finish()
    shipped = sorted((instant_ms(line), line) for line in broker.lines())
    with gzip.open(out / f"{name}.jsonl.gz", "wt") as capture:
        capture.writelines(records.read_text().splitlines(keepends=True))
        for offset, (at_ms, line) in enumerate(shipped):
            place = {"source": "telemetry", "topic": TELEMETRY_TOPIC, "partition": 0, "offset": offset}
            row = {**place, "timestamp_ms": at_ms + 250, "key": KEY, "value": line}
            capture.write(json.dumps(row) + "\n")
    (out / f"{name}.deeds.json").write_text(json.dumps(scene.deeds, indent=1) + "\n")


def instant_ms(line: str) -> int:
    found = DATE.match(line)
    assert found is not None
    day, clock, milliseconds = found.groups()
    return round(datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=UTC).timestamp()) * 1_000 + int(milliseconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.old_brokers")
    parser.add_argument("releases", nargs="*", choices=[*RELEASES, []])
    parser.add_argument("--jars", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    names = options.releases or list(RELEASES)
    wanted = sorted({RELEASES[name].jars for name in names})
    if any(not (options.jars / jars).exists() for jars in wanted):
        resolve(IVY_FILE, options.jars, IVY_FOLDER, wanted)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(f"{name} …", flush=True)
        play(name, options.jars, options.out)


if __name__ == "__main__":
    main()

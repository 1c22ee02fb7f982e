"""A broker, and the real `run` as a process that can be killed."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from coordinator_model.shard.sharding import shard_of
from streaming.embedded import EmbeddedCluster
from tests.benchmarks import synthetic
from tests.benchmarks.synthetic import Member
from tests.e2e.crash_job import processes
from tests.streaming.run.listeners import listeners
from tests.support.needs import need_broker

PATIENCE_S = 400  # Spark starts in some ten seconds, on a machine with nothing else to do
SESSION_MS = 10_000
DISK_MB = 64


@pytest.fixture(scope="session")
def broker():
    need_broker()
    with EmbeddedCluster(telemetry=False, create_telemetry_topic=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")  # idle brokers cost CPU time
def three_brokers(broker):  # which skips where there are no jars
    """A cluster whose brokers a test may kill and pause, if all are well again when it ends."""
    with EmbeddedCluster(nodes=3) as cluster:
        yield cluster


@dataclass
class Coordinator:
    """Writes what a coordinator would about made-up groups, into two topics of its own, at instants of our choice."""

    broker: EmbeddedCluster
    name: str
    start_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000 - 60_000)

    def __post_init__(self):
        self.records, self.lines = f"records-{self.name}", f"lines-{self.name}"
        self.producer = self._producer()
        self.broker.create_topic(self.records, partitions=50)

    def _producer(self):
        return Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 0})

    def create_telemetry(self):
        self.broker.create_topic(self.lines, partitions=1)
        return self

    def recreate(self, topic, partitions=1):
        """Delete a topic and create it again, as soon as that may be."""
        self.producer.flush()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        [deleted] = admin.delete_topics([topic]).values()
        deleted.result()
        deadline = time.monotonic() + PATIENCE_S
        while not self._created(admin, topic, partitions):
            assert time.monotonic() < deadline, f"{topic} is still being deleted"
            time.sleep(0.1)
        self.producer = self._producer()  # the one before drops lines until it has forgotten the old topic

    def _created(self, admin, topic, partitions):
        [created] = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
        try:
            created.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    def record(self, group, generation, members, second):
        at_ms = self.start_ms + int(second * 1_000)
        key, value = synthetic.group_record(group, generation, members, at_ms)
        self.send(self.records, key, value, at_ms, shard_of(group, 50))

    def line(self, value, second):
        self.send(self.lines, b"broker-1", value, self.start_ms + int(second * 1_000), 0)

    def send(self, topic, key, value, at_ms, partition=0):
        self.producer.produce(topic, value, key, partition, timestamp=at_ms)
        self.producer.poll(0)

    def beats(self, group, members, generation, seconds, error=0):
        """One heartbeat of each member a second, and the broker's tick."""
        for second in seconds:
            for member in members:
                self.line(synthetic.heartbeat_line(group, member, generation, error), second)
            self.line(synthetic.probe_line(second + 1_000), second + 0.1)
        self.producer.flush()

    def expire(self, group, members, generation, second):
        """The last of `members` is removed: the others hear 27, rejoin, and the next generation is written."""
        rest = members[:-1]
        for member in rest:
            self.line(synthetic.heartbeat_line(group, member, generation, 27), second + 0.2)
        for member in rest:
            self.line(synthetic.join_line(group, member, generation + 1, rest, 100), second + 0.4)
        self.record(group, generation + 1, rest, second + 0.41)
        for member in rest:
            self.line(synthetic.sync_line(group, member, generation + 1, rest), second + 0.42)
        self.producer.flush()


@dataclass
class Monitor:
    """The real job over one coordinator's topics."""

    coordinator: Coordinator
    folder: Path
    run: dict = field(default_factory=dict)
    kafka: dict = field(default_factory=dict)

    def __post_init__(self):
        self.database = self.folder / "monitor.db"
        self.store_url = f"sqlite:///{self.database}"
        self.log = self.folder / "run.log"
        self.printed = self.folder / "run.out"
        self.process = None

    def start(self):
        config = {
            "kafka": {
                "bootstrap_servers": self.coordinator.broker.bootstrap_servers,
                "offsets_topic": self.coordinator.records,
                "telemetry_topics": [self.coordinator.lines],
                "client_telemetry_topics": [],
            }
            | self.kafka,
            "run": {"data_folder": str(self.folder / "data"), "master": "local[2]"} | self.run,
            "store": {"url": self.store_url},
        }
        text = "".join(
            f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
            for table, values in config.items()
        )
        (self.folder / "monitor.toml").write_text(text)
        command = [sys.executable, "-c", "from streaming.cli import main; main()", "run"]
        with self.log.open("a") as log, self.printed.open("a") as printed:
            self.process = subprocess.Popen(
                [*command, "--config", str(self.folder / "monitor.toml")],
                stdout=printed,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": str(Path.cwd())},
            )
        return self

    def kill(self):
        """End it the hard way, with everything it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """End it the polite way; returns the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=60)

    def processes(self):
        """All of its processes: Python, the JVM, their children."""
        return processes([self.process.pid])

    def listeners(self):
        return listeners(process.pid for process in self.processes())

    def rows(self, sql):
        if not self.database.exists():
            return []
        try:
            with closing(sqlite3.connect(self.database)) as database:
                return database.execute(sql).fetchall()
        except sqlite3.OperationalError:
            return []  # its tables are not there yet

    def wait_for(self, sql, enough=bool):
        """Rows of a query, once they are enough."""
        return self.until(lambda: self.rows(sql), enough, sql)

    def until(self, look, enough, what):
        deadline = time.monotonic() + PATIENCE_S
        while not enough(found := look()):
            assert self.process.poll() is None, f"run ended by itself:\n{self.log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"{what}: only {found}\n{self.log.read_text()[-3000:]}"
            time.sleep(0.2)
        return found

    def events(self):
        """What it logged itself, without its configuration and what Spark's JVM prints at its start."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def said(self, text):
        """Wait for the log to say something."""
        return self.until(self.log.read_text, lambda log: text in log, text)


@pytest.fixture
def coordinator(broker, request):
    return Coordinator(broker, re.sub(r"\W+", "_", request.node.name.removeprefix("test_"))[-60:].strip("_"))


@pytest.fixture
def monitor(coordinator, tmp_path):
    monitors = []

    def make(kafka=None, **run):
        monitors.append(Monitor(coordinator, tmp_path, run, kafka or {}))
        return monitors[-1].start()

    yield make
    for started in monitors:
        if started.process.poll() is None:
            started.kill()


@contextmanager
def small_disk(folder):
    """Mount a disk of `DISK_MB` there."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small disk: be root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def members():
    return [Member(1, SESSION_MS), Member(2, SESSION_MS), Member(3, SESSION_MS)]

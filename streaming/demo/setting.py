"""The environment of the demo: one real broker, its topics, `run` and `serve` as processes, and a producer."""

import contextlib
import json
import shutil
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kafka import KafkaProducer
from kafka.errors import KafkaError

from streaming.demo.child import Child
from streaming.demo.webhook import WebhookReceiver
from streaming.embedded import EmbeddedBrokerError, EmbeddedCluster
from streaming.embedded.ports import free_ports, require_free
from streaming.reporter import TOPIC as CLIENT_TELEMETRY_TOPIC

CLUSTER: Final = "demo"
PARTITIONS: Final = 6
SESSION_TIMEOUT_MS: Final = 6_000
MAX_POLL_INTERVAL_MS: Final = 10_000
HEARTBEAT_INTERVAL_MS: Final = 500  # kafka-python checks its poll interval no more often than this
RESOLVE_AFTER_MS: Final = 10_000  # the default, 60,000, is too long for a demo
USUAL_PORT: Final = 8844
API_TIMEOUT_S: Final = 5.0
MESSAGE_INTERVAL_S: Final = 0.2
BROKER_PROPERTIES: Final = {
    "group.initial.rebalance.delay.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": "1000",
}


class Setting:
    """A context manager. It starts nothing by itself; at its end it stops all that was started, newest first."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._topics: list[str] = []
        self.children: list[Child] = []

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="group-monitor-demo-"))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.webhook = self._stack.enter_context(WebhookReceiver())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start_broker(self) -> None:
        """Start the broker; return once it answers and its telemetry arrives. Children are stopped before it."""
        self.cluster = self._stack.enter_context(EmbeddedCluster(properties=BROKER_PROPERTIES))
        # The instant of a report is the broker's, not the client's.
        self.cluster.create_topic(
            CLIENT_TELEMETRY_TOPIC, partitions=3, configs={"message.timestamp.type": "LogAppendTime"}
        )
        self._stack.callback(self._end_children)

    def create_topics(self, *names: str) -> None:
        """Create topics and start to produce to them."""
        for name in names:
            self.cluster.create_topic(name, partitions=PARTITIONS)
        self._topics += names
        stop = threading.Event()
        feeder = threading.Thread(target=self._feed, args=(stop,), name="producer", daemon=True)
        feeder.start()
        self._stack.callback(feeder.join, 10.0)
        self._stack.callback(stop.set)

    def start_monitor(self) -> None:
        """Start `run` and `serve` on one monitor.toml, without waiting."""
        try:
            port = require_free(USUAL_PORT)
        except EmbeddedBrokerError:
            (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        config = self.folder / "monitor.toml"
        config.write_text(self._monitor_toml(port), encoding="utf-8")
        for command in ("serve", "run"):
            self._start(command, "streaming.demo.stdin_guard", command, "--config", str(config))

    def start_consumer(
        self, software: str, group: str, client_id: str, max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS
    ) -> Child:
        """Start a consumer of the topic with the same name as its group."""
        spec = {
            "software": software,
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "group": group,
            "topic": group,
            "client_id": client_id,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
            "max_poll_interval_ms": max_poll_interval_ms,
        }
        return self._start(client_id, "streaming.demo.consumer", json.dumps(spec), listens=True)

    def ask(self, path: str) -> Any:
        """Return the response of `serve`; None if it does not answer or is not ready."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=API_TIMEOUT_S) as answer:  # noqa: S310 # our own URL
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def _start(self, name: str, module: str, *arguments: str, listens: bool = False) -> Child:
        child = Child(name, self.folder, module, *arguments, listens=listens)
        self.children.append(child)
        return child

    def _end_children(self) -> None:
        for child in self.children:
            child.ask_to_stop()
        for child in self.children:
            child.end()

    def _monitor_toml(self, port: int) -> str:
        data = self.folder / "data"
        return f"""\
cluster = "{CLUSTER}"
[kafka]
bootstrap_servers = "{self.cluster.bootstrap_servers}"
[run]
data_folder = "{data}"
view_refresh_ms = 1000
[store]
url = "sqlite:///{data}/monitor.db"
[serve]
port = {port}
partition_metrics = true
[thresholds]
resolve_after_ms = {RESOLVE_AFTER_MS}
[[notify]]
kind = "webhook"
url = "{self.webhook.url}"
"""

    def _feed(self, stop: threading.Event) -> None:
        """Produce a message to each topic, five times a second."""
        producer = KafkaProducer(bootstrap_servers=self.cluster.bootstrap_servers, client_id="demo-producer")
        number = 0
        while not stop.wait(MESSAGE_INTERVAL_S):
            number += 1
            for topic in self._topics:
                with contextlib.suppress(KafkaError):
                    producer.send(topic, b"message %d" % number)
        producer.close(timeout=5)

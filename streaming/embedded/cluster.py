"""A real Kafka cluster on this machine, one node or three: it ships its group telemetry and ends with its owner."""

import contextlib
import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import TopicAlreadyExistsError

from streaming.client_metrics.plugin import SUBSCRIPTION, subscription
from streaming.embedded import readiness, watchdog
from streaming.embedded.errors import EmbeddedBrokerError
from streaming.embedded.node import START_TIMEOUT_S, Node
from streaming.embedded.ports import free_ports, require_free
from streaming.embedded.settings import server_properties
from streaming.log4j2 import Snippet, as_yaml
from streaming.telemetry_topics import REQUEST_LOG_CONFIGS, TELEMETRY_TOPIC

REQUEST_LOGGER: Final = "kafka.request.logger"


class EmbeddedCluster:
    """A context manager for `nodes` brokers with the ids 1 … n, each of which is a controller too.

    `data_folder`: None is a temporary folder that is removed with the cluster; any other is kept and can be started
    again with the same number of nodes. `port` is the first broker's (the others follow it); None takes free ones.
    `telemetry` False starts with the request log off (`set_request_log` turns it on). `properties` are Kafka's own and
    override ours. `telemetry_bootstrap_servers` is where the brokers ship their lines, None: to themselves;
    `create_telemetry_topic` False does not create the topic for them. `log4j2`, file name -> text, replaces our file on
    all nodes; log4j2 merges several files. `coordinator_log` ships the coordinator's INFO lines, with or without the
    request log; it is off by default, because tests and the demo judge the monitor by those very lines.
    """

    def __init__(  # noqa: PLR0913 - each changes one thing of a broker
        self,
        nodes: int = 1,
        data_folder: Path | None = None,
        *,
        port: int | None = None,
        telemetry: bool = True,
        properties: Mapping[str, str] | None = None,
        telemetry_bootstrap_servers: str | None = None,
        create_telemetry_topic: bool = True,
        log4j2: Mapping[str, str] | None = None,
        coordinator_log: bool = False,
    ) -> None:
        self._temporary = data_folder is None
        self._telemetry = telemetry
        self._properties = dict(properties or {})
        self._telemetry_bootstrap_servers = telemetry_bootstrap_servers
        self._create_telemetry_topic = create_telemetry_topic
        self._log4j2 = log4j2
        self._coordinator_log = coordinator_log
        self._port = port
        self._size = nodes
        self._data_folder = data_folder
        self._claim: IO[str] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self.nodes: list[Node] = []

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,…` of all nodes."""
        return ",".join(node.bootstrap_server for node in self.nodes)

    @property
    def folder(self) -> Path:
        """The folder in which the nodes keep everything."""
        if self._data_folder is None:
            self._data_folder = Path(tempfile.mkdtemp(prefix="group-monitor-kafka-"))
        self._data_folder.mkdir(parents=True, exist_ok=True)
        return self._data_folder

    def node(self, node_id: int) -> Node:
        """Return the node with that broker id (1 … n)."""
        return self.nodes[node_id - 1]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException as error:
            self.close(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    def start(self) -> None:
        """Start; return once every broker answers and, with telemetry, a line of each was read back from the topic."""
        self._claim_folder()
        self._prepare_nodes()
        self._start_watchdog()
        self._format()
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.await_ready({other.node_id for other in self.nodes})
        # A monitor reads __consumer_offsets with `assign`, so the topic has to exist before the first group creates it.
        readiness.await_coordinator(self.nodes[0].port)
        self._subscribe_to_client_metrics()
        if self._create_telemetry_topic:
            self.create_topic(TELEMETRY_TOPIC, partitions=max(3, self._size), configs=REQUEST_LOG_CONFIGS)
        if self._telemetry and self._create_telemetry_topic and self._telemetry_bootstrap_servers is None:
            readiness.await_telemetry(self.bootstrap_servers, {f"broker-{n.node_id}": n.port for n in self.nodes})

    def close(self, error: BaseException | None = None) -> None:
        """End all nodes: by an orderly shutdown if the data is kept, at once if it is removed anyway.

        A temporary folder stays if the error names the log in it.
        """
        running = [node for node in self.nodes if node.running]
        for node in running:
            node.kill() if self._temporary else node.ask_to_stop()
        for node in running:
            if node.running:
                node.await_stop()
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait()
        if self._claim is not None:
            self._claim.close()
        names_log = isinstance(error, EmbeddedBrokerError) and str(self._data_folder) in str(error)
        if self._temporary and self._data_folder is not None and not names_log:
            shutil.rmtree(self._data_folder, ignore_errors=True)

    def create_topic(self, name: str, *, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic on as many replicas as the cluster has (at most 3), unless it exists, and wait for leaders."""
        topic = {"num_partitions": partitions, "replication_factor": min(3, self._size), "configs": dict(configs or {})}
        with self._admin() as admin:
            with contextlib.suppress(TopicAlreadyExistsError):
                admin.create_topics({name: topic})
            admin.wait_for_topics([name], timeout_ms=int(1_000 * START_TIMEOUT_S))

    def set_request_log(self, level: str) -> None:
        """Set the level of all brokers' request logs at run time, like `kafka-configs --entity-type broker-loggers`."""
        with self._admin() as admin:
            for node in self.nodes:
                resource = ConfigResource(ConfigResourceType.BROKER_LOGGER, str(node.node_id), {REQUEST_LOGGER: level})
                admin.alter_configs([resource])

    def _subscribe_to_client_metrics(self) -> None:
        """Subscribe to clients' metrics, as `kafka-configs --entity-type client-metrics` does."""
        resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, SUBSCRIPTION, dict(subscription()))
        with self._admin() as admin:
            admin.alter_configs([resource])

    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.bootstrap_servers, client_id="embedded-broker")

    def _claim_folder(self) -> None:
        """Refuse a data folder with a comma, one in use, and one that was made for another number of nodes."""
        if "," in str(self.folder):  # `log.dirs` and log4j2 would take it for two folders
            if self._temporary:
                wanted = "set TMPDIR to a folder whose path is without commas"
                raise EmbeddedBrokerError(f"{self.folder.parent}: {wanted}")  # does not name what `close` removes
            raise EmbeddedBrokerError(f"{self.folder}: the path of a data folder has to be without commas")
        self._claim = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EmbeddedBrokerError(f"{self.folder} is in use by a running cluster") from None
        there = len(list(self.folder.glob("node-*/data/meta.properties")))
        if there not in {0, self._size}:
            raise EmbeddedBrokerError(f"{self.folder} holds a cluster with nodes={there}, not {self._size}")

    def _prepare_nodes(self) -> None:
        ids = range(1, self._size + 1)
        if self._port is None:
            free = free_ports(2 * self._size)
            broker_ports, controller_ports = free[: self._size], free[self._size :]
        else:
            broker_ports = [require_free(self._port + offset) for offset in range(self._size)]
            controller_ports = free_ports(self._size)
        ports = dict(zip(ids, broker_ports, strict=True))
        controllers = dict(zip(ids, controller_ports, strict=True))
        self.nodes = [Node(id_, ports[id_], self.folder / f"node-{id_}") for id_ in ids]
        for node in self.nodes:
            node.folder.mkdir(parents=True, exist_ok=True)
            (node.folder / "server.properties").write_text(
                server_properties(
                    node_id=node.node_id,
                    ports=ports,
                    controller_ports=controllers,
                    data_folder=node.data_folder,
                    overrides=self._properties,
                )
            )
            node.write_log4j2(self._log4j2 or self._own_log4j2(node))

    def _own_log4j2(self, node: Node) -> dict[str, str]:
        """Return the file that users get, with this node's key and addresses."""
        snippet = Snippet(
            bootstrap_servers=self._telemetry_bootstrap_servers or self.bootstrap_servers,
            key=f"broker-{node.node_id}",
            level="debug" if self._telemetry else "warn",
            alone=True,
            coordinator_log=self._coordinator_log,
        )
        return {"log4j2.yaml": as_yaml(snippet)}

    def _start_watchdog(self) -> None:
        what_then = "remove" if self._temporary else "keep"
        command = [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), str(self.folder), what_then]
        quiet = subprocess.DEVNULL
        self._watchdog = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)

    def _format(self) -> None:
        cluster_id = (
            "G" + secrets.token_urlsafe(16)[1:]
        )  # Kafka's form of a uuid; a leading "-" would be read as an option
        formatting = [(node, node.launch_format(cluster_id)) for node in self.nodes if not node.formatted]
        for node, process in formatting:
            if process.wait(START_TIMEOUT_S) != 0:
                raise EmbeddedBrokerError(
                    f"the storage of broker {node.node_id} cannot be formatted: {node.last_words()}"
                )

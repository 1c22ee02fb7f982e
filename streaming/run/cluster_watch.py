"""Regular requests for who leads the partitions of the offsets topic, and which broker has which telemetry key.

Metadata names brokers by node id; the request log names them by the key of their lines. The probe connects the two: its
request to a node contains the node id, and appears in the log as a line of that broker. Anyone who can send requests to
the brokers can send such a request too, so the probe's also contain a number that nobody else knows, the nonce.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Self

import structlog
from kafka import KafkaAdminClient

from streaming.connection.brokers import describe_cluster

log = structlog.get_logger(__name__)

ASK_EVERY_S = 5.0
ASK_AGAIN_S = 0.5  # the shortest interval, used if the known leaders are in doubt
TIMEOUT_MS = 5_000
MAX_KEYS = 4_096

Row = dict[str, Any]
"""A cluster row of the capture format (docs/capture.md)."""


class ClusterWatch:
    """Asks in its own thread, from `start` to `stop`, and passes each answer to `take` as a cluster row."""

    def __init__(
        self,
        client: Mapping[str, Any],
        offsets_topic: str,
        nonce: str,
        take: Callable[[Row], None],
        keys: Mapping[int, str] | None = None,
    ) -> None:
        """`nonce` is the probe's; `keys` are those that an earlier run learned: node id -> telemetry key."""
        self._client = {**client, "request_timeout_ms": TIMEOUT_MS}
        self._topic, self._nonce, self._take = offsets_topic, nonce, take
        self._lock = threading.Lock()
        self._keys = dict(keys or {})
        self._doubt, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster-watch", daemon=True)

    def start(self) -> Self:
        """Start asking; return at once."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop asking."""
        self._stopping.set()
        self._doubt.set()
        self._thread.join(timeout=2 * TIMEOUT_MS / 1_000)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def doubt(self) -> None:
        """Ask again soon, because the known leaders may be wrong."""
        self._doubt.set()

    def heard(self, asked: str, key: str) -> None:
        """Learn a broker's key from a probe's line: `asked` names the node that was asked, `key` is the line's key."""
        nonce, _, node = asked.rpartition("-")
        if nonce != self._nonce or not (node.isascii() and node.isdigit() and len(node) < len(str(2**31))):
            return
        with self._lock:
            if self._keys.get(int(node)) != key and len(self._keys) < MAX_KEYS:
                self._keys[int(node)] = key
                self._doubt.set()  # so that the next row, with the key, comes soon

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with closing(KafkaAdminClient(**self._client)) as admin:
                    self._ask_until_stopped(admin)
            except Exception as error:  # noqa: BLE001 # bad answers too: without metadata, telemetry shows leaders
                log.warning("leaders of the offsets topic cannot be asked for, trying again", error=repr(error))
                self._stopping.wait(ASK_EVERY_S)

    def _ask_until_stopped(self, admin: KafkaAdminClient) -> None:
        while not self._stopping.is_set():
            self._doubt.clear()
            self._take(self._row(admin))
            if not self._stopping.wait(ASK_AGAIN_S):
                self._doubt.wait(ASK_EVERY_S - ASK_AGAIN_S)

    def _row(self, admin: KafkaAdminClient) -> Row:
        asked_ms = time.time_ns() // 1_000_000
        nodes = describe_cluster(admin)["brokers"]
        [topic] = admin.describe_topics([self._topic])
        with self._lock:
            keys = dict(self._keys)
        times_used = Counter(keys.values())
        known = {node: key for node, key in keys.items() if times_used[key] == 1}  # a shared key identifies none
        return {
            "source": "cluster",
            "timestamp_ms": asked_ms,
            "leaders": leaders_of(topic),
            "leader_epochs": _by_partition(topic, "leader_epoch"),
            "brokers": {
                str(node["broker_id"]): {
                    "host": node["host"],
                    "port": node["port"],
                    "key": known.get(node["broker_id"]),
                }
                for node in nodes
            },
        }


def leaders_of(topic: Mapping[str, Any]) -> list[int | None]:
    """Return the leader of each partition of a topic that the admin client described; None where there is none."""
    return _by_partition(topic, "leader_id")


def _by_partition(topic: Mapping[str, Any], field: str) -> list[int | None]:
    """Return a field of each partition, in the order of their numbers; None where it is missing or negative."""
    by_number = {row["partition_index"]: row.get(field, -1) for row in topic.get("partitions") or ()}
    count = max(by_number, default=-1) + 1
    return [value if (value := by_number.get(number, -1)) >= 0 else None for number in range(count)]

"""Who leads the partitions of the offsets topic, and which telemetry key is which broker: asked again and again.

Metadata names nodes, the request log names brokers by the key of their lines. The probe brings the two together: what
it asks of a node names that node, and comes back as that broker's line. Whoever may ask brokers anything may send such
a request too, so what the probe calls a node holds a number that nobody else knows.
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
ASK_AGAIN_S = 0.5  # at the soonest, where an answer made somebody doubt what is known
TIMEOUT_MS = 5_000
MAX_KEYS = 4_096

Row = dict[str, Any]
"""A cluster row of the capture format (docs/capture.md)."""


class ClusterWatch:
    """Asks from a thread of its own, from `start` to `stop`, and hands each answer to `take` as a cluster row."""

    def __init__(
        self,
        client: Mapping[str, Any],
        offsets_topic: str,
        nonce: str,
        take: Callable[[Row], None],
        keys: Mapping[int, str] | None = None,
    ) -> None:
        """`nonce` is the probe's; `keys` is what an earlier run learned: node id -> telemetry key."""
        self._client = {**client, "request_timeout_ms": TIMEOUT_MS}
        self._topic, self._nonce, self._take = offsets_topic, nonce, take
        self._lock = threading.Lock()
        self._keys = dict(keys or {})
        self._doubt, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster-watch", daemon=True)

    def start(self) -> Self:
        """Begin asking; returns at once."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask no more."""
        self._stopping.set()
        self._doubt.set()
        self._thread.join(timeout=2 * TIMEOUT_MS / 1_000)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def doubt(self) -> None:
        """Ask again soon: an answer speaks against what is known."""
        self._doubt.set()

    def heard(self, asked: str, key: str) -> None:
        """Take what a probe's line says: what it called the node that it asked, and the key of the line."""
        nonce, _, node = asked.rpartition("-")
        if nonce != self._nonce or not (node.isascii() and node.isdigit() and len(node) < len(str(2**31))):
            return
        with self._lock:
            if self._keys.get(int(node)) != key and len(self._keys) < MAX_KEYS:
                self._keys[int(node)] = key
                self._doubt.set()  # what is handed on next knows it

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with closing(KafkaAdminClient(**self._client)) as admin:
                    self._ask_until_stopped(admin)
            except Exception as error:  # noqa: BLE001 # of a broker's answer too: without metadata answers alone tell
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
        known = {node: key for node, key in keys.items() if times_used[key] == 1}  # else they tell no brokers apart
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
    """Return the leaders by partition of what the admin client describes; None where there is none."""
    return _by_partition(topic, "leader_id")


def _by_partition(topic: Mapping[str, Any], field: str) -> list[int | None]:
    """Return a field of each partition, in their order; None where there is none or it is negative."""
    by_number = {row["partition_index"]: row.get(field, -1) for row in topic.get("partitions") or ()}
    count = max(by_number, default=-1) + 1
    return [value if (value := by_number.get(number, -1)) >= 0 else None for number in range(count)]

"""The half-second question to each broker: its own line in the request log is the tick that keeps time moving.

A broker whose groups are quiet writes no telemetry, and a broker that is dead writes none either. So each broker is
asked one tiny thing every half second, on a connection of its own: ListGroups with a state that no group is ever in.
The answer is empty; the broker's log of it carries the broker's clock. The state is `probe-<n>`, n counting the
answers of one connection, so that the reader of the log sees when a line went missing. A second one,
`asked-<nonce>-<node>`, says whom the probe believes to ask: so the line's key is known for that node's
(`cluster_watch`). Anybody may ask the same under the same client id, with numbers that jump: the job believes those
with its nonce alone, which stays the same over restarts so that lines from before one still count.

One dead broker does not silence the rest: all connections live in one non-blocking event loop.
"""

from __future__ import annotations

import functools
import re
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import structlog
from kafka.errors import KafkaError
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import ListGroupsRequest

from streaming.run.layout import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = structlog.get_logger(__name__)

PROBE_CLIENT_ID = "group-monitor-probe"
PROBE_INTERVAL_MS = 500
BOOTSTRAP_TIMEOUT_MS = 5_000
ANSWER_TIMEOUT_MS = 5_000
# A broker that is back must tick again at once, and a new broker within some seconds.
RECONNECT_BACKOFF_MAX_MS = 500
METADATA_MAX_AGE_MS = 5_000
SILENT_MS = 1_500
NONCE_BYTES = 8
NONCE_FILE = "probe-nonce"
_NONCE = re.compile(rf"[0-9a-f]{{{2 * NONCE_BYTES}}}")


def new_nonce() -> str:
    """Return what nobody guesses."""
    return secrets.token_hex(NONCE_BYTES)


def remembered_nonce(file: Path) -> str:
    """Return the nonce in a file, which is made where there is none that can be read."""
    with suppress(OSError, ValueError):
        if _NONCE.fullmatch(known := file.read_text(encoding="ascii")):
            return known
    nonce = new_nonce()
    try:
        write_atomically(file, nonce)
    except OSError as error:
        log.warning("the probe's nonce cannot be kept for the next start", file=str(file), error=str(error))
    return nonce


@dataclass(slots=True)
class BrokerProbe:
    """What the probe knows of one broker. Times are this machine's monotonic milliseconds."""

    answers: int = 0
    failures: int = 0
    asked_ms: float | None = None  # None: no question is on its way
    answered_ms: float | None = None
    round_trip_ms: float | None = None


class Probe:
    """Asks every broker of a cluster, from a thread of its own, until stopped.

    `client` holds kafka-python's arguments (`bootstrap_servers`, security). An unreachable cluster is no error: the
    probe goes on trying, and `brokers` tells how each broker answers. `nonce`: a new one unless told.
    """

    def __init__(
        self, client: Mapping[str, Any], *, interval_ms: int = PROBE_INTERVAL_MS, nonce: str | None = None
    ) -> None:
        self._client = {
            **client,
            "client_id": PROBE_CLIENT_ID,
            "reconnect_backoff_max_ms": RECONNECT_BACKOFF_MAX_MS,
            "metadata_max_age_ms": METADATA_MAX_AGE_MS,
            "request_timeout_ms": ANSWER_TIMEOUT_MS,
        }
        self._interval_ms = interval_ms
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self.brokers: dict[int, BrokerProbe] = {}
        self.nonce = nonce or new_nonce()
        """A part of each question that only readers of the request log can know."""

    def silent(self) -> frozenset[int]:
        """Return the nodes that have left a question unanswered for a while."""
        now_ms = _now_ms()
        asked = {node: state.asked_ms for node, state in list(self.brokers.items())}
        return frozenset(node for node, at_ms in asked.items() if at_ms is not None and now_ms - at_ms > SILENT_MS)

    def start(self) -> Self:
        """Begin asking; returns at once."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask no more and close all connections."""
        self._stopping.set()
        self._thread.join(timeout=10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopping.is_set():
            net = NetworkSelector(**self._client)
            manager = KafkaConnectionManager(net, **self._client)
            try:
                manager.bootstrap(BOOTSTRAP_TIMEOUT_MS)
                self._ask_until_stopped(net, manager)
            except (KafkaError, OSError, RuntimeError) as error:
                log.warning("probe cannot reach the cluster, trying again", error=str(error))
                self._stopping.wait(1.0)
            finally:
                manager.close()
                net.close()

    def _ask_until_stopped(self, net: NetworkSelector, manager: KafkaConnectionManager) -> None:
        """Ask all brokers once an interval; between the questions the loop hears the answers."""
        next_ms = _now_ms()
        while not self._stopping.is_set():
            now_ms = _now_ms()
            if now_ms >= next_ms:
                next_ms = max(next_ms + self._interval_ms, now_ms)
                for broker in manager.cluster.brokers():
                    self._ask(manager, broker.node_id)
            net.poll(timeout_ms=max(0.0, min(next_ms - _now_ms(), 100.0)))

    def _ask(self, manager: KafkaConnectionManager, node_id: int) -> None:
        state = self.brokers.setdefault(node_id, BrokerProbe())
        if state.asked_ms is not None:
            return  # one question at a time: a paused broker is not to wake up to a queue of them
        state.asked_ms = _now_ms()
        states = [f"probe-{state.answers + 1}", f"asked-{self.nonce}-{node_id}"]
        request = ListGroupsRequest(states_filter=states, types_filter=[])
        try:
            answer = manager.send(request, node_id=node_id)
        except KafkaError as error:
            _failed(state, error)
            return
        answer.add_callback(functools.partial(_answered, state))
        answer.add_errback(functools.partial(_failed, state))


def _answered(state: BrokerProbe, _: object) -> None:
    state.answered_ms = _now_ms()
    state.round_trip_ms = state.answered_ms - (state.asked_ms or state.answered_ms)
    state.answers += 1
    state.asked_ms = None


def _failed(state: BrokerProbe, _: object) -> None:
    state.failures += 1
    state.asked_ms = None


def _now_ms() -> float:
    return time.monotonic() * 1000

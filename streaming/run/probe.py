"""The probe, a request to each broker every half second: its line in the request log is a tick of the broker's clock.

A broker whose groups are quiet writes no telemetry, and neither does a dead one. So each broker gets a tiny request
every half second, on its own connection: ListGroups with a state that no group is ever in. The answer is empty, and the
line about it in the request log shows the broker's clock. The state is `probe-<n>`, where n counts the broker's
answers, so that a reader of the log notices a missing line. A second state, `asked-<nonce>-<node>`, contains the node
that the probe believes it is asking: it tells which line key belongs to that node (`cluster_watch`). Anyone can send
the same request under the same client id, with numbers that jump. So the job trusts only requests with its own nonce,
which stays the same across restarts so that lines from before a restart still count.

One dead broker does not delay the others: all connections share one non-blocking event loop.
"""

from __future__ import annotations

import functools
import re
import secrets
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import structlog
from kafka.errors import KafkaError
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import ListGroupsRequest

from streaming.connection.brokers import refused_logins
from streaming.run.every import Every
from streaming.run.replaced_file import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = structlog.get_logger(__name__)

PROBE_CLIENT_ID = "group-monitor-probe"
PROBE_INTERVAL_MS = 500
BOOTSTRAP_TIMEOUT_MS = 5_000
ANSWER_TIMEOUT_MS = 5_000
# A broker that is back must tick again at once, and a new broker within a few seconds.
RECONNECT_BACKOFF_MAX_MS = 500
METADATA_MAX_AGE_MS = 5_000
LOG_IN_AGAIN_S = 5.0
"""How soon the probe logs in again to brokers that refused its login. It then connects to all brokers again."""
SILENT_MS = 1_500
NONCE_BYTES = 8
NONCE_FILE = "probe-nonce"
_NONCE = re.compile(rf"[0-9a-f]{{{2 * NONCE_BYTES}}}")


def new_nonce() -> str:
    """Return a random text that nobody can guess."""
    return secrets.token_hex(NONCE_BYTES)


def remembered_nonce(file: Path) -> str:
    """Return the nonce in a file; write a new one if there is none that can be read."""
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
    asked_ms: float | None = None  # None: no request is pending
    answered_ms: float | None = None
    round_trip_ms: float | None = None


class Probe:
    """Sends requests to every broker of a cluster, from its own thread, until stopped.

    `client` holds kafka-python's arguments (`bootstrap_servers`, security). An unreachable cluster is not an error: the
    probe keeps trying, and `brokers` shows how each broker answers. `nonce`: by default a new one.
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
        """A part of each request that only readers of the request log can know."""

    def silent(self) -> frozenset[int]:
        """Return the nodes that have left a request unanswered for more than `SILENT_MS`."""
        now_ms = _now_ms()
        asked = {node: state.asked_ms for node, state in list(self.brokers.items())}
        return frozenset(node for node, at_ms in asked.items() if at_ms is not None and now_ms - at_ms > SILENT_MS)

    def start(self) -> Self:
        """Start asking; return at once."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop asking and close all connections."""
        self._stopping.set()
        self._thread.join(timeout=10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._connect_and_ask()
            except Exception as error:  # noqa: BLE001 # bad answers too: without ticks, healthy brokers look silent
                log.warning("probe cannot reach the cluster, trying again", error=repr(error))
                self._stopping.wait(1.0)

    def _connect_and_ask(self) -> None:
        """Ask on new connections, until stopped or until a broker has to be logged in to again."""
        for state in self.brokers.values():
            state.asked_ms = None  # nothing that was asked on earlier connections is answered any more
        with (
            closing(NetworkSelector(**self._client)) as net,
            closing(KafkaConnectionManager(net, **self._client)) as manager,
        ):
            manager.bootstrap(BOOTSTRAP_TIMEOUT_MS)
            self._ask_until_stopped(net, manager)

    def _ask_until_stopped(self, net: NetworkSelector, manager: KafkaConnectionManager) -> None:
        """Send a request to all brokers once per interval; in between, the event loop receives the answers.

        Return early, after a while, if a broker has refused the login.
        """
        next_ms, log_in_again = _now_ms(), Every(LOG_IN_AGAIN_S)
        while not self._stopping.is_set():
            now_ms = _now_ms()
            if now_ms >= next_ms:
                next_ms = max(next_ms + self._interval_ms, now_ms)
                for broker in manager.cluster.brokers():
                    self._ask(manager, broker.node_id)
            if log_in_again(time.monotonic()) and (refused := refused_logins(manager)):
                log.warning("brokers refuse the probe's login, trying again", brokers=refused)
                return
            net.poll(timeout_ms=max(0.0, min(next_ms - _now_ms(), 100.0)))

    def _ask(self, manager: KafkaConnectionManager, node_id: int) -> None:
        state = self.brokers.setdefault(node_id, BrokerProbe())
        if state.asked_ms is not None:
            return  # one request at a time: a paused broker must not find a queue of them when it resumes
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

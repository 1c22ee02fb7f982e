"""A dead man's switch: a POST at regular intervals while everything is well. Its receiver alerts if none arrives.

Nothing else can show that the monitor's own machine, database or network is down. It is sent only while this `serve`
leads, the database answers, and every `run` has caught up and makes progress.
"""

import json
import threading
from typing import Final

import requests
import structlog
from sqlalchemy.exc import SQLAlchemyError

from streaming.serve.health import Health
from streaming.serve.leader import Leader
from streaming.serve.notify.base import Delivered, post
from streaming.store import Store
from streaming.store.store import wall_ms
from streaming.store.trouble import as_fields

AGAIN_S: Final = 5.0
"""When the next heartbeat is tried if one was not delivered: after a start this `serve` may not lead yet."""


class DeadMansSwitch(threading.Thread):
    """The thread that sends these heartbeats until `stop` is set."""

    def __init__(
        self, store: Store, url: str, every_ms: int, health: Health, leader: Leader, stop: threading.Event
    ) -> None:
        super().__init__(name="dead-mans-switch", daemon=True)
        self._store = store
        self._url = url
        self._every_ms = every_ms
        self._health = health
        self._leader = leader
        self._stop_event = stop
        self._session = requests.Session()
        self._log = structlog.get_logger("dead-mans-switch")

    def run(self) -> None:
        """Repeat `beat` until stopped."""
        while not self._stop_event.is_set():
            delivered = False
            try:
                delivered = self.beat(wall_ms())
            except SQLAlchemyError as error:
                self._log.warning("no heartbeat: the database failed", **as_fields(error))
            except Exception:  # noqa: BLE001 - see the message
                self._log.exception("no heartbeat, unexpected error: the next one is tried")
            every_s = self._every_ms / 1_000
            self._stop_event.wait(every_s if delivered else min(every_s, AGAIN_S))

    def beat(self, now_ms: int) -> bool:
        """Send one heartbeat if all is well; return whether it was delivered."""
        well, _ = self._health.readiness(self._store.read.runs())
        if not (well and self._leader.leads()):
            return False
        answer = post(self._session, self._url, json.dumps({"monitor": "group-monitor", "at_ms": now_ms}))
        if answer != Delivered():
            self._log.warning("heartbeat not delivered", reason=answer.reason)  # type: ignore[union-attr]
        return answer == Delivered()

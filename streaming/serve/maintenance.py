"""The maintenance thread of `serve`: it fans messages out, watches every `run`, and deletes old rows."""

import threading
from collections.abc import Sequence
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from streaming.config.settings import Settings
from streaming.serve.health import Health
from streaming.serve.leader import Leader
from streaming.serve.missed import MissedAlerts
from streaming.serve.notify.base import Receiver
from streaming.serve.notify.delivery_worker import POLL_S
from streaming.store import Store
from streaming.store.batch import MONITOR_STALLED
from streaming.store.reader import RunProgress
from streaming.store.reports import own_finding, own_report
from streaming.store.store import DAY_MS, wall_ms
from streaming.store.trouble import as_fields

PRUNE_EVERY_MS = 3_600_000
LEAST_DAYS = 7  # before a silent cluster is forgotten: a `run` that ended on a Friday is still reported on the Monday


class Maintenance(threading.Thread):
    """The maintenance thread. It runs until `stop` is set; after an error of the database it tries again."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        health: Health,
        receivers: Sequence[Receiver],
        leader: Leader,
        stop: threading.Event,
    ) -> None:
        super().__init__(name="maintenance", daemon=True)
        self._store = store
        self._settings = settings
        self._health = health
        self._receivers = {receiver.name: receiver.severities for receiver in receivers}
        self._leader = leader
        self._stop_event = stop
        self._stalled: dict[str, bool] = {}
        self._missed = MissedAlerts(store, settings)
        self._has_told_open = False
        self._prune_ms = 0
        self._forget_ms = max(settings.store.retention_days, LEAST_DAYS) * DAY_MS
        self._log = structlog.get_logger("maintenance")

    def run(self) -> None:
        """Repeat `work` until stopped."""
        while not self._stop_event.is_set():
            try:
                self.work(wall_ms())
            except SQLAlchemyError as error:
                self._log.warning("the database failed", **as_fields(error))
            except Exception:  # noqa: BLE001 - see the message
                self._log.exception("unexpected error: maintenance goes on")
            self._stop_event.wait(POLL_S)

    def work(self, now_ms: int) -> None:
        """Watch every `run`; if this process leads, also do what is due. `now_ms`: the wall clock."""
        verdicts = [(run, self._health.verdict(run)) for run in self._store.read.runs()]
        if not self._leader.refresh():
            self._stalled.clear()  # the new leader may have written something else meanwhile
            return
        kept = []
        for run, stalled in verdicts:
            if stalled and run.silent_ms > self._forget_ms:
                self._forget(run)
                continue
            kept.append(run)
            if stalled is not None:
                self._tell(run, stalled=stalled)
        self._store.outbox.fan_out(self._receivers)
        if not self._has_told_open:  # once for each start and reload: a receiver that refuses is not asked for ever
            told = self._store.outbox.tell_open(self._receivers)
            self._has_told_open = True
            if told:
                self._log.info("receivers are told of open incidents that they do not know", messages=told)
        self._missed.tell(kept)
        if now_ms >= self._prune_ms and not self._store.prune(now_ms - self._settings.store.retention_days * DAY_MS):
            self._prune_ms = now_ms + PRUNE_EVERY_MS
            if given_up := self._store.outbox.give_up_removed_receivers(list(self._receivers)):
                self._log.warning("messages given up: their receiver is not configured any more", messages=given_up)

    def _forget(self, run: RunProgress) -> None:
        """Forget a cluster whose `run` will not come back: it was renamed, or is no longer monitored."""
        self._store.retire(run.cluster, self._settings)
        self._stalled.pop(run.cluster, None)
        days = run.silent_ms // DAY_MS
        self._log.warning("a cluster is forgotten: its run has given no sign of life", cluster=run.cluster, days=days)

    def _tell(self, run: RunProgress, *, stalled: bool) -> None:
        """Open `monitor-stalled` when a `run` stalls and close it when it is back; only changes are written."""
        if self._stalled.get(run.cluster) == stalled:
            return
        findings = [stalled_finding(run)] if stalled else []
        report = own_report(run.cluster, findings, run.alive_ms + run.silent_ms)
        self._store.apply_own(report, MONITOR_STALLED, self._settings)
        self._stalled[run.cluster] = stalled


def stalled_finding(run: RunProgress) -> dict[str, Any]:
    """Return the finding that a `run` is stalled: since its last sign of life nobody watches its cluster.

    Its instants are of the database's clock.
    """
    silent_s = run.silent_ms // 1_000
    return own_finding(
        MONITOR_STALLED,
        run.cluster,
        run.cluster,
        severity="page",
        opened_ms=run.alive_ms,
        at_ms=run.alive_ms + run.silent_ms,
        summary=f"the monitor of cluster {run.cluster} makes no progress for {silent_s} s: its groups are unwatched",
        detail={"checkpoint_id": run.checkpoint_id, "batch_id": run.batch_id},
    )

"""Whether every `run` has caught up and makes progress.

`run` writes a sign of life with every batch. This module measures, with a monotonic clock, how long that row stays
unchanged. So clocks of different machines are never compared, and a clock that somebody sets cannot cause a page.
While `run` starts or catches up, a batch takes much longer, so it may be silent for longer. After `serve` itself
starts, nothing is opened or closed until it has watched a `run` for long enough.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from streaming.store.reader import RunProgress

LONGEST_GAP_S = 5.0
"""What counts at most as silence of a `run` between two looks. `serve` could not look while the database was away, and
neither could `run` write."""
CATCHING_UP_MS = 120_000
"""How long a `run` that has not caught up may be silent at least: a full batch (`ROWS_PER_BATCH`) takes 35 s on the
machine of docs/performance.md, and the first one also waits for the start of Spark."""


class _Sign(NamedTuple):
    """The newest sign of life of a `run`: last seen at `seen_s`, and unchanged for `silent_s`."""

    row: tuple[str, int, int]
    seen_s: float
    silent_s: float
    has_moved: bool
    is_stalled: bool = False
    """Only the next sign of life ends it, not a `run` that starts and so may be silent for longer."""


class Health:
    """What this process has seen of every `run`. It may be used from any thread."""

    def __init__(
        self,
        monitor_stalled_ms: int,
        leads: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.leads = leads
        """Whether this is the `serve` that sends."""
        self.monitor_stalled_ms = monitor_stalled_ms
        """After how long without a sign of life a `run` that has caught up is stalled; a reload may change it."""
        self._clock = clock
        self._signs: dict[str, _Sign] = {}
        self._lock = threading.Lock()

    def verdict(self, run: RunProgress) -> bool | None:
        """Tell whether a `run` is stalled; None if it has not been watched for long enough. Has to be called often."""
        row, now_s = (run.checkpoint_id, run.batch_id, run.alive_ms), self._clock()
        with self._lock:
            known = self._signs.get(run.cluster)
            if known is None or known.row != row:
                sign = _Sign(row, now_s, 0.0, has_moved=known is not None)
            else:
                silent_s = known.silent_s + min(now_s - known.seen_s, LONGEST_GAP_S)
                is_stalled = known.is_stalled or silent_s * 1_000 > self._limit_ms(run)
                sign = known._replace(seen_s=now_s, silent_s=silent_s, is_stalled=is_stalled)
            self._signs[run.cluster] = sign
        if sign.is_stalled:
            return True
        return False if sign.has_moved else None

    def stalled(self, run: RunProgress) -> bool:
        """Tell whether a `run` is stalled. While `verdict` is None, the database's clock decides."""
        verdict = self.verdict(run)
        return run.silent_ms > self._limit_ms(run) if verdict is None else verdict

    def _limit_ms(self, run: RunProgress) -> int:
        return self.monitor_stalled_ms if run.caught_up else max(self.monitor_stalled_ms, CATCHING_UP_MS)

    def readiness(self, runs: Iterable[RunProgress]) -> tuple[bool, dict[str, Any]]:
        """Tell whether every `run` has caught up and makes progress, and return the state of each."""
        clusters = [
            {
                "cluster": run.cluster,
                "caught_up": run.caught_up,
                "stalled": self.stalled(run),
                "alive_age_ms": max(0, run.silent_ms),
            }
            for run in runs
        ]
        ready = bool(clusters) and all(state["caught_up"] and not state["stalled"] for state in clusters)
        body: dict[str, Any] = {"ready": ready, "clusters": clusters}
        if not ready:
            troubles = (
                f"{state['cluster']} {'makes no progress' if state['stalled'] else 'is catching up'}"
                for state in clusters
                if state["stalled"] or not state["caught_up"]
            )
            body["reason"] = ", ".join(troubles) or "no run has written to the store yet"
        return ready, body

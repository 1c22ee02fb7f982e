"""Is every `run` caught up and at work? The one place where the wall clock judges anything: our own process.

`run` writes a sign of life with every batch, and while idle. After a start of `serve` itself each `run` gets the
full time to show one, since the two are often restarted together.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from streaming.store.reader import RunProgress


@dataclass(frozen=True, slots=True)
class Health:
    """Facts that do not change while `serve` runs."""

    started_ms: int
    monitor_stalled_ms: int
    leads: Callable[[], bool] = lambda: False
    """Whether this is the `serve` that sends."""

    def stalled(self, run: RunProgress, now_ms: int) -> bool:
        """Tell whether a `run` has given no sign of life for too long."""
        return now_ms - max(run.alive_ms, self.started_ms) > self.monitor_stalled_ms

    def readiness(self, runs: Iterable[RunProgress], now_ms: int) -> tuple[bool, dict[str, Any]]:
        """Tell whether answers can be trusted, and why not."""
        clusters = [
            {
                "cluster": run.cluster,
                "caught_up": run.caught_up,
                "stalled": self.stalled(run, now_ms),
                "alive_age_ms": max(0, now_ms - run.alive_ms),
            }
            for run in runs
        ]
        ready = bool(clusters) and all(state["caught_up"] and not state["stalled"] for state in clusters)
        body: dict[str, Any] = {"ready": ready, "clusters": clusters}
        if not clusters:
            body["reason"] = "no run has written to the store yet"
        return ready, body

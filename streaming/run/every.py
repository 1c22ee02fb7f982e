"""A periodic task within a loop."""

import time


class Every:
    """Tells when a periodic task is due again."""

    def __init__(self, period_s: float) -> None:
        self._period_s, self._done_s = period_s, time.monotonic()

    def __call__(self, now_s: float) -> bool:
        """Tell whether the task is due; if so, it counts as done now."""
        if now_s - self._done_s < self._period_s:
            return False
        self._done_s = now_s
        return True

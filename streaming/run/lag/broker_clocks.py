"""What brokers' lines show about time: how far their clocks differ from ours, and which brokers are silent."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from coordinator_model.brokers.leadership import STALE_MS

USUAL_DELAY_MS: Final = 3_000
"""A line is usually this old when its batch is applied; such an age does not prove that a clock is behind."""
SAMPLES: Final = 64


class BrokerClocks:
    """The brokers' clocks, as shown by the outputs of batches in their order."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._heard_ms: dict[str, int] = {}
        self._newest_ms = 0
        self._behind_ms: deque[int] = deque(maxlen=SAMPLES)

    def take(self, output: Mapping[str, Any]) -> None:
        """Apply a `progress` output, which tells how far brokers were read."""
        for broker, seen in output["brokers"].items():
            heard_ms = self._heard_ms[broker] = max(self._heard_ms.get(broker, 0), seen["progress_ms"])
            self._newest_ms = max(self._newest_ms, heard_ms)

    def saw_record(self, at_ms: int) -> None:
        """Apply the instant of a record, which comes from a broker's clock."""
        self._newest_ms = max(self._newest_ms, at_ms)

    def end_batch(self) -> None:
        """Record how far the newest instant is from now."""
        if self._newest_ms:
            self._behind_ms.append(self._now_ms() - self._newest_ms)
            self._newest_ms = 0

    def behind_ms(self) -> int:
        """Return how far the brokers' clocks are behind this machine's; negative: ahead of it.

        A small difference counts as 0, because a line is a little old when it is read. So does a very large one,
        because then lines are late.
        """
        least_ms = min(list(self._behind_ms), default=0)
        return 0 if 0 <= least_ms <= USUAL_DELAY_MS or abs(least_ms) > STALE_MS else least_ms

    def is_silent(self, broker: str, at_ms: int) -> bool:
        """Tell whether a broker that has written lines has not done so for too long."""
        heard_ms = self._heard_ms.get(broker)
        return heard_ms is not None and at_ms - heard_ms > STALE_MS

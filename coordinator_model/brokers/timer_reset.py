"""When all session timers of a shard started anew: a pause, a restart or a move of its coordinator, or lost lines."""

from dataclasses import dataclass

from coordinator_model.states import Cause

LONGEST_SESSION_MS = 1_800_000
"""``group.max.session.timeout.ms`` as Kafka has it by default: no session timer runs longer."""
ASLEEP_AFTER_MS = 250
"""So long after a broker's last line before a pause it had more likely fallen asleep than not: the probe makes a line
every half second."""


@dataclass(slots=True)
class TimerReset:
    """All session timers of a shard started anew, once, in ``[low_ms, high_ms]``; an open end is still waited for.

    ``cause`` is COORDINATOR_PAUSE, COORDINATOR_MOVED, or UNKNOWN where only telemetry was lost: then a heartbeat may
    have been missed, which comes to the same.
    """

    low_ms: int
    high_ms: int | None
    cause: Cause
    broker: str
    woke_ms: int | None = None
    """The broker's first line after a pause that it survived: its timers ran on, and what was due in between ended at
    that line. None: it may have been restarted."""
    blind_ms: int | None = None
    """The first heartbeat answered 0 after it by a coordinator that may still have been loading."""
    since_ms: int | None = None
    """Of a move: since when its predecessor had coordinated."""
    went_on: bool = False
    """Of a move: the predecessor is seen to answer after it. It need not have known when it was deposed, so the next
    one may have loaded at any instant after ``since_ms``."""
    word_ms: int = 0
    """Of a move: the last answer of the predecessor about the shard before it, whatever that proved."""

    @property
    def may_load(self) -> bool:
        """Whether the coordinator loads the groups anew before it answers for them."""
        return self.cause is not Cause.UNKNOWN and self.woke_ms is None

    def sleeps_at(self, due_ms: int, *, told_at_once: bool = False) -> bool:
        """Tell whether a timer that is due then waits for the broker to wake from this pause.

        ``told_at_once``: what it does is written at once, so that it had run in time would be known.
        """
        after_ms = 1 if told_at_once else ASLEEP_AFTER_MS
        return self.woke_ms is not None and self.low_ms + after_ms <= due_ms < self.woke_ms

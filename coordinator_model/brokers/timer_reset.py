"""When all session timers of a shard restarted: the coordinator paused, restarted or moved, or lines were lost."""

from dataclasses import dataclass

from coordinator_model.states import Cause

LONGEST_SESSION_MS = 1_800_000
"""Kafka's default of ``group.max.session.timeout.ms``: no session timer runs longer."""
PAUSED_AFTER_MS = 250
"""A timer that was due this long after a broker's last line before a pause most likely did not fire before the pause.
The probe makes a line every half second; this is half of that."""


@dataclass(slots=True)
class TimerReset:
    """All session timers of a shard restarted once, at an instant within ``[low_ms, high_ms]``.

    ``high_ms`` is None until the end of the interval is known. ``cause`` is COORDINATOR_PAUSE, COORDINATOR_MOVED, or
    UNKNOWN if only telemetry was lost: a lost line may be that of a heartbeat, which restarted its member's timer.
    """

    low_ms: int
    high_ms: int | None
    cause: Cause
    broker: str
    """The coordinator from then on; empty: the former one has refused (16), and no broker has answered as the
    coordinator since."""
    woke_ms: int | None = None
    """The broker's first line after a pause that it survived: its timers went on, and those that were due during the
    pause fired at that line. None: the broker may have restarted."""
    blind_ms: int | None = None
    """The first heartbeat that was answered 0 after the reset, while the coordinator may still have been loading."""
    since_ms: int | None = None
    """Only of a move: since when the former coordinator had coordinated."""
    went_on: bool = False
    """Only of a move: whether the former coordinator answered after the move. It may not have known that it was
    deposed, so the next coordinator may have loaded at any instant after ``since_ms``."""
    word_ms: int = 0
    """Only of a move: the former coordinator's last answer about the shard before it, whatever that answer proved."""
    sure: bool = True
    """Whether the coordinator surely paused or moved. If not, no broker is blamed, but the timers may have restarted
    all the same. A pause is not sure unless the broker was probed just before it and just after it: perhaps nobody
    asked the broker anything. A move is not sure if both names may be listeners of one broker (``listeners``)."""
    former: str = ""
    """Only of a move to another broker: the former coordinator. Empty if that one has refused (16)."""

    @property
    def is_move(self) -> bool:
        """Whether the coordinator gave up the groups: another broker has taken over, or the same one loads them."""
        return self.cause is Cause.COORDINATOR_MOVED

    @property
    def blamed_cause(self) -> Cause | None:
        """The cause of a session's end that is due to this reset; None: it is not known to be the coordinator's."""
        return self.cause if self.cause is not Cause.UNKNOWN and self.sure else None

    def may_come_after(self, at_ms: int) -> bool:
        """Tell whether the timers may have restarted at an instant or later."""
        return self.high_ms is None or self.high_ms >= at_ms

    @property
    def may_load(self) -> bool:
        """Whether the coordinator has to load the groups before it can answer for them."""
        return self.cause is not Cause.UNKNOWN and self.woke_ms is None

    def delays(self, due_ms: int, *, written_at_once: bool = False) -> bool:
        """Tell whether a timer that is due at ``due_ms`` fires only when the broker wakes from this pause.

        ``written_at_once``: the timer writes a record at once, so it would be known if it had fired before the pause.
        """
        after_ms = 1 if written_at_once else PAUSED_AFTER_MS
        return self.woke_ms is not None and self.low_ms + after_ms <= due_ms < self.woke_ms

"""The knobs of the judgement, with units and defaults; frozen, so that a replay is repeatable."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What separates late from lost. Every number in milliseconds unless it is a ratio."""

    grace_ms: int = 500
    """How long after a deadline or a removal the evidence for another explanation may still arrive."""
    at_risk_ratio: float = 2 / 3
    """Share of the session timeout without a heartbeat from which a member is at risk."""
    poll_at_risk_ratio: float = 0.8
    """Share of max.poll.interval.ms without a poll from which a member is at risk."""
    settled_after_ms: int = 60_000
    """A group stable for so long, up to twice as long, is looked at for how it is set up: one after the other."""
    page_after_ms: int = 60_000
    """A warning becomes a page when its partitions stay unowned for so long."""
    resolve_after_ms: int = 60_000
    """A group must be stable, with every partition owned, for so long before an incident closes as recovered."""
    recurrences_to_page: int = 3
    """So many violations of one client within ``recurrence_window_ms`` make a page."""
    recurrence_window_ms: int = 600_000
    """The window of ``recurrences_to_page``."""
    rebalance_slow_ms: int = 60_000
    """A join or sync phase longer than this is stuck."""
    storm_rebalances: int = 5
    """So many rebalances within ``storm_window_ms`` are a storm, unless they are a deploy."""
    storm_window_ms: int = 600_000
    """The window of ``storm_rebalances``."""
    unstable_after_ms: int = 10_000
    """A group whose generations are given up before their sync is reported when it is not stable so long after."""
    telemetry_stalled_ms: int = 15_000
    """A broker whose telemetry stands still for so long cannot be judged any more."""
    failover_ms: int = 30_000
    """Refusals for want of a coordinator for longer than this are no failover."""
    progress_gap_ms: int = 2_500
    """A hole this long in a broker's lines means that it was paused or restarted, or that lines were lost."""
    hold_ms: int = 10_000
    """How long rows wait for a slower source before they are applied without it."""
    stalled_write_ms: int = 1_000
    """A heartbeat answered 15 after waiting at least this long was applied before its answer was lost."""
    consumer_session_timeout_ms: int | None = None
    """Session timeout of KIP-848 groups where neither group nor broker configuration says; none: unknown."""


DEFAULT_THRESHOLDS = Thresholds()

"""The thresholds of the rules, with units and defaults. They are frozen, so that a replay is repeatable."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds. Every number is in milliseconds, unless it is a ratio or a count."""

    grace_ms: int = 500
    """How long to wait, after a deadline or a removal, for evidence of another explanation."""
    at_risk_ratio: float = 2 / 3
    """A member is at risk after this share of its session timeout without a heartbeat."""
    poll_at_risk_ratio: float = 0.8
    """A member is at risk after this share of its max.poll.interval.ms without a poll."""
    settled_after_ms: int = 60_000
    """How long a group has to be stable before its setup is checked. The check then follows within the same time."""
    page_after_ms: int = 60_000
    """How long the partitions have to be unowned before a warning becomes a page."""
    resolve_after_ms: int = 60_000
    """How long a group has to be stable, with every partition owned, before an incident closes as recovered."""
    recurrences_to_page: int = 3
    """How many violations of one client within ``recurrence_window_ms`` make a page."""
    recurrence_window_ms: int = 600_000
    """The window of ``recurrences_to_page``."""
    rebalance_slow_ms: int = 60_000
    """A join or sync phase that lasts longer is stuck."""
    storm_rebalances: int = 5
    """How many rebalances within ``storm_window_ms`` are a storm, unless they are a rolling deploy. The last 64 of a
    group are remembered."""
    storm_window_ms: int = 600_000
    """The window of ``storm_rebalances``."""
    unstable_after_ms: int = 10_000
    """A group whose generations end before they are synced is reported if it is still not stable after this time."""
    telemetry_stalled_ms: int = 15_000
    """After this time without a line of a broker, its members are unknown and ``telemetry-stalled`` opens."""
    failover_ms: int = 30_000
    """A failover should be over by then: clients that still find no coordinator are reported."""
    progress_gap_ms: int = 2_500
    """A gap this long in a broker's lines means that it was paused or restarted, or that lines were lost."""
    hold_ms: int = 10_000
    """How long rows wait for rows of a slower source. After that they are applied without them."""
    stalled_write_ms: int = 1_000
    """A heartbeat answered COORDINATOR_NOT_AVAILABLE (15) after waiting at least this long counts as applied."""
    stall_intervals: int = 3
    """``partition-stalled`` opens after this many usual intervals between commits, plus ``stall_margin_ms``. The usual
    interval needs as many known ones, and the last ten commits of a partition are remembered."""
    stall_margin_ms: int = 15_000
    """Allows for old end offsets and uneven commits. ``offset-rewound`` and ``offsets-lost`` wait for the same time."""
    stall_silence_ms: int = 300_000
    """How long a member may commit nothing at all, if its max.poll.interval.ms is not known."""
    stall_lag: int = 2
    """The least lag of a stalled partition. Its last offset may be a transaction marker, which no consumer reads."""
    lag_growing_ms: int = 300_000
    """How long a group's total lag has to have grown before ``lag-growing`` opens. The lags of the last ten minutes are
    remembered."""
    consumer_session_timeout_ms: int | None = None
    """Session timeout of KIP-848 groups if neither their configuration nor the brokers' can be read. None: unknown."""


DEFAULT_THRESHOLDS = Thresholds()

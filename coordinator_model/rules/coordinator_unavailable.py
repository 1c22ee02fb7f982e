"""``coordinator-unavailable``: for longer than a failover takes, clients get only the answers 14, 15 and 16."""

from typing import TYPE_CHECKING, Any

from coordinator_model.rules.findings import Finding
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.thresholds import Thresholds

if TYPE_CHECKING:
    from coordinator_model.rules.broker_watch import BrokerWatch

COORDINATOR_UNAVAILABLE = Rule(
    id="coordinator-unavailable",
    severities=(Severity.WARN,),
    evidence="observed",
    true_when=(
        "for longer than `failover_ms`, clients get only the answers COORDINATOR_LOAD_IN_PROGRESS,"
        " COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR"
    ),
    clears="`recovered` (another answer came, or no client asked for `resolve_after_ms`)",
    thresholds=("failover_ms", "resolve_after_ms"),
)

REFUSALS = {14: "COORDINATOR_LOAD_IN_PROGRESS", 15: "COORDINATOR_NOT_AVAILABLE", 16: "NOT_COORDINATOR"}

RefusalWindow = list[Any]
"""``[first_ms, last_ms, broker, last error, told]`` of refusals without another answer between them."""


def refused(window: RefusalWindow | None, broker: str, error: int, at_ms: int, answered_ms: int) -> RefusalWindow:
    """Extend the window of refusals by one. If another answer came since it began, begin a new window."""
    if window is None or answered_ms > window[0]:
        return [at_ms, at_ms, broker, error, False]
    first_ms, last_ms, first_broker, _, told = window
    return [first_ms, max(last_ms, at_ms), first_broker, error, told]


def lasts(window: RefusalWindow, thresholds: Thresholds) -> bool:
    """Tell whether a window of refusals is longer than a failover."""
    return bool(window[1] - window[0] >= thresholds.failover_ms)


def judge(watch: "BrokerWatch", _broker: str, thresholds: Thresholds) -> list[Finding]:
    """Return the finding, if the refusals have lasted for longer than a failover."""
    return [] if watch.refusals is None or not watch.refusals[-1] else [_finding(watch.refusals, thresholds)]


def _finding(window: RefusalWindow, thresholds: Thresholds) -> Finding:
    first_ms, _, broker, error, _ = window
    return Finding(
        rule=COORDINATOR_UNAVAILABLE.id,
        severity=COORDINATOR_UNAVAILABLE.severity,
        group="",
        subject=broker,
        opened_ms=first_ms,
        at_ms=first_ms + thresholds.failover_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"groups find no coordinator for longer than {thresholds.failover_ms} ms:"
        f" {broker} answers {REFUSALS.get(error, error)} ({error})",
        broker=broker,
        detail={"error": error},
    )

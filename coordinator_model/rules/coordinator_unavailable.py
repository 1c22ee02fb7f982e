"""``coordinator-unavailable``: for longer than a failover takes, clients get no answers but 14, 15 and 16."""

from typing import TYPE_CHECKING, NamedTuple

from coordinator_model.rules.findings import Finding
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.thresholds import Thresholds
from coordinator_model.wording import seconds

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


class RefusalSpell(NamedTuple):
    """A series of refusals without another answer between them."""

    first_ms: int
    last_ms: int
    broker: str
    """The broker that refused first."""
    error: int
    """The last error."""
    reported: bool
    """Whether the finding is reported."""
    last_broker: str = ""
    """The broker that refused last, with ``error``; empty in the state of an older monitor."""


def refused(spell: RefusalSpell | None, broker: str, error: int, at_ms: int, answered_ms: int) -> RefusalSpell:
    """Add a refusal to a spell. If another answer came since the spell began, begin a new one."""
    if spell is None or answered_ms > spell.first_ms:
        return RefusalSpell(at_ms, at_ms, broker, error, reported=False, last_broker=broker)
    return spell._replace(last_ms=max(spell.last_ms, at_ms), error=error, last_broker=broker)


def lasts(spell: RefusalSpell, thresholds: Thresholds) -> bool:
    """Tell whether refusals lasted for longer than a failover."""
    return spell.last_ms - spell.first_ms >= thresholds.failover_ms


def judge(watch: "BrokerWatch", _broker: str, thresholds: Thresholds) -> list[Finding]:
    """Return the finding, if the refusals have lasted for longer than a failover."""
    return [] if watch.refusals is None or not watch.refusals.reported else [_finding(watch.refusals, thresholds)]


def _finding(spell: RefusalSpell, thresholds: Thresholds) -> Finding:
    first_ms, error, broker = spell.first_ms, spell.error, spell.last_broker or spell.broker
    return Finding(
        rule=COORDINATOR_UNAVAILABLE.id,
        severity=COORDINATOR_UNAVAILABLE.severity,
        group="",
        subject=spell.broker,
        opened_ms=first_ms,
        at_ms=first_ms + thresholds.failover_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"groups have found no coordinator for longer than {seconds(thresholds.failover_ms)}:"
        f" {broker} answers {REFUSALS.get(error, error)} ({error})",
        broker=broker,
        detail={"error": error},
    )

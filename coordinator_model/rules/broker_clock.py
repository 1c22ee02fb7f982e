"""``broker-clock``: a broker's clock has stepped away from the other brokers' clocks, or from this machine's.

The broker's lines and records are dated by that clock, and so is everything that is reported about its groups. All
known instants of these groups are moved along with it (``rebase``).
"""

from typing import TYPE_CHECKING

from coordinator_model.rules.findings import Finding
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.thresholds import Thresholds
from coordinator_model.wording import seconds

if TYPE_CHECKING:
    from coordinator_model.rules.broker_watch import BrokerWatch

BROKER_CLOCK = Rule(
    id="broker-clock",
    severities=(Severity.WARN,),
    evidence="observed: the times of its lines jump, and those of other clocks do not",
    true_when=(
        "a broker's clock jumped by more than `hold_ms`, forward or back, and now differs from the other brokers'"
        " clocks or this machine's"
    ),
    clears=(
        "`recovered` (the clock is back, or the broker has left the cluster: metadata does not list it, and it has been"
        " silent for a day; without another clock to compare with, after `resolve_after_ms`)"
    ),
    thresholds=("hold_ms", "resolve_after_ms"),
)


def judge(watch: "BrokerWatch", _broker: str, _thresholds: Thresholds) -> list[Finding]:
    """Return a finding for each broker whose clock stepped."""
    steps = watch.clocks.items()
    return [_finding(broker, step.at_ms, step.apart_ms, lasting=step.lasting) for broker, step in steps]


def _finding(broker: str, at_ms: int, apart_ms: int, *, lasting: bool) -> Finding:
    """Return the finding about a broker. ``at_ms``: when its clock stepped, by the other clocks if there are any."""
    way = "ahead" if apart_ms > 0 else "back"
    apart = "it differs from other clocks by that much" if lasting else "there is no other clock to compare it with"
    return Finding(
        rule=BROKER_CLOCK.id,
        severity=BROKER_CLOCK.severity,
        group="",
        subject=broker,
        opened_ms=at_ms,
        at_ms=at_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"the clock of {broker} stepped {seconds(abs(apart_ms))} {way}: {apart}",
        broker=broker,
        detail={"apart_ms": apart_ms},
    )

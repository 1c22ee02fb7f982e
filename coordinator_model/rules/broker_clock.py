"""``broker-clock``: a broker's clock has stepped, away from the other brokers' or this machine's.

Its lines and records carry that clock, and so do the instants that are told of its groups: they are apart from all
others by as much. What is known of its groups moves with it (``rebase``), and their sessions are judged with care.
"""

from coordinator_model.rules.findings import Finding
from coordinator_model.states import Cause, Evidence, Severity

BROKER_CLOCK = "broker-clock"


def judge(broker: str, at_ms: int, apart_ms: int, *, lasting: bool) -> Finding:
    """Return the finding of a broker whose clock stepped at an instant, by the other clocks if there is one."""
    way, span_s = ("ahead" if apart_ms > 0 else "back"), abs(apart_ms) / 1_000
    apart = "it is apart from other clocks by as much" if lasting else "there is no other clock to compare it with"
    return Finding(
        rule=BROKER_CLOCK,
        severity=Severity.WARN,
        group="",
        subject=broker,
        opened_ms=at_ms,
        at_ms=at_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"the clock of {broker} stepped {span_s:,.0f} s {way}: {apart}",
        broker=broker,
        detail={"apart_ms": apart_ms},
    )

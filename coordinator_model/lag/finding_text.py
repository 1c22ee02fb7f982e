"""What findings about lag have in common: whom they name, and numbers that do not change with each look."""

from collections.abc import Iterable
from typing import Any

from coordinator_model.lag.lag_context import LagContext, Row
from coordinator_model.rules.findings import MAX_PARTITIONS_NAMED

KEPT_DIGITS = 2


def about(number: int) -> int:
    """Return a number with two digits and zeros: an open incident is not written anew each time that a lag moves."""
    unit: int = 10 ** max(0, len(str(abs(number))) - KEPT_DIGITS)
    return number // unit * unit


def about_group(context: LagContext, subject: str) -> dict[str, Any]:
    """Return the fields of a finding that tell what it is about."""
    facts = context.facts
    return {
        "group": facts.group,
        "subject": subject,
        "broker": facts.broker,
        "generation": facts.generation,
        "incarnation": str(facts.incarnation),
    }


def places(rows: Iterable[Row]) -> list[tuple[str, int]]:
    """Return the partitions of rows, the first of many."""
    return [(row.p.topic, row.p.partition) for row in rows][:MAX_PARTITIONS_NAMED]

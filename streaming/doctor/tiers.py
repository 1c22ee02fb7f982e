"""What further sources of this cluster would add, and the command with which each is switched on."""

from collections.abc import Iterator
from typing import Final

from streaming.doctor.check import Check, ok
from streaming.tiers import COORDINATOR_LOG, REQUEST_LOG

NAME: Final = "would add"


def would_add(tier: int, *, reports: bool) -> Iterator[Check]:
    """Yield a line for each source that is not there; `tier` is the cluster's, `reports` whether clients may report."""
    if tier < COORDINATOR_LOG:
        added = "why each member went, after the fact, at no cost a request"
        yield ok(NAME, f"tier 1, the coordinators' INFO lines: {added}: `group-monitor log4j2 --tier 1`")
    if tier < REQUEST_LOG:
        added = "who lives, the time left of each session, rebalances and violations as they happen"
        yield ok(NAME, f"tier 2, the request log: {added}: `group-monitor log4j2`")
    if not reports:
        added = "when each application last polled, on top of any tier"
        yield ok(NAME, f"clients' reports: {added}: `group-monitor doctor --create-topics`, then streaming.reporter")

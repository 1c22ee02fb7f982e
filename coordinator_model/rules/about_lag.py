"""Helpers for the lag rules: what a finding is about, and numbers that do not change in every round."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from coordinator_model.lag.lag_context import LagContext, Row
from coordinator_model.rules.findings import MAX_PARTITIONS_NAMED, Finding
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence

KEPT_DIGITS = 2

Pending = tuple[str, str, int]
"""A rule, a subject, and the instant of its last commit. An incident that began after that commit has not recovered."""


class TopicTrouble(NamedTuple):
    """What a rule has found about a topic, since when it has been so, and when it became certain."""

    rule: Rule
    topic: str
    rows: Sequence[Row]
    since_ms: int
    certain_ms: int


def two_digits(number: int) -> int:
    """Return a number rounded down to two digits, so that an incident is not written again whenever the lag changes."""
    unit: int = 10 ** max(0, len(str(abs(number))) - KEPT_DIGITS)
    return number // unit * unit


def about_group(context: LagContext, subject: str) -> dict[str, Any]:
    """Return the fields that say what a finding is about."""
    facts = context.facts
    return {
        "group": facts.group,
        "subject": subject,
        "broker": facts.broker,
        "generation": facts.generation,
        "incarnation": str(facts.incarnation),
    }


def places(rows: Iterable[Row]) -> list[tuple[str, int]]:
    """Return the partitions of rows, at most ``MAX_PARTITIONS_NAMED``."""
    return [(row.p.topic, row.p.partition) for row in rows][:MAX_PARTITIONS_NAMED]


def topic_finding(context: LagContext, trouble: TopicTrouble, text: str, detail: dict[str, Any]) -> Finding:
    """Return the finding about a topic, with its partitions."""
    return Finding(
        rule=trouble.rule.id,
        severity=trouble.rule.severity,
        opened_ms=trouble.since_ms,
        at_ms=trouble.certain_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=text,
        partitions=places(trouble.rows),
        detail=detail,
        **about_group(context, trouble.topic),
    )


def unknown_topics(context: LagContext, rule: Rule) -> Iterator[Pending]:
    """Yield topics for which a rule may be true, because an end offset is not known."""
    for topic, rows in context.topics.items():
        if any(not row.fresh for row in rows):
            yield rule.id, topic, 0

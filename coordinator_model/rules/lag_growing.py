"""``lag-growing``: a group commits and falls behind, by a partition's last commits and by the group's lag over time."""

from collections.abc import Iterator
from typing import NamedTuple

from coordinator_model.lag.lag_context import LagContext, Row
from coordinator_model.lag.status import Status, had_no_lag, lags_of
from coordinator_model.rules.about_lag import Pending, TopicTrouble, topic_finding, two_digits
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Severity
from coordinator_model.wording import counted

LAG_GROWING = Rule(
    id="lag-growing",
    severities=(Severity.WARN,),
    evidence="observed",
    true_when=(
        "a stable group commits and falls behind. The lag of a partition fell at none of its last ten commits, and is"
        " larger now than at the first of them. The total lag of the partitions that members own has grown for"
        " `lag_growing_ms`"
    ),
    clears="`recovered` (the lag no longer grows), `superseded` (the group has no members), `group-deleted`",
    thresholds=("lag_growing_ms",),
    needs_owner=True,
)


class _Growth(NamedTuple):
    """Since when a group's lag has grown, and when it had grown for ``lag_growing_ms``."""

    since_ms: int
    due_ms: int


def judge(context: LagContext) -> Iterator[Finding]:
    """Yield the topics with partitions that fall behind, while the lag of the whole group grows."""
    growth = _growth(context)
    for topic, rows in context.topics.items() if growth is not None else ():
        growing = [row for row in rows if _grows(row)]
        if growing and growth is not None:
            now = two_digits(sum(row.lag or 0 for row in growing))
            where = f"{topic}: lag of at least {now:,} in {counted(len(growing), 'partition')}"
            text = f"{context.facts.group} falls behind on {where}"
            yield topic_finding(context, TopicTrouble(LAG_GROWING, topic, growing, *growth), text, {"lag": now})


def _growth(context: LagContext) -> _Growth | None:
    """Return since when the lag of what a group reads has grown: since it was lowest. None: not for long enough."""
    lowest = min(context.history, key=lambda told: (told[1], -told[0]), default=None)
    if lowest is None or context.read is None or not context.works or context.read <= lowest[1]:
        return None
    due_ms = lowest[0] + context.thresholds.lag_growing_ms
    return _Growth(lowest[0], due_ms) if context.now_ms >= due_ms else None


def _grows(row: Row) -> bool:
    return row.status is Status.WARN and (row.lag or 0) > next(lags_of(row.p.commits))


def pending(context: LagContext) -> Iterator[Pending]:
    """Yield topics for which the rule may be true although there is no finding.

    There are three reasons: an end offset is not known; the group's lag still grows, but not at the last few commits;
    the group has not been watched for long enough.
    """
    grows = may_grow(context)
    for topic, rows in context.topics.items():
        waits = grows and any(row.lag and not had_no_lag(row.p.commits) for row in rows)
        if waits or any(not row.fresh for row in rows):
            yield LAG_GROWING.id, topic, 0


def may_grow(context: LagContext) -> bool:
    """Tell whether the group's lag grows, or may grow because it has not been watched for long enough."""
    return _growth(context) is not None or not _is_watched(context)


def _is_watched(context: LagContext) -> bool:
    return bool(context.history) and context.now_ms >= context.history[0][0] + context.thresholds.lag_growing_ms

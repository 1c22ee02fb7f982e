"""``offsets-lost``: the log does not hold the committed offset of a group."""

from collections.abc import Iterator

from coordinator_model.lag.lag_context import LagContext, Row
from coordinator_model.lag.status import committed_offset_of, is_beyond_end
from coordinator_model.rules.about_lag import Pending, TopicTrouble, topic_finding, two_digits, unknown_topics
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Severity
from coordinator_model.wording import counted

OFFSETS_LOST = Rule(
    id="offsets-lost",
    severities=(Severity.WARN,),
    evidence="observed",
    true_when=(
        "the newest committed offset is below the log start offset, or beyond the end offset. That commit is at least"
        " `stall_margin_ms` old"
    ),
    clears=(
        "`recovered` (since it began, the group has committed an offset that the log holds, on each partition of the"
        " topic that has lag), `group-deleted`"
    ),
    thresholds=("stall_margin_ms",),
)


def judge(context: LagContext) -> Iterator[Finding]:
    """Yield the topics in which a committed offset is below the log start offset, or beyond the end offset."""
    for topic, rows in context.topics.items():
        lost = [row for row in rows if _is_lost(row) and _is_quiet(row, context)]
        if lost and context.facts.view_ms:
            since_ms = min(row.last_ms for row in lost)
            beyond = sum(is_beyond_end(row.p) for row in lost)
            gone = two_digits(sum(_gone(row) for row in lost))
            why = "it is beyond the end offset, so the topic was truncated or recreated"
            if not beyond:
                why = f"messages deleted before they were committed: at least {gone:,}"
            where = f"{counted(len(lost), 'partition')} of {topic}"
            text = f"the log does not hold the committed offset of {context.facts.group} on {where}: {why}"
            trouble = TopicTrouble(OFFSETS_LOST, topic, lost, since_ms, context.now_ms)
            yield topic_finding(context, trouble, text, {"lost": len(lost), "messages": gone, "beyond_end": beyond})


def _is_lost(row: Row) -> bool:
    return is_beyond_end(row.p) or _gone(row) > 0


def _is_quiet(row: Row, context: LagContext) -> bool:
    """Tell whether a partition's last commit is old enough. One that is committed again and again may recover."""
    return context.now_ms >= row.last_ms + context.thresholds.stall_margin_ms


def _gone(row: Row) -> int:
    """Return how many uncommitted messages retention has deleted."""
    committed, start = committed_offset_of(row.p), row.p.start_offset
    return 0 if committed is None or start is None else max(0, start - committed)


def pending(context: LagContext) -> Iterator[Pending]:
    """Yield topics for which the rule may be true although there is no finding.

    A recreated log may grow past the old commit. It then holds that offset again, but nothing was committed: a consumer
    that continues there skips all messages before it.
    """
    yield from unknown_topics(context, OFFSETS_LOST)
    for topic, rows in context.topics.items():
        behind_ms = [row.last_ms for row in rows if row.lag]
        if any(_is_lost(row) for row in rows):
            yield OFFSETS_LOST.id, topic, 0
        elif behind_ms:
            yield OFFSETS_LOST.id, topic, min(behind_ms)

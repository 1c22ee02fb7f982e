"""``lag-growing``, ``offset-rewound`` and ``offsets-lost``: one finding a group and topic, its partitions listed."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from coordinator_model.lag.finding_text import about, about_group, places
from coordinator_model.lag.lag_context import LagContext, Row
from coordinator_model.lag.status import (
    Status,
    committed_offset_of,
    had_no_lag,
    is_beyond_end,
    lags_of,
    rewound_by,
)
from coordinator_model.rules.findings import Finding
from coordinator_model.states import LAG_GROWING, OFFSET_REWOUND, OFFSETS_LOST, Cause, Evidence, Severity

TOPIC_RULES = (LAG_GROWING, OFFSET_REWOUND, OFFSETS_LOST)


class _Trouble(NamedTuple):
    """What a rule has found of a topic, since when, and when that was certain."""

    rule: str
    topic: str
    rows: Sequence[Row]
    since_ms: int
    certain_ms: int


class _Growth(NamedTuple):
    """Since when a group's lag grows, and when that had gone on for long enough."""

    since_ms: int
    due_ms: int


def lag_growing(context: LagContext) -> Iterator[Finding]:
    """The group commits and falls behind: by the commits of a partition, and by the group's lag for a long time."""
    growth = _growth(context)
    for topic, rows in context.topics.items() if growth is not None else ():
        growing = [row for row in rows if _grows(row)]
        if growing and growth is not None:
            now = about(sum(row.lag or 0 for row in growing))
            text = f"{context.facts.group} falls behind on {topic}: {now} messages wait in {len(growing)} partitions"
            yield _finding(context, _Trouble(LAG_GROWING, topic, growing, *growth), text, {"lag": now})


def _growth(context: LagContext) -> _Growth | None:
    """Tell how a group's lag grows, of what it reads: since it was last at its lowest."""
    lowest = min(context.history, key=lambda told: (told[1], -told[0]), default=None)
    if lowest is None or context.read is None or not context.works or context.read <= lowest[1]:
        return None
    due_ms = lowest[0] + context.thresholds.lag_growing_ms
    return _Growth(lowest[0], due_ms) if context.now_ms >= due_ms else None


def _grows(row: Row) -> bool:
    return row.status is Status.WARN and (row.lag or 0) > next(lags_of(row.p.commits))


def offset_rewound(context: LagContext) -> Iterator[Finding]:
    """A committed offset went back and has not come again to where it was."""
    for topic, rows in context.topics.items():
        back = [(row, commit) for row in rows if row.lag and (commit := rewound_by(row.p.commits))]
        since_ms = min((commit.at_ms for _, commit in back), default=0)
        due_ms = since_ms + context.thresholds.stall_margin_ms
        if back and context.facts.view_ms and context.now_ms >= due_ms:
            row, commit = min(back, key=lambda found: found[1].at_ms)
            text = f"the committed offset of {row.place} went back to {commit.offset}"
            if len(back) > 1:
                text += f", and those of {len(back) - 1} more partitions of {topic} went back too"
            trouble = _Trouble(OFFSET_REWOUND, topic, [row for row, _ in back], since_ms, due_ms)
            detail = {"rewound": len(back), "committed_offset": commit.offset, "committed_ms": commit.at_ms}
            yield _finding(context, trouble, text, detail)


def offsets_lost(context: LagContext) -> Iterator[Finding]:
    """The log does not hold the committed offset: retention has passed it, or it lies beyond the end."""
    for topic, rows in context.topics.items():
        lost = [row for row in rows if _is_lost(row)]
        since_ms = max((row.last_ms for row in lost), default=0)
        if lost and context.facts.view_ms and context.now_ms >= since_ms + context.thresholds.stall_margin_ms:
            beyond = sum(is_beyond_end(row.p) for row in lost)
            gone = about(sum(_gone(row) for row in lost))
            why = "the topic was cut or recreated" if beyond else f"{gone} messages were deleted before that"
            text = f"{len(lost)} partitions of {topic} do not hold what {context.facts.group} was to read next: {why}"
            trouble = _Trouble(OFFSETS_LOST, topic, lost, since_ms, context.now_ms)
            yield _finding(context, trouble, text, {"lost": len(lost), "messages": gone, "beyond_end": beyond})


def _is_lost(row: Row) -> bool:
    return is_beyond_end(row.p) or _gone(row) > 0


def _gone(row: Row) -> int:
    """Return how many messages retention has deleted that were not committed."""
    committed, start = committed_offset_of(row.p), row.p.start_offset
    return 0 if committed is None or start is None else max(0, start - committed)


def _finding(context: LagContext, trouble: _Trouble, text: str, detail: dict[str, Any]) -> Finding:
    return Finding(
        rule=trouble.rule,
        severity=Severity.WARN,
        opened_ms=trouble.since_ms,
        at_ms=trouble.certain_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=text,
        partitions=places(trouble.rows),
        detail=detail,
        **about_group(context, trouble.topic),
    )


def pending(context: LagContext) -> Iterator[tuple[str, str, int]]:
    """Yield what may be true of topics though it is not said.

    Of some partition nobody knows where it ends; or the group's lag still grows, if not at its last few commits, or has
    not been watched for long enough to say.
    """
    may_grow = _growth(context) is not None or not _is_watched(context)
    for topic, rows in context.topics.items():
        if any(not row.fresh for row in rows):
            yield from ((rule, topic, 0) for rule in TOPIC_RULES)
        elif may_grow and any(row.lag and not had_no_lag(row.p.commits) for row in rows):
            yield LAG_GROWING, topic, 0


def _is_watched(context: LagContext) -> bool:
    return bool(context.history) and context.now_ms >= context.history[0][0] + context.thresholds.lag_growing_ms


RULES: tuple[Callable[[LagContext], Iterator[Finding]], ...] = (lag_growing, offset_rewound, offsets_lost)

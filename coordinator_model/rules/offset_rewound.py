"""``offset-rewound``: a committed offset went back, so messages are processed again."""

from collections.abc import Iterator

from coordinator_model.lag.lag_context import LagContext
from coordinator_model.lag.status import rewound_by
from coordinator_model.rules.about_lag import Pending, TopicTrouble, topic_finding, unknown_topics
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Severity
from coordinator_model.wording import counted

OFFSET_REWOUND = Rule(
    id="offset-rewound",
    severities=(Severity.WARN,),
    evidence="observed",
    true_when=(
        "a committed offset went back, messages wait, and no commit reached the earlier offset again within"
        " `stall_margin_ms`"
    ),
    clears=(
        "`recovered` (a commit reached the earlier offset, or ten more commits followed from the lower one),"
        " `group-deleted`"
    ),
    thresholds=("stall_margin_ms",),
)


def judge(context: LagContext) -> Iterator[Finding]:
    """Yield the topics in which a committed offset went back, and no later commit has reached the earlier offset."""
    for topic, rows in context.topics.items():
        back = [(row, commit) for row in rows if row.lag and (commit := rewound_by(row.p.commits))]
        since_ms = min((commit.at_ms for _, commit in back), default=0)
        due_ms = since_ms + context.thresholds.stall_margin_ms
        if back and context.facts.view_ms and context.now_ms >= due_ms:
            row, commit = min(back, key=lambda found: found[1].at_ms)
            text = f"the committed offset of {context.facts.group} on {row.place} went back to {commit.offset}"
            if len(back) > 1:
                text += f"; so did {counted(len(back) - 1, 'other')} of {topic}"
            trouble = TopicTrouble(OFFSET_REWOUND, topic, [row for row, _ in back], since_ms, due_ms)
            detail = {"rewound": len(back), "committed_offset": commit.offset, "committed_ms": commit.at_ms}
            yield topic_finding(context, trouble, text, detail)


def pending(context: LagContext) -> Iterator[Pending]:
    """Yield topics for which the rule may be true although there is no finding."""
    return unknown_topics(context, OFFSET_REWOUND)

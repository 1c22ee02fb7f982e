"""``left-without-reason``: a client that hangs for good leaves as one that is closed does, and neither says why.

librdkafka, kafka-python and all clients of KIP-848 give no reason. So who left when it may not have polled for its
limit, and did not come back, was closed or has stopped polling. A report or metrics that tell of a poll clear it; a
sign that it lives on and does not poll makes it ``poll-exceeded``.
"""

from collections.abc import Iterator

from coordinator_model.replica.group import GroupReplica, Leave, Member
from coordinator_model.replica.returns import is_return
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.rules.findings import Finding, Verdict, about_member, name_of
from coordinator_model.states import LEFT_WITHOUT_REASON, Cause, Evidence, Severity

TOLD_FOR_MS = 600_000
"""How long it is told: twice the interval of pushes where the subscription names none (KIP-714)."""


def judge(replica: GroupReplica, context: JudgementContext) -> Iterator[Verdict]:
    """Judge the newest goodbyes; one is told when its client has had the time to come back."""
    for leave in reversed(replica.leaves):
        if leave.applied_ms + TOLD_FOR_MS <= context.progress_ms:
            return
        if leave.applied_ms < context.live_from_ms or not _is_unclear(replica, leave):
            continue
        at_ms = leave.applied_ms + context.thresholds.unstable_after_ms
        if context.progress_ms < at_ms:
            yield Verdict(None, at_ms)
        else:
            yield Verdict(_finding(replica, leave, at_ms, context), leave.applied_ms + TOLD_FOR_MS)


def _is_unclear(replica: GroupReplica, leave: Leave) -> bool:
    if leave.cause is not Cause.LEFT or leave.reason or not leave.may_be_late_poll:
        return False
    return not any(_is_its_return(leave, member) for member in replica.members.values())


def _is_its_return(leave: Leave, member: Member) -> bool:
    since = member.joined_ms is not None and member.joined_ms >= leave.applied_ms
    return since and is_return(leave.member, member, alone=True)


def _finding(replica: GroupReplica, leave: Leave, at_ms: int, context: JudgementContext) -> Finding:
    member = leave.member
    return Finding(
        rule=LEFT_WITHOUT_REASON,
        severity=Severity.INFO,
        opened_ms=leave.applied_ms,
        at_ms=at_ms,
        evidence=Evidence.INFERRED,
        cause=Cause.UNKNOWN,
        summary=f"{name_of(member)} left without a reason: it was closed, or it may have stopped polling",
        detail={"max_poll_interval_ms": member.rebalance_timeout_ms, "left_ms": leave.applied_ms},
        **about_member(replica, member, context),
    )

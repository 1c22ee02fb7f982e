"""``left-without-reason``: a member left without a reason. It was closed, or its client hangs and no longer polls.

librdkafka, kafka-python and all KIP-848 clients give no reason when they leave. The rule applies if the client may not
have polled for ``max.poll.interval.ms`` and did not come back. A report or pushed metrics that show a poll clear it. A
sign that the client is alive and does not poll makes it ``poll-exceeded``. Any other sign of life (``left_alive``)
shows that the client was not closed: it has stopped polling, or unsubscribed.
"""

from collections.abc import Iterable, Iterator

from coordinator_model.client import Name, names_of
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.rules.findings import Finding, Verdict, about_member, name_of
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity

LEFT_WITHOUT_REASON = Rule(
    id="left-without-reason",
    severities=(Severity.INFO,),
    evidence=(
        "inferred: a client that hangs and one that is closed send the same request. One that is still alive goes on"
        " asking for its coordinator"
    ),
    true_when=(
        "a member left without a reason, may not have polled for `max.poll.interval.ms`, and did not come back within"
        " `unstable_after_ms`. It was closed, or it may have stopped polling"
    ),
    clears="`recovered` (it is back, or eleven minutes have passed), `superseded` (it has stopped polling)",
    thresholds=("unstable_after_ms",),
    unexplained=True,
)
TOLD_FOR_MS = 660_000
"""How long the finding lasts without a sign of life: librdkafka asks for its coordinator every ten minutes, and metrics
are pushed every five minutes unless their subscription says otherwise (KIP-714)."""


def judge(replica: GroupReplica, context: JudgementContext) -> Iterator[Verdict]:
    """Judge the newest leaves. A leave is reported once its client has had time to come back."""
    since_ms = max(context.live_from_ms, context.progress_ms - TOLD_FOR_MS + 1)
    newest = [leave for leave in reversed(replica.leaves) if _sign_ms(leave) >= since_ms]
    unclear = [leave for leave in newest if _is_unclear(leave)]
    joined_ms = _newest_joins([*replica.members.values(), *(leave.member for leave in newest)]) if unclear else {}
    for leave in unclear:
        if any(joined_ms.get(name, -1) >= leave.applied_ms for name in names_of(leave.member)):
            continue  # it is back
        at_ms = leave.applied_ms + context.thresholds.unstable_after_ms
        lives_ms = (
            _sign_ms(leave) + context.thresholds.unstable_after_ms
        )  # a client that restarts first asks for its coordinator, and then joins
        if context.progress_ms < at_ms:
            yield Verdict(None, at_ms)
        elif context.progress_ms < lives_ms:
            yield Verdict(_finding(replica, leave, at_ms, context), lives_ms)
        else:
            yield Verdict(_finding(replica, leave, lives_ms, context), _sign_ms(leave) + TOLD_FOR_MS)


def _sign_ms(leave: Leave) -> int:
    """Return the last sign of life of the client."""
    return max(leave.applied_ms, leave.alive_ms or 0)


def _is_unclear(leave: Leave) -> bool:
    return leave.cause is Cause.LEFT and not leave.reason and leave.may_be_late_poll


def _newest_joins(members: Iterable[Member]) -> dict[Name, int]:
    """Map each name to when a member last joined under it. A member that left again counts too: the client was back."""
    joined_ms: dict[Name, int] = {}
    for member in members:
        for name in names_of(member):
            joined_ms[name] = max(member.joined_ms or 0, joined_ms.get(name, 0))
    return joined_ms


def _finding(replica: GroupReplica, leave: Leave, at_ms: int, context: JudgementContext) -> Finding:
    member = leave.member
    lives = leave.alive_ms is not None and context.progress_ms >= leave.alive_ms + context.thresholds.unstable_after_ms
    means = (
        " and lives: its client still talks to the brokers, so it has stopped polling or unsubscribed"
        if lives
        else ": it was closed, or it may have stopped polling"
    )
    return Finding(
        rule=LEFT_WITHOUT_REASON.id,
        severity=LEFT_WITHOUT_REASON.severity,
        opened_ms=leave.applied_ms,
        at_ms=at_ms,
        evidence=Evidence.INFERRED,
        cause=Cause.UNKNOWN,
        summary=f"{name_of(member)} left without a reason{means}",
        deadline_ms=leave.applied_ms if lives else None,  # if the client hangs, it left at its poll deadline
        detail={
            "max_poll_interval_ms": member.rebalance_timeout_ms,
            "left_ms": leave.applied_ms,
            "lives_ms": leave.alive_ms if lives else None,
        },
        **about_member(replica, member, context),
    )

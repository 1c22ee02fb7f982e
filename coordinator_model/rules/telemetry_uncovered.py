"""``telemetry-uncovered``: no heartbeats of some members are seen, although lines of their coordinator come.

The end of their sessions is known only when the coordinator's records or answers show it. There are two usual reasons:
the broker's log4j2 file filters heartbeats out, or the shard moved to a broker without a request log. In the second
case all members fall silent together, and no other heartbeat can prove a verdict by timer.
"""

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.session_timer import latest_session, session_timeout_ms, unseen_from_ms
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_group
from coordinator_model.rules.rule import Rule
from coordinator_model.rules.settled import quiet_since_ms
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.wording import counted

TELEMETRY_UNCOVERED = Rule(
    id="telemetry-uncovered",
    severities=(Severity.INFO,),
    evidence="observed",
    true_when=(
        "no heartbeat of some members of a stable group was seen for longer than their session timeout and"
        " `settled_after_ms`, although lines of their broker come and nothing shows that the members are dead. Or a"
        " broker coordinates groups, and no line of it was ever seen"
    ),
    clears=(
        "`recovered` (their heartbeats are seen, or the group is not stable; lines of the broker come, or it no longer"
        " leads)"
    ),
    thresholds=("settled_after_ms",),
    needs_heartbeats=True,
)

MAX_NAMED = 64


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge the members that were never heard, or that have been silent for longer than their session can last."""
    since_ms = quiet_since_ms(replica, context)
    if since_ms is None or context.stalled or context.by_records:
        return NOTHING
    lost = {m.member_id: at_ms for m in replica.members.values() if (at_ms := _unseen_ms(m, context)) is not None}
    unheard = [m for m in replica.members.values() if m.last_heartbeat_ms is None]
    due_ms, begun_ms = min(lost.values(), default=None), since_ms
    if due_ms is not None:
        begun_ms = due_ms - context.thresholds.settled_after_ms
    if unheard and not context.waiting:
        longest_ms = max(session_timeout_ms(member, context) or 0 for member in unheard)
        begun_ms = max(since_ms, context.covered_since_ms)
        silent_ms = begun_ms + max(context.thresholds.settled_after_ms, longest_ms)
        if context.progress_ms >= silent_ms:
            lost |= dict.fromkeys((m.member_id for m in unheard), silent_ms)
        due_ms = silent_ms if due_ms is None else min(due_ms, silent_ms)
    if not lost or due_ms is None:
        return Verdict(None, due_ms)
    return Verdict(_finding(replica, context, sorted(lost), begun_ms, due_ms), None)


def _unseen_ms(member: Member, context: JudgementContext) -> int | None:
    """Return since when it has not been known whether a member that was heard before is alive; None: it is known."""
    if member.verdict_ms is not None or member.awaiting_sync:
        return None
    unseen_ms = unseen_from_ms(member, latest_session(member, context), context)
    return unseen_ms if unseen_ms is not None and context.progress_ms >= unseen_ms else None


def _finding(replica: GroupReplica, context: JudgementContext, lost: list[str], begun_ms: int, at_ms: int) -> Finding:
    return Finding(
        rule=TELEMETRY_UNCOVERED.id,
        severity=TELEMETRY_UNCOVERED.severity,
        opened_ms=begun_ms,
        at_ms=at_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"no heartbeat of {len(lost)} of {counted(len(replica.members), 'member')} of {replica.group} is seen:"
        " that their sessions ended is known only once a record or an answer shows it",
        detail={"members": lost[:MAX_NAMED], "total": len(lost)},
        **about_group(replica, context),
    )

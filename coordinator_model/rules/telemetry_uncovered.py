"""``telemetry-uncovered``: heartbeats or JoinGroups of some members are not seen, although lines of their broker come.

The end of a session is then known only when the coordinator's records or answers show it. If heartbeats are missing,
there are two usual reasons: the broker's log4j2 file filters heartbeats out, or the shard moved to a broker without a
request log. In the second case all members fall silent together, and no other heartbeat can prove a verdict by timer.

If a generation of several members began and no JoinGroup of any of them was seen, JoinGroups are filtered out. Then a
silent member may be waiting in a join phase, and a static member may have been replaced. This is told at once, because
a group that loses members all the time is never stable for long.
"""

from coordinator_model.replica import join_lines
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
        " generation of several members of a classic group began, and no JoinGroup was seen since. Or a broker"
        " coordinates groups, and no line of it was ever seen"
    ),
    clears=(
        "`recovered` (their heartbeats are seen, or the group is not stable; a JoinGroup is seen; lines of the broker"
        " come, or it no longer leads)"
    ),
    thresholds=("settled_after_ms",),
    needs_heartbeats=True,
)

MAX_NAMED = 64


def judge(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge whether heartbeats of a group are missing, or else its JoinGroups."""
    silent = _heartbeats(replica, context)
    unjoined = NOTHING if silent.finding is not None else _joins(replica, context)
    dues_ms = [verdict.due_ms for verdict in (silent, unjoined) if verdict.due_ms is not None]
    return Verdict(silent.finding or unjoined.finding, min(dues_ms, default=None))


def _joins(replica: GroupReplica, context: JudgementContext) -> Verdict:
    """Judge a generation of which no JoinGroup was seen, once lines from after its beginning have come.

    One lost line is no filter, so several members have to be in it, unless it has been told before.
    """
    known, begun_ms = TELEMETRY_UNCOVERED.id in context.reported, replica.unseen_generation_ms
    if context.stalled or context.by_records or begun_ms is None or len(replica.members) < (1 if known else 2):
        return NOTHING
    if not join_lines.are_missing(replica, context):
        return NOTHING
    due_ms = begun_ms + context.thresholds.grace_ms
    if context.progress_ms < due_ms and not known:
        return Verdict(None, due_ms)
    summary = (
        f"no JoinGroup of {replica.group} is seen, though generation {replica.generation} has"
        f" {counted(len(replica.members), 'member')}: a silent member may be waiting in a rebalance"
    )
    return Verdict(_finding(replica, context, sorted(replica.members), summary, (begun_ms, due_ms)), None)


def _heartbeats(replica: GroupReplica, context: JudgementContext) -> Verdict:
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
    summary = (
        f"no heartbeat of {len(lost)} of {counted(len(replica.members), 'member')} of {replica.group} is seen:"
        " that their sessions ended is known only once a record or an answer shows it"
    )
    return Verdict(_finding(replica, context, sorted(lost), summary, (begun_ms, due_ms)), None)


def _unseen_ms(member: Member, context: JudgementContext) -> int | None:
    """Return since when it has not been known whether a member that was heard before is alive; None: it is known."""
    if member.verdict_ms is not None or member.awaiting_sync:
        return None
    unseen_ms = unseen_from_ms(member, latest_session(member, context), context)
    return unseen_ms if unseen_ms is not None and context.progress_ms >= unseen_ms else None


def _finding(
    replica: GroupReplica, context: JudgementContext, lost: list[str], summary: str, since_ms: tuple[int, int]
) -> Finding:
    """Return the finding about these members. ``since_ms``: when it began, and when it was noticed."""
    begun_ms, at_ms = since_ms
    return Finding(
        rule=TELEMETRY_UNCOVERED.id,
        severity=TELEMETRY_UNCOVERED.severity,
        opened_ms=begun_ms,
        at_ms=at_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=summary,
        detail={"members": lost[:MAX_NAMED], "total": len(lost)},
        **about_group(replica, context),
    )

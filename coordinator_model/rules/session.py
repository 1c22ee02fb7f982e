"""``session-expired`` by timer and ``session-at-risk``: a member that is silent while its broker is not.

The coordinator removes a member at its deadline, and its record or answers usually show that before the grace has
passed. The timer gives the verdict only if all of this holds, so that nothing else explains the silence:

- The group was stable up to the deadline. A rebalance whose first sign comes after the deadline does not excuse a
  dynamic member, because the coordinator begins that rebalance when the session ends (decision 0008). It does excuse a
  member that has to give up partitions: that one may have begun the rebalance as it woke.
- The member is covered, and no timer reset is open.
- Another heartbeat of the shard was accepted at least a grace ago, and had arrived at least half a session timeout
  after the member's last one. So lines do arrive. Probes, errors and JoinGroup answers are not proof: while the
  replicas of a partition stall, the broker still sends them, but the answers to heartbeats are parked.
- A heartbeat arrived after the deadline: its broker was still the coordinator then (decision 0017). No other broker
  has begun to answer as the coordinator in the last 15 s.

The verdict stands until the member is heard or its removal is judged. A KIP-848 group writes a member's removal at
once, so only that record decides, or an answer 25 or 69 that no record follows. Only the removal decides, too, if lines
are missing from the time of the silence.

If no other heartbeat comes, the verdict waits for one, and the group is not judged again in the meantime: the shard may
have moved to a broker without a request log. After ``settled_after_ms`` it is no longer known whether the member is at
risk, and ``telemetry-uncovered`` reports that.
"""

from collections.abc import Sequence

from coordinator_model.brokers.blindness import may_miss_lines
from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica import join_lines
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.refusals import refused_as_member
from coordinator_model.replica.removals.departure import STALL_MS, Departure
from coordinator_model.replica.removals.ended_phase import sync_timeout_ms
from coordinator_model.replica.removals.phases import PhaseStart
from coordinator_model.replica.removals.session_end import own_cause
from coordinator_model.replica.session_timer import (
    SAME_START_MS,
    Session,
    blamed_reset,
    blindly_heard_ms,
    gone_by_ms,
    is_covered,
    latest_session,
    session_timeout_ms,
    unheard_since,
    unseen_from_ms,
)
from coordinator_model.rules.departed import SESSION_EXPIRED
from coordinator_model.rules.findings import NOTHING, Finding, Verdict, about_member, name_of
from coordinator_model.rules.rule import Rule
from coordinator_model.rules.streams import STREAMS_SEVERITY, is_streams
from coordinator_model.states import Cause, Evidence, GroupState, GroupType, Severity
from coordinator_model.wording import seconds

SESSION_AT_RISK = Rule(
    id="session-at-risk",
    severities=(Severity.INFO,),
    evidence="observed",
    true_when="a member of a stable group has used `at_risk_ratio` of its session timeout without a heartbeat",
    clears=(
        "`recovered` (a heartbeat came), `superseded` (its session expired, it is gone, the group rebalances, or it is"
        " no longer known whether it is alive: `telemetry-uncovered`)"
    ),
    thresholds=("at_risk_ratio",),
    superseded_by="session-expired",
    needs_heartbeats=True,
)

STARTED_WITHIN_MS = 50
"""How much later than the end of a session the join phase that this starts may seem to begin."""
DATED_MS = 3_000
"""The end of a session can be dated only if the load of the groups is known to within this time."""
LOOK_AGAIN_MS = 3_000
"""After how long to judge again if no sign of life of the rest of a group has come."""
_JUDGED_STATES = (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
JUDGED_TYPES = (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS)


def judge(replica: GroupReplica, member: Member, context: JudgementContext) -> Verdict:
    """Judge one member's session at ``context.progress_ms``."""
    timeout_ms = session_timeout_ms(member, context)
    if member.verdict_ms is not None and timeout_ms is not None:
        return Verdict(_expired(replica, member, context, member.verdict_ms, timeout_ms), None)
    found = _judge_by_answers(replica, member, context, timeout_ms)
    if found is not None:
        return found
    if timeout_ms is None or not _is_watched(replica, member, context):
        return Verdict(None, None)
    session = latest_session(member, context)
    if session is None:  # every group is judged again when the timer reset closes
        return Verdict(None, _later(unseen_from_ms(member, session, context), context))
    base_ms, timeout_ms = session
    risk_ms = base_ms + int(timeout_ms * context.thresholds.at_risk_ratio)
    covered = is_covered(member, context) or _its_end_began_the_phase(replica, member, session.end_ms, context)
    if not covered:  # it may be covered by the time it is at risk
        return Verdict(None, _later(risk_ms, context) or _later(unseen_from_ms(member, session, context), context))
    if _may_wait_in_its_join(replica, member, session.end_ms):
        return Verdict(None, None)
    verdict_ms = session.end_ms + context.thresholds.grace_ms
    if context.progress_ms >= verdict_ms:
        return _past_deadline(replica, member, context, session, verdict_ms)
    if context.progress_ms >= risk_ms:
        return Verdict(_at_risk(replica, member, context, base_ms, timeout_ms), verdict_ms)
    return Verdict(None, risk_ms)


def judge_unjudged(replica: GroupReplica, departure: Departure, context: JudgementContext) -> Verdict:
    """Repeat the timer's verdict about a member that is gone, until its removal is judged."""
    member, timeout_ms = departure.member, session_timeout_ms(departure.member, context)
    if departure.judged or departure.rule is None or member.verdict_ms is None or timeout_ms is None:
        return NOTHING
    return Verdict(_expired(replica, member, context, member.verdict_ms, timeout_ms), None)


def _past_deadline(
    replica: GroupReplica, member: Member, context: JudgementContext, session: Session, verdict_ms: int
) -> Verdict:
    """Judge a session whose deadline has passed. There is a verdict only if nothing else explains the silence."""
    if context.hole_is_open:
        return Verdict(None, verdict_ms)
    base_ms, timeout_ms = session
    deadline_ms, proof_ms = session.end_ms, base_ms + timeout_ms // 2
    unsure = context.dates_are_doubtful or _may_miss_lines(replica, base_ms, deadline_ms, context)
    if member.in_kip848_group or unsure:  # its removal decides
        return _unproved(replica, member, context, session)
    disputed_ms = context.disputed_until_ms(context.progress_ms)
    if context.progress_ms < disputed_ms:  # all sessions may have restarted at another broker
        return _unproved(replica, member, context, session, disputed_ms)
    unproved_ms = _waits_for_proof_ms(context, proof_ms, deadline_ms)
    if unproved_ms is not None:
        return _unproved(replica, member, context, session)._replace(proof_ms=unproved_ms)
    if _may_have_rejoined(replica, member, deadline_ms if member.revoking else proof_ms):
        again_ms = context.progress_ms + LOOK_AGAIN_MS if context.progress_ms < verdict_ms + timeout_ms else None
        return _unproved(replica, member, context, session, again_ms)
    return Verdict(_expired(replica, member, context, deadline_ms, timeout_ms), None)


def _is_watched(replica: GroupReplica, member: Member, context: JudgementContext) -> bool:
    """Tell whether a member's silence means something. If only records are read, every member is silent."""
    judged = replica.type in JUDGED_TYPES and replica.state in _JUDGED_STATES
    return judged and not member.awaiting_sync and not context.by_records


def _waits_for_proof_ms(context: JudgementContext, proof_ms: int, deadline_ms: int) -> int | None:
    """Return the earliest arrival of the heartbeat that is still needed as proof; None: both proofs are there.

    One heartbeat must be a grace old. Another must show that its broker was still the coordinator at the deadline:
    otherwise the next coordinator may have loaded the group. If that one comes after the verdict was due, it must be a
    grace old, too: a stalled write may have delayed it, and the lines of other heartbeats that waited with it follow.
    """
    if context.proof_arrival_ms < proof_ms:
        return proof_ms
    in_time = context.progress_ms <= deadline_ms + context.thresholds.grace_ms
    seen_ms = context.coordinates_ms if in_time else context.proof_arrival_ms
    return deadline_ms if seen_ms < deadline_ms else None


def _judge_by_answers(
    replica: GroupReplica, member: Member, context: JudgementContext, timeout_ms: int | None
) -> Verdict | None:
    """Judge a member whose removal an answer has shown; None: no answer has, or a record will decide."""
    if timeout_ms is None:
        return None
    if member.in_kip848_group:
        removed = member.unknown_ms is not None and _is_removed_unwritten(replica, member, context)
        return _found_gone(replica, member, context, timeout_ms) if removed else None
    if member.awaiting_sync and _began_the_phase(replica, member, timeout_ms, context):
        return _never_synced(replica, member, context, timeout_ms)
    if member.unknown_ms is None:
        return None
    if _is_watched(replica, member, context) or _owes_no_sync(replica, member, timeout_ms, context):
        return _found_gone(replica, member, context, timeout_ms)
    return None


def _is_removed_unwritten(replica: GroupReplica, member: Member, context: JudgementContext) -> bool:
    """Tell whether only the end of its session can have removed a KIP-848 member that was answered 25.

    The broker that accepted its last heartbeat gave that answer. The member is dynamic, so none replaced it. It did not
    leave, and it had no partitions to revoke. Its record usually decides first. But a deposed coordinator writes none.
    """
    left_ms = [leave.applied_ms for leave in replica.leaves if leave.member.member_id == member.member_id]
    left = member.member_id in replica.undelivered_leaves or max(left_ms, default=0) >= (member.session_from_ms or 0)
    dynamic = member.kip848 and member.instance_id is None and not member.unrevoked
    heard = member.session_from_ms is not None and not unheard_since(member, context.timer_resets)
    return dynamic and heard and not left and not context.by_records


def _owes_no_sync(replica: GroupReplica, member: Member, timeout_ms: int, context: JudgementContext) -> bool:
    """Tell whether a join phase began before the member's session ended, while its SyncGroup was still expected.

    The coordinator then no longer waits for the sync (``GroupMetadataManager.prepareRebalance`` removes the pending
    syncs), so only the session timeout can have removed the member.
    """
    rejoining = replica.state is GroupState.PREPARING_REBALANCE and not context.by_records
    since_ms = replica.state_since_ms
    in_time = since_ms < (member.session_from_ms or 0) + timeout_ms and not _missed_its_sync(replica, member, since_ms)
    return rejoining and member.awaiting_sync and in_time


def _missed_its_sync(replica: GroupReplica, member: Member, by_ms: int) -> bool:
    """Tell whether a member's SyncGroup was overdue at an instant, so that the member was removed for that reason."""
    limit_ms = sync_timeout_ms(replica, member, by_ms)
    return limit_ms is not None and (member.timer_reset_ms or 0) + limit_ms <= by_ms


def _began_the_phase(replica: GroupReplica, member: Member, timeout_ms: int, context: JudgementContext) -> bool:
    """Tell whether the end of a member's session started the join phase: no other cause is seen, and the time fits."""
    start = _unexplained_start(replica)
    if context.by_records or start is None or (member.synced_ms or 0) >= start.at_ms:
        return False  # in the last case it was in the phase: its SyncGroup was answered 27
    if member.session_from_ms is None or _missed_its_sync(replica, member, member.session_from_ms + timeout_ms - 1):
        return False  # if both are due at once, the session's timer fires first, because it was started first
    deadline_ms = member.session_from_ms + timeout_ms
    # without heartbeats nobody can tell which of the sessions that end at one instant began the rebalance
    by_ms = deadline_ms if context.proof_arrival_ms else deadline_ms + 1
    others = (other for other in replica.members.values() if other is not member)
    if any(_was_due_before(by_ms, other, replica, context) for other in others):
        return False
    late_ms = start.at_ms - deadline_ms
    if member.instance_id is not None:  # a successor that joins just before the deadline would start a phase too
        return 0 <= late_ms <= SAME_START_MS
    return -SAME_START_MS <= late_ms <= STARTED_WITHIN_MS


def _was_due_before(deadline_ms: int, other: Member, replica: GroupReplica, context: JudgementContext) -> bool:
    """Tell whether a session that was due before a deadline may have begun the join phase."""
    timeout_ms = session_timeout_ms(other, context)
    if other.session_from_ms is None or timeout_ms is None:
        return False
    return replica.phase.began_after_ms <= other.session_from_ms + timeout_ms < deadline_ms


def _its_end_began_the_phase(replica: GroupReplica, member: Member, end_ms: int, context: JudgementContext) -> bool:
    """Tell whether only the end of a member's session can have started the join phase. Silence alone proves nothing.

    The member may not have sent a heartbeat yet, so its SyncGroup counts as the last sign of life. Its own JoinGroup
    cannot have started the phase: a stable group answers that at once, unless the member is the leader or has changed
    its subscription. The end of another member's session, or another member's overdue SyncGroup, could have started it.
    """
    start = _unexplained_start(replica)
    known = member.synced_ms is not None and member.synced_ms >= context.covered_since_ms
    if start is None or not known or member.member_id == replica.leader:
        return False
    others = (other for other in replica.members.values() if other is not member)
    due_in_it = replica.phase.began_after_ms <= end_ms <= start.at_ms
    return due_in_it and all(_lived_on(other, start.at_ms, context) for other in others)


def _unexplained_start(replica: GroupReplica) -> PhaseStart | None:
    """Return the start of the join phase in progress if no request that was seen started it."""
    start = replica.phase.started
    if replica.state is not GroupState.PREPARING_REBALANCE or start is None or start.by:
        return None
    return start


def _lived_on(member: Member, at_ms: int, context: JudgementContext) -> bool:
    """Tell whether a member that has synced was not removed by an instant: its session had not ended by then."""
    session_from_ms, timeout_ms = member.session_from_ms, session_timeout_ms(member, context)
    if member.awaiting_sync or session_from_ms is None or timeout_ms is None:
        return False
    return session_from_ms + timeout_ms > at_ms and member.unknown_ms is None


def _found_gone(replica: GroupReplica, member: Member, context: JudgementContext, timeout_ms: int) -> Verdict:
    """Judge a member that got the answer UNKNOWN_MEMBER_ID (25) after its session had ended.

    The group's records may show the removal much later, when a join phase ends, or never, if the coordinator dies
    first. A pause does not stop timers: a session that was due during the pause ended when the coordinator woke.
    """
    gone_ms = gone_by_ms(member, context)
    if gone_ms is None or context.dates_are_doubtful or _may_be_unknown_elsewhere(gone_ms, context):
        return Verdict(None, None)
    # The line of a leave may come late, and so may that of a heartbeat that waits behind a stalled write.
    trail_ms = context.thresholds.grace_ms + (STALL_MS if replica.stalled_near(gone_ms, STALL_MS) else 0)
    verdict_ms = gone_ms + trail_ms
    if context.hole_is_open or context.progress_ms < verdict_ms:
        return Verdict(None, verdict_ms)
    resets = unheard_since(member, context.timer_resets)
    pause = resets[0] if len(resets) == 1 and resets[0].woke_ms is not None else None
    session = latest_session(member, context if pause is None else context._replace(timer_resets=()))
    ended = session is not None and session.end_ms <= gone_ms
    if _only_its_session_ended(replica, member, resets, gone_ms) and not (ended and _is_dated(resets)):
        return Verdict(_expired_since_a_load(replica, member, context, resets[0], gone_ms, timeout_ms), None)
    if session is None or not ended or may_miss_lines(context.blind, session.start_ms, verdict_ms):
        return Verdict(None, None)
    if resets and pause is None and not (_is_dated(resets) and _was_loaded(replica, member)):
        return Verdict(None, None)  # the removal will date the end of the session better
    if _would_have_emptied(replica, member, gone_ms):
        return Verdict(None, None)  # since then, a coordinator has loaded the group without the member
    delayed = pause is not None and pause.delays(session.end_ms)
    deadline_ms = min(pause.woke_ms or 0, gone_ms) if pause is not None and delayed else session.end_ms
    finding = _expired(replica, member, context, deadline_ms, timeout_ms)
    if resets and pause is None:
        finding.detail |= _interval(member, resets[0], timeout_ms, deadline_ms, gone_ms)
    return Verdict(finding, None)


def _may_be_unknown_elsewhere(gone_ms: int, context: JudgementContext) -> bool:
    """Tell whether a broker that metadata does not name yet may have given the answer 25.

    It had loaded the log, which may never have had the member. All groups are judged again once metadata names it.
    """
    return any(claim.first_ms <= gone_ms <= claim.last_ms for claim in context.claims)


def _only_its_session_ended(replica: GroupReplica, member: Member, resets: Sequence[TimerReset], gone_ms: int) -> bool:
    """Tell whether only the end of its session can have removed a member that the next coordinator does not know (25).

    That coordinator had loaded the member. The member is dynamic, so no other member replaced it, and no leave was
    seen. No join phase dropped it, because the one in progress has not lasted long enough.
    """
    moved = len(resets) == 1 and resets[0].is_move and resets[0].high_ms is not None
    loaded = _was_loaded(replica, member) and member.generation == replica.generation and member.instance_id is None
    limit_ms = max((m.rebalance_timeout_ms or 0 for m in replica.members.values()), default=0)
    rejoining = replica.state is GroupState.PREPARING_REBALANCE and gone_ms < replica.phase.began_after_ms + limit_ms
    return moved and loaded and rejoining and not _would_have_emptied(replica, member, gone_ms)


def _expired_since_a_load(
    replica: GroupReplica, member: Member, context: JudgementContext, move: TimerReset, gone_ms: int, timeout_ms: int
) -> Finding | None:
    """Return the end of a session that restarted at a load that is not dated exactly, and the interval of that end."""
    first_ms = move.low_ms if _is_dated([move]) else move.since_ms or move.low_ms
    loads_ms = _first_load_ms(member, move, first_ms)
    if loads_ms + timeout_ms > gone_ms or may_miss_lines(context.blind, member.session_from_ms or 0, gone_ms):
        return None
    deadline_ms = min(max(loads_ms, move.high_ms or 0) + timeout_ms, gone_ms)
    finding = _expired(replica, member, context, deadline_ms, timeout_ms)
    finding.detail |= _interval(member, move, timeout_ms, deadline_ms, gone_ms)
    return finding


def _first_load_ms(member: Member, move: TimerReset, since_ms: int) -> int:
    """Return the earliest instant after ``since_ms`` at which a new coordinator can have started a member's session."""
    return max(since_ms, member.joined_ms or 0, blindly_heard_ms(member, move))


def _interval(
    member: Member, move: TimerReset, timeout_ms: int, deadline_ms: int, gone_ms: int
) -> dict[str, int | None]:
    """Return the interval in which a session ended that began with a load; nothing if the load itself was logged.

    The deposed coordinator may have gone on answering for long after the load (decision 0017).
    """
    if move.since_ms is None:
        return {}
    first_ms = _first_load_ms(member, move, move.since_ms) + timeout_ms
    return {"deadline_from_ms": min(first_ms, deadline_ms), "deadline_until_ms": gone_ms}


def _would_have_emptied(replica: GroupReplica, member: Member, gone_ms: int) -> bool:
    """Tell whether the member's removal would have left the group empty, for which its coordinator writes a record.

    All other members are known to be gone. If that record had been written, the member would no longer be in the
    replica. A KIP-848 group writes a record for every removal: that of its last member is nothing special.
    """
    if member.in_kip848_group:
        return False
    others = (m for m in replica.members.values() if m is not member and (m.joined_ms or 0) <= gone_ms)
    return all(other.verdict_ms is not None or other.unknown_ms is not None for other in others)


def _is_dated(resets: Sequence[TimerReset]) -> bool:
    """Tell whether sessions restarted exactly once, because another coordinator loaded the group, at a known time."""
    move = resets[0]
    moved = len(resets) == 1 and move.is_move and not move.went_on
    return moved and move.high_ms is not None and move.high_ms - move.low_ms <= DATED_MS


def _was_loaded(replica: GroupReplica, member: Member) -> bool:
    """Tell whether a member is in the last record: a coordinator that loads the log knows only those members."""
    return replica.recorded_generation is None or member.member_id in replica.recorded


def _never_synced(replica: GroupReplica, member: Member, context: JudgementContext, timeout_ms: int) -> Verdict:
    """Judge a member that joined and never synced, if the others were told to rejoin when its session ended.

    If their generation is never written, because the coordinator dies, no list of members and no record shows the
    removal.
    """
    deadline_ms = (member.session_from_ms or 0) + timeout_ms
    verdict_ms = deadline_ms + context.thresholds.grace_ms
    moved = any(reset.may_load for reset in unheard_since(member, context.timer_resets))
    unsure = context.waiting or context.dates_are_doubtful or moved
    if unsure or may_miss_lines(context.blind, member.session_from_ms or 0, verdict_ms):
        return Verdict(None, None)
    if context.progress_ms < verdict_ms:
        return Verdict(None, verdict_ms)
    return Verdict(_expired(replica, member, context, deadline_ms, timeout_ms), None)


def _may_miss_lines(replica: GroupReplica, since_ms: int, until_ms: int, context: JudgementContext) -> bool:
    """Tell whether lines that would show that a member is alive may be missing."""
    return may_miss_lines(context.blind, since_ms, until_ms) or join_lines.may_be_missing(replica, since_ms, context)


def _unproved(
    replica: GroupReplica, member: Member, context: JudgementContext, session: Session, again_ms: int | None = None
) -> Verdict:
    """Return that a member is at risk, as long as that can be known, and when to judge it again."""
    unseen_ms = _later(unseen_from_ms(member, session, context), context)
    at_risk = None if unseen_ms is None else _at_risk(replica, member, context, *session)
    return Verdict(at_risk, min((at_ms for at_ms in (unseen_ms, again_ms) if at_ms is not None), default=None))


def _may_have_rejoined(replica: GroupReplica, member: Member, since_ms: int) -> bool:
    """Tell whether a silent classic member may be alive, with its JoinGroup parked in a join phase that no line shows.

    That is impossible if a heartbeat of another member of the group was answered 0 long enough after this member was
    last heard. A member that has to give up partitions rejoins of its own accord, as late as it wakes: for that one,
    such a heartbeat must have come after the deadline.
    """
    since_ms = max(since_ms, (member.synced_ms or 0) + since_ms - (member.session_from_ms or since_ms))
    signs_ms = (_stable_ms(replica, other) for other in replica.members.values() if other is not member)
    return max(signs_ms, default=0) < since_ms


def _stable_ms(replica: GroupReplica, member: Member) -> int:
    """Return when a heartbeat of a member was last known to be answered 0; 0: never.

    From the start of a join phase on, heartbeats are answered 27.
    """
    told_ms = [member.last_heartbeat_ms or 0, member.previous_heartbeat_ms or 0]
    if replica.state is not GroupState.STABLE:
        signs_ms = [replica.state_since_ms]
        if replica.state is GroupState.PREPARING_REBALANCE and replica.phase.started_ms is not None:
            signs_ms.append(replica.phase.started_ms)
        told_ms = [at_ms for at_ms in told_ms if at_ms < min(signs_ms)]
    return max(told_ms, default=0)


def _later(at_ms: int | None, context: JudgementContext) -> int | None:
    """Return an instant at which to judge again, or None if it is not in the future."""
    return at_ms if at_ms is not None and at_ms > context.progress_ms else None


def _may_wait_in_its_join(replica: GroupReplica, member: Member, deadline_ms: int) -> bool:
    """Tell whether a silent member's JoinGroup may be parked. That of a static member may have its next member id.

    A dynamic member rejoins because it got a 27, so the join phase began before its deadline. A 27 in the very
    millisecond of the deadline does not show that the end of its session began the phase. The successor of a static
    member may join in any phase, even in one that has not been seen to start: a client that was given an id (79)
    will start it. If the next generation is known already, the line of the member's own answer will come soon. If a
    record of the same generation ended a phase, it was a phase of a deposed coordinator, where it goes on.
    """
    if member.generation is not None and member.generation < replica.generation:
        return True
    phase = replica.phase
    cut_off = phase.ended is None and phase.started_ms is not None and phase.started_ms < deadline_ms
    if cut_off and max(member.session_from_ms or 0, replica.stable_seen_ms or 0) < replica.state_since_ms:
        return True
    if member.instance_id is None:
        return replica.state is not GroupState.STABLE and replica.state_since_ms <= deadline_ms
    stable_ms = replica.stable_seen_ms or 0
    return replica.state is not GroupState.STABLE or any(p.given_ms > stable_ms for p in replica.pending.values())


def _expired(
    replica: GroupReplica, member: Member, context: JudgementContext, deadline_ms: int, timeout_ms: int
) -> Finding:
    blamed = blamed_reset(deadline_ms, timeout_ms, context.timer_resets)
    return Finding(
        rule=SESSION_EXPIRED.id,
        severity=STREAMS_SEVERITY if is_streams(member) else SESSION_EXPIRED.severity,
        opened_ms=deadline_ms,
        at_ms=deadline_ms + context.thresholds.grace_ms,
        evidence=Evidence.INFERRED,
        cause=(blamed and blamed.blamed_cause) or own_cause(member),
        summary=f"{name_of(member)} {_silent(replica, member)} for its session timeout of {seconds(timeout_ms)}",
        deadline_ms=deadline_ms,
        detail={"session_timeout_ms": timeout_ms, "last_heartbeat_ms": member.last_heartbeat_ms},
        **about_member(replica, member, context),
    )


def _silent(replica: GroupReplica, member: Member) -> str:
    refused = refused_as_member(replica, member)
    return f"was refused with {refused}" if refused else "sent no heartbeat"


def _at_risk(
    replica: GroupReplica, member: Member, context: JudgementContext, base_ms: int, timeout_ms: int
) -> Finding:
    risk_ms = base_ms + int(timeout_ms * context.thresholds.at_risk_ratio)
    return Finding(
        rule=SESSION_AT_RISK.id,
        severity=SESSION_AT_RISK.severity,
        opened_ms=risk_ms,
        at_ms=risk_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{name_of(member)} {_silent(replica, member)} for {seconds(risk_ms - base_ms)} of its session timeout"
        f" of {seconds(timeout_ms)}",
        deadline_ms=base_ms + timeout_ms,
        detail={"session_timeout_ms": timeout_ms, "last_heartbeat_ms": member.last_heartbeat_ms},
        **about_member(replica, member, context),
    )

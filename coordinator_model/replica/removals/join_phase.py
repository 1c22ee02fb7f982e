"""The group's join phase: when it began, who has joined, and when it ended.

Theory (``GroupMetadataManager.prepareRebalance`` and ``completeClassicGroupJoin``). A group enters PreparingRebalance
when a member leaves or expires, when a new one joins, or when one rejoins with something changed. The coordinator then
waits for the others, at most for the longest rebalance timeout of its members. When that has passed, within some
milliseconds, it drops the dynamic members that have not rejoined and keeps the static ones. So a phase that lasted
that long ended by its timeout. A shorter one did not, and the members that are gone after it had expired. The first
sign of a phase dates its start: a leave, a JoinGroup that had to wait, a heartbeat answered 27 or 25, or the session
deadline of a member that is gone.
"""

from coordinator_model.events import JoinAnswered
from coordinator_model.replica.group import MAX_UNANSWERED_JOINS, GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.ended_phase import (
    EARLY_MS,
    LATE_MS,
    ROUNDED_MS,
    phase_limit_ms,
    unreported_phase,
)
from coordinator_model.replica.removals.phases import NEWCOMER, EndedPhase, JoinPhase, JoinsSeen, PhaseEnd, PhaseStart
from coordinator_model.states import GroupState

NEW_MEMBER_MS = 300_000
"""The longest that a newcomer's JoinGroup waits for the phase to end (``classicGroupNewMemberJoinTimeoutMs``)."""


def begin_phase(replica: GroupReplica, sign_ms: int, by: str | None = None) -> None:
    """Start a join phase at its first sign. It had not begun at the last sign of the generation before it.

    A heartbeat of a member that has left since is such a sign, too.
    """
    unreported = replica.state is GroupState.COMPLETING_REBALANCE and replica.listed_generation != replica.generation
    if unreported and replica.unreported_phase is None:  # keep the earliest: members it dropped are in no later one
        replica.unreported_phase = unreported_phase(replica)
    members = [*replica.members.values(), *(leave.member for leave in replica.leaves)]
    if any(_has_synced_unseen(replica, member) for member in members):
        for member in replica.members.values():
            member.awaiting_sync = False
    heard = [at_ms or 0 for m in members for at_ms in (m.previous_heartbeat_ms, m.last_heartbeat_ms)]
    before = [at_ms for at_ms in (*heard, replica.generation_since_ms) if at_ms < sign_ms]
    awaited = any(pending.given_ms <= sign_ms <= pending.until_ms for pending in replica.pending.values())
    replica.phase = JoinPhase(max(before, default=0), PhaseStart(sign_ms, by or (NEWCOMER if awaited else None)))


def _has_synced_unseen(replica: GroupReplica, member: Member) -> bool:
    """Tell whether a member is the leader, whose SyncGroup stored the record of the generation, but has no line.

    Then the lines of the other members' SyncGroups may be missing too.
    """
    since_ms = max(replica.generation_since_ms, member.timer_reset_ms or 0)
    stored = member.member_id == replica.leader and replica.recorded_generation is None
    return stored and member.awaiting_sync and (member.synced_ms or 0) >= since_ms


def note_sign(replica: GroupReplica, generation: int, sign_ms: int, by: str | None = None) -> None:
    """Note a sign of the join phase that leads to ``generation``, if it is the earliest so far.

    A sign at the same instant as the earliest counts if only it shows who began the phase. A member whose heartbeat is
    the earliest sign did not begin the phase with the JoinGroup that follows: it had been told of the phase before.
    """
    if by and _was_told_before(replica, by, sign_ms):
        return
    in_the_next = generation == replica.generation and replica.state is GroupState.PREPARING_REBALANCE
    phases = [] if in_the_next else [replica.phase]
    for phase in phases + _unjudged_phases(replica, generation):
        start = phase.started
        if start is None or not phase.began_after_ms <= sign_ms <= start.at_ms:
            continue
        if sign_ms < start.at_ms or (by and not start.by):
            phase.started = PhaseStart(sign_ms, by or (NEWCOMER if start.by == NEWCOMER else None))


def _was_told_before(replica: GroupReplica, member_id: str, sign_ms: int) -> bool:
    """Tell whether a member's heartbeat was the first sign of the phase (27), just before its JoinGroup arrived."""
    member, start = replica.members.get(member_id), replica.phase.started
    if member is None or start is None or start.by:
        return False
    return member.last_heartbeat_ms == start.at_ms and abs(sign_ms - start.at_ms) <= ROUNDED_MS


def _unjudged_phases(replica: GroupReplica, generation: int) -> list[EndedPhase]:
    """Return the ended phases of a generation in which some removal is not judged yet."""
    phases = [d.phase for d in replica.departures if d.generation == generation and not d.judged]
    unreported = replica.unreported_phase
    if unreported is not None and unreported.ended is not None and unreported.ended.generation == generation:
        phases.append(unreported)
    return list({id(phase): phase for phase in phases}.values())


def end_phase(replica: GroupReplica, generation: int, at_ms: int, *, emptied: bool = False) -> None:
    """End the join phase with a new generation. If generations are skipped, phases in between ended unseen."""
    replica.joins = JoinsSeen(skipped=generation > replica.generation + 1 > 0)
    replica.phase.ended = PhaseEnd(generation, at_ms, emptied)
    replica.generation, replica.generation_since_ms, replica.announced_by = generation, at_ms, ""
    replica.rolled_back_replacements.clear()


def note_join_as_it_moved(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """Correct when a phase had not begun yet, if the next coordinator received a JoinGroup before it was known.

    When metadata names that coordinator, the group is taken to be as the log has it (``advance.take_over``). But the
    coordinator had loaded the group before, and the phase may have begun since.
    """
    moves = [r for r in context.timer_resets if r.is_move and r.broker == event.broker]
    for phase in [replica.phase, *_unjudged_phases(replica, event.generation)]:
        for move in moves:
            unknown = move.high_ms is None or phase.began_after_ms <= move.high_ms
            if unknown and move.low_ms < event.arrival_ms < phase.began_after_ms:
                phase.began_after_ms = move.low_ms


def note_join(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note by a JoinGroup's answer who joined a generation, and when the first and the last JoinGroup arrived."""
    ended_ms = replica.generation_since_ms
    for ended in _unjudged_phases(replica, event.generation):
        if ended.ended is None:
            continue  # it followed that generation, and goes on
        ended.joins = _with_join(ended.joins, event.arrival_ms, ended_ms)
        if event.arrival_ms <= ended.removed_ms + EARLY_MS:
            ended.unjoined = [name for name in ended.unjoined if name not in (event.instance_id, event.member_id)]
    replica.joins = _with_join(replica.joins, event.arrival_ms, ended_ms)


def _with_join(joins: JoinsSeen, arrival_ms: int, ended_ms: int) -> JoinsSeen:
    """Add a JoinGroup to those of a generation whose join phase ended at ``ended_ms``."""
    if not joins.skipped:
        joins = joins._replace(first_ms=arrival_ms if joins.first_ms is None else min(joins.first_ms, arrival_ms))
    if arrival_ms > ended_ms + EARLY_MS:
        return joins  # it came after the phase had ended, so the phase did not wait for it
    return joins._replace(last_ms=max(joins.last_ms or arrival_ms, arrival_ms))


def note_unanswered_join(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note a member that joined though its JoinGroup was answered 15 behind a stalled write."""
    for phase in (replica.phase, replica.unreported_phase):
        if phase is not None and (phase.ended is None or event.arrival_ms <= phase.ended.at_ms):
            phase.unanswered = [*phase.unanswered, event.request_member_id][:MAX_UNANSWERED_JOINS]


def note_ended(replica: GroupReplica, member_id: str) -> None:
    """Note an answer 22 for the generation before the phase: the phase has ended, and the member is still there.

    So the member is in the next generation, though it did not rejoin: it is static
    (``GroupMetadataManager.validateClassicGroupHeartbeat``).
    """
    phase = replica.phase
    phase.unanswered = [*phase.unanswered, member_id][:MAX_UNANSWERED_JOINS]


def note_unseen_end(replica: GroupReplica, by_ms: int, context: JudgementContext) -> None:
    """Assume that the current phase ended unseen: a generation later than the one that it leads to has been seen.

    It ended when the last session ended of those that had not joined, or by its timeout. Its end restarted the session
    timers of members that had joined and whose answers were lost, and of static members that had not joined
    (``GroupMetadataManager.completeClassicGroupJoin``).
    """
    phase, members = replica.phase, replica.members.values()
    started_ms = phase.started_ms or 0
    waiting = [m for m in members if m.member_id in phase.unanswered]
    others = [m for m in members if m.member_id not in phase.unanswered]
    ends_ms = [_session_end_ms(member) for member in others]
    began_ms = min([started_ms, *(at_ms for at_ms in ends_ms if phase.began_after_ms <= at_ms < started_ms)])
    due_ms = began_ms + (phase_limit_ms(replica, phase, by_ms, context) or 0)
    ended_ms = min(max(ends_ms, default=0), due_ms)
    kept = [m for m in others if m.instance_id is not None and _session_end_ms(m) > ended_ms]
    if started_ms <= ended_ms < by_ms:
        for member in (*waiting, *kept):
            member.timer_reset_ms = max(member.timer_reset_ms or 0, ended_ms)


def forget_phase_unless_timed_out(replica: GroupReplica, context: JudgementContext) -> None:
    """Forget the unreported phase unless it ended by its timeout, because only then did it drop members.

    This must come before members are dropped from the replica: their timeouts decide how long the phase could last.
    If the list of members that comes now is the phase's own and only late, the phase is kept even without a timeout.
    """
    phase = replica.unreported_phase
    if phase is None or phase.ended is None:
        return
    phase.limit_ms = phase_limit_ms(replica, phase, phase.ended.at_ms, context)
    _date_by_its_timeout(replica, phase)
    if phase.ended.generation != replica.generation and not _surely_timed_out(replica, phase, context):
        replica.unreported_phase = None


def _date_by_its_timeout(replica: GroupReplica, phase: EndedPhase) -> None:
    """Date the end of a phase by its timeout, if a member that was alive was unknown (25) after that.

    The answers at the end of the phase may have been lost behind a stalled write. Then only a later one showed the end.
    """
    start, ended = phase.started, phase.ended
    if start is None or ended is None or phase.limit_ms is None:
        return
    due_ms = start.at_ms + max(phase.limit_ms, start.timeout_ms or 0)
    if any((member.unknown_ms or 0) < ended.at_ms for member in _unknown_while_alive(replica, phase, due_ms)):
        phase.ended, phase.removed_ms = ended._replace(at_ms=due_ms), due_ms


def _surely_timed_out(replica: GroupReplica, phase: EndedPhase, context: JudgementContext) -> bool:
    """Tell whether a phase surely ended by its timeout: it lasted that long, or it dropped a member that was alive.

    That is sure only if its start was seen, and since then the coordinator has not changed and no lines were lost. The
    end of a session may have begun it before its first sign.
    """
    start, limit_ms = phase.started, phase.limit_ms
    if start is None or limit_ms is None or len(phase.unanswered) == MAX_UNANSWERED_JOINS:
        return False
    starts = [(start.at_ms, max(limit_ms, start.timeout_ms or 0))]
    ends_ms = [_session_end_ms(member) for member in replica.members.values() if member.session_timeout_ms]
    starts += [(at_ms, limit_ms) for at_ms in ends_ms if phase.began_after_ms <= at_ms < start.at_ms]
    sure = [(at_ms, lasts_ms) for at_ms, lasts_ms in starts if not was_disturbed(context, at_ms)]
    if any(-EARLY_MS <= phase.removed_ms - at_ms - lasts_ms <= LATE_MS for at_ms, lasts_ms in sure):
        return True
    return starts[0] in sure and bool(_unknown_while_alive(replica, phase, phase.removed_ms))


def was_disturbed(context: JudgementContext, since_ms: int) -> bool:
    """Tell whether the coordinator changed, or lines were lost, since an instant."""
    return any(r.woke_ms is None and r.may_come_after(since_ms) for r in context.timer_resets)


def _unknown_while_alive(replica: GroupReplica, phase: EndedPhase, since_ms: int) -> list[Member]:
    """Return the dynamic members that were unknown to their coordinator (25) after a phase, before their session ended.

    If it has not left, only a phase's timeout removes such a member
    (``GroupMetadataManager.completeClassicGroupJoin``). A heartbeat that was answered 15 behind a stalled write
    counts as accepted: a refused one is answered at once.
    """
    dynamic = [m for m in replica.members.values() if not was_kept(phase, m) and m.unknown_ms is not None]
    return [m for m in dynamic if since_ms <= (m.unknown_ms or 0) < _session_end_ms(m)]


def _session_end_ms(member: Member) -> int:
    """Return when a member's session ends if its last heartbeat that was answered 15 was applied."""
    return max(member.session_from_ms or 0, member.parked_heartbeat_ms or 0) + (member.session_timeout_ms or 0)


def was_kept(phase: JoinPhase, member: Member) -> bool:
    """Tell whether a phase that timed out kept a member: a static one, or one that is known to have rejoined."""
    if member.kip848 or member.instance_id is not None or member.member_id in phase.unanswered:
        return True
    return phase.ended is not None and (member.generation or -1) >= phase.ended.generation


def newcomer_waited(event: JoinAnswered) -> bool:
    """Tell whether a newcomer's JoinGroup waited for ``NEW_MEMBER_MS``, after which it is answered 25."""
    return event.answer_ms - event.arrival_ms >= NEW_MEMBER_MS - EARLY_MS


def note_refused_newcomer(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note the answer 25 to a newcomer that has waited for too long: the phase that it began goes on without it.

    The newcomer's rebalance timeout counted when the phase began (``GroupMetadataManager.prepareRebalance``), so it
    still limits the phase. A static newcomer and one with a JoinGroup older than v4 have no member id yet.
    """
    by = event.request_member_id or event.instance_id or event.client_id or None
    if replica.state is GroupState.PREPARING_REBALANCE and newcomer_waited(event):
        note_sign(replica, replica.generation + 1, event.arrival_ms, by)
        note_timeout_if_starter(replica, by, event.rebalance_timeout_ms)


def note_timeout_if_starter(replica: GroupReplica, by: str | None, timeout_ms: int) -> None:
    """Note the rebalance timeout of a client whose JoinGroup may have begun the phase that goes on, if one does.

    Perhaps no answer will ever name who began it.
    """
    start, goes_on = replica.phase.started, replica.state is GroupState.PREPARING_REBALANCE
    if goes_on and start is not None and (start.by or None) == by:
        replica.phase.started = start._replace(timeout_ms=timeout_ms)

"""The join phase as it goes on: when it began, who has joined, and when it ended.

Theory (kafka-facts 3.3). A group enters PreparingRebalance when a member leaves, expires, joins anew or rejoins with
something changed, and the coordinator then waits for the others, at most for the longest rebalance timeout of its
members. At that instant, to some milliseconds, it drops the dynamic members that have not rejoined; a static one it
keeps. So a phase that ended then ended by its timeout, and one that is younger cannot have: whoever it lost had
expired. The start is seen in its first sign: a leave, a JoinGroup that had to wait, a heartbeat answered 27 or 25, or
the deadline of somebody whom it lost.
"""

from coordinator_model.events import JoinAnswered
from coordinator_model.replica.group import MAX_UNANSWERED_JOINS, GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS, timeout_ms, unreported_phase
from coordinator_model.replica.removals.phases import EndedPhase, JoinPhase
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.states import GroupState

NEW_MEMBER_MS = 300_000
"""How long a newcomer's JoinGroup waits for the phase to end at most."""


def begin(replica: GroupReplica, sign_ms: int, by: str = "") -> None:
    """Start a join phase at its first sign; it did not begin before the last sign of the generation before it."""
    unreported = replica.state is GroupState.COMPLETING_REBALANCE and replica.listed_generation != replica.generation
    if unreported and replica.unreported_phase is None:  # the earliest: who missed it is in none of those since
        replica.unreported_phase = unreported_phase(replica)
    members = replica.members.values()
    heard = [at_ms or 0 for m in members for at_ms in (m.previous_heartbeat_ms, m.last_heartbeat_ms)]
    before = [at_ms for at_ms in (*heard, replica.generation_since_ms) if at_ms < sign_ms]
    former = replica.phase
    replica.phase = JoinPhase(
        max(before, default=0), sign_ms, by, first_join_ms=former.first_join_ms, last_join_ms=former.last_join_ms
    )


def sign(replica: GroupReplica, generation: int, sign_ms: int, by: str = "") -> None:
    """Note a sign of the join phase before a generation that is earlier than its first one so far.

    Or one of the same instant that shows who began it.
    """
    in_the_next = generation == replica.generation and replica.state is GroupState.PREPARING_REBALANCE
    phases = [] if in_the_next else [replica.phase]
    for phase in phases + _ended(replica, generation):
        if phase.started_ms is None or not phase.after_ms <= sign_ms <= phase.started_ms:
            continue
        if sign_ms < phase.started_ms or (by and not phase.started_by):
            phase.started_ms, phase.started_by, phase.starter_timeout_ms = sign_ms, by, None


def _ended(replica: GroupReplica, generation: int) -> list[EndedPhase]:
    """Return the ended phases of a generation that lines may still trail: some removal of each is not judged yet."""
    phases = [d.phase for d in replica.departures if d.generation == generation and not d.judged]
    unreported = replica.unreported_phase
    phases += [unreported] if unreported is not None and unreported.generation == generation else []
    return list({id(phase): phase for phase in phases}.values())


def end(replica: GroupReplica, generation: int, at_ms: int) -> None:
    """End a join phase with a new generation; a generation that was skipped ended another phase, which was not seen."""
    phase = replica.phase
    phase.first_join_ms, phase.last_join_ms = 0 if generation > replica.generation + 1 > 0 else None, 0
    phase.generation = replica.generation = generation
    phase.ended_ms = replica.generation_since_ms = at_ms
    replica.rolled_back_replacements.clear()


def joined(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note who had asked to join a generation by its beginning, and when the first and the last of them did."""
    for ended in _ended(replica, event.generation):
        _note_join(replica, ended, event)
        if event.arrival_ms <= ended.removed_ms + EARLY_MS:
            ended.unjoined = [name for name in ended.unjoined if name not in (event.instance_id, event.member_id)]
    _note_join(replica, replica.phase, event)


def _note_join(replica: GroupReplica, phase: JoinPhase, event: JoinAnswered) -> None:
    first_ms = phase.first_join_ms
    phase.first_join_ms = event.arrival_ms if first_ms is None else min(first_ms, event.arrival_ms)
    if event.arrival_ms <= replica.generation_since_ms + EARLY_MS:
        phase.last_join_ms = max(phase.last_join_ms, event.arrival_ms)


def unanswered(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note who asked to join and was let in though its answer was lost behind a stalled write."""
    for phase in (replica.phase, replica.unreported_phase):
        if phase is not None and (phase.generation < 0 or event.arrival_ms <= phase.ended_ms):
            phase.unanswered = [*phase.unanswered, event.request_member_id][:MAX_UNANSWERED_JOINS]


def weigh_unreported_phase(replica: GroupReplica, context: JudgementContext) -> None:
    """Keep the unreported phase only if it ended by its timeout: then it left members behind.

    To be asked before anybody is dropped: the timeouts of all who were in decide how long it could last. Where the list
    that comes now is its own, after the next phase's first sign, the phase need not have timed out.
    """
    phase = replica.unreported_phase
    if phase is None:
        return
    phase.limit_ms = timeout_ms(replica, phase, phase.ended_ms, context)
    if phase.generation != replica.generation and not _surely_timed_out(replica, phase, context):
        replica.unreported_phase = None


def _surely_timed_out(replica: GroupReplica, phase: EndedPhase, context: JudgementContext) -> bool:
    """Tell whether a phase ended by its timeout: it lasted that long, or it dropped a member that lived.

    Its start was seen, under the same coordinator, and no line was lost.
    """
    if phase.started_ms is None or phase.limit_ms is None or len(phase.unanswered) == MAX_UNANSWERED_JOINS:
        return False
    started_ms, late_ms = phase.started_ms, phase.ended_ms - phase.started_ms
    late_ms -= max(phase.limit_ms, phase.starter_timeout_ms or 0)
    resets = context.timer_resets
    unsure = any(r.woke_ms is None and (r.high_ms is None or r.high_ms >= started_ms) for r in resets)
    return not unsure and (-EARLY_MS <= late_ms <= LATE_MS or _dropped_one_alive(replica, phase))


def _dropped_one_alive(replica: GroupReplica, phase: EndedPhase) -> bool:
    """Tell whether a dynamic member that was heard within its session was unknown (25) once a phase had ended.

    Nothing else removes one that has not left (``GroupMetadataManager.completeClassicGroupJoin``).
    """
    dynamic = (m for m in replica.members.values() if not stayed(phase, m))
    return any(phase.ended_ms <= (m.unknown_ms or 0) < (m.clock_ms or 0) + (m.session_timeout_ms or 0) for m in dynamic)


def stayed(phase: JoinPhase, member: Member) -> bool:
    """Tell whether a phase that timed out kept a member: a static one, or one that is known to have asked to join."""
    if member.kip848 or member.instance_id is not None or member.member_id in phase.unanswered:
        return True
    return (member.generation or -1) >= phase.generation


def newcomer_waited(event: JoinAnswered) -> bool:
    """Tell whether a newcomer's JoinGroup waited for as long as one may."""
    return event.answer_ms - event.arrival_ms >= NEW_MEMBER_MS - EARLY_MS


def note_refused_newcomer(replica: GroupReplica, event: JoinAnswered) -> None:
    """Take the answer 25 to a newcomer that waited for as long as one may: the phase that it began goes on without it.

    The phase's time was set as it came (kafka-facts 3.3). A static one and a client before JoinGroup v4 have no id yet.
    """
    by = event.request_member_id or event.instance_id or event.client_id
    if replica.state is GroupState.PREPARING_REBALANCE and newcomer_waited(event):
        sign(replica, replica.generation + 1, event.arrival_ms, by)
        if replica.phase.started_by == by:
            replica.phase.starter_timeout_ms = event.rebalance_timeout_ms

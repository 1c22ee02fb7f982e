"""The group's join phase: when it began, who has joined, and when it ended.

Theory (kafka-facts 3.3). A group enters PreparingRebalance when a member leaves, expires, joins anew or rejoins with
something changed, and the coordinator then waits for the others, at most for the longest rebalance timeout of its
members. At that instant, to some milliseconds, it drops the dynamic members that have not rejoined; a static one it
keeps. So a phase that lasted that long ended by its timeout. A shorter one did not, and the members that it lost had
expired. The start is seen in its first sign: a leave, a JoinGroup that had to wait, a heartbeat answered 27 or 25, or
the session deadline of a member that it lost.
"""

from coordinator_model.events import JoinAnswered
from coordinator_model.replica.group import MAX_UNANSWERED_JOINS, GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS, phase_limit_ms, unreported_phase
from coordinator_model.replica.removals.phases import EndedPhase, JoinPhase
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.states import GroupState

NEW_MEMBER_MS = 300_000
"""The longest that a newcomer's JoinGroup waits for the phase to end."""


def begin(replica: GroupReplica, sign_ms: int, by: str = "") -> None:
    """Start a join phase at its first sign. Its earliest start is the last sign of the generation before it."""
    unreported = replica.state is GroupState.COMPLETING_REBALANCE and replica.listed_generation != replica.generation
    if unreported and replica.unreported_phase is None:  # the earliest: who missed it is in no later one
        replica.unreported_phase = unreported_phase(replica)
    members = replica.members.values()
    heard = [at_ms or 0 for m in members for at_ms in (m.previous_heartbeat_ms, m.last_heartbeat_ms)]
    before = [at_ms for at_ms in (*heard, replica.generation_since_ms) if at_ms < sign_ms]
    former = replica.phase
    replica.phase = JoinPhase(
        max(before, default=0), sign_ms, by, first_join_ms=former.first_join_ms, last_join_ms=former.last_join_ms
    )


def sign(replica: GroupReplica, generation: int, sign_ms: int, by: str = "") -> None:
    """Note a sign of the join phase that led to a generation, if it is the earliest so far.

    A sign of the same instant counts if it shows who began the phase.
    """
    in_the_next = generation == replica.generation and replica.state is GroupState.PREPARING_REBALANCE
    phases = [] if in_the_next else [replica.phase]
    for phase in phases + _ended(replica, generation):
        if phase.started_ms is None or not phase.after_ms <= sign_ms <= phase.started_ms:
            continue
        if sign_ms < phase.started_ms or (by and not phase.started_by):
            phase.started_ms, phase.started_by, phase.starter_timeout_ms = sign_ms, by, None


def _ended(replica: GroupReplica, generation: int) -> list[EndedPhase]:
    """Return the ended phases of a generation that are still open: some removal of each is not judged yet."""
    phases = [d.phase for d in replica.departures if d.generation == generation and not d.judged]
    unreported = replica.unreported_phase
    phases += [unreported] if unreported is not None and unreported.generation == generation else []
    return list({id(phase): phase for phase in phases}.values())


def end(replica: GroupReplica, generation: int, at_ms: int) -> None:
    """End the join phase with a new generation. If generations were skipped, earlier phases ended unseen."""
    phase = replica.phase
    phase.first_join_ms, phase.last_join_ms = 0 if generation > replica.generation + 1 > 0 else None, 0
    phase.generation = replica.generation = generation
    phase.ended_ms = replica.generation_since_ms = at_ms
    replica.rolled_back_replacements.clear()


def joined(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note by a JoinGroup's answer who joined a generation, and when the first and the last JoinGroup arrived."""
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
    """Note a member that joined though its JoinGroup's answer was lost behind a stalled write."""
    for phase in (replica.phase, replica.unreported_phase):
        if phase is not None and (phase.generation < 0 or event.arrival_ms <= phase.ended_ms):
            phase.unanswered = [*phase.unanswered, event.request_member_id][:MAX_UNANSWERED_JOINS]


def end_untold(replica: GroupReplica, by_ms: int, context: JudgementContext) -> None:
    """End the phase that goes on where a later generation than its own is shown: no answer told of that one.

    It ended as the session of the last of the others did, or by its timeout. That began the sessions of those who had
    asked to join, and whose answers were lost (``GroupMetadataManager.completeClassicGroupJoin``).
    """
    phase, members = replica.phase, replica.members.values()
    waiting = [m for m in members if m.member_id in phase.unanswered]
    others = (m for m in members if m.member_id not in phase.unanswered)
    ends_ms = [max(m.clock_ms or 0, m.parked_heartbeat_ms or 0) + (m.session_timeout_ms or 0) for m in others]
    due_ms = (phase.started_ms or 0) + (phase_limit_ms(replica, phase, by_ms, context) or 0)
    ended_ms = min(max(ends_ms, default=0), due_ms)
    if (phase.started_ms or 0) <= ended_ms < by_ms:
        for member in waiting:
            member.timer_reset_ms = max(member.timer_reset_ms or 0, ended_ms)


def weigh_unreported_phase(replica: GroupReplica, context: JudgementContext) -> None:
    """Forget the unreported phase unless it ended by its timeout, for only then it dropped members.

    This must come before members are dropped from the replica: their timeouts decide how long the phase could last.
    Where the list of members that comes now is the phase's own, which is late, the phase need not have timed out.
    """
    phase = replica.unreported_phase
    if phase is None:
        return
    phase.limit_ms = phase_limit_ms(replica, phase, phase.ended_ms, context)
    if phase.generation != replica.generation and not _surely_timed_out(replica, phase, context):
        replica.unreported_phase = None


def _surely_timed_out(replica: GroupReplica, phase: EndedPhase, context: JudgementContext) -> bool:
    """Tell whether a phase surely ended by its timeout: it lasted that long, or it dropped a member that was alive.

    Its start must have been seen, under the same coordinator, with no lines lost since.
    """
    if phase.started_ms is None or phase.limit_ms is None or len(phase.unanswered) == MAX_UNANSWERED_JOINS:
        return False
    started_ms, late_ms = phase.started_ms, phase.ended_ms - phase.started_ms
    late_ms -= max(phase.limit_ms, phase.starter_timeout_ms or 0)
    resets = context.timer_resets
    unsure = any(r.woke_ms is None and (r.high_ms is None or r.high_ms >= started_ms) for r in resets)
    return not unsure and (-EARLY_MS <= late_ms <= LATE_MS or _dropped_one_alive(replica, phase))


def _dropped_one_alive(replica: GroupReplica, phase: EndedPhase) -> bool:
    """Tell whether a dynamic member was unknown (25) after a phase, though its session had not ended.

    Only a phase's timeout removes such a member, if it has not left
    (``GroupMetadataManager.completeClassicGroupJoin``). A heartbeat that was answered 15 behind a stalled write had
    been accepted: a refused one is answered at once.
    """
    dynamic = [m for m in replica.members.values() if not stayed(phase, m) and m.unknown_ms is not None]
    ends_ms = [max(m.clock_ms or 0, m.parked_heartbeat_ms or 0) + (m.session_timeout_ms or 0) for m in dynamic]
    return any(phase.ended_ms <= (m.unknown_ms or 0) < end_ms for m, end_ms in zip(dynamic, ends_ms, strict=True))


def stayed(phase: JoinPhase, member: Member) -> bool:
    """Tell whether a phase that timed out kept a member: a static one, or one that is known to have rejoined."""
    if member.kip848 or member.instance_id is not None or member.member_id in phase.unanswered:
        return True
    return (member.generation or -1) >= phase.generation


def newcomer_waited(event: JoinAnswered) -> bool:
    """Tell whether a newcomer's JoinGroup waited as long as one can."""
    return event.answer_ms - event.arrival_ms >= NEW_MEMBER_MS - EARLY_MS


def note_refused_newcomer(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note the answer 25 to a newcomer that waited as long as one can: the phase that it began goes on without it.

    The newcomer's timeout counted when the phase began (kafka-facts 3.3), so it still limits the phase. A static member
    and a client before JoinGroup v4 have no member id yet.
    """
    by = event.request_member_id or event.instance_id or event.client_id
    if replica.state is GroupState.PREPARING_REBALANCE and newcomer_waited(event):
        sign(replica, replica.generation + 1, event.arrival_ms, by)
        if replica.phase.started_by == by:
            replica.phase.starter_timeout_ms = event.rebalance_timeout_ms

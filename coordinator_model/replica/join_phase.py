"""The join phase: when it began, how long it may last, and what its end says of those whom it left behind.

Theory (kafka-facts 3.3). A group enters PreparingRebalance when a member leaves, expires, joins anew or rejoins with
something changed, and the coordinator then waits for the others, at most for the longest rebalance timeout of its
members. At that instant, to some milliseconds, it drops the dynamic members that have not rejoined; a static one it
keeps. So a phase that ended then ended by its timeout, and one that is younger cannot have: whoever it lost had
expired. The start is seen in its first sign: a leave, a JoinGroup that had to wait, a heartbeat answered 27 or 25, or
the deadline of somebody whom it lost.
"""

from collections.abc import Collection, Iterable
from itertools import chain
from operator import itemgetter

from coordinator_model.events import JoinAnswered
from coordinator_model.replica.group import MAX_UNANSWERED_JOINS, Departure, GroupReplica, JoinPhase, Member
from coordinator_model.replica.session_timer import JudgementContext, touches_ms
from coordinator_model.states import Cause, GroupState

EARLY_MS, LATE_MS = 10, 200
"""Between a phase's first sign plus its timeout and its end: instants are rounded; a JoinGroup arrives before it is
applied, and timers are late, on a busy machine."""
NEW_MEMBER_MS = 300_000
"""How long a newcomer's JoinGroup waits for the phase to end at most."""


def begin(replica: GroupReplica, sign_ms: int, by: str = "") -> None:
    """Start a join phase at its first sign; the last that is known of the time before bounds it from below."""
    unreported = replica.state is GroupState.COMPLETING_REBALANCE and replica.listed_generation != replica.generation
    if unreported and replica.unreported_phase is None:  # the earliest: who missed it is in none of those since
        replica.unreported_phase = replica.phase
        replica.unreported_phase.unjoined = unjoined(replica, replica.generation, replica.phase.ended_ms)
    members = replica.members.values()
    heard = [at_ms or 0 for m in members for at_ms in (m.previous_heartbeat_ms, m.last_heartbeat_ms)]
    before = [at_ms for at_ms in (*heard, replica.generation_since_ms) if at_ms < sign_ms]
    former = replica.phase
    replica.phase = JoinPhase(
        max(before, default=0), sign_ms, by, first_join_ms=former.first_join_ms, last_join_ms=former.last_join_ms
    )


def sign(replica: GroupReplica, generation: int, sign_ms: int, by: str = "") -> None:
    """Note a sign of the join phase before a generation that is earlier than its first one so far.

    Or one of the same instant that tells who began it.
    """
    in_the_next = generation == replica.generation and replica.state is GroupState.PREPARING_REBALANCE
    phases = [] if in_the_next else [replica.phase]
    for phase in phases + _kept(replica, generation):
        if phase.started_ms is None or not phase.after_ms <= sign_ms <= phase.started_ms:
            continue
        if sign_ms < phase.started_ms or (by and not phase.started_by):
            phase.started_ms, phase.started_by, phase.starter_timeout_ms = sign_ms, by, None


def _open(replica: GroupReplica, generation: int) -> list[Departure]:
    return [d for d in replica.departures if d.generation == generation and not d.concluded]


def _kept(replica: GroupReplica, generation: int) -> list[JoinPhase]:
    """Return what is kept of the phase that led to a generation, beside the group's own."""
    unreported = [
        phase for phase in (replica.unreported_phase,) if phase is not None and phase.generation == generation
    ]
    return unreported + [departure.phase for departure in _open(replica, generation)]


def end(replica: GroupReplica, generation: int, at_ms: int) -> None:
    """End a join phase with a new generation; one that was skipped ended others, of which nobody told."""
    phase = replica.phase
    phase.first_join_ms, phase.last_join_ms = 0 if generation > replica.generation + 1 > 0 else None, 0
    phase.generation = replica.generation = generation
    phase.ended_ms = replica.generation_since_ms = at_ms
    replica.rolled_back_replacements.clear()


def joined(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note who had asked to join a generation by its beginning, and when the first and the last of them did."""
    for departure in _open(replica, event.generation):
        if event.arrival_ms <= departure.removed_ms + EARLY_MS:
            departure.unjoined = [name for name in departure.unjoined if name not in _names(event)]
    unreported = replica.unreported_phase
    if (
        unreported is not None
        and unreported.generation == event.generation
        and event.arrival_ms <= unreported.ended_ms + EARLY_MS
    ):
        unreported.unjoined = [name for name in unreported.unjoined if name not in _names(event)]
    for phase in [replica.phase, *_kept(replica, event.generation)]:
        first_ms = phase.first_join_ms
        phase.first_join_ms = event.arrival_ms if first_ms is None else min(first_ms, event.arrival_ms)
        if event.arrival_ms <= replica.generation_since_ms + EARLY_MS:
            phase.last_join_ms = max(phase.last_join_ms, event.arrival_ms)


def _names(event: JoinAnswered) -> tuple[str | None, str]:
    return event.instance_id, event.member_id


def unanswered(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note who asked to join, was let in, and will not be told: its answer was lost behind a stalled write."""
    for phase in (replica.phase, replica.unreported_phase):
        if phase is not None and (phase.generation < 0 or event.arrival_ms <= phase.ended_ms):
            phase.unanswered = [*phase.unanswered, event.request_member_id][:MAX_UNANSWERED_JOINS]


def weigh_unreported_phase(replica: GroupReplica, context: JudgementContext) -> None:
    """Keep the phase of which nobody told only if it ended by its timeout: then it left members behind.

    That is sure where its start was seen, the coordinator is no other since, and no lines were lost. To be asked before
    anybody is dropped: the timeouts of all who were in decide how long it could last. Where the list is its own, told
    after the next phase's first sign, it need not have.
    """
    phase = replica.unreported_phase
    if phase is None:
        return
    phase.limit_ms = timeout_ms(replica, phase, phase.ended_ms, context)
    if phase.generation == replica.generation:
        return
    if phase.started_ms is None or phase.limit_ms is None or len(phase.unanswered) == MAX_UNANSWERED_JOINS:
        replica.unreported_phase = None
        return
    unsure = (
        r for r in context.timer_resets if r.woke_ms is None and (r.high_ms is None or r.high_ms >= phase.started_ms)
    )
    late_ms = phase.ended_ms - phase.started_ms - max(phase.limit_ms, phase.starter_timeout_ms or 0)
    if any(unsure) or not (-EARLY_MS <= late_ms <= LATE_MS or _dropped_one_alive(replica, phase)):
        replica.unreported_phase = None


def _dropped_one_alive(replica: GroupReplica, phase: JoinPhase) -> bool:
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


def static_in(replica: GroupReplica, phase: JoinPhase) -> bool:
    """Tell whether a static member was in the phase, even if it has gone since."""
    left = (leave.member for leave in replica.leaves if leave.applied_ms >= (phase.started_ms or 0))
    return any(m.instance_id is not None for m in chain(replica.members.values(), left))


def unjoined(replica: GroupReplica, generation: int, ended_ms: int) -> list[str]:
    """Return who is not seen to have joined a generation whose phase waited for it: an instance, or an id given out."""
    members = replica.members.values()
    out = [name for name, pending in replica.pending.items() if pending.given_ms < ended_ms <= pending.until_ms]
    return out + [m.instance_id for m in members if m.instance_id is not None and (m.generation or -1) < generation]


def timeout_ms(replica: GroupReplica, phase: JoinPhase, removed_ms: int, context: JudgementContext) -> int | None:
    """Return how long the phase that ended at an instant could last: the longest timeout of the group's members.

    Only members that were in the group when the phase began count. A member that joined later does not, except the one
    whose JoinGroup began it, which ``count_starter_in`` adds. A member that was gone by then does not count either,
    even if the end of its session began the phase.
    """
    members, begun_ms = replica.members.values(), phase.started_ms or 0
    gone = _gone_as_it_began(replica, phase, removed_ms, context)
    in_by_ms = min(phase.started_ms or removed_ms, removed_ms - EARLY_MS)
    early = [m for m in members if (m.joined_ms or 0) <= in_by_ms and m.member_id not in gone]
    limits = [m.rebalance_timeout_ms for m in early or members]
    since = [leave for leave in replica.leaves if leave.applied_ms >= begun_ms]  # but whose leave began it is out
    left = [leave.member for leave in since if leave.applied_ms > begun_ms or leave.cause is Cause.REPLACED]
    left = [m for m in left if m.member_id not in gone]
    limits += [m.rebalance_timeout_ms for m in left if (m.joined_ms or 0) <= begun_ms]
    limits += [d.phase.limit_ms for d in replica.departures if d.removed_ms == removed_ms]
    return max((limit_ms for limit_ms in limits if limit_ms), default=None)


def count_starter_in(replica: GroupReplica, departure: Departure) -> None:
    """Count the timeout of the member whose JoinGroup began the phase: by now all answers have told who that was."""
    by = departure.phase.started_by
    left = (leave.member for leave in replica.leaves if leave.applied_ms > departure.removed_ms)
    limits_ms = [m.rebalance_timeout_ms for m in chain(replica.members.values(), left) if m.member_id == by]
    limits_ms.append(departure.phase.starter_timeout_ms)
    departure.phase.starter_timeout_ms = max((limit_ms for limit_ms in limits_ms if limit_ms), default=None)


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


def _gone_as_it_began(replica: GroupReplica, phase: JoinPhase, removed_ms: int, context: JudgementContext) -> set[str]:
    """Return who was gone when a phase began whose first sign came then: it may have begun with their going.

    The first session to end begins it, and who expires after that is still in; a missed sync ends for all at once.
    """
    begun_ms = phase.started_ms or 0
    ends: list[tuple[int, bool, str]] = []
    waiting = [m for m in replica.members.values() if m.awaiting_sync and m.timer_reset_ms is not None]
    limits = {at_ms: _sync_limit_ms(replica, at_ms, removed_ms) for at_ms in {m.timer_reset_ms or 0 for m in waiting}}
    for member in waiting:
        sync_ms = limits[member.timer_reset_ms or 0]
        if sync_ms is not None:
            ends.append(((member.timer_reset_ms or 0) + sync_ms, False, member.member_id))
    replaced = (leave.member for leave in replica.leaves if leave.cause is Cause.REPLACED)
    for member in chain(replica.members.values(), replaced):
        clock_ms, timeout_ms = member.clock_ms, member.session_timeout_ms
        if clock_ms is not None and timeout_ms is not None:
            touched_ms = [at_ms for at_ms in touches_ms(member, context.commits, clock_ms) if at_ms <= begun_ms]
            ends.append((max([clock_ms, *touched_ms]) + timeout_ms, True, member.member_id))
    ends = [end for end in ends if end[0] <= begun_ms]
    first = min((end for end in ends if end[0] >= phase.after_ms), key=itemgetter(0, 1), default=None)
    gone = {member_id for at_ms, _, member_id in ends if at_ms < phase.after_ms}
    if first is None or first[1]:
        return gone | ({first[2]} if first is not None else set())
    return gone | {member_id for at_ms, alone, member_id in ends if at_ms == first[0] and not alone}


def sync_timeout_ms(replica: GroupReplica, member: Member, removed_ms: int) -> int | None:
    """Return how long a member that joined had to sync: the longest timeout of those in the generation as it began.

    Members that have left or expired since count too. None: it has synced, or had not joined.
    """
    waits = member.awaiting_sync and member.timer_reset_ms is not None
    return _sync_limit_ms(replica, member.timer_reset_ms or 0, removed_ms) if waits else None


def _sync_limit_ms(replica: GroupReplica, began_ms: int, removed_ms: int) -> int | None:
    others = [m for m in replica.members.values() if (m.joined_ms or 0) <= began_ms + EARLY_MS]
    others += [leave.member for leave in replica.leaves if leave.applied_ms > began_ms]
    others += [d.member for d in replica.departures if d.removed_ms == removed_ms]
    return max((m.rebalance_timeout_ms for m in others if m.rebalance_timeout_ms), default=None)


def sync_deadline_ms(departure: Departure, context: JudgementContext) -> int | None:
    """Return by when a member that joined had to sync, unless it did or another join phase began before.

    A coordinator that loads the group knows nothing of those who had yet to sync: whom it removes it does not for that.
    """
    member, limit_ms = departure.member, departure.sync_timeout_ms
    if not member.awaiting_sync or member.timer_reset_ms is None or limit_ms is None:
        return None
    deadline_ms = member.timer_reset_ms + limit_ms
    if any(reset.may_load and reset.low_ms >= member.timer_reset_ms for reset in context.timer_resets):
        return None
    if departure.phase.started_ms is not None and departure.phase.started_ms < deadline_ms - EARLY_MS:
        return None
    if (member.last_heartbeat_ms or 0) > deadline_ms + LATE_MS:
        return None  # it had synced: who has not by then is removed at once
    return deadline_ms if deadline_ms <= departure.removed_ms + EARLY_MS else None


def timed_out(departure: Departure, deadlines_ms: Iterable[int], context: JudgementContext) -> bool:
    """Tell whether the phase ended by its timeout; ``deadlines_ms`` are of the sessions of those whom it lost."""
    late_ms = [departure.removed_ms - end_ms for end_ms in _ends_ms(departure, deadlines_ms, context)]
    return any(-EARLY_MS <= ms <= LATE_MS for ms in late_ms)


def waited_in_vain(
    departure: Departure, end_ms: int | None, sessions_ms: Collection[int], context: JudgementContext
) -> bool:
    """Tell whether the phase went on to its timeout though all had joined or expired: for one who had done neither.

    Else the last join or the last end of a session would have ended it. ``end_ms``: when its timeout was due.
    ``sessions_ms``: when the member's own would have ended, and those of the others whom the phase lost had at the
    latest. A busy coordinator runs its timers late; a grace is enough for that.
    """
    if end_ms is None or not departure.phase.last_join_ms or not all(sessions_ms):
        return False
    last_ms = max(departure.phase.last_join_ms, *sessions_ms)
    return end_ms - EARLY_MS <= departure.removed_ms and last_ms + context.thresholds.grace_ms < departure.removed_ms


def ended_with(session_ms: int, removed_ms: int, due_ms: int) -> bool:
    """Tell whether a phase ended with a session's end rather than by its timeout, which was due a moment later."""
    nearer = session_ms <= removed_ms < due_ms and removed_ms - session_ms < due_ms - removed_ms
    return removed_ms - LATE_MS <= session_ms and (nearer or session_ms < due_ms - EARLY_MS)


def outlasted(departure: Departure, deadlines_ms: Iterable[int], context: JudgementContext) -> bool:
    """Tell whether the phase went on after its timeout: that found nobody rejoined, and static members still in.

    So it seems, too, where the answers of a generation in between were lost: its own phase ended by then.
    The coordinator then drops the dynamic ones, waits for the others once more, and announces nothing
    (``GroupMetadataManager.completeClassicGroupJoin``). So who joined the generation asked to only after that.
    """
    limit_ms, started_ms = departure.phase.limit_ms, departure.phase.started_ms
    ends_ms = _ends_ms(departure, deadlines_ms, context)
    if departure.phase.started_by == "" and len(ends_ms) > 1:
        ends_ms = ends_ms[1:]  # nobody's join or leave began it, so a session's end did, before its first sign
    if started_ms is None or limit_ms is None or not ends_ms or max(ends_ms) + LATE_MS >= departure.removed_ms:
        return False
    skipped = departure.phase.first_join_ms == 0
    if not skipped and (not departure.static_in or (departure.phase.first_join_ms or max(ends_ms) + 1) <= max(ends_ms)):
        return False
    return not any(r.woke_ms is None and (r.high_ms is None or r.high_ms >= started_ms) for r in context.timer_resets)


def due_ms(departure: Departure, deadlines_ms: Iterable[int], context: JudgementContext) -> int | None:
    """Return when the phase had to end, by the earliest of its possible starts; None: no start is known."""
    return min(_ends_ms(departure, deadlines_ms, context), default=None)


def _ends_ms(departure: Departure, deadlines_ms: Iterable[int], context: JudgementContext) -> list[int]:
    """Return its timeout after each start that it can have had: its first sign, or an end of a session before that.

    One that was on as another broker took over began there with the first that joined.
    """
    limit_ms = departure.phase.limit_ms
    if departure.phase.started_ms is None or limit_ms is None:
        return []
    starts = [(departure.phase.started_ms, _own_limit_ms(departure) or limit_ms)]
    ends_ms = (at_ms for at_ms in deadlines_ms if departure.phase.after_ms <= at_ms < departure.phase.started_ms)
    starts += [(at_ms, limit_ms) for at_ms in ends_ms]
    moved_ms = max((r.low_ms for r in context.timer_resets if r.cause is Cause.COORDINATOR_MOVED), default=0)
    if departure.phase.started_ms < moved_ms:
        starts.append((departure.phase.first_join_ms or 0, limit_ms))
    return [at_ms + lasts_ms for at_ms, lasts_ms in starts if at_ms >= moved_ms]


def _own_limit_ms(departure: Departure) -> int | None:
    """Return how long the phase could last if it began with its first sign: that member's timeout counts."""
    limit_ms = departure.phase.limit_ms
    return None if limit_ms is None else max(limit_ms, departure.phase.starter_timeout_ms or 0)


def began_with(departure: Departure, first_deadline_ms: int) -> bool:
    """Tell whether the phase can have begun with the end of this member's session: nobody else is seen to have.

    Its successor would have begun none in a stable group, but in one that waited for SyncGroups it does.
    """
    started_ms, by = departure.phase.started_ms, departure.phase.started_by
    unreported = by == "" or (by == departure.successor and not departure.member.awaiting_sync)
    return started_ms is not None and unreported and first_deadline_ms <= started_ms + EARLY_MS


def may_have_timed_out(departure: Departure) -> bool:
    """Tell whether the phase can have lasted its whole timeout, also with a timer that ran late."""
    limit_ms = _own_limit_ms(departure)
    known = departure.phase.started_ms is not None and limit_ms is not None
    return known and departure.removed_ms - departure.phase.after_ms >= (limit_ms or 0)


def too_young(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the phase had not lasted long enough, however early it began, to end by its timeout."""
    limit_ms = _own_limit_ms(departure)
    if departure.phase.started_ms is None or limit_ms is None:
        return False
    return departure.removed_ms - departure.phase.after_ms < limit_ms - context.thresholds.grace_ms

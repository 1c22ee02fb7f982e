"""What is kept of a join phase for the removals in it: how long it could last, and who had not joined by its end."""

from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.phases import NO_JOIN_SEEN, EndedPhase, JoinPhase
from coordinator_model.replica.session_timer import may_have_loaded_since, moves_since_heard, touches_ms
from coordinator_model.states import Cause

EARLY_MS, LATE_MS = 10, 200
"""A phase that ends this much before or after its first sign plus its timeout still counts as ended by its timeout.
Instants are rounded, a JoinGroup is applied after it arrives, and timers run late on a busy machine."""
ROUNDED_MS = 2
"""How much later than the beginning or the end of a phase its cause may seem to come: both instants are rounded."""


def ended_phase(
    replica: GroupReplica, phase: JoinPhase, generation: int, removed_ms: int, context: JudgementContext
) -> EndedPhase:
    """Return what is kept of a phase in which members were removed at an instant: one object for all these members.

    It is made when the first of them is found gone, not when the phase ends: only the answers in between show who had
    joined and whose timeouts counted. ``generation``: the newest one, which no longer has these members. A phase that
    goes on is possible too, see ``EndedPhase``.
    """
    before = replica.departures[-1] if replica.departures else None
    same = before is not None and (before.removed_ms, before.generation) == (removed_ms, generation)
    if before is not None and same and before.phase.is_of(phase):
        return before.phase
    limit_ms, with_static = phase_limit_ms(replica, phase, removed_ms, context), _static_in(replica, phase)
    if isinstance(phase, EndedPhase):  # the unreported one
        return replace(phase, limit_ms=phase.limit_ms or limit_ms, static_in=with_static, unanswered=[])
    return EndedPhase(
        phase.began_after_ms,
        phase.started,
        phase.ended,
        joins=NO_JOIN_SEEN if phase.ended is None else replica.joins,  # those of the newest generation
        removed_ms=removed_ms,
        limit_ms=limit_ms,
        static_in=with_static,
        unjoined=_unjoined(replica, generation, removed_ms),
    )


def unreported_phase(replica: GroupReplica) -> EndedPhase:
    """Return what is kept of the group's last phase when the next one begins and no answer has listed its members."""
    phase, ended_ms = replica.phase, replica.generation_since_ms
    return EndedPhase(
        phase.began_after_ms,
        phase.started,
        phase.ended,
        phase.unanswered,
        joins=replica.joins,
        removed_ms=ended_ms,
        unjoined=_unjoined(replica, replica.generation, ended_ms),
    )


def _static_in(replica: GroupReplica, phase: JoinPhase) -> bool:
    """Tell whether a static member was in the phase, even if it has gone since."""
    left = (leave.member for leave in replica.leaves if leave.applied_ms >= (phase.started_ms or 0))
    return any(m.instance_id is not None for m in chain(replica.members.values(), left))


def _unjoined(replica: GroupReplica, generation: int, ended_ms: int) -> list[str]:
    """Return the static and the pending members for which a phase waited and that are not seen to have joined."""
    members = replica.members.values()
    out = [name for name, pending in replica.pending.items() if pending.given_ms < ended_ms <= pending.until_ms]
    return out + [m.instance_id for m in members if m.instance_id is not None and (m.generation or -1) < generation]


def phase_limit_ms(replica: GroupReplica, phase: JoinPhase, removed_ms: int, context: JudgementContext) -> int | None:
    """Return how long the phase that ended at an instant could last: the longest rebalance timeout of the members.

    Only members that were in the group when the phase began count. A member that joined later does not, except the one
    whose JoinGroup began the phase: ``note_starter_timeout`` adds it. A member that was gone when the phase began does
    not count either, even if the end of its session or its replacement began the phase, or if it came back in the phase
    because its replacement was rolled back. A replaced member that was in no generation yet joined in the phase: the
    first sign of the phase may be later than that.
    """
    members, begun_ms = replica.members.values(), phase.started_ms or 0
    gone = _gone_as_it_began(replica, phase, removed_ms, context) | _replaced_as_it_began(replica, phase)
    gone |= _rolled_back_since(replica, begun_ms)
    in_by_ms = min(phase.started_ms or removed_ms, removed_ms - EARLY_MS)
    early = [m for m in members if (m.joined_ms or 0) <= in_by_ms and m.member_id not in gone]
    limits = [m.rebalance_timeout_ms for m in early or members]
    since = [leave for leave in replica.leaves if leave.applied_ms >= begun_ms]  # not the leave that began it
    after_ms = begun_ms + ROUNDED_MS
    left = [leave.member for leave in since if leave.applied_ms > after_ms or leave.cause is Cause.REPLACED]
    left = [m for m in left if m.member_id not in gone]
    by_ms = [(m, phase.began_after_ms if m.generation is None else begun_ms) for m in left]
    limits += [m.rebalance_timeout_ms for m, in_by_ms in by_ms if (m.joined_ms or 0) <= in_by_ms]
    limits += [d.phase.limit_ms for d in replica.departures if d.removed_ms == removed_ms]
    return max((limit_ms for limit_ms in limits if limit_ms), default=None)


def note_starter_timeout(replica: GroupReplica, phase: EndedPhase) -> None:
    """Note the timeout of the member whose JoinGroup began the phase: by now all answers that show it have come."""
    if phase.started is None:
        return
    left = (leave.member for leave in replica.leaves if leave.applied_ms > phase.removed_ms)
    starters = [m for m in chain(replica.members.values(), left) if m.member_id == phase.started.by]
    limits_ms = [*(member.rebalance_timeout_ms for member in starters), phase.started.timeout_ms]
    longest_ms = max((limit_ms for limit_ms in limits_ms if limit_ms), default=None)
    phase.started = phase.started._replace(timeout_ms=longest_ms)


class _TimerEnd(NamedTuple):
    """When a timer of a member ran out."""

    at_ms: int
    of_session: bool
    """Whether it was the session timer; if not, it was the timer of the SyncGroup."""
    member_id: str
    generation: int
    """The last generation that the member is known to have been in."""


def _gone_as_it_began(replica: GroupReplica, phase: JoinPhase, removed_ms: int, context: JudgementContext) -> set[str]:
    """Return which members were already gone when a phase began, among them those whose removal may have begun it.

    The first session to end begins the phase. A member that expires later was still in the group then. A sync timeout
    removes all members that have not synced together. A coordinator that loads the group lets nobody miss a sync. A
    heartbeat behind a stalled write shows that its member was still in the group: one that is gone is refused at once.
    Only the last of these heartbeats is kept, so it may be the only sign that the session had not ended before. It is
    no sign if the coordinator has moved since the member was heard: a deposed one may have answered it.
    """
    begun_ms = phase.started_ms or 0
    ends: list[_TimerEnd] = []
    known = replica.members.values()
    members = [m for m in known if (m.parked_heartbeat_ms or 0) <= begun_ms or moves_since_heard(m, context)]
    waiting = [m for m in members if m.awaiting_sync and m.timer_reset_ms is not None]
    waiting = [m for m in waiting if not may_have_loaded_since(m.timer_reset_ms or 0, context)]
    limits = {at_ms: _sync_limit_ms(replica, at_ms, removed_ms) for at_ms in {m.timer_reset_ms or 0 for m in waiting}}
    for member in waiting:
        sync_ms = limits[member.timer_reset_ms or 0]
        if sync_ms is not None:
            at_ms = (member.timer_reset_ms or 0) + sync_ms
            ends.append(_timer_end(member, at_ms, of_session=False))
    since = [leave for leave in replica.leaves if leave.applied_ms >= phase.began_after_ms]
    replaced = (leave.member for leave in since if leave.cause is Cause.REPLACED)
    for member in chain(members, replaced):
        session_from_ms, timeout_ms = member.session_from_ms, member.session_timeout_ms
        if session_from_ms is not None and timeout_ms is not None:
            restarts_ms = touches_ms(member, context.commits, session_from_ms)
            restarts_ms += [move.low_ms for move in moves_since_heard(member, context)]
            at_ms = max([session_from_ms, *(at_ms for at_ms in restarts_ms if at_ms <= begun_ms)]) + timeout_ms
            ends.append(_timer_end(member, at_ms, of_session=True))
    ends = [end for end in ends if end.at_ms <= begun_ms + ROUNDED_MS]
    before = replica.generation if phase.ended is None else phase.ended.generation - 1
    gone = {end.member_id for end in ends if _ended_before(end, phase.began_after_ms, before)}
    starters = (end for end in ends if end.member_id not in gone)
    first = min(starters, key=lambda end: (end.at_ms, end.of_session), default=None)
    if first is None:
        return gone
    if first.of_session:
        return gone | {first.member_id}
    return gone | {end.member_id for end in ends if end.at_ms == first.at_ms and not end.of_session}


def _replaced_as_it_began(replica: GroupReplica, phase: JoinPhase) -> set[str]:
    """Return whom the JoinGroup that began the phase replaced: the former members with its instance id."""
    starter = "" if phase.started is None else phase.started.by
    replaced = [leave.member for leave in replica.leaves if leave.cause is Cause.REPLACED]
    known = (member for member in chain(replica.members.values(), replaced) if member.member_id == starter)
    instances = {member.instance_id for member in known if member.instance_id is not None}
    former = (member for member in replaced if member.instance_id in instances and member.member_id != starter)
    return {member.member_id for member in former if (member.joined_ms or 0) <= (phase.started_ms or 0)}


def _rolled_back_since(replica: GroupReplica, begun_ms: int) -> set[str]:
    """Return who was out of the group as a phase began, because a successor held its instance id until later.

    The successor's replacement was rolled back in the phase: the former member is a member again
    (``rolled_back_replacement``).
    """
    since = (leave for leave in replica.leaves if leave.applied_ms > begun_ms + ROUNDED_MS)
    replaced = [leave.member for leave in since if leave.cause is Cause.REPLACED and leave.member.instance_id]
    held_from_ms: dict[str | None, int] = {}
    for holder in (member for member in replaced if (member.joined_ms or 0) <= begun_ms):
        came_ms = holder.joined_ms or 0
        held_from_ms[holder.instance_id] = max(held_from_ms.get(holder.instance_id, 0), came_ms)
    known = chain(replica.members.values(), replaced)
    return {m.member_id for m in known if (m.joined_ms or 0) < held_from_ms.get(m.instance_id, 0)}


def _timer_end(member: Member, at_ms: int, *, of_session: bool) -> _TimerEnd:
    return _TimerEnd(at_ms, of_session, member.member_id, member.generation or 0)


def _ended_before(end: _TimerEnd, began_after_ms: int, generation: int) -> bool:
    """Tell whether a timer ran out before a phase, which followed a generation.

    One that ran out as the generation was announced ended the phase that led to it, unless its member is known to have
    been in the generation.
    """
    return end.at_ms < began_after_ms or (end.at_ms <= began_after_ms + ROUNDED_MS and end.generation < generation)


def sync_timeout_ms(replica: GroupReplica, member: Member, removed_ms: int) -> int | None:
    """Return how much time a member that joined had to sync.

    That is the longest timeout of the members of the generation when it began. Members that have left or expired since
    count too, and so does the member itself, which may be out of the replica already. None: it has synced, or had not
    joined.
    """
    if not member.awaiting_sync or member.timer_reset_ms is None:
        return None
    limit_ms = _sync_limit_ms(replica, member.timer_reset_ms, removed_ms)
    return max(limit_ms or 0, member.rebalance_timeout_ms or 0) or None


def _sync_limit_ms(replica: GroupReplica, began_ms: int, removed_ms: int) -> int | None:
    """Return the longest timeout of the members that were in a generation when it began.

    Members that come later do not change its timer (``GroupMetadataManager.schedulePendingSync``), nor do members that
    have gone. A leave that ended the phase before may seem to come after the announcement (``ROUNDED_MS``).
    """
    left = (leave.member for leave in replica.leaves if leave.applied_ms > began_ms + ROUNDED_MS)
    those = [*replica.members.values(), *left]
    those += [d.member for d in replica.departures if d.removed_ms == removed_ms or d.removed_ms > began_ms]
    limits_ms = (m.rebalance_timeout_ms for m in those if (m.joined_ms or 0) <= began_ms + EARLY_MS)
    return max((limit_ms for limit_ms in limits_ms if limit_ms), default=None)

"""A JoinGroup that was refused, or whose answer was lost: it may have been applied nevertheless.

If it waited for a stalled write and was answered 15, only its answer was lost. If a static newcomer was answered 82 or
27, it was a member until then. An answer 25 or 79 shows what the coordinator knew.
"""

from coordinator_model.errors import Error
from coordinator_model.events import JoinAnswered
from coordinator_model.replica import recorded, rolled_back_replacement
from coordinator_model.replica.classic import fill_from_join, member_of, note_fenced, prepare_rebalance
from coordinator_model.replica.group import MAX_UNANSWERED_JOINS, GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.notes import PendingMember, UnansweredJoin
from coordinator_model.replica.removals import join_phase
from coordinator_model.replica.removals.ended_phase import EARLY_MS, ROUNDED_MS
from coordinator_model.replica.removals.leaves import remember_leave
from coordinator_model.replica.removals.removal import remove_member
from coordinator_model.replica.session_timer import touches_ms, unheard_since
from coordinator_model.replica.static_replacement import former_members, replace_static
from coordinator_model.replica.transitions import StateEvent
from coordinator_model.states import Cause, GroupState, GroupType

PENDING_VERSION = 4
"""From this version of JoinGroup on, a dynamic newcomer is given its id first (79, KIP-394)."""


def refused(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """Apply a JoinGroup that was refused. 79 makes no member, only an id for which the join phase waits (KIP-394)."""
    note_fenced(replica, event, event.request_member_id)
    _note_interim_holder(replica, event, context)
    _apply_unanswered_join(replica, event, context)
    if event.error == Error.UNKNOWN_MEMBER_ID:
        join_phase.note_refused_newcomer(replica, event)
        _note_unknown(replica, event)
        _remove_if_empty(replica, event, context)
    if event.error == Error.MEMBER_ID_REQUIRED and event.member_id:
        _forget_expired_ids(replica, event.answer_ms)
        replica.pending[event.member_id] = PendingMember(event.answer_ms, event.answer_ms + event.session_timeout_ms)


def _forget_expired_ids(replica: GroupReplica, now_ms: int) -> None:
    """Forget the ids (79) that have expired, except those for which the phase of a removal to be judged waited."""
    awaited = {name for departure in replica.departures if not departure.judged for name in departure.phase.unjoined}
    expired = [name for name, pending in replica.pending.items() if pending.until_ms < now_ms and name not in awaited]
    for name in expired if len(replica.pending) < MAX_UNANSWERED_JOINS else list(replica.pending)[:1]:
        del replica.pending[name]


def _note_unknown(replica: GroupReplica, event: JoinAnswered) -> None:
    """Note that the coordinator does not know the member that asked (25), unless it was heard since."""
    member = replica.members.get(event.request_member_id)
    if member is not None and not member.in_kip848_group and event.answer_ms >= (member.session_from_ms or 0):
        member.unknown_ms = member.unknown_ms or event.answer_ms


def _remove_if_empty(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """Note that an empty KIP-848 group is gone: the coordinator removes it before it refuses a classic JoinGroup.

    It writes no tombstone then (``GroupMetadataManager.classicGroupJoinToClassicGroup``). The log still has the group,
    so the next coordinator loads it (``advance.take_over``).
    """
    empty = replica.type is GroupType.CONSUMER and replica.state is GroupState.EMPTY
    if empty and event.broker == context.broker and event.arrival_ms >= replica.state_since_ms:
        replica.enter(StateEvent.REMOVED_UNWRITTEN, event.answer_ms)


def _note_interim_holder(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """Apply a static newcomer's JoinGroup that waited and was answered 82 or 27: it held the instance id meanwhile.

    It is answered 82 when a successor comes, and 27 when a conversion of the group fails. Only a JoinGroup that takes
    part in a join phase waits for that, so the phase had begun by its arrival.
    """
    newcomer = event.instance_id is not None and not event.request_member_id and event.member_id
    waited = event.error == Error.REBALANCE_IN_PROGRESS and event.answer_ms > event.arrival_ms
    if not newcomer or not (event.error == Error.FENCED_INSTANCE_ID or waited):
        return
    former = former_members(replica, event)
    # A holder that seems to join just after the newcomer's arrival came before it: instants are not exact. Its
    # successor joins as the newcomer is answered.
    since_ms = max(event.arrival_ms, min(event.arrival_ms + EARLY_MS, event.answer_ms - ROUNDED_MS))
    if any((m.joined_ms or 0) > since_ms for m in former):
        _insert_interim_holder(replica, event, former, context)
        return
    replica.save_last_record()
    member = member_of(replica, event.member_id, event.arrival_ms)
    replace_static(replica, event, context)
    member.instance_id = event.instance_id
    if event.error == Error.FENCED_INSTANCE_ID:
        member.fenced_ms, member.replaced_ms = event.arrival_ms, event.answer_ms
    fill_from_join(member, event)
    if replica.type is GroupType.CLASSIC and event.arrival_ms >= replica.generation_since_ms:
        prepare_rebalance(replica, StateEvent.MEMBER_JOINED, event.arrival_ms, event.member_id)
        join_phase.note_timeout_if_starter(replica, event.member_id, event.rebalance_timeout_ms)


def _insert_interim_holder(
    replica: GroupReplica, event: JoinAnswered, former: list[Member], context: JudgementContext
) -> None:
    """Put a newcomer between its predecessor and its successor: the record showed the successor first."""
    for leave in [leave for leave in replica.leaves if leave.member in former]:
        newcomer = Member(event.member_id, joined_ms=event.arrival_ms, fenced_ms=event.arrival_ms)
        fill_from_join(newcomer, event)
        remove_member(replica, leave.member, event.arrival_ms, context, event.broker, successor=event)
        remember_leave(replica, Leave(newcomer, leave.applied_ms, Cause.REPLACED, None))
        leave.applied_ms = event.arrival_ms


def _apply_unanswered_join(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> None:
    """Apply a JoinGroup that waited and was answered 15: it was applied, and only its answer was lost.

    A dynamic member that joins with the id that it was given is let in, and so is an unknown instance: both begin a
    join phase, or join the current one. A known instance is replaced, but in a stable group only once the replacement
    is written. An instance whose session has ended is unknown, and the end of its session began a join phase
    (``GroupMetadataManager.expireClassicGroupMemberHeartbeat``).
    """
    waited_ms = event.answer_ms - event.arrival_ms
    if event.error != Error.COORDINATOR_NOT_AVAILABLE or waited_ms < context.thresholds.stalled_write_ms:
        return
    replica.note_stall(event.answer_ms)
    rolled_back_replacement.revert_behind(replica, event.broker, event.arrival_ms, event.answer_ms)
    former = former_members(replica, event) if event.instance_id is not None else []
    without_id = not event.request_member_id and (event.instance_id or event.api_version < PENDING_VERSION)
    newcomer = without_id or event.request_member_id in replica.pending
    if newcomer and len(replica.unanswered_joins) < MAX_UNANSWERED_JOINS:
        replica.unanswered_joins[event.instance_id or event.client_id] = UnansweredJoin(
            event.session_timeout_ms, event.rebalance_timeout_ms, event.instance_id, event.client_id, event.client_host
        )
    if replica.type is GroupType.CONSUMER or recorded.was_written_by_another(replica, event.broker, context):
        return  # a KIP-848 group has no join phase, and in that of a deposed coordinator nobody joins the group
    if replica.state is GroupState.PREPARING_REBALANCE:
        join_phase.note_sign(replica, replica.generation + 1, event.arrival_ms, _asker(event))
        _replace_in_phase(replica, event, former, context)
    elif replica.state is GroupState.STABLE and event.arrival_ms >= replica.state_since_ms and former:
        if not event.request_member_id and _had_gone(former[0], event, context):
            prepare_rebalance(replica, StateEvent.MEMBER_JOINED, event.arrival_ms)
            remove_member(replica, former[0], event.arrival_ms, context, event.broker)
        elif not event.request_member_id:
            rolled_back_replacement.note(replica, event, former[0])
    elif not former and (newcomer or event.request_member_id) and event.arrival_ms >= replica.state_since_ms:
        prepare_rebalance(replica, StateEvent.MEMBER_JOINED, event.arrival_ms, _asker(event))
    join_phase.note_timeout_if_starter(replica, _asker(event), event.rebalance_timeout_ms)
    if event.request_member_id:
        join_phase.note_unanswered_join(replica, event)


def _replace_in_phase(
    replica: GroupReplica, event: JoinAnswered, former: list[Member], context: JudgementContext
) -> None:
    """Note that a newcomer took the instance id of its holder in a join phase, as soon as it arrived.

    It did not take it from a holder that came later. If the holder's session seems to have ended before, the removal is
    judged: no other line names the newcomer before the phase ends.
    """
    if event.request_member_id or event.arrival_ms < (replica.phase.started_ms or 0):
        return
    for old in (old for old in former if (old.joined_ms or 0) < event.arrival_ms):
        if not _had_gone(old, event, context):
            old.replaced_ms = old.replaced_ms or event.arrival_ms
        elif old.member_id not in replica.phase.unanswered and old.member_id in replica.members:
            remove_member(replica, old, event.arrival_ms, context, event.broker, successor=event)


def _asker(event: JoinAnswered) -> str:
    """Name the client that asked to join: a newcomer need not have a member id yet."""
    return event.request_member_id or event.instance_id or event.client_id


def _had_gone(member: Member, event: JoinAnswered, context: JudgementContext) -> bool:
    """Tell whether the coordinator no longer knew a member, or its session had ended as far as its heartbeats show.

    The latter is not known if the broker that answers may have loaded the group since: only that restarts its timers.
    """
    heard_ms = max([member.session_from_ms or event.arrival_ms, *touches_ms(member, context.commits, 0)])
    ended = heard_ms + (member.session_timeout_ms or 0) < event.arrival_ms - EARLY_MS
    loaded = any(r.may_load and r.broker in ("", event.broker) for r in unheard_since(member, context.timer_resets))
    return member.unknown_ms is not None or (ended and not loaded)

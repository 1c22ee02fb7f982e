"""A static member that came back under a new id: whom its JoinGroup replaces (KIP-345)."""

from coordinator_model.events import JoinAnswered
from coordinator_model.replica.classic import member_of
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.leaves import remember_leave
from coordinator_model.replica.removals.removal import remove_member
from coordinator_model.replica.removals.replacement import inherits_the_lead
from coordinator_model.states import Cause, GroupType


def replace_static(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> list[Member]:
    """Replace a static member that came back under a new id, and return the former member.

    The new member inherits what the former one held (KIP-345), unless the former one had expired before the new one
    asked to join. Whether it had expired is judged once the whole phase is known.
    """
    if event.instance_id is None or replica.type is GroupType.CONSUMER:
        return []  # records show it in a KIP-848 group
    former = former_members(replica, event)
    if former:
        replica.save_last_record()
    replica.departures = [d for d in replica.departures if d not in _unnamed_replacements(replica, event)]
    for old in former:
        if inherits_the_lead(replica, event, old, context):
            old.replaced_ms = old.replaced_ms or event.arrival_ms
        listed = replica.members.pop(old.member_id, None)
        remove_member(replica, old, event.arrival_ms, context, event.broker, successor=event)
        if listed is not None:
            successor = member_of(replica, event.member_id, event.answer_ms)
            successor.assignment, successor.topics = old.assignment, old.topics
            remember_leave(replica, Leave(old, event.answer_ms, Cause.REPLACED, None))
    return former


def former_members(replica: GroupReplica, event: JoinAnswered) -> list[Member]:
    """Return who had this instance id before this join: a member, or one that the leader's list has just dropped.

    Records have shown who was replaced in a KIP-848 group, even if the group became classic in the same write.
    """
    listed = [m for m in replica.members.values() if m.instance_id == event.instance_id]
    dropped = [
        leave.member
        for leave in replica.leaves
        if leave.cause is Cause.REPLACED
        and leave.member.instance_id == event.instance_id
        and event.arrival_ms <= leave.applied_ms == replica.generation_since_ms
        and not leave.member.in_kip848_group
    ]
    unnamed = [departure.member for departure in _unnamed_replacements(replica, event)]
    return [member for member in listed + dropped + unnamed if member.member_id != event.member_id]


def _unnamed_replacements(replica: GroupReplica, event: JoinAnswered) -> list[Departure]:
    """Return the departures of members that the leader's list dropped and that this join replaced.

    Before JoinGroup v5 the list has no instance ids, so it does not show the replacement.
    """
    return [
        d
        for d in replica.departures
        if not d.judged
        and d.successor is None
        and d.member.instance_id == event.instance_id
        and (d.answered_by, d.generation) == (event.broker, event.generation)
        and event.arrival_ms <= d.removed_ms == replica.generation_since_ms
    ]

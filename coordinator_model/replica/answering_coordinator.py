"""Which coordinator answered a JoinGroup: one that does not know the last record, or one that has loaded it since."""

from coordinator_model.events import JoinAnswered
from coordinator_model.replica.classic import is_gone
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.states import GroupState, GroupType


def is_deposed(replica: GroupReplica, event: JoinAnswered) -> bool:
    """Tell whether the broker that answered does not know the last record, so that another coordinator wrote it.

    A KIP-848 group has no leader. A coordinator that makes it a classic group writes the record of that before it names
    a leader.
    """
    has_a_leader = bool(event.leader) and replica.type is GroupType.CONSUMER
    return has_a_leader or _is_of_an_empty_generation(replica, event) or _is_new_in_a_written_generation(replica, event)


def _is_of_an_empty_generation(replica: GroupReplica, event: JoinAnswered) -> bool:
    """Tell whether a member joined a generation whose record lists nobody: the record's writer lets nobody into it."""
    if replica.type is not GroupType.CLASSIC:
        return False
    if replica.recorded_generation is not None:  # answers of the deposed coordinator may have begun a join phase since
        return not replica.recorded and 0 < event.generation <= replica.recorded_generation
    return replica.state is GroupState.EMPTY and 0 < event.generation <= replica.generation


def _is_new_in_a_written_generation(replica: GroupReplica, event: JoinAnswered) -> bool:
    """Tell whether a dynamic member joined a generation whose record was read before and does not list it.

    A coordinator that knows the record lets a newcomer into a later generation only, because it begins a join phase,
    and answers 25 to a former member. So the broker that answered does not know the record.
    """
    newcomer = not event.request_member_id or event.request_member_id in replica.pending
    former = any(departure.member.member_id == event.member_id for departure in replica.departures)
    written = replica.type is GroupType.CLASSIC and replica.state is GroupState.STABLE
    written = written and replica.recorded_generation is None and 0 < event.generation <= replica.generation
    known = event.member_id in replica.members or is_gone(replica, event.member_id, event.answer_ms)
    return event.instance_id is None and (newcomer or former) and written and not known


def has_loaded_since(replica: GroupReplica, event: JoinAnswered, context: JudgementContext) -> bool:
    """Tell whether a coordinator has loaded the log since a generation was announced and not written.

    Then the number of that generation is announced again. A coordinator that loads the log continues with the
    generation of the last record (``GroupMetadataManager.onLoaded``): it announces the next ones, or answers with the
    recorded one itself. If the JoinGroup had waited at the same broker since before the announcement, this is a late
    answer of that announcement: a coordinator that unloads its groups refuses all JoinGroups that wait.
    """
    written = replica.recorded_generation
    if written is None or not written <= event.generation <= replica.generation or written == replica.generation:
        return False
    member = replica.members.get(event.member_id)
    since_ms = replica.generation_since_ms
    restarted = event.arrival_ms > since_ms and any(reset.low_ms >= since_ms for reset in context.timer_resets)
    restarted = restarted or replica.is_announced_elsewhere(event.broker)
    return restarted and (member is None or event.answer_ms > since_ms)

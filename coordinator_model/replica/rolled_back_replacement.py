"""A static replacement whose write timed out: the coordinator reverts it in memory, but its record is in the log.

Theory (``GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin``). In a stable group, one record replaces
a static member. If that is not stored in time, the JoinGroup is answered 15. The coordinator then has the former member
again and restarts its session timer. But the record was appended, and is read once the replicas have caught up. So the
record names the successor while the coordinator knows the former member. The replica has the former member, until the
instance joins again or a coordinator loads the log.
"""

from coordinator_model.events import JoinAnswered, SyncAnswered, parked_ms
from coordinator_model.replica.group import MAX_UNANSWERED_JOINS, GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.notes import RolledBackReplacement
from coordinator_model.replica.removals.departure import STALL_MS
from coordinator_model.replica.removals.ended_phase import EARLY_MS
from coordinator_model.replica.removals.leaves import remember_leave
from coordinator_model.states import Cause

SAME_STEP_MS = 10
"""How far apart the end of a write's timeout and an answer that it causes may seem to be."""


def note(replica: GroupReplica, event: JoinAnswered, holder: Member) -> None:
    """Note a replacement that was answered 15. ``holder``: the member with the instance id in the replica.

    It is the former member, or its successor if the record was read first.
    """
    if event.instance_id is None or len(replica.rolled_back_replacements) >= MAX_UNANSWERED_JOINS:
        return
    replica.rolled_back_replacements[event.instance_id] = RolledBackReplacement(event.arrival_ms, event.answer_ms)
    holder.timer_reset_ms = max(holder.timer_reset_ms or 0, event.answer_ms)
    if holder.joined_ms is not None:
        read(replica, holder, holder.joined_ms)


def read(replica: GroupReplica, successor: Member, written_ms: int) -> None:
    """Apply a record that lists a successor. If that replacement was reverted, the former member is a member again."""
    instance_id = successor.instance_id
    if instance_id is None:
        return
    known = replica.rolled_back_replacements.get(instance_id)
    if known is not None and known.asked_ms - EARLY_MS <= written_ms <= known.answered_ms:
        swapped = _swap(replica, successor, known.answered_ms)
        replica.rolled_back_replacements[instance_id] = known._replace(swapped=swapped)


def revert_if_timed_out(replica: GroupReplica, successor: Member, event: SyncAnswered) -> None:
    """Restore the former member if its successor's SyncGroup is answered 82 because the replacement timed out.

    A join phase may begin before the replacement is stored and answer the successor's JoinGroup. Only then does the
    write time out: the former member is in the new generation, and its successor's SyncGroup is answered at once. If
    the SyncGroup waits for the assignment, that is stored later, under the successor's id: the former member gets none
    (``GroupMetadataManager.setAndPropagateAssignment``).
    """
    waited_ms = event.answer_ms - (successor.joined_ms or 0)
    if event.instance_id != successor.instance_id or successor.instance_id is None:
        return
    if abs(waited_ms - STALL_MS) > SAME_STEP_MS or not _swap(replica, successor, event.answer_ms):
        return
    if parked_ms(event) > EARLY_MS:
        former = next(m for m in replica.members.values() if m.instance_id == event.instance_id)
        former.assignment, former.partitions_left_out = {}, 0


def revert_behind(replica: GroupReplica, broker: str, arrival_ms: int, answer_ms: int) -> None:
    """Restore former members whose replacements timed out, as a later request shows that waited for its write in vain.

    Records are stored in the order in which they are written. If the last one at the request's arrival was not stored
    by the end of its wait, neither was the record of a replacement before it. The end of a join phase has answered the
    successor's JoinGroup meanwhile, and no request of the successor has come since.
    """
    if broker != replica.announced_by or abs(answer_ms - arrival_ms - STALL_MS) > SAME_STEP_MS:
        return
    replaced_ms = {
        leave.member.instance_id: leave.applied_ms
        for leave in replica.leaves
        if leave.cause is Cause.REPLACED and leave.applied_ms <= arrival_ms <= leave.applied_ms + STALL_MS
    }
    for successor in list(replica.members.values()):
        came_ms = replaced_ms.get(successor.instance_id)
        if came_ms is not None and came_ms == successor.joined_ms and _is_unheard_since_a_phase(replica, successor):
            _swap(replica, successor, came_ms + STALL_MS)


def _is_unheard_since_a_phase(replica: GroupReplica, successor: Member) -> bool:
    """Tell whether the end of a join phase answered a successor's JoinGroup, and nothing was heard of it since."""
    joined = successor.awaiting_sync and (successor.joined_ms or 0) < replica.generation_since_ms
    return joined and successor.last_heartbeat_ms is None and successor.synced_ms is None


def load(replica: GroupReplica, context: JudgementContext) -> None:
    """Restore the successor once a coordinator has loaded the log, which has the successor."""
    for instance_id, known in list(replica.rolled_back_replacements.items()):
        loads = (r for r in context.timer_resets if r.may_load and r.low_ms >= known.answered_ms)
        loads_ms = [r.high_ms for r in loads if r.high_ms is not None]
        if not loads_ms:
            continue
        del replica.rolled_back_replacements[instance_id]
        holder = next((m for m in replica.members.values() if m.instance_id == instance_id), None)
        if known.swapped and holder is not None:
            _swap(replica, holder, loads_ms[0])


def _swap(replica: GroupReplica, holder: Member, at_ms: int) -> bool:
    """Replace a static member by the one that it replaced; return False if that is not known."""
    gone = [leave for leave in replica.leaves if leave.cause is Cause.REPLACED]
    was = [leave for leave in gone if leave.member.instance_id == holder.instance_id]
    if not was or holder.member_id not in replica.members:
        return False
    replica.save_last_record()
    former = was[-1].member
    replica.leaves.remove(was[-1])
    remember_leave(replica, Leave(holder, at_ms, Cause.REPLACED, None))
    replica.members = {m.member_id: m for m in (former if m is holder else m for m in replica.members.values())}
    replica.leader = former.member_id if replica.leader == holder.member_id else replica.leader
    former.timer_reset_ms = max(former.timer_reset_ms or 0, at_ms)
    former.generation = holder.generation
    return True

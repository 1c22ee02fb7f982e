"""SyncGroups that are answered 15 behind a stalled write and wait on, and those that only seem to have waited.

The answer 15 says that an earlier write was not stored in time. The coordinator keeps the SyncGroup, and its member's
session does not end, until the assignment is stored, cannot be stored, or the next join phase begins. Then it restarts
the session timers of all members whose SyncGroups it kept (``GroupMetadataManager.propagateAssignment``).
"""

from coordinator_model.errors import Error
from coordinator_model.events import SyncAnswered, parked_ms
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import STALL_MS
from coordinator_model.replica.removals.leaves import TRUNCATED_MS
from coordinator_model.replica.rolled_back_replacement import SAME_STEP_MS
from coordinator_model.states import Cause


def waits_on(event: SyncAnswered) -> bool:
    """Tell whether a SyncGroup is answered 15 because its own wait took too long: the leader's may still be stored."""
    timed_out = abs(parked_ms(event) - STALL_MS) <= SAME_STEP_MS
    return event.error == Error.COORDINATOR_NOT_AVAILABLE and timed_out and not event.from_leader


def end(replica: GroupReplica, at_ms: int) -> None:
    """Restart the session timers of the members whose SyncGroups waited on until now.

    Their timers were restarted by the answer 15. No other member that has yet to sync has a timer that began so late.
    """
    earliest_ms = replica.generation_since_ms + STALL_MS - TRUNCATED_MS
    for member in replica.members.values():
        if member.awaiting_sync and (member.timer_reset_ms or 0) >= earliest_ms:
            member.timer_reset_ms, member.awaiting_sync = max(member.timer_reset_ms or 0, at_ms), False


def take_back(replica: GroupReplica, member: Member, at_ms: int, context: JudgementContext) -> None:
    """Take back that a SyncGroup's answer restarted its member's session, because the member is unknown (25) too early.

    By that restart, the session would not have ended yet. By the one before it (the end of the join phase, or a later
    heartbeat) it was due while the coordinator was paused. So the SyncGroup had only stood in the queue until the
    coordinator woke. It was then answered at once, from a stable group, which restarts nothing.
    """
    timeout_ms, synced_ms = member.session_timeout_ms, member.synced_ms
    if timeout_ms is None or synced_ms is None or member.timer_reset_ms != synced_ms:
        return
    follows = member.member_id != replica.leader and member.generation == replica.generation
    due_ms = max(replica.generation_since_ms, member.last_heartbeat_ms or 0) + timeout_ms
    pauses = (r for r in context.timer_resets if r.cause is Cause.COORDINATOR_PAUSE)
    paused = any(r.low_ms <= due_ms < (r.high_ms or synced_ms) <= synced_ms for r in pauses)
    if follows and paused and at_ms < synced_ms + timeout_ms:
        member.timer_reset_ms = replica.generation_since_ms

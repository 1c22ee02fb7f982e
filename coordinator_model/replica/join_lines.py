"""Whether the JoinGroup lines of a classic group come: a generation of which none was seen proves that they do not.

A generation begins with the answers to its members' JoinGroups. Without them nobody sees who waits in a join phase, so
the silence of a member proves nothing.
"""

from coordinator_model.brokers.blindness import may_miss_lines
from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.states import Cause, GroupType


def note_if_unseen(replica: GroupReplica, context: JudgementContext) -> None:
    """Note the group's generation if its record told it, and a line of it came now before any JoinGroup's."""
    end = replica.phase.ended
    if end is None or end.generation != replica.generation or replica.type is not GroupType.CLASSIC:
        return
    if replica.seen_generation != replica.generation:
        note_unseen(replica, replica.generation_since_ms, replica.phase.began_after_ms, context)


def note_unseen(replica: GroupReplica, at_ms: int, since_ms: int, context: JudgementContext) -> None:
    """Note a generation that began unseen between two instants, unless its JoinGroups may be missing otherwise.

    So they may before telemetry was live, and where the coordinator moved or stood still.
    """
    if since_ms >= context.live_from_ms and not any(_may_hide(reset, since_ms) for reset in context.timer_resets):
        replica.unseen_generation_ms, replica.seen_generation = at_ms, -1


def note_seen(replica: GroupReplica, generation: int) -> None:
    """Note an accepted JoinGroup; one of a generation that a heartbeat or a record told first only trails."""
    if generation == replica.generation and replica.unseen_generation_ms == replica.generation_since_ms:
        replica.unseen_generation_ms = None
    replica.seen_generation = generation


def may_be_missing(replica: GroupReplica, since_ms: int, context: JudgementContext) -> bool:
    """Tell whether a JoinGroup since an instant may not have been seen, though no blind window tells that.

    That is so where a generation began unseen since then, and as long as no JoinGroup was seen after one that did.
    """
    unseen_ms = replica.unseen_generation_ms
    if unseen_ms is None or may_miss_lines(context.blind, unseen_ms, unseen_ms + 1):
        return False
    return unseen_ms > since_ms or replica.seen_generation < 0


def _may_hide(reset: TimerReset, since_ms: int) -> bool:
    """Tell whether a restart since an instant may have hidden a generation's beginning."""
    return reset.cause is not Cause.UNKNOWN and (reset.high_ms is None or reset.high_ms >= since_ms)

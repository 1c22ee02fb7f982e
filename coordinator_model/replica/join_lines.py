"""Whether JoinGroup lines of a classic group are missing: a generation of which none was seen proves it.

A generation begins with the answers to its members' JoinGroups. Without their lines it is not known which members wait
in a join phase, so the silence of a member proves nothing.
"""

from coordinator_model.brokers.blindness import may_miss_lines
from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.states import Cause, GroupType


def note_if_unseen(replica: GroupReplica, context: JudgementContext) -> None:
    """Note the group's generation as unseen if its record showed it and no JoinGroup's line has come since."""
    end = replica.phase.ended
    if end is None or end.generation != replica.generation or replica.type is not GroupType.CLASSIC:
        return
    if replica.seen_generation != replica.generation:
        note_unseen(replica, replica.generation_since_ms, replica.phase.began_after_ms, context)


def note_unseen(replica: GroupReplica, at_ms: int, since_ms: int, context: JudgementContext) -> None:
    """Note a generation that began unseen between two instants, unless its JoinGroups may be unseen for another reason.

    Such a reason is that telemetry was not live yet, or that the coordinator moved or paused.
    """
    if since_ms >= context.live_from_ms and not any(_may_hide(reset, since_ms) for reset in context.timer_resets):
        replica.unseen_generation_ms, replica.seen_generation = at_ms, -1


def note_seen(replica: GroupReplica, generation: int) -> None:
    """Note an accepted JoinGroup. If something else showed its generation first, only the JoinGroup's line was late."""
    if generation == replica.generation and replica.unseen_generation_ms == replica.generation_since_ms:
        replica.unseen_generation_ms = None
    replica.seen_generation = generation


def may_be_missing(replica: GroupReplica, since_ms: int, context: JudgementContext) -> bool:
    """Tell whether the line of a JoinGroup since an instant may be missing, though there is no blind window.

    It may if a generation began unseen since then, or if no JoinGroup was seen after such a generation.
    """
    unseen_ms = replica.unseen_generation_ms
    if unseen_ms is None or may_miss_lines(context.blind, unseen_ms, unseen_ms + 1):
        return False
    return unseen_ms > since_ms or replica.seen_generation < 0


def are_missing(replica: GroupReplica, context: JudgementContext) -> bool:
    """Tell whether a generation began unseen, though there is no blind window, and no JoinGroup was seen since."""
    unseen_ms = replica.unseen_generation_ms
    return unseen_ms is not None and replica.seen_generation < 0 and may_be_missing(replica, unseen_ms, context)


def _may_hide(reset: TimerReset, since_ms: int) -> bool:
    """Tell whether a timer reset since an instant may have hidden the beginning of a generation."""
    return reset.cause is not Cause.UNKNOWN and reset.may_come_after(since_ms)

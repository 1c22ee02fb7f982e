"""A static member that is gone and whose successor came: it was replaced, or its session had ended before."""

from coordinator_model.client import who
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.ended_phase import EARLY_MS
from coordinator_model.replica.removals.removal_instant import (
    context_before,
    ends,
    may_have_started,
    moves_since_heard,
)
from coordinator_model.replica.session_timer import (
    JudgementContext,
    deadlines,
    earliest_load_ms,
    session_timeout_ms,
)


def had_expired(
    replica: GroupReplica, departure: Departure, together: list[Departure], context: JudgementContext
) -> bool:
    """Tell whether a static member's session had ended before its successor came: a replacement starts no rebalance.

    So where one began that nobody is seen to have started, it was the one whose session must have ended first.
    """
    member, removed_ms = departure.member, departure.removed_ms
    if member.fenced_ms is not None and member.fenced_ms < removed_ms:
        return False  # it was waiting for the others: nobody expires who waits
    spans = {id(d): deadlines(d, context_before(d, context)) for d in together}
    first_ms, last_ms = ends(spans[id(departure)])
    if last_ms <= removed_ms:
        return True
    # Before its removal was recorded, a coordinator answered that it does not know the member.
    if (member.unknown_ms or removed_ms) < removed_ms:
        return not _is_reported(replica, departure)
    others = [span for d in together if d is not departure and (span := spans[id(d)])]
    if any(may_have_started(departure, span) and ends(span)[1] <= last_ms for span in others):
        return False
    return _began_the_phase(departure, first_ms)


def may_have_expired(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether its session may have ended before its successor came, as it began with a move of the coordinator.

    The new coordinator may have loaded the group somewhat before its predecessor's last answer.
    """
    member, timeout_ms = departure.member, session_timeout_ms(departure.member, context) or 0
    if (member.fenced_ms or departure.removed_ms) < departure.removed_ms:
        return False
    return any(
        earliest_load_ms(move, departure) + timeout_ms <= departure.removed_ms
        for move in moves_since_heard(departure, context)
    )


def was_taken_back(departure: Departure) -> bool:
    """Tell whether a member was answered 82 since it was heard, and nobody is seen to have come in its place.

    Its instance was another's already: a replacement that a stalled write took back
    (``GroupMetadataManager.replaceStaticMember``, reverted as its record times out). Whose session ended is not known.
    """
    member = departure.member
    fenced = member.fenced_ms is not None and member.fenced_ms >= (member.clock_ms or 0)
    return fenced and departure.successor is None


def _began_the_phase(departure: Departure, first_end_ms: int) -> bool:
    """Tell whether the phase can have begun with the end of this member's session: nobody else is seen to have.

    Its successor would have begun none in a stable group, but in one that waited for SyncGroups it does.
    """
    started_ms, by = departure.phase.started_ms, departure.phase.started_by
    unseen = by == "" or (by == departure.successor and not departure.member.awaiting_sync)
    return started_ms is not None and unseen and first_end_ms <= started_ms + EARLY_MS


def _is_reported(replica: GroupReplica, departure: Departure) -> bool:
    """Tell whether an earlier removal since it was last heard is reported: the loaded log did not have that one."""
    name, heard_ms = who(departure.member), departure.member.clock_ms or 0
    return any(one.client == name and heard_ms < one.at_ms < departure.removed_ms for one in replica.violations)

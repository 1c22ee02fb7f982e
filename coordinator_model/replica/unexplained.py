"""``member-removed``: a member is gone, and the line that says why may be one of those that are missing.

Theory. Three things take a member out: its session ends, it misses a phase of a rebalance, or it says goodbye. The
first two are known by arithmetic, which a few missing heartbeats falsify; the last by its line alone. So a timeout is
reported only if lines were complete either all the while in which the member's whole session passed in silence, or
around its removal, where its goodbye would have been seen. Otherwise the cause is unknown.
"""

from collections.abc import Iterable

from coordinator_model.blindness import is_blind, unseen_until_ms
from coordinator_model.liveness import Scene, deadlines, latest_deadline_ms, session_timeout_ms, unheard_since
from coordinator_model.replica.group import Departure, GroupReplica, Member
from coordinator_model.states import MEMBER_REMOVED, SESSION_EXPIRED, Cause, Evidence

LATELY_MS = 600_000
LONGEST_SESSION_MS = 1_800_000
"""``group.max.session.timeout.ms``."""


def may_be_otherwise(replica: GroupReplica, departure: Departure, together: Iterable[Departure], scene: Scene) -> bool:
    """Tell whether something else than the timeout that is proven may have removed a member, unseen.

    ``together``: all whom the same generation lost.
    """
    if departure.lines_were_behind and not _paused(departure, scene):
        return True
    if _lines_go_missing(replica, departure, scene) and _began_unseen(departure, together, scene):
        return True
    if _heartbeats_are_missing(departure, together, scene):
        return True
    if _may_have_waited(departure, scene) or _contradicts(departure, scene):
        return True
    heard_ms = departure.member.clock_ms
    if heard_ms is None:
        return is_blind(scene.blind, _goodbye_from_ms(departure, scene), departure.gone_ms + 1)
    unseen_ms = unseen_until_ms(scene.blind, heard_ms, _interval_ms(departure.member, scene), departure.gone_ms + 1)
    return unseen_ms > max(heard_ms, _goodbye_from_ms(departure, scene))


def _paused(departure: Departure, scene: Scene) -> bool:
    """Tell whether the coordinator stood still shortly before a removal: then no lines were behind, there were none."""
    since_ms = departure.removed_ms - scene.thresholds.hold_ms
    pauses = (r for r in scene.restarts if r.cause is Cause.COORDINATOR_PAUSE and r.low_ms <= departure.removed_ms)
    return any(max(r.woke_ms or 0, r.high_ms or departure.removed_ms) >= since_ms for r in pauses)


def _lines_go_missing(replica: GroupReplica, departure: Departure, scene: Scene) -> bool:
    """Tell whether lines were missing lately: some are known to be, or a member went that no line explains."""
    since_ms = departure.phase.after_ms - LATELY_MS
    return (replica.unexplained_ms or 0) >= since_ms or is_blind(scene.blind, since_ms, departure.gone_ms)


def _heartbeats_are_missing(departure: Departure, together: Iterable[Departure], scene: Scene) -> bool:
    """Tell whether a member lived longer than its session though no heartbeat of it was seen: a filter hides them.

    Where one of the shard was seen since the member came, its own could have been. Else only a session that ended right
    at the removal is believed.
    """
    member = departure.member
    since_ms = max(member.clock_ms or member.joined_ms or 0, scene.live_from_ms)
    if member.parked_heartbeat_ms is not None or member.last_heartbeat_ms is not None:
        return False
    if member.kip848 and member.clock_ms is None and not scene.proof_arrival_ms:
        return True  # it joined by a heartbeat, and none of anybody is seen
    if not member.goes_alone and scene.proof_arrival_ms > since_ms:
        return False
    phase_ms, end_ms = departure.phase.started_ms, latest_deadline_ms(departure, scene) or 0
    in_a_phase = not member.goes_alone and phase_ms is not None and end_ms >= phase_ms - scene.thresholds.grace_ms
    if in_a_phase and departure.rule == SESSION_EXPIRED:
        return False  # its session ended while the group waited for others
    lost = [departure] if member.goes_alone else together
    ends_ms = [latest_deadline_ms(other, scene) or 0 for other in lost]
    return departure.removed_ms > max(ends_ms, default=0) + scene.thresholds.grace_ms


def _may_have_waited(departure: Departure, scene: Scene) -> bool:
    """Tell whether a member of a classic group may have been silent because its JoinGroup or SyncGroup waited.

    Such a request is seen as it is answered, and nobody expires who waits. Where that answer, or a goodbye, may be
    among the missing lines, the silence proves nothing.
    """
    member, phase_ms = departure.member, departure.phase.started_ms
    if member.goes_alone or member.clock_ms is None:
        return False
    end_ms = latest_deadline_ms(departure, scene) or departure.gone_ms
    if member.awaiting_sync:
        return is_blind(scene.blind, member.clock_ms, departure.gone_ms + 1)
    waited_from_ms = max(member.clock_ms, departure.phase.after_ms)
    return phase_ms is not None and phase_ms <= end_ms and is_blind(scene.blind, waited_from_ms, departure.gone_ms + 1)


def _contradicts(departure: Departure, scene: Scene) -> bool:
    """Tell whether a session would have ended before its group was last seen in order: its end begins a join phase."""
    member, end_ms = departure.member, departure.deadline_ms
    if member.goes_alone or departure.rule != SESSION_EXPIRED or end_ms is None:
        return False
    after_ms = departure.phase.after_ms - scene.thresholds.grace_ms
    return end_ms < after_ms and is_blind(scene.blind, member.clock_ms or 0, departure.gone_ms)


def _goodbye_from_ms(departure: Departure, scene: Scene) -> int:
    """Return the earliest instant at which the member can have said goodbye.

    A classic group tells of it with its next generation only; one of KIP-848 at once.
    """
    if departure.member.goes_alone:
        return departure.removed_ms - scene.thresholds.grace_ms
    return departure.phase.after_ms


def _interval_ms(member: Member, scene: Scene) -> int:
    """Return how long a living member is silent at most: a heartbeat's interval and a half, or a third of its session.

    Where no interval was seen, its whole session.
    """
    timeout_ms = session_timeout_ms(member, scene) or LONGEST_SESSION_MS
    intervals_ms = [member.heartbeat_interval_ms]
    if member.last_heartbeat_ms is not None and member.previous_heartbeat_ms is not None:
        intervals_ms.append(member.last_heartbeat_ms - member.previous_heartbeat_ms)
    known = [interval_ms for interval_ms in intervals_ms if interval_ms]
    return min(timeout_ms, max(max(known) * 3 // 2, timeout_ms // 3)) if known else timeout_ms


def _began_unseen(departure: Departure, together: Iterable[Departure], scene: Scene) -> bool:
    """Tell whether a phase began that nobody is seen to have begun, before any session that it ended.

    A line is missing then: perhaps the goodbye of one of those whom the phase lost and who were not heard since. Static
    members say none. Where the coordinator paused or moved meanwhile, the timers may have run otherwise.
    """
    member, phase = departure.member, departure.phase
    if departure.rule != SESSION_EXPIRED or member.goes_alone or member.instance_id is not None or member.awaiting_sync:
        return False
    if phase.started_ms is None or phase.started_by or (member.clock_ms or 0) >= phase.started_ms:
        return False
    if any(restart.cause is not Cause.UNKNOWN for restart in unheard_since(member, scene.restarts)):
        return False
    ends_ms = [span[0] for other in together for span in deadlines(other, scene)]
    ends_ms += [(d.member.restart_ms or 0) + d.sync_timeout_ms for d in together if d.sync_timeout_ms]
    return min(ends_ms, default=0) > phase.started_ms + scene.thresholds.grace_ms


def leave_open(replica: GroupReplica, departure: Departure) -> None:
    """Let a departure say that the cause is unknown."""
    replica.unexplained_ms = departure.gone_ms
    departure.rule, departure.cause, departure.evidence = MEMBER_REMOVED, Cause.UNKNOWN, Evidence.INFERRED
    departure.deadline_ms = departure.restart_ms = None
    departure.concluded = True

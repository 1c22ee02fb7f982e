"""The join phase: when it began, how long it may last, and what its end says of those whom it left behind.

Theory (kafka-facts 3.3). A group enters PreparingRebalance when a member leaves, expires, joins anew or rejoins with
something changed, and the coordinator then waits for the others, at most for the longest rebalance timeout of its
members. At that instant, to some milliseconds, it drops the dynamic members that have not rejoined; a static one it
keeps. So a phase that ended then ended by its timeout, and one that is younger cannot have: whoever it lost had
expired. The start is seen in its first sign: a leave, a JoinGroup that had to wait, a heartbeat answered 27 or 25, or
the deadline of somebody whom it lost.
"""

from collections.abc import Iterable

from coordinator_model.liveness import Scene
from coordinator_model.replica.group import Departure, GroupReplica, Member
from coordinator_model.states import Cause

EARLY_MS, LATE_MS = 10, 200
"""Between a phase's first sign plus its timeout and its end: instants are rounded; a JoinGroup arrives before it is
applied, and timers are late, on a busy machine."""


def begin(replica: GroupReplica, sign_ms: int, by: str = "") -> None:
    """Start a join phase at its first sign; the last that is known of the time before bounds it from below."""
    members = replica.members.values()
    heard = [at_ms or 0 for m in members for at_ms in (m.previous_heartbeat_ms, m.last_heartbeat_ms)]
    before = [at_ms for at_ms in (*heard, replica.generation_since_ms) if at_ms < sign_ms]
    replica.join_after_ms, replica.join_started_ms = max(before, default=0), sign_ms
    replica.join_started_by = by


def sign(replica: GroupReplica, generation: int, sign_ms: int, by: str = "") -> None:
    """Note a sign of the join phase before a generation that is earlier than its first one so far."""
    phases: list[GroupReplica | Departure] = [replica]
    phases += [d for d in replica.departures if d.generation == generation and not d.concluded]
    for phase in phases:
        if phase.join_started_ms is not None and phase.join_after_ms <= sign_ms < phase.join_started_ms:
            phase.join_started_ms, phase.join_started_by = sign_ms, by


def timeout_ms(replica: GroupReplica, removed_ms: int) -> int | None:
    """Return how long the phase that ended at an instant could last: the longest timeout of the group's members.

    Of those that were in when it began: who came while it lasted has no say, but the one whose join began it; nor has
    who was gone by then, and be it that the end of its session began it.
    """
    members, begun_ms = replica.members.values(), replica.join_started_ms or 0
    early = [
        m
        for m in members
        if ((m.joined_ms or 0) < removed_ms - EARLY_MS and not _had_expired(m, begun_ms))
        or m.member_id == replica.join_started_by
    ]
    limits = [m.rebalance_timeout_ms for m in early or members]
    replaced = [gone for gone in replica.leaves if gone.cause is Cause.REPLACED and gone.applied_ms >= begun_ms]
    limits += [gone.member.rebalance_timeout_ms for gone in replaced]
    limits += [d.join_timeout_ms for d in replica.departures if d.removed_ms == removed_ms]
    return max((limit_ms for limit_ms in limits if limit_ms), default=None)


def _had_expired(member: Member, begun_ms: int) -> bool:
    """Tell whether a session had ended when a phase began, as far as only certain restarts of its timer count."""
    clock_ms, timeout_ms = member.clock_ms, member.session_timeout_ms
    return clock_ms is not None and timeout_ms is not None and clock_ms + timeout_ms <= begun_ms


def sync_deadline_ms(departure: Departure, scene: Scene) -> int | None:
    """Return by when a member that joined had to sync, unless it did or another join phase began before.

    A coordinator that loads the group knows nothing of those who had yet to sync: whom it removes it does not for that.
    """
    member, limit_ms = departure.member, departure.join_timeout_ms
    if not member.awaiting_sync or member.restart_ms is None or limit_ms is None:
        return None
    deadline_ms = member.restart_ms + limit_ms
    if any(restart.may_load and restart.low_ms >= member.restart_ms for restart in scene.restarts):
        return None
    if departure.join_started_ms is not None and departure.join_started_ms < deadline_ms - EARLY_MS:
        return None
    return deadline_ms if deadline_ms <= departure.removed_ms + EARLY_MS else None


def timed_out(departure: Departure, deadlines_ms: Iterable[int], scene: Scene) -> bool:
    """Tell whether the phase ended by its timeout; ``deadlines_ms`` are of the sessions of those whom it lost."""
    late_ms = [departure.removed_ms - end_ms for end_ms in _ends_ms(departure, deadlines_ms, scene)]
    return any(-EARLY_MS <= ms <= LATE_MS for ms in late_ms)


def due_ms(departure: Departure, deadlines_ms: Iterable[int], scene: Scene) -> int | None:
    """Return when the phase had to end, by the earliest of its possible starts; None: no start is known."""
    return min(_ends_ms(departure, deadlines_ms, scene), default=None)


def _ends_ms(departure: Departure, deadlines_ms: Iterable[int], scene: Scene) -> list[int]:
    """Return its timeout after each start that it can have had: its first sign, or an end of a session before that."""
    limit_ms = departure.join_timeout_ms
    if departure.join_started_ms is None or limit_ms is None:
        return []
    starts = [departure.join_started_ms]
    starts += [at_ms for at_ms in deadlines_ms if departure.join_after_ms <= at_ms < departure.join_started_ms]
    moved_ms = max((r.low_ms for r in scene.restarts if r.cause is Cause.COORDINATOR_MOVED), default=0)
    return [at_ms + limit_ms for at_ms in starts if at_ms >= moved_ms]


def began_with(departure: Departure, first_deadline_ms: int) -> bool:
    """Tell whether the phase can have begun with the end of this member's session: nobody else is seen to have."""
    started_ms = departure.join_started_ms
    untold = departure.join_started_by in ("", departure.successor)
    return started_ms is not None and untold and first_deadline_ms <= started_ms + EARLY_MS


def may_have_timed_out(departure: Departure) -> bool:
    """Tell whether the phase can have lasted its whole timeout, be it that its timer ran late on a busy machine."""
    limit_ms = departure.join_timeout_ms
    known = departure.join_started_ms is not None and limit_ms is not None
    return known and departure.removed_ms - departure.join_after_ms >= (limit_ms or 0)


def too_young(departure: Departure, scene: Scene) -> bool:
    """Tell whether the phase had not lasted long enough, however early it began, to end by its timeout."""
    limit_ms = departure.join_timeout_ms
    if departure.join_started_ms is None or limit_ms is None:
        return False
    return departure.removed_ms - departure.join_after_ms < limit_ms - scene.thresholds.grace_ms

"""Which phase of a rebalance a removed member missed: the deadline by which it had to rejoin, sync or revoke.

The phase's own arithmetic tells where it can: one that ended by its timeout waited for somebody to the end. Otherwise
the session's does: a removal before its end. Members of KIP-848 groups have timers of their own instead.
"""

from collections.abc import Iterable

from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.group import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals import phase_end
from coordinator_model.replica.removals.ended_phase import EARLY_MS, LATE_MS
from coordinator_model.replica.removals.removal_instant import alive_at_the_end, before, ends, may_have_ended
from coordinator_model.replica.session_timer import (
    JudgementContext,
    deadlines,
    gone_by_ms,
    latest_deadline_ms,
    session_timeout_ms,
    slept_over,
    unheard_since,
)


def deadline_of_missed_phase_ms(
    departure: Departure, deadline_ms: int, together: list[Departure], context: JudgementContext
) -> int | None:
    """Return when a member missed a phase of a rebalance; None: its session had ended, or neither."""
    member, removed_ms = departure.member, departure.removed_ms
    dropped = [d for d in together if d.removed_ms == removed_ms and d.successor is None]
    latest_ms = {id(d): latest_deadline_ms(d, before(d, context)) or 0 for d in dropped}
    own_ms = latest_deadline_ms(departure, before(departure, context)) or 0
    asleep = slept_over(departure, context)
    if asleep is not None:
        return _missed_asleep(departure, *asleep, latest_ms.values(), context)
    if member.goes_alone:
        return _missed_alone(departure, deadline_ms, context)
    sync_ms = _sync_deadline_ms(departure, latest_ms, context)
    if sync_ms is not None:
        lived_on = own_ms > removed_ms + EARLY_MS  # heard behind a stalled write, perhaps
        return sync_ms if sync_ms < deadline_ms or (sync_ms == deadline_ms and lived_on) else None
    if member.instance_id is not None:
        return None  # kept through the phase
    syncs_ms = (_sync_deadline_ms(d, latest_ms, context) for d in dropped)
    replaced_ms = (latest_deadline_ms(d, before(d, context)) for d in together if d.successor is not None)
    starts_ms = [*latest_ms.values(), *(at_ms for at_ms in (*syncs_ms, *replaced_ms) if at_ms is not None)]
    due_ms = phase_end.due_ms(departure, starts_ms, context)
    if due_ms is not None and phase_end.outlasted(departure, starts_ms, context):
        return due_ms if own_ms > due_ms + EARLY_MS else None
    if was_unknown(departure, context):
        return None  # gone before the phase's end
    alive = alive_at_the_end(departure, together, context)
    if alive is not None and any(d is departure for d in alive[1]):
        return removed_ms
    if _waited_in_vain(departure, deadline_ms, due_ms, latest_ms, context) or phase_end.timed_out(
        departure, starts_ms, context
    ):
        return _missed_at_its_end(departure, dropped, due_ms, latest_ms)
    return _missed_early(departure, deadline_ms, context)


def _missed_asleep(
    departure: Departure, pause: TimerReset, session_due_ms: int, lost_ms: Iterable[int], context: JudgementContext
) -> int | None:
    """Return when a member missed a phase whose timer was due before its session's, which came due in a pause.

    As the coordinator wakes it runs what was due in the order in which it was due. ``lost_ms``: the deadlines of the
    sessions of all whom the phase lost.
    """
    member, woke_ms = departure.member, pause.woke_ms or 0
    if member.goes_alone:
        due_ms = min(own_timers_ms(member, context), default=None)
    else:
        due_ms = phase_end.sync_deadline_ms(departure, context)
        kept = member.instance_id is not None or was_unknown(departure, context)
        if due_ms is None and not kept and abs(departure.removed_ms - woke_ms) <= LATE_MS:
            due_ms = phase_end.due_ms(departure, lost_ms, context)
    if due_ms is None or due_ms >= session_due_ms:
        return None
    return woke_ms if pause.sleeps_at(due_ms, told_at_once=member.goes_alone) else due_ms


def _missed_alone(departure: Departure, deadline_ms: int, context: JudgementContext) -> int | None:
    """Do the same for a member of a KIP-848 group: nobody waits for it, and it has timers of its own."""
    removed_ms = departure.removed_ms
    if _revoked_in_vain_since_a_load(departure, context):
        return removed_ms
    awake_ms = (_when_awake(at_ms, context) for at_ms in own_timers_ms(departure.member, context))
    timers_ms = (at_ms for at_ms in awake_ms if at_ms <= removed_ms + EARLY_MS)
    timer_ms = max(timers_ms, default=None)  # no timer runs before its time
    if timer_ms is None or abs(removed_ms - timer_ms) >= min(
        context.thresholds.grace_ms, abs(deadline_ms - removed_ms)
    ):
        return None
    return timer_ms


def _waited_in_vain(
    departure: Departure, deadline_ms: int, due_ms: int | None, latest_ms: dict[int, int], context: JudgementContext
) -> bool:
    """Tell whether the phase waited to its end for one that had neither joined nor expired."""
    ends_ms = [deadline_ms, *(end_ms for other, end_ms in latest_ms.items() if other != id(departure))]
    if phase_end.waited_in_vain(departure, due_ms, ends_ms, context):
        return True
    if due_ms is None or not deadline_ms + LATE_MS < departure.removed_ms < latest_ms[id(departure)]:
        return False
    # It may have lived: the phase's timer, somewhat late, explains its removal better.
    return due_ms <= departure.removed_ms <= due_ms + context.thresholds.grace_ms


def _missed_at_its_end(
    departure: Departure, dropped: list[Departure], due_ms: int | None, latest_ms: dict[int, int]
) -> int | None:
    """Do the same where the phase ended by its timeout.

    It waited for somebody to the end: for those whose session may have lasted so long, or else for the last to expire
    of all whom it lost.
    """
    removed_ms, own_ms = departure.removed_ms, latest_ms[id(departure)]
    if due_ms is not None and phase_end.ended_with(own_ms, removed_ms, due_ms):
        return None  # its session ended a moment before, and that ended the phase
    stayed = set(departure.phase.unjoined) - {d.member.instance_id for d in dropped}
    last_ms = removed_ms if stayed else max(latest_ms.values())  # who stayed was waited for, whoever was not
    return removed_ms if own_ms >= min(removed_ms - LATE_MS, last_ms) else None


def _missed_early(departure: Departure, deadline_ms: int, context: JudgementContext) -> int | None:
    """Do the same where only the session tells: a removal before its end."""
    removed_ms = departure.removed_ms
    if phase_end.too_young(departure, context) or _began_as_it_ended(departure):
        return None
    if may_have_ended(departure, context):
        return None  # after a move no session's end is known well enough
    spans, earliest_ms = deadlines(departure, context), deadline_ms - context.thresholds.grace_ms
    if phase_end.may_have_timed_out(departure) and all(origin is None for _, _, origin in spans):
        earliest_ms = max(earliest_ms, ends(spans)[0] - EARLY_MS)  # no timer runs before its time
    return removed_ms if removed_ms < earliest_ms else None


def _began_as_it_ended(departure: Departure) -> bool:
    """Tell whether nothing shows that a join phase began before the record that told of its end.

    Then no timer of a phase ran out: a leave ends a group of one at once, and its line may be missing. A phase that
    lasted exactly one timeout began unseen, as a downgrade from KIP-848 does.
    """
    phase, removed_ms = departure.phase, departure.removed_ms
    lasted_a_timeout = abs(removed_ms - phase.after_ms - (phase.limit_ms or 0)) <= EARLY_MS
    unseen = departure.told_by == "" and not phase.started_by and (phase.started_ms or 0) >= removed_ms
    return unseen and not lasted_a_timeout


def _sync_deadline_ms(departure: Departure, latest_ms: dict[int, int], context: JudgementContext) -> int | None:
    """Return by when a member had to sync, unless another's session ended before, which began a join phase.

    ``latest_ms``: when the sessions of those who went together had ended at the latest, by the departure's ``id``.
    """
    sync_ms = phase_end.sync_deadline_ms(departure, context)
    others_ms = (end_ms for other, end_ms in latest_ms.items() if other != id(departure) and end_ms)
    if sync_ms is None or any(end_ms < sync_ms - EARLY_MS for end_ms in others_ms):
        return None
    return sync_ms


def was_unknown(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the coordinator answered that it knows no such member before the removal was told."""
    gone_ms = gone_by_ms(departure.member, context)
    return gone_ms is not None and gone_ms < departure.removed_ms - EARLY_MS


def own_timers_ms(member: Member, context: JudgementContext) -> list[int]:
    """Return when a member of a KIP-848 group may be removed unless it has given up, joined or synced by then.

    A coordinator that loads the group waits for who has to give up anew, and for nobody to join or sync.
    """
    loads = [reset for reset in context.timer_resets if reset.may_load]
    starts_ms = [
        since_ms
        for since_ms in (member.owes_since_ms, *member.may_owe_since_ms)
        if since_ms is not None and not any(reset.low_ms >= since_ms for reset in loads)
    ]
    if member.revoking_since_ms is not None:
        loaded_ms = [reset.high_ms or 0 for reset in loads if reset.low_ms >= member.revoking_since_ms]
        starts_ms.append(max([member.revoking_since_ms, *loaded_ms]))
    return [since_ms + (member.rebalance_timeout_ms or 0) for since_ms in starts_ms]


def _revoked_in_vain_since_a_load(departure: Departure, context: JudgementContext) -> bool:
    """Tell whether a member had to give up partitions as its coordinator loaded the group, and was not heard since.

    Both of its timers started then, so the shorter one has removed it.
    """
    member, timeout_ms = departure.member, session_timeout_ms(departure.member, context) or 0
    loads = [reset for reset in unheard_since(member, context.timer_resets) if reset.may_load]
    if not loads or member.revoking_since_ms is None or member.rebalance_timeout_ms is None:
        return False
    began_ms = departure.removed_ms - member.rebalance_timeout_ms
    return member.revoking_since_ms <= began_ms and member.rebalance_timeout_ms < timeout_ms


def _when_awake(due_ms: int, context: JudgementContext) -> int:
    """Return when a timer ran: one that is due while the coordinator stands still runs as it wakes."""
    asleep = (r.woke_ms or due_ms for r in context.timer_resets if r.sleeps_at(due_ms, told_at_once=True))
    return next(asleep, due_ms)

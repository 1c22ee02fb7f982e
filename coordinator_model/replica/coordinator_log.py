"""Why a member was removed, by a line of the coordinator's own log. Without a request log, such a line decides.

With a request log, such a line proves or refutes what the request log shows. It proves the cause of a removal that has
none because lines of the request log are missing. It refutes a timeout if the member had left and the line of its leave
is missing.

A line alone removes nobody. A deposed coordinator logs expiries too, and so does one whose write then fails. So a line
waits for the record that shows the member gone, and the record for its line: either may be read first. A record that
still lists the member refutes the line. So does a coordinator that loads the group between the two: it begins with the
members in its records.

A line that names several members names them in one text, which a client id may imitate. It counts only if all members
that it names are known.
"""

from dataclasses import replace

from coordinator_model.decode.records import RecordType
from coordinator_model.events import JOINED, LEFT, PENDING_GONE, REPLACED, CoordinatorLine, RecordRead
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.notes import JoiningMember, LoggedRemoval
from coordinator_model.replica.poll_end import missed_cause
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.leaves import leave_cause, remember_leave
from coordinator_model.replica.removals.removal import add_departure, forget_unknown, withdraw
from coordinator_model.replica.removals.session_end import own_cause
from coordinator_model.replica.session_timer import blamed_reset, session_timeout_ms
from coordinator_model.states import (
    MEMBER_REMOVED,
    POLL_EXCEEDED,
    REBALANCE_TIMEOUT,
    SESSION_EXPIRED,
    Cause,
    Evidence,
)

KEPT_MS = 600_000
"""How long a removal waits for its line. A job that catches up may read records minutes ahead of lines."""
MAX_KEPT = 256
"""How many removals, lines and joins wait in one group; beyond that the oldest are dropped."""
UUID_CHARACTERS = 37
"""How many characters of a member id follow the client id or the instance id: a hyphen and a uuid."""
LATER_MS = 1_000
"""How much later than the record of a removal its line may seem to be written."""


def tell(replica: GroupReplica, event: CoordinatorLine) -> None:
    """Apply a line that shows why members were removed, or that they joined. Others only repeat what records show."""
    if event.beside_requests:
        _note_proof(replica, event)
        return
    if event.what == JOINED:
        _note_joining(replica, event)
    if event.what == REPLACED:
        _note_replaced(replica, event)
    if event.what in (LEFT, PENDING_GONE):
        for member_id in event.members:
            replica.joining.pop(member_id, None)
    if event.what not in (SESSION_EXPIRED, REBALANCE_TIMEOUT, LEFT):
        return
    if not _names_members(replica, event):
        replica.unexpected += 1
        return
    for member_id in event.members:
        _know_successor(replica, member_id)
        replica.logged[member_id] = LoggedRemoval(event.order_ms, event.what, event.reason, event.broker)
    while len(replica.logged) > MAX_KEPT:
        del replica.logged[next(iter(replica.logged))]


def _names_members(replica: GroupReplica, event: CoordinatorLine) -> bool:
    """Tell whether all members that a line names are known, if it names several: a client id may imitate their text."""
    gone = [d.member.member_id for d in (*replica.unexplained, *replica.departures)]
    known = {*replica.members, *replica.joining, *gone}
    return len(event.members) <= 1 or known.issuperset(event.members)


def _note_joining(replica: GroupReplica, event: CoordinatorLine) -> None:
    """Keep the members that joined a classic group: they may be gone before the record of the rebalance is written."""
    joining = {**replica.joining, **dict.fromkeys(event.members, JoiningMember(event.order_ms, event.instance_id))}
    kept = [(member_id, joined) for member_id, joined in joining.items() if member_id not in replica.members]
    replica.joining = dict(kept[-MAX_KEPT:])


def _note_replaced(replica: GroupReplica, event: CoordinatorLine) -> None:
    """Note that a static member came back under another id. The record shows that only at the end of the rebalance.

    A KIP-848 group records it at once.
    """
    for member_id in event.members:
        member = replica.members.get(member_id)
        if member is not None and not member.kip848:
            member.replaced_ms = event.order_ms


def _know_successor(replica: GroupReplica, member_id: str) -> None:
    """Note the member that a removal names as a static member's successor, if its id shows that and a successor came.

    If the line names the static member's own id instead, it was not replaced: its coordinator has changed meanwhile.
    """
    if member_id in replica.members:
        replica.members[member_id].replaced_ms = None
        return
    instance_id = member_id[:-UUID_CHARACTERS]
    for member in replica.members.values():
        if member.replaced_ms is not None and member.instance_id == instance_id:
            replica.joining.setdefault(member_id, JoiningMember(member.replaced_ms, instance_id))


def miss(replica: GroupReplica, event: RecordRead, context: JudgementContext) -> None:
    """Find removed members that no record ever listed: a line names their removal, and the next record lacks them.

    If another coordinator loaded the group after they joined, it never knew them, so nothing is found.
    """
    if event.record_type != RecordType.GROUP_METADATA:
        return
    for member_id, (joined_ms, instance_id) in list(replica.joining.items()):
        logged = replica.logged.get(member_id)
        if member_id in replica.members:
            del replica.joining[member_id]
        elif logged is not None and logged.at_ms <= event.order_ms:
            del replica.joining[member_id], replica.logged[member_id]
            loads = [r for r in context.timer_resets if r.low_ms >= joined_ms and r.broker != logged.broker]
            if not loads:
                client_id = "" if instance_id is not None else member_id[:-UUID_CHARACTERS]
                member = Member(member_id, instance_id, client_id, joined_ms=joined_ms)
                _conclude(replica, _missed(replica, member, event), logged, context)


def _missed(replica: GroupReplica, member: Member, event: RecordRead) -> Departure:
    return Departure(
        member=member,
        rule=None,
        cause=Cause.UNKNOWN,
        evidence=Evidence.OBSERVED,
        removed_ms=event.order_ms,
        deadline_ms=None,
        generation=replica.generation,
        broker="",
        judge_after_ms=0,
    )


def _is_unexplained(departure: Departure) -> bool:
    return not departure.judged or departure.rule == MEMBER_REMOVED


def refute(replica: GroupReplica, event: RecordRead) -> None:
    """Drop the lines that a record refutes: it still has the members, though it was written later."""
    if event.value is None or not replica.logged:
        return
    if event.record_type == RecordType.GROUP_METADATA:
        listed = [item["memberId"] for item in event.value["members"]]
    else:
        listed = [event.key.get("memberId")]
    for member_id in listed:
        logged = replica.logged.get(member_id)
        if logged is not None and logged.at_ms < event.order_ms:
            del replica.logged[member_id]


def _is_void(logged: LoggedRemoval, departure: Departure, context: JudgementContext) -> bool:
    """Tell whether the group was loaded between a line and the record of the removal, or the line is another broker's.

    Then the broker that wrote the line was deposed, or lost what it had not written: the line had no effect.
    """
    moves = [r for r in context.timer_resets if r.is_move]
    loads = [r for r in moves if r.low_ms <= departure.gone_ms]
    return bool(loads) and (loads[-1].low_ms > logged.at_ms or loads[-1].broker != logged.broker)


def explain(replica: GroupReplica, at_ms: int, context: JudgementContext) -> None:
    """Match removals with their lines; forget a removal that has waited for too long."""
    waiting = [d for d in replica.departures if _is_unexplained(d)] if replica.logged else []
    for departure in [*replica.unexplained, *waiting]:
        logged = replica.logged.get(departure.member.member_id)
        if logged is not None and logged.at_ms <= departure.gone_ms + LATER_MS:
            del replica.logged[departure.member.member_id]
            if _is_void(logged, departure, context):
                continue
            if departure in waiting:
                withdraw(replica, departure)
            else:
                replica.unexplained.remove(departure)
                forget_unknown(replica, departure)
            _conclude(replica, departure, logged, context)
    replica.unexplained = [d for d in replica.unexplained if d.gone_ms >= at_ms - KEPT_MS][-MAX_KEPT:]


def _note_proof(replica: GroupReplica, event: CoordinatorLine) -> None:
    """Keep a line from a broker that has a request log too, until its removal is judged."""
    if event.what in (SESSION_EXPIRED, REBALANCE_TIMEOUT, LEFT) and _names_members(replica, event):
        logged = LoggedRemoval(event.order_ms, event.what, event.reason, event.broker)
        proofs = {**replica.proofs, **dict.fromkeys(event.members, logged)}
        kept = [(name, proof) for name, proof in proofs.items() if proof.at_ms >= event.order_ms - KEPT_MS]
        replica.proofs = dict(kept[-MAX_KEPT:])


def prove(replica: GroupReplica, context: JudgementContext) -> bool:
    """Compare removals that the request log shows with the coordinator's own log; return whether a line was used."""
    used = False
    for departure in list(replica.departures) if replica.proofs else ():
        logged = replica.proofs.get(departure.member.member_id)
        if logged is not None and departure.judged and logged.at_ms <= departure.gone_ms + LATER_MS:
            del replica.proofs[departure.member.member_id]
            _prove_or_refute(replica, departure, logged, context)
            used = True
    return used


def _prove_or_refute(
    replica: GroupReplica, departure: Departure, logged: LoggedRemoval, context: JudgementContext
) -> None:
    refuted = logged.what == LEFT and departure.rule in (SESSION_EXPIRED, REBALANCE_TIMEOUT)
    if not refuted and departure.rule != MEMBER_REMOVED:
        return
    withdraw(replica, departure)
    may_be_told = context.progress_ms >= departure.judge_after_ms or departure.member.verdict_deadline_ms is not None
    if refuted and may_be_told:
        refuted_ms = max(context.progress_ms, departure.removed_ms)
        replica.departures.append(replace(departure, refuted_ms=refuted_ms))
    _conclude(replica, departure, logged, context)


def _conclude(replica: GroupReplica, departure: Departure, logged: LoggedRemoval, context: JudgementContext) -> None:
    """Complete a removal with what its line shows: the cause, and the instant at which the coordinator acted."""
    member = departure.member
    if logged.what == LEFT:
        cause = leave_cause(logged.reason)
        if cause is Cause.LEFT and member.instance_id is not None:
            cause = Cause.STATIC_LEFT
        remember_leave(replica, Leave(member, logged.at_ms, cause, logged.reason or None))
        if cause is not Cause.POLL_INTERVAL:
            return
        departure.rule, departure.cause = POLL_EXCEEDED, cause
    elif logged.what == REBALANCE_TIMEOUT:
        departure.rule, departure.cause = REBALANCE_TIMEOUT, missed_cause(member, logged.at_ms)
    else:
        load = blamed_reset(logged.at_ms, session_timeout_ms(member, context), context.timer_resets)
        departure.rule, departure.cause = SESSION_EXPIRED, own_cause(member) if load is None else load.cause
        departure.timer_reset_ms = None if load is None else load.low_ms
    departure.evidence, departure.from_log, departure.broker = Evidence.OBSERVED, True, logged.broker
    departure.deadline_ms, departure.seen_generation = logged.at_ms, None
    departure.judged, departure.judge_again, departure.judge_after_ms = True, False, 0
    add_departure(replica, departure)

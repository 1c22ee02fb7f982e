"""Which clients are refused again and again: joins that cannot succeed, members that the coordinator no longer knows.

One refusal means nothing: a client that was removed is refused once, and joins again. Refusals are counted by error and
by client. Clients choose their ids, so beyond a bound they are counted together.

A member can get the same errors as a client that asks to join: 30 to its Heartbeat or SyncGroup once it has lost its
right to the group, 23 to its SyncGroup if that names another protocol than the group's, or none. Neither line has a
client id: it is known from the member's JoinGroup. Its next JoinGroup may well be accepted, so only an accepted
SyncGroup ends these refusals.
"""

from collections.abc import Iterator
from typing import NamedTuple

from coordinator_model.errors import Error
from coordinator_model.events import (
    CommitRefused,
    ConsumerHeartbeat,
    Heartbeat,
    JoinAnswered,
    LeaveAnswered,
    SyncAnswered,
)
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.replica.notes import Refusal
from coordinator_model.replica.removals.join_phase import newcomer_waited
from coordinator_model.states import GroupType

JOIN_REFUSALS = frozenset(
    {
        Error.INCONSISTENT_GROUP_PROTOCOL,
        Error.INVALID_GROUP_ID,
        Error.INVALID_SESSION_TIMEOUT,
        Error.GROUP_AUTHORIZATION_FAILED,
        Error.GROUP_MAX_SIZE_REACHED,
        Error.UNRELEASED_INSTANCE_ID,
        Error.UNSUPPORTED_ASSIGNOR,
        Error.INVALID_REGULAR_EXPRESSION,
    }
)
MEMBER_REFUSALS = frozenset({Error.INCONSISTENT_GROUP_PROTOCOL, Error.GROUP_AUTHORIZATION_FAILED})
"""Those of the above that are also answers to a member's Heartbeat or SyncGroup."""
FENCINGS = frozenset(
    {Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID, Error.FENCED_MEMBER_EPOCH}
)
REPEATED = 3
"""This many refusals of one client with one error are no accident."""
MAX_NAMED = 16
"""How many clients are counted one by one: this many whose joins are refused, and this many members that are fenced."""
MAX_NAME = 256
REFUSAL_MEMORY_MS = 600_000
"""After this long without another refusal, the count starts again; sooner if an incident ended sooner (``over_ms``)."""

_Refused = Heartbeat | JoinAnswered | SyncAnswered | ConsumerHeartbeat


class _Client(NamedTuple):
    """Who is refused, as ``Refusal`` names it."""

    client_id: str | None
    client_host: str | None
    member_id: str | None
    instance_id: str | None


_OTHERS = _Client(None, None, None, None)
"""All clients that are counted together."""
_OTHERS_JOINING, _OTHERS_FENCED = "others that join", "others that are fenced"
"""The keys under which they are counted."""


def note(replica: GroupReplica, event: object, resolve_after_ms: int) -> None:
    """Note an answer; a join that succeeds clears its client. ``resolve_after_ms``: see ``over_ms``."""
    if not isinstance(event, _Refused):
        return
    refused = _refused_client(replica, event)
    if refused is not None:
        _count(replica, *refused, event, resolve_after_ms)
    elif replica.refused and event.error == 0:
        _clear(replica, event)


def _refused_client(replica: GroupReplica, event: _Refused) -> tuple[str, _Client] | None:
    """Return the key under which a refusal is counted, and the client that was refused; None: it does not count."""
    if event.error in JOIN_REFUSALS and isinstance(event, JoinAnswered | ConsumerHeartbeat):
        return _by_name(replica, event, event.client_id, event.client_host, None)
    if event.error in MEMBER_REFUSALS and isinstance(event, Heartbeat | SyncAnswered):
        member = replica.members.get(event.member_id) or Member(event.member_id)
        return _by_name(replica, event, member.client_id, member.client_host, event.member_id)
    if event.error in FENCINGS and event.member_id:
        instance_id = _instance_of(replica, event)
        who = instance_id or event.member_id
        return f"{event.error}\n{who[:MAX_NAME]}", _Client(None, None, event.member_id, instance_id)
    return None


def is_idle(replica: GroupReplica, event: object) -> bool:
    """Tell whether an event can change nothing of a group but its refused clients and the ids that are given out.

    Unknown clients may send thousands of these. They change nothing else of the group, so the group need not be
    evaluated.
    """
    if (
        replica.recorded
        or replica.unconverted
        or replica.rolled_back_replacements
        or replica.ending_ms is not None
        or replica.set_aside is not None
    ):
        return False  # ``replay`` looks into these with any event
    match event:
        case Heartbeat() | SyncAnswered():
            return event.error in FENCINGS and not _is_known(replica, event.member_id)
        case JoinAnswered(error=Error.MEMBER_ID_REQUIRED):
            return not any(member.instance_id for member in replica.members.values())  # the new member may succeed one
        case JoinAnswered(error=Error.UNKNOWN_MEMBER_ID):
            removes = (
                replica.type is GroupType.CONSUMER and not replica.members
            )  # see ``refused_join._remove_if_empty``
            return not removes and not newcomer_waited(event)  # the join phase went on without it
        case JoinAnswered() | ConsumerHeartbeat():
            return event.error in JOIN_REFUSALS
        case LeaveAnswered():  # for a member see ``leave._remove_if_not_in_the_generation``
            return event.error in FENCINGS and event.member_id not in replica.members
        case CommitRefused():
            return True
    return False


def _is_known(replica: GroupReplica, member_id: str) -> bool:
    return member_id in replica.members or any(d.member.member_id == member_id for d in replica.departures)


def counts_to_report(replica: GroupReplica) -> dict[str, object]:
    """Return what is reported again when it changes: how often clients are refused, and whether ids are pending (79).

    The counts are in powers of two, so that they change each time they have doubled. A count that has started again
    shows by its beginning.
    """
    refused = ((key, refusal) for key, refusal in replica.refused.items() if refusal.repeated_ms is not None)
    counts: dict[str, object] = {key: refusal.times.bit_length() for key, refusal in refused}
    zombies = replica.zombies.items()
    counts |= {f"zombie\n{key}": (zombie.first_ms, zombie.commits.bit_length()) for key, zombie in zombies}
    return counts | {"pending": bool(replica.pending)}


def _by_name(
    replica: GroupReplica, event: _Refused, client_id: str, client_host: str, member_id: str | None
) -> tuple[str, _Client]:
    """Return key and client by the client's id and host, or if these are not known by its member id."""
    client_id = client_id[:MAX_NAME]
    who = f"{client_id}\n{client_host}" if client_id or member_id is None else f"\n{member_id[:MAX_NAME]}"
    return f"{event.error}\n{who}", _Client(client_id, client_host, member_id, _instance_of(replica, event))


def _clear(replica: GroupReplica, event: _Refused) -> None:
    """Forget the refusals of a client that succeeds: of joins once one is accepted, of a member once it has synced.

    An accepted Heartbeat of the classic protocol clears nothing: most of them are applied without this module.
    """
    if isinstance(event, JoinAnswered | ConsumerHeartbeat):
        came = event.client_id[:MAX_NAME], event.client_host
        over = [key for key, refusal in _refusals_of(replica, *came) if refusal.member_id is None]
    elif isinstance(event, SyncAnswered):
        member = replica.members.get(event.member_id) or Member(event.member_id)
        came = member.client_id[:MAX_NAME], member.client_host
        over = [key for key, refusal in _refusals_of(replica, *came) if _is_of_a_member(refusal) and refusal.member_id]
    else:
        return
    over += [key for key, refusal in replica.refused.items() if _is_member_again(refusal, event)]
    for key in over:
        del replica.refused[key]


def _is_member_again(refusal: Refusal, event: JoinAnswered | SyncAnswered | ConsumerHeartbeat) -> bool:
    """Tell whether the client that was fenced is a member now, perhaps with its instance id and a new member id.

    A client that was fenced by another with the same instance id (82) is not that other client.
    """
    if refusal.error not in FENCINGS or refusal.member_id is None:
        return False
    by_instance = refusal.instance_id is not None and refusal.error != Error.FENCED_INSTANCE_ID
    return refusal.member_id == event.member_id or (by_instance and refusal.instance_id == event.instance_id)


def _refusals_of(replica: GroupReplica, client_id: str, client_host: str) -> Iterator[tuple[str, Refusal]]:
    for key, refusal in replica.refused.items():
        if (refusal.client_id, refusal.client_host) == (client_id, client_host):
            yield key, refusal


def _is_of_a_member(refusal: Refusal) -> bool:
    return refusal.error in MEMBER_REFUSALS


def refused_as_member(replica: GroupReplica, member: Member) -> str | None:
    """Return the error with which a member has been refused since it was last heard; None: it was not refused."""
    for refusal in replica.refused.values():
        own = _is_of_a_member(refusal) and refusal.member_id == member.member_id
        if own and refusal.last_ms > (member.session_from_ms or 0):
            return f"{Error(refusal.error).name} ({refusal.error})"
    return None


def over_ms(refusal: Refusal, resolve_after_ms: int) -> int:
    """Return when a refusal is over if it is not repeated: its incident ends then, or the count starts again."""
    joins = refusal.error in JOIN_REFUSALS and refusal.member_id is None
    lasts = joins or refusal.repeated_ms is None
    return refusal.last_ms + (REFUSAL_MEMORY_MS if lasts else resolve_after_ms)


def _count(replica: GroupReplica, key: str, who: _Client, event: _Refused, resolve_after_ms: int) -> None:
    at_ms, known = event.order_ms, replica.refused.get(key)
    if known is None and _is_full(replica.refused, event.error, at_ms):
        key, who = _OTHERS_JOINING if event.error in JOIN_REFUSALS else _OTHERS_FENCED, _OTHERS
        known = replica.refused.get(key)
    if known is None or at_ms >= over_ms(known, resolve_after_ms):
        known = Refusal(event.error, 0, at_ms, None, at_ms)
    times = known.times + 1
    repeated_ms = at_ms if times == REPEATED else known.repeated_ms
    replica.refused[key] = Refusal(event.error, times, known.first_ms, repeated_ms, max(known.last_ms, at_ms), *who)


def _is_full(refused: dict[str, Refusal], error: int, at_ms: int) -> bool:
    """Forget old refusals; tell whether so many of the kind are left that no other is counted on its own."""
    for key, refusal in list(refused.items()):
        if at_ms - refusal.last_ms > REFUSAL_MEMORY_MS:
            del refused[key]
    joining = error in JOIN_REFUSALS
    return sum((refusal.error in JOIN_REFUSALS) == joining for refusal in refused.values()) >= MAX_NAMED


def _instance_of(replica: GroupReplica, event: _Refused) -> str | None:
    """Return the instance id of the member that sent a request; a heartbeat's line is read without it."""
    if not isinstance(event, Heartbeat):
        return event.instance_id
    member = replica.members.get(event.member_id)
    if member is not None:
        return member.instance_id
    gone = (leave.member.instance_id for leave in replica.leaves if leave.member.member_id == event.member_id)
    return next(gone, None)

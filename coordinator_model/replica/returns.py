"""Recognises a joining member as one that was removed: its return ends the incident."""

from coordinator_model.client import is_same_client, who
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.states import GroupType


def came_back(replica: GroupReplica, member: Member, at_ms: int) -> None:
    """Mark the departure that this joining member ends, see ``client.is_same_client``.

    A member ends only one departure, so two processes of one client on one host come back one by one. If it may end
    several, one with its member id is preferred, then one with its connection.
    """
    if any(departure.returned_as == member.member_id for departure in replica.departures):
        return
    open_since = [d for d in replica.departures if d.returned_ms is None and _came_after(replica, d, at_ms)]
    may_end = [d for d in open_since if is_same_client(d.member, member, alone=_alone(replica, d, member))]
    if may_end:
        ended = max(may_end, key=lambda d: (d.member.member_id == member.member_id, _on_connection_of(d, member)))
        ended.returned_ms, ended.returned_as = at_ms, member.member_id


def _came_after(replica: GroupReplica, departure: Departure, at_ms: int) -> bool:
    """Tell whether a member that joined at an instant came after the departed one was gone.

    In a classic group its generation shows that, too. The line of its JoinGroup may be dated before the record of the
    removal: dates of lines are not exact.
    """
    later_generation = replica.type is GroupType.CLASSIC and departure.generation <= replica.generation
    return departure.removed_ms <= at_ms or later_generation


def _alone(replica: GroupReplica, departure: Departure, joining: Member) -> bool:
    """Tell whether no other member looks like a departed one. For a KIP-848 member client id and host are enough."""
    return departure.member.kip848 or not beside(replica, departure, joining)


def beside(replica: GroupReplica, departure: Departure, joining: Member | None = None) -> int:
    """Count the members that were in the group with a departed one and have its client id and host.

    Clients with a library's default client id behind one address all look alike, so they cannot be distinguished. The
    departed one itself does not count if it has come back: its return may be dated before the line that shows why it
    went.
    """
    gone, name = departure.member, who(departure.member)
    own = (gone.member_id, departure.returned_as)
    if gone.instance_id is not None:
        return 0
    return sum(
        1
        for member in replica.members.values()
        if member is not joining
        and member.member_id not in own
        and (member.joined_ms or 0) < departure.removed_ms
        and who(member) == name
    )


def _on_connection_of(departure: Departure, joining: Member) -> bool:
    return joining.connection is not None and departure.member.connection == joining.connection

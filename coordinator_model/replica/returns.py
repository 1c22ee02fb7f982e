"""Who that joins is one that went: it ends that one's incident."""

from coordinator_model.client import is_same_client, who
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure


def came_back(replica: GroupReplica, member: Member, at_ms: int) -> None:
    """Mark the departure that this joining member ends: same id or instance, else connection, else client and host.

    A member ends one departure only: two processes of one client on one host come back one by one. Of several that it
    may end its own comes first: of the same id, or one whose connection it has.
    """
    if any(departure.returned_as == member.member_id for departure in replica.departures):
        return
    open_since = [d for d in replica.departures if d.returned_ms is None and d.removed_ms <= at_ms]
    may_end = [d for d in open_since if is_same_client(d.member, member, alone=_alone(replica, d, member))]
    if may_end:
        ended = max(may_end, key=lambda d: (d.member.member_id == member.member_id, _on_connection_of(d, member)))
        ended.returned_ms, ended.returned_as = at_ms, member.member_id


def _alone(replica: GroupReplica, departure: Departure, joining: Member) -> bool:
    """Tell whether nobody else looks like a member that went; of KIP-848 the client id and host are enough."""
    return departure.member.kip848 or not beside(replica, departure, joining)


def beside(replica: GroupReplica, departure: Departure, joining: Member | None = None) -> int:
    """Count the members that were in beside one that went, and look like it: the same client id on the same host.

    So do all clients with a library's own client id behind one address; which of them comes or goes nobody can tell.
    """
    gone, name = departure.member, who(departure.member)
    if gone.instance_id is not None:
        return 0
    return sum(
        1
        for member in replica.members.values()
        if member is not joining and (member.joined_ms or 0) < departure.removed_ms and who(member) == name
    )


def _on_connection_of(departure: Departure, joining: Member) -> bool:
    return joining.connection is not None and departure.member.connection == joining.connection

"""Former members that go on processing: their commits are refused.

The coordinator refuses a commit of a member that it no longer knows (25), of one whose instance id another member has
now (82), and one that names a generation that is over (22). What was processed since the last accepted commit is then
processed again by the member that reads those partitions now. With 22 the sender is still a member, so only partitions
count that another member has: otherwise its next commit is accepted. Zombies are kept by client, up to a bound, because
clients choose their ids.

librdkafka names no member once it has left, only the generation: it is known by its connection (tried with 2.x).
"""

from coordinator_model.errors import Error
from coordinator_model.events import CommitRefused
from coordinator_model.membership import partitions_of
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.replica.notes import Zombie
from coordinator_model.replica.refusals import MAX_NAME, MAX_NAMED

MAX_PARTITIONS = 64
"""Partitions kept of one client."""
OTHERS = "others"
"""The key of all clients that are counted together."""


def note(replica: GroupReplica, event: CommitRefused, resolve_after_ms: int) -> None:
    """Note a refused commit, unless its sender still has the partitions.

    After ``resolve_after_ms`` without another one the client's incident has ended. What follows is another incident.
    """
    partitions = _lost(replica, event)
    if not partitions:
        return
    former = _former(replica, event)
    member_id = former.member_id if former else event.member_id or None
    instance_id = event.instance_id or (former.instance_id if former else None)
    who = f"{'txn' if event.transactional else ''}\n{instance_id or member_id or event.connection}"
    at_ms = event.order_ms
    new = Zombie(
        event.error,
        1,
        at_ms,
        at_ms,
        event.transactional,
        former is not None,
        event.client_id[:MAX_NAME],
        event.client_host[:MAX_NAME],
        member_id and member_id[:MAX_NAME],
        instance_id and instance_id[:MAX_NAME],
        partitions,
        event.left_out,
    )
    _forget_old(replica, at_ms - resolve_after_ms)
    _add(replica, who[:MAX_NAME], new)


def _add(replica: GroupReplica, key: str, new: Zombie) -> None:
    """Add a refused commit to the earlier ones of its client, or to those of all that are counted together."""
    if key not in replica.zombies and len(replica.zombies) >= MAX_NAMED:
        key, new = OTHERS, new._replace(client_id=None, client_host=None, member_id=None, instance_id=None, known=False)
    old = replica.zombies.pop(key, None)
    if old is not None:
        kept, left_out = _joined(old, new)
        new = new._replace(
            commits=old.commits + 1,
            first_ms=old.first_ms,
            last_ms=max(old.last_ms, new.last_ms),
            known=new.known or old.known,
            partitions=kept,
            left_out=left_out,
        )
    replica.zombies[key] = new


def _lost(replica: GroupReplica, event: CommitRefused) -> list[tuple[str, int]]:
    """Return the refused partitions that the sender no longer has."""
    if event.error != Error.ILLEGAL_GENERATION:
        return list(event.partitions)
    others = {
        partition
        for member in replica.members.values()
        if member.member_id != event.member_id
        for partition in partitions_of(member.assignment)
    }
    known = event.member_id in replica.members
    return [partition for partition in event.partitions if known and partition in others]


def _former(replica: GroupReplica, event: CommitRefused) -> Member | None:
    """Return the member that sent the commit: by its id, or by its connection if the commit names no member."""
    gone = [*(d.member for d in replica.departures), *(leave.member for leave in replica.leaves)]
    for member in (*replica.members.values(), *reversed(gone)):
        if member.member_id == event.member_id or (not event.member_id and member.connection == event.connection):
            return member
    return None


def _joined(old: Zombie, new: Zombie) -> tuple[list[tuple[str, int]], int]:
    """Return all partitions of one client, up to the bound, and how many there are beyond it, at least."""
    others = [partition for partition in new.partitions if partition not in old.partitions]
    room = MAX_PARTITIONS - len(old.partitions)
    beyond = max(0, len(others) - room)
    return sorted([*old.partitions, *others[:room]]), max(old.left_out, new.left_out + beyond)


def _forget_old(replica: GroupReplica, until_ms: int) -> None:
    for key, zombie in list(replica.zombies.items()):
        if zombie.last_ms <= until_ms:
            del replica.zombies[key]

"""Which clients left their group without a reason and are still running: they ask for the coordinator, or push metrics.

Source: ``rd_kafka_cgrp_serve`` (librdkafka 2.x), every ``coordinator.query.interval.ms``, ten minutes by default,
whether the client is in the group or not. A closed client no longer asks. A client that was started again asks and
joins. So one that asks and does not join is still running: it stopped polling for good, or it unsubscribed. This does
not show which. Pushes without any metric of polls, such as franz-go's, do not show it either.
"""

from coordinator_model.client import on_host
from coordinator_model.events import ClientSeen
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.states import Cause

CLOSING_MS = 5_000
"""How long a client that is being closed may still ask: it closes its connections last."""


def tells(replica: GroupReplica, event: ClientSeen) -> bool:
    """Tell whether a sign of life comes from a client that left, and can come from no other."""
    return _leave_of(replica, event) is not None


def seen(replica: GroupReplica, event: ClientSeen) -> None:
    """Note that such a client is still running."""
    leave = _leave_of(replica, event)
    if leave is not None:
        leave.alive_ms = event.order_ms


def _leave_of(replica: GroupReplica, event: ClientSeen) -> Leave | None:
    """Return the newest leave of the client that was seen; None if another client with its id and host is a member."""
    name = on_host(event)
    mine = [leave for leave in replica.leaves if on_host(leave.member) == name]
    if not all(name) or not mine or mine[-1].cause is not Cause.LEFT or mine[-1].reason:
        return None
    if mine[-1].alive_ms is not None or mine[-1].applied_ms + CLOSING_MS > event.order_ms:
        return None
    alone = all(on_host(member) != name for member in replica.members.values())
    return mine[-1] if alone else None

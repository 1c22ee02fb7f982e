"""Who left its group without a reason and lives on: its client still asks who coordinates the group, or pushes.

Source: ``rd_kafka_cgrp_serve`` (librdkafka 2.x), every ``coordinator.query.interval.ms``, ten minutes by default,
whether it is in the group or not. One that was closed asks no more, and one that was started again asks and joins. So
one that asks and does not join lives: it stopped polling for good, or it unsubscribed. Which of the two this does not
tell. Nor do pushes without any metric of polls, as franz-go's.
"""

from coordinator_model.client import on_host
from coordinator_model.events import ClientSeen
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.states import Cause

CLOSING_MS = 5_000
"""How long one that is closed may still ask: it closes its connections last."""


def tells(replica: GroupReplica, event: ClientSeen) -> bool:
    """Tell whether a sign of life is of a client that left, and of no other."""
    return _leave_of(replica, event) is not None


def seen(replica: GroupReplica, event: ClientSeen) -> None:
    """Note that such a client lives."""
    leave = _leave_of(replica, event)
    if leave is not None:
        leave.alive_ms = event.order_ms


def _leave_of(replica: GroupReplica, event: ClientSeen) -> Leave | None:
    """Return the newest leave of the client that was seen; clients of one id on one host are not told apart."""
    name = on_host(event)
    mine = [leave for leave in replica.leaves if on_host(leave.member) == name]
    if not all(name) or not mine or mine[-1].cause is not Cause.LEFT or mine[-1].reason:
        return None
    if mine[-1].alive_ms is not None or mine[-1].applied_ms + CLOSING_MS > event.order_ms:
        return None
    alone = all(on_host(member) != name for member in replica.members.values())
    return mine[-1] if alone else None

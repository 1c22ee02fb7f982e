"""``join-refused`` for groups that are not known: these findings are about the client, not about a group.

A group is not known if no record names it, and no request about it was accepted. Any client may ask to join any group,
under any client id, and be refused. To bound the cost there is one incident for each client id and principal, whatever
groups it names, and one for all clients beyond the first few.
"""

import json
from typing import TYPE_CHECKING, NamedTuple

from coordinator_model.errors import Error
from coordinator_model.events import ConsumerHeartbeat, JoinAnswered
from coordinator_model.replica.refusals import MAX_NAME, REFUSAL_MEMORY_MS, REPEATED
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.refused import JOIN_REFUSED, OTHERS
from coordinator_model.states import Cause, Evidence
from coordinator_model.thresholds import Thresholds

if TYPE_CHECKING:
    from coordinator_model.rules.broker_watch import BrokerWatch

MAX_CLIENTS = 4
"""How many clients are counted individually, per shard."""
MAX_GROUPS_NAMED = 3


class RefusedClient(NamedTuple):
    """A client that asks to join unknown groups; ``client_id`` None: all clients that are not counted individually."""

    error: int
    """The last error."""
    times: int
    first_ms: int
    repeated_ms: int | None
    """When it had been refused often enough to be reported; None: it has not been."""
    last_ms: int
    broker: str
    client_id: str | None
    client_host: str | None
    principal: str | None
    groups: list[str]
    """The first few groups that it named."""


def note(refused: dict[str, RefusedClient], event: JoinAnswered | ConsumerHeartbeat) -> list[int]:
    """Count a refused join. Return the instants at which a finding began or ended."""
    at_ms, instants = event.order_ms, expire(refused, event.order_ms)
    client_id, principal = event.client_id[:MAX_NAME], (event.principal or "")[:MAX_NAME]
    who: tuple[str | None, str | None, str | None] = client_id, event.client_host, principal
    key = json.dumps([client_id, principal])
    if key not in refused and len(refused) - (OTHERS in refused) >= MAX_CLIENTS:
        who, key = (None, None, None), OTHERS
    known = refused.get(key) or RefusedClient(event.error, 0, at_ms, None, at_ms, event.broker, *who, groups=[])
    times, groups = known.times + 1, known.groups
    if len(groups) < MAX_GROUPS_NAMED and event.group[:MAX_NAME] not in groups:
        groups = [*groups, event.group[:MAX_NAME]]
    repeated_ms = at_ms if times == REPEATED else known.repeated_ms
    last_ms = max(known.last_ms, at_ms)
    refused[key] = known._replace(
        error=event.error, times=times, repeated_ms=repeated_ms, last_ms=last_ms, groups=groups
    )
    return [*instants, at_ms] if times == REPEATED else instants


def expire(refused: dict[str, RefusedClient], at_ms: int) -> list[int]:
    """Forget clients that have not asked for a long time. Return when their findings ended."""
    over = {key: client for key, client in refused.items() if at_ms >= client.last_ms + REFUSAL_MEMORY_MS}
    for key in over:
        del refused[key]
    return sorted(client.last_ms + REFUSAL_MEMORY_MS for client in over.values() if client.repeated_ms is not None)


def judge(watch: "BrokerWatch", _broker: str, _thresholds: Thresholds) -> list[Finding]:
    """Return a finding for each client that was refused repeatedly."""
    clients = watch.refused_joins.values()
    return [_finding(client, client.repeated_ms) for client in clients if client.repeated_ms is not None]


def _finding(client: RefusedClient, repeated_ms: int) -> Finding:
    error, client_id, principal = client.error, client.client_id, client.principal
    name = Error(error).name
    who = OTHERS if client_id is None else f"{client_id or 'unknown client'} ({principal or 'unknown principal'})"
    named = ", ".join(group or "one without an id" for group in client.groups)
    more = " and others" if len(client.groups) == MAX_GROUPS_NAMED else ""
    return Finding(
        rule=JOIN_REFUSED.id,
        severity=JOIN_REFUSED.severity,
        group="",
        subject=who,
        opened_ms=client.first_ms,
        at_ms=repeated_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{who} asked to join groups that are not known ({named}{more}): the answer was {name} ({error})",
        broker=client.broker,
        client_id=client_id,
        client_host=client.client_host,
        detail={"error": error, "error_name": name, "count": client.times, "last_ms": client.last_ms}
        | {"groups": client.groups, "principal": principal},
    )

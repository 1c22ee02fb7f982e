"""``join-refused`` for groups that are not known: these findings are about the client, not about a group.

A group is not known if no record and no accepted answer names it. Any client may ask to join any group, under any
client id, and be refused. So there is one incident for each client id and principal, whatever groups it names, and one
for all clients beyond a few. That bounds the cost.
"""

import json
from typing import TYPE_CHECKING, Any

from coordinator_model.events import ConsumerHeartbeat, JoinAnswered
from coordinator_model.replica.refusals import JOIN_REFUSALS, MAX_NAME, REFUSAL_MEMORY_MS, REPEATED
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.refused import JOIN_REFUSED, OTHERS
from coordinator_model.states import Cause, Evidence
from coordinator_model.thresholds import Thresholds

if TYPE_CHECKING:
    from coordinator_model.rules.broker_watch import BrokerWatch

MAX_CLIENTS = 4
"""Clients that are counted one by one, per shard."""
MAX_GROUPS_NAMED = 3

RefusedClient = list[Any]
"""``[error, count, first_ms, repeated_ms, last_ms, broker, client id, client host, principal, [group, ...]]``."""


def note(refused: dict[str, RefusedClient], event: JoinAnswered | ConsumerHeartbeat) -> list[int]:
    """Count a refused join. Return the instants at which a finding began or ended."""
    at_ms, instants = event.order_ms, expire(refused, event.order_ms)
    client_id, principal = event.client_id[:MAX_NAME], (event.principal or "")[:MAX_NAME]
    who: list[str | None] = [client_id, event.client_host, principal]
    key = json.dumps([client_id, principal])
    if key not in refused and len(refused) - (OTHERS in refused) >= MAX_CLIENTS:
        who, key = [None, None, None], OTHERS
    row = refused.setdefault(key, [event.error, 0, at_ms, None, at_ms, event.broker, *who, []])
    row[0], row[1], row[4] = event.error, row[1] + 1, max(row[4], at_ms)
    if len(row[-1]) < MAX_GROUPS_NAMED and event.group[:MAX_NAME] not in row[-1]:
        row[-1].append(event.group[:MAX_NAME])
    if row[1] == REPEATED:
        row[3] = at_ms
        instants.append(at_ms)
    return instants


def expire(refused: dict[str, RefusedClient], at_ms: int) -> list[int]:
    """Forget clients that have not asked for a long time. Return when their findings ended."""
    over = {key: row for key, row in refused.items() if at_ms >= row[4] + REFUSAL_MEMORY_MS}
    for key in over:
        del refused[key]
    return sorted(row[4] + REFUSAL_MEMORY_MS for row in over.values() if row[3] is not None)


def judge(watch: "BrokerWatch", _broker: str, _thresholds: Thresholds) -> list[Finding]:
    """Return a finding for each client that was refused repeatedly."""
    return [_finding(row) for row in watch.refused_joins.values() if row[3] is not None]


def _finding(row: RefusedClient) -> Finding:
    error, count, first_ms, repeated_ms, last_ms, broker, client_id, client_host, principal, groups = row
    name = JOIN_REFUSALS[error]
    who = OTHERS if client_id is None else f"{client_id or 'unknown client'} ({principal or 'unknown principal'})"
    named = ", ".join(group or "one without an id" for group in groups)
    more = " and others" if len(groups) == MAX_GROUPS_NAMED else ""
    return Finding(
        rule=JOIN_REFUSED.id,
        severity=JOIN_REFUSED.severity,
        group="",
        subject=who,
        opened_ms=first_ms,
        at_ms=repeated_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"{who} asks to join groups that are not known ({named}{more}) and was answered {name} ({error})",
        broker=broker,
        client_id=client_id,
        client_host=client_host,
        detail={"error": error, "error_name": name, "count": count, "last_ms": last_ms, "groups": groups}
        | {"principal": principal},
    )

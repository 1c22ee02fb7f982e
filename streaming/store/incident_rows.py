"""Transitions -> rows of incidents, transitions and outbox, and the counters that they change."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sqlalchemy import Connection, insert, select

from coordinator_model.group_report import GroupReport
from coordinator_model.incidents import Incident, Kind, OpenIncidents, Transition, ids_in, to_contract
from streaming.config.settings import Policy
from streaming.store import tables
from streaming.store.batch import PolicyTransition
from streaming.store.database import clean, group_key, in_portions, upsert
from streaming.store.notify_reason import why_notify
from streaming.store.outbox import held_open, new_message

_OF_OPENING = ("detected_ms", "late")
"""The columns that only an opening writes, also if the incident opens again."""


def delay_ms(transition: Transition, now_ms: int) -> int:
    """Return how late an incident is written: the time since its deadline, or since the instant of its decision.

    If it opens again, its deadline may be long past: the time counts from the new opening.
    """
    incident = transition.incident
    since_ms = transition.at_ms
    if incident.deadline_ms is not None:
        since_ms = min(since_ms, max(incident.deadline_ms, incident.opened_ms))
    return now_ms - since_ms


def ended_ms(connection: Connection, reports: Iterable[GroupReport], opened: OpenIncidents) -> dict[str, int]:
    """Return when incidents that the reports find, and that are not open, have ended, by id."""
    known = tables.incidents.c
    ended: dict[str, int] = {}
    still_open = {incident_id for incidents in opened.values() for incident_id in incidents}
    for portion in in_portions(ids_in(reports) - still_open):
        closed = known.incident_id.in_(portion) & known.closed_ms.is_not(None)
        ended.update(map(tuple, connection.execute(select(known.incident_id, known.closed_ms).where(closed))))
    return ended


def write_transitions(
    connection: Connection, transitions: Sequence[PolicyTransition], *, now_ms: int, late_before_ms: int
) -> None:
    """Write transitions in order: the newest state of each incident, every transition, and the messages to deliver."""
    told = _told(connection, {step.transition.incident.incident_id for step in transitions})
    held = held_open(connection, (each.incident.incident_id for each, _ in transitions if each.kind is Kind.CLOSED))
    incidents: dict[str, dict[str, Any]] = {}
    begun: set[str] = set()
    steps: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for transition, policy in transitions:
        text = json.dumps(to_contract(transition))
        row = _incident_row(transition, policy, text, now_ms=now_ms, late=transition.at_ms < late_before_ms)
        is_step = transition.kind is not Kind.UPDATED
        incident_id = row["incident_id"]
        if transition.kind is Kind.OPENED:
            begun.add(incident_id)
        elif (known := incidents.get(incident_id)) is not None:
            row |= {name: known[name] for name in _OF_OPENING}
            row["transition"] = row["transition"] if is_step else known["transition"]
        reason = why_notify(transition.kind, told=incident_id in told or incident_id in held, mode=policy.mode)
        if reason.tells:
            messages.append(
                new_message(incident_id, transition.kind.value, row["severity"], message_payload(row), now_ms)
            )
        if transition.kind in (Kind.OPENED, Kind.ESCALATED):
            (told.add if reason.tells else told.discard)(incident_id)
        row["notify"] = incident_id in told
        incidents[incident_id] = row
        if is_step:
            steps.append(_transition_row(transition, text, now_ms))
    _write_rows(connection, incidents, begun)
    if steps:
        connection.execute(insert(tables.transitions), steps)
    if messages:
        connection.execute(insert(tables.outbox), messages)


def _write_rows(connection: Connection, rows: Mapping[str, Mapping[str, Any]], begun: AbstractSet[str]) -> None:
    """Write incidents. Those that did not open here keep what belongs to the opening; an update is no new step."""
    by_kept: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for incident_id, row in rows.items():
        of_opening = () if incident_id in begun else _OF_OPENING
        of_step = ("transition",) if row["transition"] == Kind.UPDATED else ()
        by_kept[("incident_id", *of_opening, *of_step)].append(row)
    for kept, portion in by_kept.items():
        changing = [name for name in _COLUMNS if name not in kept]
        upsert(connection, tables.incidents, portion, changing=changing)


def _told(connection: Connection, incident_ids: Iterable[str]) -> set[str]:
    """Return the incidents whose newest step was told; which receivers want it, only `serve` knows."""
    known = tables.incidents.c
    found: set[str] = set()
    for portion in in_portions(incident_ids):
        chosen = select(known.incident_id).where(known.incident_id.in_(portion), known.notify.is_(True))
        found.update(connection.execute(chosen).scalars())
    return found


def incident_counts(transitions: Iterable[PolicyTransition]) -> Counter[str]:
    """Count openings and closings, the latter with their reason: `closed:<rule>:refuted` should stay at zero."""
    counts: Counter[str] = Counter()
    for transition, _ in transitions:
        incident = transition.incident
        if transition.kind == "opened":
            counts[f"opened:{incident.rule}"] += 1
        elif transition.kind == "closed":
            counts[f"closed:{incident.rule}:{incident.reason}"] += 1
    return counts


def message_payload(row: Mapping[str, Any]) -> str:
    """Return as JSON what a receiver gets to see of an incident row, whose `contract` already is JSON."""
    rest = {
        "opened_ms": row["opened_ms"],
        "closed_ms": row["closed_ms"],
        "late": row["late"],
        "labels": json.loads(row["labels"]),
        "runbook_url": row["runbook_url"],
    }
    return f'{{"incident": {row["contract"]}, ' + json.dumps(rest).removeprefix("{")


def _incident_row(transition: Transition, policy: Policy, contract: str, *, now_ms: int, late: bool) -> dict[str, Any]:
    incident: Incident = transition.incident
    return {
        "incident_id": incident.incident_id,
        "group_key": group_key(incident.cluster, incident.group),
        "cluster": clean(incident.cluster, 255),
        "group_id": clean(incident.group),
        "rule": incident.rule,
        "severity": incident.severity,
        "opened_ms": incident.opened_ms,
        "closed_ms": incident.closed_ms,
        "reason": incident.reason,
        "detected_ms": now_ms,
        "late": late,
        "notify": False,
        "labels": json.dumps(dict(policy.labels)),
        "runbook_url": policy.runbook_url,
        "body": json.dumps(incident.as_dict()),
        "contract": contract,
        "transition": transition.kind.value,
    }


_COLUMNS = tuple(column.name for column in tables.incidents.c)


def _transition_row(transition: Transition, contract: str, now_ms: int) -> dict[str, Any]:
    return {
        "incident_id": transition.incident.incident_id,
        "group_key": group_key(transition.incident.cluster, transition.incident.group),
        "transition": transition.kind.value,
        "at_ms": transition.at_ms,
        "written_ms": now_ms,
        "body": contract,
    }

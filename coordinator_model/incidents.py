"""Turns findings into incidents: ``diff(open, report)`` returns openings, escalations and closings.

``fold`` does that for many reports, one after the other, in the order that ``in_order`` gives them. ``replay`` and the
store use the same. It also decides whether an incident that has ended opens again: only if the trouble is found again
after that end, never if it is about a member that was gone, because one departure does not happen twice, and never if
it is of severity info. It keeps its id, and its opening is the instant at which it opens again.

An open incident is unique by (cluster, group, rule, subject, incarnation): the subject is the instance id, else the
member id, and the incarnation distinguishes two member ids under one instance id. Its id is a hash of those and of the
instant at which the trouble began, not of the instant at which it was detected. So a monitor that starts with an empty
state computes the same ids, and adopts the incidents that are open. The store calls ``fold`` inside the transaction
that stores the result.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from coordinator_model.client import ShownClient, is_same_client, who
from coordinator_model.group_report import GroupReport, JudgedBy, Said, instant_ms, place_of
from coordinator_model.membership import Partition, held_by, subscribed, unowned, wanted
from coordinator_model.rules.coordinator import COORDINATOR_PAUSED, added_up, without
from coordinator_model.rules.group_set_aside import GROUP_SET_ASIDE
from coordinator_model.rules.registry import (
    AT_RISK_RULES,
    ENDS_AS,
    HEARTBEAT_RULES,
    LAG_RULES,
    LASTING_RULES,
    OWNER_RULES,
    UNEXPLAINED_RULES,
    VIOLATIONS,
)
from coordinator_model.rules.telemetry_uncovered import TELEMETRY_UNCOVERED
from coordinator_model.states import MEMBER_REMOVED, SESSION_EXPIRED, Evidence, GroupState, GroupType, Severity
from coordinator_model.thresholds import Thresholds

_DEPARTURES = LASTING_RULES | UNEXPLAINED_RULES
RESOLVE_AFTER_MS = Thresholds().resolve_after_ms


class Kind(StrEnum):
    """What a transition does. ``updated`` only changes the stored incident, and is not delivered."""

    OPENED = "opened"
    ESCALATED = "escalated"
    UPDATED = "updated"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Incident:
    """A finding with a beginning and an end. All fields are values for JSON."""

    incident_id: str
    cluster: str
    group: str
    rule: str
    subject: str
    incarnation: str
    severity: str
    member_id: str | None
    instance_id: str | None
    client_id: str | None
    client_host: str | None
    connection: str | None
    generation: int
    broker: str
    evidence: str
    cause: str
    deadline_ms: int | None
    opened_ms: int
    at_ms: int
    summary: str
    partitions: list[list[Any]] = field(default_factory=list)
    """Pairs of topic and partition. They are lists, as in a report, because JSON has no tuples."""
    detail: dict[str, Any] = field(default_factory=dict)
    holders: list[str] = field(default_factory=list)
    """What keeps the incident open: the operator keys that find it. A group's incident has one, the last that did,
    and one more while that one reads about the time before the incident."""
    closed_ms: int | None = None
    reason: str | None = None
    client_software: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a flat dict for JSON. Its lists are shared, not copied."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Incident":
        """Read what ``as_dict`` returned; unknown fields are left out."""
        return cls(**{name: values[name] for name in _FIELDS if name in values})

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What makes an open incident unique."""
        return (self.cluster, self.group, self.rule, self.subject, self.incarnation)


_FIELDS = [f.name for f in fields(Incident)]
_FROM_FINDING = [
    name for name in _FIELDS if name not in ("incident_id", "holders", "closed_ms", "reason", "opened_ms", "at_ms")
]


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of an incident; ``incident``: as it is after the step."""

    kind: Kind
    incident: Incident
    at_ms: int


def incident_id(cluster: str, group: str, rule: str, subject: str, incarnation: str, opened_ms: int) -> str:
    """Return the id. Clients choose some of the strings; JSON separates them without ambiguity."""
    identity = json.dumps([cluster, group, rule, subject, incarnation, opened_ms])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _id_of(finding: Mapping[str, Any]) -> str:
    return incident_id(*[finding[name] for name in ("cluster", "group", "rule", "subject", "incarnation", "opened_ms")])


OpenIncidents = dict[tuple[str, str], dict[str, Incident]]
"""The open incidents, by cluster and group, then by id."""


def in_order(said: Iterable[Said]) -> list[Said]:
    """Sort the outputs of shards by the coordinator's time. The outputs of one shard keep their order.

    A shard may report an earlier instant after a later one. Such an output still comes later in the result.
    """
    newest_ms: dict[int, int] = defaultdict(int)
    keyed: list[tuple[int, int, Said]] = []
    for output in said:
        shard, _ = place_of(output)
        newest_ms[shard] = max(newest_ms[shard], instant_ms(output))
        keyed.append((newest_ms[shard], shard, output))
    return [output for *_, output in sorted(keyed, key=lambda row: row[:2])]


def fold(
    opened: Mapping[tuple[str, str], Mapping[str, Incident]],
    reports: Iterable[GroupReport],
    resolve_after_ms_of: Callable[[str], int | None],
    ended_ms: Mapping[str, int] = MappingProxyType({}),
    *,
    reads_anew: bool = True,
) -> tuple[list[Transition], OpenIncidents]:
    """Run ``diff`` over reports in order. Return the transitions, and the open incidents of the groups in the reports.

    ``resolve_after_ms_of`` returns a group's threshold; None: the group is switched off, so its open incidents end and
    none opens. ``ended_ms``: when incidents of these reports (``ids_in``) ended before, by id. ``reads_anew``: a report
    may be about an instant before that end, so only its own instant shows whether the trouble is there again; otherwise
    every report is newer.
    """
    changed: OpenIncidents = {}
    transitions: list[Transition] = []
    ended = dict(ended_ms)
    surely_ended = set() if reads_anew else set(ended)
    for report in reports:
        key = (report.cluster, report.group)
        held = changed.get(key, opened.get(key, {}))
        if not held and not report.findings:
            continue
        after = changed[key] = dict(held)
        for transition in _steps(held.values(), report, resolve_after_ms_of(report.group)):
            known_id, step = transition.incident.incident_id, transition
            if known_id in ended:
                is_newer = known_id in surely_ended or report.at_ms > ended[known_id]
                if _is_told_once(step.incident) or not is_newer:
                    continue
                step = _reopened(step.incident, max(report.at_ms, ended.pop(known_id)))
                surely_ended.discard(known_id)
            transitions.append(step)
            if step.kind is Kind.CLOSED:
                after.pop(known_id, None)
                ended[known_id] = step.at_ms
            else:
                after[known_id] = step.incident
    return transitions, changed


def ids_in(reports: Iterable[GroupReport]) -> set[str]:
    """Return the ids of the incidents that the findings of these reports open, if they are not open yet."""
    return {_id_of(finding) for report in reports for finding in report.findings}


def _is_told_once(incident: Incident) -> bool:
    """Tell whether an incident never opens again: after a departure, or if it only informs and may come and go."""
    return incident.rule in _DEPARTURES or incident.severity == Severity.INFO


def _reopened(incident: Incident, found_ms: int) -> Transition:
    """Open an incident again, from now on: it was closed since its trouble began."""
    at_ms = max(incident.at_ms, found_ms)
    return Transition(Kind.OPENED, replace(incident, opened_ms=at_ms, at_ms=at_ms), at_ms)


def _steps(held: Iterable[Incident], report: GroupReport, resolve_after_ms: int | None) -> list[Transition]:
    if resolve_after_ms is not None:
        return diff(held, report, resolve_after_ms)
    at_ms = report.at_ms
    ended = (replace(incident, closed_ms=at_ms, reason="superseded") for incident in held)
    return [Transition(Kind.CLOSED, incident, at_ms) for incident in ended]


def diff(
    open_incidents: Iterable[Incident], report: GroupReport, resolve_after_ms: int = RESOLVE_AFTER_MS
) -> list[Transition]:
    """Compare the open incidents of a report's (cluster, group) with its findings.

    A shard's reports do not touch incidents of lag, and the other way round (``judged``). But all incidents of a
    deleted group end.
    """
    open_by_key = {incident.key: incident for incident in open_incidents}
    transitions: list[Transition] = []
    found: set[tuple[str, str, str, str, str]] = set()
    for finding in report.findings:
        key = (finding["cluster"], finding["group"], finding["rule"], finding["subject"], finding["incarnation"])
        found.add(key)
        transitions += _on_finding(open_by_key.get(key), finding, report)
    rules_found = {(key[2], key[3]) for key in found}
    for key, incident in open_by_key.items():
        if key in found:
            continue
        if report.deleted:
            if not _is_history(incident, report):
                transitions.append(_closed(incident, "group-deleted", report.at_ms))
        elif report.judged is JudgedBy.LAG and incident.rule in LAG_RULES:
            transitions += _on_absence_of_lag(incident, report)
        elif report.judged is JudgedBy.SHARD and incident.rule not in LAG_RULES:
            transitions += _on_absence(incident, report, rules_found, resolve_after_ms)
    return transitions


def _on_finding(known: Incident | None, finding: Mapping[str, Any], report: GroupReport) -> list[Transition]:
    if known is not None and _is_history(known, report):
        return _held_by_another(known, sorted({*known.holders, report.holder}), report.at_ms)
    values = {name: finding[name] for name in _FROM_FINDING}
    if finding["rule"] == COORDINATOR_PAUSED.id:
        values |= added_up({} if known is None else known.detail, finding, report.shard)
    at_ms = finding["at_ms"]
    transitions = []
    if known is None:
        known = Incident(_id_of(finding), **values, opened_ms=finding["opened_ms"], at_ms=at_ms)
        known = replace(known, holders=_holders(known, report, hold=True))
        transitions.append(Transition(Kind.OPENED, known, at_ms))
    else:
        worse = Severity(finding["severity"]).rank > Severity(known.severity).rank
        if not worse:
            values["severity"] = known.severity  # an incident only gets worse until it closes
        if _is_repeated(known, finding):
            values |= {"broker": known.broker, "detail": {**known.detail, **finding["detail"]}}
        after = replace(known, **values, holders=_holders(known, report, hold=True))
        if worse:
            transitions.append(Transition(Kind.ESCALATED, after, report.at_ms))
        elif after != known:
            transitions.append(Transition(Kind.UPDATED, after, report.at_ms))
        known = after
    if finding["closed_reason"]:
        transitions.append(_closed(known, finding["closed_reason"], finding["closed_ms"]))
    return transitions


def _is_repeated(known: Incident, finding: Mapping[str, Any]) -> bool:
    """Tell whether a finding repeats a timer's verdict, perhaps after another broker has taken over.

    The session ended at the broker that the first finding names, and the interval of that end was known only then.
    """
    inferred = known.evidence == finding["evidence"] == Evidence.INFERRED
    return inferred and known.rule == SESSION_EXPIRED and known.deadline_ms == finding["deadline_ms"]


def _holders(incident: Incident, report: GroupReport, *, hold: bool) -> list[str]:
    holder = {report.holder}
    if not hold:
        return sorted(set(incident.holders) - holder)
    return sorted(holder if report.group else holder | set(incident.holders))


def _held_by_another(incident: Incident, holders: list[str], at_ms: int) -> list[Transition]:
    """Note who still holds an incident. It does not end before the last of them has released it."""
    if holders == incident.holders:
        return []
    return [Transition(Kind.UPDATED, replace(incident, holders=holders, at_ms=max(incident.at_ms, at_ms)), at_ms)]


def _is_history(incident: Incident, report: GroupReport) -> bool:
    """Tell whether a report is about a time before a group's incident that another holder has found."""
    others = set(incident.holders) - {report.holder}
    return bool(report.group and others) and report.at_ms < incident.at_ms


def _on_absence_of_lag(incident: Incident, report: GroupReport) -> list[Transition]:
    """Close an incident of lag that is not found, unless nothing is known or it is still pending."""
    pending, owners = report.pending, report.owners
    if pending is None:
        return []
    gone = owners is not None and (incident.member_id not in owners if incident.member_id else not owners)
    if gone and incident.rule in OWNER_RULES:
        return [_closed(incident, "superseded", report.at_ms)]
    waits = any(
        (rule, subject) == (incident.rule, incident.subject) and committed_ms <= incident.opened_ms
        for rule, subject, committed_ms in pending
    )
    return [] if waits else [_closed(incident, "recovered", report.at_ms)]


def _on_absence(
    incident: Incident, report: GroupReport, rules_found: set[tuple[str, str]], resolve_after_ms: int
) -> list[Transition]:
    """Close an open incident that is not found, with the reason, unless it lasts or another holder keeps it open."""
    at_ms, view = report.at_ms, report.view
    over = ENDS_AS.get(incident.rule, "recovered")  # `serve` has rules of its own
    if incident.rule not in LASTING_RULES and (left := _holders(incident, report, hold=False)):
        if incident.rule == COORDINATOR_PAUSED.id and report.reason == "refuted":
            rest = without(incident.detail, incident.broker, incident.cause, report.shard)
            incident = replace(incident, **rest)
        return _held_by_another(incident, left, at_ms)
    if not report.group:
        return [_closed(incident, report.reason or over, at_ms)]
    if incident.rule in AT_RISK_RULES:
        gone = view is not None and all(m["member_id"] != incident.member_id for m in view["members"])
        unsure = view is not None and view["state"] != GroupState.STABLE
        unseen = (TELEMETRY_UNCOVERED.id, incident.group) in rules_found
        unseen = unseen or (view is not None and not view["coordinator"])
        unknown = incident.rule in HEARTBEAT_RULES and (unsure or unseen)
        superseded = gone or unknown or (AT_RISK_RULES[incident.rule], incident.subject) in rules_found
        return [_closed(incident, "superseded" if superseded else over, at_ms)]
    unexplained = incident.rule in UNEXPLAINED_RULES
    if unexplained and any((rule, incident.subject) in rules_found for rule in VIOLATIONS):
        return [_closed(incident, "superseded", at_ms)]
    if incident.rule in LASTING_RULES and view is not None:
        return _adopted_end(incident, report, view, resolve_after_ms)
    if incident.rule in LASTING_RULES:
        return []
    unknown = (GROUP_SET_ASIDE.id, incident.group) in rules_found  # the replica was dropped, so the trouble may go on
    return [_closed(incident, "superseded" if unknown else over, at_ms)]


def _adopted_end(
    incident: Incident, report: GroupReport, view: Mapping[str, Any], resolve_after_ms: int
) -> list[Transition]:
    """Close a lasting incident that the replica does not have (any more), if the group's view shows that it ended."""
    members, at_ms, stable_ms = view["members"], report.at_ms, view["stable_since_ms"]
    if at_ms < incident.at_ms:
        return []  # a new replica is catching up: this view is older than the incident
    same = [m for m in members if m["member_id"] == incident.member_id]
    if same and not _is_accepted(incident, same[0]):
        return []  # a new replica has the member from the log, which lists it until the next generation
    if same and incident.evidence == Evidence.INFERRED and incident.rule == SESSION_EXPIRED:
        return [_closed(incident, "rejoined" if _has_moved(incident, view) else "refuted", at_ms)]
    if incident.rule == MEMBER_REMOVED and not incident.broker and view["state"] == GroupState.EMPTY:
        stable_ms = incident.at_ms  # only records were read, and no member is left
    if stable_ms is None:
        return []
    if same or any(_is_return(incident, member, members) for member in members):
        return [_closed(incident, "rejoined", at_ms)]
    well_ms = max(stable_ms, incident.at_ms) + resolve_after_ms
    return [_closed(incident, "recovered", well_ms)] if at_ms >= well_ms and not _unowned(incident, view) else []


def _has_moved(incident: Incident, view: Mapping[str, Any]) -> bool:
    """Tell whether another broker coordinates the group than the one at which a session ended.

    It has the member again if the former coordinator removed it without a record. It may have announced a generation
    before metadata names it.
    """
    brokers = {view["coordinator"]}
    if view["generation"] > incident.generation:
        brokers.add(view["announced_by"])
    return bool(brokers - {None, "", incident.broker})


def _unowned(incident: Incident, view: Mapping[str, Any]) -> list[Partition]:
    """Return the incident's partitions that nobody reads now, as ``GroupReplica.unowned`` does.

    The group is stable. One without members, and one that is not classic, has none. The view does not show which
    partitions exist.
    """
    members = view["members"]
    known = members and not any(member.get("partitions_left_out") for member in members)
    if not known or view.get("type") != GroupType.CLASSIC:
        return []
    topics = subscribed(member.get("topics") or () for member in members)
    places = [(topic, number) for topic, number in incident.partitions]
    return unowned(wanted(places, topics), (place for member in members for place in held_by(member)))


def _is_accepted(incident: Incident, member: Mapping[str, Any]) -> bool:
    """Tell whether the coordinator has accepted a heartbeat or a join of a member since its incident began."""
    since_ms = max(member["last_heartbeat_ms"] or 0, member["joined_ms"] or 0)
    return since_ms > incident.opened_ms or (member["generation"] or 0) > incident.generation


def _is_return(incident: Incident, member: Mapping[str, Any], members: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a member of a view is the incident's client, and has joined since the incident began."""
    if (member["joined_ms"] or 0) < incident.opened_ms:
        return False
    before = (ShownClient.of(other) for other in members if (other["joined_ms"] or 0) < incident.opened_ms)
    alone = all(who(other) != who(incident) for other in before)
    return is_same_client(incident, ShownClient.of(member), alone=alone)


def _closed(incident: Incident, reason: str, at_ms: int) -> Transition:
    closed_ms = max(at_ms, incident.at_ms)
    return Transition(Kind.CLOSED, replace(incident, closed_ms=closed_ms, reason=reason), closed_ms)


def to_contract(transition: Transition) -> dict[str, Any]:
    """Return the object that ``replay`` prints and the API serves for a transition."""
    incident = transition.incident
    result: dict[str, Any] = {
        "kind": "incident",
        "transition": transition.kind.value,
        **{name: getattr(incident, name) for name in _CONTRACT_FIELDS},
        "at_ms": transition.at_ms,
        "summary": incident.summary,
    }
    if transition.kind is Kind.CLOSED:
        result["reason"] = incident.reason
    return result


_CONTRACT_FIELDS = [
    "incident_id", "rule", "severity", "cluster", "group", "subject", "member_id", "instance_id", "client_id",
    "client_host", "client_software", "generation", "broker", "evidence", "cause", "deadline_ms", "opened_ms",
    "partitions", "detail",
]  # fmt: skip

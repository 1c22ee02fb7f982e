"""Queries for the API and `/metrics`, and for the open incidents when a writer starts."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Engine, Row, Table, and_, case, func, literal, select

from coordinator_model.brokers.blindness import blind_windows
from coordinator_model.incidents import Incident, OpenIncidents
from coordinator_model.shard.heartbeat_update import with_heartbeats
from streaming.store import tables
from streaming.store.batch import OWN_RULES
from streaming.store.database import clean, database_ms, group_key
from streaming.store.order import severity_rank, worst_first
from streaming.store.pages import Page, by_weight, in_portions_of

COUNTED = 100_000
BLIND_SHOWN = 1_000
LEFT_BEHIND_MS = 3_600_000
LAST_BATCH_MS = 60_000
"""A record younger than this may have been missed by the last batch: a batch takes its time, and clocks differ."""
GROUPS_COMPARED = 2_000
_MEMBERS_AT_ONCE = 2_000  # members of the groups in a portion
_GROUP_WEIGHT = 10  # what a group weighs in addition to its members
_INCIDENTS_AT_ONCE = 100
_REJECTED_AT_ONCE = 500
_LAG = tables.lags.c.lag, tables.lags.c.status.label("lag_status")
_HAS_LAG = tables.lags.c.group_key == tables.groups.c.group_key
_SHOWN = (
    select(tables.groups.c.group_key, tables.views.c.view, tables.groups.c.heartbeats, tables.groups.c.at_ms, *_LAG)
    .join_from(tables.groups, tables.views)
    .outerjoin(tables.lags, _HAS_LAG)
)
_WEIGHED = select(tables.groups.c.group_key, tables.groups.c.members)


class RunProgress(NamedTuple):
    """How far the `run` of a cluster is, and when it gave its last sign of life, by the database's clock."""

    cluster: str
    checkpoint_id: str
    batch_id: int
    alive_ms: int
    caught_up: bool
    """False also from when `run` starts, or begins a query anew, until the first batch of it has ended."""
    silent_ms: int
    """How long ago `alive_ms` was."""


class StoredGroupState(NamedTuple):
    """A group as one row of `/metrics`."""

    cluster: str
    group: str
    type: str
    state: str
    generation: int | None
    members: int
    worst_headroom: float | None
    worst_poll_headroom: float | None
    lag: int | None
    lag_status: str | None
    key: str
    """The hash of its cluster and id; `group` is a copy of the id, in which some characters are replaced."""
    pages: int
    """How many of its open incidents have severity `page`."""
    warnings: int


class Moves(NamedTuple):
    """How many partitions the newest generation of a group moved from one member to another."""

    cluster: str
    group: str
    partitions: int


class GroupTotals(NamedTuple):
    """The groups of one cluster, type and state, and their members."""

    cluster: str
    type: str
    state: str
    groups: int
    members: int
    violated: int
    unknown: int


class OpenTotals(NamedTuple):
    """How many incidents of a rule and severity are open in a cluster."""

    cluster: str
    rule: str
    severity: str
    incidents: int


class GroupIncidents(NamedTuple):
    """The open incidents of one group, rule and severity; `told`: how many of them receivers are told of."""

    cluster: str
    group: str
    rule: str
    severity: str
    incidents: int
    opened_ms: int
    """When the oldest began."""
    told: int


class BrokerProgress(NamedTuple):
    """How far a broker's telemetry is. `delay_ms`: how old its newest line was when it was read."""

    cluster: str
    broker: str
    progress_ms: int
    covered: bool
    delay_ms: int | None


class ShardTotals(NamedTuple):
    """The slowest shard of a cluster, and how many rows wait in all of them for a slower source."""

    cluster: str
    slowest_ms: int | None
    held: int


class QualityResult(NamedTuple):
    """The result of one expectation."""

    cluster: str
    suite: str
    expectation: str
    success: bool
    checked_ms: int
    unexpected: int


def open_incidents(connection: Connection, cluster: str, own_rule: str | None = None) -> OpenIncidents:
    """Load the open incidents of a cluster: those of `run`, or those of one rule that `serve` itself judges."""
    known = tables.incidents.c
    owned = known.rule.not_in(OWN_RULES) if own_rule is None else known.rule == own_rule
    rows = connection.execute(
        select(known.body).where(known.cluster == clean(cluster, 255), known.closed_ms.is_(None), owned)
    )
    opened: OpenIncidents = {}
    for (body,) in rows:
        incident = Incident.from_dict(json.loads(body))
        opened.setdefault((incident.cluster, incident.group), {})[incident.incident_id] = incident
    return opened


def is_told(severities: Sequence[str]) -> ColumnElement[bool]:
    """Select the open incidents of some severities that receivers are told of."""
    known = tables.incidents.c
    return and_(known.closed_ms.is_(None), known.notify.is_(True), known.severity.in_(severities))


def _group_object(row: Row[Any]) -> dict[str, Any]:
    group = {**json.loads(row.view), "at_ms": row.at_ms, "lag": row.lag, "lag_status": row.lag_status}
    return group if row.heartbeats is None else with_heartbeats(group, json.loads(row.heartbeats), row.at_ms)


class StoreReader:
    """Read-only; every method is one short transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def runs(self) -> list[RunProgress]:
        """Return the progress of every cluster's `run`, sorted by cluster."""
        known = tables.runs.c
        caught_up, silent_ms = known.caught_up & ~known.starts, database_ms() - known.alive_ms
        columns = (known.cluster, known.checkpoint_id, known.batch_id, known.alive_ms, caught_up, silent_ms)
        return [RunProgress._make(row) for row in self._rows(select(*columns).order_by(known.cluster))]

    def judged_until_ms(self, cluster: str) -> int | None:
        """Return the instant up to which all groups of a cluster were judged, or None if none was judged yet.

        It is the instant of the slowest shard. A shard that no longer has groups does not count. Where no broker ships
        its request log, shards have no instants: then it is the last batch, if by then everything had been read.
        """
        known = tables.shards.c
        newest = select(func.max(known.at_ms)).where(known.cluster == cluster).scalar_subquery()
        slowest = select(func.min(known.at_ms)).where(known.cluster == cluster, known.at_ms >= newest - LEFT_BEHIND_MS)
        if judged_ms := next(iter(self._rows(slowest)))[0]:
            return int(judged_ms)
        run = tables.runs.c
        caught_up = self._rows(select(run.alive_ms).where(run.cluster == cluster, run.caught_up))
        return next((row.alive_ms - LAST_BATCH_MS for row in caught_up), None)

    def clusters_of(self, group: str) -> list[str]:
        """Return the clusters that have a group with this id."""
        keys = self._keys(group)
        found = self._rows(select(tables.groups.c.group_key).where(tables.groups.c.group_key.in_(keys)))
        return sorted(keys[row.group_key] for row in found)

    def group(self, cluster: str, group: str) -> dict[str, Any] | None:
        """Return the newest view of a group, as in the contract, or None."""
        return self.group_of_key(group_key(cluster, group))

    def group_of_key(self, key: str) -> dict[str, Any] | None:
        """Return the newest view of the group with a key, or None."""
        return self._views([key]).get(key)

    def groups(
        self,
        *,
        cluster: str | None = None,
        state: str | None = None,
        by_name: bool = False,
        limit: int = 1_000,
        offset: int = 0,
    ) -> Page[str]:
        """List views with their open incidents counted: the worst first or, `by_name`, by cluster and group id."""
        known = tables.groups.c
        chosen = _all_of(_equal(known.cluster, cluster), _equal(known.state, state))
        some = _WEIGHED.where(chosen)
        ordered = some.order_by(known.cluster, known.group_id, known.group_key) if by_name else worst_first(some)
        page = self._groups(ordered.limit(limit).offset(offset), self._count(tables.groups, chosen))
        return replace(page, read=self._with_open_incidents)

    def views(self, clusters: Sequence[str]) -> Page[str]:
        """Return the views of all groups of some clusters, by name."""
        known = tables.groups.c
        some = _WEIGHED.where(known.cluster.in_(clusters))
        return self._groups(some.order_by(known.cluster, known.group_id, known.group_key))

    def generations(self, cluster: str, group: str, limit: int = 20) -> list[dict[str, Any]]:
        """Return the newest generations of a group, newest first."""
        known = tables.generations.c
        chosen = known.group_key == group_key(cluster, group)
        rows = self._rows(select(known.body).where(chosen).order_by(known.at_ms.desc(), known.id.desc()).limit(limit))
        return [json.loads(row.body) for row in rows]

    def history(
        self, cluster: str, group: str, until_ms: int, limit: int, *, but: str = ""
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the newest generations and transitions up to an instant, newest first, without the incident `but`."""
        known, steps, key = tables.generations.c, tables.transitions.c, group_key(cluster, group)
        settled = self._rows(
            select(known.body)
            .where(known.group_key == key, known.at_ms <= until_ms)
            .order_by(known.at_ms.desc(), known.id.desc())
            .limit(limit)
        )
        told = self._rows(
            select(steps.body)
            .where(steps.group_key == key, steps.at_ms <= until_ms, steps.incident_id != but)
            .order_by(steps.at_ms.desc(), steps.id.desc())
            .limit(limit)
        )
        return [json.loads(row.body) for row in settled], [json.loads(row.body) for row in told]

    def incidents(  # noqa: PLR0913 - each is a filter
        self,
        *,
        state: str = "all",
        cluster: str | None = None,
        group: str | None = None,
        rule: str | None = None,
        severity: str | None = None,
        told: bool | None = None,
        by_severity: bool = False,
        limit: int = 1_000,
        offset: int = 0,
    ) -> Page[str]:
        """List incidents, newest opening first: the contract's object with the newest transition, and more fields.

        `told`: True: only those sent to the receivers that want their severity (maybe none does), False: only those
        that were just recorded. `by_severity`: the worst first; this sorts all chosen incidents, so it is meant for
        open ones.
        """
        known = tables.incidents.c
        is_open = {"open": known.closed_ms.is_(None), "closed": known.closed_ms.is_not(None)}.get(state)
        chosen = _all_of(
            is_open,
            self._where(cluster, group),
            _equal(known.rule, rule),
            _equal(known.severity, severity),
            None if told is None else known.notify.is_(told),
        )
        rows = self._rows(
            select(known.incident_id)
            .where(chosen)
            .order_by(*([severity_rank()] if by_severity else []), known.opened_ms.desc(), known.incident_id)
            .limit(limit)
            .offset(offset)
        )
        portions = in_portions_of([row.incident_id for row in rows], _INCIDENTS_AT_ONCE)
        return Page(self._count(tables.incidents, chosen), portions, self._incidents)

    def firing(self, severities: Sequence[str]) -> list[dict[str, Any]]:
        """Return the payloads of open incidents, for receivers that need them repeated."""
        return [payload_of(row) for row in self._rows(select(tables.incidents).where(is_told(severities)))]

    def group_states(self, limit: int) -> list[StoredGroupState]:
        """Return the groups that get their own series, the worst first."""
        known = tables.groups.c
        columns = (known.cluster, known.group_id, known.type, known.state, known.generation, known.members)
        some = select(*columns, known.worst_headroom, known.worst_poll_headroom, *_LAG, known.group_key)
        ordered = worst_first(some, counted=True).outerjoin(tables.lags, _HAS_LAG).limit(limit)
        return [StoredGroupState._make(row) for row in self._rows(ordered)]

    def newest_moves(self, limit: int) -> list[Moves]:
        """Return how many partitions each group's newest generation moved, among the newest `limit` generations."""
        known, rows = tables.groups.c, tables.generations.c
        newest = select(rows.group_key, rows.body, rows.at_ms, rows.id).order_by(rows.at_ms.desc(), rows.id.desc())
        some = newest.limit(limit).subquery()
        found = self._rows(
            select(known.cluster, known.group_id, some.c.body)
            .join(some, some.c.group_key == known.group_key)
            .order_by(some.c.at_ms, some.c.id)
        )
        moved = {(row.cluster, row.group_id): json.loads(row.body)["partitions_moved"] for row in found}  # the last
        return [Moves(cluster, group, partitions) for (cluster, group), partitions in moved.items()]

    def newest_groups(self, cluster: str, limit: int) -> Page[str]:
        """Return the views of the groups of a cluster that were seen last."""
        some = _WEIGHED.where(_all_of(_equal(tables.groups.c.cluster, cluster)))
        return self._groups(some.order_by(tables.groups.c.at_ms.desc()).limit(limit))

    def quality(self) -> list[QualityResult]:
        """Return the results of the newest check of data quality."""
        known = tables.quality.c
        columns = [known[name] for name in QualityResult._fields]
        return [QualityResult._make(row) for row in self._rows(select(*columns).order_by(*columns[:3]))]

    def groups_worst_off(self, limit: int, column: str = "worst_headroom") -> Page[str]:
        """Return the views of the groups whose members have the least headroom of a kind."""
        known = tables.groups.c
        chosen = _WEIGHED.where(known[column].is_not(None))
        return self._groups(chosen.order_by(known[column], known.group_key).limit(limit))

    def groups_in(self, states: Sequence[str], limit: int) -> Page[str]:
        """Return the views of groups in one of some states, the worst first."""
        return self._groups(worst_first(_WEIGHED.where(tables.groups.c.state.in_(states))).limit(limit))

    def group_totals(self) -> list[GroupTotals]:
        """Sum up the groups of every cluster, type and state."""
        known = tables.groups.c
        sums = (
            func.count(),
            func.sum(known.members),
            func.sum(known.members_violated),
            func.sum(known.members_unknown),
        )
        by = (known.cluster, known.type, known.state)
        return [GroupTotals._make(row) for row in self._rows(select(*by, *sums).group_by(*by))]

    def open_totals(self) -> list[OpenTotals]:
        """Count open incidents by cluster, rule and severity."""
        known = tables.incidents.c
        by = (known.cluster, known.rule, known.severity)
        rows = self._rows(select(*by, func.count()).where(known.closed_ms.is_(None)).group_by(*by))
        return [OpenTotals._make(row) for row in rows]

    def open_by_group(self, limit: int) -> list[GroupIncidents]:
        """Count open incidents by group, rule and severity: the worst first, then the oldest."""
        known = tables.incidents.c
        by = (known.cluster, known.group_id, known.rule, known.severity)
        worst = case((known.severity == "page", 0), (known.severity == "warn", 1), else_=2)
        oldest = func.min(known.opened_ms)
        told = func.count().filter(known.notify.is_(True))
        chosen = select(*by, func.count(), oldest, told).where(known.closed_ms.is_(None)).group_by(*by)
        return [GroupIncidents._make(row) for row in self._rows(chosen.order_by(worst, oldest).limit(limit))]

    def brokers(self) -> list[BrokerProgress]:
        """Return the progress of every broker's telemetry."""
        return [BrokerProgress._make(row) for row in self._rows(select(tables.brokers))]

    def blind_windows(self, cluster: str | None = None, limit: int = BLIND_SHOWN) -> list[dict[str, Any]]:
        """Return the windows in which lines of a broker are missing: the newest ones, by broker, oldest first."""
        known = tables.blind_windows.c
        chosen = select(tables.blind_windows).order_by(known.from_ms.desc()).limit(limit)
        if cluster is not None:
            chosen = chosen.where(known.cluster == clean(cluster, 255))
        return blind_windows(dict(row._mapping) for row in self._rows(chosen))  # noqa: SLF001 - SQLAlchemy's public name for it

    def shards(self) -> list[ShardTotals]:
        """Sum up the shards of every cluster. One without groups, or without a line of a broker yet, has no progress.

        A shard of an earlier checkpoint may have lost its groups while nobody looked (`judged_until_ms`).
        """
        known = tables.shards.c
        newest = select(known.cluster, func.max(known.at_ms).label("at_ms")).group_by(known.cluster).subquery()
        counts = (known.at_ms > 0) & (known.at_ms >= newest.c.at_ms - LEFT_BEHIND_MS)
        sums = select(known.cluster, func.min(known.at_ms).filter(counts), func.sum(known.held))
        joined = sums.join(newest, newest.c.cluster == known.cluster).group_by(known.cluster)
        return [ShardTotals._make(row) for row in self._rows(joined)]

    def counters(self) -> dict[str, dict[str, int]]:
        """Return all counters, by cluster and name."""
        result: dict[str, dict[str, int]] = {}
        for row in self._rows(select(tables.counters)):
            result.setdefault(row.cluster, {})[row.name] = row.value
        return result

    def quarantine(self, limit: int = 100, offset: int = 0) -> Page[int]:
        """Return the rejected rows, newest first; `head`: the first bytes of the row."""
        known = tables.quarantine.c.id
        ids = [row.id for row in self._rows(select(known).order_by(known.desc()).limit(limit).offset(offset))]
        return Page(self._count(tables.quarantine, _all_of()), in_portions_of(ids, _REJECTED_AT_ONCE), self._rejected)

    def groups_like(self, group: str, limit: int = GROUPS_COMPARED) -> list[str]:
        """Return group ids that a mistyped id may have meant: known ids that begin with the same character."""
        known = tables.groups.c.group_id
        begins = known.startswith(clean(group[:1]), autoescape=True)
        return [row.group_id for row in self._rows(select(known).where(begins).distinct().order_by(known).limit(limit))]

    def _rejected(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        rows = self._rows(select(tables.quarantine).where(tables.quarantine.c.id.in_(ids)))
        return {row.id: dict(row._mapping) for row in rows}  # noqa: SLF001 - SQLAlchemy's public name for it

    def _incidents(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        rows = self._rows(select(tables.incidents).where(tables.incidents.c.incident_id.in_(ids)))
        return {row.incident_id: _incident(row) for row in rows}

    def _groups(self, weighed: Any, total: int | None = None) -> Page[str]:
        """Make a page of the groups that a statement over `_WEIGHED` selects."""
        rows = self._rows(weighed)
        portions = by_weight(((row.group_key, _GROUP_WEIGHT + row.members) for row in rows), _MEMBERS_AT_ONCE)
        return Page(len(rows) if total is None else total, portions, self._views)

    def _views(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        rows = self._rows(_SHOWN.where(tables.groups.c.group_key.in_(keys)))
        return {row.group_key: _group_object(row) for row in rows}

    def _with_open_incidents(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        known = tables.incidents.c
        by = (known.group_key, known.severity)
        chosen = known.closed_ms.is_(None) & known.group_key.in_(keys)
        opened: dict[str, dict[str, int]] = {key: {} for key in keys}
        for row in self._rows(select(*by, func.count().label("incidents")).where(chosen).group_by(*by)):
            opened[row.group_key][row.severity] = row.incidents
        return {key: view | {"open_incidents": opened[key]} for key, view in self._views(keys).items()}

    def _count(self, table: Table, chosen: ColumnElement[bool]) -> int:
        """Count rows, up to `COUNTED`: nobody pages through more, and a database counts by visiting each row."""
        some = select(literal(1)).select_from(table).where(chosen).limit(COUNTED).subquery()
        return int(self._rows(select(func.count()).select_from(some))[0][0])

    def _where(self, cluster: str | None, group: str | None) -> ColumnElement[bool] | None:
        """Select incidents by cluster, by group or, with one key, by both."""
        known = tables.incidents.c
        if group is None:
            return _equal(known.cluster, cluster)
        return known.group_key.in_([group_key(cluster, group)] if cluster else self._keys(group))

    def _keys(self, group: str) -> dict[str, str]:
        """Return a group id's key in every cluster, and the cluster of each key."""
        return {group_key(run.cluster, group): run.cluster for run in self.runs()}

    def _rows(self, statement: Any) -> Sequence[Row[Any]]:
        with self._engine.connect() as connection:
            return connection.execute(statement).all()


def _equal(column: Column[str], value: str | None) -> ColumnElement[bool] | None:
    """Compare with a requested value, cleaned like stored ones: PostgreSQL refuses a NUL even in a query."""
    return column == clean(value) if value else None


def _all_of(*conditions: Any) -> ColumnElement[bool]:
    """Join the conditions that are given."""
    return and_(True, *(condition for condition in conditions if isinstance(condition, ColumnElement)))


def payload_of(row: Row[Any]) -> dict[str, Any]:
    """Return what a receiver gets to see of an incident row."""
    return {
        "incident": {**json.loads(row.contract), "transition": row.transition},
        "opened_ms": row.opened_ms,
        "closed_ms": row.closed_ms,
        "late": row.late,
        "labels": json.loads(row.labels),
        "runbook_url": row.runbook_url,
    }


def _incident(row: Row[Any]) -> dict[str, Any]:
    payload = payload_of(row)
    return {
        **json.loads(row.body),
        **payload.pop("incident"),
        **payload,
        "detected_ms": row.detected_ms,
        "told": row.notify,
    }

"""`Store`: the database as `run` uses it; `Store.read` and `Store.outbox` are what `serve` uses."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from sqlalchemy import Column, ColumnElement, Connection, Engine, ExceptionContext, delete, event, select, update
from sqlalchemy.exc import IntegrityError

from coordinator_model.brokers.gone_brokers import GONE_MS
from coordinator_model.events import FAR_MS
from coordinator_model.group_report import GroupReport, Said, instant_ms, reports_in
from coordinator_model.incidents import OpenIncidents, fold
from streaming.config.settings import Settings
from streaming.store import batch, generations, incident_rows, tables
from streaming.store.batch import BatchResult, CheckpointMismatchError, PolicyTransition
from streaming.store.database import clean, clock_of, database_ms, existing, group_key, open_engine, upsert, writer_of
from streaming.store.histogram import observe
from streaming.store.lags import LagReader
from streaming.store.lease import Lease
from streaming.store.outbox import Outbox
from streaming.store.reader import StoreReader, open_incidents

DAY_MS = 86_400_000
NEVER_LATE_MS = -1
PRUNED_AT_ONCE = 5_000


def wall_ms() -> int:
    """Read the wall clock, for what concerns this process only: no verdict about a group uses it."""
    return time.time_ns() // 1_000_000


class Store:
    """One open database. One thread applies batches; reading and the outbox are safe from any thread."""

    def __init__(self, engine: Engine) -> None:
        self.read = StoreReader(engine)
        self.lags = LagReader(engine)
        self.outbox = Outbox(engine)
        self.engine = engine
        self.errors = 0
        """How many database errors there were."""
        event.listen(engine, "handle_error", self._count_error)
        self._writer = writer_of(engine)
        self._open: dict[str, OpenIncidents] = {}  # open incidents by cluster; changed only after a commit
        self._settled: dict[str, dict[str, int]] = {}  # newest settled generation of each group, by cluster; same
        self._release_ms: dict[str, int] = {}  # when incidents of former checkpoints are released, by cluster

    def _count_error(self, context: ExceptionContext) -> None:
        if not isinstance(context.sqlalchemy_exception, IntegrityError):  # that one is not a failure
            self.errors += 1

    @classmethod
    def open(cls, url: str) -> Self:
        """Connect and create missing tables; raises `StoreError`."""
        return cls(open_engine(url))

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def note_start(self, lease: Lease) -> None:
        """Note that the `run` with this lease has much to read, so that the next batch may take long.

        Whether the last batch had caught up is kept: a fresh checkpoint may begin where that one ended.
        """
        mine = tables.runs.c.cluster == lease.cluster
        with self._writer.begin() as connection:
            if lease.renew_in(connection):
                connection.execute(update(tables.runs).where(mine).values(starts=True))

    def apply_batch(  # noqa: PLR0913 - each is a fact about the batch that only the job knows
        self,
        *,
        checkpoint_id: str,
        batch_id: int,
        outputs: Iterable[Said],
        settings: Settings,
        caught_up: bool = True,
        late_before_ms: int = NEVER_LATE_MS,
        batch_ms: int | None = None,
        lease: Lease | None = None,
        now_ms: int | None = None,
    ) -> BatchResult:
        """Apply a batch in one transaction; a batch that was applied before changes nothing.

        `late_before_ms`: incidents decided before this instant are marked late, because nobody watched then.
        `batch_ms`: how long the previous batch took from end to end, for `/metrics`. `lease`: this process's lease on
        the cluster; raises `LeaseLostError` if another process has it now. `now_ms`: the wall clock, if not the
        database's. Any error leaves the database as it was, also a `CheckpointMismatchError`.
        """
        said, cluster = batch.ordered(outputs), settings.cluster
        rows, reports = batch.gather(said, checkpoint_id), list(reports_in(said))
        try:
            with self._writer.begin() as connection:
                if lease is not None:
                    lease.check(connection)
                applied_ms = clock_of(connection) if now_ms is None else now_ms
                if not _claim(connection, cluster, checkpoint_id, batch_id, applied_ms):
                    return BatchResult(applied=False)
                opened, settled = self._opened(connection, cluster), self._settled_in(connection, cluster)
                was_behind = _alive(connection, cluster, checkpoint_id, batch_id, applied_ms, caught_up)
                history = _write_history(connection, reports, settled, is_first_reading=not caught_up and not settled)
                batch.write(connection, rows)
                at_ms = max(map(instant_ms, said), default=0)
                reports = [_held(report, checkpoint_id) for report in _concerning(reports, opened)]
                reports += _vanished(connection, cluster, checkpoint_id, opened, at_ms) if was_behind else []
                is_due = self._may_release(cluster, applied_ms, opened, settings, starts=was_behind) and caught_up
                reports += _released(cluster, checkpoint_id, opened, at_ms) if is_due else []
                judge = partial(_write_incidents, caught_up=caught_up, late_before_ms=late_before_ms)
                transitions, changed = judge(connection, reports, opened, settings, now_ms=applied_ms)
                delays_ms = _delays_ms(transitions, applied_ms, late_before_ms)
                counts = history.counts + observe("batch", [] if batch_ms is None else [batch_ms])
                _write_counts(connection, cluster, counts + observe("detection", delays_ms), transitions)
                if lease is not None:
                    lease.renew_in(connection)
        except BaseException:
            self._forget(cluster)  # it is not known whether the commit happened: read the state again
            raise
        self._remember(cluster, changed, history.known, released=is_due)
        return BatchResult(True, tuple(step.transition for step in transitions), tuple(delays_ms))

    def apply_own(self, report: GroupReport, rule: str, settings: Settings) -> tuple[PolicyTransition, ...]:
        """Judge a report of `serve` itself (such as `monitor-stalled`) against the open incidents of its rule."""
        key = (report.cluster, report.group)
        with self._writer.begin() as connection:
            opened = open_incidents(connection, report.cluster, own_rule=rule)
            known = {key: opened.get(key, {})}
            transitions, _ = _write_incidents(
                connection, [report], known, settings, now_ms=report.at_ms, late_before_ms=NEVER_LATE_MS
            )
            _write_counts(connection, report.cluster, Counter(), transitions)
        return tuple(transitions)

    def retire(self, cluster: str, settings: Settings) -> None:
        """Close a cluster's incidents and delete all else of it: what has ended, `prune` deletes later."""
        with self._writer.begin() as connection:
            now_ms, steps = clock_of(connection), []
            for rule in (None, *batch.OWN_RULES):
                opened = open_incidents(connection, cluster, rule)
                reports = [GroupReport(cluster=cluster, group=group, at_ms=now_ms) for _, group in opened]
                steps += fold(opened, reports, lambda _group: None)[0]  # as of groups that are switched off
            transitions = [PolicyTransition(step, settings.policy_for(step.incident.group)) for step in steps]
            incident_rows.write_transitions(connection, transitions, now_ms=now_ms, late_before_ms=NEVER_LATE_MS)
            for table in tables.metadata.sorted_tables:
                if "cluster" in table.c and table is not tables.incidents:
                    connection.execute(delete(table).where(table.c.cluster == clean(cluster, 255)))

    def write_quality(self, cluster: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace a cluster's results of a check of data quality; an expectation may be gone since the last one."""
        known = tables.quality
        with self._writer.begin() as connection:
            connection.execute(delete(known).where(known.c.cluster == clean(cluster, 255)))
            upsert(connection, known, rows)

    def prune(self, before_ms: int) -> bool:
        """Delete some thousand rows of what ended before an instant; return True if there may be more of them.

        Not all at once: `run` writes meanwhile, and the caller has other things to do.
        """
        incidents, generations, outbox = tables.incidents.c, tables.generations.c, tables.outbox.c
        settled = outbox.delivered_ms.is_not(None) | outbox.dead.is_(True) | outbox.dismissed_ms.is_not(None)
        still_open = select(incidents.incident_id).where(incidents.closed_ms.is_(None))  # receivers get their end too
        return any(
            self._delete_portion(key, over)
            for key, over in (
                (incidents.incident_id, incidents.closed_ms < before_ms),
                (generations.id, generations.at_ms < before_ms),
                (outbox.id, settled & (outbox.created_ms < before_ms) & outbox.incident_id.not_in(still_open)),
                (tables.brokers.c.broker, tables.brokers.c.progress_ms < database_ms() - GONE_MS),
                (tables.blind_windows.c.from_ms, tables.blind_windows.c.until_ms < before_ms),
                (tables.settled.c.group_key, tables.settled.c.group_key.not_in(select(tables.groups.c.group_key))),
                (tables.lags.c.group_key, tables.lags.c.group_key.not_in(select(tables.groups.c.group_key))),
            )
        )

    def _delete_portion(self, key: Column[Any], over: ColumnElement[bool]) -> bool:
        portion = select(key).where(over).limit(PRUNED_AT_ONCE)
        with self._writer.begin() as connection:
            return connection.execute(delete(key.table).where(key.in_(portion), over)).rowcount >= PRUNED_AT_ONCE

    def _opened(self, connection: Connection, cluster: str) -> OpenIncidents:
        if cluster not in self._open:
            self._open[cluster] = open_incidents(connection, cluster)
        return self._open[cluster]

    def _settled_in(self, connection: Connection, cluster: str) -> dict[str, int]:
        if cluster not in self._settled:
            self._settled[cluster] = generations.known_generations(connection, cluster)
        return self._settled[cluster]

    def _remember(
        self, cluster: str, changed: OpenIncidents, generations_known: Mapping[str, int | None], *, released: bool
    ) -> None:
        """Remember what a committed batch has changed."""
        if released:
            del self._release_ms[cluster]
        opened = self._open[cluster]
        opened.update(changed)
        self._open[cluster] = {key: incidents for key, incidents in opened.items() if incidents}
        settled = self._settled[cluster]
        for key, generation in generations_known.items():
            if generation is None:
                settled.pop(key, None)
            else:
                settled[key] = generation

    def _may_release(
        self, cluster: str, now_ms: int, opened: OpenIncidents, settings: Settings, *, starts: bool
    ) -> bool:
        """Tell whether a checkpoint had time to find again what former ones hold; `starts`: it has just caught up."""
        if starts:
            self._release_ms[cluster] = now_ms + _found_again_within_ms(opened, settings)
        return now_ms >= self._release_ms.get(cluster, FAR_MS)

    def _forget(self, cluster: str) -> None:
        self._open.pop(cluster, None)
        self._settled.pop(cluster, None)


def _claim(connection: Connection, cluster: str, checkpoint_id: str, batch_id: int, applied_ms: int) -> bool:
    """Record a batch of a checkpoint as applied; return False if it was applied before.

    Only the newest batch can come again: Spark repeats it if it was killed before it noted the end of the batch. Raises
    `CheckpointMismatchError` if the database does not continue where the checkpoint does: Spark's numbers begin at 0
    and have no gaps.
    """
    known, runs = tables.applied_batches.c, tables.runs.c
    newest = connection.execute(
        select(known.batch_id).where(known.checkpoint_id == checkpoint_id).with_for_update()
    ).scalar()
    writer = connection.execute(select(runs.checkpoint_id).where(runs.cluster == clean(cluster, 255))).scalar()
    if newest is not None and writer != checkpoint_id:
        since = f"another run has gone on, with {writer}," if writer else "serve has forgotten the cluster"
        raise CheckpointMismatchError(f"{since} since {checkpoint_id} was written last")
    last = -1 if newest is None else newest
    if batch_id not in (last, last + 1):
        at = "none of its batches" if newest is None else f"its batch {newest}"
        found = f"{checkpoint_id} is at batch {batch_id}, but the database has {at}"
        behind = "the database is another one, was restored, or has lost its newest batches"
        why = behind if batch_id > last else "the checkpoint was restored or emptied"
        raise CheckpointMismatchError(f"{found}: {why}")
    if newest == batch_id:
        return False
    row = {"checkpoint_id": checkpoint_id, "batch_id": batch_id, "applied_ms": applied_ms}
    upsert(connection, tables.applied_batches, [row], changing=("batch_id", "applied_ms"))
    return True


def _alive(
    connection: Connection, cluster: str, checkpoint_id: str, batch_id: int, alive_ms: int, caught_up: bool
) -> bool:
    """Write a cluster's progress; return True if this is the batch with which the checkpoint caught up."""
    known = tables.runs.c
    before = connection.execute(select(known.caught_up, known.checkpoint_id).where(known.cluster == cluster)).first()
    row = {
        "cluster": cluster,
        "checkpoint_id": checkpoint_id,
        "batch_id": batch_id,
        "alive_ms": alive_ms,
        "caught_up": caught_up,
        "starts": False,
    }
    upsert(connection, tables.runs, [row], changing=[name for name in row if name != "cluster"])
    return caught_up and before is not None and (not before.caught_up or before.checkpoint_id != checkpoint_id)


def _write_history(
    connection: Connection, reports: Iterable[GroupReport], settled: Mapping[str, int], *, is_first_reading: bool
) -> generations.Changes:
    """Write which generations have settled; nothing if a cluster's log is read for the first time."""
    load_before = partial(generations.load_before, connection)
    history = generations.changes([] if is_first_reading else reports, settled, load_before)
    generations.write_changes(connection, history)
    return history


def _write_counts(
    connection: Connection, cluster: str, counts: Counter[str], transitions: Sequence[PolicyTransition]
) -> None:
    counts = counts + incident_rows.incident_counts(transitions)
    batch.write_counters(connection, {clean(cluster, 255): counts})


def _write_incidents(
    connection: Connection,
    reports: Sequence[GroupReport],
    opened: OpenIncidents,
    settings: Settings,
    *,
    caught_up: bool = True,
    now_ms: int,
    late_before_ms: int,
) -> tuple[list[PolicyTransition], OpenIncidents]:
    """Judge reports and write the transitions; return these, and the changed entries of `opened`."""
    ended_ms = incident_rows.ended_ms(connection, reports, opened)
    transitions, changed = batch.judge(reports, opened, settings, ended_ms, reads_anew=not caught_up)
    incident_rows.write_transitions(connection, transitions, now_ms=now_ms, late_before_ms=late_before_ms)
    return transitions, changed


def _vanished(
    connection: Connection,
    cluster: str,
    checkpoint_id: str,
    opened: OpenIncidents,
    at_ms: int,
) -> list[GroupReport]:
    """Delete groups that a fresh checkpoint, now caught up, has not seen; report them deleted, so incidents close.

    Their tombstones may have been compacted away while nobody read them.
    """
    known = tables.groups.c
    foreign = (known.cluster == clean(cluster, 255)) & (known.checkpoint_id != checkpoint_id)
    connection.execute(delete(tables.groups).where(foreign))
    lags = tables.lags.c
    foreign = (lags.cluster == clean(cluster, 255)) & (lags.checkpoint_id != checkpoint_id)
    connection.execute(delete(tables.lags).where(foreign))
    keys = {group_key(cluster, group): group for _, group in opened if group}
    present = existing(connection, known.group_key, keys)
    gone = [keys[key] for key in sorted(keys.keys() - present)]
    newest_ms = {group: max(incident.at_ms for incident in opened[cluster, group].values()) for group in gone}
    return [
        GroupReport(cluster=cluster, group=group, at_ms=max(at_ms, newest_ms[group]), deleted=True) for group in gone
    ]


def _concerning(reports: Sequence[GroupReport], opened: OpenIncidents) -> list[GroupReport]:
    """Return the reports of groups that have an open incident or a finding: the others change no incident."""
    keys = opened.keys() | {(report.cluster, report.group) for report in reports if report.findings}
    return [report for report in reports if (report.cluster, report.group) in keys]


def _held(report: GroupReport, checkpoint_id: str) -> GroupReport:
    """Qualify the holder of incidents: an operator key has a meaning only within its checkpoint."""
    return replace(report, holder=f"{checkpoint_id}/{report.holder}")


def _found_again_within_ms(opened: OpenIncidents, settings: Settings) -> int:
    """Return how soon a checkpoint that has caught up finds the trouble of open incidents again, if it goes on.

    The rules count from the instant at which the checkpoint begins. A group's setup takes longest: it is checked within
    twice `settled_after_ms`.
    """
    of_groups = [settings.policy_for(group).thresholds for _, group in opened]
    slowest_ms = (max(t.settled_after_ms, t.rebalance_slow_ms, t.telemetry_stalled_ms) for t in of_groups)
    return 2 * max(slowest_ms, default=0)


def _released(cluster: str, checkpoint_id: str, opened: OpenIncidents, at_ms: int) -> list[GroupReport]:
    """Release incidents for the holders of other checkpoints, which will never release them.

    Incidents that this checkpoint has found again are held by itself and stay open.
    """
    foreign = {
        (group, holder)
        for (_, group), incidents in opened.items()
        for incident in incidents.values()
        for holder in incident.holders
        if not holder.startswith(f"{checkpoint_id}/")
    }
    return [
        GroupReport(cluster=cluster, group=group, at_ms=at_ms, holder=holder, reason="superseded")
        for group, holder in sorted(foreign)
    ]


def _delays_ms(transitions: list[PolicyTransition], now_ms: int, late_before_ms: int) -> list[int]:
    return [
        incident_rows.delay_ms(transition, now_ms)
        for transition, _ in transitions
        if transition.kind == "opened" and transition.at_ms >= late_before_ms
    ]

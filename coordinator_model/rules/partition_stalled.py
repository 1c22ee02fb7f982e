"""``partition-stalled``: messages wait in a partition, its owner is alive, and the partition is not committed.

There is one finding for each partition. A member that commits nothing at all, or has many stalled partitions, has one
finding for all of them.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any

from coordinator_model.lag.lag_context import LagContext, Row
from coordinator_model.lag.stall import STALLED, Note, owner_key
from coordinator_model.rules.about_lag import Pending, about_group, places, two_digits
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.rule import Rule
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.wording import counted, seconds

PARTITION_STALLED = Rule(
    id="partition-stalled",
    severities=(Severity.WARN,),
    evidence="observed",
    true_when=(
        "a member is alive and owns a partition, and at least `stall_lag` messages wait in it. The member has not"
        " committed it for `stall_intervals` of its usual intervals between commits plus `stall_margin_ms`, but keeps"
        " up with another partition. Or the member commits nothing at all for longer than its `max.poll.interval.ms`"
        " (`stall_silence_ms` if that is not known). The time starts again after a rebalance and after an outage of"
        " brokers"
    ),
    clears=(
        "`recovered` (the partition is committed, or nothing waits in it), `superseded` (its owner's session ended, or"
        " it has another owner), `group-deleted`"
    ),
    thresholds=("stall_intervals", "stall_margin_ms", "stall_silence_ms", "stall_lag"),
    needs_owner=True,
)

SINGLE_PARTITIONS = 8
"""If an owner has more stalled partitions than this, one finding names them all."""


def judge(context: LagContext) -> Iterator[Finding]:
    """Yield the findings, owner by owner."""
    if not context.works:
        return
    stalled: dict[Hashable, list[Row]] = defaultdict(list)
    for row in context.rows:
        if row.stall.note in STALLED:
            stalled[owner_key(row.p)].append(row)
    for rows in stalled.values():
        if rows[0].stall.note is Note.SILENT or len(rows) > SINGLE_PARTITIONS:
            yield _finding(context, rows, _owner_subject(context, rows[0]))
        else:
            yield from (_finding(context, [row], row.place) for row in rows)


def pending(context: LagContext) -> Iterator[Pending]:
    """Yield what may be stalled although there is no finding: a rebalance is too recent, or an offset is not known."""
    waiting = [row for row in context.rows if row.stall.waits or not row.fresh]
    yield from ((PARTITION_STALLED.id, row.place, row.last_ms) for row in waiting)
    if not waiting:
        return
    newest_ms: dict[str, int] = defaultdict(int)
    for row in context.rows:
        subject = _owner_subject(context, row)
        newest_ms[subject] = max(newest_ms[subject], row.last_ms)
    for subject in sorted({_owner_subject(context, row) for row in waiting}):
        yield PARTITION_STALLED.id, subject, newest_ms[subject]


def _owner_subject(context: LagContext, row: Row) -> str:
    owner = row.p.owner
    return context.facts.group if owner is None else owner.instance_id or owner.member_id


def _finding(context: LagContext, rows: list[Row], subject: str) -> Finding:
    first = min(rows, key=lambda row: row.stall.since_ms)
    owner, note = first.p.owner, first.stall.note
    who: dict[str, Any] = {}
    if owner is not None:
        who = {name: getattr(owner, name) for name in ("member_id", "instance_id", "client_id", "client_host")}
        who["generation"] = owner.generation
    return Finding(
        rule=PARTITION_STALLED.id,
        severity=PARTITION_STALLED.severity,
        opened_ms=max(row.stall.since_ms for row in rows) if note is Note.SILENT else first.stall.since_ms,
        at_ms=min(row.stall.due_ms for row in rows),
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=_summary(context, rows),
        partitions=places(rows),
        detail=_detail(context, rows, first),
        **about_group(context, subject) | who,
    )


def _summary(context: LagContext, rows: list[Row]) -> str:
    owner, note = rows[0].p.owner, rows[0].stall.note
    one = len(rows) == 1
    what, them = (rows[0].place, "it") if one else (counted(len(rows), "partition"), "them")
    lag = f"lag is at least {two_digits(sum(row.lag or 0 for row in rows)):,}"
    usual = f"the usual interval between commits was {seconds(rows[0].stall.interval_ms)}"
    why = f"{'it is' if one else 'they are'} stuck, or paused by the client"  # it looks the same from outside
    if owner is None:
        return f"{context.facts.group} does not commit {what}: {lag}, {usual}; {why}"
    host = f" on {owner.client_host}" if owner.client_host else ""
    who = f"{owner.member_id} (client {owner.client_id or 'unknown'}{host})"
    does = "the member commits nothing" if note is Note.SILENT else "the member commits other partitions"
    return f"{who} is alive, owns {what} and does not commit {them}: {lag}, {does}, {usual}; {why}"


def _detail(context: LagContext, rows: list[Row], first: Row) -> dict[str, Any]:
    p, facts = first.p, context.facts
    return {
        "note": first.stall.note,
        "stalled": len(rows),
        "lag": two_digits(sum(row.lag or 0 for row in rows)),
        "committed_offset": p.commits[-1].offset,
        "committed_ms": first.last_ms,
        "interval_ms": first.stall.interval_ms,
        "waits_since_ms": p.waits_since_ms,
        "owned_since_ms": None if p.owner is None else p.owner.since_ms,
        "stable_since_ms": facts.stable_since_ms,
        "rebalance_reason": facts.reason,
    }

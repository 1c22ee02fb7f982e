"""A group's partitions as columns, which are stored, served and drawn: lists of JSON values, of bounded length."""

from collections.abc import Sequence
from typing import Any

from coordinator_model.lag.lag_context import LagContext, Row
from coordinator_model.lag.partition import PartitionLag
from coordinator_model.lag.status import committed_offset_of, lag_ms_by
from coordinator_model.lag.topic_sums import topic_sums, worst_sums

MAX_ROWS = 5_000
"""If a group has more partitions, the worst are kept and the others are only counted."""
MAX_HISTORY = 60
"""How many points the sparkline has at most."""

Columns = dict[str, Any]


def columns_of(context: LagContext, commits: int = 0) -> Columns:
    """Return the columns of a group. Totals are those of all rows, including the rows that are left out.

    If rows are left out, the columns also have the sums of each topic; otherwise these can be computed from the rows.
    """
    columns = _columns(context, context.rows, commits)
    left_out = len(context.rows) - MAX_ROWS
    if left_out <= 0:
        return columns
    sums = topic_sums(columns)
    kept = worst_sums(sums)
    told = {"left_out": left_out, "sums": [list(of_topic) for of_topic in kept], "sums_left_out": len(sums) - len(kept)}
    return _columns(context, _worst(context.rows), commits) | told


def _columns(context: LagContext, rows: Sequence[Row], commits: int) -> Columns:
    partitions = [row.p for row in rows]
    return {
        "topics": _topics(partitions),
        "partition": [p.partition for p in partitions],
        "committed_offset": [committed_offset_of(p) for p in partitions],
        "committed_ms": [p.commits[-1].at_ms if p.commits else None for p in partitions],
        "start_offset": [p.start_offset for p in partitions],
        "end_offset": [p.end_offset for p in partitions],
        "lag": [row.lag for row in rows],
        "lag_ms": [lag_ms_by(row.p, row.lag, context.now_ms) for row in rows],
        "status": [row.status.value for row in rows],
        "rate": [rate_of(p, context.now_ms) for p in partitions],
        "owned_since_ms": [None if p.owner is None else p.owner.since_ms for p in partitions],
        "leader_epoch": [p.leader_epoch if p.leader_epoch >= 0 else None for p in partitions],
        "note": {str(at): row.stall.note.value for at, row in enumerate(rows) if row.stall.note is not None},
        "metadata": {str(at): p.metadata for at, p in enumerate(partitions) if p.metadata},
        "asked_ms": max((row.p.asked_ms for row in context.rows if row.p.asked_ms is not None), default=None),
        "history": history_of(context),
        "commits": commits,
        **_owners(partitions),
    }


def _worst(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the worst rows, in their original order."""
    by_badness = sorted(range(len(rows)), key=lambda at: (-rows[at].status.rank, -(rows[at].lag or 0), at))
    return [rows[at] for at in sorted(by_badness[:MAX_ROWS])]


def _topics(partitions: Sequence[PartitionLag]) -> list[list[Any]]:
    """Return each topic with its id, if a commit names it, and its number of rows."""
    topics: list[list[Any]] = []
    for p in partitions:
        if not topics or topics[-1][0] != p.topic:
            topics.append([p.topic, None, 0])
        topics[-1][1] = topics[-1][1] or p.topic_id
        topics[-1][2] += 1
    return topics


def _owners(partitions: Sequence[PartitionLag]) -> Columns:
    """Return the owners, each once, and for each row the index of its owner."""
    known = {(p.owner.member_id, p.owner.generation): p.owner for p in partitions if p.owner is not None}
    index = {key: at for at, key in enumerate(sorted(known))}
    listed = [known[key] for key in index]
    return {
        "owner": [None if p.owner is None else index[p.owner.member_id, p.owner.generation] for p in partitions],
        "owners": [[o.member_id, o.instance_id, o.client_id, o.client_host, o.generation] for o in listed],
    }


def rate_of(p: PartitionLag, now_ms: int) -> float | None:
    """Return messages a second committed since the window began; None: too few commits, or the offset went back."""
    if len(p.commits) < 2:
        return None
    first, last = p.commits[0], p.commits[-1]
    span_ms = max(now_ms, last.at_ms) - first.at_ms
    if span_ms <= 0 or last.offset < first.offset:
        return None
    return round((last.offset - first.offset) * 1_000 / span_ms, 3)


def history_of(context: LagContext) -> list[list[int]]:
    """Return the points of the sparkline: the lags at earlier rounds and now."""
    points = [[at_ms, lag] for at_ms, lag in context.history]
    if context.read is not None:
        points.append([context.now_ms, context.read])
    return points[-MAX_HISTORY:]

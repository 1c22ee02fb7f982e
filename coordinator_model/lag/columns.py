"""A group's partitions as columns: what is stored, served and drawn. JSON-able, bounded, a list a column."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from coordinator_model.lag.partition import Owner, PartitionLag
from coordinator_model.lag.scene import Row, Scene
from coordinator_model.lag.status import committed_offset_of, lag_ms_of

MAX_ROWS = 5_000
"""The worst of a group that has more; the others are counted."""
MAX_HISTORY = 60
"""Points of the sparkline."""

Columns = dict[str, Any]


class _OwnerRow(NamedTuple):
    """What is told of an owner, once for all of its partitions."""

    member_id: str
    instance_id: str | None
    client_id: str | None
    client_host: str | None
    generation: int


def columns_of(scene: Scene, commits: int = 0) -> Columns:
    """Return the columns of a group; its totals are of all rows, also of those that are left out."""
    rows = _worst(scene.rows)
    owners = sorted({_owner_row(row.p.owner) for row in rows if row.p.owner is not None}, key=repr)
    index = {owner: at for at, owner in enumerate(owners)}
    columns: Columns = {"topics": _topics(rows)}
    columns |= {name: [read(row, scene.now_ms) for row in rows] for name, read in _COLUMNS}
    columns |= {
        "owner": [None if row.p.owner is None else index[_owner_row(row.p.owner)] for row in rows],
        "owners": [list(owner) for owner in owners],
        "note": {str(at): row.stall.note.value for at, row in enumerate(rows) if row.stall.note is not None},
        "metadata": {str(at): row.p.metadata for at, row in enumerate(rows) if row.p.metadata},
        "asked_ms": max((row.p.asked_ms for row in scene.rows if row.p.asked_ms is not None), default=None),
        "history": _history(scene),
        "commits": commits,
    }
    left_out = len(scene.rows) - len(rows)
    return columns | {"left_out": left_out} if left_out else columns


def _worst(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the worst rows, in their order."""
    if len(rows) <= MAX_ROWS:
        return rows
    by_badness = sorted(range(len(rows)), key=lambda at: (-rows[at].status.rank, -(rows[at].lag or 0), at))
    return [rows[at] for at in sorted(by_badness[:MAX_ROWS])]


def _topics(rows: Sequence[Row]) -> list[list[Any]]:
    """Return each topic with its id, as far as a commit tells it, and how many of the rows are its."""
    topics: list[list[Any]] = []
    for row in rows:
        if not topics or topics[-1][0] != row.p.topic:
            topics.append([row.p.topic, None, 0])
        topics[-1][1] = topics[-1][1] or row.p.topic_id
        topics[-1][2] += 1
    return topics


def _owner_row(owner: Owner) -> _OwnerRow:
    return _OwnerRow(*(getattr(owner, name) for name in _OwnerRow._fields))


def rate_of(p: PartitionLag, now_ms: int) -> float | None:
    """Return messages a second committed since the window began; None: too few commits, or the offset went back."""
    if len(p.commits) < 2:
        return None
    first, last = p.commits[0], p.commits[-1]
    span_ms = max(now_ms, last.at_ms) - first.at_ms
    if span_ms <= 0 or last.offset < first.offset:
        return None
    return round((last.offset - first.offset) * 1_000 / span_ms, 3)


def _history(scene: Scene) -> list[list[int]]:
    points = [[at_ms, lag] for at_ms, lag in scene.history]
    if scene.total is not None:
        points.append([scene.now_ms, scene.total])
    return points[-MAX_HISTORY:]


_COLUMNS: tuple[tuple[str, Callable[[Row, int], Any]], ...] = (
    ("partition", lambda row, _: row.p.partition),
    ("committed_offset", lambda row, _: committed_offset_of(row.p)),
    ("committed_ms", lambda row, _: row.last_ms if row.p.commits else None),
    ("start_offset", lambda row, _: row.p.start_offset),
    ("end_offset", lambda row, _: row.p.end_offset),
    ("lag", lambda row, _: row.lag),
    ("lag_ms", lambda row, now_ms: lag_ms_of(row.p, now_ms)),
    ("status", lambda row, _: row.status.value),
    ("rate", lambda row, now_ms: rate_of(row.p, now_ms)),
    ("owned_since_ms", lambda row, _: None if row.p.owner is None else row.p.owner.since_ms),
    ("leader_epoch", lambda row, _: row.p.leader_epoch if row.p.leader_epoch >= 0 else None),
)

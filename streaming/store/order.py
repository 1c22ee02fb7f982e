"""The order of groups everywhere: open `page` incidents first, then open `warn`, then the least headroom.

The page, the API, `watch` and the bounded metrics all use this order, so that none of them leaves out a group that
somebody was paged for.
"""

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, case, func, select

from streaming.store import tables

WORST_FIRST: Final = ("page", "warn", "info")
_KNOWN: Final = tables.groups.c
_OPEN: Final = tables.incidents.c.closed_ms.is_(None)
_SEVERITY: Final = tables.incidents.c.severity


def severity_rank() -> ColumnElement[int]:
    """Return an incident's severity as a number; 0 is the worst."""
    return case({name: number for number, name in enumerate(WORST_FIRST)}, value=_SEVERITY, else_=len(WORST_FIRST))


def worst_first(groups: Select[Any], *, counted: bool = False) -> Select[Any]:
    """Order a statement over `tables.groups`; equal groups by name, then key, so that pages do not overlap.

    `counted`: the statement also selects how many `pages` and `warnings` of a group are open.
    """
    key = tables.incidents.c.group_key
    counts = (func.count().filter(_SEVERITY.in_((name,))).label(name) for name in ("page", "warn"))
    opened = select(key, *counts).where(_OPEN, _SEVERITY.in_(("page", "warn"))).group_by(key).subquery("opened")
    pages, warnings = func.coalesce(opened.c.page, 0), func.coalesce(opened.c.warn, 0)
    trouble = case((pages > 0, 0), (warnings > 0, 1), else_=2)
    if counted:
        groups = groups.add_columns(pages.label("pages"), warnings.label("warnings"))
    joined = groups.outerjoin_from(tables.groups, opened, opened.c.group_key == _KNOWN.group_key)
    return joined.order_by(trouble, _least_headroom(), _KNOWN.cluster, _KNOWN.group_id, _KNOWN.group_key)


def _least_headroom() -> ColumnElement[float]:
    """Return the lesser of a group's two headrooms. An unknown one counts as 1."""
    heartbeat = func.coalesce(_KNOWN.worst_headroom, 1.0)
    poll = func.coalesce(_KNOWN.worst_poll_headroom, 1.0)
    return case((poll < heartbeat, poll), else_=heartbeat)

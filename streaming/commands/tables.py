"""Tables of groups, members and incidents for the terminal; strangers' strings are plain text in them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.commands.remote import instant, shown

STYLES = {"page": "bold red", "warn": "yellow", "violated": "bold red", "unknown": "dim"}
BAR = 10
PIPED_COLUMNS = 240


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Make a table; severities and liveness have colours."""
    made = Table(title=Text(title), title_justify="left")
    for column in columns:
        made.add_column(Text(column))
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else _text(cell) for cell in row))
    return made


def _text(value: object) -> Text:
    text = shown(value)
    return Text(text, style=STYLES.get(text, ""), overflow="fold")


def bar(headroom: float | None) -> Text:
    """Show how much of a session timeout is left."""
    if headroom is None:
        return Text("")
    full = round(max(0.0, min(1.0, headroom)) * BAR)
    style = "red" if headroom < 1 / 3 else "green"
    return Text("█" * full + "░" * (BAR - full) + f" {headroom:.0%}", style=style)


def incidents_table(title: str, incidents: Iterable[Mapping[str, Any]]) -> Table:
    """Show incidents, a line each."""
    rows = (
        (instant(i["opened_ms"]), i["severity"], i["rule"], i["group"] or i["cluster"], i["summary"], _end(i))
        for i in incidents
    )
    return table(title, ("opened (UTC)", "severity", "rule", "group", "what happened", "closed"), rows)


def _end(incident: Mapping[str, Any]) -> str:
    return f"{instant(incident['closed_ms'])} {incident.get('reason')}" if incident["closed_ms"] else "open"


def groups_table(title: str, groups: Iterable[Mapping[str, Any]]) -> Table:
    """Show groups, a line each, with the least headroom of any member."""
    rows = (
        (g["cluster"], g["group"], g["type"], g["state"], g["generation"], len(g["members"]), bar(worst_headroom(g)))
        for g in groups
    )
    return table(title, ("cluster", "group", "type", "state", "generation", "members", "worst headroom"), rows)


def worst_headroom(group: Mapping[str, Any]) -> float | None:
    """Return the least headroom of a group's members."""
    return min((h for m in group["members"] if (h := m.get("heartbeat_headroom")) is not None), default=None)


def members_table(group: Mapping[str, Any]) -> Table:
    """Show a group's members."""
    rows = (
        (
            m["member_id"],
            m["instance_id"],
            f"{shown(m['client_id'])} ({shown(m.get('client_software')) or 'library unknown'})",
            m["client_host"],
            m["liveness"],
            bar(m.get("heartbeat_headroom")),
            "; ".join(f"{a['topic']} {', '.join(map(str, a['partitions']))}" for a in m["assignment"]),
        )
        for m in group["members"]
    )
    columns = ("member", "instance", "client", "host", "liveness", "headroom", "assignment")
    return table(f"members ({len(group['members'])})", columns, rows)


def console() -> Console:
    """Make a console that interprets nothing it is given; what is piped into a file has room."""
    made = Console(markup=False, emoji=False, highlight=False, soft_wrap=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPED_COLUMNS
    return made

"""Tables of groups, members and incidents for the terminal. Strings that clients choose are shown as plain text."""

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from coordinator_model.lag.status import Status
from streaming.commands.remote import instant
from streaming.terminal_text import shown

STYLES = {"page": "bold red", "warn": "yellow", "violated": "bold red", "unknown": "dim"}
STYLES |= dict.fromkeys(("stop", "stall", "rewind"), "yellow")
BADNESS = {status.value: -status.rank for status in Status if status not in (Status.OK, Status.UNKNOWN)}
BAR = 10
HEAD_SHOWN = 60
INDENT = 4
PARTITIONS_SHOWN = 30
PIPED_COLUMNS = 240
WIDE_COLUMNS = 120
"""The least width at which a table of incidents or members has room for its texts."""


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Make a table in which severities and liveness are colored."""
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


class ByWidth(NamedTuple):
    """A table if the console is wide enough for it, else a block of lines for each of its rows."""

    wide: Table
    narrow: Group

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        yield self.wide if options.max_width >= WIDE_COLUMNS else self.narrow


def blocks(title: str, rows: Iterable[tuple[Text, Sequence[Text]]]) -> Group:
    """Show each row as a heading and indented lines."""
    parts: list[Text | Padding] = [Text(title, "italic")]
    for head, details in rows:
        parts.append(head)
        parts += [Padding(line, (0, 0, 0, INDENT)) for line in details if line.plain]
    return Group(*parts)


def incidents_table(title: str, incidents: Sequence[Mapping[str, Any]]) -> ByWidth:
    """Show incidents, one per row."""
    rows = (
        (instant(i["opened_ms"]), i["severity"], i["rule"], i["group"] or i["cluster"], i["summary"], _end(i))
        for i in incidents
    )
    columns = ("opened (UTC)", "severity", "rule", "group", "what happened", "closed")
    return ByWidth(table(title, columns, rows), blocks(title, map(_incident_block, incidents)))


def _incident_block(incident: Mapping[str, Any]) -> tuple[Text, list[Text]]:
    severity, group = str(incident["severity"]), incident["group"] or incident["cluster"]
    head = Text(f"{instant(incident['opened_ms'])}  ") + Text(f"{severity:4}", STYLES.get(severity, ""))
    closed = Text(f"closed {_end(incident)}" if incident["closed_ms"] else "")
    return head + Text(f"  {shown(incident['rule'])}  {shown(group)}"), [_text(incident["summary"]), closed]


def _end(incident: Mapping[str, Any]) -> str:
    return f"{instant(incident['closed_ms'])} ({incident.get('reason')})" if incident["closed_ms"] else "open"


def groups_table(title: str, groups: Sequence[Mapping[str, Any]]) -> ByWidth:
    """Show groups, one per row, with the least headroom of their members."""
    rows = [
        (g["cluster"], g["group"], _opened(g), g["type"], g["state"], g["generation"],
         max(len(g["members"]), g.get("members_total", 0)), _lag_of(g),
         _bar_of(g))
        for g in groups
    ]  # fmt: skip
    columns = ("cluster", "group", "open incidents", "type", "state", "generation", "members", "lag", "worst headroom")
    several = len({group["cluster"] for group in groups}) > 1
    short = [(f"{g[1]} ({g[0]})" if several else g[1], g[2], g[4], g[6], g[7], g[8]) for g in rows]
    narrow = table(title, ("group", "open", "state", "members", "lag", "headroom"), short)
    return ByWidth(table(title, columns, rows), Group(narrow))


def _opened(group: Mapping[str, Any]) -> Text:
    """Show how many incidents of a group are open, the worst severity first."""
    opened = group.get("open_incidents") or {}
    parts = [f"{opened[severity]} {severity}" for severity in ("page", "warn", "info") if severity in opened]
    return Text(", ".join(parts), style=STYLES.get(parts[0].split()[1], "") if parts else "")


def _lag_of(group: Mapping[str, Any]) -> Text:
    """Show the lag of a group, and its status if that is not ok."""
    lag, status = group.get("lag"), group.get("lag_status")
    parts = ["" if lag is None else f"{lag:,}", "" if status in (None, "ok") else shown(status)]
    return Text(" ".join(filter(None, parts)), style=STYLES.get(str(status), ""))


def _bar_of(group: Mapping[str, Any]) -> Text:
    return bar(worst_headroom(group))


def worst_headroom(group: Mapping[str, Any]) -> float | None:
    """Return the least headroom of a group's members."""
    return min((h for m in group["members"] if (h := m.get("heartbeat_headroom")) is not None), default=None)


def members_table(group: Mapping[str, Any]) -> ByWidth:
    """Show a group's members."""
    title = f"members ({_counted(len(group['members']), group.get('members_total', 0))})"
    columns = ("member", "instance", "client", "host", "liveness", "headroom", "assignment")
    rows = [
        (
            m["member_id"],
            m["instance_id"],
            f"{shown(m['client_id'])} ({shown(m.get('client_software')) or 'library unknown'})",
            m["client_host"],
            m["liveness"],
            bar(m.get("heartbeat_headroom")),
            _assigned(m),
        )
        for m in group["members"]
    ]
    return ByWidth(table(title, columns, rows), blocks(title, map(_member_block, rows)))


def _assigned(member: Mapping[str, Any]) -> str:
    parts = [f"{held['topic']} {', '.join(map(str, held['partitions']))}" for held in member["assignment"]]
    left_out = member.get("partitions_left_out")
    return "; ".join([*parts, f"{left_out:,} more"] if left_out else parts)


def _counted(shown: int, total: int) -> str:
    return f"showing {shown:,} of {total:,}" if shown < total else f"{shown:,}"


def _member_block(row: tuple[Any, ...]) -> tuple[Text, list[Text]]:
    member, instance, client, host, liveness, headroom, assignment = row
    head = _text(member) + Text("  ") + _text(liveness) + Text("  ") + headroom
    details = (instance and f"instance {instance}", f"{client} at {host}", assignment)
    return head, [_text(detail) for detail in details if detail]


def partitions_table(lag: Mapping[str, Any]) -> ByWidth:
    """Show the partitions of a group that have a lag or a status other than ok, the worst first."""
    behind = [row for row in lag["partitions"] if row["lag"] != 0 or row["status"] != "ok"]
    behind.sort(key=lambda row: (BADNESS.get(row["status"], 0), -(row["lag"] or 0)))
    rows = [_partition_cells(row) for row in behind[:PARTITIONS_SHOWN]]
    every = len(lag["partitions"]) + lag.get("left_out", 0)
    total = "lag not known" if lag.get("lag") is None else f"lag {lag['lag']:,}"
    cut = f", the worst {len(rows)} shown" if len(rows) < len(behind) + lag.get("left_out", 0) else ""
    title = f"{total}, {len(behind):,} of {every:,} partitions behind or not known{cut}"
    columns = ("partition", "lag", "status", "a second", "last commit (UTC)", "owner", "host")
    return ByWidth(table(title, columns, rows), blocks(title, map(_partition_block, rows)))


def _partition_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    status = f"{row['status']} ({row['note']})" if row.get("note") else row["status"]
    lag = "not known" if row["lag"] is None else f"{row['lag']:,}"
    rate = "" if row.get("rate") is None else f"{row['rate']:,}"
    committed = "never" if row["committed_ms"] is None else instant(row["committed_ms"])
    place = f"{row['topic']}-{row['partition']}"
    return place, lag, status, rate, committed, row["owner"] or "nobody", row["owner_host"] or ""


def _partition_block(row: tuple[str, ...]) -> tuple[Text, list[Text]]:
    place, lag, status, rate, committed, owner, host = row
    by = f"owned by {owner}{f' at {host}' if host else ''}"
    times = f"last commit {committed}{f', {rate} messages a second' if rate else ''}"
    return _text(f"{place}  lag {lag}  {status}"), [_text(by), _text(times)]


def quarantine_table(title: str, rows: Sequence[Mapping[str, Any]]) -> ByWidth:
    """Show rejected rows."""
    columns = ("timestamp (UTC)", "source", "topic", "partition", "offset", "reason", "begins with")
    names = ("source", "topic", "partition", "offset", "reason")
    cells = [(instant(row["timestamp_ms"]), *(row[name] for name in names), _head(row)) for row in rows]
    return ByWidth(table(title, columns, cells), blocks(title, map(_quarantine_block, cells)))


def _quarantine_block(cells: tuple[Any, ...]) -> tuple[Text, list[Text]]:
    at, _, topic, partition, offset, reason, begin = cells
    return Text(f"{at}  {shown(topic)}-{partition} offset {offset}"), [_text(reason), _text(begin)]


def _head(row: Mapping[str, Any]) -> str:
    return base64.b64decode(row["head"])[:HEAD_SHOWN].decode("utf-8", "backslashreplace")


def console() -> Console:
    """Make a console that does not interpret markup in its input, and is wide when it writes to a file or pipe."""
    made = Console(markup=False, emoji=False, highlight=False, soft_wrap=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPED_COLUMNS
    return made

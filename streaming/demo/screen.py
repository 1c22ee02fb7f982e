"""The demo's display: a live table on a terminal, plain lines elsewhere. Clients' strings are shown as plain text."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coordinator_model.wording import counted
from streaming.demo.verdict import OK, Row

BAR_CELLS: Final = 12
PLAIN_STATUS_S: Final = 10.0
PLAIN_WIDTH: Final = 170
WIDE_COLUMNS: Final = 130
"""The least width at which the tables have room for member ids and names of rules."""
LOW_HEADROOM: Final = 1 / 3  # where `session-at-risk` begins
_STYLES: Final = {"info": "cyan", "warn": "yellow", "page": "bold red", "closed": "green"}


class Screen:
    """A context manager that prints to the terminal. Each line begins with the seconds since it was created."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, emoji=False)
        if not self._console.is_terminal:
            self._console.width = PLAIN_WIDTH
        self._box = box.ROUNDED if self._console.is_terminal else box.SIMPLE
        self._started_s = time.monotonic()
        self._status_s = self._started_s
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()

    def rest(self) -> None:
        """Remove the live table."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str, style: str = "") -> None:
        """Print a line."""
        elapsed = f"{time.monotonic() - self._started_s:5.0f} s  "
        self._console.print(Text(elapsed, "dim") + Text(text, style), soft_wrap=True)

    def alert(self, alert: Mapping[str, Any]) -> None:
        """Print an alert as it was delivered."""
        transition, severity = alert["transition"], alert["severity"]
        if transition == "closed":
            text = f"  closed  {alert['rule']} {alert['group']}: {alert['client_id']} ({alert['reason']})"
        else:
            began_ms = alert["deadline_ms"] or alert["at_ms"]
            after_s = (alert["delivered_ms"] - began_ms) / 1000
            kind = "ALERT" if transition == "opened" else "ESCALATED"
            text = (
                f"  {kind}  {severity} {alert['rule']} {alert['group']}: {alert['summary']}\n"
                f"           member {alert['member_id']}, host {alert['client_host']}, cause {alert['cause']},"
                f" {alert['evidence']}; delivered {after_s:.1f} s after {_clock(began_ms)}"
            )
        self.say(text, _STYLES["closed" if transition == "closed" else severity])

    def update(self, groups: Sequence[Mapping[str, Any]], incidents: Sequence[Mapping[str, Any]]) -> None:
        """Show groups and incidents: at once in the table, or as a plain line every `PLAIN_STATUS_S`."""
        if self._live is not None:
            wide = self._console.width >= WIDE_COLUMNS
            self._live.update(_overview(groups, incidents, wide=wide), refresh=True)
        elif time.monotonic() - self._status_s >= PLAIN_STATUS_S:
            self._status_s = time.monotonic()
            stand = "; ".join(
                f"{g['group']} {g['state']} generation {g['generation']}, {counted(len(g['members']), 'member')}"
                for g in groups
            )
            self.say(f"{stand or 'no groups yet'}; {counted(len(incidents), 'open incident')}", "dim")

    def verdict(self, rows: Sequence[Row]) -> None:
        """Print the table of the verdict."""
        title = "What the broker's own log says, and what we said"
        if self._console.width < WIDE_COLUMNS:
            self._console.print(Text(title, "italic"))
            for row in rows:
                self._console.print(_block(row))
            return
        table = Table(title=title, title_justify="left", box=self._box)
        for heading in ("group", "member", "what", "broker log's time", "our time", "difference", ""):
            table.add_column(heading, overflow="fold", justify="right" if heading == "difference" else "left")
        for row in rows:
            times = (_clock(row.log_ms), _clock(row.our_ms), _difference(row))
            cells = (row.group, _member(row), row.what, *times, row.verdict)
            table.add_row(*map(Text, cells), style="" if row.verdict == OK else "bold red")
        self._console.print(table)


def _member(row: Row) -> str:
    return row.member_id if row.member_id.startswith(row.client_id) else f"{row.client_id} {row.member_id}"


def _difference(row: Row) -> str:
    return "" if row.difference_ms is None else f"{row.difference_ms / 1000:+.3f} s"


def _block(row: Row) -> Text:
    """Return a row of the verdict as lines, for a screen without room for a table."""
    times = f"log {_clock(row.log_ms)}, ours {_clock(row.our_ms)}, difference {_difference(row) or '-'}"
    lines = (f"{row.verdict:7}  {row.group}: {row.what}", f"         {_member(row)}", f"         {times}")
    return Text("\n".join(lines), "" if row.verdict == OK else "bold red")


def _overview(groups: Sequence[Mapping[str, Any]], incidents: Sequence[Mapping[str, Any]], *, wide: bool) -> Table:
    """Draw the groups. On a narrow screen, open incidents are below the state, and some columns are left out."""
    table = Table(title="groups, as the monitor sees them", title_justify="left")
    headings = ("group", "type", "state", "generation", "members", "heartbeat headroom", "open incidents")
    for heading in headings if wide else ("group", "state", "heartbeat headroom"):
        table.add_column(heading, overflow="fold")
    for group in groups:
        mine = Counter(incident["rule"] for incident in incidents if incident["group"] == group["group"])
        name, state = Text(str(group["group"])), Text(str(group["state"]))
        bars = Text("\n").join(_bar(member) for member in group["members"])
        found = [Text(f"{number} {rule}", "red") for rule, number in mine.items()]
        if wide:
            counts = (Text(str(group["generation"])), Text(str(len(group["members"]))))
            table.add_row(name, Text(str(group["type"])), state, *counts, bars, Text("\n").join(found))
        else:
            table.add_row(name, Text("\n").join([state, *found]), bars)
    return table


def _bar(member: Mapping[str, Any]) -> Text:
    """Return a bar of how much of its session timeout a member has left, with its name."""
    headroom, name = member["heartbeat_headroom"], str(member["client_id"])
    if headroom is None:
        return Text(f"{'·' * BAR_CELLS}    ?  {name}", "dim")
    full = round(headroom * BAR_CELLS)
    style = "green" if headroom > LOW_HEADROOM else "red"
    return Text("█" * full + "░" * (BAR_CELLS - full), style) + Text(f" {headroom:4.0%}  {name}")


def _clock(instant_ms: int | None) -> str:
    if instant_ms is None:
        return "-"
    return datetime.fromtimestamp(instant_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]

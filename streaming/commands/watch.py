"""`watch`: show all groups and open incidents in a full-screen table, and keep it current."""

import contextlib
import itertools
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from coordinator_model.wording import counted
from streaming.commands import remote
from streaming.commands.remote import Listing, Monitor, instant
from streaming.commands.seconds import Seconds
from streaming.terminal_text import shown

if TYPE_CHECKING:
    from rich.console import Console, Group

BLOCK_LINES: Final = 3  # of an incident, if the console is too narrow for a table
LEAST_ROWS: Final = 3  # however low the console is


@click.command("watch")
@click.option("--cluster", default=None, help="Only of this cluster.")
@click.option(
    "--every",
    "every_s",
    default=1.0,
    show_default=True,
    type=Seconds(0.2),
    help="Seconds between refreshes.",
)
@click.option("--times", default=None, type=click.IntRange(1), help="Stop after this many refreshes.")
@remote.options
def watch_command(*, cluster: str | None, every_s: float, times: int | None, url: str, as_json: bool) -> None:
    """Follow groups and open incidents, the worst first, with lag and headroom (share of the session timeout left).

    Ctrl-C ends it. --json prints one object per refresh.
    """
    from rich.live import Live

    from streaming.commands import tables

    monitor, out = Monitor(url), tables.console()

    def look() -> Look:
        limit = None if as_json else max(LEAST_ROWS, out.height)  # more than there is room for
        groups = monitor.listing("/api/v1/groups", has="members", cluster=cluster, limit=limit)
        chosen = {"state": "open", "sort": "severity", "cluster": cluster, "limit": limit}
        incidents = monitor.listing("/api/v1/incidents", has="incident_id", **chosen)
        return Look(time.time_ns() // 1_000_000, groups, incidents, monitor.not_current(cluster))

    looks = _looks(look, every_s, times)
    try:
        if as_json:
            for seen in looks:
                text = f"watch: {seen.problem}" if seen.problem else json.dumps(seen.as_json())
                click.echo(text, err=bool(seen.problem))
            return
        full_screen = out.is_terminal and times is None  # else the last look stays on the terminal
        if full_screen:  # else the terminal would be left without its cursor, and with what stood on it hidden
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        live = Live(_picture(next(looks), out), console=out, screen=full_screen, auto_refresh=False)
        try:
            with _unended():
                live.start()
            live.refresh()
            for seen in looks:
                live.update(_picture(seen, out), refresh=True)
        finally:
            with _unended():
                live.stop()
    except KeyboardInterrupt:
        pass


@contextlib.contextmanager
def _unended() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait: half a change of the terminal could not be taken back."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Look(NamedTuple):
    """The groups and open incidents at one instant."""

    at_ms: int
    groups: Listing
    incidents: Listing
    not_current: str = ""
    """Why the monitor's own answer is not current: its `run` makes no progress, say."""
    problem: str = ""
    """Why a later look failed, if it did."""

    def as_json(self) -> dict[str, Any]:
        """Return one line of `watch --json`; the totals show whether the lists are complete."""
        return {
            "at_ms": self.at_ms,
            "not_current": self.not_current or None,
            "groups": self.groups.objects,
            "groups_total": self.groups.total,
            "incidents": self.incidents.objects,
            "incidents_total": self.incidents.total,
        }


def _looks(look: Callable[[], Look], every_s: float, times: int | None) -> Iterator[Look]:
    """Look again and again. Only the first look may fail; after it, what was seen last stays, with the problem."""
    seen = look()
    yield seen
    for _ in range(1, times) if times else itertools.count():
        time.sleep(every_s)
        try:
            seen = look()
        except click.ClickException as error:
            seen = seen._replace(problem=error.message)
        yield seen


def _picture(seen: Look, out: "Console") -> "Group":
    """Show as much as the console has room for, and say how much that is."""
    from rich.console import Group, RenderableType
    from rich.text import Text

    from streaming.commands import tables

    rows = max(LEAST_ROWS, out.height - 12)
    lines_each = 1 if out.width >= tables.WIDE_COLUMNS else BLOCK_LINES
    incidents = seen.incidents.objects[: max(1, rows // 2 // lines_each)]
    left = max(1, rows - len(incidents) * lines_each)
    groups = seen.groups.objects[:left]  # the API gives the worst first
    title = f"{_count('group', groups, seen.groups)}, {_count('open incident', incidents, seen.incidents)}"
    parts: list[RenderableType] = [tables.groups_table(f"{title}, {instant(seen.at_ms)} UTC", groups)]
    if incidents:
        parts.insert(0, tables.incidents_table("open incidents, the worst first", incidents))
    if problem := seen.problem or seen.not_current:
        parts.insert(0, Text(f"not current: {shown(problem)}", style="bold red"))
    return Group(*parts)


def _count(what: str, drawn: Sequence[object], listing: Listing) -> str:
    total = counted(listing.total, what)
    return total if len(drawn) == listing.total else f"{len(drawn):,} of {total}"

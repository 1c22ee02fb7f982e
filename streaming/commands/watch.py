"""`watch`: the fleet in a full-screen table that follows it."""

import itertools
import json
import time
from typing import Any

import click

from streaming.commands import remote
from streaming.commands.remote import Monitor, instant

_SETTLED = frozenset({"Stable", "Empty", "Dead"})


@click.command("watch")
@click.option("--cluster", default=None)
@click.option("--every", "every_s", default=1.0, show_default=True, type=click.FloatRange(0.2), help="Seconds.")
@click.option("--times", default=None, type=click.IntRange(1), help="Stop after so many looks.")
@remote.options
def watch_command(*, cluster: str | None, every_s: float, times: int | None, url: str, as_json: bool) -> None:
    """Follow groups and open incidents, those in trouble first; Ctrl-C ends it. --json: one object a look."""
    from rich.console import Group
    from rich.live import Live

    from streaming.commands import tables

    monitor, out = Monitor(url), tables.console()

    def picture(seen: dict[str, Any]) -> Group:
        rows = max(3, out.height - 12)
        title = f"{len(seen['groups'])} groups, {len(seen['incidents'])} open incidents, {instant(seen['at_ms'])} UTC"
        groups = sorted(seen["groups"], key=_trouble)[: rows - min(len(seen["incidents"]), rows // 2)]
        parts = [tables.groups_table(title, groups)]
        if seen["incidents"]:
            parts.insert(0, tables.incidents_table("open incidents", seen["incidents"][: rows // 2]))
        return Group(*parts)

    def look() -> dict[str, Any]:
        return {
            "at_ms": time.time_ns() // 1_000_000,
            "groups": monitor.get("/api/v1/groups", cluster=cluster),
            "incidents": monitor.get("/api/v1/incidents", state="open", cluster=cluster),
        }

    looks = range(times) if times else itertools.count()
    try:
        if as_json:
            for number in looks:
                if number:
                    time.sleep(every_s)
                click.echo(json.dumps(look()))
            return
        first = look()
        with Live(picture(first), console=out, screen=out.is_terminal, auto_refresh=False) as live:
            for _ in itertools.islice(looks, 1, None):
                time.sleep(every_s)
                live.update(picture(look()), refresh=True)
    except KeyboardInterrupt:
        pass


def _trouble(group: dict[str, Any]) -> tuple[bool, bool, int]:
    """Order groups: a violated member first, then a rebalance, then the largest."""
    violated = any(member["liveness"] == "violated" for member in group["members"])
    return (not violated, group["state"] in _SETTLED, -len(group["members"]))

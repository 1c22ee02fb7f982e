"""`incidents`: list the incidents that a monitor has found."""

import click

from streaming.commands import remote
from streaming.commands.remote import Monitor


@click.command("incidents")
@click.option("--state", type=click.Choice(["open", "closed", "all"]), default=None, help="[default: open]")
@click.option("--cluster", default=None, help="Only of this cluster.")
@click.option("--group", default=None, help="Only of this group.")
@click.option("--rule", default=None, help="Only of this rule.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Show at most this many.")
@click.option(
    "--would-have-paged",
    is_flag=True,
    help='Only pages of groups with mode = "record", which were sent to nobody. All states unless --state.',
)
@remote.options
def incidents_command(
    *, state: str | None, would_have_paged: bool, url: str, as_json: bool, **filters: str | int | None
) -> None:
    """List incidents: open ones by severity, others newest first."""
    from streaming.commands import tables

    recorded = {"told": "false", "severity": "page"} if would_have_paged else {}
    chosen = state or ("all" if would_have_paged else "open")
    sort = "severity" if chosen == "open" else None
    wanted = {"state": chosen, "sort": sort, **filters, **recorded}
    found = Monitor(url).listing("/api/v1/incidents", has="incident_id", **wanted)
    if as_json:
        found.echo_json("incidents")
        return
    title = "would have paged" if would_have_paged else f"{chosen} incidents"
    tables.console().print(tables.incidents_table(found.title(title), found.objects))

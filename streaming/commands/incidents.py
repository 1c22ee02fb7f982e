"""`incidents`: what a monitor has found."""

import click

from streaming.commands import remote
from streaming.commands.remote import Monitor


@click.command("incidents")
@click.option("--state", type=click.Choice(["open", "closed", "all"]), default=None, help="Default: open.")
@click.option("--cluster", default=None)
@click.option("--group", default=None)
@click.option("--rule", default=None)
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000))
@click.option(
    "--would-have-paged",
    is_flag=True,
    help='Pages of groups with mode = "record": what would have woken somebody. All states unless --state.',
)
@remote.options
def incidents_command(
    *, state: str | None, would_have_paged: bool, url: str, as_json: bool, **filters: str | int | None
) -> None:
    """List incidents, newest first."""
    from streaming.commands import tables

    recorded = {"told": "false", "severity": "page"} if would_have_paged else {}
    chosen = state or ("all" if would_have_paged else "open")
    found = Monitor(url).listing("/api/v1/incidents", state=chosen, **filters, **recorded)
    if as_json:
        found.echo_json("incidents")
        return
    title = "would have paged" if would_have_paged else f"{chosen} incidents"
    tables.console().print(tables.incidents_table(found.title(title), found.objects))

"""`quarantine`: list the newest rejected rows."""

import click

from streaming.commands import remote
from streaming.commands.remote import Monitor


@click.command("quarantine")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000))
@remote.options
def quarantine_command(*, limit: int, url: str, as_json: bool) -> None:
    """List the newest rows that could not be read: where each lies in Kafka, why, and how it begins."""
    from streaming.commands import tables

    found = Monitor(url).listing("/api/v1/quarantine", has="reason", limit=limit)
    if as_json:
        found.echo_json("rows")
        return
    tables.console().print(tables.quarantine_table(found.title("quarantine"), found.objects))

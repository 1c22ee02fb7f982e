"""`quarantine`: rows that could not be understood."""

import base64

import click

from streaming.commands import remote
from streaming.commands.remote import Monitor, echo_json, instant

HEAD_SHOWN = 60


@click.command("quarantine")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000))
@remote.options
def quarantine_command(*, limit: int, url: str, as_json: bool) -> None:
    """List the newest rows that could not be understood, with where they lie and how they begin."""
    from streaming.commands import tables

    rows = Monitor(url).get("/api/v1/quarantine", limit=limit)
    if as_json:
        echo_json(rows)
        return
    columns = ("timestamp (UTC)", "source", "topic", "partition", "offset", "reason", "begins with")
    tables.console().print(
        tables.table(
            f"quarantine ({len(rows)})",
            columns,
            [
                (
                    instant(r["timestamp_ms"]),
                    r["source"],
                    r["topic"],
                    r["partition"],
                    r["offset"],
                    r["reason"],
                    _head(r),
                )
                for r in rows
            ],
        )
    )


def _head(row: dict[str, str]) -> str:
    return base64.b64decode(row["head"])[:HEAD_SHOWN].decode("utf-8", "backslashreplace")

"""`quality`: check the data now, and write great-expectations' Data Docs."""

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.commands.settings import settings_of
from streaming.config.local_path import LocalPathParam

if TYPE_CHECKING:
    from streaming.config.settings import Settings
    from streaming.quality.sample import Frames
    from streaming.store import Store


@click.command("quality")
@click.option("--config", "config", required=True, type=click.Path(dir_okay=False, path_type=Path), help="monitor.toml")
@click.option(
    "--docs", type=LocalPathParam(file_okay=False, path_type=Path), help="Write Data Docs (HTML) into this folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def quality_command(config: Path, docs: Path | None, *, as_json: bool) -> None:
    """Check the stored data of the cluster. Prints a line for each expectation; the exit code is 1 if one fails.

    Nothing is written to the database. Needs the extra `quality`.
    """
    settings = settings_of(config)  # before the imports below, which take seconds
    from streaming.quality.checker import Checker

    frames = _sampled(settings)
    if docs is not None:
        docs.mkdir(parents=True, exist_ok=True)
    checker = Checker(docs)
    verdicts = checker.check(frames.rows, settings.cluster)
    for verdict in verdicts:
        if as_json:
            click.echo(json.dumps(verdict._asdict()))
            continue
        state = "ok  " if verdict.success else "FAIL"
        click.echo(
            f"{state} {verdict.suite}: {verdict.expectation}" + ("" if verdict.success else f" {verdict.sample}")
        )
    for place in checker.docs() if docs is not None else ():
        click.echo(f"docs {place}", err=as_json)
    sys.exit(not all(verdict.success for verdict in verdicts))


def _sampled(settings: "Settings") -> "Frames":
    from sqlalchemy.exc import SQLAlchemyError

    from streaming.quality.sample import take
    from streaming.store.trouble import trouble

    try:
        with contextlib.closing(_opened(settings)) as store:
            return take(store, settings.cluster, settings.quality.sample_rows, time.time_ns() // 1_000_000, {})
    except SQLAlchemyError as error:
        told = "; ".join(filter(None, trouble(error)))
        raise click.ClickException(f"the database failed: {told}") from None


def _opened(settings: "Settings") -> "Store":
    """Open the database as it is; without it, or without rows of the cluster, no expectation would fail."""
    from streaming.store import Store, StoreError, look
    from streaming.store.database import read_only_engine

    url = settings.store.connection_url()
    try:
        schema = look(url)
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    if schema.found != schema.needed:
        told = f"the database has schema {schema.found or '(none: it is empty)'}, this version needs {schema.needed}"
        raise click.ClickException(f"{told}: see `group-monitor doctor`")
    store = Store(read_only_engine(url))
    known = [run.cluster for run in store.read.runs()]
    if settings.cluster not in known:
        told = f"nothing is stored of cluster {settings.cluster!r}; known: {', '.join(known) or 'none yet'}"
        raise click.ClickException(told)
    return store

"""`run`: run the job in the foreground."""

import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click
import structlog

from streaming import logs
from streaming.commands.progress import ProgressShown
from streaming.commands.settings import settings_of
from streaming.config.reload import RUN_FIXED, reread
from streaming.config.settings import ConfigError, Settings
from streaming.extras import how_to_install

if TYPE_CHECKING:
    from streaming.run.catch_up import CatchUp


@click.command("run")
@click.option("--config", "config", required=True, type=click.Path(dir_okay=False, path_type=Path), help="monitor.toml")
def run_command(config: Path) -> None:
    """Watch a cluster: read its records and telemetry, write incidents to the database. Needs Spark and Java."""
    settings = settings_of(config)
    click.echo(settings.effective(), err=True)
    logs.configure()
    try:
        from streaming.run.errors import RunError
        from streaming.run.job import run_job
    except ImportError as error:
        click.echo(f"run: {error}: {how_to_install('spark')}", err=True)
        sys.exit(1)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    asked = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: asked.set())

    def reload(current: Settings) -> Settings | None:
        """Return the new settings after a SIGHUP, else None. If the file is wrong, log why and return None."""
        if not asked.is_set():
            return None
        asked.clear()
        log = structlog.get_logger("run")
        try:
            fresh = reread(config, current, RUN_FIXED)
        except ConfigError as error:
            log.error("the configuration stays as it was", because=str(error))  # noqa: TRY400 - it says all there is
            return None
        log.info("configuration read again: the query restarts from its checkpoint")
        return fresh

    try:
        with CatchUpBar() as bar:
            run_job(settings, stop, reload=reload, on_catch_up=bar.show)
    except RunError as error:
        click.echo(f"run: {error}", err=True)
        sys.exit(1)


class CatchUpBar:
    """A progress bar on a terminal until the job has caught up. Elsewhere the log has a line per batch instead."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._bar: ProgressShown | None = None

    def show(self, catch_up: "CatchUp") -> None:
        """Show how far the job has caught up; remove the bar when it is done."""
        if catch_up.done or not sys.stderr.isatty():
            self._open.close()
            self._bar = None
            return
        if self._bar is None:
            self._bar = self._open.enter_context(ProgressShown("catching up", catch_up.total))
        remaining = catch_up.remaining or 0
        text = f"{remaining:,} records to go, {catch_up.rows_per_s:,.0f} a second"
        self._bar.update(catch_up.total - remaining, text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

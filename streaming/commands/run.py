"""`run`: the job, in the foreground."""

import signal
import sys
import threading
from pathlib import Path

import click
import structlog

from streaming import logs
from streaming.commands.settings import settings_of
from streaming.config import ConfigError, Settings
from streaming.extras import how_to_install
from streaming.reload import RUN_FIXED, reread


@click.command("run")
@click.option("--config", "config", required=True, type=click.Path(dir_okay=False, path_type=Path), help="monitor.toml")
def run_command(config: Path) -> None:
    """Watch a cluster: read its records and telemetry, keep incidents in the database. Needs Spark and Java."""
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
        """Take a changed file when SIGHUP asked for it; what is wrong with it is logged, and nothing changes."""
        if not asked.is_set():
            return None
        asked.clear()
        log = structlog.get_logger("run")
        try:
            fresh = reread(config, current, RUN_FIXED)
        except ConfigError as error:
            log.error("the configuration stays as it was", because=str(error))  # noqa: TRY400 - it says all there is
            return None
        log.info("configuration read again, the query starts anew on its checkpoint")
        return fresh

    try:
        run_job(settings, stop, reload=reload)
    except RunError as error:
        click.echo(f"run: {error}", err=True)
        sys.exit(1)

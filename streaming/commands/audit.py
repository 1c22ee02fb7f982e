"""`audit`: a report about the groups of any cluster, in a minute, without any set-up."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from coordinator_model.wording import counted
from streaming.commands.progress import ProgressShown
from streaming.commands.settings import settings_of_cluster
from streaming.config.local_path import LocalPathParam, new_file

if TYPE_CHECKING:
    from streaming.audit.report import Report
    from streaming.config.settings import Settings

LOOK_S: Final = 0.2
LIMIT_S: Final = 58.0
"""The audit gives up after this if the brokers do not answer. Otherwise it ends earlier, by its own time limit."""


@click.command("audit")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="monitor.toml: how to log in.")
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,…",
    help="Brokers to look at, instead of those of --config. Without --config, no security is used.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON, of all groups, instead of Markdown.")
@click.option(
    "--out",
    type=LocalPathParam(dir_okay=False, path_type=Path),
    callback=new_file,
    help="A new file for the report.  [default: stdout]",
)
def audit_command(config: Path | None, bootstrap_servers: str | None, *, as_json: bool, out: Path | None) -> None:
    """Report the worst consumer groups of a cluster, within a minute. It only reads.

    It needs no set-up and no telemetry: it reads the newest records of __consumer_offsets, and asks the brokers for
    their groups. It joins no group, commits no offset and creates no topic. If that topic may not be read, as on
    most managed services, it reports what the brokers say.

    \b
      group-monitor audit --bootstrap-servers kafka-1:9092 > report.md
      group-monitor audit --config monitor.toml --json | jq '.groups[0]'

    The report names unowned partitions, idle members, risky timeouts, members and hosts that come and go, aborted
    and slow rebalances, and what more telemetry would show. It cannot say who is alive now, or why a member left.
    """  # noqa: D301 - click's own mark for a line that is not to be wrapped
    settings = settings_of_cluster(config, bootstrap_servers)
    report = _made(settings, settings.cluster if config is not None else None)
    text = report.as_json() if as_json else report.as_markdown()
    if out is None:
        click.echo(text.encode(), nl=False)  # UTF-8, as in --out, even if the terminal is set to another encoding
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"{out}: {error.strerror}") from None
    click.echo(f"{out}: {counted(len(report.groups), 'group')}", err=True)


def _made(settings: Settings, cluster: str | None) -> Report:
    """Make the report in a thread of its own, so that a broker that does not answer cannot block the command."""
    from streaming.audit.audit import audit

    done, stop = threading.Event(), threading.Event()
    made: list[Report] = []
    failed: list[Exception] = []
    said = ["connecting"]

    def work() -> None:
        try:
            thresholds = settings.default_thresholds()
            made.append(audit(settings.kafka, cluster=cluster, thresholds=thresholds, stop=stop, shown=said.append))
        except Exception as error:  # noqa: BLE001 - reported below
            failed.append(error)
        done.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    started_s = time.monotonic()
    threading.Thread(target=work, name="audit", daemon=True).start()
    with ProgressShown("audit", LIMIT_S, every_s=2 * LIMIT_S) as progress:
        while not done.wait(LOOK_S):
            elapsed_s = time.monotonic() - started_s
            progress.update(elapsed_s, said[-1])
            if stop.is_set():
                raise click.ClickException("ended before the report was made")
            if elapsed_s >= LIMIT_S:
                raise click.ClickException(f"no report within {LIMIT_S:.0f} s; it was {said[-1]}")
    if failed:
        raise click.ClickException(str(failed[0]) or type(failed[0]).__name__)
    return made[0]

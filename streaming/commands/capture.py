"""`capture`: record both topics of a cluster into a file that `replay` reads."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from pydantic import ValidationError

from streaming.commands.progress import ProgressShown
from streaming.commands.settings import settings_of
from streaming.kafka_config import Kafka
from streaming.local_path import LocalPathParam

if TYPE_CHECKING:
    from streaming.recorder import Recording

LOOK_S: Final = 0.2


def _kafka(config: Path | None, bootstrap_servers: str | None) -> Kafka:
    """Return the settings of the cluster to record."""
    if config is None and not bootstrap_servers:
        raise click.UsageError("give --config or --bootstrap-servers")
    kafka = settings_of(config).kafka
    if not bootstrap_servers:
        return kafka
    try:
        return Kafka.model_validate({**dict(kafka), "bootstrap_servers": bootstrap_servers})
    except ValidationError:
        wanted = f'"{bootstrap_servers}" is not HOST:PORT[,HOST:PORT…]'
        raise click.BadParameter(wanted, param_hint="--bootstrap-servers") from None


def _new_file(_: click.Context, __: click.Parameter, path: Path) -> Path:
    if path.exists():
        raise click.BadParameter(f"{path} exists, and is not overwritten; name another file")
    if not path.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder {path.absolute().parent} does not exist")
    return path


@click.command("capture")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="monitor.toml")
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,…",
    help="Brokers to record from, instead of those of --config. Without --config, no security is used.",
)
@click.option(
    "--out",
    required=True,
    type=LocalPathParam(dir_okay=False, path_type=Path),
    callback=_new_file,
    help="A new file, .jsonl or .jsonl.gz.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="Stop after this time. Without it, Ctrl-C or SIGTERM ends the capture.",
)
@click.option(
    "--from-beginning", is_flag=True, help="Record all that the topics still hold, not only what comes from now on."
)
@click.option(
    "--no-probe", is_flag=True, help="Send no probes to the brokers. A replay then knows less about a quiet broker."
)
def capture_command(
    config: Path | None,
    bootstrap_servers: str | None,
    out: Path,
    seconds: float | None,
    from_beginning: bool,
    no_probe: bool,
) -> None:
    """Record group records and telemetry into a new capture that `replay` reads.

    It ends after --seconds, or at Ctrl-C or SIGTERM, whatever the brokers do. What was recorded until then is a valid
    capture. The file is created once a broker has answered.
    """
    from streaming.recorder import Recording

    kafka = _kafka(config, bootstrap_servers)
    recording = Recording(kafka, out, from_beginning=from_beginning, probing=not no_probe)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    started_s = time.monotonic()
    recording.start()
    with ProgressShown("capture", seconds) as progress:
        while not (stop.wait(LOOK_S) or recording.ended.is_set()):
            elapsed_s = time.monotonic() - started_s
            progress.update(elapsed_s, _counts(recording, kafka, elapsed_s))
            if seconds is not None and elapsed_s >= seconds:
                break
    made = recording.finish()
    if recording.warning:
        click.echo(f"capture: {recording.warning}", err=True)
    if recording.error is not None:
        raise click.ClickException(f"{recording.error}{f'; {out} ends here' if made else ''}")
    if not made:
        raise click.ClickException(f"ended before a broker had answered; {out} was not made")
    click.echo(f"{out}: {_counts(recording, kafka, time.monotonic() - started_s)}", err=True)


def _counts(recording: Recording, kafka: Kafka, elapsed_s: float) -> str:
    return f"{elapsed_s:.0f} s: " + ", ".join(f"{topic} {recording.written[topic]:,}" for topic in kafka.topics)

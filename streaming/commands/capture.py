"""`capture`: record the group records and telemetry of a cluster into a file that `replay` reads."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from streaming.commands.progress import ProgressShown
from streaming.commands.seconds import Seconds
from streaming.commands.settings import settings_of_cluster
from streaming.config.local_path import LocalPathParam, new_file

if TYPE_CHECKING:
    from streaming.capture.recorder import Recording
    from streaming.config.kafka import Kafka

LOOK_S: Final = 0.2


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
    callback=new_file,
    help="A new file, .jsonl or .jsonl.gz.",
)
@click.option(
    "--seconds",
    type=Seconds(0, min_open=True),
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
    from streaming.capture.recorder import Recording

    kafka = settings_of_cluster(config, bootstrap_servers).kafka
    recording = Recording(kafka, out, from_beginning=from_beginning, probing=not no_probe)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    started_s = time.monotonic()
    recording.start()
    with ProgressShown("capture", seconds) as progress:
        while not (stop.wait(LOOK_S) or recording.ended.is_set()):
            elapsed_s = time.monotonic() - started_s
            progress.update(min(elapsed_s, seconds or elapsed_s), _counts(recording, kafka, elapsed_s))
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

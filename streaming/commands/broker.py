"""`broker`: a real Kafka on this machine, in the foreground."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from streaming.embedded import EmbeddedCluster
from streaming.config.local_path import LocalPathParam

SHIPPED = {True: "the request log and the coordinator's INFO lines", False: "the coordinator's INFO lines"}
"""What the brokers ship to the telemetry topic; the key is whether the request log is on."""


@click.command("broker")
@click.option("--nodes", type=click.IntRange(1, 3), default=1, show_default=True, help="How many brokers.")
@click.option(
    "--port", type=click.IntRange(1, 65_000), default=9092, show_default=True, help="Port of the first broker."
)
@click.option(
    "--data-folder",
    type=LocalPathParam(path_type=Path, file_okay=False),
    help="Keep the data in this folder. Without it, the data is removed at the end.",
)
@click.option(
    "--no-telemetry", is_flag=True, help="Start with the request log off: ship the coordinator's INFO lines only."
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of server.properties. May be repeated."
)
def broker_command(
    nodes: int, port: int, data_folder: Path | None, no_telemetry: bool, settings: tuple[str, ...]
) -> None:
    """Run a real Kafka (KRaft) on 127.0.0.1 that ships what it logs about groups. Ctrl-C ends it."""
    from streaming.embedded import EmbeddedBrokerError, EmbeddedCluster
    from streaming.embedded.java import JavaMissingError

    for setting in settings:
        if "=" not in setting:
            raise click.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--set")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    cluster = EmbeddedCluster(
        nodes,
        data_folder.resolve() if data_folder else None,
        port=port,
        telemetry=not no_telemetry,
        coordinator_log=True,
        properties=dict(setting.split("=", 1) for setting in settings),
    )
    click.echo(f"starting {nodes} broker{'s' if nodes > 1 else ''} …", err=True)
    try:
        with cluster:
            _describe(cluster, kept=data_folder is not None, telemetry=not no_telemetry)
            _watch(cluster)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    except (EmbeddedBrokerError, JavaMissingError) as error:
        raise click.ClickException(str(error)) from None


def _watch(cluster: EmbeddedCluster) -> NoReturn:
    """Wait for the end of a broker; raises `EmbeddedBrokerError` then."""
    from streaming.embedded import EmbeddedBrokerError

    while all(node.running for node in cluster.nodes):
        time.sleep(0.2)
    dead = next(node for node in cluster.nodes if not node.running)
    raise EmbeddedBrokerError(f"broker {dead.node_id} ended: {dead.last_words()}")


def _describe(cluster: EmbeddedCluster, *, kept: bool, telemetry: bool) -> None:
    from streaming.embedded import TELEMETRY_TOPIC

    click.echo(f"bootstrap.servers  {cluster.bootstrap_servers}")
    click.echo(f"telemetry          topic {TELEMETRY_TOPIC}, {SHIPPED[telemetry]}")
    click.echo(f"data               {cluster.folder} ({'kept' if kept else 'removed at the end'})")
    for node in cluster.nodes:
        click.echo(f"broker {node.node_id}           pid {node.pid}, log {node.log_path}")
    click.echo("Ctrl-C stops it")

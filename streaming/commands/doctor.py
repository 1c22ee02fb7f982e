"""`doctor`: what is missing before `run` can work."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from streaming.config import Settings
    from streaming.doctor.check import Check


@click.command("doctor")
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="monitor.toml; all defaults without it.",
)
@click.option("--acls", is_flag=True, help="Only print the `kafka-acls` commands for this configuration.")
def doctor_command(config_path: Path | None, acls: bool) -> None:
    """Check this machine and the cluster: one line a check, and what to do about it.

    Exit code 1 on a failure, 2 where the configuration is wrong. Writes nothing to the cluster and joins no group.
    """
    from streaming.config import ConfigError, load
    from streaming.doctor.check import Status, fail, ok
    from streaming.doctor.rights import acl_commands

    try:
        settings = load(config_path)
    except ConfigError as error:
        for problem in str(error).splitlines():
            click.echo(fail("config", problem, "correct it").line())
        sys.exit(2)
    if acls:
        click.echo("\n".join(acl_commands(settings.kafka)))
        return
    configured = ok("config", f"{config_path or 'all defaults'}, cluster {settings.cluster!r}")
    failed = refused = False
    for check in itertools.chain([configured], _checks(settings)):
        click.echo(check.line())
        failed |= check.status is Status.FAIL
        refused |= "--acls" in check.advice
    if refused:
        click.echo("\n".join(acl_commands(settings.kafka)))
    sys.exit(failed)


def _checks(settings: "Settings") -> Iterator["Check"]:
    from importlib.util import find_spec

    from streaming.doctor.machine import check_machine, check_port, check_store

    yield from check_machine()
    yield check_store(settings.store)
    yield check_port(settings.serve)
    if find_spec("kafka") is not None:
        from streaming.doctor.cluster import check_cluster

        yield from check_cluster(settings.kafka)

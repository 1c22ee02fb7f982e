"""`doctor`: what is missing before `run` can work."""

import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from streaming.config.settings import Settings
    from streaming.doctor.check import Check


@click.command("doctor")
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="monitor.toml. Without it, all defaults.",
)
@click.option("--acls", is_flag=True, help="Only print the `kafka-acls` commands for this configuration.")
@click.option(
    "--create-topics",
    is_flag=True,
    help="Only create the telemetry topics that do not exist, with the settings they need. No other topic is changed.",
)
def doctor_command(config_path: Path | None, acls: bool, create_topics: bool) -> None:
    """Check this machine and the cluster. Prints a line for each check, with what to do about each problem.

    The exit code is 1 after a failure, and 2 if the configuration is wrong. Joins no group, and writes nothing to the
    cluster except with --create-topics.
    """
    from streaming.config.settings import ConfigError, load
    from streaming.doctor.check import fail, ok
    from streaming.doctor.rights import acl_lines
    from streaming.doctor.tiers import BELOW, snippet

    if acls and create_topics:
        raise click.UsageError("give --acls or --create-topics, not both")
    try:
        settings = load(config_path)
    except ConfigError as error:
        _show(fail("config", problem, "correct it") for problem in str(error).splitlines())
        sys.exit(2)
    if acls:
        click.echo("\n".join(acl_lines(settings.kafka)))
        return
    if create_topics:
        from streaming.doctor import cluster

        sys.exit(_exit_code(_show(cluster.create_topics(settings.kafka))))
    configured = ok("config", f"{config_path or 'all defaults'}, cluster {settings.cluster!r}")
    shown = _show(itertools.chain([configured], _checks(settings)))
    if any("--acls" in check.advice for check in shown):
        click.echo("\n".join(acl_lines(settings.kafka)))
    if any(BELOW in check.found for check in shown):
        click.echo(snippet(settings.kafka), nl=False)
    sys.exit(_exit_code(shown))


def _show(checks: "Iterable[Check]") -> "list[Check]":
    """Print each check as soon as it is done; return all of them."""
    shown = []
    for check in checks:
        click.echo(check.line())
        shown.append(check)
    return shown


def _exit_code(checks: "Iterable[Check]") -> int:
    return int(any(check.status == "fail" for check in checks))


def _checks(settings: "Settings") -> Iterator["Check"]:
    from importlib.util import find_spec

    from streaming.doctor.coverage import check_coverage
    from streaming.doctor.machine import check_machine, check_port, check_serve, check_store

    yield from check_machine()
    store = check_store(settings.store)
    yield store
    if store.status == "ok":
        yield from check_coverage(settings.store, settings.cluster)
    yield check_port(settings.serve)
    if find_spec("uvicorn") is not None:  # the extra `serve`
        yield check_serve(settings)
    if find_spec("kafka") is not None:
        from streaming.doctor.cluster import check_cluster

        yield from check_cluster(settings.kafka)

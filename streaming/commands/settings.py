"""The configuration of a command: it is read, or the command ends with exit code 2."""

from pathlib import Path
from typing import IO

import click
from pydantic import ValidationError

from streaming.config.kafka import Kafka
from streaming.config.settings import ConfigError, Settings, load


class WrongConfiguration(click.ClickException):
    """The configuration cannot be used; the message has one line for each problem, with its file and line."""

    exit_code = 2

    def show(self, file: IO[str] | None = None) -> None:
        """Print the problems without click's prefix, because each line begins with its file and line."""
        click.echo(self.format_message(), file=file, err=file is None)


def settings_of(path: Path | None) -> Settings:
    """Read `monitor.toml`, or all defaults without a file, and the environment; raise `WrongConfiguration`."""
    try:
        return load(path)
    except ConfigError as error:
        raise WrongConfiguration(str(error)) from None


def settings_of_cluster(path: Path | None, bootstrap_servers: str | None) -> Settings:
    """Read the settings of a cluster that is given by a file or by its brokers. If both are given, the brokers count.

    Raises `click.UsageError` if neither is given or the brokers are not addresses, and `WrongConfiguration`.
    """
    if path is None and not bootstrap_servers:
        raise click.UsageError("give --config or --bootstrap-servers")
    settings = settings_of(path)
    if not bootstrap_servers:
        return settings
    try:
        kafka = Kafka.model_validate({**dict(settings.kafka), "bootstrap_servers": bootstrap_servers})
    except ValidationError:
        wanted = f'"{bootstrap_servers}" is not HOST:PORT[,HOST:PORT…]'
        raise click.BadParameter(wanted, param_hint="--bootstrap-servers") from None
    return settings.model_copy(update={"kafka": kafka})

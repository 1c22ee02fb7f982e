"""What the commands do with a configuration: read it, or end with exit code 2."""

from pathlib import Path
from typing import IO

import click
from pydantic import ValidationError

from streaming.config import ConfigError, Settings, load
from streaming.kafka_config import Kafka


class WrongConfiguration(click.ClickException):
    """The configuration cannot be used; the text names file and line, one problem a line."""

    exit_code = 2

    def show(self, file: IO[str] | None = None) -> None:
        """Print the problems as they are: each line begins with its place."""
        click.echo(self.format_message(), file=file, err=file is None)


def settings_of(path: Path | None) -> Settings:
    """Read `monitor.toml` and the environment, all defaults without a file; raises `WrongConfiguration`."""
    try:
        return load(path)
    except ConfigError as error:
        raise WrongConfiguration(str(error)) from None


def settings_of_cluster(path: Path | None, bootstrap_servers: str | None) -> Settings:
    """Read the settings of a cluster that is given by a file, by its brokers, or by both: then the brokers count.

    Raises `click.UsageError` where neither is given or the brokers are no addresses, and `WrongConfiguration`.
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

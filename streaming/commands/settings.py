"""What the commands do with a configuration: read it, or end with exit code 2."""

from pathlib import Path
from typing import IO

import click

from streaming.config import ConfigError, Settings, load


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

"""Paths on this machine. Python would treat `s3a://bucket/data` as the folder `s3a:`; here a URI is an error."""

import re
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import BeforeValidator

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def without_scheme(text: Any) -> Any:
    """Return the text unchanged unless it is a URI; raises `ValueError` for a URI of any scheme."""
    if isinstance(text, str) and (scheme := _SCHEME.match(text)):
        raise ValueError(f"a path on this machine is needed; {scheme[0]} is not supported")
    return text


LocalPath = Annotated[Path, BeforeValidator(without_scheme)]
"""A path in `monitor.toml`."""


class LocalPathParam(click.Path):
    """A path on the command line."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a URI; exits as click does for wrong usage."""
        try:
            return super().convert(without_scheme(value), param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def new_file(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a file that exists or whose folder does not exist; the callback of an option."""
    if path is not None and path.exists():
        raise click.BadParameter(f"{path} exists, and is not overwritten; name another file")
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder {path.absolute().parent} does not exist")
    return path

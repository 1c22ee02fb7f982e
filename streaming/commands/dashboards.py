"""`dashboards`: render Grafana dashboards and alert rules from code to files, and publish them to a Grafana."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from streaming.commands import remote
from streaming.config.local_path import LocalPathParam
from streaming.extras import how_to_install

if TYPE_CHECKING:
    from dashboards.publish import Change

TOKEN_VARIABLE: Final = "GROUP_MONITOR_GRAFANA_TOKEN"  # noqa: S105 - its name
PASSWORD_VARIABLE: Final = "GROUP_MONITOR_GRAFANA_PASSWORD"  # noqa: S105 - its name
_ADDRESS: Final = re.compile(r"https?://[^\s\"'\\#?]+")
_MONITOR: Final[dict[str, Any]] = {
    "default": remote.DEFAULT_URL,
    "show_default": True,
    "metavar": "URL",
    "help": "The address at which a browser finds `serve`, its public_url: dashboards and alerts link there.",
}
_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


def _address(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Check an address that stands in files and links."""
    if value is not None and not _ADDRESS.fullmatch(value):
        raise click.BadParameter("give http://HOST:PORT or https://HOST[/PATH], without quotes, # and ?")
    return value and value.rstrip("/")


@click.group("dashboards")
def dashboards_command() -> None:
    """Write Grafana dashboards and alert rules to files, or publish the dashboards."""


@dashboards_command.command("render")
@click.option(
    "--out",
    type=LocalPathParam(path_type=Path, file_okay=False),
    help="The folder to write to; its other files stay.  [default: dashboards/rendered in this source tree]",
)
@click.option(
    "--severity",
    "severities",
    type=(click.Choice(["info", "warn", "page"]), str),
    multiple=True,
    metavar="NAME LABEL",
    help="Rename a severity in the alert rules: --severity page critical --severity warn warning.",
)
@click.option("--monitor", callback=_address, **_MONITOR)
@click.option(
    "--rules-url",
    callback=_address,
    metavar="URL",
    help="Where you keep copies of the runbooks, URL/RULE.md: alerts link there, even while `serve` is down.",
)
def render_command(
    out: Path | None, severities: tuple[tuple[str, str], ...], monitor: str, rules_url: str | None
) -> None:
    """Write dashboards (JSON) and alert rules (YAML) from the code."""
    try:
        from dashboards import files, render
    except ImportError as error:
        click.echo(
            f"dashboards render: {error}: needs the development packages of a source tree (make setup)", err=True
        )
        sys.exit(1)
    folder = out or files.RENDERED
    touched = render.write(folder, render.rendered(dict(severities), monitor, rules_url))
    for path in touched:
        click.echo(f"{'wrote' if path.exists() else 'removed'} {path}")
    if not touched:
        click.echo(f"{folder}: nothing to do")


@dashboards_command.command("publish")
@click.option("--url", required=True, metavar="URL", help="The address of Grafana; https unless it is on this machine.")
@click.option("--token-file", type=_FILE, help=f"A file with the token of a service account. Or set {TOKEN_VARIABLE}.")
@click.option(
    "--user", help=f"A user, instead of a token. The password comes from {PASSWORD_VARIABLE} or --password-file."
)
@click.option("--password-file", type=_FILE, help="A file with the password of --user.")
@click.option("--ca-file", type=_FILE, help="Certificates to trust (PEM).")
@click.option(
    "--plain-http", is_flag=True, help="Allow http to another machine, which sends the credentials unencrypted."
)
@click.option("--folder", default="Group monitor", show_default=True, help="The folder in Grafana.")
@click.option("--datasource", metavar="NAME", help="The Prometheus data source.  [default: Grafana's default one]")
@click.option(
    "--incidents",
    "monitor",
    metavar="URL",
    help="Add the incidents of the `serve` at this address as annotations. "
    f"If it wants a token, set {remote.TOKEN_VARIABLE}.",
)
@click.option("--monitor", "pages", callback=_address, **_MONITOR)
@click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")
def publish_command(  # noqa: PLR0913, PLR0917 - one parameter an option
    url: str,
    token_file: Path | None,
    user: str | None,
    password_file: Path | None,
    ca_file: Path | None,
    plain_http: bool,
    folder: str,
    datasource: str | None,
    monitor: str | None,
    pages: str,
    dry_run: bool,
) -> None:
    """Publish the dashboards to a running Grafana, 10 to 13. It can be repeated: only differences are written."""
    try:
        from dashboards import files, publish
    except ImportError as error:
        click.echo(f"dashboards publish: {error}: {how_to_install('grafana')}", err=True)
        sys.exit(1)
    token = None if user else _secret(TOKEN_VARIABLE, token_file)
    password = _secret(PASSWORD_VARIABLE, password_file) if user else None
    if not token and not (user and password):
        raise click.UsageError(
            f"no credentials: give --token-file or set {TOKEN_VARIABLE}, or --user with --password-file or "
            f"{PASSWORD_VARIABLE}"
        )
    try:
        login = publish.Login(token, user, password)
        grafana = publish.connect(url, login, ca_file=str(ca_file) if ca_file else None, plain_http=plain_http)
        boards = files.dashboards(monitor=pages)
        for change in publish.publish(grafana, boards, folder=folder, datasource=datasource, dry_run=dry_run):
            _tell(change, dry_run=dry_run)
        if monitor:
            incidents = publish.incidents_of(monitor, os.environ.get(remote.TOKEN_VARIABLE))
            for change in publish.publish_incidents(grafana, incidents, dry_run=dry_run):
                _tell(change, dry_run=dry_run)
    except publish.AddressError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None
    except publish.PublishError as error:
        click.echo(f"dashboards publish: {error}", err=True)
        sys.exit(1)


def _secret(variable: str, path: Path | None) -> str | None:
    """Read a secret from its file, else from the environment."""
    if path is None:
        return os.environ.get(variable)
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from None


def _tell(change: Change, *, dry_run: bool) -> None:
    """Print a change: one line, and one for each difference."""
    would = "would be " if dry_run and change.action != "unchanged" else ""
    click.echo(f"{change.what}: {would}{change.action}")
    for difference in change.differences:
        click.echo(f"  {difference}")

"""What `describe`, `watch`, `incidents` and `quarantine` share: asking a running `serve` over HTTP.

Only the standard library: the base install can read a monitor that runs elsewhere.
"""

import json
import os
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

import click

DEFAULT_URL: Final = "http://127.0.0.1:8844"
TOKEN_VARIABLE: Final = "GROUP_MONITOR_SERVE_TOKEN"  # noqa: S105 - a name
TIMEOUT_S: Final = 10


class Monitor:
    """A running `serve`."""

    def __init__(self, url: str) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise click.BadParameter("an http:// or https:// URL is needed", param_hint="--url")
        self.url = url.rstrip("/")

    def get(self, path: str, **parameters: object) -> Any:
        """Answer of the API; raises `click.ClickException` that says what to do."""
        given = {name: value for name, value in parameters.items() if value is not None}
        address = f"{self.url}{path}" + (f"?{urlencode(given)}" if given else "")
        token = os.environ.get(TOKEN_VARIABLE)
        request = Request(address, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - the scheme was looked at
                return json.load(answer)
        except HTTPError as error:
            raise click.ClickException(_why(error)) from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise click.ClickException(f"no monitor answers at {self.url}: {reason}; is `serve` running?") from None
        except ValueError:
            raise click.ClickException(f"{self.url} does not answer like a monitor") from None

    def group(self, group: str, cluster: str | None) -> Any:
        """One group."""
        return self.get(f"/api/v1/groups/{quote(group, safe='')}", cluster=cluster)


def _why(error: HTTPError) -> str:
    try:
        body = json.load(error)
        text = str(body["error"])
    except (ValueError, KeyError, TypeError):
        return f"the monitor answered {error.code}"
    hint = f"; set {TOKEN_VARIABLE}" if error.code == 401 else ""
    clusters = f": {', '.join(map(shown, body['clusters']))}" if "clusters" in body else ""
    return f"{text}{clusters}{hint}"


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--url` and `--json` to a command."""
    as_json = click.option("--json", "as_json", is_flag=True, help="The API's own objects.")
    where = click.option("--url", default=DEFAULT_URL, show_default=True, help="Where `serve` answers.")
    return where(as_json(command))


def echo_json(value: object) -> None:
    """Print what the API said."""
    click.echo(json.dumps(value, indent=2))


def shown(value: object) -> str:
    r"""Make a stranger's text safe for a terminal: what steers it is spelled out (`\u001b`); None is empty."""
    text = "" if value is None else str(value)
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" else c for c in text)


def instant(value_ms: int | None) -> str:
    """Write an instant in UTC."""
    if value_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(value_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{value_ms} ms"

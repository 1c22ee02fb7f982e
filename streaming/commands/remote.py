"""The HTTP client of a running `serve`, shared by `describe`, `watch`, `incidents` and `quarantine`.

It uses only the standard library, so that the base install can read a monitor that runs elsewhere.
"""

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.message import Message
from http.client import HTTPException, IncompleteRead
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, quote, urlencode, urlsplit
from urllib.request import Request, urlopen

import click

from streaming.terminal_text import shown

DEFAULT_URL: Final = "http://127.0.0.1:8844"
TOKEN_VARIABLE: Final = "GROUP_MONITOR_SERVE_TOKEN"  # noqa: S105 - a name
TIMEOUT_S: Final = 10
TOTAL_HEADER: Final = "X-Total-Count"
COUNTED: Final = 100_000
_RAW: Final = "surrogateescape"  # bytes of the command line that are no UTF-8 go out as they came in


class Listing(NamedTuple):
    """Some objects of a list, and their total number; the API counts no further than `COUNTED`."""

    objects: list[dict[str, Any]]
    total: int

    @property
    def cut(self) -> str:
        """How much of the list this is, in words; empty if it is the whole list."""
        if len(self.objects) >= self.total:
            return ""
        return f"showing {len(self.objects):,} of {self.total:,}{' or more' if self.total >= COUNTED else ''}"

    def title(self, what: str) -> str:
        """Return a title with the number of objects."""
        return f"{what}: {self.cut}; --limit shows more" if self.cut else f"{what} ({len(self.objects):,})"

    def echo_json(self, what: str) -> None:
        """Print the objects, and a note on stderr if they are not all."""
        echo_json(self.objects)
        if self.cut:
            click.echo(f"{what}: {self.cut}; --limit shows more", err=True)


def http_parts(url: str) -> SplitResult | None:
    """Return the parts of an http:// or https:// URL without user and password; None: it is not such a URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and "@" not in parts.netloc and parts.port != 0
    except ValueError:  # of an address in brackets, or of a port
        return None
    return parts if usable else None


class Monitor:
    """A running `serve`."""

    def __init__(self, url: str) -> None:
        if http_parts(url) is None:
            wanted = "an http:// or https:// URL is needed, without user and password in it"
            raise click.BadParameter(wanted, param_hint="--url")
        self.url = url.rstrip("/")

    def not_current(self, cluster: str | None = None) -> str:
        """Return why what the monitor knows of a cluster, or of all, is not current; empty: it is."""
        told = self._ask("/readyz", {"cluster": cluster}, is_object_with("ready"), accepted=503)[0]
        return "" if told["ready"] else str(told.get("reason", "the monitor is not ready"))

    def listing(self, path: str, has: str, **parameters: object) -> "Listing":
        """Return a list from the API, with its total number of objects; each has the key `has`."""
        objects, headers = self._ask(path, parameters, is_list_of(is_object_with(has)))
        total = headers.get(TOTAL_HEADER, "")
        return Listing(objects, int(total) if total.isascii() and total.isdigit() else len(objects))

    def _ask(
        self, path: str, parameters: Mapping[str, object], fits: Callable[[Any], bool], accepted: int = 200
    ) -> tuple[Any, Message]:
        """Return a response of the API that `fits`; raise `click.ClickException`, which says what to do."""
        given = {name: value for name, value in parameters.items() if value is not None}
        address = f"{self.url}{path}" + (f"?{urlencode(given, errors=_RAW)}" if given else "")
        request = Request(address)  # noqa: S310 - the scheme was checked
        if token := os.environ.get(TOKEN_VARIABLE):
            if not token.isprintable():
                raise click.ClickException(f"{TOKEN_VARIABLE}: a token has no line breaks or control characters")
            in_utf_8 = f"Bearer {token}".encode().decode("latin-1")  # http.client sends headers as Latin-1
            request.add_unredirected_header("Authorization", in_utf_8)  # for this host only
        try:
            with _answer(request, accepted) as answer:
                return _loaded(answer, fits), answer.headers
        except HTTPError as error:
            raise click.ClickException(_why(error)) from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise click.ClickException(f"no monitor answers at {self.url}: {reason}; is `serve` running?") from None
        except IncompleteRead:
            raise click.ClickException(f"the answer of {self.url} broke off; try again") from None
        except (ValueError, RecursionError, HTTPException):
            told = f"{self.url} does not answer like a monitor; is it the address of `serve`?"
            raise click.ClickException(told) from None

    def group(self, group: str, cluster: str | None) -> Any:
        """Return one group."""
        return self._ask(f"/api/v1/groups/{_quoted(group)}", {"cluster": cluster}, is_object_with("members"))[0]

    def partitions(self, group: str, cluster: str | None) -> Any:
        """Return the lag of one group by partition."""
        path = f"/api/v1/groups/{_quoted(group)}/partitions"
        return self._ask(path, {"cluster": cluster}, is_object_with("partitions"))[0]


def is_object_with(key: str) -> Callable[[Any], bool]:
    """Return a check that a JSON value is an object with a key."""
    return lambda value: isinstance(value, dict) and key in value


def is_list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check that a JSON value is a list whose elements fit."""
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _loaded(answer: Any, fits: Callable[[Any], bool]) -> Any:
    value = json.load(answer)
    if fits(value):
        return value
    if isinstance(answer, HTTPError) and is_object_with("error")(value):
        raise click.ClickException(_told(value, answer.code))
    raise ValueError("JSON of something other than a monitor")


def _quoted(group: str) -> str:
    return quote(group, safe="", errors=_RAW)


def _answer(request: Request, accepted: int) -> Any:
    try:
        return urlopen(request, timeout=TIMEOUT_S)  # noqa: S310 - the scheme was checked
    except HTTPError as error:
        if error.code != accepted:
            raise
        return error


def _why(error: HTTPError) -> str:
    try:
        return _told(json.load(error), error.code)
    except (ValueError, RecursionError, OSError, HTTPException):
        return _told(None, error.code)


def _told(body: Any, code: int) -> str:
    if not is_object_with("error")(body):
        return f"the monitor answered {code}"
    clusters = body.get("clusters")
    which = f": {', '.join(map(shown, clusters))}" if isinstance(clusters, list) else ""
    hint = f"; set {TOKEN_VARIABLE}" if code == 401 else ""
    return f"{shown(body['error'])}{which}{hint}"


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--url` and `--json` to a command."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print the JSON objects of the API.")
    about = f"The address of `serve`. If it wants a token, set {TOKEN_VARIABLE}."
    where = click.option("--url", default=DEFAULT_URL, show_default=True, help=about)
    return where(as_json(command))


def echo_json(value: object) -> None:
    """Print a value of the API as indented JSON."""
    click.echo(json.dumps(value, indent=2))


def instant(value_ms: int | None) -> str:
    """Write an instant in UTC."""
    if value_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(value_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{value_ms} ms"

"""The ASGI application: routes, error handlers and security headers."""

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streaming.config.settings import ConfigError, Settings
from streaming.serve.api import Ambiguous, Api, AsciiJson
from streaming.serve.exporters.endpoints import Exporters
from streaming.serve.guard import Guard
from streaming.serve.health import Health
from streaming.serve.hosts import Hosts
from streaming.serve.page import SCRIPT, STYLE, Pages, csp_hash, error_page
from streaming.store import Store
from streaming.store.trouble import trouble

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": f"default-src 'none'; style-src {csp_hash(STYLE)}; script-src {csp_hash(SCRIPT)}; "
    "connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_OF_PROXIES: Final = frozenset({"forwarded", "x-forwarded-for"})
"""Headers with which a proxy says that it asks for somebody else."""


class TooSoonError(Exception):
    """The configuration was read again a moment ago."""


def create_app(store: Store, settings: Settings, health: Health, reload: Callable[[], None] | None = None) -> Starlette:
    """Build the application. `reload` reads the configuration again; it raises `ConfigError` or `TooSoonError`."""
    token = settings.serve.token

    def reloaded(request: Request) -> Response:
        if token is None and not _is_this_machine(request):
            raise HTTPException(403, "without [serve] token_file only this machine may ask for a reload")
        try:
            (reload or _cannot_reload)()
        except ConfigError as error:
            return AsciiJson({"error": str(error)}, 400)
        except TooSoonError as error:
            return AsciiJson({"error": str(error)}, 429)
        return AsciiJson({"reloaded": True})

    api = Api(store, settings, health)
    guard = [] if token is None else [Middleware(Guard, token=token.get_secret_value())]
    return Starlette(
        routes=[
            *api.routes(),
            *Exporters(store, health).routes(),
            *Pages(store, api).routes(),
            Route("/-/reload", reloaded, methods=["POST"]),
        ],
        middleware=[Middleware(SecurityHeaders), Middleware(Hosts, serve=settings.serve), *guard],
        exception_handlers={HTTPException: on_error, SQLAlchemyError: on_trouble, Exception: on_crash},
    )


def _is_this_machine(request: Request) -> bool:
    if request.client is None or not _OF_PROXIES.isdisjoint(request.headers):
        return False
    return ip_address(request.client.host.removeprefix("::ffff:")).is_loopback  # an IPv4 peer of an IPv6 socket


def _cannot_reload() -> None:
    raise ConfigError("nothing to read again")


def on_error(request: Request, error: Exception) -> Response:
    """Return an error as a page for people, or as JSON for programs; the path decides."""
    assert isinstance(error, HTTPException)  # noqa: S101 - Starlette calls this for no other error
    clusters = error.clusters if isinstance(error, Ambiguous) else []
    if _is_page(request):
        return error_page(error.status_code, error.detail, clusters, request.path_params.get("group", ""))
    body: dict[str, Any] = {"error": error.detail}
    if clusters:
        body["clusters"] = clusters
    return AsciiJson(body, error.status_code, headers=error.headers)


def on_trouble(request: Request, error: Exception) -> Response:
    """Say what is wrong with the database and what to do, without its own message, which names users and hosts."""
    assert isinstance(error, SQLAlchemyError)  # noqa: S101 - Starlette calls this for no other error
    _, advice = trouble(error)
    if advice is None:
        raise error  # ours
    return on_error(request, HTTPException(503, f"the database fails: {advice}"))


def _is_page(request: Request) -> bool:
    path = request.url.path
    return path == "/" or path.startswith(("/groups/", "/group/", "/rules/"))


def on_crash(_request: Request, error: Exception) -> Response:
    """Return only the type of an unexpected error; Starlette logs the rest, and passes this by all middleware."""
    return AsciiJson({"error": f"internal error: {type(error).__name__}"}, 500, headers=SECURITY_HEADERS)


class SecurityHeaders:
    """Middleware that adds the security headers to every response but that of `on_crash`, which has them already."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers to the first message of the response."""

        async def _send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, _send)

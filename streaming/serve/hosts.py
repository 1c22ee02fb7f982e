"""The host names that this server answers to, and the web pages that may change something.

A foreign web page can point its own name at this address (DNS rebinding). In the browser of somebody inside, it could
then read everything as if it were our page. Its requests have that name as `Host`, so only known names are accepted:
localhost, the bound address, the host of `public_url`, those of `allowed_hosts`, and numeric addresses, which DNS
cannot redirect. A request that changes something is refused if it comes from a page of another origin.
"""

import ipaddress
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from streaming.config.settings import Serve

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_PAGES: Final = frozenset({None, "same-origin", "none"})  # `Sec-Fetch-Site`; None: no browser, or an old one
_SHOWN: Final = 100


class Hosts:
    """Middleware that refuses requests for other host names, and changes asked for by other pages."""

    def __init__(self, app: ASGIApp, serve: Serve) -> None:
        self._app = app
        self._names = frozenset(_names(serve))
        self._external = urlsplit(serve.public_url or "").netloc.lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 421 (not our name) or 403 (a change that another page asks for)."""
        refusal = self._refusal(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> JSONResponse | None:
        host = headers.get("Host", "").lower()
        if host and not self._is_ours(host):  # every browser sends `Host`
            told = f"this server does not go by the name {host[:_SHOWN]!a}: see [serve] allowed_hosts"
            return JSONResponse({"error": told}, 421)
        if method not in _SAFE_METHODS and not self._is_own_page(headers, host):
            return JSONResponse({"error": "only a page of this server may ask for a change"}, 403)
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name.removesuffix(".") in self._names or _is_address(name)

    def _is_own_page(self, headers: Headers, host: str) -> bool:
        origin = headers.get("Origin")
        if origin is None:
            return headers.get("Sec-Fetch-Site") in _OWN_PAGES
        page = origin.lower().partition("://")[2]
        return bool(page) and page in (host, self._external)


def _names(serve: Serve) -> Iterator[str]:
    yield from ("localhost", serve.host.lower(), *(name.lower() for name in serve.allowed_hosts))
    if serve.public_url is not None:
        yield urlsplit(serve.public_url).hostname or ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

"""Authentication: if a token is configured, only clients that send it may read.

Programs send it as `Authorization: Bearer`. A browser asks for it as the password (with any user name). `/healthz` and
`/readyz` stay open, so that a supervisor needs no secret.
"""

import base64
import binascii
import secrets

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class Guard:
    """Middleware that passes on only requests with the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or answer 401."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._may(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        asks = {"WWW-Authenticate": 'Basic realm="group-monitor: the token is the password", charset="UTF-8"'}
        await JSONResponse({"error": "the token is missing or wrong"}, 401, headers=asks)(scope, receive, send)

    def _may(self, headers: Headers) -> bool:
        kind, _, text = headers.get("Authorization", "").partition(" ")
        given = text.encode("latin-1")  # the bytes as they were sent: Starlette decodes headers as Latin-1
        if kind.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return False
        elif kind.lower() != "bearer":
            return False
        return secrets.compare_digest(given, self._token)

"""Limits on the connections of `serve`: how many, and for how long. Idle clients must not stop alerts or other clients.

A client has `HEAD_S` to send the head of a request, including the TLS handshake, and `ANSWER_S` from then until it has
received the response. There are at most `Listener.limit` connections. To accept another one, the oldest connection
that only waits for its client is closed. So file descriptors stay free for deliveries and the database, and a client
that sends its request at once gets a response even while hundreds of idle ones come and go.

uvicorn does none of this: its own limits begin with a complete head, and asyncio does the TLS handshakes.
"""

import asyncio
import resource
import socket
import time
from contextlib import suppress
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

CONNECTIONS: Final = 256
RESERVED_FILES: Final = 128  # for the database's connections (three files each in SQLite), deliveries, libraries
FEWEST_CONNECTIONS: Final = 16
BACKLOG: Final = 512  # connections that wait in the kernel while there is no room
HEAD_S: Final = 10.0
ANSWER_S: Final = 60.0
YOUNG_ANSWER_S: Final = 5.0  # a response that is younger is never cut off to make room
CLOSING_S: Final = 1.0  # how long a connection that was ended may take to close before another one is ended
LOG_EVERY_S: Final = 60.0

Peer = tuple[Any, ...]
"""Address and port of a client."""


def most_connections() -> int:
    """Return how many connections this process may hold, from its limit on open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return CONNECTIONS
    return max(FEWEST_CONNECTIONS, min(CONNECTIONS, files - RESERVED_FILES))


class Connection:
    """One accepted connection and the timer that ends it."""

    def __init__(self, accepted: socket.socket) -> None:
        self._socket = accepted
        self.answering = False
        self.ended_s: float | None = None
        self._set(HEAD_S)

    def begin_answer(self) -> None:
        """Note that the head of a request is complete."""
        self.answering = True
        self._timer.cancel()
        self._set(ANSWER_S)

    def finish_answer(self) -> None:
        """Note that the response is written. The timer goes on for the part that the client has not received yet."""
        self.answering = False
        self.since_s = time.monotonic()

    def is_closed(self) -> bool:
        """Tell whether the event loop has closed it."""
        return self._socket.fileno() == -1

    def may_end(self, now_s: float) -> bool:
        """Tell whether this connection may be closed to make room."""
        return self.ended_s is None and (not self.answering or now_s - self.since_s > YOUNG_ANSWER_S)

    def end(self) -> None:
        """Shut the socket down; the event loop notices and closes it, with and without TLS."""
        self.ended_s = time.monotonic()
        self._timer.cancel()
        with suppress(OSError):  # the client has closed it already
            self._socket.shutdown(socket.SHUT_RDWR)

    def _set(self, timeout_s: float) -> None:
        self.since_s = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self.end)


class Listener(socket.socket):
    """A listening socket that has no more than `limit` accepted connections open at a time."""

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self.limit = most_connections()
        self._open: dict[Peer, Connection] = {}
        self._logged_s = -LOG_EVERY_S

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection; raise `BlockingIOError` if the event loop has to close another one first."""
        has_room = self._has_room()
        accepted, address = super().accept()
        if not has_room:
            accepted.close()
            raise ConnectionAbortedError("all connections are being answered")
        self._open[address[:2]] = Connection(accepted)
        return accepted, address

    def of(self, peer: Peer | None) -> Connection | None:
        """Return the connection of a client."""
        return None if peer is None else self._open.get(tuple(peer))

    def _has_room(self) -> bool:
        """Tell whether there is room for another connection.

        If there is none, end the oldest connection that may end and raise `BlockingIOError`; False if none may end.
        """
        if len(self._open) < self.limit:
            return True
        self._open = {peer: connection for peer, connection in self._open.items() if not connection.is_closed()}
        if len(self._open) < self.limit:
            return True
        now_s = time.monotonic()
        if any(c.ended_s is not None and now_s - c.ended_s < CLOSING_S for c in self._open.values()):
            raise BlockingIOError
        self._log(now_s)
        candidates = [connection for connection in self._open.values() if connection.may_end(now_s)]
        if not candidates:
            return False
        min(candidates, key=lambda connection: (connection.answering, connection.since_s)).end()
        raise BlockingIOError

    def _log(self, now_s: float) -> None:
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            log = structlog.get_logger("connections")
            log.warning("all connections are taken: the oldest idle ones are closed", connections=self.limit)


class Timed:
    """Middleware that tells the listener which of its connections are being answered."""

    def __init__(self, app: ASGIApp, listener: Listener) -> None:
        self._app = app
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; its connection counts as being answered until the response is written."""
        connection = self._listener.of(scope.get("client"))
        if connection is None:
            await self._app(scope, receive, send)
            return
        connection.begin_answer()
        try:
            await self._app(scope, receive, send)
        finally:
            connection.finish_answer()

"""How many connections `serve` holds, and for how long. Idle clients must stop neither alerts nor other clients.

A connection gets `HEAD_S` to send the head of a request, TLS handshake included, and `ANSWER_S` from there until its
answer has been taken. There are at most `Listener.limit` connections. The next one closes the oldest connection that
waits only for its client. So file descriptors stay free for deliveries and the database, and a client that sends its
request at once is answered even while hundreds of idle ones come and go.

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
BACKLOG: Final = 512  # wait in the kernel while there is no room
HEAD_S: Final = 10.0
ANSWER_S: Final = 60.0
YOUNG_ANSWER_S: Final = 5.0  # an answer that is younger is never cut off to make room
CLOSING_S: Final = 1.0  # how long a connection that was ended may take to close before another one has to go
LOG_EVERY_S: Final = 60.0

Peer = tuple[Any, ...]
"""Address and port of a client."""


def most_connections() -> int:
    """Say how many connections this process may hold, by its limit of open files."""
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
        """Note that a request is complete as far as its head."""
        self.answering = True
        self._timer.cancel()
        self._set(ANSWER_S)

    def finish_answer(self) -> None:
        """Note that the answer is written; what the client has not taken of it has the rest of its time."""
        self.answering = False
        self.since_s = time.monotonic()

    def is_closed(self) -> bool:
        """Tell whether the event loop has closed it."""
        return self._socket.fileno() == -1

    def may_end(self, now_s: float) -> bool:
        """Tell whether it may be closed to make room."""
        return self.ended_s is None and (not self.answering or now_s - self.since_s > YOUNG_ANSWER_S)

    def end(self) -> None:
        """Shut it down; the event loop sees its end and closes it, in plain text and in TLS."""
        self.ended_s = time.monotonic()
        self._timer.cancel()
        with suppress(OSError):  # the client was quicker
            self._socket.shutdown(socket.SHUT_RDWR)

    def _set(self, timeout_s: float) -> None:
        self.since_s = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self.end)


class Listener(socket.socket):
    """A listening socket of which an event loop accepts no more than `limit` connections at a time."""

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self.limit = most_connections()
        self._open: dict[Peer, Connection] = {}
        self._logged_s = -LOG_EVERY_S

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection; raises `BlockingIOError` while the event loop has to make room first."""
        has_room = self._has_room()
        accepted, address = super().accept()
        if not has_room:
            accepted.close()
            raise ConnectionAbortedError("all connections are being answered")
        self._open[address[:2]] = Connection(accepted)
        return accepted, address

    def of(self, peer: Peer | None) -> Connection | None:
        """Find the connection of a client."""
        return None if peer is None else self._open.get(tuple(peer))

    def _has_room(self) -> bool:
        """Tell whether another connection may be accepted. If not, close the oldest one that may be closed."""
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
    """Lets the listener know which of its connections are being answered."""

    def __init__(self, app: ASGIApp, listener: Listener) -> None:
        self._app = app
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on."""
        connection = self._listener.of(scope.get("client"))
        if connection is None:
            await self._app(scope, receive, send)
            return
        connection.begin_answer()
        try:
            await self._app(scope, receive, send)
        finally:
            connection.finish_answer()

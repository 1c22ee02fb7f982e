"""The process of `serve`. It binds its address first, then starts its threads.

SIGTERM and SIGINT stop it cleanly. On SIGHUP it reads its configuration again.
"""

import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread
import structlog
import uvicorn
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Receive, Scope, Send

from streaming.config.reload import SERVE_FIXED, reread
from streaming.config.settings import ConfigError, Settings
from streaming.quality.watch import QualityWatch
from streaming.serve.app import TooSoonError, create_app
from streaming.serve.connections import BACKLOG, Listener, Timed
from streaming.serve.health import Health
from streaming.serve.leader import Leader
from streaming.serve.maintenance import Maintenance
from streaming.serve.notify.dead_mans_switch import DeadMansSwitch
from streaming.serve.notify.delivery_worker import DeliveryWorker
from streaming.serve.notify.message import MessageEnricher
from streaming.serve.notify.receivers import receivers_of
from streaming.store import Store

STOP_S = 10  # longer than the timeouts of one delivery
RELOAD_EVERY_S = 1.0  # least time between two reloads over HTTP: workers that restart all the time deliver nothing
WORKER_THREADS = 8  # for requests: fewer than the pool has connections, so that delivery workers always get one
MAX_HEAD_BYTES = 128 * 1024  # a group id has up to 32 KiB; percent-encoded in a URL, three times as much


class AddressError(Exception):
    """The address cannot be bound; the message says which address and why."""


def bind(host: str, port: int) -> Listener:
    """Bind the address before anything else starts; raises `AddressError`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = Listener(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise AddressError(f"cannot listen on {host}:{port}: {error.strerror or error}; see [serve] port") from None
    return listener


class _Parts(NamedTuple):
    """What a configuration makes: the application and its threads, which end when `stop` is set."""

    settings: Settings
    app: ASGIApp
    threads: Sequence[threading.Thread]
    stop: threading.Event


class Service:
    """The application behind the listening socket, and its threads.

    `reload` replaces all of them, but not what was seen of every `run`: else `monitor-stalled` would wait anew.
    """

    def __init__(self, settings: Settings, store: Store, config: Path | None) -> None:
        self._settings = settings
        self._store = store
        self._config = config
        self._leader = Leader(store.engine)
        self._health = Health(settings.serve.monitor_stalled_ms, self._leader.leads)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: Sequence[threading.Thread] = ()
        self._app: ASGIApp | None = None
        self._reloaded_s = -RELOAD_EVERY_S
        self._log = structlog.get_logger("serve")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the current application."""
        anyio.to_thread.current_default_thread_limiter().total_tokens = WORKER_THREADS
        assert self._app is not None, "started before it is asked"  # noqa: S101 - ours
        await self._app(scope, receive, send)

    def start(self) -> None:
        """Create the application and the threads from the settings; raise `ConfigError` before any thread starts."""
        self._begin(self._made_from(self._settings))

    def _made_from(self, settings: Settings) -> "_Parts":
        """Make the application and the threads, which do nothing yet. Raises `ConfigError`, for this reads secrets."""
        store, leader, health, stop = self._store, self._leader, self._health, threading.Event()
        receivers, enricher = receivers_of(settings), MessageEnricher(store.read, settings.serve)
        heartbeat_url = settings.serve.heartbeat_address()
        threads: list[threading.Thread] = [Maintenance(store, settings, health, receivers, leader, stop)]
        threads += [DeliveryWorker(store, receiver, enricher, leader, stop) for receiver in receivers]
        if heartbeat_url:
            threads.append(DeadMansSwitch(store, heartbeat_url, settings.serve.heartbeat_ms, health, leader, stop))
        if settings.quality.enabled:
            threads.append(QualityWatch(store, settings, leader.leads, stop))
        app = create_app(store, settings, health, partial(self.reload, RELOAD_EVERY_S))
        return _Parts(settings, app, threads, stop)

    def _begin(self, parts: "_Parts") -> None:
        self._settings, self._app, self._threads, self._stop = parts
        self._health.monitor_stalled_ms = self._settings.serve.monitor_stalled_ms
        for thread in self._threads:
            thread.start()

    def reload(self, pause_s: float = 0.0) -> None:
        """Read the configuration again and restart with it.

        Raises `ConfigError` if it is not valid, and `TooSoonError` if the last reload is less than `pause_s` ago.
        After either error nothing has changed.
        """
        with self._lock:
            if self._config is None:
                raise ConfigError("started without a configuration file: there is nothing to read again")
            parts = self._made_from(reread(self._config, self._settings, SERVE_FIXED))
            now_s = time.monotonic()
            if now_s - self._reloaded_s < pause_s:
                raise TooSoonError(f"the configuration was read again less than {pause_s:.0f} s ago")
            self._reloaded_s = now_s
            self._halt()
            self._begin(parts)
            self._log.info("configuration read again", receivers=[block.kind for block in self._settings.notify])

    def stop(self) -> None:
        """End all threads, and resign so that another `serve` can send."""
        with self._lock:
            self._halt()
        with suppress(SQLAlchemyError):  # without the database the lease expires by itself
            self._leader.resign()

    def _halt(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(STOP_S)


def serve(settings: Settings, store: Store, listener: Listener, config: Path | None = None) -> None:
    """Serve requests, watch `run` and notify until a signal asks to stop. On SIGHUP, `config` is read again."""
    service = Service(settings, store, config)
    server = uvicorn.Server(server_config(service, settings, listener))
    host, port = listener.getsockname()[:2]
    log = structlog.get_logger("serve")
    if settings.serve.token is None and host not in ("127.0.0.1", "::1"):
        log.warning("anybody who reaches this address may read, but not reload: set [serve] token_file")
    log.info("listening", url=settings.serve.address(port), receivers=[block.kind for block in settings.notify])
    # uvicorn raises the signal again once it has shut down. Our handlers keep that from ending the process before the
    # delivery workers have stopped.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=_reload, args=(service,), daemon=True).start())
    service.start()
    try:
        server.run(sockets=[listener])  # returns after SIGTERM or SIGINT, when all responses are sent
    finally:
        service.stop()


def _reload(service: Service) -> None:
    try:
        service.reload()
    except ConfigError as error:
        structlog.get_logger("serve").error("the configuration stays as it was", because=str(error))


def server_config(app: ASGIApp, settings: Settings, listener: Listener) -> uvicorn.Config:
    """Configure uvicorn: protocols and limits."""
    return uvicorn.Config(
        Timed(app, listener),
        loop="asyncio",  # uvloop would not call `Listener.accept`
        http="h11",
        ws="none",
        proxy_headers=False,  # take a client's address and scheme from the connection only
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        log_config=None,
        log_level="error",  # a warning for each request that is no HTTP would let anybody fill the log
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=settings.serve.tls_certfile,
        ssl_keyfile=settings.serve.tls_keyfile,
    )

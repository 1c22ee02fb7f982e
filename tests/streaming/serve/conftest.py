"""A store with something in it, and `serve` answering real HTTP in this process."""

import http.server
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
import requests
import uvicorn
from sqlalchemy import update

from coordinator_model.group_report import GroupReport
from streaming.config.settings import Settings
from streaming.serve.app import create_app
from streaming.serve.health import LONGEST_GAP_S, Health
from streaming.serve.server import bind, server_config
from streaming.store import Store, tables
from streaming.store.database import database_ms
from tests.support.outputs import CLUSTER
from tests.support.waiting import PATIENCE_S

NOW_MS = 1_790_000_100_000
STALLED_MS = 600_000
"""Until a `run` without a new sign of life is stalled: longer than a test takes, however busy the machine is."""


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings.model_validate(
        {
            "cluster": CLUSTER,
            "store": {"url": f"sqlite:///{tmp_path}/monitor.db"},
            "serve": {"port": 0},
            "groups": ({"pattern": "orders", "labels": {"team": "shop"}, "runbook_url": "https://runbooks/orders"},),
        }
    )


@pytest.fixture
def store(settings) -> Iterator[Store]:
    opened = Store.open(settings.store.connection_url())
    yield opened
    opened.close()


@pytest.fixture
def apply(store, settings) -> Callable[..., Any]:
    """Apply outputs as the next batch; `cluster=` applies them to another cluster."""
    batches = defaultdict(count)  # of each cluster

    def _apply(*outputs, cluster=CLUSTER, **arguments):
        moved = [
            replace(output, cluster=cluster) if isinstance(output, GroupReport) else {**output, "cluster": cluster}
            for output in outputs
        ]
        return store.apply_batch(
            checkpoint_id=f"checkpoint-{cluster}",
            batch_id=next(batches[cluster]),
            outputs=moved,
            settings=settings.model_copy(update={"cluster": cluster}),
            **arguments,
        )

    _apply.store = store
    return _apply


class Client:
    """Asks one server; redirects are not followed."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.session = requests.Session()

    def get(self, path: str, status: int = 200) -> requests.Response:
        answer = self.session.get(self.base + path, timeout=PATIENCE_S, allow_redirects=False)
        assert answer.status_code == status, answer.text
        return answer

    def json(self, path: str, status: int = 200) -> Any:
        answer = self.get(path, status)
        assert answer.headers["content-type"] == "application/json"
        return answer.json()


def sign_of_life(store: Store, age_ms: int = 0, cluster: str = CLUSTER) -> None:
    """Write when the `run` of a cluster was last at work: so long ago."""
    with store.engine.begin() as connection:
        alive_ms = database_ms() - age_ms
        known = tables.runs.c
        connection.execute(update(tables.runs).where(known.cluster == cluster).values(alive_ms=alive_ms))


class Clock:
    """A monotonic clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s

    def watch(self, look: Callable[[], object], seconds: float) -> None:
        """Look again and again while so much time passes, as `serve` does."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + LONGEST_GAP_S)
            look()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextmanager
def running(store: Store, settings: Settings) -> Iterator[str]:
    """Serve a store in this process; yields the address."""
    app = create_app(store, settings, Health(STALLED_MS))
    with listening(app, settings) as base:
        yield base


@contextmanager
def listening(app: Any, settings: Settings) -> Iterator[str]:
    """Answer with an application on a free port; yields the address."""
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(server_config(app, settings, listener))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    scheme = "https" if settings.serve.tls_certfile else "http"
    yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def client(store, settings) -> Iterator[Client]:
    with running(store, settings) as base:
        yield Client(base)


@dataclass
class Peer:
    """An HTTP receiver that records what it gets and answers what it is told to."""

    url: str = ""
    statuses: list[int | None] = field(default_factory=list)  # None: never answers; an empty list: 200
    bodies: list[Any] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)
    released: threading.Event = field(default_factory=threading.Event)

    def wait_for(self, condition: Callable[["Peer"], bool], timeout_s: float = PATIENCE_S) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: condition(self), timeout_s), self.bodies


@pytest.fixture
def peer() -> Iterator[Peer]:
    recorded = Peer()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with recorded.arrived:
                recorded.bodies.append(body)
                recorded.headers.append(dict(self.headers))
                status = recorded.statuses.pop(0) if recorded.statuses else 200
                recorded.arrived.notify_all()
            if status is None:
                recorded.released.wait()
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    recorded.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield recorded
    recorded.released.set()
    server.shutdown()
    thread.join()
    server.server_close()

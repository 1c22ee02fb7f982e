"""The panels with ten thousand groups, many of them in trouble, and with nothing at all: a real Prometheus answers."""

import http.server
import threading
from contextlib import contextmanager

import pytest

from dashboards import queries
from streaming.config import Settings
from streaming.serve import metrics
from streaming.serve.health import Health
from streaming.store import Store
from tests.dashboards import grafana, prometheus
from tests.embedded.waiting import await_true
from tests.streaming.outputs import CLUSTER, START_MS, finding, member, progress, report, view

pytestmark = pytest.mark.skipif(prometheus.missing() is not None, reason=str(prometheus.missing()))
GROUPS = 10_000
MOST = 100
"""Rows of a table, lines of a graph, marks on it: more nobody reads."""
GROUP = "group-0"
IN_CLUSTER = f'cluster="{CLUSTER}"'


def fleet(generation):
    """Every tenth group broken, every fifth rebalancing; each generation moves a partition."""
    for number in range(GROUPS):
        group = f"group-{number}"
        reader = member(f"m-{generation}", client_id=group, heartbeat_headroom=0.2, poll_headroom=0.1)
        phase = {"phase": "join", "since_ms": START_MS, "waiting_for": [reader["member_id"]], "waiting_for_total": 1}
        busy = {"state": "PreparingRebalance", "rebalance": phase} if number % 5 == 0 else {}
        shown = view(group, generation=generation, stable_since_ms=START_MS + generation, **busy)
        broken = [finding(group, severity="page")] if number % 10 == 0 else []
        yield report(group, *broken, view=shown | {"members": [reader]})


@pytest.fixture(scope="module")
def expositions(tmp_path_factory):
    """/metrics before and after a generation of every group."""
    settings = Settings(cluster=CLUSTER)
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('store')}/monitor.db")
    texts = []
    for batch_id, generation in enumerate((3, 9)):
        outputs = [progress(), *fleet(generation)]
        store.apply_batch(checkpoint_id="c", batch_id=batch_id, outputs=outputs, settings=settings, batch_ms=400)
        texts.append(metrics.exposition(store, settings, Health(0, 15_000)))
    store.close()
    return texts


@contextmanager
def exporter(texts):
    """Answer scrapes with each text in turn, with the last one for ever; gives host:port."""
    left = list(texts)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def scraping(folder, texts):
    nobody = "127.0.0.1:9"
    with exporter(texts) as address, prometheus.prometheus(folder, address, nobody) as asking:
        await_true(lambda: asking.now("count_over_time(up[1m]) >= 3"))
        yield asking


def asked():
    """Every query of the dashboards; an alert rule is free to fire for each group."""
    return [one for one in grafana.queries(cluster=CLUSTER, group=GROUP) if not one.place.startswith("rule:")]


def test_no_panel_shows_more_than_people_can_read(expositions, tmp_path):
    with scraping(tmp_path, expositions) as asking:
        assert asking.now(f"count({metrics.GROUP_INFO})")[0]["value"][1] == str(metrics.GROUP_SERIES)
        await_true(lambda: asking.now(f"{queries.new_generations('1m', IN_CLUSTER)} > 0"))
        sizes = {place: len(asking.now(expr)) for place, expr in asked()}
    assert {place: size for place, size in sizes.items() if size > MOST} == {}
    assert {"fleet: Open incidents, oldest first": MOST, "rebalances: Flappers": 50}.items() <= sizes.items()


def test_every_query_has_an_answer_where_there_is_nothing_yet(tmp_path):
    with scraping(tmp_path, [b""]) as asking:
        found = {place: asking.now(expr) for place, expr in asked()}
    shown = {place: [sample["value"][1] for sample in samples] for place, samples in found.items() if samples}
    assert all(values == ["0"] for values in shown.values()), shown

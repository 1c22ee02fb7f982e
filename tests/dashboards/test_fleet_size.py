"""The panels with ten thousand groups, many of them in trouble, with nothing at all, and with groups of strange names.

A real Prometheus answers.
"""

import http.server
import threading
from contextlib import contextmanager

import pytest

from dashboards import queries
from streaming.config.settings import Settings
from streaming.serve import metrics
from streaming.serve.health import Health
from streaming.store import Store
from tests.dashboards import grafana, prometheus
from tests.support.outputs import CLUSTER, START_MS, finding, member, partition, partitions, progress, report, view
from tests.support.waiting import await_true

pytestmark = pytest.mark.skipif(prometheus.missing() is not None, reason=str(prometheus.missing()))
GROUPS = 10_000
MOST = 100
"""Rows of a table, lines of a graph, marks on it: more nobody reads."""
GROUP = "group-0"
IN_CLUSTER = f'cluster="{CLUSTER}"'
STRANGE = (
    "o'brien",
    'say "hi"',
    "back\\slash",
    ".*",
    "a.b",
    "axb",
    '"} or up{a="',
    "$cluster ${group:raw}",
    "<b>&'",
    "a:b/c d",
)


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
        topics = [f"topic-{number:03}" for number in range(150)] if group == GROUP else ["orders"]
        rows = [partition(topic=topic, lag=number, status="stall", note="stuck") for topic in topics]
        yield partitions(group, *rows, commits=generation)


def exported(folder, *batches):
    """/metrics after each batch of reports."""
    settings = Settings.model_validate({"cluster": CLUSTER, "serve": {"partition_metrics": True}})
    store = Store.open(f"sqlite:///{folder}/monitor.db")
    for batch_id, reports in enumerate(batches):
        outputs = [progress(), *reports]
        store.apply_batch(checkpoint_id="c", batch_id=batch_id, outputs=outputs, settings=settings, batch_ms=400)
        yield metrics.exposition(store, settings, Health(15_000))
    store.close()


@pytest.fixture(scope="module")
def expositions(tmp_path_factory):
    """/metrics before and after a generation of every group."""
    return list(exported(tmp_path_factory.mktemp("store"), fleet(3), fleet(9)))


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
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
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


def asked(group=GROUP):
    """Every query of the dashboards; an alert rule is free to fire for each group."""
    return [one for one in grafana.queries(cluster=CLUSTER, group=group) if not one.place.startswith("rule:")]


def test_no_panel_shows_more_than_people_can_read(expositions, tmp_path):
    with scraping(tmp_path, expositions) as asking:
        assert asking.now(f"count({metrics.GROUP_INFO})")[0]["value"][1] == str(metrics.GROUP_SERIES)
        await_true(lambda: asking.now(f"{queries.new_generations('1m', IN_CLUSTER)} > 0"))
        sizes = {place: len(asking.now(expr)) for place, expr in asked()}
    assert {place: size for place, size in sizes.items() if size > MOST} == {}
    assert {"fleet: Open incidents, oldest first": MOST, "rebalances: Flappers": 50}.items() <= sizes.items()
    lag = ("fleet: Largest lag", "fleet: Longest wait", "fleet: Stalled partitions, by topic", "group: Lag, by topic")
    assert [sizes[place] for place in lag] == [20, 20, MOST, 50]


def test_every_query_has_an_answer_where_there_is_nothing_yet(tmp_path):
    with scraping(tmp_path, [b""]) as asking:
        found = {place: asking.now(expr) for place, expr in asked()}
    shown = {place: [sample["value"][1] for sample in samples] for place, samples in found.items() if samples}
    assert all(values == ["0"] for values in shown.values()), shown


def test_a_groups_panels_are_about_that_group_whatever_its_name(tmp_path):
    reports = [report(group, finding(group, severity="page"), view=view(group)) for group in STRANGE]
    with scraping(tmp_path, list(exported(tmp_path, reports))) as asking:
        for group in STRANGE:
            found = {place: asking.now(expr) for place, expr in asked(group) if place.startswith("group: ")}
            told = {
                sample["metric"]["group"]
                for samples in found.values()
                for sample in samples
                if "group" in sample["metric"]
            }
            assert told == {group}
            assert [sample["value"][1] for sample in found["group: Open incidents"]] == ["1"]

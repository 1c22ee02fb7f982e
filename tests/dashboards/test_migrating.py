"""`docs/migrating.md`: it lists every metric of each exporter, and each query of others has data at our endpoints.

A real Prometheus scrapes the three paths as it would scrape the exporters, with the labels that dashboards choose by.
"""

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming.config.settings import Settings
from streaming.serve import lag_metrics
from streaming.serve.exporters import burrow, kafka_exporter, kminion
from streaming.store import Store
from tests.dashboards import prometheus
from tests.streaming.serve.conftest import running
from tests.support.outputs import CLUSTER, START_MS, member, partition, partitions, progress, report, view
from tests.support.waiting import await_true

PAGE = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
QUERIES = [line for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
FAMILIES = {**kminion.FAMILIES, **kafka_exporter.FAMILIES, **burrow.FAMILIES}
LABELS = {
    "namespace": "kafka",
    "kubernetes_pod_name": "monitor-0",
    "strimzi_io_cluster": "mine",
    "kafka_cluster": "mine",
}
VARIABLES = {
    "kubernetes_namespace": "kafka", "strimzi_cluster_name": "mine", "kafka_topic": "orders-prod", "topic": ".*",
    "consumer_group": "orders", "consumergroup": "orders", "env": "prod", "stuck_group": "stuck",
    "stuck_topic": "orders-prod", "absent_group": "gone", "absent_topic": "orders-prod", "job": "kafka-exporter",
    "__rate_interval": "20s",
}  # fmt: skip
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
scrape_configs:
"""
JOB = """
  - job_name: {job}
    metrics_path: /metrics/{job}
    static_configs: [{{targets: ["{address}"], labels: {labels}}}]
"""
ROUNDS = 5


def in_tables() -> set[str]:
    """Names of other exporters' metrics that the page's tables tell of."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return set(re.findall(r"`((?:kminion|kafka|burrow)_[a-z_]+)`", "\n".join(rows)))


def test_the_page_tells_of_every_metric_that_is_served_and_of_no_other():
    assert in_tables() == FAMILIES.keys()


def test_the_page_names_our_own_metrics_as_they_are():
    from streaming.serve import metrics

    assert set(re.findall(r"`(group_monitor_[a-z_]+)`", PAGE)) <= metrics.HELP.keys()
    assert {lag_metrics.TOPIC_LAG, lag_metrics.GROUP_LAG} <= set(re.findall(r"`(group_monitor_[a-z_]+)`", PAGE))


def fleet(round_number: int) -> list[dict]:
    """A group that falls behind, one that stands still, one that went back; one of its members has no partition."""
    done, end = 1_000 + 10 * round_number, 40_000 + 900 * round_number
    owned = [{"topic": "orders-prod", "partitions": [0]}]
    shown = view("orders") | {"members": [member("m-0", assignment=owned), member("m-1", assignment=[])]}
    of = {"topic": "orders-prod", "end_offset": end}
    falls = partition(0, committed_offset=done, lag=end - done, status="warn", **of)
    stands = partition(0, committed_offset=500, lag=end - 500, status="stall", note="stuck", **of)
    back = partition(0, committed_offset=900 - round_number, lag=end - 900 + round_number, status="rewind", **of)
    asked = {"asked_ms": START_MS + round_number * 1_000}
    return [
        report("orders", view=shown),
        report("stuck", view=view("stuck")),
        report("back", view=view("back")),
        partitions("orders", falls, commits=10 * round_number, **asked),
        partitions("stuck", stands, **asked),
        partitions("back", back, **asked),
        progress(),
    ]


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    if missing := prometheus.missing():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("migrating")
    settings = Settings.model_validate({"cluster": CLUSTER, "serve": {"port": 0}})
    store = Store.open(f"sqlite:///{folder}/monitor.db")
    batches = itertools.count()

    def work() -> None:
        number = next(batches)
        store.apply_batch(checkpoint_id="c", batch_id=number, outputs=fleet(number), settings=settings)

    work()
    with running(store, settings) as base:
        address = base.removeprefix("http://")
        jobs = (JOB.format(job=job, address=address, labels=LABELS) for job in ("kminion", "kafka-exporter", "burrow"))
        with prometheus.configured_as(folder / "prometheus", CONFIG.format() + "".join(jobs)) as asked:
            VARIABLES["instance"] = address
            for number in range(1, ROUNDS + 1):
                work()
                seen = f'kafka_consumergroup_current_offset{{consumergroup="orders"}} == {1_000 + 10 * number}'
                await_true(lambda seen=seen: asked.now(seen) and asked.now("count(up == 1) == 3"))
            yield asking_at_a_good_moment(asked.url, work)
    store.close()


def asking_at_a_good_moment(url: str, work: Callable[[], None]) -> prometheus.Asking:
    """Ask about an instant at which every query has data: on a busy machine, a scrape is missing now and then.

    After a minute the newest instant is taken, so that the test of each query that has none fails.
    """
    deadline_s = time.monotonic() + 60
    while True:
        work()
        asking = prometheus.Asking(url, at_s=time.time())
        if all(asking.now(filled(query)) for query in QUERIES) or time.monotonic() > deadline_s:
            return asking
        time.sleep(0.5)


def filled(query: str) -> str:
    """Set the dashboard's variables; nobody waits for a quarter of an hour."""
    text = re.sub(r"\$(\w+)", lambda found: VARIABLES[found[1]], query)
    return text.replace("offset 15m", "offset 3s")


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_a_query_of_others_has_data(asking, query):
    found = asking.now(filled(query))
    assert found, filled(query)
    scalar = query.startswith("scalar")
    values = [found[1]] if scalar else [sample["value"][1] for sample in found]
    assert "NaN" not in values


def test_every_metric_of_the_tables_has_data(asking):
    assert [name for name in FAMILIES if not asking.now(name)] == []


def test_three_scrapes_are_good_and_short(asking):
    took = asking.now("max(scrape_duration_seconds)")
    assert float(took[0]["value"][1]) < 1
    assert asking.now("count(up == 1)")[0]["value"][1] == "3"

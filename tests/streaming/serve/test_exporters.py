"""The endpoints that stand in for other exporters: their names, labels and numbers, and nothing that is not known."""

import socket
import threading
from contextlib import ExitStack
from importlib.metadata import version

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streaming.serve.exporters import endpoints, reading, text
from streaming.serve.server import WORKER_THREADS
from tests.streaming.serve.conftest import STALLED_MS, sign_of_life
from tests.support.outputs import (
    CLUSTER,
    START_MS,
    decoded,
    member,
    partition,
    partitions,
    progress,
    report,
    sums_of,
    view,
)
from tests.support.waiting import PATIENCE_S

NOTHING = {
    "lag": None, "lag_ms": None, "committed_offset": None, "committed_ms": None, "end_offset": None,
    "status": "unknown", "owner": None,
}  # fmt: skip
PATHS = [f"/metrics/{name}" for name in endpoints.EXPORTERS]
EVIL = 'a"}\n{b="\\'
OURS = f"group-monitor {version('kafka-group-monitor')}"


def lines(client, path):
    """Samples of an answer, sorted."""
    body = client.get(path).text
    return sorted(line for line in body.splitlines() if not line.startswith(("#", "group_monitor_")))


def samples(client, path):
    """(name, its labels) -> value."""
    found = {}
    for family in text_string_to_metric_families(client.get(path).text):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


@pytest.fixture
def orders(apply, store):
    """A group of two members, one without a partition, that is behind in the first of two partitions."""
    both = [{"topic": "orders", "partitions": [0, 1]}]
    members = [member("m-0", assignment=both), member("m-1", assignment=[])]
    shown = view(coordinator="broker-1") | {"members": members}
    rows = (partition(0, status="stall"), partition(1, **NOTHING))
    apply(report("orders", view=shown), partitions("orders", *rows, commits=370), progress(), decoded())
    sign_of_life(store)


def test_kminion(orders, client):
    group, topic = 'group_id="orders"', 'group_id="orders",topic_name="orders"'
    info = 'protocol="range",protocol_type="consumer",state="Stable",coordinator_id="broker-1"'
    assert lines(client, "/metrics/kminion") == sorted(
        [
            f'kminion_exporter_up{{version="{OURS}"}} 1',
            "kminion_exporter_offset_consumer_records_consumed_total{} 5",
            f"kminion_kafka_consumer_group_info{{{group},{info}}} 1",
            f"kminion_kafka_consumer_group_members{{{group}}} 2",
            f"kminion_kafka_consumer_group_empty_members{{{group}}} 1",
            f"kminion_kafka_consumer_group_topic_members{{{topic}}} 1",
            f"kminion_kafka_consumer_group_topic_assigned_partitions{{{topic}}} 2",
            f"kminion_kafka_consumer_group_topic_offset_sum{{{topic}}} 960",
            f'kminion_kafka_consumer_group_topic_partition_lag{{{topic},partition_id="0"}} 40',
            f"kminion_kafka_consumer_group_topic_lag{{{topic}}} 40",
            f"kminion_kafka_consumer_group_offset_commits_total{{{group}}} 370",
            'kminion_kafka_topic_partition_low_water_mark{topic_name="orders",partition_id="0"} 100',
            'kminion_kafka_topic_partition_low_water_mark{topic_name="orders",partition_id="1"} 100',
            'kminion_kafka_topic_partition_high_water_mark{topic_name="orders",partition_id="0"} 1000',
            'kminion_kafka_topic_low_water_mark_sum{topic_name="orders"} 200',
        ]
    )


def test_kafka_exporter(orders, client):
    topic = 'consumergroup="orders",topic="orders"'
    assert lines(client, "/metrics/kafka-exporter") == sorted(
        [
            f'kafka_consumergroup_current_offset{{{topic},partition="0"}} 960',
            f"kafka_consumergroup_current_offset_sum{{{topic}}} 960",
            f'kafka_consumergroup_lag{{{topic},partition="0"}} 40',
            f"kafka_consumergroup_lag_sum{{{topic}}} 40",
            'kafka_consumergroup_members{consumergroup="orders"} 2',
            'kafka_topic_partition_current_offset{topic="orders",partition="0"} 1000',
            'kafka_topic_partition_oldest_offset{topic="orders",partition="0"} 100',
            'kafka_topic_partition_oldest_offset{topic="orders",partition="1"} 100',
        ]
    )


def test_burrow_and_its_exporter(orders, client):
    group, theirs = 'cluster="prod",consumer_group="orders"', 'cluster="prod",group="orders"'
    first = 'topic="orders",partition="0"'
    assert lines(client, "/metrics/burrow") == sorted(
        [
            f"burrow_kafka_consumer_lag_total{{{group}}} 40",
            f"burrow_kafka_consumer_status{{{group}}} 3",
            f"burrow_kafka_topic_partition_status{{{group},{first}}} 5",
            f"burrow_kafka_consumer_current_offset{{{group},{first}}} 960",
            f"burrow_kafka_consumer_partition_lag{{{group},{first}}} 40",
            f'burrow_kafka_topic_partition_offset{{cluster="prod",{first}}} 1000',
            f"kafka_burrow_total_lag{{{theirs}}} 40",
            f"kafka_burrow_status{{{theirs}}} 4",
            f"kafka_burrow_partition_status{{{theirs},{first}}} 6",
            f"kafka_burrow_partition_current_offset{{{theirs},{first}}} 960",
            f"kafka_burrow_partition_lag{{{theirs},{first}}} 40",
            f"kafka_burrow_partition_max_offset{{{theirs},{first}}} 1000",
            f'kafka_burrow_topic_partition_offset{{cluster="prod",{first}}} 1000',
        ]
    )


STATUSES = {
    # status: (Burrow of a group, of a partition; its exporter of a group, of a partition)
    "ok": (1, 1, 2, 2),
    "warn": (2, 2, 3, 3),
    "stop": (3, 4, 4, 5),
    "stall": (3, 5, 4, 6),
    "rewind": (3, 6, 4, 7),
    "unknown": (None,) * 4,
}


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_has_the_numbers_that_burrow_and_its_exporter_give_it(apply, client, status):
    apply(report("g", view=view("g")), partitions("g", partition(status=status)))
    found = samples(client, "/metrics/burrow")
    told = {name: value for (name, _), value in found.items() if name.endswith("_status")}
    names = ("burrow_kafka_consumer_status", "burrow_kafka_topic_partition_status", "kafka_burrow_status",
             "kafka_burrow_partition_status")  # fmt: skip
    assert tuple(told.get(name) for name in names) == STATUSES[status]


@pytest.mark.parametrize("path", PATHS)
def test_a_group_that_has_committed_nothing_has_no_lag(apply, client, path):
    """kafka_exporter says -1, others 0 or NaN."""
    apply(report("new", view=view("new", members=0)), partitions("new", partition(**NOTHING)))
    assert not [line for line in lines(client, path) if "new" in line and ("lag" in line or "committed" in line)]


@pytest.mark.parametrize("path", PATHS)
def test_a_deleted_group_is_gone(apply, client, path):
    apply(report(view=view()), partitions())
    assert any("orders" in line for line in lines(client, path))
    apply(report(deleted=True, at_ms=START_MS + 1))
    assert not any("orders" in line for line in lines(client, path))


@pytest.mark.parametrize("path", PATHS)
def test_every_family_says_what_it_is_once_and_before_its_samples(orders, client, path):
    answer = client.get(path)
    assert answer.headers["content-type"] == endpoints.CONTENT_TYPE
    families = list(text_string_to_metric_families(answer.text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families)
    assert answer.text.count("# TYPE") == len(families)


@pytest.mark.parametrize("path", PATHS)
def test_hostile_names_stay_labels(apply, client, path):
    owner = [EVIL] * 4 + [3]
    shown = view(EVIL, protocol=EVIL, protocol_type="consumer", coordinator=EVIL)
    shown["members"][0]["assignment"] = [{"topic": EVIL, "partitions": [0]}]
    apply(report(EVIL, view=shown), partitions(EVIL, partition(topic=EVIL, owner=owner, metadata=EVIL)))
    found = samples(client, path)
    named = [dict(labels) for _, labels in found]
    assert {labels.get("topic") or labels.get("topic_name") for labels in named} == {None, EVIL}
    groups = ("group_id", "consumergroup", "consumer_group", "group")
    assert {labels[name] for labels in named for name in groups if name in labels} == {EVIL}


@pytest.mark.parametrize("path", PATHS[:2])
def test_where_labels_have_no_cluster_several_clusters_are_asked_for_one(apply, client, path):
    apply(report(view=view()), partitions())
    apply(report("dev-orders", view=view("dev-orders", cluster="dev")), partitions("dev-orders"), cluster="dev")
    refused = {"error": "several clusters have groups; add ?cluster=", "clusters": ["dev", CLUSTER]}
    assert client.json(path, 400) == refused
    apply(progress(), caught_up=False)
    assert client.json(path, 400) == refused  # while one of them catches up, the other's groups do not pass for its own
    apply(progress())
    assert "dev-orders" in client.get(f"{path}?cluster=dev").text
    assert "dev-orders" not in client.get(f"{path}?cluster={CLUSTER}").text
    assert client.json(f"{path}?cluster=nowhere", 404) == {"error": "no such cluster"}


def test_burrows_labels_have_the_cluster_so_all_are_told(apply, client):
    apply(report(view=view()), partitions())
    apply(report(view=view(cluster="dev")), partitions("orders", partition(lag=7)), cluster="dev")
    found = samples(client, "/metrics/burrow")
    totals = {dict(labels)["cluster"]: value for (name, labels), value in found.items() if name.endswith("total_lag")}
    assert totals == {CLUSTER: 40, "dev": 7}
    chosen = {dict(labels).get("cluster") for _, labels in samples(client, "/metrics/burrow?cluster=dev")}
    assert chosen == {"dev", None}


@pytest.mark.parametrize("path", PATHS)
def test_the_lags_of_a_run_that_stands_still_are_not_served(orders, apply, client, store, path):
    """They were served unchanged for ever, so that Prometheus' `up` was 1 and an alert about lag stayed silent."""
    sign_of_life(store, age_ms=2 * STALLED_MS)
    for query in ("", "?cluster=prod"):
        assert client.json(path + query, 503) == {"error": "not current: prod makes no progress"}
    apply(report("new", view=view("new", cluster="renamed")), partitions("new"), cluster="renamed")
    text = client.get(path).text
    assert "new" in text
    assert "orders-0" not in text
    assert 'group="orders"' not in text


def test_slow_scrapes_hold_up_no_other_answer_and_abandoned_ones_are_not_begun(apply, client, monkeypatch):
    """Eight scrapes of a large cluster that had timed out took all threads, and each new one began another."""
    apply(progress())
    begun, go_on, begins = threading.Semaphore(0), threading.Event(), []

    def slow(reading):
        begins.append(reading)
        begun.release()
        assert go_on.wait(PATIENCE_S)
        return [b"made"]

    monkeypatch.setitem(endpoints.EXPORTERS, "burrow", slow)
    host, port = client.base.removeprefix("http://").split(":")
    with ExitStack() as scrapes:
        for _ in range(2 * WORKER_THREADS):
            scrape = scrapes.enter_context(socket.create_connection((host, int(port))))
            scrape.sendall(b"GET /metrics/burrow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(endpoints.SCRAPES_AT_ONCE):
            assert begun.acquire(timeout=PATIENCE_S)
        client.json("/healthz")
    client.json("/healthz")
    go_on.set()
    assert client.get("/metrics/burrow").text == "made"
    assert len(begins) == endpoints.SCRAPES_AT_ONCE + 1


@pytest.mark.parametrize("path", PATHS)
def test_while_a_run_catches_up_its_lags_of_before_are_not_served(orders, apply, client, path):
    """They stand still until it has caught up, which may take an hour: no alert about them could come."""
    apply(progress(), caught_up=False)
    assert client.json(path, 503)["error"] == f"not current: {CLUSTER} is catching up"
    apply(progress())
    assert samples(client, path)


def test_of_a_connect_group_nobody_is_counted_as_without_a_partition(apply, client):
    apply(report("c", view=view("c", protocol_type="connect") | {"members": [member("m", assignment=[])]}))
    assert "empty_members{" not in client.get("/metrics/kminion").text


def test_of_several_groups_that_know_a_partition_the_newest_offset_counts(apply, client):
    old = partitions("a", partition(end_offset=5), asked_ms=START_MS - 10_000)
    new = partitions("b", partition(end_offset=9))
    older = partitions("c", partition(end_offset=4), asked_ms=START_MS - 20_000)
    apply(*(report(name, view=view(name)) for name in "abc"), old, new, older)
    found = samples(client, "/metrics/kafka-exporter")
    assert found["kafka_topic_partition_current_offset", (("partition", "0"), ("topic", "orders"))] == 9


def test_sums_by_topic_are_of_all_partitions_where_only_the_worst_are_kept(apply, client):
    cut = partitions("orders", partition(), left_out=5_000, sums=[sums_of("orders", lag=69_000)])
    apply(report(view=view()), cut, report("small", view=view("small")), partitions("small"))
    of_topic = ("topic_name", "orders")
    kminion, kafka = samples(client, "/metrics/kminion"), samples(client, "/metrics/kafka-exporter")
    assert kminion["kminion_kafka_consumer_group_topic_lag", (("group_id", "orders"), of_topic)] == 69_000
    assert kminion["kminion_kafka_topic_high_water_mark_sum", (of_topic,)] == 570_000
    assert kminion["kminion_kafka_topic_low_water_mark_sum", (of_topic,)] == 9
    assert kafka["kafka_consumergroup_lag_sum", (("consumergroup", "orders"), ("topic", "orders"))] == 69_000


def test_a_large_cluster_waits_in_files_and_is_whole(apply, client, monkeypatch):
    monkeypatch.setattr(text, "_IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(text, "_LINES_AT_ONCE", 3)
    rows = [partition(number, lag=number) for number in range(50)]
    apply(report("big", view=view("big")), partitions("big", *rows))
    lags = [value for (name, _), value in samples(client, "/metrics/burrow").items() if name.endswith("partition_lag")]
    assert sorted(lags) == sorted(2 * [*range(50)])


def test_what_is_beyond_the_bound_is_left_out_and_counted(apply, client, monkeypatch):
    monkeypatch.setattr(reading, "MOST_PARTITIONS", 3)
    names = ("a", "b", "c")
    apply(*(report(name, view=view(name)) for name in names), *(partitions(name) for name in names))
    found = samples(client, "/metrics/burrow")
    assert [dict(labels)["group"] for name, labels in found if name == "kafka_burrow_total_lag"] == ["a"]
    assert found["group_monitor_lags_without_series", (("of", "group"),)] == 2

"""`/metrics` of lag: by group and topic always, by partition if asked for, and nothing where nothing is known."""

import pytest

from streaming.serve import lag_metrics, metrics
from streaming.serve.health import Health
from tests.streaming.serve.test_metrics import labels, scrape
from tests.support.outputs import CLUSTER, START_MS, partition, partitions, report, sums_of, view

GROUP = {"cluster": CLUSTER, "group": "orders"}
TOPIC = {**GROUP, "topic": "orders"}
UNKNOWN = partition(
    1, lag=None, lag_ms=None, committed_offset=None, committed_ms=None, end_offset=None, status="unknown", owner=None
)
EVIL = 'a"}\n{\\'


@pytest.fixture
def by_partition(settings):
    """The same settings with series of partitions."""
    return settings.model_copy(update={"serve": settings.serve.model_copy(update={"partition_metrics": True})})


def exported(store, settings):
    return metrics.exposition(store, settings, Health(15_000), lambda: START_MS + 5_000).decode()


def test_groups_and_topics_have_lag_status_and_sums(apply, client):
    rows = [partition(0), partition(1, lag=2, lag_ms=9_000, status="stall", note="stuck")]
    apply(report(view=view()), partitions("orders", *rows, commits=123))
    samples = scrape(client)
    group, topic = labels(**GROUP), labels(**TOPIC)
    assert samples[lag_metrics.LAG] == {labels(cluster=CLUSTER): 42}
    assert samples[lag_metrics.LAG_GROUPS] == {labels(cluster=CLUSTER, status="stall"): 1}
    assert {name: samples[name][group] for name in GROUP_VALUES} == GROUP_VALUES
    assert {name: samples[name][topic] for name in TOPIC_VALUES} == TOPIC_VALUES


GROUP_VALUES = {
    lag_metrics.GROUP_LAG: 42,
    lag_metrics.GROUP_LAG_STATUS: 3,
    lag_metrics.GROUP_LAG_TIME: 9,
    lag_metrics.GROUP_STALLED: 1,
    lag_metrics.GROUP_LAG_UNKNOWN: 0,
    lag_metrics.GROUP_COMMITS: 123,
}
TOPIC_VALUES = {
    lag_metrics.TOPIC_LAG: 42,
    lag_metrics.TOPIC_LAG_STATUS: 3,
    lag_metrics.TOPIC_LAG_TIME: 9,
    lag_metrics.TOPIC_STALLED: 1,
    lag_metrics.TOPIC_COMMITTED: 1_920,
    lag_metrics.TOPIC_END: 2_000,
}


def test_what_is_not_known_has_no_sample(apply, client):
    """Other exporters show NaN or -1 where a group has not committed yet, which dashboards take for a lag."""
    apply(report(view=view()), partitions("orders", UNKNOWN), report("new", view=view("new")))
    samples = scrape(client)
    told = {name: samples.get(name) for name in (*GROUP_VALUES, *TOPIC_VALUES)}
    assert {name: value for name, value in told.items() if value is not None} == {
        lag_metrics.GROUP_STALLED: {labels(**GROUP): 0},
        lag_metrics.GROUP_LAG_UNKNOWN: {labels(**GROUP): 1},
        lag_metrics.TOPIC_STALLED: {labels(**TOPIC): 0},
    }
    assert samples[lag_metrics.LAG_GROUPS] == {labels(cluster=CLUSTER, status="unknown"): 1}


def test_a_deleted_group_has_no_series_any_more(apply, client):
    apply(report(view=view()), partitions())
    assert scrape(client)[lag_metrics.GROUP_LAG]
    apply(report(deleted=True, at_ms=START_MS + 1))
    assert not scrape(client).keys() & {lag_metrics.GROUP_LAG, lag_metrics.TOPIC_LAG, lag_metrics.LAG_GROUPS}


def test_of_a_group_of_which_only_the_worst_partitions_are_kept_the_sums_are_of_all(apply, client):
    sums = [sums_of("orders", partitions=5_000, lag=69_000, stalled=7), sums_of("other", unknown=3)]
    apply(report(view=view()), partitions("orders", partition(), left_out=5_001, sums=sums) | {"lag": 70_000})
    samples = scrape(client)
    assert samples[lag_metrics.GROUP_LAG] == {labels(**GROUP): 70_000}
    assert samples[lag_metrics.TOPIC_LAG] == {labels(**TOPIC): 69_000, labels(**TOPIC | {"topic": "other"}): 1_000}
    assert samples[lag_metrics.TOPIC_COMMITTED][labels(**TOPIC)] == 500_000
    assert samples[lag_metrics.GROUP_STALLED] == {labels(**GROUP): 7}
    assert samples[lag_metrics.GROUP_LAG_UNKNOWN] == {labels(**GROUP): 3}
    assert samples[lag_metrics.GROUP_LAG_TIME] == {labels(**GROUP): 90}


def test_topics_without_sums_are_counted_and_what_lacks_them_has_no_sample(apply, client):
    cut = {"left_out": 5_000, "sums": [sums_of("orders")], "sums_left_out": 2}
    apply(report(view=view()), partitions("orders", partition(), **cut))
    samples = scrape(client)
    assert samples[lag_metrics.LAGS_WITHOUT_SERIES][labels(of="topic")] == 2
    assert not samples.keys() & {lag_metrics.GROUP_STALLED, lag_metrics.GROUP_LAG_UNKNOWN}


def test_partitions_have_series_only_if_asked_for(apply, store, client, by_partition):
    apply(report(view=view()), partitions("orders", partition(0), UNKNOWN))
    assert lag_metrics.PARTITION_LAG not in scrape(client)
    lines = set(exported(store, by_partition).splitlines())
    of_first = f'{{cluster="{CLUSTER}",group="orders",partition="0",topic="orders"}}'
    assert {
        f"{lag_metrics.PARTITION_LAG}{of_first} 40.0",
        f"{lag_metrics.PARTITION_LAG_STATUS}{of_first} 0.0",
        f"{lag_metrics.PARTITION_LAG_TIME}{of_first} 2.0",
        f"{lag_metrics.PARTITION_COMMITTED}{of_first} 960.0",
        f"{lag_metrics.PARTITION_END}{of_first} 1000.0",
        f'{lag_metrics.LAG_AGE}{{cluster="{CLUSTER}"}} 5.0',
    } <= lines
    assert not [line for line in lines if 'partition="1"' in line]


def test_series_are_bounded_and_what_is_left_out_is_counted(apply, client, store, by_partition, monkeypatch):
    monkeypatch.setattr(lag_metrics, "TOPIC_SERIES", 3)
    monkeypatch.setattr(lag_metrics, "PARTITION_SERIES", 2)
    monkeypatch.setattr(lag_metrics, "PARTITIONS_READ", 6)
    rows = [partition(topic="a"), partition(topic="b")]
    names = ("g-0", "g-1", "g-2", "g-3")
    apply(*(report(name, view=view(name)) for name in names), *(partitions(name, *rows) for name in names))
    samples = scrape(client)
    assert len(samples[lag_metrics.TOPIC_LAG]) == 3
    assert len(samples[lag_metrics.GROUP_LAG]) == 4
    assert samples[lag_metrics.LAGS_WITHOUT_SERIES] == {labels(of="group"): 1, labels(of="topic"): 3}
    by_row = exported(store, by_partition)
    assert by_row.count(f"\n{lag_metrics.PARTITION_LAG}{{") == 2
    assert f'{lag_metrics.LAGS_WITHOUT_SERIES}{{of="partition"}} 4.0' in by_row  # of the three groups that were read


def test_of_a_group_s_topics_those_in_trouble_have_series(apply, client, monkeypatch):
    monkeypatch.setattr(lag_metrics, "TOPIC_SERIES", 2)
    rows = [partition(topic="a", lag=9), partition(topic="b", lag=90), partition(topic="c", lag=5, status="stop")]
    apply(report(view=view()), partitions("orders", *rows))
    assert scrape(client)[lag_metrics.TOPIC_LAG] == {
        labels(**GROUP, topic="b"): 90, labels(**GROUP, topic="c"): 5,
    }  # fmt: skip


def test_hostile_names_stay_one_label(apply, client):
    apply(report(EVIL, view=view(EVIL)), partitions(EVIL, partition(topic=EVIL, metadata=EVIL)))
    assert scrape(client)[lag_metrics.TOPIC_LAG] == {labels(cluster=CLUSTER, group=EVIL, topic=EVIL): 40}

"""How far behind groups are, as stored: with their group, bounded, and never a number where nothing is known."""

from collections import defaultdict
from itertools import count

import pytest

from streaming.config.settings import Settings
from streaming.store import Store
from streaming.store.lags import partitions_of, topic_lags, worst_partitions_first
from tests.support.outputs import (
    CLUSTER,
    START_MS,
    columns,
    lag_report,
    partition,
    partitions,
    progress,
    report,
    sums_of,
    view,
)

SETTINGS = Settings(cluster=CLUSTER)
HUGE = 2**63 - 1


@pytest.fixture
def store(url):
    opened = Store.open(url)
    yield opened
    opened.close()


@pytest.fixture
def apply(store):
    batches = defaultdict(count)  # of each checkpoint

    def _apply(*outputs, checkpoint_id="c-1", caught_up=True):
        store.apply_batch(
            checkpoint_id=checkpoint_id,
            batch_id=next(batches[checkpoint_id]),
            outputs=outputs,
            settings=SETTINGS,
            caught_up=caught_up,
        )

    return _apply


def groups_of(lags):
    return [lag.group for lag in lags]


def test_the_newest_judgement_of_a_group_counts(apply, store):
    apply(report("orders", view=view()), partitions("orders"))
    apply(partitions("orders", partition(lag=7), at_ms=START_MS + 10_000), lag_report("orders"))
    lag = store.lags.of_group(CLUSTER, "orders")
    assert (lag.lag, lag.status, lag.complete, lag.partitions, lag.at_ms) == (7, "ok", True, 1, START_MS + 10_000)
    assert store.lags.of_group(CLUSTER, "billing") is None


def test_group_objects_and_states_tell_the_lag_and_none_where_there_is_none(apply, store):
    apply(report("orders", view=view()), report("billing", view=view("billing")), partitions("orders"))
    shown = {group["group"]: (group["lag"], group["lag_status"]) for group in store.read.groups()}
    assert shown == {"orders": (40, "ok"), "billing": (None, None)}
    assert {state.group: (state.lag, state.lag_status) for state in store.read.group_states(10)} == shown


def test_a_report_of_lag_leaves_the_groups_row_alone(apply, store):
    apply(report("orders", view=view()))
    heard = {"kind": "heartbeats", "cluster": CLUSTER, "shard": 7, "at_ms": START_MS + 1, "seq": 1}
    apply(heard | {"groups": [["orders", 0.5, [START_MS]]]}, lag_report("orders", at_ms=START_MS + 2))
    (group,) = store.read.groups()
    assert group["at_ms"] == START_MS + 1


def test_a_deleted_group_takes_its_lag_along(apply, store):
    apply(report("orders", view=view()), partitions("orders"))
    apply(partitions("orders"), report("orders", deleted=True, at_ms=START_MS + 1))
    assert store.lags.of_group(CLUSTER, "orders") is None
    assert store.lags.totals() == []


def test_a_judgement_without_its_group_is_shown_nowhere_and_pruned(apply, store):
    apply(report("orders", view=view()), partitions("orders"), partitions("gone"))
    assert groups_of(store.lags.by_name([CLUSTER], 100)) == groups_of(store.lags.worst_first(10, 100)) == ["orders"]
    assert [total.groups for total in store.lags.totals()] == [1]
    store.prune(0)
    assert store.lags.of_group(CLUSTER, "gone") is None
    assert store.lags.of_group(CLUSTER, "orders") is not None


def test_a_fresh_checkpoint_that_has_caught_up_drops_what_another_judged(apply, store):
    apply(report("orders", view=view()), report("gone", view=view("gone")), partitions("orders"), partitions("gone"))
    apply(report("orders", view=view()), partitions("orders"), checkpoint_id="c-2", caught_up=False)
    assert store.lags.of_group(CLUSTER, "gone") is not None
    apply(progress(), checkpoint_id="c-2")
    assert store.lags.of_group(CLUSTER, "gone") is None
    assert store.lags.of_group(CLUSTER, "orders") is not None


def test_sums_beyond_what_a_column_holds_stop_nothing(apply, store):
    rows = [partition(number, lag=HUGE) for number in range(3)]
    apply(report("a", view=view("a")), report("b", view=view("b")), partitions("a", *rows), partitions("b", *rows))
    assert store.lags.of_group(CLUSTER, "a").lag == HUGE
    assert store.lags.totals()[0].lag == pytest.approx(2 * HUGE)


@pytest.mark.parametrize("group", ["a\x00b", "\ud800", "x" * 32_000, "'; DROP TABLE lags; --"])
def test_any_group_id_and_metadata_can_be_stored(apply, store, group):
    apply(report(group, view=view(group)), partitions(group, partition(metadata=group, topic=group)))
    (row,) = partitions_of(store.lags.of_group(CLUSTER, group).columns)
    assert (row["metadata"], row["topic"]) == (group, group)


def test_reading_ends_at_the_bound_and_tells_how_many_groups_are_left(apply, store):
    names = [f"group-{number}" for number in range(5)]
    apply(*(report(name, view=view(name)) for name in names), *(partitions(name) for name in names))
    some = store.lags.by_name([CLUSTER], 7)
    assert (groups_of(some), some.left_out) == (names[:3], 2)
    assert groups_of(store.lags.by_name(["elsewhere"], 7)) == []
    assert groups_of(store.lags.worst_first(2, 100)) == names[:2]


def test_partitions_are_the_contracts_objects_with_their_owners():
    found = list(partitions_of(columns(partition(0, note="stuck"), partition(3, owner=None, topic="a", topic_id=None))))
    assert found[0] | partition(0, note="stuck", owner="m-0") == found[0]
    assert (found[0]["owner_host"], found[0]["generation"], found[0]["owner_client_id"]) == ("10.0.0.7", 3, "worker")
    assert [found[1][name] for name in ("topic", "topic_id", "owner", "owner_host", "generation")] == ["a"] + [None] * 4


def test_the_worst_partitions_come_first():
    rows = [
        partition(0), partition(1, status="warn", lag=3), partition(2, status="stop", lag=5),
        partition(3, status="stop", lag=9), partition(4, status="unknown", lag=None), partition(5, lag=90),
    ]  # fmt: skip
    assert [row["partition"] for row in worst_partitions_first(partitions_of(columns(*rows)))] == [3, 2, 1, 4, 5, 0]


class TestSumsOfATopic:
    def test_partitions_are_added_up(self):
        rows = [partition(0), partition(1, lag=2, lag_ms=9_000, status="stall", note="stuck"), partition(topic="z")]
        first, last = topic_lags(columns(*rows))
        assert first[1:] == (2, 42, 9_000, 1_920, 200, 2_000, "stall", 1, 0)
        assert (last.topic, last.lag) == ("z", 40)

    def test_what_is_not_known_is_in_no_sum(self):
        unknown = partition(1, lag=None, lag_ms=None, committed_offset=None, end_offset=None, status="unknown")
        (topic,) = topic_lags(columns(partition(0), unknown))
        assert topic[1:] == (2, 40, 2_000, 960, 200, None, "ok", 0, 1)
        (topic,) = topic_lags(columns(unknown))
        assert topic[1:] == (1, None, None, None, 100, None, "unknown", 0, 1)

    def test_a_topic_that_was_recreated_is_one(self):
        (topic,) = topic_lags(columns(partition(0), partition(0, topic_id="another", lag=1)))
        assert topic.lag == 41

    def test_where_partitions_are_left_out_they_are_those_that_were_stored(self):
        (topic,) = topic_lags(columns(partition(0), left_out=3, sums=[sums_of("orders", lag=7)]))
        assert (topic.topic, topic.lag, topic.partitions) == ("orders", 7, 1)

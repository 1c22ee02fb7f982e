"""What partitions of a topic add up to, also of a group with too many partitions for all its rows."""

import pytest

from coordinator_model.lag import columns, topic_sums
from tests.support.lags import Life, Partition, keeps_up, slow

LIFE = {
    0: Partition(keeps_up(), topic="b"),
    1: Partition(slow(), topic="a"),
    2: Partition(slow(), topic="b"),
    3: Partition(keeps_up(until_ms=60_000), topic="b"),
    4: Partition(keeps_up(), topic="c"),
}


def judged():
    return Life(LIFE).view(100).play(300_000).outputs[-2]


@pytest.fixture
def whole():
    return judged()


def test_each_topic_has_the_sums_of_its_partitions(whole):
    sums = {of_topic.topic: of_topic for of_topic in topic_sums.topic_sums(whole["columns"])}
    assert [(name, found.partitions, found.stalled) for name, found in sums.items()] == [
        ("a", 1, 0),
        ("b", 3, 1),
        ("c", 1, 0),
    ]
    assert sum(found.lag for found in sums.values()) == whole["lag"]
    assert (sums["b"].start, sums["b"].end, sums["b"].unknown) == (0, 9_000, 0)
    assert sums["b"].lag == sums["b"].end - sums["b"].committed
    assert (sums["b"].lag_ms, sums["c"].status) == (max(whole["columns"]["lag_ms"]), "ok")


def test_rows_that_are_cut_off_count_in_the_sums(whole, monkeypatch):
    monkeypatch.setattr(columns, "MAX_ROWS", 2)
    cut = judged()
    assert (len(cut["columns"]["partition"]), cut["columns"]["left_out"], cut["columns"]["sums_left_out"]) == (2, 3, 0)
    assert cut["columns"]["sums"] == [list(of_topic) for of_topic in topic_sums.topic_sums(whole["columns"])]
    assert {name: cut[name] for name in ("lag", "status", "complete")} == {
        name: whole[name] for name in ("lag", "status", "complete")
    }


def test_of_very_many_topics_the_worst_are_kept_and_the_others_counted(monkeypatch):
    monkeypatch.setattr(columns, "MAX_ROWS", 2)
    monkeypatch.setattr(topic_sums, "MAX_SUMS", 2)
    told = judged()["columns"]
    assert ([of_topic[0] for of_topic in told["sums"]], told["sums_left_out"]) == (["a", "b"], 1)

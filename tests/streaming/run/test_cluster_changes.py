"""Tests of what starts a query again."""

import json
from functools import partial
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaTimeoutError

from streaming.config.settings import Settings
from streaming.run import cluster_changes
from streaming.run.cluster_changes import ClusterChanges
from streaming.run.known_partitions import PARTITIONS_FILE, KnownPartitions
from streaming.run.topics import Existing

KAFKA = Settings().kafka
OFFSETS = KAFKA.offsets_topic
READ = {"sources": [{"endOffset": json.dumps({OFFSETS: {"0": 5}})}]}
ASSIGNED = {OFFSETS: (0,)}


class Cluster:
    """The topics of a cluster, as `Topics` tells them; an end of None: no broker answers."""

    def __init__(self):
        self.existing_topics, self.end, self.closed = Existing(dict(ASSIGNED), {OFFSETS: "1"}), 5, 0

    def existing(self, _names):
        return self.existing_topics

    def ends(self, assigned):
        if self.end is None:
            raise KafkaTimeoutError
        return {name: {"0": self.end} for name in assigned}

    def close(self):
        self.closed += 1


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def known(tmp_path):
    return KnownPartitions(tmp_path / PARTITIONS_FILE)


@pytest.fixture
def changes(cluster, known):
    changes = ClusterChanges(KAFKA, cluster, known)
    changes.start_from({OFFSETS: "1"})
    return changes


def test_what_stays_the_same_starts_nothing_again(changes):
    assert not changes.reading_changes(ASSIGNED, set(), READ)


def test_a_new_partition_starts_the_query_again(changes, cluster):
    cluster.existing_topics.assigned[OFFSETS] = (0, 1)
    assert changes.reading_changes(ASSIGNED, set(), READ)


def test_a_topic_to_forget_does_not(changes, cluster):
    cluster.existing_topics.assigned["recreated"] = (0, 1)
    assert not changes.reading_changes(ASSIGNED, {"recreated"}, READ)


def test_a_recreated_topic_starts_the_query_again(changes, cluster):
    cluster.existing_topics.ids[OFFSETS] = "2"
    assert changes.reading_changes(ASSIGNED, set(), READ)


def test_a_topic_is_cut_short_only_if_it_is_found_so_twice(changes, cluster):
    """A new leader may lag; if the query starts again just then for another reason, it keeps its checkpoint."""
    cluster.end = 4
    assert not changes.reading_changes(ASSIGNED, set(), READ)
    assert changes.cut_short == set()
    assert changes.reading_changes(ASSIGNED, set(), READ)
    assert changes.cut_short == {OFFSETS}


def test_a_leader_that_lagged_twice_but_not_in_a_row_cut_nothing_short(changes, cluster):
    for cluster.end in (4, 5, 4):
        assert not changes.reading_changes(ASSIGNED, set(), READ)


def test_after_an_error_new_connections_are_asked(changes, cluster):
    """A client of kafka-python never logs in again to a broker that has refused it once."""
    cluster.end = None
    assert not changes.reading_changes(ASSIGNED, set(), READ)
    assert cluster.closed == 1


def test_new_topics_start_the_query_again_seldom(known):
    """A topic that has grown does at once."""
    counts = {"orders": 3}
    changes = ClusterChanges(KAFKA, SimpleNamespace(partition_counts=lambda: dict(counts)), known)
    changes.partition_counts, changes._new_topics_due = {"orders": 3}, lambda _: False
    counts["new"] = 2
    assert changes.changed_counts(["orders", "new"], ()) == {}
    counts["orders"] = 4
    assert changes.changed_counts(["orders", "new"], ()) == {"orders": 4}
    changes._new_topics_due = lambda _: True
    assert changes.changed_counts(["new"], ()) == {"new": 2}


def test_a_new_topic_that_a_group_owns_in_part_starts_the_query_again_at_once(known):
    """The shards judge `partition-unowned`, and they need the number of its partitions."""
    changes = ClusterChanges(KAFKA, SimpleNamespace(partition_counts=lambda: {"new": 2, "other": 3}), known)
    changes._new_topics_due = lambda _: False
    assert changes.changed_counts(["new", "other"], {"new"}) == {"new": 2}
    changes.partition_counts = {"new": 2, "other": 3}
    assert changes.changed_counts(["new", "other"], {"new"}) == {}


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_what_was_added_is_told_apart_from_what_was_there(monkeypatch, known, restarts):
    """And a deleted topic has no partitions: nobody has to read them."""
    counts = {"orders": 3, "logs": 1}
    topics = SimpleNamespace(partition_counts=lambda: dict(counts))
    monkeypatch.setattr(ClusterChanges, "_read_session_timeouts", lambda _: False)
    changes = ClusterChanges(KAFKA, topics, known)
    changes.read_facts()
    assert (changes.partition_counts, changes.added_partitions) == ({"orders": 3, "logs": 1}, {})
    counts["orders"] = 5
    del counts["logs"]
    for _ in range(restarts):
        changes = ClusterChanges(KAFKA, topics, known)
        changes.read_facts()
    changes.read_facts()
    assert changes.partition_counts == {"orders": 5, "logs": 0}
    assert {topic: added.first for topic, added in changes.added_partitions.items()} == {"orders": 3}
    assert changes.changed_counts(["orders", "logs"], ()) == {}


def test_partitions_that_were_added_shortly_before_a_restart_are_still_new(monkeypatch, known):
    counts = {"orders": 3}
    monkeypatch.setattr(ClusterChanges, "_read_session_timeouts", lambda _: False)
    for count in (3, 5, 5):
        counts["orders"] = count
        changes = ClusterChanges(KAFKA, SimpleNamespace(partition_counts=lambda: dict(counts)), known)
        changes.read_facts()
    assert [added.first for added in changes.added_partitions.values()] == [3]


def test_of_many_deleted_topics_the_newest_are_remembered(monkeypatch, known):
    monkeypatch.setattr(ClusterChanges, "_read_session_timeouts", lambda _: False)
    monkeypatch.setattr(cluster_changes, "DELETED_KEPT", 2)
    for existing in ("abcz", "bcz", "bz", "z", "z"):
        changes = ClusterChanges(KAFKA, SimpleNamespace(partition_counts=partial(dict.fromkeys, existing, 1)), known)
        changes.read_facts()
    assert changes.partition_counts == {"c": 0, "b": 0, "z": 1}


@pytest.mark.parametrize(
    "text",
    ['{"counts": 7}', '{"counts": {"t": null}, "added": {}}', '{"counts": {"t": 1}, "added": {"t": ["?", 1]}}'],
)
def test_a_file_of_partitions_that_cannot_be_read_counts_as_none(tmp_path, text):
    (tmp_path / PARTITIONS_FILE).write_text(text)
    assert KnownPartitions(tmp_path / PARTITIONS_FILE).read() == ({}, {})

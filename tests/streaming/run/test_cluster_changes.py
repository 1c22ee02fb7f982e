"""Tests of what starts a query again."""

from types import SimpleNamespace

from streaming.config import Settings
from streaming.run.cluster_changes import ClusterChanges


def test_new_topics_start_the_query_again_seldom():
    """A topic that has grown does at once."""
    counts = {"orders": 3}
    changes = ClusterChanges(Settings().kafka, SimpleNamespace(partition_counts=lambda: dict(counts)))
    changes.partition_counts, changes._new_topics_due = {"orders": 3}, lambda _: False
    counts["new"] = 2
    assert changes.changed_counts(["orders", "new"]) == {}
    counts["orders"] = 4
    assert changes.changed_counts(["orders", "new"]) == {"orders": 4}
    changes._new_topics_due = lambda _: True
    assert changes.changed_counts(["new"]) == {"new": 2}


def test_what_was_added_is_told_apart_from_what_was_there(monkeypatch):
    """And a deleted topic has no partitions: nobody has to read them."""
    counts = {"orders": 3, "logs": 1}
    changes = ClusterChanges(Settings().kafka, SimpleNamespace(partition_counts=lambda: dict(counts)))
    monkeypatch.setattr(changes, "_read_session_timeouts", lambda: False)
    changes.read_facts()
    assert (changes.partition_counts, changes.added_partitions) == ({"orders": 3, "logs": 1}, {})
    counts["orders"] = 5
    del counts["logs"]
    changes.read_facts()
    assert changes.partition_counts == {"orders": 5, "logs": 0}
    assert {topic: added.first for topic, added in changes.added_partitions.items()} == {"orders": 3}
    assert changes.changed_counts(["orders", "logs"]) == {}

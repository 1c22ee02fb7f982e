"""What changes in the cluster while a query runs, so that the query has to be started again."""

import time
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import structlog
from kafka.errors import KafkaError

from coordinator_model.added_partitions import AddedPartitions, added_partitions
from streaming.config.kafka import Kafka
from streaming.run.cluster_facts import SessionTimeouts, read_session_timeouts
from streaming.run.every import Every
from streaming.run.known_partitions import KnownPartitions
from streaming.run.topic_ids import cut_short
from streaming.run.topics import Assigned, Topics

log = structlog.get_logger(__name__)

NEW_TOPICS_S = 600.0  # how soon the shards are given the partition counts of topics newer than the query

DELETED_KEPT = 5_000  # how many deleted topics are remembered, the newest ones


class ClusterChanges:
    """Compares the cluster with what a query was started with.

    If brokers do not answer, that is logged, and counts as no change.
    """

    session_timeouts: SessionTimeouts
    partition_counts: dict[str, int]
    """A topic that is known to have been deleted has 0 partitions."""
    added_partitions: dict[str, AddedPartitions]
    cut_short: set[str]
    """Topics that were found twice in a row to end before what was read of them."""

    def __init__(self, kafka: Kafka, topics: Topics, known: KnownPartitions) -> None:
        self._kafka, self._topics, self._known = kafka, topics, known
        self.session_timeouts, self.cut_short = SessionTimeouts(), set()
        self.partition_counts, self.added_partitions = known.read()
        self._suspected: set[str] = set()
        """Topics that were found so when this was last looked at; once is not enough, as a new leader may lag."""
        self._ids: dict[str, str] = {}
        self._new_topics_due = Every(NEW_TOPICS_S)

    def start_from(self, ids: Mapping[str, str]) -> None:
        """Note the ids of the topics that a query is about to read."""
        self._ids, self.cut_short, self._suspected = dict(ids), set(), set()

    def read_facts(self) -> None:
        """Read the session timeouts and partition counts that the shards of a query are given."""
        self._read_session_timeouts()
        before, now = self.partition_counts, self._topics.partition_counts()
        self.added_partitions |= added_partitions(before, now, time.time_ns() // 1_000_000)
        earlier_first = sorted((topic for topic in before if topic not in now), key=lambda topic: before[topic] > 0)
        self.partition_counts = dict.fromkeys(earlier_first[-DELETED_KEPT:], 0) | now
        self._known.keep(self.partition_counts, self.added_partitions)
        self._new_topics_due = Every(NEW_TOPICS_S)

    def reading_changes(self, assigned: Assigned, forget: AbstractSet[str], progress: Any) -> bool:
        """Tell whether the query must read more than it does, except topics to forget, or a topic from its start."""
        try:
            existing = self._topics.existing(self._kafka.topics)
            short = cut_short(progress, self._topics.ends(assigned)) if progress is not None else set()
        except KafkaError as error:
            self._unanswered("brokers do not answer", error)
            return False
        grown = self._more_to_read(existing.assigned, assigned, forget)
        return self._begins_again(existing.ids, short) or grown

    def _more_to_read(self, existing: Assigned, assigned: Assigned, forget: AbstractSet[str]) -> bool:
        """Tell whether there are topics or partitions that the query does not read, except topics to forget."""
        known = {name: len(assigned.get(name, ())) for name in existing.keys() - forget}
        new = {name: existing[name] for name, count in known.items() if len(existing[name]) > count}
        if new:
            log.info("there is more to read, starting the query again", partitions={k: len(v) for k, v in new.items()})
        return bool(new)

    def _begins_again(self, ids: Mapping[str, str], short: set[str]) -> bool:
        """Tell whether a topic was recreated or cut short."""
        self.cut_short, self._suspected = short & self._suspected, short
        again = {name for name, topic_id in ids.items() if self._ids.setdefault(name, topic_id) != topic_id}
        return bool(again or self.cut_short)

    def facts_changed(self, topics_in_use: Iterable[str], partly_owned: Iterable[str]) -> bool:
        """Tell whether session timeouts or partition counts differ from those that the shards were given."""
        if self._read_session_timeouts():
            log.info("session timeouts of groups have changed, starting the query again")
            return True
        changed = self.changed_counts(topics_in_use, partly_owned)
        if changed:
            log.info("topics in use have other partitions, starting the query again", partitions=changed)
        return bool(changed)

    def changed_counts(self, topics_in_use: Iterable[str], partly_owned: Iterable[str]) -> dict[str, int]:
        """Return the partition counts that differ from those that the shards were given.

        Topics that the shards do not know are included only every `NEW_TOPICS_S`: a cluster gets new topics all day,
        and each start of the query costs seconds. Those that a group owns only in part are included at once: the
        shards judge them.
        """
        told = self.partition_counts
        try:
            counts = self._topics.partition_counts()
        except KafkaError as error:
            self._unanswered("partition counts cannot be read", error)
            return {}
        new_too, wanted = self._new_topics_due(time.monotonic()), told.keys() | partly_owned
        now = {topic: counts.get(topic, 0) for topic in topics_in_use if new_too or topic in wanted}
        return {topic: count for topic, count in now.items() if count != told.get(topic, 0)}

    def _read_session_timeouts(self) -> bool:
        """Read the session timeouts that brokers and groups are configured with; return whether they have changed."""
        before = self.session_timeouts
        try:
            self.session_timeouts = read_session_timeouts(self._kafka.python_client())
        except KafkaError as error:
            log.warning("session timeouts cannot be read", error=str(error))
        return self.session_timeouts != before

    def _unanswered(self, what: str, error: KafkaError) -> None:
        log.warning(what, error=str(error))
        self._topics.close()

"""The lag of all groups of a capture, from its commits, reports and rounds of end offsets in order of time.

It keeps plain dictionaries, for captures and tests. `run` keeps the same in columns (`streaming/run/lag`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator_model.decode.cluster_row import ClusterRow
from coordinator_model.events import OffsetCommitted
from coordinator_model.group_report import GroupReport, Said, instant_ms
from coordinator_model.lag.lag_context import FRESH_MS
from coordinator_model.lag.ownership import facts_of, owners_of
from coordinator_model.lag.partition import Commit, GroupFacts, Owner, PartitionLag
from coordinator_model.lag.window import extended, is_misdated, waits_since_ms
from coordinator_model.membership import Partition
from coordinator_model.rules.group_lag import judge_group
from coordinator_model.rules.outages import Outages
from coordinator_model.thresholds import Thresholds

UNKNOWN = "unknown"
NOT_SEEN = GroupFacts("", "", UNKNOWN, UNKNOWN, -1, 0, "", 0, None)
"""A group without a view yet."""


@dataclass(slots=True)
class _Committed:
    """What a group has committed of a partition."""

    commits: tuple[Commit, ...] = ()
    topic_id: str | None = None
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(slots=True)
class _Group:
    facts: GroupFacts
    committed: dict[Partition, _Committed] = field(default_factory=dict)
    owners: dict[Partition, Owner] = field(default_factory=dict)
    history: list[tuple[int, int]] = field(default_factory=list)
    commits: int = 0


@dataclass(slots=True)
class _Ends:
    """The newest known offsets of a partition's log. ``waits_since_ms`` reads ``grown``."""

    asked_ms: int = 0
    start: int | None = None
    end: int | None = None
    stable: int | None = None
    outage_end_ms: int = 0
    """When its leader answered again after a round in which it did not."""
    grown: list[tuple[int, int]] = field(default_factory=list)


class LagTracker:
    """The lag of every group of a cluster. Its input must be in order of time.

    ``histories``: the earlier lag of each group, if this tracker continues another one.
    """

    def __init__(
        self,
        cluster: str,
        thresholds_of: Callable[[str], Thresholds],
        histories: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._histories = histories or {}
        self._thresholds_of = thresholds_of
        self._groups: dict[str, _Group] = {}
        self._ends: dict[Partition, _Ends] = {}
        self._ids: dict[str, str] = {}
        """By topic name: the topic's id, if metadata has named it."""
        self._newest: dict[tuple[str, Partition, int], tuple[str, int]] = {}
        """The place of the newest commit record of each partition. Records before that place are older, whatever their
        timestamps say."""
        self._outages = Outages()
        self._rounds_again_ms = 0
        """When rounds resumed after some were missing."""
        self._round_ms = 0

    def commit(self, event: OffsetCommitted) -> None:
        """Apply a commit or its tombstone."""
        place = (event.committed_topic, event.committed_partition)
        lies_in, lies_at = (event.group, place, event.partition), (event.topic, event.offset)
        if self._newest.get(lies_in, ("", -1)) >= lies_at:
            return
        self._newest[lies_in] = lies_at
        if event.tombstone:
            self._uncommit(event.group, place)
            return
        group = self._group(event.group)
        known = group.committed.get(place)
        if known is None or _is_another(known.topic_id, event.topic_id):
            known = group.committed[place] = _Committed()
        known.topic_id = event.topic_id or known.topic_id
        ends = self._ends_of(place, known.topic_id)
        fresh = ends is not None and event.order_ms - ends.asked_ms <= FRESH_MS
        commit = Commit(event.committed_offset, event.order_ms, ends.end if ends is not None and fresh else None)
        known.commits = extended(known.commits, commit)
        known.leader_epoch, known.metadata = event.leader_epoch, event.metadata
        group.commits += 1

    def _uncommit(self, name: str, place: Partition) -> None:
        group = self._groups.get(name)
        if group is not None:
            group.committed.pop(place, None)
            if not group.committed and not group.facts.view_ms:
                del self._groups[name]

    def report(self, said: Said) -> None:
        """Apply an output of a shard: a group's view, its deletion, or an outage."""
        self._outages.take(said)
        if isinstance(said, GroupReport) and said.group:
            if said.deleted:
                self._groups.pop(said.group, None)
            elif (view := said.view) is not None:
                group = self._group(said.group)
                group.facts = facts_of(said, view)
                group.owners = owners_of(view, said.at_ms, group.owners)

    def round(self, row: ClusterRow) -> list[Said]:
        """Apply a round of end offsets, and judge every group."""
        now_ms, before_ms = row.timestamp_ms, self._round_ms
        if before_ms and now_ms > before_ms + FRESH_MS:
            self._rounds_again_ms = now_ms
        self._round_ms = now_ms
        for topic, ends in row.end_offsets.items():
            for partition, end in enumerate(ends):
                if end is not None:
                    self._ask(row, (topic, partition), end, before_ms)
        outputs: list[Said] = []
        for name in sorted(self._groups):
            outputs += self._judge(self._groups[name], now_ms)
        return outputs

    def name_topics(self, row: ClusterRow) -> None:
        """Learn the topics' ids. A topic for which the row has two ids is skipped: it is not known which is current."""
        ids: dict[str, list[str]] = {}
        for topic_id, name in row.topic_names.items():
            ids.setdefault(name, []).append(topic_id)
        self._ids |= {name: listed[0] for name, listed in ids.items() if len(listed) == 1}

    def _group(self, name: str) -> _Group:
        known = self._groups.get(name)
        if known is None:
            facts = NOT_SEEN._replace(cluster=self._cluster, group=name)
            known = self._groups[name] = _Group(facts, history=list(self._histories.get(name, ())))
        return known

    def _ask(self, row: ClusterRow, place: Partition, end: int, before_ms: int) -> None:
        topic, partition = place
        ends = self._ends.setdefault(place, _Ends())
        if 0 < ends.asked_ms < before_ms:
            ends.outage_end_ms = row.timestamp_ms
        ends.asked_ms, ends.end = row.timestamp_ms, end
        ends.start = _at(row.start_offsets.get(topic, ()), partition)
        # rows that have no stable offsets at all cannot tell of transactions: then everything counts as stable
        ends.stable = _at(row.stable_offsets.get(topic, row.end_offsets[topic]), partition)
        if ends.grown and end < ends.grown[-1][0]:
            ends.grown.clear()
        if not ends.grown or end > ends.grown[-1][0]:
            ends.grown.append((end, row.timestamp_ms))

    def _ends_of(self, place: Partition, topic_id: str | None) -> _Ends | None:
        """Return the offsets of a partition, if they are those of the topic with this id."""
        return None if _is_another(topic_id, self._ids.get(place[0])) else self._ends.get(place)

    def _judge(self, group: _Group, now_ms: int) -> tuple[Said, Said]:
        facts = group.facts
        places = {**group.committed, **group.owners}
        outages_ms = [self._rounds_again_ms, self._outages.end_ms(facts.shard, now_ms)]
        outages_ms += [ends.outage_end_ms for place in places if (ends := self._ends.get(place)) is not None]
        partitions = [self._partition(group, place) for place in places]
        told, report = judge_group(
            facts._replace(outage_end_ms=max(outages_ms)),
            partitions,
            now_ms,
            self._thresholds_of(facts.group),
            group.history,
            commits=group.commits,
        )
        group.history = [(at_ms, lag) for at_ms, lag in told["columns"]["history"]]
        return told, report

    def _partition(self, group: _Group, place: Partition) -> PartitionLag:
        known = group.committed.get(place, _Committed())
        owner = group.owners.get(place)
        if owner is not None and self._outages.is_open(group.facts.shard):
            owner = owner._replace(liveness=UNKNOWN)
        ends = self._ends_of(place, known.topic_id) or _Ends()
        waits_ms = waits_since_ms(ends.grown, known.commits[-1].offset) if known.commits else None
        return PartitionLag(
            topic=place[0],
            topic_id=known.topic_id,
            partition=place[1],
            commits=known.commits,
            start_offset=ends.start,
            end_offset=ends.end,
            asked_ms=ends.asked_ms or None,
            stable_offset=ends.stable,
            waits_since_ms=waits_ms,
            owner=owner,
            leader_epoch=known.leader_epoch,
            metadata=known.metadata,
        )


def _is_another(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _at(offsets: Sequence[int | None], partition: int) -> int | None:
    return offsets[partition] if partition < len(offsets) else None


def redated(commits: Iterable[OffsetCommitted], end_ms: int) -> tuple[list[OffsetCommitted], int]:
    """Give each commit that is later than the capture's end the instant of the commit before it in the log.

    A capture does not say when they were read. Return all commits, and how many were misdated.
    """
    listed: list[OffsetCommitted] = []
    misdated, before_ms = 0, dict[tuple[str, int], int]()
    for event in sorted(commits, key=lambda event: (event.topic, event.partition, event.offset)):
        log = (event.topic, event.partition)
        if is_misdated(event.order_ms, end_ms):
            misdated += 1
            listed.append(event._replace(order_ms=before_ms.get(log, end_ms)))
        else:
            before_ms[log] = event.order_ms
            listed.append(event)
    return listed, misdated


def track(
    tracker: LagTracker,
    commits: Iterable[OffsetCommitted],
    rows: Iterable[ClusterRow],
    said_until: Callable[[int], Iterable[Said]],
) -> Iterator[Said]:
    """Judge the groups at each round of a capture.

    ``said_until`` returns, in order, the shards' outputs up to an instant, except those that earlier calls returned.
    No commit may be misdated: ``redated`` has been called.
    """
    waiting = deque(sorted(commits, key=lambda event: (event.order_ms, event.partition, event.topic, event.offset)))
    for row in sorted(rows, key=lambda row: row.timestamp_ms):
        tracker.name_topics(row)
        if row.end_offsets:
            for output in said_until(row.timestamp_ms):
                _commit_until(tracker, waiting, min(instant_ms(output), row.timestamp_ms))
                tracker.report(output)
            _commit_until(tracker, waiting, row.timestamp_ms)
            yield from tracker.round(row)


def _commit_until(tracker: LagTracker, waiting: deque[OffsetCommitted], until_ms: int) -> None:
    while waiting and waiting[0].order_ms <= until_ms:
        tracker.commit(waiting.popleft())

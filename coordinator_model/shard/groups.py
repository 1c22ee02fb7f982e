"""The groups of a shard: their state, and the context in which one of them is judged.

A replica is a compressed slice (``group_store``) until an event needs it. Its members' heartbeats are in packed arrays
(``heartbeat_table``), and are filled in when the replica is decoded.
"""

from dataclasses import dataclass, field

from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.events import FAR_MS
from coordinator_model.replica.advance import take_heartbeats
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.shard import snapshot
from coordinator_model.shard.agenda import Agenda
from coordinator_model.shard.commit_times import CommitTimes
from coordinator_model.shard.group_store import GroupStore
from coordinator_model.shard.heartbeat_table import HeartbeatTable
from coordinator_model.shard.outputs import Outputs
from coordinator_model.shard.shard_memory import ShardMemory
from coordinator_model.shard.shard_settings import ShardSettings
from coordinator_model.states import GroupType
from coordinator_model.thresholds import Thresholds

DELETED_MEMORY_MS = 3_600_000
"""How long a deleted group's id and its count of incarnations are kept, to recognize its late events."""


@dataclass(slots=True)
class Groups:
    """The state of the groups of one operator key."""

    settings: ShardSettings
    shard: int
    key: str
    memory: ShardMemory = field(default_factory=ShardMemory)
    heartbeat_table: HeartbeatTable = field(default_factory=HeartbeatTable)
    commit_times: CommitTimes = field(default_factory=CommitTimes)
    group_store: GroupStore = field(default_factory=GroupStore)
    agenda: Agenda = field(init=False)
    changed: set[str] = field(default_factory=set)
    """Groups that have changed since they were last shown."""
    outputs: Outputs = field(init=False)
    _thresholds: dict[str, Thresholds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.agenda = Agenda(self.heartbeat_table)
        self.outputs = Outputs(self.settings.cluster, self.shard)

    @property
    def clock(self) -> CoordinatorTracker:
        """The brokers' clocks."""
        return self.memory.clock

    def replica(self, group: str) -> GroupReplica:
        """Return a group's replica, with the heartbeats that the fast path has applied."""
        replica = self.group_store.replica(group)
        take_heartbeats(replica, self.heartbeat_table.heard(group))
        return replica

    def context(self, group: str, progress_ms: int) -> JudgementContext:
        """Return the context in which a group is judged at an instant."""
        thresholds = self.thresholds_of(group)
        return JudgementContext(
            progress_ms=progress_ms,
            broker=self.clock.coordinator or "",
            timer_resets=self.clock.timer_resets,
            commits=self.commit_times.of_group(group, progress_ms),
            live_from_ms=self.settings.live_from_ms,
            covered_since_ms=self.clock.covered_since_ms,
            proof_arrival_ms=self.clock.accepted.settled_arrival_ms(progress_ms, thresholds.grace_ms),
            consumer_session_timeout_ms=self.settings.session_timeout_ms(group, self._type_of(group), thresholds),
            thresholds=thresholds,
            topic_partitions=self.settings.topic_partitions,
            added_partitions=self.settings.added_partitions,
            stalled=self.memory.watch.blind and not self.clock.by_records,
            blind=self.clock.blind,
            hole_is_open=self.clock.hole_is_open,
            by_records=self.clock.by_records,
            coordinates_ms=self.clock.accepted.newest_arrival_ms,
            claims=self.clock.claims,
            last_gap_ms=self.clock.last_gap_ms,
            dates_are_doubtful=bool(self.memory.dates.doubtful(progress_ms)),
            dates_are_far_apart=self.memory.dates.are_far_apart(progress_ms, thresholds.hold_ms),
            off_by_ms=self.clock.off_by_ms,
            reported={told.rule: told.severity for told in self.memory.reported.get(group, ()) if told.who == group},
        )

    def _type_of(self, group: str) -> GroupType | None:
        replica = self.group_store.opened(group)
        return None if replica is None else replica.type

    def thresholds_of(self, group: str) -> Thresholds:
        """Return a group's thresholds."""
        thresholds = self._thresholds.get(group)
        if thresholds is None:
            thresholds = self._thresholds[group] = self.settings.thresholds_of(group)
        return thresholds

    # ------------------------------------------------------------------ the state

    def dump(self) -> tuple[bytes, ...]:
        """Return the heartbeat table, the index, the group store, the commit times and their index, all encoded."""
        index = snapshot.dump_index(self.heartbeat_table)
        self.commit_times.sweep(self.clock.progress_ms)
        return (
            snapshot.dump_heartbeat_table(self.heartbeat_table),
            index,
            self.group_store.dump(),
            *snapshot.dump_commit_times(self.commit_times),
        )

    def rebase(self, delta_ms: int, until_ms: int) -> None:
        """Move all instants along with the coordinator's clock, which has stepped."""
        self.dump()
        self.heartbeat_table.rebase(delta_ms)
        self.commit_times.rebase(delta_ms)
        self.group_store.rebase(delta_ms, until_ms)
        self.memory.rebase(delta_ms, until_ms)
        self.agenda.rebase(delta_ms)

    # ------------------------------------------------------------------ a group that is gone

    def drop(self, group: str) -> None:
        """Forget everything about a group."""
        self.group_store.drop(group)
        self.heartbeat_table.drop_group(group)
        memory = self.memory
        self.agenda.forget(group)
        self.commit_times.end_simple(group)
        for known in (memory.reported, memory.deleted, self._thresholds):
            known.pop(group, None)
        self.changed.discard(group)

    def drop_if_gone_long_ago(self, group: str, at_ms: int) -> None:
        """Drop a group that was deleted long before an event: the event is of a new group with the same id."""
        if self.memory.deleted.get(group, FAR_MS) <= at_ms - DELETED_MEMORY_MS:
            self.drop(group)

    def keep_only_incarnation(self, group: str) -> None:
        """Forget a deleted group, except for its count of incarnations.

        The count distinguishes it from the next group with its id.
        """
        self.heartbeat_table.drop_group(group)
        self.commit_times.end_simple(group)
        self.agenda.forget(group)
        self.memory.deleted[group] = self.group_store.replica(group).state_since_ms
        self._thresholds.pop(group, None)

    def forget_deleted(self, now_ms: int) -> None:
        """Drop the groups that were deleted long ago. No late event of theirs is expected any more."""
        deleted = self.memory.deleted
        for group in [group for group, at_ms in deleted.items() if at_ms <= now_ms - DELETED_MEMORY_MS]:
            self.drop(group)

"""One shard: all groups of one partition of ``__consumer_offsets``, to which events are applied one by one.

Theory of operation. A batch is sorted by the coordinator's time. Events that are newer than the instant up to which the
slowest live source has been read are held back, for ``hold_ms`` at most. The rest is applied one by one: the event
moves its broker's clock; every verdict that is due before the event is made, at its own instant; the event is applied;
its group is evaluated. So the reports do not depend on how the events are divided into batches.

There are two paths. Nearly all events are heartbeats of known members of stable groups, answered 0. The fast path
applies such a heartbeat by writing two numbers in packed arrays. The slow path applies every other event: it decodes
the group's replica from its slice, replays the event, evaluates the group and writes its heartbeats back to the arrays.
Each slot has a *span*: how long after its last heartbeat the member must be looked at again. So one pass over arrays
shows whether anything is due.
"""

from collections.abc import Iterable, Mapping

from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.commit_block import CommitBlock
from coordinator_model.events import FAR_MS, Event, OffsetCommitted, Tick
from coordinator_model.heartbeat_block import HeartbeatBlock
from coordinator_model.shard import snapshot
from coordinator_model.shard.agenda import Agenda
from coordinator_model.shard.batch import Batch, OffsetsRead
from coordinator_model.shard.broker_lines import BrokerLines
from coordinator_model.shard.broker_reports import BrokerReports
from coordinator_model.shard.event_loop import EventLoop
from coordinator_model.shard.fast_path import FastPath
from coordinator_model.shard.group_events import GroupEvents
from coordinator_model.shard.group_judgement import GroupJudgement
from coordinator_model.shard.group_store import GroupStore
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.heartbeat_table import HeartbeatTable
from coordinator_model.shard.intake import Taken, take
from coordinator_model.shard.outputs import OFF_ITS_RECORDS, Output, Outputs
from coordinator_model.shard.schedule import Schedule
from coordinator_model.shard.shard_memory import ShardMemory
from coordinator_model.shard.shard_settings import ShardSettings
from coordinator_model.shard.view_refresh import refresh_views

__all__ = ["Shard", "ShardSettings", "State"]

State = tuple[int, bytes, bytes, bytes, bytes, bytes, bytes]
"""Version, heartbeat table, memory, index, group store, commit times and their index. The index and the group store
stay the same objects as long as only heartbeats and commits come, the commit index as long as no partition is new."""


class Shard:
    """The shard of one operator key. ``restore`` makes it, ``apply`` applies a batch, ``dump`` returns its state."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self.settings = groups.settings
        self.memory = groups.memory
        self.agenda = groups.agenda
        self._brokers = BrokerReports(groups)
        self._judgement = GroupJudgement(groups, self._brokers)
        self._schedule = Schedule(groups, self._judgement)
        events, fast_path = GroupEvents(groups, self._judgement, self._brokers), FastPath(groups, self._schedule)
        self._lines = BrokerLines(
            groups,
            events=events,
            judgement=self._judgement,
            brokers=self._brokers,
            schedule=self._schedule,
            fast_path=fast_path,
        )
        self._loop = EventLoop(groups, events=events, lines=self._lines, schedule=self._schedule, fast_path=fast_path)

    @property
    def clock(self) -> CoordinatorTracker:
        """The brokers' clocks."""
        return self.memory.clock

    @property
    def heartbeat_table(self) -> HeartbeatTable:
        """The heartbeats of all members."""
        return self._groups.heartbeat_table

    @property
    def group_store(self) -> GroupStore:
        """The replicas of all groups."""
        return self._groups.group_store

    @property
    def _outputs(self) -> Outputs:
        return self._groups.outputs

    @classmethod
    def restore(
        cls,
        shard: int,
        settings: ShardSettings,
        state: State | None,
        key: str | None = None,
        *,
        views_kept: bool = False,
        reuse_from: "Shard | None" = None,
    ) -> "Shard":
        """Make a shard from what ``dump`` returned, or a new one. Raises ValueError on a state it cannot read.

        ``key``: the operator key, if the shard is split over several. ``views_kept``: the receiver of views still has
        those that the state's shard sent; otherwise every group is shown whole again. ``reuse_from``: an outdated copy
        of the shard that is not used any more. The parts of the state that have not changed since are taken from it.
        """
        made = Groups(settings, shard, key or str(shard))
        if state is None:
            return cls(made)
        version, heartbeat_table, memory, index, group_store, commit_times, commit_index = state
        if version not in snapshot.READABLE:
            raise ValueError(f"state version {version}, this monitor reads {snapshot.VERSION}")
        group_store = snapshot.migrated_groups(group_store, version)
        known = reuse_from._groups if reuse_from else made  # noqa: SLF001
        made.heartbeat_table = snapshot.load_heartbeat_table(heartbeat_table, index, known.heartbeat_table)
        if not views_kept:
            made.heartbeat_table.forget_timeouts()
        made.group_store = (
            known.group_store
            if known.group_store.joined == group_store
            else GroupStore(snapshot.load_slices(group_store), group_store)
        )
        made.commit_times = snapshot.load_commit_times(commit_times, commit_index, known.commit_times)
        kept = snapshot.load_memory(memory)
        made.memory = ShardMemory.from_dict(kept)
        made.agenda = Agenda(made.heartbeat_table, kept["group_due"], kept["unproved"])
        return cls(made)

    def dump(self) -> State:
        """Return the state.

        A group that cannot be encoded is set aside, and a report about that is added to the list that ``apply``
        returned.
        """
        self._judgement.encode()
        heartbeat_table, index, group_store, commit_times, commit_index = self._groups.dump()
        agenda = {"group_due": self.agenda.group_due, "unproved": self.agenda.unproved}
        return (
            snapshot.VERSION,
            heartbeat_table,
            snapshot.dump_memory(self.memory.as_dict() | agenda),
            index,
            group_store,
            commit_times,
            commit_index,
        )

    def groups(self) -> list[str]:
        """Return the ids of the groups known here."""
        return self.group_store.names()

    def views(self) -> list[Output]:
        """Return the group object of every group that is not deleted, sorted by id.

        A group that fails is set aside and left out, and a report about that is added to the list that ``apply``
        returned.
        """
        return self._judgement.views()

    # ------------------------------------------------------------------ a batch

    def apply(  # noqa: PLR0913 # all but one by name
        self,
        events: Iterable[Event],
        *,
        heartbeats: Iterable[HeartbeatBlock] = (),
        commits: Iterable[CommitBlock] = (),
        wall_ms: int | None = None,
        records_read_ms: int = FAR_MS,
        read: Iterable[OffsetsRead] = (),
        final: bool = False,
        newest_record_ms: int = FAR_MS,
    ) -> list[Output]:
        """Apply a batch and return its outputs in order.

        Heartbeats and offset commits may be among the events, or come as blocks, which costs less.

        ``wall_ms``: this machine's clock. It only shows for how long nothing came: for ``telemetry-stalled``, and to
        end findings if only records are seen. A capture has no such clock, but ``newest_record_ms``, the instant of the
        newest record of all its shards. ``records_read_ms``: the instant up to which records have been read; not given
        if a batch reads them to their end, as Spark's batches do. ``read``: the offsets of telemetry that were read,
        for all shards; a gap in them means lost lines. ``final``: the capture ends, so no event is held back.
        """
        self._groups.outputs = Outputs(self.settings.cluster, self._groups.shard)
        heard_ms = {name: broker.line_ms for name, broker in self.clock.brokers.items()}
        self._schedule.begin(newest_record_ms if wall_ms is None else wall_ms)
        self._brokers.begin(is_live=wall_ms is not None)
        records_read_ms = FAR_MS if final else records_read_ms
        if not self.group_store:
            self._forget_read_lines()
        batch = Batch(events, heartbeats, wall_ms, records_read_ms, read, final, commits)
        taken = take(self.memory, batch, self.settings.thresholds.hold_ms, self.settings.live_from_ms)
        self._note_left_out(taken)
        steps_of_parts = [part.step for part in taken.parts]
        for step in taken.steps:
            if step not in steps_of_parts:
                self._lines.stepped(step)
        for part in taken.parts:
            self._loop.apply_part(part)
        if self.clock.by_records and (wall_ms is not None or final):
            self._schedule.pass_time(final=final)
        self._brokers.silence(wall_ms)
        self._brokers.blind_windows()
        self._brokers.dates()
        self._brokers.expire(self.clock.progress_ms)
        refresh_views(self._groups, self._judgement)
        self._groups.forget_deleted(max(self.clock.progress_ms, taken.parts[-1].last_ms))
        self._brokers.forget_gone()
        self._report_progress(wall_ms, heard_ms)
        return self._outputs.listed

    def _note_left_out(self, taken: Taken) -> None:
        """Count the events of a batch that are not applied, and note which lines are missing."""
        if taken.duplicates:
            self._outputs.count("duplicates", taken.duplicates)
        if taken.committed:
            self._outputs.count(OffsetCommitted.__name__, taken.committed)
        if taken.future:
            self._outputs.count("commits_from_the_future", taken.future)
        if taken.redated:
            self._outputs.count("records_from_the_future", taken.redated)
        for event in taken.misdated:
            self._outputs.misdated(event)
        for count, line in taken.left_out.lines.values():
            self._outputs.misdated(line, count, reason=OFF_ITS_RECORDS)
        for misdating in taken.left_out.began:
            self._lines.misdated(misdating)
        for broker, line_ms in taken.lost.items():
            self._outputs.count("lost_lines")
            self.clock.lost_lines(broker, line_ms, self.clock.brokers[broker].line_ms)

    def _forget_read_lines(self) -> None:
        """Forget which lines were read.

        A shard without groups does not receive every line, so a gap does not mean a loss. For the same reason a tick
        that was held back proves nothing about the lines that come now.
        """
        self.memory.held = [event for event in self.memory.held if not isinstance(event, Tick)]
        self.memory.read_to.clear()
        self.clock.forget_probes()

    def _report_progress(self, wall_ms: int | None, heard_ms: Mapping[str, int]) -> None:
        self._outputs.progress(
            self.clock,
            wall_ms,
            heard_ms,
            groups=len(self.group_store),
            members=sum(map(len, self.heartbeat_table.slots.values())),
            held=len(self.memory.held) + self.memory.held_heartbeats.length + len(self.memory.held_commits),
        )

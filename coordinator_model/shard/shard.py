"""Everything one partition of ``__consumer_offsets`` coordinates, event by event.

Theory of operation. A batch is sorted by the coordinator's time; what is newer than the slowest live source is held
back, at most ``hold_ms``. Then, event by event: the broker's clock moves to it; every verdict that became due before
it is made, at its own instant; the event is applied; the group it touched is evaluated. So the same events give the
same reports in whatever batches they come.

Two paths. A heartbeat of a known member of a stable group, answered 0, only moves two numbers in packed arrays (the
fast path; nearly all events). Anything else takes the group's replica out of its slice, replays, evaluates and puts
the heartbeats back. Each slot's *span* says how long after its last heartbeat the member must be looked at again, so
that "is anything due?" is one pass over arrays.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter

from coordinator_model.brokers.blindness import CLOCK_STEPPED
from coordinator_model.brokers.broker_clock import PROOF_STEP_MS, CoordinatorTracker
from coordinator_model.brokers.coordinator_check import NOT_COORDINATOR, Proof, proof
from coordinator_model.brokers.leadership import STALE_MS
from coordinator_model.brokers.line_clocks import Step
from coordinator_model.commit_block import CommitBlock
from coordinator_model.events import (
    RECORD_RANK,
    Answer,
    BrokerLine,
    ClientSign,
    ClientWord,
    CommitRefused,
    ConsumerHeartbeat,
    CoordinatorLine,
    Event,
    Heartbeat,
    LeaderNamed,
    OffsetCommitted,
    RecordRead,
    Tick,
    parked_ms,
)
from coordinator_model.heartbeat_block import FastRow, HeartbeatBlock, fast_row
from coordinator_model.shard import snapshot
from coordinator_model.shard.agenda import Agenda
from coordinator_model.shard.broker_reports import BrokerReports
from coordinator_model.shard.commit_times import CommitQueue, CommitRow
from coordinator_model.shard.group_store import GroupStore
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.heartbeat_table import FAR_MS, MAX_INTERVAL_MS, HeartbeatTable
from coordinator_model.shard.intake import Batch, OffsetsRead, Part, Taken, take
from coordinator_model.shard.outputs import Output, Outputs
from coordinator_model.shard.refresh import forget_shown, refreshed, shown_plain
from coordinator_model.shard.shard_memory import ShardMemory
from coordinator_model.shard.shard_settings import ShardSettings

__all__ = ["Shard", "ShardSettings", "State"]

State = tuple[int, bytes, bytes, bytes, bytes, bytes, bytes]
"""Version, heartbeat table, memory, index, group store, commit times and their index; index and group store stay the
same objects while only heartbeats and commits come, the commit index while no partition is new."""
FIRST_LOOK_MS = 1_000
"""How long after a coordinator's first answer its groups are looked at: no session ends sooner."""
AGE_EVERY_MS = 5_000
"""How often it is looked at what may end though no record comes."""
_NO_SLOTS: dict[str, int] = {}


class Shard:
    """One operator key's world. Made by ``restore``, fed by ``apply``, kept by ``dump``."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self.settings = groups.settings
        self.memory = groups.memory
        self.agenda = groups.agenda
        self._brokers = BrokerReports(groups)
        self._present_ms = FAR_MS
        """The present of a batch: as this machine's clock has it, or a capture's newest record."""
        self._has_records = False
        """Whether the batch has any, where records tell the time."""
        self._aged_ms = 0
        """When was looked last at what may end though no record comes."""
        self._commits = CommitQueue()

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
        """All else of the groups."""
        return self._groups.group_store

    @property
    def _said(self) -> Outputs:
        return self._groups.said

    @classmethod
    def restore(
        cls,
        shard: int,
        settings: ShardSettings,
        state: State | None,
        key: str | None = None,
        *,
        moved: bool = False,
        like: "Shard | None" = None,
    ) -> "Shard":
        """Make a shard from what ``dump`` returned, or a new one. Raises ValueError on a state it cannot read.

        ``key`` names the operator key where a shard is split over several. ``moved``: who keeps what is shown goes on
        with it; else every group is shown whole again. ``like``: an outdated copy, not used any more after its
        ``dump``; what the state has in common with it is taken from it.
        """
        made = Groups(settings, shard, key or str(shard))
        if state is None:
            return cls(made)
        version, heartbeat_table, memory, index, group_store, commit_times, commit_index = state
        if version != snapshot.VERSION:
            raise ValueError(f"state version {version}, this monitor reads {snapshot.VERSION}")
        known = like._groups if like else made  # noqa: SLF001
        made.heartbeat_table = snapshot.load_heartbeat_table(heartbeat_table, index, known.heartbeat_table)
        if not moved:
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
        """Return the state. A group that cannot be encoded is set aside: the list that ``apply`` returned tells it."""
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

        A group that fails is set aside and left out: the list that ``apply`` returned tells it.
        """
        return self._groups.views()

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

        Heartbeats and offset commits may stand among the events, or come as blocks, which costs least. ``wall_ms`` only
        tells how long nothing came (``telemetry-stalled``, and what ends where only records are seen); in a capture,
        which has none, ``newest_record_ms`` is its newest record of all shards. ``records_read_ms``: up to which
        instant the records have been read; a batch that reads to their end, as Spark's do, says nothing. ``read``:
        which offsets of telemetry were read, for all shards: where some are missing lines were lost. ``final`` ends a
        capture: nothing waits.
        """
        self._groups.said = Outputs(self.settings.cluster, self._groups.shard)
        self._present_ms, self._has_records = newest_record_ms if wall_ms is None else wall_ms, False
        records_read_ms = FAR_MS if final else records_read_ms
        if not self.group_store:
            self._begin_anew()
        batch = Batch(events, heartbeats, wall_ms, records_read_ms, read, final, commits)
        taken = take(self.memory, batch, self.settings.thresholds.hold_ms)
        self._note_left_out(taken)
        parting = [part.step for part in taken.parts]
        for step in taken.steps:
            if step not in parting:
                self._stepped(step)
        for part in taken.parts:
            self._apply_part(part)
        if self.clock.by_records and (wall_ms is not None or final):
            self._pass_time(final=final)
        self._brokers.silence(wall_ms)
        self._brokers.blind_windows()
        self._refresh_views()
        self._groups.forget_deleted(max(self.clock.progress_ms, taken.parts[-1].last_ms))
        self._report_progress(wall_ms)
        return self._said.listed

    def _note_left_out(self, taken: Taken) -> None:
        """Count what of a batch is not applied, and note which lines are missing."""
        if taken.duplicates:
            self._said.count("duplicates", taken.duplicates)
        if taken.committed:
            self._said.count(OffsetCommitted.__name__, taken.committed)
        for event in taken.misdated:
            self._said.misdated(event)
        for broker, line_ms in taken.lost.items():
            self._said.count("lost_lines")
            self.clock.lost_lines(broker, line_ms, self.clock.brokers[broker].line_ms)

    def _begin_anew(self) -> None:
        """Forget which lines were read: a shard without groups is not told of each, and has lost none.

        Nor does a line that was held then prove anything beside those that come now.
        """
        self.memory.held = [event for event in self.memory.held if not isinstance(event, Tick)]
        self.memory.read_to.clear()
        self.clock.forget_probes()

    def _apply_part(self, part: Part) -> None:
        """Apply what lies between two steps of the coordinator's clock: nearly always all of a batch."""
        if part.step is not None:
            self._stepped(part.step)
        beats, self._commits = part.heartbeats, CommitQueue(part.commits)
        rows, done = beats.fast_rows(), 0
        for event in part.events:
            done = self._hear(beats, rows, done, beats.before(event))
            self._take_commits(event)
            self._try(event)
        self._hear(beats, rows, done, beats.length)
        self._note_commits(self._commits.before((FAR_MS,)))

    def _stepped(self, step: Step) -> None:
        """Let a broker's clock step. Of a shard that it coordinates all that is known goes with it.

        How much time passed meanwhile is known to a second or two, so session timers start anew within that.
        """
        if step.broker == self.clock.coordinator:
            self._groups.rebase(step.delta_ms, step.from_ms)
        self.clock.stepped(step.broker, step.to_ms)
        before_ms = min(step.to_ms, step.from_ms + step.delta_ms)
        self.clock.lost_lines(step.broker, step.to_ms, before_ms, why=CLOCK_STEPPED)
        self._brokers.stepped(step)

    def _into_clock_of(self, broker: str) -> None:
        """Move what is known into the clock of a broker that takes over, where one of the two has stepped."""
        apart_ms = self.clock.apart_ms(broker)
        if broker and self.clock.coordinator and apart_ms:
            self._groups.rebase(apart_ms, self.clock.progress_ms)

    def _hear(self, beats: HeartbeatBlock, rows: Iterator[FastRow], start: int, end: int) -> int:
        """Apply the heartbeats from one to before another, which ``rows`` yields next; returns that other."""
        while start < end:
            start += self._fast_path(islice(rows, end - start))
            if start < end:
                beat = beats.row(start)
                self._take_commits(beat)
                self._try(beat)
                start += 1
        return end

    def _take_commits(self, event: Event) -> None:
        """Apply the commits that come before an event; of one instant records come before lines."""
        at_ms = event[0]
        if type(event) is RecordRead:
            place: tuple[int, ...] = (at_ms, event.offset)
        else:
            place = (at_ms + (event[1] > RECORD_RANK),)
        if rows := self._commits.before(place):
            self._note_commits(rows)

    def _note_commits(self, rows: Sequence[CommitRow]) -> None:
        """Note commits as signs of life; where the time waits for records they move it one by one."""
        times = self._groups.commit_times
        if not self.clock.waiting and not self.clock.by_records:
            for row in times.take(rows):
                self._groups.committed(row)
            return
        for at_ms, of_one_instant in groupby(rows, itemgetter(0)):
            try:
                self._record(at_ms)
            except Exception as error:  # noqa: BLE001 # whatever it is, the other commits are applied
                self._said.quarantine(at_ms, None, error)
            for row in times.take(of_one_instant):
                self._groups.committed(row)

    def _try(self, event: Event) -> None:
        """Apply one event in its place; one that fails before it comes to its group costs itself."""
        try:
            self._step(event)
        except Exception as error:  # noqa: BLE001 # whatever it is, the other events are applied
            self._said.quarantine(event[0], event, error)

    def _step(self, event: Event) -> None:
        """Apply one event in its place."""
        if isinstance(event, RecordRead | ClientWord):
            if isinstance(event, RecordRead):
                self._record(event.order_ms)
            self._groups.apply(event)
        elif isinstance(event, CoordinatorLine):
            self._groups.logged(event)
        elif isinstance(event, LeaderNamed):
            leader = self.clock.named(event)
            if leader is not None:
                self._into_clock_of(leader)
                self.clock.follow(leader, self.settings.thresholds)
                self._brokers.moved(event)
                self._look_again(event.order_ms)
        elif not isinstance(event, OffsetCommitted):  # a batch's are its commits
            self._line(event)

    def _record(self, record_ms: int) -> None:
        """Let a record close a timer reset, and move the time where only records are seen: what was due comes first.

        What is due at its own instant waits: the records of one write have one instant.
        """
        if self.clock.wrote(record_ms):
            self._look_again(record_ms)
        if self.clock.by_records:
            self._has_records = True
            self.clock.recorded(record_ms, self._present_ms)
            if record_ms >= self.settings.live_from_ms:
                self._fire(self.clock.record_ms - 1)

    def _line(self, event: BrokerLine) -> None:
        """Apply a line of a broker: it moves that broker's clock, and what is due before it comes first."""
        if event.broker in self.clock.listeners.names:
            event = event._replace(broker=self.clock.listeners.name(event.broker))
        at_ms, thresholds = event.order_ms, self.settings.thresholds
        if isinstance(event, Tick) and event.lost and event.broker in self.clock.brokers:
            self.clock.lost_lines(event.broker, at_ms, self.clock.brokers[event.broker].line_ms)
        before_ms = self.clock.advance(event.broker, at_ms, thresholds)
        if event.broker == self.clock.coordinator:
            self._brokers.gap(before_ms, at_ms)
        if isinstance(event, CommitRefused | ClientSign):
            self._fire(self.clock.progress_ms)
            if isinstance(event, ClientSign) or event.broker == self.clock.coordinator:
                self._groups.apply(event)
            return
        if not isinstance(event, Tick):
            self._answer(event)
            return
        self._said.count("ticks")
        self.clock.probed(event.broker, event.probe, at_ms, before_ms, thresholds, event.connection)
        self._fire(self.clock.progress_ms)

    def _answer(self, event: Answer) -> None:
        """Apply a request that a broker has answered."""
        at_ms, thresholds = event.order_ms, self.settings.thresholds
        remote_ms = event.remote_ms if isinstance(event, Heartbeat | ConsumerHeartbeat) else parked_ms(event)
        proven = proof(event, remote_ms, thresholds.stalled_write_ms)
        if proven is not Proof.REFUSES and self.clock.is_deposed(event.broker, at_ms, thresholds):
            self._deposed(event, proven)
            return
        if event.error == NOT_COORDINATOR and event.broker == self.clock.coordinator:
            self.clock.former.clear()
            self.clock.leadership.resign(event.broker, at_ms)
        if self.clock.disputed(event.broker, proven, at_ms):
            self._disputed(event)
            return
        self._brokers.answered(event.broker, event.error, proven, at_ms)
        if proven in (Proof.LEADS, Proof.COORDINATES):
            self._into_clock_of(event.broker)
        if self.clock.answered(event.broker, proven, at_ms, thresholds):
            self._look_again(at_ms)
        self._fire(self.clock.progress_ms)
        if isinstance(event, Heartbeat) and event.error in (0, 27):
            self._prove(at_ms, event.arrival_ms)
            if self._fast_path(iter((fast_row(event),))):
                return  # it only had to wait for what was due before it
        self._groups.apply(event)

    def _deposed(self, event: Answer, proven: Proof) -> None:
        """Count an answer of a broker that coordinates no more."""
        self._said.count("deposed")
        if isinstance(event, ConsumerHeartbeat) and event.request_epoch < 0 and proven is Proof.NOTHING:
            self._groups.apply(event)  # it waited for its write, which may have come before the next took over

    def _disputed(self, event: Answer) -> None:
        """Take an answer of a broker that is not known to coordinate: it moves no clock."""
        self._said.count("disputed")
        if not isinstance(event, Heartbeat):
            self._groups.apply(event)  # a new coordinator's, most likely; it only moves nothing yet
        elif event.error in (0, 27):
            self._groups.claim(event)

    def _fast_path(self, rows: Iterator[FastRow]) -> int:
        """Apply the plainest of heartbeats up to one of another kind, which is taken too; returns how many were plain.

        Nearly all events are these, so the loop touches arrays and locals only. They are known members' of the current
        generation, answered 0 by the coordinator, whose clock runs, and nothing is due before them.
        """
        heartbeat_table, clock = self.heartbeat_table, self.clock
        coordinator, due_ms = clock.coordinator, self.agenda.due_ms
        broker = clock.brokers.get(coordinator or "")
        if broker is None or clock.waiting:
            next(rows)
            return 0
        slots, last, interval, generations = (
            heartbeat_table.slots,
            heartbeat_table.last,
            heartbeat_table.interval,
            heartbeat_table.generation,
        )
        names = clock.listeners.names
        proof_due_ms = clock.proofs[-1][0] + PROOF_STEP_MS if clock.proofs else 0
        line_ms, gap_ms, done = broker.line_ms, self.settings.thresholds.progress_gap_ms, 0
        for order_ms, group, member_id, generation, error, applied_ms, arrival_ms, name in rows:
            if error != 0 or order_ms >= due_ms or order_ms - line_ms > gap_ms:
                break
            if name != coordinator and names.get(name) != coordinator:
                break
            slot = slots.get(group, _NO_SLOTS).get(member_id)
            if slot is None or generations[slot] != generation:
                break
            if order_ms > line_ms:
                line_ms = order_ms
            interval_ms = applied_ms - last[slot]
            if interval_ms > 0:  # one that trails a later one changes nothing
                interval[slot] = interval_ms if interval_ms < MAX_INTERVAL_MS else MAX_INTERVAL_MS  # noqa: FURB136 # a call
                last[slot] = applied_ms
            if order_ms >= proof_due_ms:
                self._prove(order_ms, arrival_ms)
                proof_due_ms, due_ms = order_ms + PROOF_STEP_MS, self.agenda.due_ms
            done += 1
        if done:
            broker.line_ms = line_ms
            clock.last_answer_ms = max(clock.last_answer_ms, line_ms)
            self._said.count("heartbeats", done)
        return done

    def _prove(self, line_ms: int, arrival_ms: int) -> None:
        """Note an accepted heartbeat; what waited for one is due once its line is a grace old."""
        if self.clock.prove(line_ms, arrival_ms) and self.agenda.unproved:
            for group in self.agenda.proved_by(arrival_ms):
                self.agenda.look_at(group, line_ms + self._groups.thresholds_of(group).grace_ms)

    # ------------------------------------------------------------------ time

    def _fire(self, until_ms: int) -> None:
        """Make every verdict that is due up to here, each at its own instant, earliest first.

        A round looks once at each group that is due, and leaves nothing due at its instant: so it ends.
        """
        while self.agenda.due_ms <= until_ms and not self.clock.hole_is_open:
            due_ms = self.agenda.next_ms()
            if due_ms > until_ms:
                return
            for group in self.agenda.groups_due(due_ms):
                with self._groups.alone(group, due_ms):
                    self._groups.look(group, due_ms)

    def _pass_time(self, *, final: bool) -> None:
        """Make the verdicts of the newest records, and let what is open end as time passes without any.

        A write is read whole, and its group looked at, once the present is later by a grace. While this machine catches
        up its clock is ahead of what it has read, and ends nothing.
        """
        record_ms, present_ms = self.clock.record_ms, self._present_ms
        behind_ms = present_ms - record_ms
        if record_ms < self.settings.live_from_ms:
            return
        if final or behind_ms >= self.settings.thresholds.grace_ms:
            self._fire(record_ms)
        caught_up = final or behind_ms < STALE_MS or not self._has_records
        if caught_up and self._aged_ms + AGE_EVERY_MS <= present_ms < FAR_MS:
            self._aged_ms = present_ms
            self._groups.age(present_ms)

    def _look_again(self, at_ms: int) -> None:
        """Look at what is due now, and at every group a little later, once, unless its timers are open still."""
        self.agenda.due_ms = min(self.agenda.due_ms, at_ms)
        if self.clock.timer_resets and not self.clock.waiting:
            for group in self.heartbeat_table.slots:
                self.agenda.look_at(group, at_ms + FIRST_LOOK_MS)

    # ------------------------------------------------------------------ outputs

    def _refresh_views(self) -> None:
        """Report the groups that changed without a finding, and every group once in ``view_refresh_ms``, staggered."""
        progress_ms, period_ms = self.clock.progress_ms, self.settings.view_refresh_ms
        self._brokers.expire(progress_ms)
        stale = set(self._groups.changed)
        for group in stale:
            forget_shown(group, self.heartbeat_table)
        if progress_ms > self.memory.viewed_ms and period_ms:
            for group in self.heartbeat_table.slots:
                shift_ms = zlib.crc32(group.encode()) % period_ms
                if (progress_ms - shift_ms) // period_ms > (self.memory.viewed_ms - shift_ms) // period_ms:
                    stale.add(group)
            self.memory.viewed_ms = progress_ms
        refreshed_groups = []
        for group in sorted(stale):
            with self._groups.alone(group, progress_ms):
                if shown_plain(group, self.heartbeat_table) and not self.clock.waiting:
                    refreshed_groups.append(refreshed(group, self.heartbeat_table, progress_ms))
                else:
                    self._groups.refresh_view(group, progress_ms)
        self._groups.changed.clear()
        if refreshed_groups:
            self._said.heartbeats(progress_ms, refreshed_groups)

    def _report_progress(self, wall_ms: int | None) -> None:
        self._said.progress(
            self.clock,
            wall_ms,
            groups=len(self.group_store),
            members=sum(map(len, self.heartbeat_table.slots.values())),
            held=len(self.memory.held) + self.memory.held_heartbeats.length + len(self.memory.held_commits),
        )

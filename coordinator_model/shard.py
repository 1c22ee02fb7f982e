"""Everything one partition of ``__consumer_offsets`` coordinates, event by event.

Theory of operation. A batch is sorted by the coordinator's time; what is newer than the slowest live source is held
back, at most ``hold_ms``. Then, event by event: the broker's clock moves to it; every verdict that became due before
it is made, at its own instant; the event is applied; the group it touched is evaluated. So the same events give the
same reports in whatever batches they come.

Two roads. A heartbeat of a known member of a stable group, answered 0, only moves two numbers in packed arrays (the
quick road; nearly all events). Anything else takes the group's replica out of its slice, replays, evaluates and puts
the hot numbers back. Each slot's *span* says how long after its last heartbeat the member must be looked at again, so
that "is anything due?" is one pass over arrays.
"""

import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

from coordinator_model import snapshot
from coordinator_model.agenda import Agenda
from coordinator_model.broker_clock import PROOF_STEP_MS, ShardClock
from coordinator_model.cold import Cold
from coordinator_model.coordinator_check import REFUSALS, Proof, proof
from coordinator_model.evaluate import HEARTBEAT_RULES, Evaluation, evaluate, need_heartbeats, violated
from coordinator_model.events import (
    ClientPoll,
    ConsumerHeartbeat,
    Event,
    Heartbeat,
    OffsetCommitted,
    RecordRead,
    Tick,
    parked_ms,
)
from coordinator_model.findings import Finding
from coordinator_model.heartbeat_block import HeartbeatBlock, QuickRow, quick
from coordinator_model.hot import FAR_MS, MAX_INTERVAL_MS, QUICK_TYPES, Hot
from coordinator_model.intake import take
from coordinator_model.liveness import Scene
from coordinator_model.outputs import Output, Outputs
from coordinator_model.records import RecordType
from coordinator_model.refresh import forget_shown, note_shown, refreshed, shown_plain
from coordinator_model.replica.classic import hear
from coordinator_model.replica.departures import SESSION_EXPIRED, conclude
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.replay import GroupEvent, replay
from coordinator_model.rules.session import judge
from coordinator_model.shard_memory import ShardMemory
from coordinator_model.shard_settings import ShardSettings
from coordinator_model.states import Evidence, GroupState, GroupType
from coordinator_model.thresholds import Thresholds
from coordinator_model.view import view

__all__ = ["Shard", "ShardSettings", "State"]

State = tuple[int, bytes, bytes, bytes, bytes]
"""Version, hot, memory, index and cold; the last two stay the same objects while only heartbeats come."""
SETTLE_MS = 1_000
"""How long after a coordinator's first answer its groups are looked at: no session ends sooner."""
_NO_SLOTS: dict[str, int] = {}


class Shard:
    """One operator key's world. Made by ``restore``, fed by ``apply``, kept by ``dump``."""

    def __init__(self, shard: int, settings: ShardSettings, key: str | None = None) -> None:
        self.shard = shard
        self.key = key or str(shard)
        self.settings = settings
        self.memory = ShardMemory()
        self.hot = Hot()
        self._index: bytes | None = None
        self.cold = Cold()
        self._thresholds: dict[str, Thresholds] = {}
        self.agenda = Agenda(self.hot)
        self._changed: set[str] = set()
        self._said = Outputs(settings.cluster, shard)

    @property
    def clock(self) -> ShardClock:
        """The brokers' clocks."""
        return self.memory.clock

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
        made = cls(shard, settings, key)
        if state is None:
            return made
        version, hot, memory, index, cold = state
        if version != snapshot.VERSION:
            raise ValueError(f"state version {version}, this monitor reads {snapshot.VERSION}")
        known = like or made
        slots = known.hot.slots if known._index == index else snapshot.load_index(index)  # noqa: SLF001
        made.hot, made._index = snapshot.load_hot(slots, hot), index
        if not moved:
            made.hot.forget_timeouts()
        made.cold = known.cold if known.cold.joined == cold else Cold(snapshot.load_slices(cold), cold)
        kept = snapshot.load_memory(memory)
        made.memory = ShardMemory.from_dict(kept)
        made.agenda = Agenda(made.hot, kept["group_due"], kept["unproved"])
        return made

    def dump(self) -> State:
        """Return the state."""
        if self._index is None:
            self._index = snapshot.dump_index(self.hot)
        agenda = {"group_due": self.agenda.group_due, "unproved": self.agenda.unproved}
        memory = snapshot.dump_memory(self.memory.as_dict() | agenda)
        return snapshot.VERSION, snapshot.dump_hot(self.hot), memory, self._index, self.cold.dump()

    def groups(self) -> list[str]:
        """Return the ids of the groups known here."""
        return self.cold.names()

    # ------------------------------------------------------------------ a batch

    def apply(
        self,
        events: Iterable[Event],
        *,
        heartbeats: Iterable[HeartbeatBlock] = (),
        wall_ms: int | None = None,
        records_read_ms: int = FAR_MS,
        final: bool = False,
    ) -> list[Output]:
        """Apply a batch and return its outputs in order.

        Heartbeats may stand among the events, or come as blocks, which costs least. ``wall_ms`` only tells how long
        nothing came (``telemetry-stalled``). ``records_read_ms``: up to which instant the records have been read; a
        batch that reads to their end, as Spark's do, says nothing. ``final`` ends a capture: nothing waits.
        """
        self._said = Outputs(self.settings.cluster, self.shard)
        beats, others, duplicates = take(
            self.memory,
            events,
            heartbeats,
            self.settings.thresholds.hold_ms,
            wall_ms=wall_ms,
            records_read_ms=FAR_MS if final else records_read_ms,
            final=final,
        )
        if duplicates:
            self._said.count("duplicates", duplicates)
        rows, done = beats.quick_rows(), 0
        for event in others:
            done = self._hear(beats, rows, done, beats.before(event))
            self._step(event)
        self._hear(beats, rows, done, beats.length)
        self._watch_silence(wall_ms)
        self._refresh_views()
        self._report_progress(wall_ms)
        return self._said.listed

    def _hear(self, beats: HeartbeatBlock, rows: Iterator[QuickRow], start: int, end: int) -> int:
        """Apply the heartbeats from one to before another, which ``rows`` yields next; returns that other."""
        while start < end:
            start += self._quick_road(islice(rows, end - start))
            if start < end:
                self._step(beats.row(start))
                start += 1
        return end

    def _step(self, event: Event) -> None:
        """Apply one event in its place."""
        at_ms = event[0]
        if isinstance(event, RecordRead | OffsetCommitted | ClientPoll):
            if not isinstance(event, ClientPoll) and self.clock.wrote(at_ms):
                self._look_again(at_ms)
            self._cold(event)
            return
        thresholds = self.settings.thresholds
        before_ms = self.clock.advance(event.broker, at_ms, thresholds)
        if event.broker == self.clock.coordinator:
            self._watch_gap(before_ms, at_ms)
        if isinstance(event, Tick):
            self._said.count("ticks")
            self.clock.probed(event.broker, event.probe, at_ms, before_ms, thresholds, event.connection)
            if event.lost:
                self.clock.lost_lines(event.broker, at_ms, before_ms)
            self._fire(self.clock.progress_ms)
            return
        if event.error not in REFUSALS and self.clock.is_deposed(event.broker, at_ms, thresholds):
            self._said.count("deposed")
            return
        remote_ms = event.remote_ms if isinstance(event, Heartbeat | ConsumerHeartbeat) else parked_ms(event)
        proven = proof(event, remote_ms, thresholds.stalled_write_ms)
        self._watch_refusals(event.broker, event.error, proven, at_ms)
        if self.clock.answered(event.broker, proven, at_ms, thresholds):
            self._look_again(at_ms)
        self._fire(self.clock.progress_ms)
        if isinstance(event, Heartbeat) and event.error in (0, 27):
            self._prove(at_ms, event.arrival_ms)
            if self._quick_road(iter((quick(event),))):
                return  # it only had to wait for what was due before it
        self._cold(event)

    def _quick_road(self, rows: Iterator[QuickRow]) -> int:
        """Apply the plainest of heartbeats up to one of another kind, which is taken too; returns how many were plain.

        Nearly all events are these, so the loop touches arrays and locals only. They are known members' of the current
        generation, answered 0 by the coordinator, whose clock runs, and nothing is due before them.
        """
        hot, clock = self.hot, self.clock
        coordinator, due_ms = clock.coordinator, self.agenda.due_ms
        broker = clock.brokers.get(coordinator or "")
        if broker is None or clock.waiting:
            next(rows)
            return 0
        slots, last, interval, generations = hot.slots, hot.last, hot.interval, hot.generation
        proof_due_ms = clock.proofs[-1][0] + PROOF_STEP_MS if clock.proofs else 0
        line_ms, gap_ms, done = broker.line_ms, self.settings.thresholds.progress_gap_ms, 0
        for order_ms, group, member_id, generation, error, applied_ms, arrival_ms, name in rows:
            if error != 0 or name != coordinator or order_ms >= due_ms or order_ms - line_ms > gap_ms:
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
                self.agenda.look_at(group, line_ms + self._thresholds_of(group).grace_ms)

    def _cold(self, event: GroupEvent) -> None:
        """Replay one event on its group's replica, and evaluate the group."""
        self._said.count(_kind(event))
        group = event.group
        if isinstance(event, OffsetCommitted):
            self._note_commit(event)
            if group in self.cold:
                return
        replica = self._replica(group)
        scene = self._scene(group, self.clock.progress_ms)
        if isinstance(event, Heartbeat) and self._plain(replica, event, scene):
            return
        forget_shown(group, self.hot)
        before = (replica.state, replica.generation, len(replica.members), replica.deleted)
        replay(replica, event, scene)
        self.cold.touch(group)
        if not isinstance(event, Heartbeat) or before != (
            replica.state,
            replica.generation,
            len(replica.members),
            replica.deleted,
        ):
            self._changed.add(group)
        if isinstance(event, RecordRead) and event.record_type != RecordType.GROUP_METADATA and self.clock.coordinator:
            self._await_write(replica, max(event[0], self.clock.progress_ms))
        else:
            self._evaluate(replica, self.clock.progress_ms, event[0])

    def _await_write(self, replica: GroupReplica, due_ms: int) -> None:
        """Look at a group once a write's records have all come: in their midst it may seem empty, or without leader.

        They have one timestamp, so the next line of the coordinator comes after the last of them.
        """
        if self.hot.copy_from(replica, {}, set()):
            self._index = None
        self.agenda.look_at(replica.group, due_ms)

    def _plain(self, replica: GroupReplica, event: Heartbeat, scene: Scene) -> bool:
        """Take the middle road: a heartbeat of a quiet group changes nothing but its member's clock.

        So only the member is judged, not the group: this is how all members of a cluster enter the quick road.
        """
        member, memory = replica.members.get(event.member_id), self.memory
        quiet = not any(row[0] in HEARTBEAT_RULES for row in memory.reported.get(replica.group, ()))
        plain = event.error == 0 and quiet and replica.state is GroupState.STABLE and replica.type in QUICK_TYPES
        if not plain or member is None or scene.waiting or replica.stable_seen_ms is None:
            return False
        if member.generation is None and event.generation == replica.generation:
            member.generation = event.generation
            self.cold.touch(replica.group)
        if member.generation != event.generation:
            return False
        if hear(member, event.applied_ms):
            self.cold.touch(replica.group)
        verdict = judge(replica, member, scene)
        if verdict.finding is not None:
            return False
        if event.member_id not in self.hot.slots.get(event.group, {}):
            self._index = None
        self.hot.put(event.group, member, verdict.due_ms, quick=True)
        if verdict.due_ms is not None:
            self.agenda.due_ms = min(self.agenda.due_ms, verdict.due_ms)
        return True

    # ------------------------------------------------------------------ one group

    def _replica(self, group: str) -> GroupReplica:
        """Return a group's replica, out of its slice if need be, with the heartbeats of the quick road."""
        replica = self.cold.replica(group)
        self.hot.copy_to(replica)
        return replica

    def _thresholds_of(self, group: str) -> Thresholds:
        thresholds = self._thresholds.get(group)
        if thresholds is None:
            thresholds = self._thresholds[group] = self.settings.thresholds_of(group)
        return thresholds

    def _scene(self, group: str, progress_ms: int) -> Scene:
        thresholds = self._thresholds_of(group)
        return Scene(
            progress_ms=progress_ms,
            broker=self.clock.coordinator or "",
            restarts=self.clock.restarts,
            commits=self.memory.commits.get(group, {}),
            live_from_ms=self.settings.live_from_ms,
            covered_since_ms=self.clock.covered_since_ms,
            proof_arrival_ms=self.clock.proof_arrival_ms(progress_ms, thresholds.grace_ms),
            consumer_session_timeout_ms=self.settings.session_timeout_ms(group, self._type_of(group), thresholds),
            thresholds=thresholds,
            topic_partitions=self.settings.topic_partitions,
            stalled=self.memory.watch.stalled_ms is not None,
        )

    def _type_of(self, group: str) -> GroupType | None:
        replica = self.cold.opened(group)
        return None if replica is None else replica.type

    def _evaluate(self, replica: GroupReplica, progress_ms: int, at_ms: int) -> None:
        """Evaluate a group, report its findings if they changed, and note when to look again."""
        group = replica.group
        scene = self._scene(group, progress_ms)
        if conclude(replica, scene):
            self.cold.touch(group)
        evaluation = evaluate(replica, scene)
        findings = [f for f in evaluation.findings if f.at_ms >= self.settings.live_from_ms]
        self._report_broker(self.memory.watch.charge(findings))
        self._remember_verdicts(replica, evaluation.findings)
        ended = {(f.rule, f.member_id) for f in evaluation.findings if f.closed_reason}
        brief = [[f.rule, f.member_id or f.subject, f.severity, f.evidence, f.cause, f.deadline_ms] for f in findings]
        if brief != self.memory.reported.get(group, []) or ended or (replica.deleted and group in self._changed):
            self._report(replica, scene, findings, max(at_ms, progress_ms))
        kept = [row for row in brief if (row[0], row[1]) not in ended]
        if kept:
            self.memory.reported[group] = kept
        else:
            self.memory.reported.pop(group, None)
        if ended:
            self.cold.touch(group)
            replica.departures = [d for d in replica.departures if (d.rule, d.member.member_id) not in ended]
        if self.hot.copy_from(replica, evaluation.member_due_ms, need_heartbeats(findings)):
            self._index = None
        self._due_next(replica, evaluation)
        if replica.deleted:
            self._forget(group)

    def _due_next(self, replica: GroupReplica, evaluation: Evaluation) -> None:
        """Note when to look at a group again, and what decides it sooner."""
        group, proven_ms = replica.group, None
        if evaluation.proof_ms is not None:
            proven_ms = self.clock.proven_ms(evaluation.proof_ms, self._thresholds_of(group).grace_ms)
        ending_ms = FAR_MS if replica.ending_ms is None else replica.ending_ms
        self.agenda.looked(group, evaluation, ending_ms, proven_ms)  # its tombstone's write has ended by then

    def _remember_verdicts(self, replica: GroupReplica, findings: list[Finding]) -> None:
        """Keep the timer's verdicts with their members: a rebalance that follows must not unsay them."""
        for finding in findings:
            member = replica.members.get(finding.member_id or "")
            spoken = finding.rule == SESSION_EXPIRED and finding.evidence is Evidence.INFERRED
            if spoken and member is not None and member.verdict_ms is None:
                member.verdict_deadline_ms, member.verdict_clock_ms = finding.deadline_ms, member.clock_ms
                self.cold.touch(replica.group)

    def _end(self, replica: GroupReplica) -> None:
        """Let a group be gone whose tombstone's write did not go on with a group of another kind."""
        if replica.ending_ms is not None:
            replica.finish()
            self._changed.add(replica.group)
            self.cold.touch(replica.group)

    def _forget(self, group: str) -> None:
        """Forget a deleted group: only its count of incarnations stays, for what comes under its name later."""
        replica = self.cold.replica(group)
        if self.hot.drop_group(group):
            self._index = None
        self.memory.commits.pop(group, None)
        self.agenda.forget(group)
        self.cold.touch(group)
        replica.leaves.clear()
        replica.unheard.clear()
        replica.violations.clear()

    def _note_commit(self, event: OffsetCommitted) -> None:
        key = (event.committed_topic, event.committed_partition)
        commits = self.memory.commits.setdefault(event.group, {})
        if event.tombstone:
            commits.pop(key, None)
        elif event[0] > commits.get(key, 0):
            commits[key] = event[0]

    def views(self) -> list[Output]:
        """Return the group object of every group that is not deleted, sorted by id."""
        shown = []
        for group in self.groups():
            replica = self._replica(group)
            if not replica.deleted and replica.ending_ms is None:
                scene = self._scene(group, self.clock.progress_ms)
                troubled = violated(evaluate(replica, scene).findings)
                shown.append(view(replica, scene, self.settings.cluster, self.shard, troubled))
        return shown

    # ------------------------------------------------------------------ time

    def _fire(self, until_ms: int) -> None:
        """Make every verdict that is due up to here, each at its own instant, earliest first.

        A round looks once at each group that is due, and leaves nothing due at its instant: so it ends.
        """
        while self.agenda.due_ms <= until_ms:
            due_ms = self.agenda.next_ms()
            if due_ms > until_ms:
                return
            for group in self.agenda.groups_due(due_ms):
                self._look(group, due_ms)

    def _look(self, group: str, due_ms: int) -> None:
        """Look at a group that is due; what still is afterwards waits for its next event, and is counted."""
        self.agenda.group_due.pop(group, None)
        replica = self._replica(group)
        if replica.ending_ms is not None:
            self._evaluate(replica, due_ms, due_ms)  # whom it lost last is told before it is gone
        self._end(replica)
        self._evaluate(replica, due_ms, due_ms)
        if self.agenda.put_off(group, due_ms):
            self._said.count("put_off")

    def _look_again(self, at_ms: int) -> None:
        """Look at what is due now, and at every group a little later, once, unless its timers are open still."""
        self.agenda.due_ms = min(self.agenda.due_ms, at_ms)
        if self.clock.restarts and not self.clock.waiting:
            for group in self.hot.slots:
                self.agenda.look_at(group, at_ms + SETTLE_MS)

    def _watch_gap(self, before_ms: int, at_ms: int) -> None:
        """Tell of a hole in the coordinator's lines: a stall of telemetry, though it is over when we learn of it."""
        watch, thresholds = self.memory.watch, self.settings.thresholds
        if before_ms >= self.settings.live_from_ms:
            self._report_silence(watch.silent(before_ms, at_ms - before_ms, thresholds))
        self._report_silence(watch.back(at_ms))

    def _watch_refusals(self, broker: str, error: int, proven: Proof, at_ms: int) -> None:
        """Tell of clients that find no coordinator for longer than a failover takes."""
        watch, thresholds = self.memory.watch, self.settings.thresholds
        if at_ms < self.settings.live_from_ms:
            return
        if proven in (Proof.LEADS, Proof.COORDINATES):
            self._report_broker(watch.answered(at_ms, thresholds))
        elif proven is Proof.REFUSES:
            self._report_broker(watch.refused(broker, error, at_ms, self.clock.last_answer_ms, thresholds))

    def _watch_silence(self, wall_ms: int | None) -> None:
        """While nothing comes from the coordinator only other clocks tell for how long: a peer's, or the wall's."""
        clock = self.clock.brokers.get(self.clock.coordinator or "")
        if clock is None or not self.hot.slots or clock.line_ms < self.settings.live_from_ms:
            return
        present_ms = 0 if wall_ms is None else wall_ms - self.memory.lag_ms
        now_ms = max(*(broker.line_ms for broker in self.clock.brokers.values()), present_ms)
        self._report_silence(self.memory.watch.silent(clock.line_ms, now_ms - clock.line_ms, self.settings.thresholds))

    # ------------------------------------------------------------------ outputs

    def _report(self, replica: GroupReplica, scene: Scene, findings: list[Finding], at_ms: int) -> None:
        self._changed.discard(replica.group)
        shown = view(replica, scene, self.settings.cluster, self.shard, violated(findings))
        if findings or replica.deleted:
            forget_shown(replica.group, self.hot)
        else:
            note_shown(shown, self.hot)
        self._said.report(at_ms, replica.group, shown, findings, deleted=replica.deleted)

    def _report_broker(self, instants: list[int]) -> None:
        for at_ms in instants:
            findings = self.memory.watch.findings(self.clock.coordinator or "", self.settings.thresholds)
            self._said.report(at_ms, "", None, findings, holder=self.key)

    def _report_silence(self, instants: list[int]) -> None:
        """Report that a silence began or ended, and with it that all members are unknown, or known again."""
        self._report_broker(instants)
        if instants:
            self._changed |= self.hot.slots.keys()

    def _refresh_views(self) -> None:
        """Report the groups that changed without a finding, and every group once in ``view_refresh_ms``, staggered."""
        progress_ms, period_ms = self.clock.progress_ms, self.settings.view_refresh_ms
        self._report_broker(self.memory.watch.expire(progress_ms, self.settings.thresholds))
        self._report_broker(self.memory.watch.given_up(progress_ms, self.settings.thresholds))
        stale = set(self._changed)
        for group in stale:
            forget_shown(group, self.hot)
        if progress_ms > self.memory.viewed_ms and period_ms:
            for group in self.hot.slots:
                shift_ms = zlib.crc32(group.encode()) % period_ms
                if (progress_ms - shift_ms) // period_ms > (self.memory.viewed_ms - shift_ms) // period_ms:
                    stale.add(group)
            self.memory.viewed_ms = progress_ms
        refreshed_groups = []
        for group in sorted(stale):
            if shown_plain(group, self.hot) and not self.clock.waiting:
                refreshed_groups.append(refreshed(group, self.hot, progress_ms))
                continue
            replica, scene = self._replica(group), self._scene(group, progress_ms)
            if self.clock.coordinator is None:  # records only: nothing else tells that time goes on
                self._end(replica)
            found = evaluate(replica, scene).findings if group in self.memory.reported else []
            findings = [f for f in found if f.at_ms >= self.settings.live_from_ms]
            self._report(
                replica, scene, [f for f in findings if not f.closed_reason], max(progress_ms, replica.state_since_ms)
            )
        self._changed.clear()
        if refreshed_groups:
            self._said.heartbeats(progress_ms, refreshed_groups)

    def _report_progress(self, wall_ms: int | None) -> None:
        self._said.progress(
            self.clock,
            wall_ms,
            groups=len(self.cold),
            members=sum(map(len, self.hot.slots.values())),
            held=len(self.memory.held) + self.memory.held_heartbeats.length,
        )


def _kind(event: GroupEvent) -> str:
    return f"record_{event.record_type}" if isinstance(event, RecordRead) else type(event).__name__

"""The groups of a shard, one at a time: an event is replayed, the group judged, and what changed is reported.

A replica is taken out of its slice (``group_store``), replayed, evaluated, and its heartbeats put back into packed
arrays (``heartbeat_table``). Whatever fails on the way costs that group only: it is set aside. A deleted group is
remembered for an hour.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from coordinator_model.brokers.broker_clock import CoordinatorTracker
from coordinator_model.commit_block import group_in, place_of
from coordinator_model.decode.records import RecordType
from coordinator_model.events import (
    LOADED,
    RECORD_RANK,
    ConsumerHeartbeat,
    CoordinatorLine,
    Heartbeat,
    JoinAnswered,
    OffsetCommitted,
    RecordRead,
)
from coordinator_model.replica.admission import UNKNOWN_GROUP, why_not
from coordinator_model.replica.classic import record_heartbeat
from coordinator_model.replica.coordinator_log import prove
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.refusals import JOIN_REFUSALS, is_idle, told
from coordinator_model.replica.removals.judge import judge_removals
from coordinator_model.replica.removals.removal import note_disputed_heartbeat
from coordinator_model.replica.replay import GroupEvent, replay
from coordinator_model.replica.session_timer import JudgementContext, is_heard
from coordinator_model.rules.evaluate import Evaluation, evaluate, evaluate_brokers, need_heartbeats, violated
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.registry import HEARTBEAT_RULES
from coordinator_model.rules.session import judge
from coordinator_model.rules.setup import measure_again
from coordinator_model.shard import snapshot
from coordinator_model.shard.agenda import Agenda
from coordinator_model.shard.commit_times import COMMIT_MEMORY_MS, CommitRow, CommitTimes
from coordinator_model.shard.group_store import GroupStore
from coordinator_model.shard.heartbeat_table import FAR_MS, FAST_PATH_TYPES, HeartbeatTable
from coordinator_model.shard.outputs import Output, Outputs
from coordinator_model.shard.refresh import forget_shown, note_shown
from coordinator_model.shard.set_aside import failed_replica
from coordinator_model.shard.shard_memory import ShardMemory
from coordinator_model.shard.shard_settings import ShardSettings
from coordinator_model.shard.view import view
from coordinator_model.states import SESSION_EXPIRED, Evidence, GroupState, GroupType, Severity
from coordinator_model.thresholds import Thresholds

DELETED_MEMORY_MS = 3_600_000
"""How long a deleted group's id and count of incarnations are kept, for what trails its end."""


@dataclass(slots=True)
class Groups:
    """What is kept of the groups of one operator key."""

    settings: ShardSettings
    shard: int
    key: str
    memory: ShardMemory = field(default_factory=ShardMemory)
    heartbeat_table: HeartbeatTable = field(default_factory=HeartbeatTable)
    commit_times: CommitTimes = field(default_factory=CommitTimes)
    group_store: GroupStore = field(default_factory=GroupStore)
    index: bytes | None = None
    """Which member has which slot, as ``snapshot`` wrote it; None: that has changed since."""
    agenda: Agenda = field(init=False)
    changed: set[str] = field(default_factory=set)
    """Groups to be shown again though nothing was found."""
    said: Outputs = field(init=False)
    _thresholds: dict[str, Thresholds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.agenda = Agenda(self.heartbeat_table)
        self.said = Outputs(self.settings.cluster, self.shard)

    @property
    def clock(self) -> CoordinatorTracker:
        """The brokers' clocks."""
        return self.memory.clock

    def dump(self) -> tuple[bytes, ...]:
        """Return heartbeat table, index, group store, commit times and their index.

        A group that cannot be encoded is set aside.
        """
        for group, error in self.group_store.encode().items():
            self._set_aside(group, error, self.clock.progress_ms)
        if self.index is None:
            self.index = snapshot.dump_index(self.heartbeat_table)
        self.commit_times.sweep(self.clock.progress_ms)
        return (
            snapshot.dump_heartbeat_table(self.heartbeat_table),
            self.index,
            self.group_store.dump(),
            *snapshot.dump_commit_times(self.commit_times),
        )

    def rebase(self, delta_ms: int, until_ms: int) -> None:
        """Move all that is known along with the coordinator's clock, which stepped; nothing may be held."""
        self.dump()
        self.heartbeat_table.rebase(delta_ms)
        self.commit_times.rebase(delta_ms)
        self.group_store.rebase(delta_ms, until_ms)
        self.memory.rebase(delta_ms, until_ms)
        self.agenda.rebase(delta_ms)

    # ------------------------------------------------------------------ an event

    def apply(self, event: GroupEvent) -> None:
        """Replay one event on its group's replica, and evaluate the group."""
        self.said.count(_kind(event))
        with self.alone(event.group, event[0], event):
            group = event.group
            if self.memory.deleted.get(group, FAR_MS) <= event[0] - DELETED_MEMORY_MS:
                self._drop(group)
            replica = self.group_store.replica(group) if group in self.group_store else None
            refused = why_not(replica, event, loading=self.clock.waiting)
            if refused is None:
                if replica is None or not self._counted(replica, event):
                    self._replay(event)
            else:
                self.said.count(refused)
                self._note_refused_join(event, refused)

    def committed(self, row: CommitRow) -> None:
        """Take a commit of a partition of which none is remembered, or a tombstone: it may make a group, or end one."""
        record_ms, offset, key, gone = row
        times, group = self.commit_times, group_in(key)
        is_known = group in self.group_store and group not in self.memory.deleted
        if gone:
            times.drop(key)
            if not is_known:
                self.said.count(UNKNOWN_GROUP)
            if not is_known or not times.drop_simple(group, key):
                return
        elif self._is_sign_of_life(record_ms):
            times.add(key, record_ms)
        if gone or not is_known:
            event = OffsetCommitted(record_ms, RECORD_RANK, "", self.shard, offset, *place_of(key), gone)
            with self.alone(group, record_ms, event):
                if self.memory.deleted.get(group, FAR_MS) <= record_ms - DELETED_MEMORY_MS:
                    self._drop(group)
                if not gone:
                    times.begin_simple(group)
                self._replay(event)
        if not gone:
            times.keep_simple(group, key)

    def _is_sign_of_life(self, record_ms: int) -> bool:
        """Tell whether a commit may have restarted a session timer that still runs."""
        horizon_ms = record_ms + COMMIT_MEMORY_MS
        return horizon_ms > self.settings.live_from_ms and horizon_ms > self.clock.progress_ms

    def logged(self, event: CoordinatorLine) -> None:
        """Take a line of the coordinator's own log: about a group, or about all groups of the shard.

        A coordinator that loads them starts their session timers anew. A line that names another partition than its
        group's does not say what it seems to say.
        """
        if event.shard not in (-1, self.shard):
            self.said.count("lines_of_another_shard")
            self.said.count(_kind(event))
        elif event.group:
            self.apply(event._replace(beside_requests=self._is_beside_requests(event)))
        else:
            self.said.count(_kind(event))
            if self.clock.by_records and event.what == LOADED:
                self.clock.loaded(event.broker, event.order_ms)

    def _is_beside_requests(self, event: CoordinatorLine) -> bool:
        """Tell whether a request log covers the instant of a line of the coordinator's own log."""
        covered = self.clock.is_logged(event.broker, event.order_ms)
        self.said.count("lines_beside_request_log", int(covered))
        return covered

    def claim(self, event: Heartbeat) -> None:
        """Take a heartbeat accepted by a broker that may be the next coordinator already."""
        if event.group in self.group_store:
            with self.alone(event.group, event[0], event):
                replica = self.replica(event.group)
                note_disputed_heartbeat(replica, event.member_id, event.applied_ms)
                self.group_store.touch(event.group)
                self._evaluate(replica, self.clock.progress_ms, event[0])

    def _note_refused_join(self, event: GroupEvent, refused: str) -> None:
        """Count a refused join of a group that is not known for its client."""
        if refused != UNKNOWN_GROUP or not isinstance(event, JoinAnswered | ConsumerHeartbeat):
            return
        if event.error in JOIN_REFUSALS and event[0] >= self.settings.live_from_ms:
            self.report_broker(self.memory.watch.refused_join(event))

    def _counted(self, replica: GroupReplica, event: GroupEvent) -> bool:
        """Apply an answer that only changes counts, if it is one, at a cost independent of the size of the group.

        The members' heartbeats are not fetched, and the group is evaluated only if the counts are worth a report.
        """
        if not is_idle(replica, event):
            return False
        was_told = told(replica)
        replay(replica, event, self.context(event.group, self.clock.progress_ms))
        self.group_store.touch(event.group)
        if told(replica) != was_told:
            self._evaluate(self.replica(event.group), self.clock.progress_ms, event[0])
            self.changed.add(event.group)
        return True

    def _replay(self, event: GroupEvent) -> None:
        """Replay one event that may touch its group, and evaluate it."""
        group = event.group
        replica = self.replica(group)
        context = self.context(group, self.clock.progress_ms)
        if isinstance(event, Heartbeat) and self._plain(replica, event, context):
            return
        forget_shown(group, self.heartbeat_table)
        before = (replica.state, replica.generation, len(replica.members), replica.deleted)
        replay(replica, event, context)
        self.group_store.touch(group)
        if replica.type is not GroupType.SIMPLE:
            self.commit_times.end_simple(group)
        if not replica.deleted:
            self.memory.deleted.pop(group, None)
        if not isinstance(event, Heartbeat) or before != (
            replica.state,
            replica.generation,
            len(replica.members),
            replica.deleted,
        ):
            self.changed.add(group)
        if isinstance(event, RecordRead) and event.record_type != RecordType.GROUP_METADATA and self._waits(event):
            self._await_write(replica, max(event[0], self.clock.progress_ms))
        else:
            self._evaluate(replica, self.clock.progress_ms, event[0])

    def _waits(self, event: RecordRead) -> bool:
        """Tell whether something later shows that a write was read whole: a line or, where there is none, a record."""
        if self.clock.by_records:
            return event[0] >= self.settings.live_from_ms
        return bool(self.clock.coordinator)

    def _await_write(self, replica: GroupReplica, due_ms: int) -> None:
        """Look at a group once a write's records have all come: in their midst it may seem empty, or without leader.

        They have one timestamp, so the next line of the coordinator, or another write, comes after the last of them.
        """
        if self.heartbeat_table.copy_from(replica, {}, set()):
            self.index = None
        self.agenda.look_at(replica.group, due_ms)

    def _plain(self, replica: GroupReplica, event: Heartbeat, context: JudgementContext) -> bool:
        """Take the member path: a heartbeat of a quiet group changes nothing but its member's clock.

        So only the member is judged, not the group: this is how all members of a cluster enter the fast path.
        """
        member, memory = replica.members.get(event.member_id), self.memory
        quiet = not any(row[0] in HEARTBEAT_RULES for row in memory.reported.get(replica.group, ()))
        plain = event.error == 0 and quiet and replica.state is GroupState.STABLE and replica.type in FAST_PATH_TYPES
        if not plain or member is None or context.waiting or replica.stable_seen_ms is None:
            return False
        if member.generation is None and event.generation == replica.generation:
            member.generation = event.generation
            self.group_store.touch(replica.group)
        if member.generation != event.generation:
            return False
        if record_heartbeat(member, event.applied_ms):
            self.group_store.touch(replica.group)
        verdict = judge(replica, member, context)
        if verdict.finding is not None:
            return False
        if event.member_id not in self.heartbeat_table.slots.get(event.group, {}):
            self.index = None
        self.heartbeat_table.put(event.group, member, verdict.due_ms, fast=True)
        if verdict.due_ms is not None:
            self.agenda.due_ms = min(self.agenda.due_ms, verdict.due_ms)
        return True

    # ------------------------------------------------------------------ a group that fails, or is gone

    @contextmanager
    def alone(self, group: str, at_ms: int, event: GroupEvent | None = None) -> Iterator[None]:
        """Let a failure on a group cost what is known of that group, and nothing else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 # whatever it is, the other groups go on
            self._set_aside(group, error, at_ms, event)

    def _set_aside(self, group: str, error: Exception, at_ms: int, event: GroupEvent | None = None) -> None:
        """Drop what is known of a group that failed; its next record begins a new replica."""
        self.said.quarantine(at_ms, event, error)
        self.said.count("set_aside")
        at_ms = max(at_ms, self.clock.progress_ms)
        replica = failed_replica(self.group_store, group, error, at_ms, self.settings.thresholds.resolve_after_ms)
        self._drop(group)
        self.group_store.put(replica)
        try:
            self._evaluate(replica, self.clock.progress_ms, at_ms)
        except Exception as again:  # noqa: BLE001 # what fails on any group has been told by the quarantine
            self.said.quarantine(at_ms, event, again)

    def _drop(self, group: str) -> None:
        """Forget a group; nothing of it stays."""
        self.group_store.drop(group)
        if self.heartbeat_table.drop_group(group):
            self.index = None
        memory = self.memory
        self.agenda.forget(group)
        self.commit_times.end_simple(group)
        for known in (memory.reported, memory.deleted, self._thresholds):
            known.pop(group, None)
        self.changed.discard(group)

    def _end(self, replica: GroupReplica) -> None:
        """Let a group be gone whose tombstone's write did not go on with a group of another kind."""
        if replica.ending_ms is not None:
            replica.mark_deleted()
            self.changed.add(replica.group)
            self.group_store.touch(replica.group)

    def _forget(self, group: str) -> None:
        """Forget a deleted group: only its count of incarnations stays, for what comes under its name later."""
        replica = self.group_store.replica(group)
        if self.heartbeat_table.drop_group(group):
            self.index = None
        self.commit_times.end_simple(group)
        self.agenda.forget(group)
        self.memory.deleted[group] = replica.state_since_ms
        self._thresholds.pop(group, None)
        self.group_store.touch(group)
        replica.refused.clear()
        replica.zombies.clear()
        replica.leaves.clear()
        replica.logged.clear()
        replica.proofs.clear()
        replica.joining.clear()
        replica.unexplained.clear()
        replica.undelivered_leaves.clear()
        replica.asking.clear()
        replica.violations.clear()

    def forget_deleted(self, now_ms: int) -> None:
        """Forget the groups that were deleted long ago: what trails their end has come."""
        deleted = self.memory.deleted
        for group in [group for group, at_ms in deleted.items() if at_ms <= now_ms - DELETED_MEMORY_MS]:
            self._drop(group)

    # ------------------------------------------------------------------ what is true of a group

    def replica(self, group: str) -> GroupReplica:
        """Return a group's replica, out of its slice if need be, with the heartbeats of the fast path."""
        replica = self.group_store.replica(group)
        self.heartbeat_table.copy_to(replica)
        return replica

    def thresholds_of(self, group: str) -> Thresholds:
        """Return a group's thresholds."""
        thresholds = self._thresholds.get(group)
        if thresholds is None:
            thresholds = self._thresholds[group] = self.settings.thresholds_of(group)
        return thresholds

    def context(self, group: str, progress_ms: int) -> JudgementContext:
        """Return what a group is judged by at an instant."""
        thresholds = self.thresholds_of(group)
        return JudgementContext(
            progress_ms=progress_ms,
            broker=self.clock.coordinator or "",
            timer_resets=self.clock.timer_resets,
            commits=self.commit_times.of_group(group),
            live_from_ms=self.settings.live_from_ms,
            covered_since_ms=self.clock.covered_since_ms,
            proof_arrival_ms=self.clock.proof_arrival_ms(progress_ms, thresholds.grace_ms),
            consumer_session_timeout_ms=self.settings.session_timeout_ms(group, self._type_of(group), thresholds),
            thresholds=thresholds,
            topic_partitions=self.settings.topic_partitions,
            stalled=self.memory.watch.blind and not self.clock.by_records,
            blind=self.clock.blind,
            hole_is_open=self.clock.hole_is_open,
            by_records=self.clock.by_records,
            coordinates_ms=self.clock.newest_proof_ms,
        )

    def _type_of(self, group: str) -> GroupType | None:
        replica = self.group_store.opened(group)
        return None if replica is None else replica.type

    def look(self, group: str, due_ms: int) -> None:
        """Look at a group that is due; what still is afterwards waits for its next event, and is counted."""
        self.agenda.group_due.pop(group, None)
        replica = self.replica(group)
        if replica.ending_ms is not None:
            self._evaluate(replica, due_ms, due_ms)  # whom it lost last is told before it is gone
        self._end(replica)
        self._evaluate(replica, due_ms, due_ms)
        if self.agenda.put_off(group, due_ms):
            self.said.count("put_off")

    def _evaluate(self, replica: GroupReplica, progress_ms: int, at_ms: int) -> None:
        """Evaluate a group, report its findings if they changed, and note when to look again."""
        group = replica.group
        context = self.context(group, progress_ms)
        if judge_removals(replica, context) | measure_again(replica, context) | prove(replica, context):
            self.group_store.touch(group)
        evaluation = evaluate(replica, context)
        findings = [f for f in evaluation.findings if f.at_ms >= self.settings.live_from_ms]
        self.report_broker(self.memory.watch.attribute(findings))
        self._remember_verdicts(replica, evaluation.findings)
        ended = {(f.rule, f.member_id) for f in evaluation.findings if f.closed_reason}
        self._tell(replica, context, findings, ended, max(at_ms, progress_ms))
        unheard = {m.subject for m in replica.members.values() if not is_heard(m, context.timer_resets)}
        if self.heartbeat_table.copy_from(replica, evaluation.member_due_ms, need_heartbeats(findings) | unheard):
            self.index = None
        self._due_next(replica, evaluation)
        if replica.deleted:
            self._forget(group)

    def _tell(
        self,
        replica: GroupReplica,
        context: JudgementContext,
        findings: list[Finding],
        ended: set[tuple[str, str | None]],
        at_ms: int,
    ) -> None:
        """Report a group's findings if they changed; the departures that have ended are forgotten."""
        group = replica.group
        brief = [[f.rule, f.member_id or f.subject, f.severity, f.evidence, f.cause, f.deadline_ms] for f in findings]
        if brief != self.memory.reported.get(group, []) or ended or (replica.deleted and group in self.changed):
            self._report(replica, context, findings, at_ms)
        kept = [row for row in brief if (row[0], row[1]) not in ended]
        if kept:
            self.memory.reported[group] = kept
        else:
            self.memory.reported.pop(group, None)
        if ended:
            self.group_store.touch(group)
            replica.departures = [d for d in replica.departures if (d.rule, d.member.member_id) not in ended]

    def age(self, present_ms: int) -> None:
        """Let what is reported end as time passes without a record; nothing begins and nothing gets worse by that."""
        for group in list(self.memory.reported):
            due_ms = self.agenda.group_due.get(group, FAR_MS)
            while due_ms <= present_ms and group in self.memory.reported:
                with self.alone(group, due_ms):
                    due_ms = max(self._age(group, due_ms), due_ms + 1)

    def _age(self, group: str, at_ms: int) -> int:
        """Report what of a group's findings has ended by an instant; return when the next may."""
        replica, context = self.replica(group), self.context(group, at_ms)
        evaluation = evaluate(replica, context)
        told = {(row[0], row[1]): row[2] for row in self.memory.reported[group]}
        known = [f for f in evaluation.findings if (f.rule, f.member_id or f.subject) in told]
        for finding in known:
            finding.severity = Severity(told[finding.rule, finding.member_id or finding.subject])
        self._tell(replica, context, known, {(f.rule, f.member_id) for f in known if f.closed_reason}, at_ms)
        return FAR_MS if evaluation.due_ms is None else evaluation.due_ms

    def _due_next(self, replica: GroupReplica, evaluation: Evaluation) -> None:
        """Note when to look at a group again, and what decides it sooner."""
        group, proven_ms = replica.group, None
        if evaluation.proof_ms is not None:
            proven_ms = self.clock.proven_ms(evaluation.proof_ms, self.thresholds_of(group).grace_ms)
        ending_ms = FAR_MS if replica.ending_ms is None else replica.ending_ms
        self.agenda.looked(group, evaluation, ending_ms, proven_ms)  # its tombstone's write has ended by then

    def _remember_verdicts(self, replica: GroupReplica, findings: list[Finding]) -> None:
        """Keep the timer's verdicts with their members: a rebalance that follows must not unsay them."""
        for finding in findings:
            member = replica.members.get(finding.member_id or "")
            spoken = finding.rule == SESSION_EXPIRED and finding.evidence is Evidence.INFERRED
            if spoken and member is not None and member.verdict_ms is None:
                member.verdict_deadline_ms, member.verdict_clock_ms = finding.deadline_ms, member.clock_ms
                self.group_store.touch(replica.group)

    # ------------------------------------------------------------------ what is reported of it

    def views(self) -> list[Output]:
        """Return the group object of every group that is not deleted, sorted by id.

        A group that fails is set aside and left out, which the outputs of the last batch tell.
        """
        shown: list[Output] = []
        for group in self.group_store.names():
            with self.alone(group, self.clock.progress_ms):
                shown += self._view(group)
        return shown

    def _view(self, group: str) -> list[Output]:
        replica = self.replica(group)
        if replica.deleted or replica.ending_ms is not None:
            return []
        context = self.context(group, self.clock.progress_ms)
        troubled = violated(evaluate(replica, context).findings)
        return [view(replica, context, self.settings.cluster, self.shard, troubled)]

    def _report(self, replica: GroupReplica, context: JudgementContext, findings: list[Finding], at_ms: int) -> None:
        self.changed.discard(replica.group)
        shown = view(replica, context, self.settings.cluster, self.shard, violated(findings))
        if findings or replica.deleted:
            forget_shown(replica.group, self.heartbeat_table)
        else:
            note_shown(shown, self.heartbeat_table)
        self.said.report(at_ms, replica.group, shown, findings, deleted=replica.deleted)

    def report_broker(self, instants: list[int]) -> None:
        """Report what is true of the brokers, and of clients of no group, at some instants."""
        for at_ms in instants:
            findings = evaluate_brokers(self.memory.watch, self.clock.coordinator or "", self.settings.thresholds)
            self.said.report(at_ms, "", None, findings, holder=self.key)

    def refresh_view(self, group: str, progress_ms: int) -> None:
        """Report a group whole, as it is now."""
        replica, context = self.replica(group), self.context(group, progress_ms)
        # Records only: nothing else tells that time goes on.
        if self.clock.coordinator is None or self.clock.by_records:
            self._end(replica)
        found = evaluate(replica, context).findings if group in self.memory.reported else []
        findings = [f for f in found if f.at_ms >= self.settings.live_from_ms and not f.closed_reason]
        self._report(replica, context, findings, max(progress_ms, replica.state_since_ms))


def _kind(event: GroupEvent) -> str:
    return f"record_{event.record_type}" if isinstance(event, RecordRead) else type(event).__name__

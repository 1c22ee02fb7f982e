"""Judges a group, reports its findings if they have changed, and notes when to look again.

A failure of this code affects only the group that it judges: the group is set aside. A group is judged at an instant of
the coordinator's clock, ``progress_ms``. If only records tell the time, findings also end as time passes without a
record that confirms them (``age``).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from coordinator_model.events import FAR_MS
from coordinator_model.replica.advance import advance, conclude, end_if_tombstoned, lost_by_ms
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.replay import GroupEvent
from coordinator_model.replica.session_timer import is_heard
from coordinator_model.rules.evaluate import Evaluation, evaluate, need_heartbeats, violated
from coordinator_model.rules.findings import Finding
from coordinator_model.shard.broker_reports import BrokerReports
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.heartbeat_update import forget_shown, note_shown
from coordinator_model.shard.outputs import Output
from coordinator_model.shard.set_aside import failed_replica
from coordinator_model.shard.shard_memory import ReportedFinding
from coordinator_model.shard.view import view
from coordinator_model.states import SESSION_EXPIRED, Evidence, Severity


class GroupJudgement:
    """The judgement of one shard's groups."""

    def __init__(self, groups: Groups, brokers: BrokerReports) -> None:
        self._groups, self._brokers = groups, brokers

    def look(self, group: str, due_ms: int) -> None:
        """Look at a group that is due.

        If the group is still due afterwards, it waits for its next event, so that the caller's loop ends.
        """
        self._groups.agenda.group_due.pop(group, None)
        replica = self._groups.replica(group)
        if replica.ending_ms is not None:
            self.evaluate(replica, due_ms, due_ms)  # judge the last departures before the group is deleted
        self._end(replica)
        self.evaluate(replica, due_ms, due_ms)
        if self._groups.agenda.put_off(group, due_ms):
            self._groups.outputs.count("put_off")

    def evaluate(self, replica: GroupReplica, progress_ms: int, at_ms: int) -> None:
        """Evaluate a group, report its findings if they changed, and note when to look again."""
        group = replica.group
        context = self._groups.context(group, progress_ms)
        before = replica.state
        if advance(replica, context):
            self._groups.group_store.touch(group)
        if replica.state is not before:
            self._groups.changed.add(group)
        evaluation = evaluate(replica, context)
        findings = [f for f in evaluation.findings if f.at_ms >= self._groups.settings.live_from_ms]
        self._brokers.attribute(replica, findings, progress_ms)
        ended = {(f.rule, f.member_id) for f in evaluation.findings if f.closed_reason}
        if conclude(replica, _expired_ms(evaluation.findings), ended):
            self._groups.group_store.touch(group)
        self._tell(replica, context, findings, at_ms=max(at_ms, progress_ms), ended=ended)
        waits = {m.subject for m in replica.members.values() if not is_heard(m, context.timer_resets)}
        self._groups.heartbeat_table.copy_from(replica, evaluation.member_due_ms, need_heartbeats(findings) | waits)
        self._note_next_look(replica, evaluation, context)
        if replica.deleted:
            self._groups.keep_only_incarnation(group)

    def _tell(
        self,
        replica: GroupReplica,
        context: JudgementContext,
        findings: list[Finding],
        *,
        at_ms: int,
        ended: set[tuple[str, str | None]],
    ) -> None:
        """Report a group's findings if they have changed, and remember those that have not ended."""
        group = replica.group
        brief = [ReportedFinding.of(finding) for finding in findings]
        reported, is_gone = self._groups.memory.reported, replica.deleted and group in self._groups.changed
        if brief != reported.get(group, []) or ended or is_gone:
            self._report(replica, context, findings, at_ms)
        kept = [finding for finding in brief if finding.key not in ended]
        if kept:
            reported[group] = kept
        else:
            reported.pop(group, None)

    def age(self, present_ms: int) -> None:
        """Let reported findings end as time passes without a record. No finding begins or becomes more severe."""
        for group in list(self._groups.memory.reported):
            due_ms = self._groups.agenda.group_due.get(group, FAR_MS)
            while due_ms <= present_ms and group in self._groups.memory.reported:
                with self.isolated(group, due_ms):
                    due_ms = self._age(group, due_ms)

    def _age(self, group: str, at_ms: int) -> int:
        """Report which of a group's findings have ended by an instant; return the later instant when one may end."""
        replica, context = self._groups.replica(group), self._groups.context(group, at_ms)
        evaluation = evaluate(replica, context)
        told = {finding.key: finding.severity for finding in self._groups.memory.reported[group]}
        known: list[Finding] = []
        for finding in evaluation.findings:
            severity = told.get(ReportedFinding.of(finding).key)
            if severity is not None:
                finding.severity = Severity(severity)
                known.append(finding)
        ended = {(f.rule, f.member_id) for f in known if f.closed_reason}
        if conclude(replica, {}, ended):
            self._groups.group_store.touch(group)
        self._tell(replica, context, known, at_ms=at_ms, ended=ended)
        return evaluation.due_ms if evaluation.due_ms is not None and evaluation.due_ms > at_ms else FAR_MS

    def _note_next_look(self, replica: GroupReplica, evaluation: Evaluation, context: JudgementContext) -> None:
        """Note when to look at a group again, or which proof its verdict waits for."""
        group, proven_ms = replica.group, None
        if evaluation.proof_ms is not None:
            accepted, grace_ms = self._groups.clock.accepted, self._groups.thresholds_of(group).grace_ms
            proven_ms = accepted.settled_ms(evaluation.proof_ms, grace_ms)
        # A group that ends is due at its tombstone's instant: later records do not belong to the tombstone's write.
        due_ms = lost_by_ms(replica, context) if replica.ending_ms is None else replica.ending_ms
        self._groups.agenda.note_look(group, evaluation, FAR_MS if due_ms is None else due_ms, proven_ms)

    @contextmanager
    def isolated(self, group: str, at_ms: int, event: GroupEvent | None = None) -> Iterator[None]:
        """Set a group aside if the body fails on it: only what is known about that group is lost."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 # whatever it is, the other groups go on
            self._set_aside(group, error, at_ms, event)

    def _set_aside(self, group: str, error: Exception, at_ms: int, event: GroupEvent | None = None) -> None:
        """Drop what is known about a group that failed. The group's next record begins a new replica."""
        self._groups.outputs.quarantine(at_ms, event, error)
        self._groups.outputs.count("set_aside")
        at_ms = max(at_ms, self._groups.clock.progress_ms)
        resolve_after_ms = self._groups.settings.thresholds.resolve_after_ms
        replica = failed_replica(self._groups.group_store, group, error, at_ms, resolve_after_ms)
        self._groups.drop(group)
        self._groups.group_store.put(replica)
        try:
            self.evaluate(replica, self._groups.clock.progress_ms, at_ms)
        except Exception as again:  # noqa: BLE001 # the first error is in the quarantine already
            self._groups.outputs.quarantine(at_ms, event, again)

    def encode(self) -> None:
        """Encode the replicas that were touched. A group that cannot be encoded is set aside."""
        for group, error in self._groups.group_store.encode().items():
            self._set_aside(group, error, self._groups.clock.progress_ms)

    def _end(self, replica: GroupReplica) -> None:
        """Mark a tombstoned group deleted, unless the same write makes it a group of another type."""
        if end_if_tombstoned(replica):
            self._groups.changed.add(replica.group)
            self._groups.group_store.touch(replica.group)

    def views(self) -> list[Output]:
        """Return the group object of every group that is not deleted, sorted by id.

        A group that fails is set aside and left out, and a report about that is added to the outputs of the last batch.
        """
        shown: list[Output] = []
        for group in self._groups.group_store.names():
            with self.isolated(group, self._groups.clock.progress_ms):
                shown += self._view(group)
        return shown

    def _view(self, group: str) -> list[Output]:
        replica = self._groups.replica(group)
        if replica.deleted or replica.ending_ms is not None:
            return []
        context = self._groups.context(group, self._groups.clock.progress_ms)
        troubled = violated(evaluate(replica, context).findings)
        return [view(replica, context, self._groups.settings.cluster, self._groups.shard, troubled)]

    def _report(self, replica: GroupReplica, context: JudgementContext, findings: list[Finding], at_ms: int) -> None:
        self._groups.changed.discard(replica.group)
        shown = view(replica, context, self._groups.settings.cluster, self._groups.shard, violated(findings))
        if findings or replica.deleted:
            forget_shown(replica.group, self._groups.heartbeat_table)
        else:
            note_shown(shown, self._groups.heartbeat_table)
        self._groups.outputs.report(at_ms, replica.group, shown, findings, deleted=replica.deleted)

    def refresh_view(self, group: str, progress_ms: int) -> None:
        """Report a group's whole view as it is now."""
        replica, context = self._groups.replica(group), self._groups.context(group, progress_ms)
        # If only records are seen, no line will show the end of the tombstone's write.
        if self._groups.clock.coordinator is None or self._groups.clock.by_records:
            self._end(replica)
        found = evaluate(replica, context).findings if group in self._groups.memory.reported else []
        findings = [f for f in found if f.at_ms >= self._groups.settings.live_from_ms and not f.closed_reason]
        self._report(replica, context, findings, max(progress_ms, replica.state_since_ms))


def _expired_ms(findings: Iterable[Finding]) -> dict[str, int | None]:
    """Return the missed session deadlines, by member id, of members that are not yet known to be removed."""
    timed = (f for f in findings if f.rule == SESSION_EXPIRED and f.evidence is Evidence.INFERRED)
    return {finding.member_id: finding.deadline_ms for finding in timed if finding.member_id is not None}

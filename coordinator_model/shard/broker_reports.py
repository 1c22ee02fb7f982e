"""Reports what a shard notices about its brokers: silence, refusals, and pauses and moves that ended a session.

``BrokerWatch`` remembers and decides. This module calls it at the right moments, and reports what has changed.
"""

from collections.abc import Iterable

from coordinator_model.brokers.blindness import MISDATED, NO_LINES, NO_REQUEST_LOG
from coordinator_model.brokers.coordinator_check import Proof
from coordinator_model.brokers.gone_brokers import forget_gone
from coordinator_model.brokers.line_clocks import Step
from coordinator_model.brokers.one_clock import BrokerClock
from coordinator_model.brokers.silence import silence_by_peer_ms, silence_by_wall_ms
from coordinator_model.replica.group import GroupReplica
from coordinator_model.rules.broker_watch import UnloggedLeader
from coordinator_model.rules.evaluate import evaluate_brokers
from coordinator_model.rules.findings import Finding
from coordinator_model.shard.groups import Groups


class BrokerReports:
    """The reports of one shard about its brokers."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._memory, self._settings = groups.memory, groups.settings
        self._is_live = False

    def begin(self, *, is_live: bool) -> None:
        """Begin a batch. ``is_live``: this machine's clock is known. It is not in a capture."""
        self._is_live = is_live

    def report(self, instants: Iterable[int], reason: str | None = None) -> None:
        """Report the findings about brokers, and about clients without a group, at each of the instants.

        ``reason``: why findings have ended, if that is another reason than their rules' own.
        """
        for at_ms in instants:
            coordinator = self._memory.clock.coordinator or ""
            findings = evaluate_brokers(self._memory.watch, coordinator, self._settings.thresholds)
            self._groups.outputs.report(at_ms, "", None, findings, holder=self._groups.key, reason=reason)

    def attribute(self, replica: GroupReplica, findings: list[Finding], progress_ms: int) -> None:
        """Report the sessions of a group that ended because its coordinator paused or moved, and those that did not.

        A shipper may send the coordinator's own log without keys. Then a broker is named by what it leads.
        """
        unnamed = f"leader of __consumer_offsets-{self._groups.shard}"
        watch, thresholds = self._memory.watch, self._settings.thresholds
        if watch.affected_members:
            heard_ms = {member.subject: member.last_heartbeat_ms or 0 for member in replica.members.values()}
            coordinator = self._memory.clock.coordinator or ""
            self.report(watch.refute(replica.group, heard_ms, coordinator, progress_ms), "refuted")
        self.report(watch.attribute(findings, progress_ms, thresholds, unnamed))

    def _report_silence(self, instants: list[int], reason: str | None = None) -> None:
        """Report that telemetry stopped or came back. All members of the shard become unknown, or known again."""
        self.report(instants, reason)
        if instants:
            self._groups.changed |= self._groups.heartbeat_table.slots.keys()

    def _silent(self, since_ms: int, silence_ms: int) -> list[int]:
        """Note that the coordinator is silent, and which broker that is."""
        watch = self._memory.watch
        instants = watch.silent(since_ms, silence_ms, self._settings.thresholds)
        if instants:
            watch.silent_broker = self._memory.clock.coordinator or ""
        return instants

    def _report_blind(self, from_ms: int, until_ms: int | None, why: str, broker: str) -> None:
        """Report a blind window of a broker; ``until_ms`` None: the window is still open."""
        self._groups.outputs.blind(self._memory.clock.progress_ms, broker, from_ms, until_ms, why)

    def blind_windows(self) -> None:
        """Report the blind windows of the coordinator that are new."""
        for window in self._memory.clock.take_noted():
            self._report_blind(window.from_ms, window.until_ms, window.why, window.broker)

    def dates(self) -> None:
        """Report that records contradict the dates of a broker's lines, or that they no longer do."""
        dates, progress_ms = self._memory.dates, self._memory.clock.progress_ms
        doubtful = dates.doubtful(progress_ms)
        if doubtful and dates.doubted is None:
            dates.doubted = min(doubtful.items(), key=lambda item: item[1])
            self._report_blind(dates.doubted[1], None, MISDATED, dates.doubted[0])
        elif dates.doubted is not None and not doubtful:
            broker, since_ms = dates.doubted
            dates.doubted = None
            self._report_blind(since_ms, max(since_ms, progress_ms), MISDATED, broker)

    def gap(self, before_ms: int, at_ms: int) -> None:
        """Report a gap in the coordinator's lines: the line after it shows that telemetry had stalled.

        A shard without members misses no telemetry, and a shard without groups does not even receive every line.
        """
        watch, since_ms = self._memory.watch, max(before_ms, self._memory.clock.coordinator_since_ms)
        if since_ms >= self._settings.live_from_ms and self._groups.heartbeat_table.slots:
            self._report_silence(self._silent(since_ms, at_ms - since_ms))
        silent_from_ms = watch.stalled_ms
        instants = watch.lines_resumed(at_ms) if at_ms > before_ms else []
        self._report_silence(instants)
        if instants and silent_from_ms is not None:
            self._report_blind(silent_from_ms, max(instants), NO_LINES, watch.silent_broker)

    def answered(self, broker: str, error: int, proof: Proof, at_ms: int) -> None:
        """Report that clients found no coordinator for longer than a failover takes, or that they find one again."""
        watch, thresholds = self._memory.watch, self._settings.thresholds
        if at_ms < self._settings.live_from_ms:
            return
        if proof in (Proof.LEADS, Proof.COORDINATES):
            self.report(watch.answered(at_ms, thresholds))
        elif proof is Proof.REFUSES:
            answered_ms = self._memory.clock.last_answer_ms
            self.report(watch.refused(broker, error, at_ms, answered_ms, thresholds))

    def named(self, at_ms: int) -> None:
        """Report what has ended because metadata names another leader, and whether it is one without a request log."""
        clock = self._memory.clock
        since_ms, node = clock.leadership.unlogged_ms, clock.leadership.node
        self._moved(at_ms, UnloggedLeader(since_ms, node) if since_ms is not None and not clock.coordinator else None)

    def taken_over(self, at_ms: int) -> None:
        """Report what has ended because another broker answers as the coordinator: an answer is a line of its log."""
        self._moved(at_ms, None)

    def _moved(self, at_ms: int, unlogged: UnloggedLeader | None) -> None:
        watch = self._memory.watch
        before, silent_from_ms = watch.unlogged, watch.stalled_ms
        if at_ms < self._settings.live_from_ms:
            return
        self._report_silence(watch.moved(at_ms, unlogged), "superseded" if silent_from_ms is not None else None)
        if silent_from_ms is not None:
            self._report_blind(silent_from_ms, at_ms, NO_LINES, watch.silent_broker)
        if before is not None and before != unlogged:
            self._report_blind(before.since_ms, at_ms, NO_REQUEST_LOG, f"node {before.node}")
        if unlogged is not None and before != unlogged:
            self._report_blind(unlogged.since_ms, None, NO_REQUEST_LOG, f"node {unlogged.node}")

    def stepped(self, step: Step) -> None:
        """Report that a broker's clock stepped, perhaps back to the right time."""
        at_ms = step.to_ms - step.total_ms if step.lasting else step.to_ms
        if self._memory.watch.stepped(step.broker, at_ms, step.total_ms, lasting=step.lasting):
            self.report([max(at_ms, self._memory.clock.progress_ms)])

    def forget_gone(self) -> None:
        """Forget the brokers that have left the cluster, and report that their clocks matter no more."""
        clock, watch = self._memory.clock, self._memory.watch
        forget_gone(clock)
        gone = watch.clocks.keys() - clock.brokers.keys()
        for broker in gone:
            del watch.clocks[broker]
        if gone:
            self.report([clock.progress_ms])

    def peer(self, broker: str) -> None:
        """Report that no line of the coordinator comes, if the newest line of another broker of a capture shows it."""
        coordinator = None if self._is_live else self._coordinator()
        if coordinator is not None:
            since_ms = self._awaited_since_ms(coordinator.line_ms)
            self._report_lasting(since_ms, silence_by_peer_ms(since_ms, self._memory.clock.brokers[broker]))

    def silence(self, wall_ms: int | None) -> None:
        """Report that no line of the coordinator comes, if this machine's clock shows it in two batches in a row."""
        coordinator, watch = self._coordinator(), self._memory.watch
        if wall_ms is None or coordinator is None:
            return
        since_ms = self._awaited_since_ms(coordinator.newest_read_ms)
        brokers, behind_ms = self._memory.clock.brokers.values(), self._memory.behind_ms or 0
        silence_ms = silence_by_wall_ms(since_ms, coordinator, brokers, wall_ms, behind_ms)
        if silence_ms > self._settings.thresholds.telemetry_stalled_ms and watch.is_confirmed(since_ms):
            self._report_lasting(since_ms, silence_ms)

    def _coordinator(self) -> BrokerClock | None:
        """Return the coordinator's clock, if its lines have to come: a shard without members misses none."""
        clock = self._memory.clock
        return clock.brokers.get(clock.coordinator or "") if self._groups.heartbeat_table.slots else None

    def _awaited_since_ms(self, line_ms: int) -> int:
        """Return since when a line is awaited: the coordinator's newest, or since when it coordinates if later."""
        return max(line_ms, self._memory.clock.coordinator_since_ms)

    def _report_lasting(self, since_ms: int, silence_ms: int) -> None:
        """Report a silence of the coordinator that still lasts, if it is long enough."""
        if since_ms < self._settings.live_from_ms:
            return
        instants = self._silent(since_ms, silence_ms)
        self._report_silence(instants)
        if instants:
            self._report_blind(since_ms, None, NO_LINES, self._memory.watch.silent_broker)

    def expire(self, progress_ms: int) -> None:
        """Report the end of findings for which there has been no new sign for long enough."""
        self.report(self._memory.watch.expire(progress_ms, self._settings.thresholds))
        self.report(self._memory.watch.end_if_not_repeated(progress_ms, self._settings.thresholds))

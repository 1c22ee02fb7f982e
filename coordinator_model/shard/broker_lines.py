"""Applies the lines of brokers. A line moves its broker's clock, and an answer may prove who the coordinator is.

An answer counts for its group if its broker is the coordinator. An answer of a deposed coordinator is left out. An
answer that metadata disputes is applied, but it moves no clock.
"""

from coordinator_model.brokers.blindness import CLOCK_STEPPED
from coordinator_model.brokers.coordinator_check import Proof, proof
from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.brokers.line_clocks import Step
from coordinator_model.errors import HEARD, Error
from coordinator_model.events import (
    Answer,
    BrokerLine,
    ClientSign,
    CommitRefused,
    ConsumerHeartbeat,
    Heartbeat,
    JoinAnswered,
    LeaderNamed,
    LeaveAnswered,
    MetricsPushed,
    Request,
    SyncAnswered,
    Tick,
    moved,
    parked_ms,
)
from coordinator_model.heartbeat_block import fast_row
from coordinator_model.replica.advance import forget_reported
from coordinator_model.shard.broker_reports import BrokerReports
from coordinator_model.shard.fast_path import FastPath
from coordinator_model.shard.group_events import GroupEvents
from coordinator_model.shard.group_judgement import GroupJudgement
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.misdated_brokers import Misdating
from coordinator_model.shard.schedule import Schedule


class BrokerLines:
    """Applies the lines of brokers to one shard."""

    def __init__(
        self,
        groups: Groups,
        *,
        events: GroupEvents,
        judgement: GroupJudgement,
        brokers: BrokerReports,
        schedule: Schedule,
        fast_path: FastPath,
    ) -> None:
        self._groups, self._events, self._judgement = groups, events, judgement
        self._brokers, self._schedule, self._fast_path = brokers, schedule, fast_path

    @property
    def _clock(self) -> CoordinatorTracker:
        return self._groups.clock  # not stored here: a rebase replaces the object

    def line(self, event: BrokerLine) -> None:
        """Apply a line of a broker: move the broker's clock, make the verdicts that are due, and apply the event."""
        at_ms, thresholds = event.order_ms, self._groups.settings.thresholds
        if event.broker != self._clock.coordinator:
            self._clock.join_listener(event.broker, at_ms)
        if isinstance(event, Tick) and event.asked:
            self._clock.note_node(event.broker, event.asked, at_ms)
        if event.broker in self._clock.listeners.names:
            event = event._replace(broker=self._clock.listeners.name(event.broker))
        if isinstance(event, Tick) and event.lost and event.broker in self._clock.brokers:
            self._clock.lost_lines(event.broker, at_ms, self._clock.brokers[event.broker].line_ms)
        before_ms = self._clock.advance(event.broker, at_ms, thresholds)
        if event.broker == self._clock.coordinator:
            self._brokers.gap(before_ms, at_ms)
        else:
            self._brokers.peer(event.broker)
        if isinstance(event, MetricsPushed):
            event = event._replace(waited_ms=self._clock.brokers[event.broker].waited_ms(at_ms))
        if isinstance(event, CommitRefused | ClientSign):
            self._schedule.judge_due(self._clock.progress_ms)
            if isinstance(event, ClientSign) or event.broker == self._clock.coordinator:
                self._events.apply(self._here(event))
            return
        if not isinstance(event, Tick):
            self._answer(event)
            return
        self._groups.outputs.count("ticks")
        self._clock.probed(event.broker, event.probe, at_ms, before_ms, thresholds, event.connection)
        self._schedule.judge_due(self._clock.progress_ms)

    def _answer(self, event: Answer) -> None:
        """Apply a request that a broker has answered."""
        at_ms, thresholds = event.order_ms, self._groups.settings.thresholds
        proven, here = self._proof(event), self._here(event)
        if self._was_elected_again(here):
            self._clock.former.reinstate(event.broker)
        if proven is not Proof.REFUSES and self._clock.is_deposed(event.broker, at_ms, thresholds):
            self._deposed(here, proven)
            return
        if event.error == Error.NOT_COORDINATOR and event.broker == self._clock.coordinator:
            self._clock.former.clear()
            self._clock.resign(event.broker, at_ms)
        if self._clock.disputed(event.broker, proven, at_ms):
            self._disputed(here)
            return
        self._brokers.answered(event.broker, event.error, proven, here.order_ms)
        if proven in (Proof.LEADS, Proof.COORDINATES):
            self._rebase_to_clock_of(event.broker)
        before, claimed = self._clock.coordinator, self._claimed(event.broker, at_ms)
        if self._clock.answered(event.broker, proven, at_ms, thresholds):
            self._schedule.look_again(at_ms)
        if self._clock.coordinator != before:
            # what was read before came from the deposed coordinator, unless it contradicted metadata
            self._brokers.taken_over(at_ms)
            self._events.taken_over(at_ms, at_ms, claimed)
        self._schedule.judge_due(self._clock.progress_ms)
        if isinstance(event, Heartbeat) and event.error in HEARD:
            self._schedule.prove(at_ms, event.arrival_ms)
            if self._fast_path.take(iter((fast_row(event),))):
                return  # it was not on the fast path only because a verdict was due first
        self._events.apply(self._here(event))

    def _here(self, event: Request) -> Request:
        """Return a line as the coordinator's clock would have dated it: all instants of groups are by that clock.

        The clock of another broker may have stepped away from it. A broker that takes over takes the groups to its own.
        """
        apart_ms = self._clock.apart_ms(event.broker)
        return moved(event, -apart_ms) if apart_ms else event

    def _proof(self, event: Answer) -> Proof:
        """Return what an answer proves about its broker.

        Only the coordinator writes. So a 15 behind a stalled write shows which broker that is, if none is known yet.
        """
        remote_ms = event.remote_ms if isinstance(event, Heartbeat | ConsumerHeartbeat) else parked_ms(event)
        proven = proof(event, remote_ms, self._groups.settings.thresholds.stalled_write_ms)
        stalled = event.error == Error.COORDINATOR_NOT_AVAILABLE and proven is Proof.NOTHING
        return Proof.COORDINATES if stalled and self._clock.coordinator is None else proven

    def _deposed(self, event: Answer, proven: Proof) -> None:
        """Count an answer of a deposed coordinator. Only a leave and a leader's SyncGroup are also applied.

        A KIP-848 leave is answered 0 only once its records are in the log
        (``CoordinatorRuntime.CoordinatorWriteEvent``), so its broker was still the coordinator, whatever its clock or
        the metadata says. If a leave was parked and answered 15, its records may be in the log.
        """
        self._groups.outputs.count("deposed")
        if isinstance(event, JoinAnswered) and not event.error and self._is_new(event):
            self._clock.former.announce(event.broker, event.group, event.generation, event.arrival_ms)
        if isinstance(event, LeaveAnswered) and not event.error:
            self._events.left_deposed(event)
        if isinstance(event, SyncAnswered) and event.from_leader and not event.error:
            self._events.synced_deposed(event)
        left = isinstance(event, ConsumerHeartbeat) and event.request_epoch < 0
        if left and (proven is Proof.NOTHING or event.error == 0):
            self._events.apply(event)

    def _was_elected_again(self, event: Answer) -> bool:
        """Tell whether an answer shows that a former coordinator writes records again.

        Three answers are given only once a record is in the log: the answer to a SyncGroup of a new generation, the
        answer to a KIP-848 heartbeat with a later member epoch, and the answer to the JoinGroup of a static member that
        replaces another one without a rebalance
        (``GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin``). The last one names the generation and
        the leader of the last record. A deposed coordinator may have a generation of the same number, but it names the
        leader of its own join phase.
        """
        former = self._clock.former
        if isinstance(event, SyncAnswered):
            return event.error == 0 and former.has_written(event.broker, event.group, event.generation)
        if isinstance(event, ConsumerHeartbeat):
            has_raised = event.error == 0 and event.epoch > event.request_epoch >= 0
            return has_raised and former.was_superseded_before(event.broker, event.arrival_ms)
        if not isinstance(event, JoinAnswered) or event.error or event.instance_id is None or event.request_member_id:
            return False
        in_log = (event.generation, event.leader) == self._last_record(event.group)
        return in_log and former.was_superseded_before(event.broker, event.arrival_ms)

    def _is_new(self, event: JoinAnswered) -> bool:
        """Tell whether a generation is later than that of the group's last record."""
        return event.generation > self._last_record(event.group)[0]

    def _last_record(self, group: str) -> tuple[int, str | None]:
        """Return the generation and the leader of a group's last record; (0, None): the group is not known."""
        if group not in self._groups.group_store:
            return 0, None
        replica = self._groups.group_store.replica(group)
        if replica.recorded_generation is None:
            return replica.generation, replica.leader
        return replica.recorded_generation, replica.recorded_leader

    def _disputed(self, event: Answer) -> None:
        """Apply an answer of a broker that metadata does not name. It is probably the next coordinator."""
        self._groups.outputs.count("disputed")
        if not isinstance(event, Heartbeat):
            self._events.apply(event)
        elif event.error in HEARD:
            self._events.disputed(event)

    def named(self, event: LeaderNamed) -> None:
        """Note which broker metadata names as the leader of the shard's partition. If it is new, it takes over."""
        leader = self._clock.named(event)
        if leader is not None:
            self._rebase_to_clock_of(leader)
            answered_ms, claimed = self._clock.last_answer_ms, self._claimed(leader, event.order_ms)
            self._clock.follow(leader, self._groups.settings.thresholds)
            at_ms = event.order_ms - self._clock.ahead_ms(event)
            self._events.taken_over(answered_ms, at_ms, claimed)
            self._brokers.named(at_ms)
            self._schedule.look_again(at_ms)

    def _claimed(self, broker: str, at_ms: int) -> tuple[str, int] | None:
        """Return a broker and since when it has answered although metadata named another; None: it has not."""
        claim = self._clock.claim_of(broker, at_ms)
        return None if claim is None else (broker, claim.first_ms)

    def stepped(self, step: Step) -> None:
        """Apply a step of a broker's clock. If the broker is the coordinator, move all instants of the shard with it.

        The time that passed during the step is known only to within a second or two. So the step is treated like lost
        lines: each session may have restarted within that time.
        """
        if step.broker == self._clock.coordinator:
            self._rebase(step.delta_ms, step.from_ms)
        self._clock.stepped(step.broker, step.to_ms)
        before_ms = min(step.to_ms, step.from_ms + step.delta_ms)
        self._clock.lost_lines(step.broker, step.to_ms, before_ms, why=CLOCK_STEPPED)
        self._brokers.stepped(step)

    def misdated(self, misdating: Misdating) -> None:
        """Begin anew without the lines of a broker that turned out to be misdated.

        If it is the coordinator, all instants of the shard are by the wrong clock, and are moved to that of the
        records. Removals that were reported before may have been dated rightly. They are not reported again.
        """
        if misdating.broker != self._clock.coordinator:
            return
        self._rebase(-misdating.apart_ms, misdating.line_ms)
        for group in self._groups.group_store.names():
            forget_reported(self._groups.replica(group))
            self._groups.group_store.touch(group)
        clock = self._clock
        self._groups.memory.clock = CoordinatorTracker(
            brokers=clock.brokers,
            leadership=clock.leadership,
            listeners=clock.listeners,
            blind=clock.blind,
            floor_ms=misdating.line_ms - misdating.apart_ms,
        )

    def _rebase_to_clock_of(self, broker: str) -> None:
        """Move all instants of the shard to the clock of a broker that takes over, if that clock differs."""
        apart_ms = self._clock.apart_ms(broker)
        if self._clock.coordinator_since_ms and apart_ms:
            self._rebase(apart_ms, self._clock.progress_ms)

    def _rebase(self, delta_ms: int, until_ms: int) -> None:
        """Move all instants of the shard along with the coordinator's clock."""
        self._judgement.encode()
        self._groups.rebase(delta_ms, until_ms)

"""The clocks of the brokers as their telemetry shows them, and which of them coordinates a shard.

Theory. A broker's *progress* is the instant of its newest line. If its lines are in several partitions, each partition
has a newest line, and progress is the earliest of these. The probe makes a line every half second. So a hole of 2.5 s
means that the broker paused or restarted, and a jump in the probe's numbers means that lines were lost. If no probe was
heard just before the hole or just after it, as while ``run`` is down, perhaps nobody asked the broker anything. Then it
may have paused, but it is not blamed for what happened.

The coordinator of a shard is the broker that last gave an answer about one of its groups that only the coordinator
gives (``coordinator_check``). A pause, a move or lost lines make a ``TimerReset``: the session timers restarted at an
instant that is known only within an interval. The first request that the coordinator accepts ends the interval. There
is one exception: a coordinator that is still loading answers classic heartbeats with 0, a *blind* 0, which does not end
it. A record that is written after the blind 0 ends it too. A refusal opens the interval again.

If a shard's coordinator has no request log, only the records show the time. Progress is then the instant of the newest
record, but at most ``RECORD_AHEAD_MS`` ahead of the monitor's own clock.
"""

from dataclasses import dataclass, field

from coordinator_model.brokers.accepted_heartbeats import AcceptedHeartbeats
from coordinator_model.brokers.blindness import COARSE_INSTANTS, LINES_LOST, BlindWindow, add_window
from coordinator_model.brokers.coordinator_check import Proof
from coordinator_model.brokers.former_coordinators import GOES_ON_MS, FormerCoordinators
from coordinator_model.brokers.leadership import Claim, Leadership
from coordinator_model.brokers.listeners import Listeners, is_address, on_one_host
from coordinator_model.brokers.one_clock import CROWDED_PROBES, GAP_MS, PROBE_DUE_MS, BrokerClock
from coordinator_model.brokers.stepped_clocks import SteppedClocks
from coordinator_model.brokers.timer_reset import LONGEST_SESSION_MS, TimerReset
from coordinator_model.events import LeaderNamed
from coordinator_model.states import Cause
from coordinator_model.thresholds import Thresholds

MAX_TIMER_RESETS = 16
"""Timer resets kept per shard. Session timeouts are bounded, so older resets no longer matter."""
MAX_BROKERS = 4_096
"""Brokers kept per shard. Their names come from record keys, which anybody who may write the topic can choose."""
MAX_LOAD_MS = 30_000
"""If the coordinator has answered heartbeats with 0 for this long and given no other answer, it counts as loaded. A
busy broker took 6 s to load 50 partitions."""
METADATA_DELAY_MS = 1_000
"""How long a broker's metadata may still name the old leader after the next one has loaded."""
RECORD_AHEAD_MS = 10_000
"""How far ahead of this machine's clock a record's instant counts. A record from the future must not move the time."""
REQUEST_LOG_OFF_MS = 60_000
"""A broker without a line for this long has its request log switched off: the probe makes a line every half second."""
CLOCKS_APART_MS = 1_000
"""A record may be the predecessor's until this long after its last answer: its clock may be ahead by as much."""
PROBES_IN_FLIGHT = 2
"""How many probe numbers may be missing because their requests were in flight when the broker died."""


@dataclass(slots=True)
class CoordinatorTracker(SteppedClocks):
    """The brokers of one shard's telemetry, its coordinator, and the resets of its session timers."""

    coordinator_since_ms: int = 0
    last_answer_ms: int = 0
    covered_since_ms: int = 0
    timer_resets: list[TimerReset] = field(default_factory=list)
    accepted: AcceptedHeartbeats = field(default_factory=AcceptedHeartbeats)
    floor_ms: int = 0
    """The progress under former coordinators. A move of the coordinator never sets progress back."""
    leadership: Leadership = field(default_factory=Leadership)
    blind: list[BlindWindow] = field(default_factory=list)
    """When lines are missing of the broker that was the coordinator then, oldest first."""
    noted: list[BlindWindow] = field(default_factory=list)
    """The windows that are new or longer since ``take_noted`` was last called."""
    listeners: Listeners = field(default_factory=Listeners)
    former: FormerCoordinators = field(default_factory=FormerCoordinators)
    record_ms: int = 0
    """The newest record of the shard that was applied while only records told the time."""

    @property
    def by_records(self) -> bool:
        """Whether the shard is known from its records only: no broker was heard, or its leader ships no request log."""
        return not self.brokers or (self.coordinator is None and self.leadership.unlogged)

    @property
    def progress_ms(self) -> int:
        """The coordinator's newest applied line, or its newest record if it ships no lines; 0: none is known."""
        return max(self.line_ms, self.record_ms) if self.by_records else self.line_ms

    @property
    def line_ms(self) -> int:
        """The coordinator's newest applied line; 0 until a coordinator is known."""
        clock = self.brokers.get(self.coordinator or "")
        return max(clock.line_ms, self.floor_ms) if clock else self.floor_ms

    def recorded(self, record_ms: int, present_ms: int) -> None:
        """Move the time of a shard that is known from its records only. A future record moves it only a little."""
        self.record_ms = max(self.record_ms, min(record_ms, present_ms + RECORD_AHEAD_MS))

    @property
    def waiting(self) -> bool:
        """Whether a timer reset is still open: no answer since then proves that the coordinator has loaded."""
        reset = self._newest_reset
        return reset is not None and reset.high_ms is None

    @property
    def hole_is_open(self) -> bool:
        """Whether the coordinator's lines came back after a hole, and no probe has shown yet what the hole was.

        The next probe on a connection from before the hole shows whether the broker paused, or answered requests whose
        lines are missing. One on a new connection does not: the probe may reconnect while the broker is paused. Nothing
        is judged until then, unless the probe had stopped before the hole.
        """
        clock = self.brokers.get(self.coordinator or "")
        if clock is None or not clock.silent_to_ms or clock.line_ms - clock.silent_to_ms > PROBE_DUE_MS:
            return False
        known_ms = [at_ms for name, at_ms in clock.probed_ms.items() if clock.is_older_than_the_hole(name)]
        return clock.silent_from_ms - PROBE_DUE_MS <= max(known_ms, default=0) < clock.silent_to_ms

    @property
    def last_gap_ms(self) -> tuple[int, int]:
        """The last gap in the coordinator's lines: its last line before it, its first one after it; 0 twice: none."""
        clock = self.brokers.get(self.coordinator or "")
        return (clock.gap_from_ms, clock.gap_to_ms) if clock else (0, 0)

    @property
    def off_by_ms(self) -> int:
        """How far the dates of the coordinator's lines may be from the truth, see ``BrokerClock.off_by_ms``."""
        clock = self.brokers.get(self.coordinator or "")
        return clock.off_by_ms if clock else 0

    @property
    def _newest_reset(self) -> TimerReset | None:
        return self.timer_resets[-1] if self.timer_resets else None

    def watermark_ms(self, hold_ms: int) -> int:
        """Return the instant, by the coordinator's clock, up to which every live broker has been read.

        Newer events wait.
        """
        own = {name: clock for name, clock in self.brokers.items() if name not in self.listeners.names}
        newest = [clock.progress_ms(hold_ms) - self.apart_ms(name) for name, clock in own.items()]
        floor_ms = max(newest, default=0) - hold_ms
        return min((at_ms for at_ms in newest if at_ms >= floor_ms), default=0)

    def is_logged(self, broker: str, at_ms: int) -> bool:
        """Tell whether a broker's request log covers an instant. If so, the coordinator's own log decides nothing.

        ``broker`` "": the line does not name its broker, so it may come from any of them.
        """
        known = [self.brokers[broker]] if broker in self.brokers else [] if broker else self.brokers.values()
        return any(clock.line_ms >= at_ms - REQUEST_LOG_OFF_MS for clock in known)

    @property
    def claims(self) -> list[Claim]:
        """The brokers' answers that contradict metadata, by the coordinator's clock."""
        stepped_ms = self.stepped_ms(self.coordinator or "")
        return [claim.moved(stepped_ms) for claim in self.leadership.claims.values()]

    def restart_reading(self, broker: str, stepped_ms: int) -> None:
        """Note that a broker's clock has stepped, before anything is applied."""
        self._clock(broker).step(stepped_ms)

    def stepped(self, broker: str, to_ms: int) -> None:
        """Move a broker's clock to where it stepped. The jump is neither a hole nor a pause."""
        clock = self._clock(broker)
        clock.line_ms, clock.refused_ms, clock.quiet_since_ms = to_ms, None, 0
        clock.probed_ms.clear()
        clock.silent_from_ms = clock.silent_to_ms = clock.gap_from_ms = clock.gap_to_ms = 0
        if broker == self.coordinator:
            self.floor_ms = 0

    def read(self, broker: str, source: str, line_ms: int, wall_ms: int | None = None) -> None:
        """Note that a line has been read, before anything is applied. The watermark is computed from this.

        ``wall_ms``: this machine's clock.
        """
        clock = self._clock(broker)
        if line_ms > clock.read_ms.get(source, 0):
            clock.read_ms[source] = line_ms
            if wall_ms is not None:
                clock.note_behind(wall_ms)

    def _clock(self, broker: str) -> BrokerClock:
        clock = self.brokers.get(broker)
        if clock is None:
            if len(self.brokers) >= MAX_BROKERS:
                del self.brokers[min(self.brokers, key=lambda name: self.brokers[name].line_ms)]
            clock = self.brokers[broker] = BrokerClock()
        return clock

    def advance(self, broker: str, line_ms: int, thresholds: Thresholds) -> int:
        """Move a broker's clock to one of its lines and return its previous time.

        A hole in the coordinator's lines opens a timer reset.
        """
        clock = self._clock(broker)
        clock.heard_since_ms = clock.heard_since_ms if clock.line_ms else line_ms
        before_ms, clock.line_ms = clock.line_ms, max(clock.line_ms, line_ms)
        if before_ms and line_ms - before_ms > GAP_MS and clock.was_probed_before(before_ms):
            clock.gap_from_ms, clock.gap_to_ms = before_ms, line_ms
        if not clock.was_probed_after_the_hole:
            self._blame_no_pause_of(broker, clock)
        if before_ms and line_ms - before_ms > thresholds.progress_gap_ms and line_ms > clock.lost_to_ms:
            clock.silent_from_ms, clock.silent_to_ms = before_ms, line_ms
            if broker == self.coordinator:
                probed = clock.was_probed_before(before_ms)
                self._open(TimerReset(before_ms, None, Cause.COORDINATOR_PAUSE, broker, sure=probed))
        return before_ms

    def _blame_no_pause_of(self, broker: str, clock: BrokerClock) -> None:
        """Take back that a broker is to blame for its last hole: it was the probe that had stopped."""
        for reset in self.timer_resets:
            over = reset.high_ms is not None and reset.high_ms < clock.silent_to_ms
            if reset.broker == broker and reset.low_ms <= clock.silent_from_ms and not (over or reset.is_move):
                reset.sure = False

    def is_deposed(self, broker: str, line_ms: int, thresholds: Thresholds) -> bool:
        """Tell whether a broker answers as the coordinator although another broker has taken over.

        A deposed coordinator answers until it learns that it is deposed. A broker that just woke from a pause may also
        be deposed. If the new coordinator is silent, the broker may be the coordinator again.
        """
        clock = self.brokers.get(broker)
        if clock is None or broker == self.coordinator or self.coordinator is None:
            return False
        apart_ms = self.apart_ms(broker)
        missed = clock.silent_from_ms <= self.coordinator_since_ms + apart_ms <= clock.silent_to_ms
        just_woke = missed and line_ms - clock.silent_to_ms <= thresholds.hold_ms
        here_ms = line_ms - apart_ms
        if is_address(broker):
            return just_woke  # perhaps another listener of the coordinator
        if just_woke:
            self.former.supersede(broker, here_ms)
        here = self.brokers.get(self.coordinator)
        silent = here is not None and here_ms - here.line_ms > thresholds.progress_gap_ms
        if silent or not self.former.note_answer(broker, here_ms):
            return False
        for move in self.timer_resets[-1:]:
            move.went_on = move.went_on or move.is_move
        return True

    def probed(
        self,
        broker: str,
        probe: int | None,
        line_ms: int,
        before_ms: int,
        thresholds: Thresholds,
        connection: str = "",
    ) -> None:
        """Compare a probe's number with the one before. A jump means lost lines, so coverage starts again here."""
        if probe is None:
            return
        clock = self._clock(broker)
        if line_ms < clock.probed_ms.get(connection, 0):
            return  # a line that was sent again
        before = clock.connection_before(connection, probe)
        last, heard_ms = clock.probes.get(before), clock.probed_ms.get(before, before_ms)
        clock.probes[connection], clock.probed_ms[connection] = probe, line_ms
        since_ms = clock.note_connection(connection, line_ms)
        follows = before == connection and last is not None and probe == last + 1
        self._note_bunch(broker, connection, line_ms, heard_ms, follows=follows)
        allowed = PROBES_IN_FLIGHT if clock.silent_to_ms > heard_ms or before != connection else 0
        if last is not None and probe - last - 1 > allowed:
            self._answered_unseen(broker, heard_ms)
            if broker != self.coordinator:  # it did not pause, so it may have been elected while its lines were lost
                clock.silent_from_ms = clock.silent_to_ms = 0
                self.former.reinstate(broker)
            recent = clock.lost_to_ms and line_ms - clock.lost_to_ms <= thresholds.progress_gap_ms
            if broker == self.coordinator and not recent:  # otherwise the loss is already noted
                self.lost_lines(broker, line_ms, before_ms, min(heard_ms, before_ms))
        else:
            self._note_survival(broker, since_ms)

    def forget_probes(self) -> None:
        """Forget the last probe numbers: some lines were skipped, and their numbers would look lost."""
        for clock in self.brokers.values():
            clock.probes.clear()

    def _note_bunch(self, broker: str, connection: str, line_ms: int, heard_ms: int, *, follows: bool) -> None:
        """Note how many probe numbers in a row share one instant. Too many make a blind window up to the next one."""
        clock = self._clock(broker)
        count, step_ms = clock.note_bunch(connection, line_ms, heard_ms, follows=follows)
        if count >= CROWDED_PROBES and broker == self.coordinator:
            from_ms = clock.probed_since_ms[connection] - step_ms
            self.noted.append(add_window(self.blind, BlindWindow(broker, from_ms, line_ms + step_ms, COARSE_INSTANTS)))

    def _answered_unseen(self, broker: str, heard_ms: int) -> None:
        """Withdraw a pause since ``heard_ms``: the broker answered probes during that time, so it did not pause."""
        for reset in self.timer_resets:
            paused = reset.cause is Cause.COORDINATOR_PAUSE and reset.broker == broker
            if paused and reset.low_ms >= heard_ms:
                reset.cause, reset.woke_ms = Cause.UNKNOWN, None

    def _note_survival(self, broker: str, connected_ms: int) -> None:
        """Note that a probe was answered on a connection from before a hole: the broker paused and did not restart."""
        clock = self._clock(broker)
        for reset in self.timer_resets:
            paused = reset.cause is Cause.COORDINATOR_PAUSE and reset.broker == broker
            if paused and connected_ms <= reset.low_ms == clock.silent_from_ms:
                reset.woke_ms = clock.silent_to_ms

    def lost_lines(
        self, broker: str, line_ms: int, before_ms: int, blind_from_ms: int | None = None, why: str = LINES_LOST
    ) -> None:
        """Note that lines between ``before_ms`` and ``line_ms`` are missing. Coverage starts again here.

        ``blind_from_ms``: since when lines may be missing, if that is before ``before_ms``.
        """
        self._clock(broker).lost_to_ms = line_ms
        if broker == self.coordinator:
            self.covered_since_ms = line_ms
            self._open(TimerReset(before_ms, None, Cause.UNKNOWN, broker))
            from_ms = before_ms if blind_from_ms is None else blind_from_ms
            window = BlindWindow(broker, min(from_ms, line_ms), max(from_ms, line_ms), why)
            self.noted.append(add_window(self.blind, window))

    def take_noted(self) -> list[BlindWindow]:
        """Return the blind windows that are new or longer since the last call."""
        noted, self.noted = self.noted, []
        return noted

    def answered(self, broker: str, proof: Proof, line_ms: int, thresholds: Thresholds) -> bool:
        """Apply what an answer about the shard proves. Return whether the coordinator or the timer resets changed."""
        self._clock(broker).answered_ms = line_ms
        if proof is Proof.NOTHING:
            return False
        if proof is Proof.REFUSES:
            self._clock(broker).refused_ms = line_ms
            self.listeners.refused(broker)
            self.former.reinstate(broker)
            if broker != self.coordinator:
                self.leadership.claims.pop(broker, None)
                return False
            since_ms = self.coordinator_since_ms
            self._open(TimerReset(line_ms, None, Cause.COORDINATOR_MOVED, "", since_ms=since_ms, word_ms=line_ms))
            return True
        before, changed = self.coordinator, broker != self.coordinator
        if changed:
            self._move(broker, line_ms, thresholds)
            self._take_claim(broker, line_ms)
        least_ms = max(thresholds.hold_ms, GOES_ON_MS)
        if changed and before and self.listeners.take_turn(before, broker, line_ms, least_ms):
            name, other = sorted((before, broker), key=lambda known: (not self._clock(known).probed_since_ms, known))
            self._join_listeners(name, other, self.listeners.first_ms)
            self.last_answer_ms = max(self.last_answer_ms, self.listeners.last_ms)
            return True
        self.last_answer_ms = max(self.last_answer_ms, line_ms)
        reset = self._newest_reset
        loading = reset if reset is not None and reset.high_ms is None and reset.may_load else None
        if loading is not None and proof is Proof.LEADS and not self._surely_loaded(loading, line_ms):
            return changed
        return self._close(line_ms) or changed

    def has_resigned(self) -> bool:
        """Tell whether the coordinator has refused a request since it last answered as the coordinator."""
        clock = self.brokers.get(self.coordinator or "")
        return clock is not None and (clock.refused_ms or 0) > self.last_answer_ms

    def join_listener(self, address: str, at_ms: int) -> None:
        """Merge an address with the coordinator's if both are listeners of one broker: one host, and one is probed.

        The other one's probe would have been heard by now if it were a broker of its own.
        """
        here = self.coordinator
        known = address in self.listeners.names or self.listeners.is_full
        if known or here is None or not on_one_host(address, here):
            return
        for name, other in ((here, address), (address, here)):
            first, second = self._clock(name), self._clock(other)
            is_due = first.has_been_probed(PROBE_DUE_MS, at_ms) and second.has_been_heard(PROBE_DUE_MS, at_ms)
            if is_due and not second.probed_since_ms:
                self._join_listeners(name, other, 0)

    def note_node(self, address: str, asked: str, at_ms: int) -> None:
        """Note which node the probe asked at an address. Two addresses of two nodes are one broker no more.

        The probe may reach the second broker on a host late, when its address is already taken for a listener.
        """
        node, name = asked.rpartition("-")[2], self.listeners.name(address)
        if name != address and self._clock(name).node not in ("", node):
            del self.listeners.names[address]
            self._clock(address).line_ms = at_ms  # until now its lines counted as the other broker's: this is no hole
        if self.listeners.name(address) == address:
            self._clock(address).node = node

    def _join_listeners(self, name: str, other: str, since_ms: int) -> None:
        """Merge two addresses into one broker of this name, and drop the moves between them since an instant."""
        self.listeners.join(name, other)
        self._clock(name).line_ms = max(self._clock(name).line_ms, self._clock(other).line_ms)
        self.coordinator = name
        for reset in self.timer_resets:
            reset.broker, reset.former = self.listeners.name(reset.broker), self.listeners.name(reset.former)
        between = [r for r in self.timer_resets if r.is_move and r.broker == r.former == name]
        never = [r for r in between if r.may_come_after(since_ms)]
        self.timer_resets = [r for r in self.timer_resets if r not in never]

    def _move(self, broker: str, at_ms: int, thresholds: Thresholds) -> None:
        """Make a broker the coordinator from an instant on. Session timers restart, unless it is the first one."""
        if not self.last_answer_ms:
            self.covered_since_ms = at_ms
        else:
            word_ms, refused_ms = self._last_word_ms(at_ms, thresholds), self._clock(broker).refused_ms or 0
            low_ms = max(word_ms, refused_ms)
            named_before_ms = self.leadership.replaced_ms - METADATA_DELAY_MS
            if broker == self.leadership.leader and not self.leadership.was_claimed(broker, named_before_ms):
                low_ms = min(max(low_ms, named_before_ms + self.stepped_ms(broker)), at_ms)
            since_ms, before = max(self.coordinator_since_ms, refused_ms), self.brokers.get(self.coordinator or "")
            word_ms = max(word_ms, before.answered_ms + self.apart_ms(broker) if before is not None else 0)
            move = TimerReset(low_ms, None, Cause.COORDINATOR_MOVED, broker, since_ms=since_ms, word_ms=word_ms)
            move.sure, move.former = self._is_another_broker(broker), self.coordinator or ""
            self._open(move)
        if self.coordinator and not self.has_resigned():  # a broker that has refused knows that it does not lead
            self.former.supersede(self.coordinator, at_ms)
        self.former.reinstate(broker)
        self._keep_progress(broker)
        self.coordinator, self.coordinator_since_ms = broker, at_ms

    def _is_another_broker(self, broker: str) -> bool:
        """Tell whether a broker surely is another one than the coordinator, not another listener of it.

        It is if a key names it, if the coordinator has refused a request, or if both are probed.
        """
        names = (self.coordinator or "", broker)
        known = not all(map(is_address, names)) or self.has_resigned()
        return known or all(self._clock(name).probed_since_ms for name in names)

    def _keep_progress(self, broker: str) -> None:
        """Keep the progress by the clock of the next coordinator: a record may be newer than its first line.

        ``floor_ms`` is by that clock already, like all instants of the shard.
        """
        here = self.brokers.get(self.coordinator or "")
        self.floor_ms = max(self.floor_ms, here.line_ms + self.apart_ms(broker) if here is not None else 0)

    def disputed(self, broker: str, proof: Proof, line_ms: int) -> bool:
        """Tell whether metadata contradicts an answer, if it is one that only a coordinator gives."""
        if proof not in (Proof.LEADS, Proof.COORDINATES):
            return False
        answered_ms = self.last_answer_ms if self.coordinator == self.leadership.leader else 0
        answered_ms -= self.stepped_ms(self.coordinator or "")
        return self.leadership.disputes(broker, proof, line_ms - self.stepped_ms(broker), answered_ms)

    def resign(self, broker: str, line_ms: int) -> None:
        """Note that the coordinator has answered NOT_COORDINATOR (16)."""
        had_led = self.last_answer_ms >= self.coordinator_since_ms
        self.leadership.resign(broker, line_ms - self.stepped_ms(broker), had_led=had_led)

    def claim_of(self, broker: str, at_ms: int) -> Claim | None:
        """Return a broker's answers that contradict metadata, by its own clock; None: there are none around then."""
        stepped_ms = self.stepped_ms(broker)
        claim = self.leadership.claim_of(broker, at_ms - stepped_ms)
        return None if claim is None else claim.moved(stepped_ms)

    def named(self, event: LeaderNamed) -> str | None:
        """Apply what metadata says about the shard's leader. Return the broker to follow; None: nothing changes.

        "" means that the leader has no request log, so the coordinator's lines will not be seen.
        """
        leadership, before = self.leadership, self.coordinator
        another = leadership.name(event)
        if another is None:
            return None
        deposed = another or before is None or before in leadership.others
        if deposed and leadership.leader not in ("", before):
            return leadership.leader
        return "" if before in leadership.others and leadership.unlogged else None

    def follow(self, leader: str, thresholds: Thresholds) -> None:
        """Make the broker that metadata names the coordinator from now on."""
        if leader:
            at_ms = self.leadership.named_ms + self.stepped_ms(leader)
            self._move(leader, at_ms, thresholds)
            self._take_claim(leader, at_ms)
        else:
            self._keep_progress("")
            self.coordinator = None

    def _take_claim(self, broker: str, at_ms: int) -> None:
        """Apply what the new coordinator answered before it was known."""
        stepped_ms, reset = self.stepped_ms(broker), self._newest_reset
        claim = self.leadership.take_claim(broker, at_ms - stepped_ms)
        if claim is None:
            return
        claim = claim.moved(stepped_ms)
        self.last_answer_ms = max(self.last_answer_ms, claim.last_ms)
        if reset is not None and reset.high_ms is None:
            reset.blind_ms = claim.blind_ms
            if claim.sure_ms is not None:
                self._close(claim.sure_ms)

    def _surely_loaded(self, reset: TimerReset, line_ms: int) -> bool:
        """Tell whether blind 0 answers have gone on for longer than a load takes."""
        if reset.blind_ms is None:
            reset.blind_ms = line_ms
        return line_ms >= reset.blind_ms + MAX_LOAD_MS

    def wrote(self, record_ms: int) -> bool:
        """Apply a record of the shard: a coordinator that writes has loaded. Return whether that closed a timer reset.

        The record may be the predecessor's instead: before the new coordinator was heard, while the predecessor still
        answers, and for a short time after that, because its clock may be ahead of the new coordinator's.
        """
        reset = self._newest_reset
        if reset is None or reset.blind_ms is None:
            return False
        if self.former.answered_ms and (reset.went_on or record_ms <= reset.word_ms + CLOCKS_APART_MS):
            return False
        return record_ms > reset.blind_ms and self._close(record_ms)

    def _close(self, at_ms: int) -> bool:
        """Close the open timer reset, if there is one."""
        reset = self._newest_reset
        if reset is None or reset.high_ms is not None:
            return False
        reset.high_ms = max(at_ms, reset.low_ms)
        if not reset.broker:  # the broker that refused coordinates again: it has loaded the groups since
            reset.broker, reset.since_ms = self.coordinator or "", None
        reset.went_on = reset.went_on or reset.word_ms > reset.high_ms
        return True

    def _last_word_ms(self, line_ms: int, thresholds: Thresholds) -> int:
        """Return when the coordinator last answered while it surely was the coordinator.

        Answers shortly after a pause do not count: a broker that wakes up answers until it learns that another broker
        has taken over.
        """
        for last in reversed(self.timer_resets):
            if last.cause is Cause.COORDINATOR_PAUSE and last.broker == self.coordinator:
                woke_ms = line_ms if last.high_ms is None else last.high_ms
                return last.low_ms if line_ms - woke_ms <= thresholds.hold_ms else self.last_answer_ms
        return self.last_answer_ms

    def loaded(self, broker: str, at_ms: int) -> None:
        """Apply the coordinator's own log line that it has loaded the shard's groups."""
        self.timer_resets = self.timer_resets[-(MAX_TIMER_RESETS - 1) :]
        self.timer_resets.append(TimerReset(at_ms, at_ms, Cause.COORDINATOR_MOVED, broker))

    def _open(self, new: TimerReset) -> None:
        """Add a timer reset. An open one is the same, unless it is a survived pause or a move to another broker."""
        last = self._newest_reset
        if last is not None and last.woke_ms is not None and new.cause is Cause.COORDINATOR_PAUSE:
            self._close(last.woke_ms)
        if self.waiting:
            was = self.timer_resets.pop()
            new.word_ms = max(new.word_ms, was.word_ms)
            if new.cause is Cause.UNKNOWN or (new.cause is Cause.COORDINATOR_PAUSE and was.cause is not Cause.UNKNOWN):
                was.sure = was.sure or (new.cause is Cause.COORDINATOR_PAUSE and new.sure and not was.is_move)
                new = was
            elif was.is_move and new.broker and not new.sure:
                was.broker, new = new.broker, was  # perhaps another listener of the broker that loads the groups
            elif was.is_move and new.broker:
                new.former = was.former
                if was.broker not in ("", new.broker):  # it may have loaded the groups and removed members meanwhile
                    was.high_ms = new.low_ms
                    self.timer_resets.append(was)
            elif was.cause is Cause.UNKNOWN:
                new.low_ms = was.low_ms
            elif was.cause is Cause.COORDINATOR_PAUSE and new.broker in ("", was.broker):
                new.cause, new.broker = was.cause, was.broker  # restarted, or lost its partitions and got them back
                new.low_ms = was.low_ms  # sessions may have ended after it woke up and before it refused
        horizon_ms = new.low_ms - LONGEST_SESSION_MS
        recent = [r for r in self.timer_resets if (r.high_ms or r.low_ms) >= horizon_ms]
        self.timer_resets = [*recent[-(MAX_TIMER_RESETS - 1) :], new]

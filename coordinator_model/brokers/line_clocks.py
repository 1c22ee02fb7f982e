"""Misdated lines, and brokers whose clocks step.

Theory. A partition has a broker's lines in the order in which they were written, so their instants rise. If a line is
far ahead of the line before it, there are three possible reasons: a hole (the broker paused, or lines were lost), a
clock that stepped, or a wrong date. *Far* is more than sources may be apart (``hold_ms``), or a minute if there is no
other clock to compare with. Other clocks are those of the peers, which write to the same partition, and in a live run
this machine's clock.

If another clock has advanced as far, the line is believed at once. Otherwise the line is in *doubt* and waits:

- The broker's next line is back at the earlier time: the line in doubt was misdated.
- The broker's next line follows the line in doubt and is believed: the line in doubt is believed too.
- More lines follow the line in doubt. If no other clock contradicts them, lines that span a second are proof, and there
  was a hole. Otherwise three numbered probes in a row are proof, and the clock stepped.

Lines far behind are doubted in the same way. If they are disproved, they were only late; if they are proven, the clock
stepped back. A replay of a single broker has no other clock: it takes a step ahead for a hole, but recognizes a step
back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from coordinator_model.brokers.coordinator_check import Proof, proof
from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.brokers.ticks import Source
from coordinator_model.events import (
    Answer,
    BrokerLine,
    ClientSign,
    CommitRefused,
    ConsumerHeartbeat,
    LeaveAnswered,
    Tick,
)
from coordinator_model.heartbeat_block import HeartbeatBlock

LONE_MS = 60_000
"""How far ahead is *far* if there is no other clock: the broker may have paused for as long."""
SPAN_MS = 1_000
"""Lines in doubt have to span this time to be proof."""
PROBES_IN_A_ROW = 3
LINES_IN_A_ROW = 20
LINES_SPAN_MS = 5_000
"""Without a probe, ``LINES_IN_A_ROW`` lines over this time are proof. A peer's clock must keep pace for as long."""
ROUGH_MS = 2_500
"""How rough the time by other clocks is, because lines come in batches. If the jump of a broker's own lines agrees with
it, that is the step: the broker did not stand still, so next to no time passed in the jump."""
DISORDER_MS = 20
"""The threads of a broker write lines in the order of their dates, but for some milliseconds."""
LATE_MS = 1_000
"""A line that is this far behind the newest one is late, or was sent again. That says nothing about its date."""
MAX_DOUBTED = 10_000
"""Lines in doubt kept per shard. If there are more, the lines in doubt of the current broker are disproved."""


class Step(NamedTuple):
    """A broker's clock stepped by ``delta_ms``, not counting the time that passed in between.

    ``total_ms``: the sum of all its steps. ``lasting``: another clock confirms it.
    """

    broker: str
    from_ms: int
    to_ms: int
    delta_ms: int
    total_ms: int
    lasting: bool


@dataclass(slots=True)
class Doubt:
    """Successive lines of a broker whose instants are far from those of its lines before."""

    ahead: bool
    first_ms: int
    last_ms: int
    lines: list[BrokerLine] = field(default_factory=list)
    probe: tuple[str, int] | None = None
    """Connection and number of the last probe among these lines."""
    in_a_row: int = 0
    peers: tuple[str, ...] = ()
    """Brokers that write to the same partition, and whose lines were as new as this one's before the doubt."""
    peer_ms: int | None = None
    """The newest line of the peers since then, corrected for known steps: the time by their clocks."""
    heard: tuple[int, int, int] | None = None
    """``peer_ms`` and ``last_ms`` when a peer was first heard, and ``last_ms`` when a peer was last heard."""

    def add(self, line: BrokerLine, at_ms: int, known: dict[str, int]) -> None:
        """Add a line. ``known``: the broker's last probe numbers before the doubt."""
        self.lines.append(line)
        self.last_ms = at_ms
        if isinstance(line, Tick) and line.probe is not None:
            follows = self.probe == (line.connection, line.probe - 1)
            again = not self.ahead and line.probe <= known.get(line.connection, -1)  # a line that was sent again
            self.in_a_row = 0 if again else self.in_a_row + 1 if follows else 1
            self.probe = (line.connection, line.probe)

    def hear_peer(self, at_ms: int) -> None:
        """Note a line of a peer. ``at_ms`` is corrected for known steps."""
        self.peer_ms = max(at_ms, self.peer_ms or at_ms)
        first = self.heard or (self.peer_ms, self.last_ms, self.last_ms)
        self.heard = (*first[:2], self.last_ms)

    def is_kept_pace_with(self, hold_ms: int) -> bool:
        """Tell whether the peers' clocks run as fast as this one does, or have reached it.

        If the leader of the partition paused, lines come all at once or have not come yet, so the dates of those read
        do not show the time.
        """
        if self.peer_ms is None or self.heard is None or abs(self.last_ms - self.peer_ms) <= hold_ms:
            return True
        peer_from_ms, own_from_ms, own_to_ms = self.heard
        peers_ms, own_ms = self.peer_ms - peer_from_ms, own_to_ms - own_from_ms
        return peers_ms >= LINES_SPAN_MS and abs(own_ms - peers_ms) <= SPAN_MS and self.last_ms - own_to_ms <= SPAN_MS

    def proven(self, *, probed: bool, alone: bool) -> bool:
        """Tell whether the lines in doubt are enough to be believed.

        ``probed``: the broker answers probes. ``alone``: there is no other clock that could contradict the lines.
        """
        span_ms = abs(self.last_ms - self.first_ms)
        if self.ahead and alone:
            return span_ms >= SPAN_MS
        if probed or self.probe is not None:
            return self.in_a_row >= PROBES_IN_A_ROW and span_ms >= SPAN_MS
        return len(self.lines) >= LINES_IN_A_ROW and span_ms >= LINES_SPAN_MS


@dataclass(slots=True)
class Sifted:
    """The believed lines, in parts: each step of the coordinator's clock begins a new part."""

    lines: list[list[BrokerLine]] = field(default_factory=lambda: [[]])
    blocks: list[list[HeartbeatBlock]] = field(default_factory=lambda: [[]])
    parted_by: list[Step] = field(default_factory=list)
    """The steps of the coordinator's clock: one between each part and the next."""
    steps: list[Step] = field(default_factory=list)
    misdated: list[BrokerLine] = field(default_factory=list)
    waiting: list[BrokerLine] = field(default_factory=list)
    """Lines that are in doubt."""
    newest: dict[Source, int] = field(default_factory=dict)
    """The newest believed line, by source. If a broker's clock stepped, only its lines since then count."""
    disorder: dict[str, dict[int, int]] = field(default_factory=dict)
    """By broker: how far a line was behind the newest one of its source at most, by second of that one."""


Place = tuple[str, int, int]
"""Topic, partition, offset."""
Item = tuple[Place, BrokerLine | HeartbeatBlock]
"""A line or block with its place. A block is at the place of its first line."""


def sift(
    clock: CoordinatorTracker,
    doubts: dict[str, Doubt],
    items: Sequence[Item],
    present_ms: int | None,
    hold_ms: int,
    *,
    final: bool,
) -> Sifted:
    """Separate the lines that can be believed from the others. Lines that stay in doubt wait in ``doubts``.

    ``items`` may be in any order. ``present_ms``: this machine's clock, converted to the brokers' time; None: do not
    use it. ``final``: this is the last batch, so no line may wait. Blocks of heartbeats are unpacked only if there is
    doubt about another line, or about the first or last line of a block.
    """
    blocks = [item for _, item in items if isinstance(item, HeartbeatBlock)]
    if blocks:
        clocks = LineClocks(clock, doubts, present_ms, hold_ms)
        clocks.scan([(place, item) for place, item in items if not isinstance(item, HeartbeatBlock)], final=final)
        if clocks.is_calm() and all(map(clocks.believe_block, blocks)):
            return clocks.end(doubts)
    clocks = LineClocks(clock, doubts, present_ms, hold_ms)
    clocks.scan([entry for item in items for entry in _rows(item)], final=final)
    return clocks.end(doubts)


def _rows(item: Item) -> Iterable[tuple[Place, BrokerLine]]:
    place, what = item
    if isinstance(what, HeartbeatBlock):
        return [((*place[:2], row.offset), row) for row in what.rows()]
    return [(place, what)]


class LineClocks:
    """Scans the lines of one batch."""

    def __init__(
        self, clock: CoordinatorTracker, doubts: dict[str, Doubt], present_ms: int | None, hold_ms: int
    ) -> None:
        self._clock, self._present_ms, self._hold_ms = clock, present_ms, hold_ms
        self._doubts = {broker: replace(doubt, lines=list(doubt.lines)) for broker, doubt in doubts.items()}
        self._own = {name: max(known.read_ms.values()) for name, known in clock.brokers.items() if known.read_ms}
        self._before = dict(self._own)
        self._stepped = {name: known.stepped_ms for name, known in clock.brokers.items() if known.stepped_ms}
        self._probes = {name: dict(known.probes) for name, known in clock.brokers.items() if known.probes}
        self._coordinator = clock.coordinator
        self._place: tuple[str, int] | None = None
        self._here: dict[str, int] = {}
        self._sifted = Sifted()

    def scan(self, lines: Iterable[tuple[Place, BrokerLine]], *, final: bool) -> None:
        """Scan lines by partition, in the order of their offsets."""
        ordered = sorted(lines, key=lambda item: item[0])
        for index, ((topic, partition, _), line) in enumerate(ordered):
            self._enter((topic, partition))
            self._line(line, ordered[index + 1][1] if index + 1 < len(ordered) else None)
        for broker, doubt in list(self._doubts.items()) if final else ():
            if doubt.ahead and self._reference_ms(doubt) is None:
                self._prove(broker, self._doubts.pop(broker))  # no other clock contradicts it
            else:
                self._disprove(broker)

    def is_calm(self) -> bool:
        """Tell whether no line is in doubt or misdated, and no clock stepped."""
        sifted = self._sifted
        return not (self._doubts or sifted.steps or sifted.misdated)

    def believe_block(self, block: HeartbeatBlock) -> bool:
        """Believe a block if neither its first nor its last line is doubtful; otherwise return False."""
        first, last = block.row(0), block.row(block.length - 1)
        earliest_ms = self._before.get(first.broker, first.order_ms) - self._hold_ms
        self._enter(first[2:4])
        if first.order_ms < earliest_ms or last.order_ms > self._bound_ms(first.broker, last.order_ms):
            return False
        self._believe(first.broker, last.order_ms, first[2:4])
        self._sifted.blocks[-1].append(block)
        return True

    def end(self, doubts: dict[str, Doubt]) -> Sifted:
        """Return the result, and replace ``doubts`` by the doubts that are left."""
        doubts.clear()
        doubts.update(self._doubts)
        self._sifted.waiting = [line for doubt in doubts.values() for line in doubt.lines]
        return self._sifted

    def _enter(self, place: tuple[str, int]) -> None:
        """Enter a partition: load the newest line of each broker in it."""
        if place != self._place:
            source, clocks = f"{place[0]}/{place[1]}", self._clock.brokers.items()
            self._here = {name: known.read_ms[source] for name, known in clocks if source in known.read_ms}
            self._place = place

    def _line(self, line: BrokerLine, after: BrokerLine | None) -> None:
        broker, at_ms = line.broker, written_ms(line)
        own_ms = self._own.get(broker)
        if own_ms is not None and at_ms < own_ms - self._hold_ms:
            self._doubt(line, at_ms, ahead=False)
        elif self._stands_out(line, at_ms, after):
            self._sifted.misdated.append(line)
        elif at_ms > self._bound_ms(broker, at_ms):
            self._doubt(line, at_ms, ahead=True)
        else:
            self._note_disorder(broker, at_ms)
            self._believe(broker, at_ms, line[2:4])
            self._sifted.lines[-1].append(line)
            self._note(line)

    def _note_disorder(self, broker: str, at_ms: int) -> None:
        newest_ms = self._here.get(broker, at_ms)
        if DISORDER_MS <= newest_ms - at_ms < LATE_MS:
            seconds, second_ms = self._sifted.disorder.setdefault(broker, {}), newest_ms - newest_ms % 1_000
            seconds[second_ms] = max(newest_ms - at_ms, seconds.get(second_ms, 0))

    def _note(self, line: BrokerLine) -> None:
        """Note a probe's number, and the likely coordinator, because the lines have not been applied yet."""
        if isinstance(line, Tick):
            if line.probe is not None:
                self._probes.setdefault(line.broker, {})[line.connection] = line.probe
        elif line.broker != self._coordinator and _coordinates(line):  # the first test nearly always saves the second
            self._coordinator = line.broker

    def _bound_ms(self, broker: str, at_ms: int) -> int:
        """Return the latest instant at which a line of a broker is believed at once."""
        own_ms = self._own.get(broker)
        if own_ms is not None and at_ms <= own_ms + self._hold_ms:
            return at_ms
        others = [ms - self._stepped.get(peer, 0) for peer, ms in self._here.items() if peer != broker]
        if self._present_ms is not None:
            others.append(self._present_ms)
        if not others:
            return at_ms if own_ms is None else own_ms + max(LONE_MS, self._hold_ms)
        known = [] if own_ms is None else [own_ms]
        return max([*known, max(others) + self._stepped.get(broker, 0)]) + self._hold_ms

    def _stands_out(self, line: BrokerLine, at_ms: int, after: BrokerLine | None) -> bool:
        """Tell whether a line is far ahead of both its neighbors. If so, it is misdated, whatever other clocks say."""
        own_ms = self._own.get(line.broker)
        if own_ms is not None and at_ms <= own_ms + self._hold_ms:
            return False
        if after is None or after[2:4] != line[2:4] or after.broker != line.broker:
            return False
        return written_ms(after) < at_ms - self._hold_ms

    def _believe(self, broker: str, at_ms: int, place: tuple[str, int]) -> None:
        """Move a broker's time to the instant of a believed line."""
        if broker in self._doubts:
            self._end_doubt(broker, at_ms)
        self._own[broker] = max(at_ms, self._own.get(broker, at_ms))
        source, here_ms = (broker, *place), at_ms - self._stepped.get(broker, 0)
        self._sifted.newest[source] = max(at_ms, self._sifted.newest.get(source, at_ms))
        self._here[broker] = max(at_ms, self._here.get(broker, at_ms))
        for doubt in self._doubts.values():
            if broker in doubt.peers and doubt.lines[-1][2:4] == place:
                doubt.hear_peer(here_ms)

    # ------------------------------------------------------------------ doubts

    def _doubt(self, line: BrokerLine, at_ms: int, *, ahead: bool) -> None:
        broker = line.broker
        doubt = self._doubts.get(broker)
        if doubt is not None and (doubt.ahead != ahead or at_ms < doubt.last_ms - self._hold_ms):
            self._disprove(broker)
            doubt = None
        if doubt is None:
            doubt = self._doubts[broker] = Doubt(ahead, at_ms, at_ms, peers=self._peers(broker))
        probes = self._probes.get(broker, {})
        doubt.add(line, at_ms, probes)
        told = self._present_ms is not None or doubt.is_kept_pace_with(self._hold_ms)
        if told and doubt.proven(probed=bool(probes), alone=self._reference_ms(doubt) is None):
            self._prove(broker, self._doubts.pop(broker))
        elif sum(len(other.lines) for other in self._doubts.values()) > MAX_DOUBTED:
            self._disprove(broker)

    def _peers(self, broker: str) -> tuple[str, ...]:
        """Return the other brokers of the partition whose lines are as new as this one's, so none that paused."""
        own_ms = self._own.get(broker, 0) - self._stepped.get(broker, 0)
        here = {peer: at_ms - self._stepped.get(peer, 0) for peer, at_ms in self._here.items() if peer != broker}
        return tuple(sorted(peer for peer, at_ms in here.items() if at_ms >= own_ms - self._hold_ms))

    def _reference_ms(self, doubt: Doubt) -> int | None:
        """Return the time by other clocks; None: there is no other clock that runs."""
        known = [at_ms for at_ms in (doubt.peer_ms, self._present_ms) if at_ms is not None]
        return max(known, default=None)

    def _end_doubt(self, broker: str, at_ms: int) -> None:
        """End a doubt with a line that is believed. If that line follows the lines in doubt, they are believed too.

        This happens if all brokers of a partition paused: no peer of the first to wake up has advanced as far.
        """
        doubt = self._doubts[broker]
        if not doubt.ahead or at_ms < doubt.last_ms - self._hold_ms:
            self._disprove(broker)
            return
        del self._doubts[broker]
        self._take(broker, doubt.lines)

    def _disprove(self, broker: str) -> None:
        """Reject lines in doubt: those ahead are misdated, those behind are only late."""
        doubt = self._doubts.pop(broker)
        (self._sifted.misdated if doubt.ahead else self._sifted.lines[-1]).extend(doubt.lines)

    def _prove(self, broker: str, doubt: Doubt) -> None:
        """Believe lines that were in doubt. Note a step of the clock if they prove one."""
        step = self._step_of(broker, doubt)
        if step is not None:
            sifted = self._sifted
            sifted.steps.append(step)
            sifted.newest = {source: at_ms for source, at_ms in sifted.newest.items() if source[0] != broker}
            self._stepped[broker] = step.total_ms
            self._own.pop(broker, None)
            self._here.pop(broker, None)
            if broker == self._coordinator:
                sifted.parted_by.append(step)
                sifted.lines.append([])
                sifted.blocks.append([])
        self._take(broker, doubt.lines)

    def _take(self, broker: str, lines: list[BrokerLine]) -> None:
        for line in lines:
            self._believe(broker, written_ms(line), line[2:4])
            self._note(line)
        self._sifted.lines[-1].extend(lines)

    def _step_of(self, broker: str, doubt: Doubt) -> Step | None:
        """Return the step that the lines in doubt prove; None: the broker may have paused instead."""
        own_ms, reference_ms = self._own.get(broker), self._reference_ms(doubt)
        before_ms = self._stepped.get(broker, 0)
        if reference_ms is None:
            if doubt.ahead or own_ms is None:
                return None
            delta_ms = doubt.first_ms - own_ms
            return Step(broker, own_ms, doubt.first_ms, delta_ms, before_ms + delta_ms, lasting=False)
        total_ms = doubt.last_ms - reference_ms
        if abs(total_ms) <= self._hold_ms:
            total_ms = 0
        delta_ms = 0 if own_ms is None else total_ms - before_ms
        if own_ms is not None and total_ms and abs(doubt.first_ms - own_ms - delta_ms) <= ROUGH_MS:
            delta_ms = doubt.first_ms - own_ms
            total_ms = before_ms + delta_ms
        if doubt.ahead and own_ms is not None and abs(delta_ms) <= self._hold_ms:
            return None  # the other clocks have reached this one since: all brokers had paused
        from_ms = doubt.first_ms if own_ms is None else own_ms
        return Step(broker, from_ms, doubt.first_ms, delta_ms, total_ms, lasting=True)


def _coordinates(line: Answer | CommitRefused | ClientSign) -> bool:
    """Tell whether a line proves that its broker coordinates the group, or will soon."""
    return not isinstance(line, ClientSign) and proof(line, 0, 1) in (Proof.LEADS, Proof.COORDINATES)


def written_ms(line: BrokerLine) -> int:
    """Return when a line was written. A leave is ordered by when it was applied, which may be much earlier."""
    if isinstance(line, LeaveAnswered) or (isinstance(line, ConsumerHeartbeat) and line.request_epoch < 0):
        return line.order_ms + line.remote_ms
    return line.order_ms

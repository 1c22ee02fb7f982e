"""Lines whose instants cannot be, and brokers whose clocks step.

Theory. A broker's lines lie in a partition in the order in which they were written, so their instants rise. One that is
far ahead of the line before it is a hole (a pause, lost lines), a clock that stepped, or misdated. *Far* is more than
sources may lie apart (``hold_ms``), and a minute where there is no other clock. A line far ahead is believed at once
where another clock is there too: a line of a peer in the same partition, or, live, this machine's clock as far as the
lines are behind it. Else it is in *doubt*, and waits. The next line that is where the
broker was disproves it: it is misdated. One that goes on from it and is believed proves it, and so do lines that go on
from it: where no other clock contradicts any do, for a second, and it was a hole; else three numbered probes in a row
do, and the clock stepped. Far behind is doubted alike; disproved, such lines are only late, and proven, the clock
stepped back.

A single broker's replay knows no other clock: it takes a step ahead for a hole, and knows a step back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from coordinator_model.brokers.broker_clock import CoordinatorTracker
from coordinator_model.brokers.coordinator_check import Proof, proof
from coordinator_model.brokers.ticks import Source
from coordinator_model.events import BrokerLine, ClientSign, ConsumerHeartbeat, LeaveAnswered, Tick
from coordinator_model.heartbeat_block import HeartbeatBlock

LONE_MS = 60_000
"""How far ahead is far where there is no other clock: a broker alone may have stood still for as long."""
SPAN_MS = 1_000
"""Over how long lines go on to prove themselves."""
PROBES_IN_A_ROW = 3
LINES_IN_A_ROW = 20
LINES_SPAN_MS = 5_000
"""Without a probe: so many lines, over so long, prove what three probes do. So long a peer's clock has to keep pace."""
MAX_DOUBTED = 10_000
"""Lines in doubt, a shard; more are not waited for."""


class Step(NamedTuple):
    """A broker's clock went from one instant to another: by ``delta_ms``, time that really passed left out.

    ``total_ms``: so far it is now from where it was before all steps. ``lasting``: another clock says so.
    """

    broker: str
    from_ms: int
    to_ms: int
    delta_ms: int
    total_ms: int
    lasting: bool


@dataclass(slots=True)
class Doubt:
    """Lines of a broker, one after the other, that are far from where it was."""

    ahead: bool
    first_ms: int
    last_ms: int
    lines: list[BrokerLine] = field(default_factory=list)
    probe: tuple[str, int] | None = None
    """Connection and number of the last probe among them."""
    in_a_row: int = 0
    peers: tuple[str, ...] = ()
    """Brokers in the same partition that were as far as it was before."""
    peer_ms: int | None = None
    """The newest line of these since, steps left out: their clocks go on."""
    heard: tuple[int, int, int] | None = None
    """``peer_ms`` and ``last_ms`` as a peer was first heard since, and ``last_ms`` as one was last."""

    def add(self, line: BrokerLine, at_ms: int, known: dict[str, int]) -> None:
        """Add a line; ``known`` are the numbers that its broker's probes had before."""
        self.lines.append(line)
        self.last_ms = at_ms
        if isinstance(line, Tick) and line.probe is not None:
            follows = self.probe == (line.connection, line.probe - 1)
            again = not self.ahead and line.probe <= known.get(line.connection, -1)  # as of lines that are sent again
            self.in_a_row = 0 if again else self.in_a_row + 1 if follows else 1
            self.probe = (line.connection, line.probe)

    def hear_peer(self, at_ms: int) -> None:
        """Note a line of a peer, steps left out."""
        self.peer_ms = max(at_ms, self.peer_ms or at_ms)
        first = self.heard or (self.peer_ms, self.last_ms, self.last_ms)
        self.heard = (*first[:2], self.last_ms)

    def is_kept_pace_with(self, hold_ms: int) -> bool:
        """Tell whether its peers' clocks go on as its own does, or have come to where that is.

        Lines that waited for a partition whose leader stood still come all at once, or not yet: they tell no time.
        """
        if self.peer_ms is None or self.heard is None or abs(self.last_ms - self.peer_ms) <= hold_ms:
            return True
        peer_from_ms, own_from_ms, own_to_ms = self.heard
        peers_ms, own_ms = self.peer_ms - peer_from_ms, own_to_ms - own_from_ms
        return peers_ms >= LINES_SPAN_MS and abs(own_ms - peers_ms) <= SPAN_MS and self.last_ms - own_to_ms <= SPAN_MS

    def proven(self, *, probed: bool, alone: bool) -> bool:
        """Tell whether its lines prove each other.

        ``probed``: its broker is asked by a probe. ``alone``: there is no other clock to contradict them.
        """
        span_ms = abs(self.last_ms - self.first_ms)
        if self.ahead and alone:
            return span_ms >= SPAN_MS
        if probed or self.probe is not None:
            return self.in_a_row >= PROBES_IN_A_ROW and span_ms >= SPAN_MS
        return len(self.lines) >= LINES_IN_A_ROW and span_ms >= LINES_SPAN_MS


@dataclass(slots=True)
class Sifted:
    """Lines that are believed: in one part, and in another after each step of the coordinator's clock."""

    lines: list[list[BrokerLine]] = field(default_factory=lambda: [[]])
    blocks: list[list[HeartbeatBlock]] = field(default_factory=lambda: [[]])
    parted_by: list[Step] = field(default_factory=list)
    """The coordinator's steps: one between two parts."""
    steps: list[Step] = field(default_factory=list)
    misdated: list[BrokerLine] = field(default_factory=list)
    waiting: list[BrokerLine] = field(default_factory=list)
    """Lines that are in doubt."""
    newest: dict[Source, int] = field(default_factory=dict)
    """The newest believed line by source; of a broker that stepped, since then."""


Place = tuple[str, int, int]
"""Topic, partition, offset."""
Item = tuple[Place, BrokerLine | HeartbeatBlock]
"""What lies at a place; a block lies at its first offset."""


def sift(
    clock: CoordinatorTracker,
    doubts: dict[str, Doubt],
    items: Sequence[Item],
    present_ms: int | None,
    hold_ms: int,
    *,
    final: bool,
) -> Sifted:
    """Sift what was read, in whatever order it comes; what is in doubt afterwards is in ``doubts``, for the next batch.

    ``present_ms``: what this machine's clock says, as the brokers have it; None: it says nothing. ``final``: nothing
    waits. Blocks of heartbeats are only looked into where other lines, or their ends, give reason to.
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
        """Scan lines, in the order of their partitions."""
        ordered = sorted(lines, key=lambda item: item[0])
        for index, ((topic, partition, _), line) in enumerate(ordered):
            self._enter((topic, partition))
            self._line(line, ordered[index + 1][1] if index + 1 < len(ordered) else None)
        for broker, doubt in list(self._doubts.items()) if final else ():
            if doubt.ahead and self._reference_ms(doubt) is None:
                self._prove(broker, self._doubts.pop(broker))  # nothing contradicts it
            else:
                self._disprove(broker)

    def is_calm(self) -> bool:
        """Tell whether all lines are where their brokers were, or after a hole."""
        sifted = self._sifted
        return not (self._doubts or sifted.steps or sifted.misdated)

    def believe_block(self, block: HeartbeatBlock) -> bool:
        """Believe heartbeats whose first and last are where their broker was before and is now; else return False."""
        first, last = block.row(0), block.row(block.length - 1)
        earliest_ms = self._before.get(first.broker, first.order_ms) - self._hold_ms
        self._enter(first[2:4])
        if first.order_ms < earliest_ms or last.order_ms > self._bound_ms(first.broker, last.order_ms):
            return False
        self._believe(first.broker, last.order_ms, first[2:4])
        self._sifted.blocks[-1].append(block)
        return True

    def end(self, doubts: dict[str, Doubt]) -> Sifted:
        """Return what was sifted, with the doubts that are left in the place of those that were."""
        doubts.clear()
        doubts.update(self._doubts)
        self._sifted.waiting = [line for doubt in doubts.values() for line in doubt.lines]
        return self._sifted

    def _enter(self, place: tuple[str, int]) -> None:
        """Go on in a partition, with the newest line of each broker in it."""
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
            self._believe(broker, at_ms, line[2:4])
            self._sifted.lines[-1].append(line)
            self._note(line)

    def _note(self, line: BrokerLine) -> None:
        """Note the number of a probe, and who coordinates, most likely: what is read has not been applied yet."""
        if isinstance(line, ClientSign):
            return
        if not isinstance(line, Tick):
            if proof(line, 0, 1) in (Proof.LEADS, Proof.COORDINATES):
                self._coordinator = line.broker
        elif line.probe is not None:
            self._probes.setdefault(line.broker, {})[line.connection] = line.probe

    def _bound_ms(self, broker: str, at_ms: int) -> int:
        """Return up to where a line of a broker may be without a doubt."""
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
        """Tell whether a line is far ahead of the one before it and of the one after it: then no other clock counts."""
        own_ms = self._own.get(line.broker)
        if own_ms is not None and at_ms <= own_ms + self._hold_ms:
            return False
        if after is None or after[2:4] != line[2:4] or after.broker != line.broker:
            return False
        return written_ms(after) < at_ms - self._hold_ms

    def _believe(self, broker: str, at_ms: int, place: tuple[str, int]) -> None:
        """Let a broker have been at an instant."""
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
        """Return who else writes to the partition, and has come as far as a broker had: not one that stands still."""
        own_ms = self._own.get(broker, 0) - self._stepped.get(broker, 0)
        here = {peer: at_ms - self._stepped.get(peer, 0) for peer, at_ms in self._here.items() if peer != broker}
        return tuple(sorted(peer for peer, at_ms in here.items() if at_ms >= own_ms - self._hold_ms))

    def _reference_ms(self, doubt: Doubt) -> int | None:
        """Return what other clocks say now; None: there is none that goes on."""
        known = [at_ms for at_ms in (doubt.peer_ms, self._present_ms) if at_ms is not None]
        return max(known, default=None)

    def _end_doubt(self, broker: str, at_ms: int) -> None:
        """End a doubt with a line that is believed: where that goes on from lines ahead, they only came before others.

        So where all brokers of a partition stood still, and the first to wake speaks alone.
        """
        doubt = self._doubts[broker]
        if not doubt.ahead or at_ms < doubt.last_ms - self._hold_ms:
            self._disprove(broker)
            return
        del self._doubts[broker]
        self._take(broker, doubt.lines)

    def _disprove(self, broker: str) -> None:
        """Take lines in doubt for misdated, or only late."""
        doubt = self._doubts.pop(broker)
        (self._sifted.misdated if doubt.ahead else self._sifted.lines[-1]).extend(doubt.lines)

    def _prove(self, broker: str, doubt: Doubt) -> None:
        """Believe lines that were in doubt, and note the step of the clock that they are proof of, if they are."""
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
        """Return the step that lines in doubt are proof of; None: it may have stood still instead."""
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
        if doubt.ahead and own_ms is not None and abs(delta_ms) <= self._hold_ms:
            return None  # others have come to where it is meanwhile: all of them stood still
        from_ms = doubt.first_ms if own_ms is None else own_ms
        return Step(broker, from_ms, doubt.first_ms, delta_ms, total_ms, lasting=True)


def written_ms(line: BrokerLine) -> int:
    """Return when a line was written; a leave is ordered by when it was applied, which may be long before."""
    if isinstance(line, LeaveAnswered) or (isinstance(line, ConsumerHeartbeat) and line.request_epoch < 0):
        return line.order_ms + line.remote_ms
    return line.order_ms

"""Whether a broker's lines are dated by its own clock, as its records are.

If a shipper sends no date, a line has the time of the shipper's clock, which may be an hour off. Lines that are all an
hour off agree with one another, and lines that are dated in the past look like late ones. Only a record shows the
truth, if it and a line are about the same event:

- the answer to the leader's JoinGroup, and the instant in the generation's record at which it was announced;
- the answer to the leader's SyncGroup, and the generation's record, which is written just before;
- the answer to a KIP-848 heartbeat that raises the member's epoch, and the member's record with that epoch.

While such a *pair* shows that dates are wrong, no removal has a known cause. If two pairs in a row are apart by the
same time, and by more than sources may be (``hold_ms``), the broker's lines are *misdated*. They are left out, as if
the broker had no request log, until a pair agrees.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

SAME_MS = 1_000
"""Two pairs are apart by the same time if the two times differ by no more than this."""
SAME_DELAY_MS = 100
"""As above, of lines that are dated after their records."""
DUE_MS = 1_500
"""Dates that are apart by less may be whole seconds, or those of a shipper that sends its lines every second."""
RECENT_MS = 600_000
"""How long a pair that shows wrong dates counts. Later, another broker may coordinate the shard."""
MAX_EVENTS = 16
"""Events kept per shard whose record was read, and as many whose line was read."""
MAX_BROKERS = 64
"""Brokers kept per shard whose last pair did not agree. Anybody who may write the topic can choose their names."""
ANNOUNCED, WRITTEN, EPOCH = "announced", "written", "epoch"
PAIRED = 0
"""In place of a record's instant: it has been compared with a line."""


class Told(NamedTuple):
    """An event that both a line and a record show: a generation is announced or written, or a member's epoch raised."""

    what: str
    group: str
    member_id: str
    number: int


class Logged(NamedTuple):
    """A line that shows an event: the event, the line's broker, when its request arrived, and the line's date."""

    told: Told
    broker: str
    arrival_ms: int
    at_ms: int

    def apart_ms(self, record_ms: int) -> int:
        """Return how far the line is from its record; negative: it is dated before it, 0: they agree.

        The record is written between the arrival of the request and the answer, however long a write stalls or the
        broker pauses.
        """
        return max(0, self.arrival_ms - record_ms) + min(0, self.at_ms - record_ms)


class Apart(NamedTuple):
    """A line and a record of one event whose dates are apart.

    ``what``: what kind of event. ``record_ms``: when it happened by the record. ``by_ms``: how much later its line was
    dated (``Logged.apart_ms``). ``line_ms``: its date. ``again``: the pair before was apart by the same time.
    """

    what: str
    record_ms: int
    by_ms: int
    line_ms: int
    again: bool = False

    @property
    def shows_wrong_dates(self) -> bool:
        """Whether this pair alone shows that dates are wrong, or together with the one before.

        A line is never written before its record, except for an announcement: a deposed coordinator may have announced
        a generation of the same number.
        """
        return self.again or (self.by_ms < 0 and self.what != ANNOUNCED)

    def is_near(self, at_ms: int) -> bool:
        """Tell whether its line or its record is not far from an instant."""
        return min(abs(at_ms - self.record_ms), abs(at_ms - self.record_ms - self.by_ms)) <= RECENT_MS

    def repeats(self, last: "Apart") -> bool:
        """Tell whether this pair is apart by the same time as the last one.

        A client that sends its request again gets an answer about an earlier event. If a write stalled, all such
        clients get it at the same instant. So lines that are dated after their records count only if they are as far
        from each other as the records are.
        """
        if self.what == last.what == ANNOUNCED:
            return False
        passed_ms = abs(self.record_ms - last.record_ms)
        if self.by_ms < 0:
            return abs(self.by_ms - last.by_ms) <= SAME_MS
        delays_ms = (self.by_ms - last.by_ms, self.line_ms - self.record_ms - (last.line_ms - last.record_ms))
        return max(map(abs, delays_ms)) <= min(SAME_DELAY_MS, passed_ms // 2)


@dataclass(slots=True)
class LineDates:
    """What the lines and records of one shard show about the dates of its brokers' lines."""

    recorded: dict[Told, int] = field(default_factory=dict)
    """When events happened by their records; ``PAIRED``: their line was read, too."""
    logged: dict[Told, Logged] = field(default_factory=dict)
    """The lines of events whose record was not read yet."""
    apart: dict[str, Apart] = field(default_factory=dict)
    """By broker: its last pair, if the two did not agree."""
    misdated: dict[str, int] = field(default_factory=dict)
    """The brokers whose lines are misdated, and since when, by the record that showed it."""
    doubted: tuple[str, int] | None = None
    """What was reported and has not ended: the first broker whose lines are doubtful, and since when."""

    def compare(
        self, logged: Iterable[Logged], recorded: Iterable[tuple[Told, int]], hold_ms: int, live_from_ms: int
    ) -> None:
        """Compare the lines and the records of a batch. Of several records of one event the first one counts.

        A client that sends its request again gets the same answer. So a line that is dated after its record proves
        nothing if the record was read in an earlier batch, or is older than ``live_from_ms``, when the monitor was
        first started.
        """
        told_now: dict[Told, int] = {}
        for told, at_ms in recorded:
            if told not in self.recorded:
                told_now.setdefault(told, at_ms)
        for told in [told for told in told_now if told in self.logged]:
            self._pair(self.logged.pop(told), told_now[told], hold_ms)
            told_now[told] = PAIRED
        for line in sorted(logged, key=attrgetter("at_ms")):
            record_ms = told_now.get(line.told, self.recorded.get(line.told))
            if record_ms is None:
                self.logged.setdefault(line.told, line)
                continue
            is_new = line.told in told_now and record_ms >= live_from_ms - hold_ms
            if record_ms != PAIRED and (is_new or line.arrival_ms <= record_ms + hold_ms):
                self._pair(line, record_ms, hold_ms)
            told_now[line.told] = PAIRED
        self.recorded = dict([*(self.recorded | told_now).items()][-MAX_EVENTS:])
        self.logged = dict([*self.logged.items()][-MAX_EVENTS:])

    def doubtful(self, at_ms: int) -> dict[str, int]:
        """Return the brokers whose lines are misdated, or whose last pair says so and is recent, and since when."""
        shown = {broker: pair.record_ms for broker, pair in self._recent(at_ms) if pair.shows_wrong_dates}
        return shown | self.misdated

    def are_far_apart(self, at_ms: int, hold_ms: int) -> bool:
        """Tell whether the last pair of a broker is recent and far apart, perhaps because of a pause."""
        return any(abs(pair.by_ms) > hold_ms for _, pair in self._recent(at_ms))

    def _recent(self, at_ms: int) -> list[tuple[str, Apart]]:
        """Return the last pairs that did not agree, if the line or the record is not far from an instant."""
        return [(broker, pair) for broker, pair in self.apart.items() if pair.is_near(at_ms)]

    def _pair(self, line: Logged, record_ms: int, hold_ms: int) -> None:
        """Note how far the dates of a line and its record are apart."""
        broker, pair = line.broker, Apart(line.told.what, record_ms, line.apart_ms(record_ms), line.at_ms)
        last = self.apart.pop(broker, None)
        if abs(pair.by_ms) <= hold_ms:
            self.misdated.pop(broker, None)
        if abs(pair.by_ms) <= DUE_MS:
            return
        if last is None and len(self.apart) >= MAX_BROKERS:
            del self.apart[next(iter(self.apart))]
        again = last is not None and pair.repeats(last)
        self.apart[broker] = pair._replace(again=again)
        if again and abs(pair.by_ms) > hold_ms:
            self.misdated.setdefault(broker, record_ms)
            while len(self.misdated) > MAX_BROKERS:
                del self.misdated[next(iter(self.misdated))]

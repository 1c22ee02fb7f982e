"""The clock of one broker as its telemetry shows it: its newest lines, its probes, its last hole."""

from collections.abc import Iterable
from dataclasses import dataclass, field

PROBE_DUE_MS = 2_500
"""After a hole the next probe comes within this time, even if it has to reconnect."""
GAP_MS = 1_000
"""If the lines of a probed broker are further apart than this, two probes made none: it was paused or busy."""
CROWDED_PROBES = 3
"""This many probes in a row take at least a second. If all have one instant, their dates are coarser than that."""
COARSE_FOR_MS = 10_000
"""How long dates count as coarse after two probe numbers in a row had one instant."""
DISORDER_FOR_MS = 60_000
"""How long dates count as off after lines in disorder. A quiet broker writes too few lines to show it in less time."""
SECONDS_IN_DISORDER = 2
"""A broker's threads may swap two lines. In so many seconds of ``DISORDER_FOR_MS`` they do not: dates are off."""
PROBE_EVERY_MS = 500
WAKING_MS = 1_000
"""A broker that stood still has answered what waited meanwhile this long after its first line."""
MAX_PROBES = 8
"""Probe connections kept per broker. The last number of a broken connection stays behind."""


@dataclass(slots=True)
class BrokerClock:
    """One broker: its newest lines read and applied, its last probe numbers, its last refusal about this shard."""

    read_ms: dict[str, int] = field(default_factory=dict)
    """The newest line read, by partition. Such a line may still wait for the watermark."""
    line_ms: int = 0
    """The newest line applied."""
    probes: dict[str, int] = field(default_factory=dict)
    """The last probe number, by connection."""
    refused_ms: int | None = None
    silent_from_ms: int = 0
    """The last hole in its lines: a pause, a restart or a loss."""
    silent_to_ms: int = 0
    probed_since_ms: dict[str, int] = field(default_factory=dict)
    """When each probe connection was first seen. The connection that was heard last is the last one."""
    lost_to_ms: int = 0
    """Lines before this instant are known to be lost, so a hole up to it is not a pause."""
    stepped_ms: int = 0
    """How far its clock has stepped away from the other brokers' clocks (``line_clocks``)."""
    probed_ms: dict[str, int] = field(default_factory=dict)
    """When the last probe was heard, by connection."""
    bunches: dict[str, list[int]] = field(default_factory=dict)
    """By connection: how many probe numbers in a row share the newest instant, and the instant before that one."""
    answered_ms: int = 0
    """Its last answer about the shard, whatever that answer proves."""
    behind_ms: int | None = None
    """How far its newest line was behind this machine's clock when it was read; None: not known."""
    quiet_since_ms: int = 0
    """Since when a line of the coordinator was awaited when this broker's newest line was applied, see ``silence``."""
    quiet_seen_ms: int = 0
    """This broker's first line since then, by its own clock."""
    usual_ms: int | None = None
    """The least of ``behind_ms``: how long lines are on their way, and how far the two clocks differ."""
    heard_since_ms: int = 0
    """Its first line."""
    node: str = ""
    """The id of the node that the probe asked; empty: not known."""
    gap_from_ms: int = 0
    """The last time that its lines were more than ``GAP_MS`` apart: its timers may have stood still."""
    gap_to_ms: int = 0
    coarse_ms: int = 0
    """How far apart the instants of its lines were when two probe numbers in a row last shared one; 0: none did."""
    coarse_seen_ms: int = 0
    """When that was."""
    disorder: list[tuple[int, int]] = field(default_factory=list)
    """Seconds in which a line was dated before lines that were written earlier, and by how much it was at most."""

    def note_behind(self, wall_ms: int) -> None:
        """Note how far the newest line is behind this machine's clock, now that a line has been read.

        The least grows by a millisecond with each reading, because two clocks may drift apart.
        """
        behind_ms = wall_ms - self.newest_read_ms
        if self.usual_ms is None:
            self.usual_ms = behind_ms if self.behind_ms is None else self.behind_ms
        self.usual_ms, self.behind_ms = min(self.usual_ms + 1, behind_ms), behind_ms

    def step(self, stepped_ms: int) -> None:
        """Note how far the clock has stepped in all, before anything of the new time is read."""
        further_ms, self.stepped_ms = stepped_ms - self.stepped_ms, stepped_ms
        self.read_ms.clear()
        self.coarse_seen_ms = 0
        self.disorder.clear()
        if self.behind_ms is not None:
            self.behind_ms -= further_ms
        if self.usual_ms is not None:
            self.usual_ms -= further_ms

    @property
    def heard_wall_ms(self) -> int | None:
        """When a line was last read, by this machine's clock; None: not known."""
        return None if self.behind_ms is None else self.newest_read_ms + self.behind_ms

    @property
    def late_ms(self) -> int:
        """How much further behind than usual its newest line was when it was read: the job was catching up."""
        return 0 if self.behind_ms is None or self.usual_ms is None else self.behind_ms - self.usual_ms

    def note_connection(self, connection: str, at_ms: int) -> int:
        """Note that a probe connection is heard; return since when it is known. Of many, the last heard are kept."""
        since_ms = self.probed_since_ms.pop(connection, at_ms)
        self.probed_since_ms[connection] = since_ms
        for forgotten in list(self.probed_since_ms)[:-MAX_PROBES]:
            del self.probed_since_ms[forgotten]
            self.probes.pop(forgotten, None)
            self.probed_ms.pop(forgotten, None)
            self.bunches.pop(forgotten, None)
        return since_ms

    def note_bunch(self, connection: str, line_ms: int, heard_ms: int, *, follows: bool) -> tuple[int, int]:
        """Return how many probe numbers in a row share the newest instant, and how far that is from the one before."""
        if line_ms > heard_ms or connection not in self.bunches:
            self.bunches[connection] = [1, heard_ms]
        else:
            self.bunches[connection][0] += follows
        count, before_ms = self.bunches[connection]
        step_ms = line_ms - before_ms
        if count > 1:
            self.coarse_ms, self.coarse_seen_ms = min(step_ms, CROWDED_PROBES * PROBE_EVERY_MS), line_ms
        return count, step_ms

    def note_disorder(self, seconds: Iterable[tuple[int, int]]) -> None:
        """Note by how much lines that were read are in disorder, by second. Seconds of long ago are forgotten."""
        most = dict(self.disorder)
        for second_ms, back_ms in seconds:
            most[second_ms] = max(back_ms, most.get(second_ms, 0))
        self.disorder = sorted(item for item in most.items() if item[0] >= self.line_ms - DISORDER_FOR_MS)

    @property
    def off_by_ms(self) -> int:
        """How far the dates of its lines may be off: whole seconds, a shipper's buffer, or lines in disorder.

        If a buffer's are further off, ``CROWDED_PROBES`` share one instant.
        """
        coarse_ms = self.coarse_ms if self.line_ms - self.coarse_seen_ms <= COARSE_FOR_MS else 0
        backs_ms = [back for at_ms, back in self.disorder if 0 <= self.line_ms - at_ms <= DISORDER_FOR_MS]
        return max(coarse_ms, 2 * max(backs_ms)) if len(backs_ms) >= SECONDS_IN_DISORDER else coarse_ms

    def connection_before(self, connection: str, probe: int) -> str:
        """Return the connection of the last probe before this one; empty: none is known.

        The probe counts a broker's answers and goes on counting on a new connection. A number on a new connection that
        is not higher is that of a probe that was started anew.
        """
        if connection in self.probes or not self.probed_ms:
            return connection
        last = max(self.probed_ms, key=self.probed_ms.__getitem__)
        return last if self.probes.get(last, probe) < probe else ""

    def has_been_probed(self, for_ms: int, at_ms: int) -> bool:
        """Tell whether the first probe was heard so long before an instant."""
        return bool(self.probed_since_ms) and at_ms - min(self.probed_since_ms.values()) >= for_ms

    def has_been_heard(self, for_ms: int, at_ms: int) -> bool:
        """Tell whether the first line was heard so long before an instant."""
        return bool(self.line_ms) and at_ms - self.heard_since_ms >= for_ms

    def waited_ms(self, at_ms: int) -> int:
        """Return how long a request may have waited that was answered at an instant: since the broker stood still."""
        is_waking = self.gap_from_ms < at_ms <= self.gap_to_ms + WAKING_MS
        return at_ms - self.gap_from_ms if is_waking else 0

    @property
    def newest_read_ms(self) -> int:
        """The newest line read; 0: none."""
        return max(self.read_ms.values(), default=0)

    def was_probed_before(self, at_ms: int) -> bool:
        """Tell whether a probe was heard just before an instant. Otherwise no other one had to come after it."""
        return any(0 <= at_ms - heard_ms <= PROBE_DUE_MS for heard_ms in self.probed_ms.values())

    @property
    def was_probed_after_the_hole(self) -> bool:
        """Whether a probe was heard after the last hole, or may still be."""
        is_due = self.line_ms - self.silent_to_ms > PROBE_DUE_MS
        return not is_due or max(self.probed_ms.values(), default=0) >= self.silent_to_ms

    def is_older_than_the_hole(self, connection: str) -> bool:
        """Tell whether a probe connection was there before the last hole: then its next probe shows what that was."""
        since_ms = self.probed_since_ms.get(connection)
        return since_ms is not None and since_ms <= self.silent_from_ms

    def progress_ms(self, hold_ms: int) -> int:
        """Return the newest line of the partition that is furthest behind, among those that it still writes to."""
        least_ms = self.newest_read_ms - hold_ms
        return min((at_ms for at_ms in self.read_ms.values() if at_ms >= least_ms), default=0)

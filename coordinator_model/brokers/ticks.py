"""Ticks: the lines of a broker that move the clocks of all shards. `replay` and the job's source stage share this.

A shard receives only the lines of its own groups, but waits for every broker. So all shards receive ticks of each
broker: the probe's lines, and of all other lines two a second, those at both ends of a hole, and the newest. The cost
is brokers times shards. Which lines become ticks depends only on their instants, not on their order or their batches.
So a hole in a broker's lines has the same ends for every shard.
"""

from collections.abc import Iterable, Iterator

from coordinator_model.events import Tick

TICK_EVERY_MS = 500
"""Lines closer than this make one tick, except for the last line before a hole."""
HOLE_MS = 1_000
"""If no line comes for this long, the lines at both ends are ticks, because a pause begins and ends exactly there."""
Source = tuple[str, str, int]
"""Broker, topic, partition."""


class _Lines:
    """The lines of one source that may become ticks, and the newest line."""

    def __init__(self, first: Tick) -> None:
        self._chosen, self.newest = [first], first

    def observe(self, tick: Tick) -> None:
        """Observe a line. Most lines that come in order of time are dropped at once; a late line is kept."""
        newest_ms = self.newest.order_ms
        if tick.order_ms >= newest_ms + HOLE_MS:
            self._chosen += [self.newest, tick]
        elif _always(tick) or tick.order_ms < newest_ms or tick.order_ms >= self._chosen[-1].order_ms + TICK_EVERY_MS:
            self._chosen.append(tick)
        if tick.order_ms >= newest_ms:
            self.newest = tick

    def all(self) -> list[Tick]:
        """Return the lines that may become ticks."""
        return [*self._chosen, self.newest]


class Ticker:
    """Observes lines in any order, each in the form of a tick; ``take`` returns those that are chosen."""

    def __init__(self) -> None:
        self._telling: dict[Source, _Lines] = {}
        self._mute: dict[Source, _Lines] = {}

    def __bool__(self) -> bool:
        """Tell whether there are any ticks."""
        return bool(self._telling)

    def observe(self, tick: Tick, *, mute: bool = False) -> None:
        """Observe a line; only a probe's has a connection. ``mute``: the line cannot be read, or is not about a group.

        Mute lines also show where a hole begins and ends. So they can be ticks, but only up to ``HOLE_MS`` after the
        newest other line of their source. A source that sends nothing but mute lines must count as stalled telemetry,
        because no member can be judged by them.
        """
        heard, source = self._mute if mute else self._telling, (tick.broker, tick.topic, tick.partition)
        if (lines := heard.get(source)) is None:
            heard[source] = _Lines(tick)
        else:
            lines.observe(tick)

    def take(self) -> list[Tick]:
        """Return the ticks, including the newest line of each source, and forget all lines."""
        ticks: list[Tick] = []
        for source, lines in self._telling.items():
            mute, until_ms = self._mute.get(source), lines.newest.order_ms + HOLE_MS
            known = [tick for tick in mute.all() if tick.order_ms < until_ms] if mute is not None else []
            ticks += _thinned([*lines.all(), *known])
        self._telling, self._mute = {}, {}
        return ticks


def _always(tick: Tick) -> bool:
    return tick.lost or bool(tick.connection)


def _thinned(ticks: Iterable[Tick]) -> Iterator[Tick]:
    """Yield two lines a second of one source, those at both ends of a hole, and the last."""
    ordered = sorted(dict.fromkeys(ticks), key=lambda tick: (tick.order_ms, not _always(tick), tick.offset))
    said_ms = None
    for tick, after in zip(ordered, [*ordered[1:], None], strict=True):
        ends = after is None or after.order_ms - tick.order_ms >= HOLE_MS
        due = said_ms is None or tick.order_ms >= said_ms + (1 if ends else TICK_EVERY_MS)
        if due or _always(tick):
            said_ms = tick.order_ms
            yield tick

"""Which lines of a broker move the clocks of all shards, as ticks: `replay` and the job's source stage make the same.

A shard is sent its own groups' lines only, yet waits for every broker. So probes' lines are ticks, and of all others
two a second, those at both ends of a hole, and the newest. Each goes to every shard: a cluster pays for brokers times
shards. The lines' own instants decide, whatever they say and in whichever order and batches they come: a hole in a
broker's lines begins and ends for every shard exactly where it does for the one that the lines are about.
"""

from collections.abc import Iterable, Iterator

from coordinator_model.events import Tick

TICK_EVERY_MS = 500
"""Lines closer than this move the clock of the other shards only once, but for the last before a hole."""
HOLE_MS = 1_000
"""Where no line comes for so long, both its ends are ticks: a pause or silence begins and ends exactly there."""
Source = tuple[str, str, int]
"""Broker, topic, partition."""


class _Lines:
    """Lines of one source that may be ticks, and the newest of all."""

    def __init__(self, first: Tick) -> None:
        self._chosen, self.newest = [first], first

    def observe(self, tick: Tick) -> None:
        """Observe a line: of lines by rising instants most can be left out at once; a late one is kept."""
        newest_ms = self.newest.order_ms
        if tick.order_ms >= newest_ms + HOLE_MS:
            self._chosen += [self.newest, tick]
        elif _always(tick) or tick.order_ms < newest_ms or tick.order_ms >= self._chosen[-1].order_ms + TICK_EVERY_MS:
            self._chosen.append(tick)
        if tick.order_ms >= newest_ms:
            self.newest = tick

    def all(self) -> list[Tick]:
        """Return the lines that may be ticks."""
        return [*self._chosen, self.newest]


class Ticker:
    """Observes lines, in any order, each as the tick that it might be; ``take`` returns those that are."""

    def __init__(self) -> None:
        self._telling: dict[Source, _Lines] = {}
        self._mute: dict[Source, _Lines] = {}

    def __bool__(self) -> bool:
        """Tell whether there are any ticks."""
        return bool(self._telling)

    def observe(self, tick: Tick, *, mute: bool = False) -> None:
        """Observe a line; a probe's has its connection. ``mute``: one that cannot be read, or is about no group.

        Mute lines are ticks up to a hole's length after the newest line of their source that is not: where a hole
        begins and ends they tell as well. Alone they tell nothing: nobody can be judged by them, and telemetry stands
        still.
        """
        heard, source = self._mute if mute else self._telling, (tick.broker, tick.topic, tick.partition)
        if (lines := heard.get(source)) is None:
            heard[source] = _Lines(tick)
        else:
            lines.observe(tick)

    def take(self) -> list[Tick]:
        """Return the ticks, the newest lines among them; afterwards none are held."""
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
    """Yield two a second of one source's lines, those at both ends of a hole, and the last."""
    ordered = sorted(dict.fromkeys(ticks), key=lambda tick: (tick.order_ms, not _always(tick), tick.offset))
    said_ms = None
    for tick, after in zip(ordered, [*ordered[1:], None], strict=True):
        ends = after is None or after.order_ms - tick.order_ms >= HOLE_MS
        due = said_ms is None or tick.order_ms >= said_ms + (1 if ends else TICK_EVERY_MS)
        if due or _always(tick):
            said_ms = tick.order_ms
            yield tick

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


class Ticker:
    """Hears lines, each as the tick that it might be; ``take`` returns those that are."""

    def __init__(self) -> None:
        self._chosen: dict[Source, list[Tick]] = {}
        self._newest: dict[Source, Tick] = {}

    def __bool__(self) -> bool:
        """Tell whether there are any ticks."""
        return bool(self._chosen)

    def hear(self, tick: Tick) -> None:
        """Hear a line, in any order. A probe's has its connection.

        Of lines by rising instants most can be left out at once; one that is late is left to ``take``.
        """
        source = (tick.broker, tick.topic, tick.partition)
        chosen, newest = self._chosen.setdefault(source, []), self._newest.get(source)
        if newest is None or tick.order_ms >= newest.order_ms + HOLE_MS:
            chosen += [tick] if newest is None else [newest, tick]
        elif _always(tick) or tick.order_ms < newest.order_ms or tick.order_ms >= chosen[-1].order_ms + TICK_EVERY_MS:
            chosen.append(tick)
        if newest is None or tick.order_ms >= newest.order_ms:
            self._newest[source] = tick

    def take(self) -> list[Tick]:
        """Return the ticks, the newest lines among them; afterwards none are held."""
        by_source = ([*chosen, self._newest[source]] for source, chosen in self._chosen.items())
        ticks = [tick for chosen in by_source for tick in _thinned(chosen)]
        self._chosen, self._newest = {}, {}
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

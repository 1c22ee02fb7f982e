"""Which lines of a broker move the clocks of all shards, as ticks: `replay` and the job's source stage make the same.

A shard is sent its own groups' lines only, yet waits for every broker. So probes' lines are ticks, and of all others
two a second, the last before a hole, and the newest. Each goes to every shard: a cluster pays for brokers times shards.
"""

from coordinator_model.events import Tick

TICK_EVERY_MS = 500
"""Lines closer than this move the clock of the other shards only once, but for the last before a hole."""
HOLE_MS = 1_000
"""Where no line comes for so long, the one before is a tick: what it begins (a pause, silence) begins exactly there."""
Source = tuple[str, str, int]
"""Broker, topic, partition."""


class Ticker:
    """Hears lines, each as the tick that it might be; ``take`` returns those that are."""

    def __init__(self) -> None:
        self._ticks: list[Tick] = []
        self._ticked_ms: dict[Source, int] = {}
        self._newest: dict[Source, Tick] = {}

    def __bool__(self) -> bool:
        """Tell whether there are any ticks."""
        return bool(self._ticks)

    def due_ms(self, source: Source) -> int:
        """Return from which instant on a line of a source makes the next tick."""
        return self._ticked_ms.get(source, 0) + TICK_EVERY_MS

    def hear(self, tick: Tick, *, probe: bool = False, last: bool = False) -> None:
        """Hear a line. ``probe``: a probe's, numbered or not. ``last``: before a hole, of which the end may be known.

        That one is a tick at once, unless there is one of its instant.
        """
        source = (tick.broker, tick.topic, tick.partition)
        newest = self._newest.get(source, tick)
        if tick.order_ms - newest.order_ms >= HOLE_MS:
            self._say_newest(source)
        if tick.order_ms >= newest.order_ms:
            self._newest[source] = tick
        due = tick.order_ms != self._ticked_ms.get(source) if last else tick.order_ms >= self.due_ms(source)
        if due or probe or tick.lost:
            self._say(source, tick)

    def take(self) -> list[Tick]:
        """Return the ticks, the newest lines among them; afterwards none are held."""
        for source in self._newest:
            self._say_newest(source)
        ticks, self._ticks, self._newest = self._ticks, [], {}
        return ticks

    def _say_newest(self, source: Source) -> None:
        newest = self._newest[source]
        if newest.order_ms > self._ticked_ms.get(source, 0):
            self._say(source, newest)

    def _say(self, source: Source, tick: Tick) -> None:
        self._ticked_ms[source] = max(tick.order_ms, self._ticked_ms.get(source, 0))
        self._ticks.append(tick)

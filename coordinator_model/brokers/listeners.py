"""One broker under two names: the addresses of its two listeners, if its lines have no record key.

Theory. A broker without a key is named by the local address of each connection. Two things show that two addresses
belong to one broker:

- They have one host, both have been heard for 2.5 s, and only one of them is probed. The probe asks each broker at one
  listener, so an address that is not probed is no broker of its own. If the probe asks another node there later, it is.
- They take turns as the coordinator of a shard. One broker at a time coordinates it. A deposed coordinator refuses (14,
  15, 16), or answers for some seconds until it learns that it is deposed. So two addresses that take turns for longer
  than that, without a refusal, belong to one broker.

Until that is known, each turn looks like a move of the coordinator, for which no broker is blamed; then those moves are
dropped.
"""

from dataclasses import dataclass, field

TURNS = 6
"""This many turns in a row are not failovers."""
TURN_MS = 30_000
"""Turns that are further apart may be failovers."""
MAX_NAMES = 64


@dataclass(slots=True)
class Listeners:
    """What is known about the names of one shard's brokers."""

    names: dict[str, str] = field(default_factory=dict)
    """Maps a broker's other address to its name."""
    pair: tuple[str, str] = ("", "")
    """The two addresses that take turns now."""
    turns: int = 0
    first_ms: int = 0
    last_ms: int = 0

    @property
    def is_full(self) -> bool:
        """Whether no more names are kept: anybody who may write the telemetry topic can choose addresses."""
        return len(self.names) >= MAX_NAMES

    def name(self, broker: str) -> str:
        """Return a broker's name."""
        return self.names.get(broker, broker)

    def take_turn(self, before: str, after: str, at_ms: int, least_ms: int) -> bool:
        """Note that ``after`` answers as the coordinator after ``before``. Return whether both are one broker.

        ``least_ms``: turns for less time than this may be those of two different brokers.
        """
        pair = (min(before, after), max(before, after))
        if pair != self.pair or at_ms - self.last_ms > TURN_MS:
            self.pair, self.turns, self.first_ms = pair, 0, at_ms
        self.turns, self.last_ms = self.turns + 1, at_ms
        enough = self.turns >= TURNS and at_ms - self.first_ms >= least_ms
        return enough and all(map(is_address, pair)) and not self.is_full

    def refused(self, broker: str) -> None:
        """Note that a broker refused: its turns were real moves of the coordinator."""
        if broker in self.pair:
            self.pair, self.turns = ("", ""), 0

    def join(self, name: str, other: str) -> None:
        """Merge two addresses into one broker of this name."""
        self.names = {known: name if of == other else of for known, of in self.names.items()} | {other: name}


def on_one_host(one: str, other: str) -> bool:
    """Tell whether two names are different addresses of one host."""
    return one != other and is_address(one) and is_address(other) and one.rpartition(":")[0] == other.rpartition(":")[0]


def is_address(name: str) -> bool:
    """Tell whether a broker is named by its address, because its lines have no key."""
    host, _, port = name.rpartition(":")
    return bool(host) and port.isdigit()

"""Plans of lives: which clients there are, and what happens to them when. Plain data, so that it can be shrunk.

The driver (`java/oracle/Plan.java`) reads a plan as a line of JSON and plays it. The same plan gives the same life. If
a client is left out, the life stays the same for the others.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

START_MS = 1_764_547_200_000  # 2025-12-01 in UTC

Range = tuple[int, int]
"""Least and most, both included."""


@dataclass(frozen=True)
class Ranges:
    """How long things take, in microseconds."""

    network: Range = (100, 2_000)
    """Between a client and a broker, one way."""
    queue: Range = (20, 300)
    """From a request's arrival until a thread handles it."""
    local: Range = (30, 200)
    respond: Range = (10, 100)
    """From an answer until a thread sends it."""
    send: Range = (20, 300)
    replicate: Range = (0, 0)
    """From a write until the high watermark covers it; 0: there is one replica."""
    load: Range = (1_000, 20_000)
    ship: Range = (1_000, 25_000)
    """From a line until it is in the telemetry topic."""


@dataclass(frozen=True)
class Client:
    """A client application, as it is at each start. ``version``: of JoinGroup or of its heartbeat."""

    name: str
    protocol: str
    """"classic", "consumer" (KIP-848), "share" or "streams"."""
    group: str = "g"
    host: str = "10.1.0.1"
    instance: str | None = None
    version: int = 9
    library: str = "java"
    """How it leaves: "java", "librdkafka", "kafka-python" or "streams" (which does not leave)."""
    session_ms: int = 10_000
    rebalance_ms: int = 30_000
    heartbeat_ms: int = 3_000
    poll_ms: Range = (50, 800)
    commit_ms: int = 0
    """Between two offset commits; 0: none."""
    topics: tuple[str, ...] = ("t",)
    regex: str | None = None
    assignors: tuple[str, ...] = ("range",)


@dataclass(frozen=True)
class Event:
    """Something that happens to a client (by name) or a broker (by number; None: the coordinator)."""

    at_ms: int
    do: str
    who: str | None = None
    args: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"at_ms": self.at_ms, "do": self.do, "who": self.who, "with": self.args}


@dataclass(frozen=True)
class Plan:
    """A life before it is played. Milliseconds count from its start."""

    seed: int
    kind: str
    until_ms: int
    clients: tuple[Client, ...]
    events: tuple[Event, ...]
    clock_offsets_ms: tuple[int, ...] = (0,)
    """How far each broker's clock is ahead, one number for each broker. Broker 1 is the first coordinator."""
    config: dict[str, str] = field(default_factory=dict)
    group_config: dict[str, dict[str, str]] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=Ranges)
    topics: dict[str, int] = field(default_factory=lambda: {"t": 4, "u": 2})
    metadata_ms: int = 5_000
    """Between two metadata requests (who leads?); 0: nobody asks, and the monitor has only the answers to clients."""
    start_ms: int = START_MS

    @property
    def clocks_step(self) -> bool:
        """Whether a broker's clock steps."""
        return any(event.do == "step-clock" for event in self.events)

    def as_line(self) -> str:
        """Return the plan as the driver reads it."""
        fields = asdict(self)
        del fields["kind"]
        fields["events"] = [event.as_json() for event in sorted(self.events, key=lambda event: event.at_ms)]
        return json.dumps(fields)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Plan":
        """Return the plan from the dict that ``dataclasses.asdict`` made of it."""
        clients = tuple(Client(**{k: _tuple(v) for k, v in client.items()}) for client in fields["clients"])
        events = tuple(Event(**event) for event in fields["events"])
        ranges = Ranges(**{k: _tuple(v) for k, v in fields["ranges"].items()})
        offsets_ms = tuple(fields["clock_offsets_ms"])
        parts = {"clients": clients, "events": events, "ranges": ranges, "clock_offsets_ms": offsets_ms}
        return cls(**(fields | parts))

    def without_idle(self) -> "Plan":
        """Leave out clients that never start."""
        started = {event.who for event in self.events if event.do == "start"}
        return replace(self, clients=tuple(client for client in self.clients if client.name in started))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

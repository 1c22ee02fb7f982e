"""The kinds of lives: tables of members, of faults of a client, and of faults of the cluster.

A kind is named by its members and its faults, as `static+moves`. A kind and a seed give one plan, always the same. To
add a member or a fault, add a row to a table here (and a case to `java/oracle/Events.java` if it is a new sort of
event).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from tests.oracle.plans import Client, Event, Plan, Range, Ranges

SETTLES_MS = 40_000
"""No fault is drawn for the last part of a life, so that the effects of earlier ones can show."""


@dataclass(frozen=True)
class Members:
    """How the clients of a life are drawn, and how many there are."""

    drawn: Callable[[Random, str], Client]
    count: Range = (1, 5)
    config: dict[str, str] | None = None


@dataclass(frozen=True)
class Faults:
    """The faults of a cluster: each is drawn for an instant, as a list of events."""

    drawn: tuple[Callable[[Random, int, int], list[Event]], ...] = ()
    every_ms: Range = (20_000, 60_000)
    brokers: int = 1
    ranges: Ranges = field(default_factory=Ranges)
    offsets_ms: Range = (0, 0)


# ---------------------------------------------------------------- members


def _classic(chance: Random, name: str) -> Client:
    session_ms = chance.choice([6_000, 6_000, 10_000])
    return Client(
        name,
        "classic",
        host=f"10.1.0.{chance.randint(1, 250)}",
        version=chance.choice([9, 9, 9, 8, 7, 5, 4, 3]),
        library=chance.choice(["java", "java", "librdkafka", "kafka-python", "streams"]),
        session_ms=session_ms,
        rebalance_ms=chance.choice([8_000, 15_000, 30_000, 60_000]),
        heartbeat_ms=chance.choice([1_000, session_ms // 3]),
        commit_ms=chance.choice([0, 0, 2_000, 5_000]),
        topics=chance.choice([("t",), ("t",), ("t", "u"), ("u",)]),
        assignors=chance.choice([("range",), ("range", "cooperative-sticky")]),
    )


def _static(chance: Random, name: str) -> Client:
    client = _classic(chance, name)
    instance = chance.choice([f"i-{name}", f"i-{name}", "i-shared", None])
    return replace(client, instance=instance, version=chance.choice([9, 9, 7, 5]))


def _cooperative(chance: Random, name: str) -> Client:
    return replace(_classic(chance, name), assignors=("cooperative-sticky",), version=chance.choice([9, 8, 7]))


def _old(chance: Random, name: str) -> Client:
    return replace(_classic(chance, name), version=chance.randint(0, 3), library="java", assignors=("range",))


SHORT_SESSIONS = {
    f"group.{kind}.{name}": value
    for kind in ("consumer", "share", "streams")
    for name, value in (
        ("session.timeout.ms", "7000"),
        ("min.session.timeout.ms", "5000"),
        ("heartbeat.interval.ms", "2000"),
        ("min.heartbeat.interval.ms", "1000"),
    )
}


def _consumer(chance: Random, name: str) -> Client:
    return Client(
        name,
        "consumer",
        host=f"10.1.0.{chance.randint(1, 250)}",
        version=chance.choice([1, 1, 1, 0]),
        session_ms=7_000,
        rebalance_ms=chance.choice([3_000, 8_000, 15_000, 60_000]),
        heartbeat_ms=2_000,
        poll_ms=chance.choice([(50, 800), (50, 800), (500, 4_000)]),
        topics=chance.choice([("t",), ("t",), ("t", "u"), ("u",)]),
        assignors=(chance.choice(["uniform", "range"]),),
    )


def _consumer_static(chance: Random, name: str) -> Client:
    return replace(_consumer(chance, name), instance=chance.choice([f"i-{name}", f"i-{name}", "i-shared", None]))


def _regex(chance: Random, name: str) -> Client:
    regex = chance.choice(["t", "t|u", "u.*", "nothing.*", ".*"])
    return replace(_consumer(chance, name), regex=regex, version=1, topics=())


def _mixed(chance: Random, name: str) -> Client:
    one = chance.choice([_classic, _static, _cooperative, _consumer, _consumer_static, _consumer])
    return one(chance, name)


def _share(chance: Random, name: str) -> Client:
    return replace(_consumer(chance, name), protocol="share", version=1, rebalance_ms=30_000)


def _streams(chance: Random, name: str) -> Client:
    return replace(_consumer(chance, name), protocol="streams", version=0, topics=("t", "u"))


MEMBERS = {
    "classic": Members(_classic),
    "static": Members(_static),
    "cooperative": Members(_cooperative),
    "old": Members(_old),
    "consumer": Members(_consumer, config=SHORT_SESSIONS),
    "consumer-static": Members(_consumer_static, config=SHORT_SESSIONS),
    "regex": Members(_regex, config=SHORT_SESSIONS),
    "mixed": Members(_mixed, config=SHORT_SESSIONS),
    "share": Members(_share, config=SHORT_SESSIONS),
    "streams": Members(_streams, config=SHORT_SESSIONS),
}

# ---------------------------------------------------------------- faults of a client


def _around(chance: Random, *marks_ms: int) -> int:
    """Return a time near one of the marks, which decide something, or any time."""
    if chance.random() < 0.3:
        return chance.randint(100, 2 * max(marks_ms))
    return max(1, chance.choice(marks_ms) + chance.choice([-2_000, -500, -50, 0, 50, 500, 2_000]))


def _kill(chance: Random, client: Client, at_ms: int) -> list[Event]:
    back_ms = at_ms + _around(chance, 1_000, client.session_ms, client.session_ms + client.rebalance_ms)
    again = [Event(back_ms, "start", client.name)] if chance.random() < 0.7 else []
    return [Event(at_ms, "kill", client.name), *again]


def _close(chance: Random, client: Client, at_ms: int) -> list[Event]:
    return [replace(_kill(chance, client, at_ms)[0], do="close"), *_kill(chance, client, at_ms)[1:]]


def _between(first: str, last: str) -> Callable[[Random, Client, int], list[Event]]:
    def drawn(chance: Random, client: Client, at_ms: int) -> list[Event]:
        until_ms = at_ms + _around(chance, client.session_ms, client.rebalance_ms)
        return [Event(at_ms, first, client.name), Event(until_ms, last, client.name)]

    return drawn


def _cut(chance: Random, client: Client, at_ms: int) -> list[Event]:
    return [Event(at_ms, "cut", client.name, {"for_ms": _around(chance, client.session_ms, 31_000)})]


def _disconnect(_: Random, client: Client, at_ms: int) -> list[Event]:
    return [Event(at_ms, "disconnect", client.name)]


def _subscribe(chance: Random, client: Client, at_ms: int) -> list[Event]:
    topics = chance.choice([["t"], ["u"], ["t", "u"]])
    return [Event(at_ms, "subscribe", client.name, {"topics": topics})]


MISHAPS = (_kill, _kill, _close, _between("freeze", "thaw"), _between("stall", "wake"), _cut, _disconnect, _subscribe)

# ---------------------------------------------------------------- faults of a cluster

SLOW_REPLICAS = Ranges(replicate=(300, 8_000))


def _stall_writes(chance: Random, at_ms: int, _: int) -> list[Event]:
    return [Event(at_ms, "stall-writes", None, {"for_ms": chance.choice([300, 2_000, 4_900, 5_200, 8_000, 20_000])})]


def _pause(chance: Random, at_ms: int, brokers: int) -> list[Event]:
    who = str(chance.randint(1, brokers))
    for_ms = chance.choice([300, 1_500, 3_000, 7_000, 12_000, 30_000])
    return [Event(at_ms, "pause", who), Event(at_ms + for_ms, "resume", who)]


def _move(chance: Random, at_ms: int, brokers: int) -> list[Event]:
    args = {
        "tail": chance.random() < 0.5,
        "late_ms": chance.choice([10, 50, 1_000, 4_000, 15_000]),
        "load_ms": chance.choice([1, 20, 500, 3_000]),
    }
    return [Event(at_ms, "elect", str(chance.randint(1, brokers)), args)]


def _step_clock(chance: Random, at_ms: int, brokers: int) -> list[Event]:
    by_ms = chance.choice([200, 1_000, 5_000, 30_000, 3_600_000]) * chance.choice([-1, 1])
    return [Event(at_ms, "step-clock", str(chance.randint(1, brokers)), {"by_ms": by_ms})]


def _compact(chance: Random, at_ms: int, brokers: int) -> list[Event]:
    return [Event(at_ms, "compact", str(n), {"active": chance.choice([0, 1, 10])}) for n in range(1, brokers + 1)]


NO_FAULTS = Faults()
FAULTS = {
    "stalls": Faults((_stall_writes,), ranges=SLOW_REPLICAS),
    "pauses": Faults((_pause,)),
    "moves": Faults((_move,), brokers=3, ranges=SLOW_REPLICAS),
    "compaction": Faults((_move, _compact, _compact), (5_000, 30_000), brokers=3, ranges=SLOW_REPLICAS),
    "steps": Faults((_step_clock,)),
    "skew": Faults((_move,), brokers=3, offsets_ms=(-2_000, 2_000)),
}

ALL_KINDS = [
    members + faults for members in MEMBERS for faults in ("", *(f"+{name}" for name in FAULTS if name != "steps"))
]
"""Without kinds whose clocks step: some of their lives are judged wrong (`docs/truth.md`, *Clocks that step*)."""

# ---------------------------------------------------------------- a plan


def draw(kind: str, seed: int, lasts_ms: int | None = None) -> Plan:
    """Return the plan of a kind and a seed. ``lasts_ms`` sets the length, and gives another life."""
    members_name, _, faults_name = kind.partition("+")
    members, faults = MEMBERS[members_name], FAULTS[faults_name] if faults_name else NO_FAULTS
    chance = Random(f"{kind}/{seed}")
    drawn_ms = chance.choice([90_000, 150_000, 240_000])
    until_ms = lasts_ms or drawn_ms
    clients = tuple(members.drawn(chance, f"c{n}") for n in range(1, chance.randint(*members.count) + 1))
    events = [event for client in clients for event in _befallen(chance, client, until_ms - SETTLES_MS)]
    at_ms = chance.randint(*faults.every_ms)
    while faults.drawn and at_ms < until_ms - SETTLES_MS:
        events += chance.choice(faults.drawn)(chance, at_ms, faults.brokers)
        at_ms += chance.randint(*faults.every_ms)
    return Plan(
        seed,
        kind,
        until_ms,
        clients,
        tuple(sorted(events, key=lambda event: event.at_ms)),
        clock_offsets_ms=tuple(chance.randint(*faults.offsets_ms) for _ in range(faults.brokers)),
        config={"group.initial.rebalance.delay.ms": chance.choice(["0", "0", "3000"])} | (members.config or {}),
        ranges=faults.ranges,
        metadata_ms=chance.choice([0, 5_000]),
    )


def _befallen(chance: Random, client: Client, until_ms: int) -> list[Event]:
    """Return a client's start and its faults until an instant."""
    at_ms = chance.choice([0, chance.randint(0, 5_000), chance.randint(0, until_ms // 2)])
    events = [Event(at_ms, "start", client.name)]
    calm_ms = chance.choice([8_000, 20_000, 60_000])
    while True:
        at_ms = max(event.at_ms for event in events) + chance.randint(500, 2 * calm_ms)
        if at_ms >= until_ms:
            return [event for event in events if event.at_ms < until_ms]
        events += chance.choice(MISHAPS)(chance, client, at_ms)

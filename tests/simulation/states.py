"""``docs/states.md``: the states of groups as Mermaid diagrams, drawn from what the simulated coordinators did.

``python -m tests.simulation.states`` writes it. The transitions are those of seeded lives of made-up clients. The
simulation refuses one that Kafka does not allow (``classic.VALID_FROM``), and the state machines hold the replica to
the same coordinators.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from tests.simulation.classic import ClassicGroup, Transition
from tests.simulation.clients import Client
from tests.simulation.modern import ConsumerGroup
from tests.simulation.modern_clients import ModernClient
from tests.simulation.world import Connection, World

PAGE = Path(__file__).parents[2] / "docs" / "states.md"
LIVES, STEPS = 80, 30
WAITS_MS = (1, 50, 500, 2_500, 7_000, 13_000, 31_000, 46_000)
TOPICS = (("t",), ("t", "u"), ("u",))
TEXT = """# States of groups

Drawn from the transitions of the simulated coordinators in `tests/simulation` (`python -m tests.simulation.states`
writes this page; a test compares), to which the replica is held after every step of other lives.

## Classic groups

The coordinator keeps the state and writes it only when the group becomes Stable or Empty; a reader of both logs learns
of a rebalance with the first answer that betrays it. Dead: deleted, or not there yet.

```mermaid
{classic}
```

## KIP-848 consumer groups

The state is derived from epochs and members, never stored, and all of it is in the log. Where the assignment is
computed at once (before Kafka 4.3, or an interval of 0) Assigning is not seen.

```mermaid
{consumer}
```
"""


@functools.cache
def classic_life(seed: int) -> set[Transition]:
    random = Random(seed)
    group = ClassicGroup(World(), "g", initial_delay_ms=random.choice((0, 3_000)), append_ms=random.choice((0, 30)))

    def start(n: int) -> Client:
        instance = random.choice((None, None, None, "i1", "i2"))
        times = (random.choice((6_000, 10_000)), random.choice((12_000, 30_000)))
        who = Connection(f"c{n}", "10.0.0.7", 5_000 + n)
        return Client(
            group, who, random, random.choice(TOPICS), instance, *times, minds_polls=random.choice((True, False))
        )

    _wander(group, start, random)
    return group.transitions


def consumer_life(seed: int) -> set[Transition]:
    random = Random(seed)
    group = ConsumerGroup(World(), "g", assignment_interval_ms=random.choice((0, 1_000)))

    def start(n: int) -> ModernClient:
        instance = random.choice((None, None, None, "i1", "i2"))
        client = ModernClient(group, Connection(f"c{n}", "10.0.0.7", 5_000 + n), random, f"m{n}", ("t",), instance)
        client.minds_polls = random.choice((True, False))
        return client

    _wander(group, start, random)
    return group.transitions


def _wander(group: ClassicGroup | ConsumerGroup, start: Callable[[int], Client | ModernClient], random: Random) -> None:
    """Let some clients live at random."""
    clients: list[Client | ModernClient] = []
    for n in range(STEPS):
        living = [c for c in clients if c.alive]
        what = random.choice(("start", "start", "kill", "freeze", "stall", "wake", "close", "subscribe", "delete"))
        if what == "delete":
            group.delete()
        elif what == "start" or not living:
            clients.append(start(n))
        elif what == "subscribe":
            random.choice(living).subscribe(random.choice(TOPICS))
        else:
            client = random.choice(living)
            if client.frozen:
                client.thaw()
            elif what != "wake" or not client.polling:
                getattr(client, what)()
        group.world.run(random.choice(WAITS_MS))


def diagram(transitions: Iterable[Transition]) -> str:
    """Draw them, the events of one arrow together."""
    arrows: dict[tuple[str, str], set[str]] = defaultdict(set)
    for t in transitions:
        arrows[str(t.before), str(t.after)].add(t.event)
    lines = [f"    {before} --> {after}: {', '.join(sorted(events))}" for (before, after), events in arrows.items()]
    return "\n".join(["stateDiagram-v2", *sorted(lines)])


def page() -> str:
    """The whole page."""
    classic = set().union(*(classic_life(seed) for seed in range(LIVES)))
    consumer = set().union(*(consumer_life(seed) for seed in range(LIVES)))
    return TEXT.format(classic=diagram(classic), consumer=diagram(consumer))


if __name__ == "__main__":
    PAGE.write_text(page())

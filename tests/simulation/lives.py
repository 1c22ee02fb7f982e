"""Random lives by their seeds: `python -m tests.simulation.lives classic --count 500`.

They are the state machines' own rules, chosen by plain chance: more lives a second than Hypothesis plays, each to be
had again by its seed. One that fails is shrunk by leaving steps out, and printed.
"""

import argparse
import sys
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis.control import BuildContext
from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.stateful import Rule

from tests.simulation.play import Play
from tests.simulation.test_classic_group import ClassicGroupMachine
from tests.simulation.test_consumer_group import ConsumerGroupMachine

MACHINES: dict[str, type[Play]] = {"classic": ClassicGroupMachine, "consumer": ConsumerGroupMachine}
SHOWN_EVERY = 50
ALWAYS, USED = ("wait", "start"), 0.75  # a life has its own character: not every rule is in it


@dataclass(frozen=True)
class Step:
    """A rule with the arguments that chance gave it."""

    rule: Rule
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return (
            f"{self.rule.function.__name__}({', '.join(f'{name}={value}' for name, value in self.arguments.items())})"
        )


def life(machine: type[Play], seed: int, steps: int) -> list[Step]:
    """Draw a life: how it begins, then its steps; those that suit nobody as their turn comes are left out."""
    chance = Random(seed)
    data = ConjectureData(random=chance)
    known = machine().setup_state()
    [begin] = known.initializers
    rules = [each for each in known.rules if each.function.__name__ in ALWAYS or chance.random() < USED]
    chosen = [begin, *(chance.choice(rules) for _ in range(steps))]
    with BuildContext(data, wrapped_test=life):
        return [Step(rule, {name: data.draw(of) for name, of in rule.arguments.items()}) for rule in chosen]


def failure(machine: type[Play], steps: list[Step]) -> AssertionError | None:
    """Live a life; return what was wrong in it."""
    played = machine()
    try:
        for step in steps:
            if all(suits(played) for suits in step.rule.preconditions):
                step.rule.function(played, **step.arguments)
                played.the_replica_equals_the_coordinator()
        played.teardown()
    except AssertionError as error:
        return error
    return None


def shrunk(machine: type[Play], steps: list[Step], like: AssertionError) -> list[Step]:
    """Leave out what a life can do without and still fail at the same place: halves first, single steps last."""
    size = len(steps) // 2
    while size:
        at = 1  # the beginning stays
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            again = failure(machine, fewer)
            if again is not None and _place(again) == _place(like):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


def _place(error: AssertionError) -> int:
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_lineno


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("machine", choices=MACHINES)
    parser.add_argument("--first", type=int, default=1, help="seed of the first life")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    machine, wrong = MACHINES[options.machine], 0
    for seed in range(options.first, options.first + options.count):
        steps = life(machine, seed, options.steps)
        found = failure(machine, steps)
        if found is not None:
            wrong += 1
            steps = shrunk(machine, steps, found)
            print(f"life {seed} fails:", *steps, repr(failure(machine, steps)), sep="\n  ", flush=True)
        if (seed - options.first + 1) % SHOWN_EVERY == 0:
            print(f"{seed - options.first + 1} lives, {wrong} wrong", flush=True)
    print(f"{options.count} {options.machine} lives from seed {options.first} on, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

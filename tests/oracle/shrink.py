"""Makes a life that is judged wrong as small as it can be, and keeps it.

python -m tests.oracle.shrink KIND/SEED [--sort WHAT/RULE] [--keep NAME]

Leaves out clients, faults and time as long as monitor and coordinator disagree in the same way, and prints the story
that is left. ``--sort``: the disagreement to keep, as missing/session-expired; the first by default. ``--keep``: write
the life to tests/fixtures/lives, where `test_kept_lives.py` judges it.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from tests.oracle import story
from tests.oracle.driver import Driver
from tests.oracle.judge import judge
from tests.oracle.kept import keep
from tests.oracle.kinds import draw
from tests.oracle.life import Life
from tests.oracle.plans import Plan, Ranges

SOON_MS = 100
"""How soon after the start of a life the first event happens."""

Sort = tuple[str, str]


def sorts(life: Life) -> list[Sort]:
    """Return the ways in which monitor and coordinator disagree, each once, in order."""
    return list(dict.fromkeys((each.what, each.rule) for each in judge(life).disagreements))


def shrink(plan: Plan, sorts_of: Callable[[Plan], Collection[Sort]], wanted: Sort | None = None) -> Plan:
    """Return the smallest plan found that is wrong in the wanted way, by default in the first way of the given plan.

    Raise ValueError if the plan is not wrong in that way.
    """
    sort = next((sort for sort in sorts_of(plan) if wanted in (None, sort)), None)
    if sort is None:
        raise ValueError(f"{plan.kind}/{plan.seed} is not wrong" + (f" as {'/'.join(wanted)}" if wanted else ""))

    def still_wrong(smaller: Plan) -> bool:
        return sort in sorts_of(smaller)

    before = None
    while plan != before:
        before = plan
        for candidates in (_less_time, _earlier, _fewer_clients, _fewer_events, _simpler):
            plan = _first_wins(plan, candidates, still_wrong)
    return plan.without_idle()


def _first_wins(plan: Plan, candidates: Callable[[Plan], Iterator[Plan]], wrong: Callable[[Plan], bool]) -> Plan:
    """Take the first smaller plan that is still wrong, and repeat until there is none."""
    while True:
        for smaller in candidates(plan):
            if smaller != plan and wrong(smaller):
                plan = smaller
                break
        else:
            return plan


def _less_time(plan: Plan) -> Iterator[Plan]:
    for part in (2, 4, 8, 16):
        until_ms = plan.until_ms - plan.until_ms // part
        yield replace(plan, until_ms=until_ms, events=tuple(e for e in plan.events if e.at_ms < until_ms))


def _earlier(plan: Plan) -> Iterator[Plan]:
    idle_ms = min((event.at_ms for event in plan.events), default=0)
    if idle_ms > SOON_MS:
        events = tuple(replace(event, at_ms=event.at_ms - idle_ms + SOON_MS) for event in plan.events)
        yield replace(plan, until_ms=plan.until_ms - idle_ms + SOON_MS, events=events)


def _fewer_clients(plan: Plan) -> Iterator[Plan]:
    for client in plan.clients:
        yield replace(
            plan,
            clients=tuple(other for other in plan.clients if other != client),
            events=tuple(event for event in plan.events if event.who != client.name),
        )


def _fewer_events(plan: Plan) -> Iterator[Plan]:
    size = len(plan.events) // 2
    while size:
        for at in range(0, len(plan.events), size):
            yield replace(plan, events=plan.events[:at] + plan.events[at + size :])
        size //= 2


def _simpler(plan: Plan) -> Iterator[Plan]:
    yield replace(plan, ranges=replace(Ranges(), replicate=plan.ranges.replicate))
    yield replace(plan, ranges=replace(plan.ranges, replicate=(0, 0)))
    yield replace(plan, topics={"t": 1, "u": 1})
    for n, client in enumerate(plan.clients):
        for plain in (replace(client, commit_ms=0), replace(client, poll_ms=(100, 200)), replace(client, version=9)):
            if client.protocol == "classic":
                yield replace(plan, clients=(*plan.clients[:n], plain, *plan.clients[n + 1 :]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("life", help="KIND/SEED, as `lives` prints it")
    parser.add_argument("--keep", metavar="NAME", help="write what is left to tests/fixtures/lives")
    parser.add_argument("--sort", metavar="WHAT/RULE", help="in which way it is wrong, where there are several")
    options = parser.parse_args()
    kind, _, seed = options.life.rpartition("/")
    what, _, rule = (options.sort or "").partition("/")
    with Driver() as driver:
        try:
            wanted = (what, rule) if options.sort else None
            plan = shrink(draw(kind, int(seed)), lambda smaller: sorts(driver.play(smaller)), wanted)
        except ValueError as error:
            print(error)
            return 1
        life = driver.play(plan)
        story.tell(life)
        if options.keep:
            print("kept as", keep(options.keep, plan, driver.lines(plan)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

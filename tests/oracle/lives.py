"""Random lives on Kafka's own coordinator: `python -m tests.oracle.lives --kinds classic,static+moves --count 1000`.

Prints every life that monitor and coordinator see differently, what differs, and the totals. Exits with 1 if there is
such a life. `python -m tests.oracle.story KIND/SEED` prints a life again, and `…shrink KIND/SEED` makes it smaller.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread

from streaming.embedded.truth import REBALANCE_TIMEOUT, SESSION_EXPIRED
from tests.oracle.driver import Driver, classes, why_not
from tests.oracle.judge import judge
from tests.oracle.kinds import ALL_KINDS, draw

PROGRESS_EVERY = 500
MOST_LISTED = 0.03
"""The largest share of removals that may be called undecidable: a class that grows may hide a fault of the monitor. It
was 0.7% in 10,000 lives."""
FEW_LISTED = 5
"""So many say nothing yet."""
SHOWN = 6
"""How many of a life's disagreements are printed."""


@dataclass
class Played:
    """The result of a life."""

    name: str
    virtual_ms: int
    rows: int
    metadata: bool
    """Whether brokers are asked for metadata, which names the coordinator."""
    compared: Counter[str]
    wrong: list[str] = field(default_factory=list)
    sorts: Counter[str] = field(default_factory=Counter)
    listed: Counter[str] = field(default_factory=Counter)


def end_with_parent() -> None:
    """End this process when its parent ends, however it ends: else a worker and its Java would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        Thread(target=lambda: wait([sentinel]) and os._exit(1), daemon=True).start()


class _Worker:
    """The driver of one worker process."""

    driver: Driver

    @classmethod
    def start(cls, compiled: Path) -> None:
        end_with_parent()
        cls.driver = Driver(compiled)

    @classmethod
    def play(cls, kind: str, seed: int) -> Played:
        life = cls.driver.play(draw(kind, seed))
        judgement = judge(life)
        played = Played(
            f"{kind}/{seed}", life.plan.until_ms, len(life.rows), life.plan.metadata_ms > 0, judgement.compared
        )
        played.wrong = [*life.trouble(), *map(str, judgement.disagreements)]
        played.sorts.update(f"{d.what} {d.rule}" for d in judgement.disagreements)
        played.listed = judgement.listed
        return played


def play(names: list[tuple[str, int]], processes: int) -> Iterator[Played]:
    """Play and judge lives, with one driver per process."""
    with ProcessPoolExecutor(processes, initializer=_Worker.start, initargs=(classes(),)) as pool:
        kinds, seeds = zip(*names, strict=True)
        yield from pool.map(_Worker.play, kinds, seeds, chunksize=min(10, 1 + len(names) // processes))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("lives", nargs="*", metavar="KIND/SEED", help="these lives instead of drawn ones")
    parser.add_argument("--kinds", default=",".join(ALL_KINDS), help="members and faults, as static+moves; all")
    parser.add_argument("--first", type=int, default=1, help="seed of the first life")
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if missing := why_not():
        print(missing)
        return 1
    kinds = options.kinds.split(",")
    names = [(kinds[seed % len(kinds)], seed) for seed in range(options.first, options.first + options.count)]
    if options.lives:
        names = [(kind, int(seed)) for kind, _, seed in (name.rpartition("/") for name in options.lives)]
    began = time.perf_counter()
    lives = []
    for life in play(names, options.processes):
        lives.append(life)
        if life.wrong:
            print(f"{life.name}:", *life.wrong[:SHOWN], sep="\n  ", flush=True)
        if len(lives) % PROGRESS_EVERY == 0:
            print(f"{len(lives)} lives, {sum(bool(each.wrong) for each in lives)} wrong", flush=True)
    print(summary(lives, time.perf_counter() - began, options.processes))
    return 1 if any(life.wrong for life in lives) or lists_too_many(lives) else 0


def lists_too_many(lives: list[Played]) -> bool:
    """Tell whether more removals are called undecidable than usual, in lives enough to tell."""
    listed = sum(sum(life.listed.values()) for life in lives)
    removals = sum(life.compared[rule] for life in lives for rule in (SESSION_EXPIRED, REBALANCE_TIMEOUT))
    return listed > FEW_LISTED and listed > MOST_LISTED * (removals + listed)


def summary(lives: list[Played], took_s: float, processes: int) -> str:
    """Return the numbers: what was played, how fast, and with what result."""
    compared, sorts, listed = Counter[str](), Counter[str](), Counter[str]()
    for life in lives:
        compared += life.compared
        sorts += life.sorts
        listed += life.listed
    minutes, rows = sum(life.virtual_ms for life in lives) / 60_000, sum(life.rows for life in lives)
    speed = f"in {took_s:.0f} s by {processes} processes: {len(lives) / took_s:.1f} lives a second"
    return "\n".join(
        [
            f"{len(lives)} lives of {minutes:.0f} virtual minutes, {rows} rows, {speed}",
            f"compared: {_counts(compared)}",
            f"wrong: {sum(bool(life.wrong) for life in lives)} lives; {_counts(sorts) or 'nothing'}",
            f"nobody outside can decide: {_counts(listed) or 'nothing'}"
            + f"; more than {MOST_LISTED:.0%} of all removals, which is wrong" * lists_too_many(lives),
            *_by_fault(lives),
        ]
    )


def _by_fault(lives: list[Played]) -> Iterator[str]:
    """Yield a table by fault: lives, removals that both sides have, and wrong lives with and without metadata."""
    yield "\n| fault | lives | removals | wrong with metadata | wrong without |\n| --- | ---: | ---: | ---: | ---: |"
    faults = [life.name.partition("/")[0].partition("+")[2] or "none" for life in lives]
    for fault in dict.fromkeys(sorted(faults)):
        played = [life for life, its in zip(lives, faults, strict=True) if its == fault]
        removals = sum(life.compared[rule] for life in played for rule in (SESSION_EXPIRED, REBALANCE_TIMEOUT))
        wrong = [life.metadata for life in played if life.wrong]
        asked = sum(life.metadata for life in played)
        yield (
            f"| {fault} | {len(played)} | {removals} | {sum(wrong)} of {asked} | {len(wrong) - sum(wrong)} of"
            f" {len(played) - asked} |"
        )


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {what.strip()}" for what, count in sorted(counted.items()))


if __name__ == "__main__":
    sys.exit(main())

"""What the monitor says when its telemetry is bad: `python -m tests.oracle.truth --count 20`.

Plays lives on Kafka's own coordinator, perturbs what the monitor reads of each (`perturb.py`), and counts what it says
about members that were removed for a timeout. `docs/truth.md` has the table. If a fault ends, it also counts verdicts
that are not true among removals more than two session timeouts after that end.
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from coordinator_model.decode.source_row import TELEMETRY, SourceRow
from coordinator_model.shard.shard import ShardSettings
from streaming.embedded.truth import REBALANCE_TIMEOUT, SESSION_EXPIRED
from tests.oracle.coverage import told_uncovered
from tests.oracle.driver import Driver, classes, why_not
from tests.oracle.judge import COORDINATOR_PAUSED, disagreements, settings_of
from tests.oracle.kinds import draw
from tests.oracle.life import Life
from tests.oracle.lives import end_with_parent
from tests.oracle.monitor import Monitor
from tests.oracle.pages import false_pages
from tests.oracle.perturb import (
    BY_ANOTHER_CLOCK,
    ENDING,
    LONG_MS,
    OF_LONG_LIVES,
    OF_SEVERAL_BROKERS,
    ONE_LATE_OR_MISDATED,
    PERTURBATIONS,
    Arrival,
    arrivals,
    as_played,
    ended_ms,
)

KINDS = "classic,static,cooperative,old,consumer,consumer-static,regex,mixed,share,streams"
OF_ONE_BROKER = PERTURBATIONS | BY_ANOTHER_CLOCK
OF_SEVERAL = OF_SEVERAL_BROKERS | ONE_LATE_OR_MISDATED
BATCH_MS = 2_000
RECOVERED = "not true once recovered"
BLAMED = "brokers blamed"
UNTOLD = "missed untold"
FALSE_PAGES = "false pages"
COLUMNS = (
    *("true", "unknown", "missed", UNTOLD, "wrong cause", "off", "refuted", "false", BLAMED, FALSE_PAGES),
    RECOVERED,
)
OF = {"missing": "missed", "cause": "wrong cause", "off": "off", "refuted": "refuted", "extra": "false"}


class _Worker:
    """The driver of one worker process."""

    driver: Driver

    @classmethod
    def start(cls, compiled: Path) -> None:
        end_with_parent()
        cls.driver = Driver(compiled)

    @classmethod
    def judge(
        cls, kind: str, seed: int, chosen: list[str], lasts_ms: int | None
    ) -> dict[str, tuple[Counter[str], list[str]]]:
        life = cls.driver.play(draw(kind, seed, lasts_ms))
        reference = as_played_of(life)
        return {name: count(life, name, reference) for name in chosen}


def as_played_of(life: Life) -> list[dict[str, Any]]:
    """Return the incidents of a life whose telemetry is perfect."""
    return read(settings_of(life), arrivals(life.rows, as_played, "")).incidents()


def read(settings: ShardSettings, came: list[Arrival]) -> Monitor:
    """Return a monitor that has read rows as they came. It starts as the first line comes or is dated."""
    live_from_ms = next((min(at_ms, row.timestamp_ms) for at_ms, row in came if row.source == TELEMETRY), 0)
    monitor = Monitor(replace(settings, live_from_ms=live_from_ms))
    batch: list[SourceRow] = []
    until_ms = 0
    for at_ms, row in came:
        if at_ms > until_ms:
            monitor.read(batch)
            batch, until_ms = [], at_ms + BATCH_MS
        batch.append(row)
    monitor.read(batch, final=True)
    return monitor


def count(life: Life, name: str, reference: list[dict[str, Any]] | None = None) -> tuple[Counter[str], list[str]]:
    """Count what the monitor says about a life with perturbed telemetry, and list what is wrong.

    ``reference``: what it says if telemetry is perfect; None: find out.
    """
    about = f"{life.plan.kind}/{life.plan.seed}"
    came = arrivals(life.rows, (OF_ONE_BROKER | OF_LONG_LIVES | OF_SEVERAL)[name], f"{about}/{name}")
    monitor = read(settings_of(life), came)
    told, uncovered = monitor.incidents(), told_uncovered(monitor, came)
    compared, counted, listed = Counter[str](), Counter[str](), list[str]()
    pages = false_pages(told, as_played_of(life) if reference is None else reference, came)
    counted[FALSE_PAGES] = len(pages)
    listed += [f"{name}: {about}: false page {page}" for page in pages]
    longest_ms = max(client.session_ms for client in life.plan.clients)
    recovered_ms = ended_ms(life.rows, came) + 2 * longest_ms
    for wrong in disagreements(life, told, compared):
        counted[RECOVERED] += name in ENDING and (wrong.truth_ms or wrong.told_ms or 0) > recovered_ms
        if wrong.what == "unknown":
            counted["unknown"] += 1
            continue
        untold = wrong.what == "missing" and not uncovered.at(wrong, longest_ms)
        listed.append(f"{name}: {about}: {'untold ' * untold}{wrong}")
        counted[BLAMED if wrong.rule == COORDINATOR_PAUSED else OF[wrong.what]] += 1
        counted[UNTOLD] += untold
    counted["true"] = compared[SESSION_EXPIRED] + compared[REBALANCE_TIMEOUT] - counted["wrong cause"] - counted["off"]
    return counted, listed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kinds", default=KINDS, help="members and faults, as static+moves")
    parser.add_argument("--first", type=int, default=1, help="seed of the first life of each kind")
    parser.add_argument("--count", type=int, default=20, help="lives of each kind")
    parser.add_argument("--only", help="perturbations whose name has this text")
    parser.add_argument("--long", action="store_true", help="lives of 90 minutes, and what is tried on those only")
    parser.add_argument(
        "--moves",
        action="store_true",
        help="lives whose coordinator moves; one broker's lines are lost, late or misdated",
    )
    parser.add_argument("--list", action="store_true", help="list all that is wrong, too")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if missing := why_not():
        print(missing)
        return 1
    lasts_ms = LONG_MS if options.long else None
    tried = OF_LONG_LIVES if options.long else OF_SEVERAL if options.moves else OF_ONE_BROKER
    chosen = [name for name in tried if (options.only or "") in name]
    kinds = [kind + "+moves" * (options.moves and "+" not in kind) for kind in options.kinds.split(",")]
    names = [(kind, seed) for kind in kinds for seed in range(options.first, options.first + options.count)]
    began = time.perf_counter()
    sums = {name: Counter[str]() for name in chosen}
    with ProcessPoolExecutor(options.processes, initializer=_Worker.start, initargs=(classes(),)) as pool:
        for counts in pool.map(
            _Worker.judge, *zip(*names, strict=True), [chosen] * len(names), [lasts_ms] * len(names)
        ):
            for name, (counted, listed) in counts.items():
                sums[name] += counted
                if options.list and listed:
                    print(*listed, sep="\n")
    print(f"{len(names)} lives of {options.kinds}, seeds from {options.first}, {time.perf_counter() - began:.0f} s\n")
    print(table(sums))
    return 0


def table(sums: dict[str, Counter[str]]) -> str:
    """Return the numbers as Markdown."""
    lines = [f"| telemetry | {' | '.join(COLUMNS)} |", "| --- |" + " ---: |" * len(COLUMNS)]
    for name, counted in sums.items():
        cells = [str(counted[c]) if c != RECOVERED or name in ENDING else "" for c in COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""`make fuzz`: cases by rising seeds, one after the other, until the time is over. Exits 1 if any failed."""

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.case import Case, failures, kind_of, make, read, shrunk, write
from tests.fuzz.pipeline import Pipeline

CASES_A_DATABASE = 100
"""After so many cases the database is recreated, and what a job process remembers is forgotten."""
SHOW_EVERY_S = 30.0
RSS_GROWTH_MB = 200
"""How much the process may grow after its first databases."""


@dataclass
class FuzzRun:
    """The results of the cases so far."""

    first_seed: int
    out: Path
    cases: int = 0
    rows: int = 0
    changed: int = 0
    failed: list[int] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    settled_mb: float = 0.0

    def one(self, seed: int, pipeline: Pipeline) -> None:
        """Run the case of a seed; shrink and write it if it fails."""
        case = make(seed)
        self.cases += 1
        self.rows += len(case.after)
        self.changed += sum(change.changed for change in case.changes)
        if found := failures(case, pipeline):
            self.failed.append(seed)
            self.kinds.update(map(kind_of, found))
            print(f"seed {seed} fails: {'; '.join(found)}\n  again: make fuzz SEED={seed} FUZZ_CASES=1", flush=True)
            self._keep(seed, case, found, pipeline)

    def _keep(self, seed: int, case: Case, found: list[str], pipeline: Pipeline) -> None:
        wanted = kind_of(found[0])
        if self.kinds[wanted] > 3:
            return  # the same failure again
        serve = not wanted.startswith(("batch", "group", "others", "state", "columns"))

        def still_fails(tried: Case) -> bool:
            return wanted in map(kind_of, failures(tried, pipeline, serve=serve))

        small = shrunk(case, still_fails)
        path = self.out / f"seed-{seed}.jsonl.gz"
        write(small, path)
        changed = sum(change.changed for change in small.changes)
        again = f"{sys.executable} -m tests.fuzz --case {path}"
        print(f"  made small: {len(small.changes)} rows, {changed} of them changed: {again}", flush=True)

    def settle(self) -> str | None:
        """After a database: complain if the process has grown since its second one."""
        now_mb = rss_mb()
        if self.cases <= 2 * CASES_A_DATABASE:
            self.settled_mb = now_mb
        elif now_mb > self.settled_mb + RSS_GROWTH_MB:
            return f"memory: {now_mb:.0f} MB, {self.settled_mb:.0f} MB after {2 * CASES_A_DATABASE} cases"
        return None

    def told(self, seconds: float) -> str:
        """Return how far it is, as text."""
        last = self.first_seed + max(0, self.cases - 1)
        return (
            f"{self.cases:,} cases (seeds {self.first_seed} to {last}), {self.rows:,} rows, {self.changed:,} of them"
            f" changed or added, {len(self.failed)} failed, {rss_mb():.0f} MB, {seconds:.0f} s"
        )


def rss_mb() -> float:
    """Return how much memory the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def run(seconds: float, seed: int, out: Path, count: int | None = None) -> FuzzRun:
    """Run cases until the time is over, or until there were `count`."""
    state, started_s = FuzzRun(seed, out), time.monotonic()
    shown_s, over = started_s, False
    while not over:
        with tempfile.TemporaryDirectory() as folder:
            pipeline = Pipeline(Path(folder))
            for _ in range(CASES_A_DATABASE):
                now_s = time.monotonic()
                over = now_s - started_s >= seconds if count is None else state.cases >= count
                if over:
                    break
                if now_s - shown_s >= SHOW_EVERY_S:
                    shown_s = now_s
                    print(state.told(now_s - started_s), flush=True)
                state.one(seed + state.cases, pipeline)
            pipeline.close()
        if complaint := state.settle():
            state.failed.append(-1)
            print(complaint, flush=True)
            break
    print(state.told(time.monotonic() - started_s), flush=True)
    return state


def _written(path: Path) -> list[str]:
    """Run a case from its file; print and return what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        found = failures(read(path), Pipeline(Path(folder)))
    print("\n".join(found) or "nothing is wrong with it")
    return found


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--count", type=int, help="so many cases, whatever time they take")
    parser.add_argument("--case", type=Path, help="run the one case that was written into this file")
    parser.add_argument("--out", type=Path, default=Path("fuzz-data"), help="where cases that fail are written")
    given = parser.parse_args()
    if given.case:
        return 1 if _written(given.case) else 0
    return 1 if run(given.seconds, given.seed, given.out, given.count).failed else 0


if __name__ == "__main__":
    sys.exit(main())

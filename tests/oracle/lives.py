"""Random lives on Kafka's own coordinator: `python -m tests.oracle.lives --kinds classic,static+moves --count 1000`.

Prints every life that monitor and coordinator see differently, with what differs; exit 1 if there is one.
"""

import argparse
import sys
import time
from collections import Counter

from tests.oracle.driver import Driver
from tests.oracle.judge import judge
from tests.oracle.kinds import FAULTS, MEMBERS, draw

ALL_KINDS = [f"{members}+{faults}" for members in MEMBERS for faults in FAULTS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", default=",".join(ALL_KINDS))
    parser.add_argument("--first", type=int, default=1, help="seed of the first life")
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    found: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    wrong = 0
    began, driver_s = time.perf_counter(), 0.0
    with Driver() as driver:
        for number in range(options.first, options.first + options.count):
            kind = kinds[number % len(kinds)]
            started = time.perf_counter()
            life = driver.play(draw(kind, number))
            driver_s += time.perf_counter() - started
            judgement = judge(life)
            compared += judgement.compared
            if judgement.disagreements or life.trouble():
                wrong += 1
                print(f"{kind}/{number}:", *life.trouble()[:3], *judgement.disagreements[:6], sep="\n  ", flush=True)
                found.update(f"{d.what} {d.rule}" for d in judgement.disagreements)
    took = time.perf_counter() - began
    print(f"{options.count} lives in {took:.0f} s ({driver_s:.0f} s of them playing), {wrong} wrong")
    print(dict(compared), dict(found))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

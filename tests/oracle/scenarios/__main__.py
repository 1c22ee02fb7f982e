"""Counts what Kafka's own tests leave outside, or tells one of them: `python -m tests.oracle.scenarios [SCENARIO]`."""

import argparse
import sys

from tests.oracle.scenarios.record import record, why_not
from tests.oracle.scenarios.verdicts import CLASSES, compared
from tests.oracle.story import tell


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="?", help="a test, as 'testLeaderFailureInSyncGroup()': its story")
    options = parser.parse_args()
    if missing := why_not():
        print(missing)
        return 1
    scenarios = record()
    if options.scenario:
        if options.scenario not in scenarios:
            parser.error(f"no scenario {options.scenario}")
        tell(scenarios[options.scenario].life)
        return 0
    print(f"{len({each.method for each in scenarios.values()})} tests, {len(scenarios)} scenarios")
    print(*(f"{len(methods)} tests are {name}" for name, methods in CLASSES.items()), sep="\n")
    print("compared:", ", ".join(f"{count} {what}" for what, count in sorted(compared(scenarios.values()).items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())

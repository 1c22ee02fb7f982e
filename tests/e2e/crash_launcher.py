"""`group-monitor run`, doomed: it kills its whole process group between the SQL commit of a batch and Spark's.

    python crash_launcher.py <when> run --config monitor.toml

<when>: a number n: after the n-th batch it applied; a transition (`opened`, `closed`): after the first batch that has
one of a session; `few`: never, but it reads few rows a batch, so that catching up takes many.
"""

import itertools
import os
import signal
import sys
from typing import Any

from streaming import cli
from streaming.run import source
from streaming.store import Store

FEW_ROWS = "150"


def doom(when: str) -> None:
    """Let the store kill the process group after it has committed that batch."""
    apply_batch, number = Store.apply_batch, itertools.count(1)

    def apply_and_die(store: Store, **batch: Any) -> Any:
        result = apply_batch(store, **batch)
        told = {step.kind.value for step in result.transitions if step.incident.rule == "session-expired"}
        if when in told or when == str(next(number)):
            os.killpg(0, signal.SIGKILL)
        return result

    Store.apply_batch = apply_and_die


if __name__ == "__main__":
    when = sys.argv.pop(1)
    if when == "few":
        source._READER["maxOffsetsPerTrigger"] = FEW_ROWS
    else:
        doom(when)
    cli.main()

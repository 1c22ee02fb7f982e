"""What the driver and the Python workers of Spark do with their garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

FREEZE_EVERY: Final = 4096
_tasks = count(1)


def freeze_garbage() -> None:
    """Take what a worker keeps out of the garbage collector's sight; called at the start of each source task.

    PySpark's daemon makes a full collection after every task, some ten a second here, and each would walk all of
    pandas, pyarrow, the known heartbeats and the shards again: a third of a worker's time. What is kept grows most in
    the first tasks. What was kept once and is garbage now is looked for each time.
    """
    task = next(_tasks)
    if task & (task - 1) == 0 or task % FREEZE_EVERY == 0:  # the 1st, 2nd, 4th, 8th, …
        gc.unfreeze()
        gc.collect()
        gc.freeze()


@contextmanager
def without_collections() -> Iterator[None]:
    """Put garbage collections off: a batch makes many objects, which reference counts free, and each costs one."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

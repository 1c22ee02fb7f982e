"""Garbage collection in the driver and in Spark's Python workers."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

FREEZE_EVERY: Final = 4096
_tasks = count(1)


def freeze_garbage() -> None:
    """Exclude what a worker keeps from garbage collection; called at the start of each source task.

    PySpark's daemon makes a full collection after every task, about ten a second here, and each would scan all of
    pandas, pyarrow, the known heartbeats and the shards again: a third of a worker's time. What is kept grows most in
    the first tasks. Before each freeze, objects that were kept and are garbage now are collected.
    """
    task = next(_tasks)
    if task & (task - 1) == 0 or task % FREEZE_EVERY == 0:  # the 1st, 2nd, 4th, 8th, …
        gc.unfreeze()
        gc.collect()
        gc.freeze()


@contextmanager
def without_collections() -> Iterator[None]:
    """Suspend garbage collection: a batch makes many objects, which reference counting frees anyway."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

"""What a Python worker of Spark does once a stage."""

import functools
import gc


@functools.cache
def settle(stage: str) -> None:  # noqa: ARG001 - each stage once, for each imports more
    """Take what a stage has imported out of the garbage collector's sight.

    PySpark's daemon makes a full collection after every task, some ten a second here, and each would walk all of
    pandas, pyarrow and ourselves again: a third of a worker's time.
    """
    gc.freeze()

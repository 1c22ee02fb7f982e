"""Which operator keys share one call of the operator: a lane, one a shuffle partition.

PySpark makes frames of the rows and of the state of every key that it calls the operator for, a millisecond or more
each: with fifty shards as its keys a third of what the operator's workers did (decision 0010). So Spark is told of
lanes, and the shards in one are the operator's own affair.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES_A_TASK = 64
"""How many names are tried a task: that none of them falls to one of the tasks has a chance of e^-64."""


def lane_names(spark: "SparkSession", tasks: int) -> tuple[str, ...]:
    """Name a lane for each task of a shuffle, so that Spark's hash of the names gives each task its own."""
    names = f"transform(sequence(0, {NAMES_A_TASK * tasks - 1}), name -> pmod(hash(string(name)), {tasks}))"
    task_of = spark.sql(f"SELECT {names}").head()[0]
    return tuple(str(task_of.index(task)) for task in range(tasks))

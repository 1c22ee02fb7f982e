"""Lanes: the operator keys that share one call of the operator, one lane per shuffle partition.

PySpark makes data frames of the rows and of the state of every key that it calls the operator for, at a millisecond or
more each. With fifty shards as keys that took a third of the operator's workers' time (decision 0010). So Spark groups
by lane, and the operator itself separates the shards in a lane.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES_A_TASK = 64
"""How many names to try per task: the probability that a given task gets none of them is e^-64."""


def lane_names(spark: "SparkSession", tasks: int) -> tuple[str, ...]:
    """Name a lane for each task of a shuffle, so that Spark's hash of the names gives each task its own."""
    names = f"transform(sequence(0, {NAMES_A_TASK * tasks - 1}), name -> pmod(hash(string(name)), {tasks}))"
    task_of = spark.sql(f"SELECT {names}").head()[0]
    return tuple(str(task_of.index(task)) for task in range(tasks))

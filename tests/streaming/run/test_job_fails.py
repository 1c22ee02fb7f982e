"""What the job does about a failed query: it waits, begins a fresh checkpoint, or ends."""

import threading
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from streaming.config.settings import Settings
from streaming.run.errors import RunError
from streaming.run.job import GIVE_UP_AFTER, RETIRE_AFTER, Job
from streaming.run.layout import LAYOUT_FILE, Checkpoint
from streaming.store.batch import CheckpointMismatchError

DEFECT = "KeyError: 'group'"
UNREADABLE = "org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] loading state"


@pytest.fixture
def job(tmp_path):
    """A job whose checkpoint has finished a batch. It does not wait between attempts."""
    stop = threading.Event()
    stop.set()
    settings = Settings.model_validate({"run": {"data_folder": tmp_path}})
    names = ("topics", "probe", "store", "spark", "on_batch", "reload", "on_catch_up")
    parts = {name: MagicMock() for name in names} | {"lease": SimpleNamespace(lost=None), "shuffle_partitions": 1}
    made = Job(settings, stop, **parts)
    made.spark.has_stopped.return_value = False
    made._checkpoint = Checkpoint("checkpoint-1", tmp_path / "checkpoint-1", 0, resumed=True)
    commits = made._checkpoint.folder / "commits"
    commits.mkdir(parents=True)
    (commits / "0").touch()
    (tmp_path / LAYOUT_FILE).touch()
    return made


def fails(job, said, cause=None):
    error = RuntimeError(said)
    error.__cause__ = cause
    job._failed(error)


def goes_on(job):
    return (job.settings.run.data_folder / LAYOUT_FILE).exists()


def test_a_checkpoint_that_cannot_be_read_is_set_aside_after_some_attempts(job):
    for _ in range(RETIRE_AFTER - 1):
        fails(job, UNREADABLE)
    assert goes_on(job)
    fails(job, UNREADABLE)
    assert not goes_on(job)


def test_no_other_failure_costs_a_good_checkpoint_and_in_the_end_run_ends(job):
    for _ in range(GIVE_UP_AFTER - 1):
        fails(job, DEFECT)
    with pytest.raises(RunError, match="failed 8 times"):
        fails(job, DEFECT)
    assert goes_on(job)


def test_run_ends_at_once_if_spark_has_stopped(job):
    """A new process starts a new Spark. In this one nothing would ever work again."""
    job.spark.has_stopped.return_value = True
    with pytest.raises(RunError, match="Spark has stopped"):
        fails(job, "IllegalStateException: Cannot call methods on a stopped SparkContext.")
    assert goes_on(job)


def test_a_checkpoint_that_is_behind_the_database_is_set_aside_at_once(job):
    fails(job, "pages of Java", CheckpointMismatchError("checkpoint-1 is at batch 0"))
    assert not goes_on(job)

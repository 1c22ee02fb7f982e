"""`kill -9` of one process of the job after another, chosen by a seed: nothing is lost, doubled or reopened.

`KILLS=…` says how many (50), `SEED=…` which; `make kills`. The job replaces a dead Python worker by itself. A dead JVM
ends the job with a line that says so, and a dead driver ends its JVM: a supervisor starts the job again. `serve` is
killed as often in `tests/streaming/serve/test_killed.py`.
"""

import os
import random
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from tests.e2e.crash_job import Job
from tests.e2e.crash_tale import Faults, NothingLost, Tale, cluster_and_job

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(7_200)]

KILLS = int(os.environ.get("KILLS", "50"))
SEED = int(os.environ.get("SEED", "1"))
ENDS_S = 60.0  # a second or two are enough; what never ends hangs silently


@pytest.fixture(scope="module")
def tale(tmp_path_factory):
    print(f"KILLS={KILLS} SEED={SEED}")
    with cluster_and_job(tmp_path_factory.mktemp("kills")) as tale:
        yield tell(tale, random.Random(SEED))


def tell(tale: Tale, chance: random.Random) -> Tale:
    """Kill something at instants that the seed chooses, and check that the rest goes on or ends; then conclude."""
    job, faults = tale.job, Faults(tale.cluster)
    for _ in range(KILLS):
        if not job.running:
            job.start()
        victim = chance.choice(sorted(KILL))
        if chance.random() < 0.7:
            job.await_batches(1)
            faults.begin()
        time.sleep(chance.uniform(0, 3))
        with (job.folder / "kills.txt").open("a") as notes:
            notes.write(f"{datetime.now(UTC)} {victim} after batch {job.batch()}\n")
        KILL[victim](job, chance)
        tale.killed[victim] += 1
    tale.conclude(faults)
    return tale


def kill_driver(job: Job, _: random.Random) -> None:
    """Kill the driver: its JVM must end too, but the next driver starts at once all the same."""
    job.process.kill()
    job.process.wait()


def kill_jvm(job: Job, _: random.Random) -> None:
    os.kill(*job.until(job.jvms), signal.SIGKILL)
    assert job.process.wait(ENDS_S) == 1, job.last_words()
    assert job.last_words().splitlines()[-1].startswith("run: Spark"), job.last_words()


def kill_worker(job: Job, chance: random.Random) -> None:
    """Kill a worker, or the daemon that forks workers: they look alike."""
    while True:
        with suppress(ProcessLookupError):  # a worker may end by itself meanwhile
            os.kill(chance.choice(job.until(job.workers)), signal.SIGKILL)
            break
    job.await_batches(1)


KILL = {"driver": kill_driver, "jvm": kill_jvm, "worker": kill_worker}


class TestOneProcess(NothingLost):
    """Driver, JVM or worker alone."""

    def test_each_kind_was_killed(self, tale):
        assert sum(tale.killed.values()) == KILLS
        assert min(tale.killed[victim] for victim in KILL) >= KILLS // 10

    def test_no_jvm_and_no_worker_outlives_its_driver(self, tale):
        assert tale.job.strays() == []

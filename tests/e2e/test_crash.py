"""`kill -9` the job ten times, at any instant: no incident is lost, doubled or reopened."""

import random
import time

import pytest

from tests.e2e.crash_cluster import now_ms
from tests.e2e.crash_job import Job
from tests.e2e.crash_tale import EXPIRED, Faults, NothingLost, Tale, cluster_and_job

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1_800)]

PAUSE_S = 60.0
# How each run ends, by its seed. `begin`: when its first checkpoint begins; `start`: while it starts; `batch`: in a
# batch or between two; the rest kill themselves between the two commits of a batch: of the second batch that they
# apply, or of the first one that opens or closes an incident. `pause`: as `batch`, and then nothing runs for a minute.
FATES = ["begin", "batch", "opened", "start", "2", "closed", "pause", "batch", "opened", "batch"]
OWN_HAND = {"2", "opened", "closed"}


@pytest.fixture(scope="module")
def tale(tmp_path_factory):
    with cluster_and_job(tmp_path_factory.mktemp("crash")) as tale:
        yield tell(tale)


def tell(tale: Tale) -> Tale:
    """Run and die ten times; then run once more, until everything that happened has been judged."""
    job, faults = tale.job, Faults(tale.cluster)
    for seed, fate in enumerate(FATES):
        catching_up = seed > 0 and FATES[seed - 1] == "pause"
        job.start("few" if catching_up else fate if fate in OWN_HAND else "")
        die(job, fate, random.Random(seed))
        faults.begin()
        if fate == "pause":
            tale.pause_ms = (now_ms(), now_ms() + int(PAUSE_S * 1_000))
            time.sleep(PAUSE_S)
    tale.conclude(faults)
    return tale


def die(job: Job, fate: str, chance: random.Random) -> None:
    """End a run at an instant that the seed chooses."""
    if fate in OWN_HAND:
        job.await_own_end()
        return
    if fate == "begin":
        job.until(job.said, lambda log: "fresh checkpoint" in log)
    elif fate == "start":
        time.sleep(chance.uniform(0, 8))
    else:
        job.await_batches(chance.randrange(1, 4))
    time.sleep(chance.uniform(0, 1.5))
    job.kill()


class TestTheWholeJob(NothingLost):
    """Driver, JVM and workers together."""

    def test_what_expired_while_nobody_watched_is_marked_late_and_what_was_seen_is_not(self, tale):
        late = {row["member_id"]: row["late"] for row in tale.job.incidents(EXPIRED)}
        begin_ms, end_ms = tale.pause_ms
        missed = [death for death in tale.cluster.deaths if begin_ms < death.deadline_ms < end_ms - 1_000]
        seen = [death for death in tale.cluster.deaths if death.deadline_ms > tale.at_work_ms]
        assert len(missed) >= 3
        assert len(seen) >= 2
        assert all(late[death.member_id] for death in missed)
        assert not any(late[death.member_id] for death in seen)

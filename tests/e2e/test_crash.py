"""`kill -9` the job ten times, at any instant: no incident is lost, doubled or reopened."""

import json
import random
import time
from dataclasses import dataclass

import pytest

from streaming.embedded import EmbeddedBrokerError, EmbeddedCluster
from streaming.embedded.jars import broker_class_path
from tests.e2e.crash_cluster import LiveCluster, now_ms
from tests.e2e.crash_job import Job

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1_800)]

GROUPS = ["orders", "payments", "audit", "search", "mail", "billing"]
DEATH_EVERY_MS, LEAVE_EVERY_MS = 7_000, 31_000
PAUSE_S = 60.0
# How each run ends, by its seed. `begin`: as its first checkpoint begins; `start`: while it starts; `batch`: in a batch
# or between two; the rest kill themselves between the two commits of a batch: the second one they apply, the first one
# that opens or closes an incident. `pause`: as `batch`, and then nothing runs for a minute.
FATES = ["begin", "batch", "opened", "start", "2", "closed", "pause", "batch", "opened", "batch"]
OWN_HAND = {"2", "opened", "closed"}


@dataclass
class Tale:
    """A cluster, a job that was killed ten times, and when nothing ran or the last process surely did."""

    cluster: LiveCluster
    job: Job
    pause_ms: tuple[int, int] = (0, 0)
    at_work_ms: int = 0


@pytest.fixture(scope="module")
def tale(tmp_path_factory):
    try:
        broker_class_path()
    except EmbeddedBrokerError as missing:
        pytest.skip(str(missing))
    with (
        EmbeddedCluster(telemetry=False, create_telemetry_topic=False) as broker,
        LiveCluster(broker, "crash", GROUPS, size=3, seed=10) as cluster,
    ):
        job = Job(cluster, tmp_path_factory.mktemp("crash"))
        try:
            yield tell(Tale(cluster, job))
        finally:
            job.kill()
            cluster.write_capture(job.folder / "capture.jsonl")  # for whoever has to find out what went wrong


def tell(tale: Tale) -> Tale:
    """Run and die ten times; then run once more, until everything that happened has been judged."""
    cluster, job = tale.cluster, tale.job
    faults = Faults(cluster)
    for seed, fate in enumerate(FATES):
        catching_up = seed > 0 and FATES[seed - 1] == "pause"
        job.start("few" if catching_up else fate if fate in OWN_HAND else "")
        die(job, fate, random.Random(seed))
        faults.begin()
        if fate == "pause":
            tale.pause_ms = (now_ms(), now_ms() + int(PAUSE_S * 1_000))
            time.sleep(PAUSE_S)
    job.start()
    job.await_batches(2)
    tale.at_work_ms, seen = now_ms(), len(cluster.deaths)
    job.until(lambda: len(cluster.deaths), lambda deaths: deaths >= seen + 2)
    faults.end()
    job.until(lambda: not cluster.awaited and all(group.at_rest for group in cluster.groups.values()))
    job.await_progress(now_ms() + 3_000)
    return tale


def die(job: Job, fate: str, chance: random.Random) -> None:
    """End a run at an instant of the seed's choice."""
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


@dataclass
class Faults:
    """Members that die, and some that leave, at regular instants."""

    cluster: LiveCluster
    at_work: bool = False

    def begin(self) -> None:
        if not self.at_work:
            self.at_work = True
            self.cluster.at(now_ms(), self._next_death)
            self.cluster.at(now_ms(), self._next_leave)

    def end(self) -> None:
        self.at_work = False

    def _next_death(self, at_ms: int) -> None:
        if self.at_work:
            self.cluster.someone_dies(at_ms)
            self.cluster.at(at_ms + DEATH_EVERY_MS, self._next_death)

    def _next_leave(self, at_ms: int) -> None:
        if self.at_work:
            self.cluster.someone_leaves(at_ms)
            self.cluster.at(at_ms + LEAVE_EVERY_MS, self._next_leave)


def test_every_death_is_raised_once_with_its_deadline_and_nobody_else_is(tale):
    said = sorted((row["group"], row["member_id"], row["deadline_ms"]) for row in tale.job.incidents("session-expired"))
    truth = sorted(tale.cluster.deaths)
    assert len(truth) >= len(FATES)
    assert [row[:2] for row in said] == [row[:2] for row in truth]
    assert [row[2] for row in said] == [pytest.approx(death.deadline_ms, abs=50) for death in truth]


def test_no_incident_is_opened_twice_closed_twice_or_reopened(tale):
    for told in tale.job.story().values():
        assert [step for step in told if step != "escalated"] in (["opened"], ["opened", "closed"]), told


def test_nothing_else_is_raised_for_the_time_that_nobody_watched(tale):
    """A job that was away is no outage of telemetry and no pause of the coordinator."""
    rules = {rule for (rule,) in tale.job.rows("SELECT DISTINCT rule FROM incidents")}
    of_groups = {"rebalance-storm", "timeouts-inconsistent"}  # true here: members die all the time, at 6 s timeouts
    assert rules <= {"session-expired", "session-at-risk"} | of_groups


def test_whoever_is_back_closes_the_incident_and_nothing_was_refuted(tale):
    reasons = {row["member_id"]: row["reason"] for row in tale.job.incidents("session-expired")}
    assert set(reasons.values()) <= {None, "rejoined", "recovered"}
    back = {death.member_id for death in tale.cluster.deaths} & tale.cluster.returned
    assert back
    assert {member_id: reasons[member_id] for member_id in back} == dict.fromkeys(back, "rejoined")


def test_what_expired_while_nobody_watched_is_marked_late_and_what_was_seen_is_not(tale):
    late = {row["member_id"]: row["late"] for row in tale.job.incidents("session-expired")}
    begin_ms, end_ms = tale.pause_ms
    missed = [death for death in tale.cluster.deaths if begin_ms < death.deadline_ms < end_ms - 1_000]
    seen = [death for death in tale.cluster.deaths if death.deadline_ms > tale.at_work_ms]
    assert len(missed) >= 3
    assert len(seen) >= 2
    assert all(late[death.member_id] for death in missed)
    assert not any(late[death.member_id] for death in seen)


def test_the_stored_groups_are_the_cluster_s(tale):
    stored = dict(tale.job.rows("SELECT group_id, view FROM groups"))
    views = {name: json.loads(view) for name, view in stored.items()}
    assert {
        name: (view["generation"], sorted(m["member_id"] for m in view["members"])) for name, view in views.items()
    } == {
        group.name: (group.generation, sorted(member.member_id for member in group.members))
        for group in tale.cluster.groups.values()
    }


def test_spark_went_on_with_one_checkpoint_all_along(tale):
    assert len(list((tale.job.folder / "data").glob("checkpoint-*"))) == 1

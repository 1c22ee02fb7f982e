"""The history of a job whose processes were killed, and what must be true whatever died when."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streaming.embedded import EmbeddedCluster
from tests.e2e import crash_lag
from tests.e2e.crash_cluster import LiveCluster, now_ms
from tests.e2e.crash_job import Job
from tests.e2e.crash_lag import LEDGER, LOADER, STUCK, Commits, stalls
from tests.support.needs import need_broker

EXPIRED, STALLED = "session-expired", "partition-stalled"
GROUPS = ["orders", "payments", "audit", "search", "mail", "billing"]
DEATH_EVERY_MS, LEAVE_EVERY_MS = 7_000, 31_000


@dataclass
class Tale:
    """A cluster, a job that was killed again and again, when nothing ran, and when the last process surely ran."""

    cluster: LiveCluster
    job: Job
    commits: Commits
    pause_ms: tuple[int, int] = (0, 0)
    at_work_ms: int = 0
    killed: Counter[str] = field(default_factory=Counter)

    def conclude(self, faults: "Faults") -> None:
        """Run once more, until everything that happened has been judged."""
        cluster, job = self.cluster, self.job
        if not job.running:
            job.start()
        job.await_batches(2)
        self.at_work_ms, seen = now_ms(), len(cluster.deaths)
        job.until(lambda: len(cluster.deaths), lambda deaths: deaths >= seen + 2)
        faults.end()
        job.until(lambda: not cluster.awaited and all(group.at_rest for group in cluster.groups.values()))
        job.until(lambda: stalls(job), lambda told: len(told) >= len(STUCK))
        self.commits.end()
        job.await_progress(now_ms() + 3_000)
        asked_ms = now_ms()
        for group in STUCK:
            job.until(lambda name=group: crash_lag.stored(job, name), lambda told: told[0] > asked_ms)


@contextmanager
def cluster_and_job(folder: Path) -> Iterator[Tale]:
    """Set the scene; what was written to Kafka stays in the folder, for whoever has to investigate a failure."""
    need_broker()
    with (
        EmbeddedCluster(telemetry=False, create_telemetry_topic=False) as broker,
        LiveCluster(broker, "crash", [*GROUPS, LEDGER], size=3, seed=10, spared=LEDGER) as cluster,
    ):
        job, commits = Job(cluster, folder), Commits(cluster, now_ms())
        try:
            yield Tale(cluster, job, commits)
        finally:
            job.kill()
            cluster.write_capture(job.folder / "capture.jsonl")


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


class NothingLost:
    """Tests of a `tale`, a fixture of the module that inherits them: nothing lost, doubled or reopened."""

    def test_every_death_is_raised_once_with_its_deadline_and_nobody_else_is(self, tale):
        said = sorted((row["group"], row["member_id"], row["deadline_ms"]) for row in tale.job.incidents(EXPIRED))
        truth = sorted(tale.cluster.deaths)
        assert len(truth) >= 10
        assert [row[:2] for row in said] == [row[:2] for row in truth]
        assert [row[2] for row in said] == [pytest.approx(death.deadline_ms, abs=50) for death in truth]

    def test_no_incident_is_opened_twice_closed_twice_or_reopened(self, tale):
        for told in tale.job.story().values():
            assert [step for step in told if step != "escalated"] in (["opened"], ["opened", "closed"]), told

    def test_nothing_else_is_raised_for_the_time_that_nobody_watched(self, tale):
        """The time without a job is no outage of telemetry and no pause of the coordinator."""
        rules = {rule for (rule,) in tale.job.rows("SELECT DISTINCT rule FROM incidents")} - {STALLED}
        # True here: members die all the time, at 6 s timeouts, and the others do not take over their partitions.
        of_groups = {"rebalance-storm", "timeouts-inconsistent", "partition-unowned"}
        assert rules <= {EXPIRED, "session-at-risk"} | of_groups

    def test_whoever_is_back_closes_the_incident_and_nothing_was_refuted(self, tale):
        reasons = {row["member_id"]: row["reason"] for row in tale.job.incidents(EXPIRED)}
        assert set(reasons.values()) <= {None, "rejoined", "recovered"}
        back = {death.member_id for death in tale.cluster.deaths} & tale.cluster.returned
        assert back
        assert {member_id: reasons[member_id] for member_id in back} == dict.fromkeys(back, "rejoined")

    def test_the_stored_groups_are_the_cluster_s(self, tale):
        stored = dict(tale.job.rows("SELECT group_id, view FROM groups JOIN views USING (group_key)"))
        assert stored.pop(LOADER)  # it has no members, and no record but its commits
        views = {name: json.loads(view) for name, view in stored.items()}
        assert {
            name: (view["generation"], sorted(m["member_id"] for m in view["members"])) for name, view in views.items()
        } == {
            group.name: (group.generation, sorted(member.member_id for member in group.members))
            for group in tale.cluster.groups.values()
        }

    def test_every_lag_is_what_the_broker_says_and_each_stall_was_told_once(self, tale):
        truth = tale.commits.truth()
        assert {group: crash_lag.stored(tale.job, group)[1] for group in truth} == truth
        began_ms = {group: tale.commits.committed_ms[group, partition] for group, partition in STUCK.items()}
        told = sorted((group, name, None, began_ms[group]) for group, name in tale.commits.subjects().items())
        assert stalls(tale.job) == told

    def test_spark_went_on_with_one_checkpoint_all_along(self, tale):
        assert len(list((tale.job.folder / "data").glob("checkpoint-*"))) == 1

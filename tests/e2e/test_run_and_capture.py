"""`replay` of a capture reports what `run` reported: both watched the same real consumers."""

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from streaming.embedded import EmbeddedCluster
from streaming.telemetry_topics import TELEMETRY_TOPIC
from tests.e2e.crash_job import ROOT, Job
from tests.e2e.scenarios import POLL_LIMIT_MS, STALL_S, together
from tests.e2e.world import World
from tests.support.needs import need_broker

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

QUIET_MS = 3_000
"""Recorded after the last fault, so that every removal has been explained."""
CONTRACT = {
    *("incident_id", "transition", "rule", "severity", "group", "member_id", "instance_id", "client_id", "client_host"),
    *("generation", "broker", "evidence", "cause", "deadline_ms", "at_ms", "summary"),
}
OF_A_GROUP = ("type", "state", "generation", "protocol", "leader")
OF_A_MEMBER = ("member_id", "instance_id", "client_id", "session_timeout_ms", "rebalance_timeout_ms", "assignment")


@dataclass(frozen=True)
class Topics:
    """The part of a cluster that `Job` has to know."""

    broker: EmbeddedCluster
    records: str = "__consumer_offsets"
    lines: str = TELEMETRY_TOPIC


def one_is_killed_and_one_closes(world, software):
    """Kill one consumer and close another. Only this group has three members, so that one is left."""
    name = f"orders-{software}"
    a, b, c = world.group(software, name, 3, world.topic(name))
    a.kill()
    world.await_expiry(a)
    world.await_settled(b, c)
    b.close()
    b.wait_for("closed")
    world.await_settled(c)


def one_stops_polling(world):
    a, b = world.group("confluent", "payments", 2, world.topic("payments"), max_poll_interval_ms=POLL_LIMIT_MS)
    told, member = len(b.events), b.member_id
    b.stall(STALL_S)
    world.await_truth(f"the leave of {member}", lambda event: event.kind == "left" and event.member_id == member)
    b.wait_for("assigned", since=told)
    world.await_settled(a, b)


def a_static_one_is_redeployed_and_another_dies(world):
    a, b = world.group("confluent", "audit", 2, world.topic("audit"), static=True)
    a.close()
    a.wait_for("closed")
    a = world.restart(a)
    world.await_settled(a, b)
    b.kill()
    world.await_expiry(b)
    world.await_settled(a)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What `run` stored and what `replay` prints, each as incidents and groups."""
    need_broker()
    folder = tmp_path_factory.mktemp("beside")
    with World("beside", folder) as world:
        job = Job(Topics(world.cluster), folder)
        job.start()
        try:
            job.await_rows("SELECT 1 FROM runs WHERE caught_up")
            together(
                lambda: one_is_killed_and_one_closes(world, "kafka-python"),
                lambda: one_is_killed_and_one_closes(world, "confluent-848"),
                lambda: one_stops_polling(world),
                lambda: a_static_one_is_redeployed_and_another_dies(world),
            )
            job.await_progress(max(event.at_ms for event in world.truth()) + QUIET_MS)
        finally:
            job.kill()
        ours = stored(job)
    return ours, replayed(world.played.capture)


def stored(job):
    """Return what `run` told people about each incident, step by step, and its groups."""
    steps = job.rows("SELECT transition, body FROM transitions ORDER BY at_ms")
    groups = [json.loads(view) for (view,) in job.rows("SELECT view FROM views")]
    return [json.loads(body) | {"transition": step} for step, body in steps], groups


def replayed(capture):
    """Run `replay` without a configuration: the capture has all it needs."""
    command = [sys.executable, "-m", "streaming.cli", "replay", str(capture)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    return [line for line in lines if line["kind"] == "incident"], [line for line in lines if line["kind"] == "group"]


def test_the_incidents_are_the_same(said):
    (ours, _), (theirs, _) = said
    assert {step["rule"] for step in ours} >= {"session-expired", "poll-exceeded"}
    assert by_place(theirs) == by_place(ours)


def by_place(steps):
    """Return each step as `replay` prints it: rule, group, member, cause, evidence, deadline, generation, the rest."""
    told = [{field: step[field] for field in CONTRACT} for step in steps]
    return sorted(told, key=lambda step: (step["incident_id"], step["transition"] != "opened", step["at_ms"]))


def test_the_groups_at_the_end_are_the_same(said):
    (_, ours), (_, theirs) = said
    assert len(ours) == 4
    assert by_name(theirs) == by_name(ours)


def by_name(groups):
    return {
        group["group"]: {field: group[field] for field in OF_A_GROUP}
        | {"members": [{field: member[field] for field in OF_A_MEMBER} for member in group["members"]]}
        for group in groups
    }

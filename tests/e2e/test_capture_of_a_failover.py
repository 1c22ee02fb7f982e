"""`replay` of a capture reports what `run` reported, also if a coordinator of three dies while members are dead."""

from itertools import count

import pytest

from tests.e2e.crash_cluster import now_ms
from tests.e2e.crash_job import Job
from tests.e2e.scenarios import together
from tests.e2e.test_run_and_capture import Topics, replayed, stored
from tests.e2e.world import World
from tests.support.needs import need_broker

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

QUIET_MS = 3_000
"""Recorded after the last removal, so that it has been explained."""
SAME_MS = 1_000
"""`run` and `capture` each ask for metadata. After a move the interval of a deadline depends on when they did."""
AT_RISK = "session-at-risk"
"""Not compared: after a move it depends on that interval whether a session is at risk for long before it ends."""
SOFTWARE = ("confluent", "confluent-848")
TOLD = ("transition", "rule", "severity", "group", "member_id", "client_id", "generation", "evidence", "cause")


def on_one_coordinator(world):
    """Return a name for a group of each software, so that one broker coordinates both, and that broker."""
    groups, node = [], None
    for software in SOFTWARE:
        names = (f"{software}-{number}" for number in count())
        groups.append(next(name for name in names if node in (None, world.coordinator(name))))
        node = world.coordinator(groups[0])
    return groups, world.cluster.node(node)


def pair_of(world, software, group):
    return world.group(software, group, 2, world.topic(group))


def die_with_their_coordinator(world, pairs, node):
    """Kill a member of each group and the broker. Return when the next coordinator ended the last session of them."""
    told = [len(alive.events) for alive, _ in pairs]
    for _, dead in pairs:
        dead.kill()
    node.kill()
    ended = [world.await_expiry(dead).at_ms for _, dead in pairs]
    for (alive, _), since in zip(pairs, told, strict=True):
        alive.wait_for("assigned", since=since)
    return max(ended)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What `run` stored and what `replay` prints about the same time, and who had died."""
    need_broker()
    folder = tmp_path_factory.mktemp("failover")
    with World("failover", folder, nodes=3) as world:
        job = Job(Topics(world.cluster), folder)
        job.start()
        try:
            groups, node = on_one_coordinator(world)
            pairs = []
            begin = (
                lambda each=each: pairs.append(pair_of(world, *each)) for each in zip(SOFTWARE, groups, strict=True)
            )
            together(*begin, lambda: job.await_rows("SELECT 1 FROM runs WHERE caught_up"))
            killed, begun_ms = {dead.member_id for _, dead in pairs}, now_ms()
            until_ms = die_with_their_coordinator(world, pairs, node) + QUIET_MS
            job.await_progress(until_ms)
        finally:
            job.kill()
        ours, _ = stored(job)
    theirs, _ = replayed(world.played.capture)
    return *(of_the_time(steps, begun_ms, until_ms) for steps in (ours, theirs)), killed


def of_the_time(steps, begun_ms, until_ms):
    """Leave out what was not live for `run`, and what it had not read yet when it was stopped."""
    return [step for step in steps if begun_ms <= step["at_ms"] <= until_ms and step["rule"] != AT_RISK]


def test_run_reports_the_end_of_their_sessions(said):
    ours, _, killed = said
    expired = {step["member_id"] for step in ours if step["rule"] == "session-expired"}
    assert len(killed) == len(SOFTWARE)
    assert killed <= expired


def test_every_incident_is_the_same(said):
    ours, theirs, _ = said
    assert told(theirs) == told(ours)


def told(steps):
    return sorted(str({field: step[field] for field in TOLD}) for step in steps)


def test_their_deadlines_are_the_same(said):
    ours, theirs, _ = said
    assert deadlines(theirs) == {who: pytest.approx(at_ms, abs=SAME_MS) for who, at_ms in deadlines(ours).items()}


def deadlines(steps):
    dated = [step for step in steps if step["deadline_ms"] is not None]
    return {(step["transition"], step["rule"], step["group"], step["member_id"]): step["deadline_ms"] for step in dated}

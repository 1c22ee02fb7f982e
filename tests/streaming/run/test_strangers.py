"""What needs no right, sent to a running job: it neither ends it, nor hides a death, nor makes one up."""

import json

import pytest

from streaming.run.packing import MAX_REJECTED
from tests.benchmarks import synthetic
from tests.benchmarks.synthetic import Member
from tests.streaming.run.test_run import EXPIRED, expired, live, one_dies, the_death
from tests.support import request_log

pytestmark = pytest.mark.spark

REPORTS = "reports-of-strangers"


def leave_line(group, member):
    return request_log.line("LEAVE_GROUP", *request_log.leave(group, [(member.member_id, None)])).encode()


def refused_join(group, number):
    made = synthetic.join_line(group, Member(number), 1, [Member(number)], 0)
    return made.replace(b'"errorCode":0', b'"errorCode":30').replace(
        b'"clientId":"worker-%d"' % number, b'"clientId":"w"'
    )


def report(group, member, client_id, age_ms):
    body = {"group_monitor_reporter": 1, "group": group, "member_id": member.member_id, "instance_id": None}
    body |= {"client_id": client_id, "poll_age_ms": age_ms, "max_poll_interval_ms": 1_000}
    return json.dumps(body, separators=(",", ":")).encode()


def strange(coordinator, members, seconds):
    """Send what any client and any application may: into the brokers' lines by requests, into reports at will."""
    alive, dying = members[0], members[-1]
    digits = synthetic.probe_line(1).replace(b"probe-1", b"probe-" + b"1" * 5_000)
    for second in seconds:
        coordinator.line(digits, second)
        coordinator.line(synthetic.probe_line(1_000 * second), second + 0.3)  # a number left out: lines were lost
        for number in range(40):
            coordinator.line(refused_join(f"made-up-{second}-{number}", number), second + 0.01)
        at_ms = coordinator.start_ms + int(second * 1_000)
        forged = [
            synthetic.heartbeat_line("orders", dying, 3),
            leave_line("orders", alive),
            report("orders", alive, "somebody-else", 90_000),
        ]
        for value in forged:
            coordinator.send(REPORTS, b"orders", value, at_ms)


def test_a_stranger_neither_ends_the_job_nor_hides_a_death_nor_makes_one_up(coordinator, monitor, members):
    coordinator.broker.create_topic(REPORTS, partitions=1)
    live(coordinator, members)
    watching = monitor(kafka={"client_telemetry_topics": [REPORTS]})
    watching.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
    strange(coordinator, members, range(20, 45))
    one_dies(coordinator, members)
    assert expired(watching.wait_for(EXPIRED)) == [the_death(coordinator, members)]
    watching.wait_for("SELECT 1 FROM groups WHERE members = 2 AND generation = 4")
    assert watching.rows("SELECT group_id FROM groups") == [("orders",)]
    [(refused,)] = watching.wait_for("SELECT body FROM incidents WHERE rule = 'join-refused'")
    assert (json.loads(refused)["group"], json.loads(refused)["client_id"]) == ("", "w")
    assert watching.rows("SELECT rule FROM incidents WHERE rule IN ('poll-exceeded', 'poll-at-risk')") == []
    reason = "not a client's report, in a topic of reports"
    [(source, kept_reason, kept)] = watching.rows("SELECT source, reason, count(*) FROM quarantine GROUP BY 1, 2")
    assert (source, kept_reason) == ("reports", reason)
    assert MAX_REJECTED <= kept <= 50
    # What is held back for slower sources is counted once they have come.
    watching.wait_for("SELECT 1 FROM counters WHERE name = 'ingest:reports_not_believed' AND value >= 25")
    counted = dict(watching.rows("SELECT name, value FROM counters"))
    assert counted[f"quarantined:reports:{reason}"] == 50
    assert counted["ingest:reports_not_believed"] == 25
    assert counted["ingest:unknown_group"] == 1_000
    assert "the query failed" not in watching.log.read_text()
    assert watching.stop() == 0

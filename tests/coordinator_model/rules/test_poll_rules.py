"""What a client's own report of its last poll tells before, and beside, what the broker can know."""

import json
from collections import defaultdict

import pytest

from coordinator_model.decode.parse import REPORTS, SourceRow
from coordinator_model.shard.shard import ShardSettings
from tests.oracle.monitor import Monitor
from tests.oracle.perturb import Arrival, arrivals, late
from tests.support.story import T0, Who, stable

LIMIT_MS = 60_000
STATIC = Who("m1", instance_id="i1", client_id="client-m1")


def report(story, at_ms, age_ms, member="m1"):
    """The reporter's word on how long ago its application polled."""
    body = {
        "group_monitor_reporter": 1,
        "group": story.group,
        "member_id": member,
        "instance_id": None,
        "client_id": story.know(member)[0].client_id,
        "poll_age_ms": age_ms,
        "max_poll_interval_ms": LIMIT_MS,
        "session_timeout_ms": story.session_ms,
        "heartbeat_age_ms": None,
        "software": "kafka-python 3.0.12",
    }
    value = json.dumps(body, separators=(",", ":")).encode()
    story.rows.append((at_ms, 1, SourceRow(REPORTS, "group-client-telemetry", 0, -1, T0 + at_ms, b"k", value)))
    return story


def polling(*reports, member="m1", until_ms=100_000):
    story = stable(member, partitions=2).beats("m1", 1_000, until_ms)
    for at_ms, age_ms in reports:
        report(story, at_ms, age_ms)
    return story


@pytest.mark.parametrize(("age_ms", "told"), [(47_999, []), (48_000, [("info", 70_000, 70_000, 82_000)]), (60_001, [])])
def test_a_member_is_at_risk_from_four_fifths_of_its_poll_interval(age_ms, told):
    """Past its end it is no longer at risk: it has broken it."""
    facts = (
        polling((70_000, age_ms)).play(75_000).facts("poll-at-risk", "severity", "at_ms", "opened_ms", "deadline_ms")
    )
    assert facts == told


def test_a_poll_ends_the_risk():
    told = polling((50_000, 50_000), (52_000, 10)).play(60_000)
    assert told.closed("poll-at-risk") == [("recovered", 52_000)]
    assert told.opened("poll-exceeded") == []


def test_a_breach_supersedes_the_risk():
    told = polling((70_000, 55_000), (76_000, 61_000)).play(80_000)
    assert told.closed("poll-at-risk") == [("superseded", 76_000)]
    assert told.facts("poll-exceeded", "cause", "deadline_ms") == [("poll-interval", 75_000)]


def test_a_breach_is_decided_by_the_first_report_that_tells_it():
    told = polling((70_000, 55_000), (76_000, 61_000), (77_000, 62_000), (78_000, 63_000)).play(80_000)
    assert told.facts("poll-exceeded", "at_ms", "opened_ms", "deadline_ms") == [(76_000, 75_000, 75_000)]


def test_a_report_is_not_believed_forever():
    """Ten seconds after the deadline the next report is missing, so nothing is known any more."""
    assert polling((70_000, 50_000)).play(100_000).closed("poll-at-risk") == [("recovered", 80_000 + 10_000)]


def test_who_rejoins_after_a_breach_is_not_blamed_for_the_polls_of_its_former_member():
    """kafka-python reports its old poll age with its new member id until the poll that rejoined has been counted."""
    story = report(stable("m1", partitions=2).beats("m1", 1_000, 9_000), 5_000, 62_000)
    told = story.play(10_000)
    assert told.of("poll-exceeded") == []
    assert told.of("poll-at-risk") == []


def test_a_static_member_that_does_not_poll_pages_and_says_when_its_session_ends():
    story = report(stable(STATIC, partitions=2).beats("m1", 1_000, 61_000), 63_000, 61_500)
    told = story.play(64_000)
    assert told.facts("static-member-stuck", "severity", "subject", "cause", "deadline_ms", "opened_ms") == [
        ("page", "i1", "poll-interval", 67_000, 61_500)
    ]
    [opened] = told.of("static-member-stuck")
    assert "keeps 2 partitions: its session ends in 4 s" in opened["summary"]


def test_a_dynamic_member_leaves_by_itself_so_it_is_not_stuck():
    assert polling((62_000, 61_000)).play(64_000).of("static-member-stuck") == []


def test_a_static_member_without_partitions_holds_nothing_up():
    story = report(stable(STATIC).beats("m1", 1_000, 61_000), 62_000, 61_000)
    assert story.play(64_000).of("static-member-stuck") == []


def test_it_ends_when_the_member_polls_again():
    story = report(stable(STATIC, partitions=2).beats("m1", 1_000, 70_000), 62_000, 61_000)
    assert report(story, 65_000, 5).play(70_000).closed("static-member-stuck") == [("recovered", 65_000)]


def test_a_member_shows_the_poll_headroom_its_client_reported():
    """Without a report its headroom is unknown."""
    told = polling((70_000, 45_000)).play(90_000)
    assert (told.members["m1"]["poll_age_ms"], told.members["m1"]["poll_headroom"]) == (45_000, 0.25)
    assert polling().play(90_000).members["m1"]["poll_headroom"] is None


# ------------------------------------------------------------------------------------------------ who is believed


def foreign(at_ms, age_ms, **changes):
    """A report about m1 that says otherwise than is known of it."""
    story = stable("m1", partitions=2).beats("m1", 1_000, 100_000)
    report(story, at_ms, age_ms)
    _, _, row = story.rows.pop()
    value = json.dumps(json.loads(row.value) | changes, separators=(",", ":")).encode()
    story.rows.append((at_ms, 1, row._replace(value=value)))
    return story.play(75_000)


@pytest.mark.parametrize(
    ("changes", "believed"),
    [({}, True), ({"client_host": "10.0.0.7"}, True), ({"client_host": None}, True),
     ({"client_id": "somebody"}, False), ({"client_id": ""}, False), ({"client_host": "10.0.0.8"}, False),
     ({"member_id": "m2"}, False), ({"group": "others"}, False)],
    ids=str,
)  # fmt: skip
def test_a_report_is_believed_about_its_own_client_only(changes, believed):
    told = foreign(70_000, 61_000, **changes)
    assert told.opened("poll-exceeded") == (["m1"] if believed else [])
    assert (told.members["m1"]["poll_age_ms"] is not None) == believed


def test_of_one_that_has_left_a_strangers_report_tells_nothing_either():
    story = stable("m1", "m2").beats("m1", 1_000, 75_000).beats("m2", 1_000, 68_000).leave(69_000, "m2")
    report(story, 70_000, 65_000, "m2")
    assert story.play(75_000).opened("poll-exceeded") == ["m2"]
    _, _, row = story.rows.pop()
    story.rows.append((70_000, 1, row._replace(value=row.value.replace(b"client-m2", b"client-m3"))))
    assert story.play(75_000).opened("poll-exceeded") == []


# ------------------------------------------------------------------------------------------------ late lines


def read(story, until_ms, how):
    """Read a story second by second, its rows as they arrive."""
    monitor = Monitor(ShardSettings(cluster="c", partitions=1, live_from_ms=T0))
    batches = defaultdict(list)
    for at_ms, row in arrivals(story.source_rows(until_ms), how, ""):
        batches[-(-at_ms // 1_000)].append(row)
    for at_s, rows in sorted(batches.items()):
        monitor.read(rows, wall_ms=at_s * 1_000)
    return [line for line in monitor.incidents() if line["transition"] == "opened"], monitor


def overdue():
    story = stable("m1", partitions=2).beats("m1", 1_000, 120_000)
    for at_ms in range(5_000, 80_000, 1_000):
        story.reports(at_ms, "m1", at_ms - 5_000)
    return story


@pytest.mark.parametrize("late_ms", [0, 5_000, 30_000])
def test_reports_that_come_sooner_than_the_lines_wait_for_them(late_ms):
    opened, _ = read(overdue(), 120_000, late(late_ms))
    found = [(line["rule"], line["at_ms"]) for line in opened if line["rule"].startswith("poll-")]
    assert found == [("poll-at-risk", T0 + 53_000), ("poll-exceeded", T0 + 66_000)]


def test_a_report_of_an_hour_ahead_is_not_waited_for():
    """As of a topic whose instants are those of clients: their clocks may be off by hours."""
    story = stable("m1", partitions=2).beats("m1", 1_000, 120_000).reports(20_000, "m1", 15_000)
    at_ms, rank, row = story.rows.pop()
    story.rows.append((at_ms, rank, row._replace(timestamp_ms=row.timestamp_ms + 3_600_000)))

    def arrive(rows, _):
        return [Arrival(T0 + at_ms if row.source == REPORTS else row.timestamp_ms, row) for row in rows]

    opened, monitor = read(story, 120_000, arrive)
    assert not any(line["rule"].startswith("poll-") for line in opened)
    assert monitor.is_up_to_date

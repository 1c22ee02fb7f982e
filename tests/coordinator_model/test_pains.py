"""What users of other monitors complain about, as far as rules decide it.

Complaints about the delivery of alerts are in `tests/streaming/serve/notify/test_delivery.py`.
"""

import pytest

from tests.support.records import key
from tests.support.story import Who, rebalance, stable

HALF_HOUR_MS = 1_800_000
STATIC = Who("m1", instance_id="pod-1")


def quiet(until_ms):
    """Two members that do nothing but heartbeat; partitions 0-1 and 2-3 of topic t."""
    story = stable("m1", "m2", partitions=2, session_ms=10_000)
    return story.beats("m1", 1_000, until_ms, every_ms=3_000).beats("m2", 1_500, until_ms, every_ms=3_000)


def dead(until_ms=30_000):
    """m2 falls silent after 10,000, with a session timeout of 6,000."""
    return stable("m1", Who("m2", client_id="billing", host="10.0.0.9"), partitions=2).beats(
        "m1", 1_000, until_ms
    ).beats("m2", 1_000, 10_000)  # fmt: skip


def test_rebalances_between_two_polls_of_a_monitor_are_all_counted():
    """Six within three seconds: a monitor that samples the state sees a stable group."""
    story = stable("m1", "m2").beats("m1", 1_000, 4_000)
    for number in range(6):
        rebalance(story, 5_000 + 500 * number, 2 + number, "m1", "m2")
    told = story.beats("m1", 8_500, 12_000, generation=7).beats("m2", 8_500, 12_000, generation=7).play(12_000)
    assert told.facts("rebalance-storm", "detail")[0][0]["rebalances"] >= 5


def test_an_incident_says_which_member_on_which_host():
    """Users grep the brokers' logs to learn which member caused a rebalance."""
    told = dead().play(20_000)
    named = ("member_id", "client_id", "client_host", "partitions")
    assert told.facts("session-expired", *named) == [("m2", "billing", "10.0.0.9", [["t", 2], ["t", 3]])]


def test_how_near_a_client_is_to_its_poll_limit_is_told_before_it_passes():
    """Users do not know how close they are to max.poll.interval.ms."""
    story = stable("m1").beats("m1", 1_000, 55_000).reports(50_000, "m1", 49_000, 60_000)
    told = story.play(55_000)
    assert told.opened("poll-at-risk") == ["m1"]
    assert told.members["m1"]["poll_age_ms"] == 49_000


@pytest.mark.parametrize(
    ("story", "rule", "cause"),
    [
        pytest.param(dead, "session-expired", "session-timeout", id="silence"),
        pytest.param(
            lambda: dead().beats("m2", 11_000, 12_000).leave(13_000, "m2", reason="consumer poll timeout has expired."),
            "poll-exceeded",
            "poll-interval",
            id="the client leaves because it overslept",
        ),
    ],
)
def test_session_and_poll_are_never_taken_for_each_other(story, rule, cause):
    """Even vendors write that the coordinator enforces the poll deadline; it is the client that leaves."""
    told = story().play(20_000)
    assert [(t["rule"], t["cause"]) for t in told.transitions if t["severity"] != "info"] == [(rule, cause)]


def test_a_static_member_that_does_not_poll_keeps_its_partitions_and_pages():
    """It sends no LeaveGroup and holds its partitions until its session ends."""
    story = stable(STATIC, partitions=2).beats("m1", 1_000, 62_000).reports(62_000, "m1", 61_000, 60_000)
    assert story.play(62_500).facts("static-member-stuck", "severity", "subject") == [("page", "pod-1")]


@pytest.mark.parametrize("every_ms", [None, 600_000, 60_000], ids=["once", "every ten minutes", "once a minute"])
def test_a_slow_or_quiet_topic_is_no_incident_however_rarely_it_commits(every_ms):
    """Burrow calls the same offset for long, or none, a stop or a stall (Burrow #38, #123, #223, #461)."""
    story = quiet(HALF_HOUR_MS)
    for at_ms in range(10_000, HALF_HOUR_MS, every_ms or HALF_HOUR_MS):
        story.commit(at_ms, "t", 0)  # always offset 42
    assert story.play(HALF_HOUR_MS).transitions == []


def test_a_death_in_a_quiet_group_is_told_within_its_session_timeout_all_the_same():
    """A threshold on lag or commits that suits a quiet group is late by minutes (Burrow #303)."""
    story = quiet(HALF_HOUR_MS)
    story.beats("m1", HALF_HOUR_MS + 1_000, HALF_HOUR_MS + 20_000)
    last_ms = max(at_ms for at_ms, _, row in story.rows if row.value and b'"memberId":"m2"' in row.value)
    told = story.play(HALF_HOUR_MS + 20_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", last_ms + story.session_ms)]


def test_a_deleted_group_keeps_no_incident():
    """In Burrow deleted groups go on alerting (Burrow #589, #854)."""
    story = stable("m1").beats("m1", 1_000, 10_000).record(16_010, 2).write(18_000, key(2, "orders"), None)
    told = story.play(20_000)
    assert told.closed("session-expired") == [("group-deleted", 18_000)]
    assert told.of("session-expired", "closed")[0]["group"] == "orders"


@pytest.mark.parametrize(
    ("story", "severity"),
    [
        pytest.param(lambda: stable("m1").beats("m1", 1_000, 10_000).record(16_010, 2), "page", id="nobody is left"),
        pytest.param(
            lambda: dead(16_500).beats("m1", 17_000, 29_000, error=27), "warn", id="the group rebalances since"
        ),
    ],
)
def test_an_incident_stays_open_while_the_consumer_is_down_or_rebalancing(story, severity):
    """What other monitors measure is frozen or absent exactly then (Burrow #127, #126, #287)."""
    told = story().play(29_000)
    assert [(t["transition"], t["severity"]) for t in told.transitions if t["rule"] == "session-expired"] == [
        ("opened", severity)
    ]


def test_a_gap_in_what_is_read_fires_no_alert_about_a_member():
    """In exporters a scrape that times out makes a gap, and the gap fires alerts."""
    story = stable(*(f"m{number}" for number in range(5)))
    for number in range(5):
        story.beats(f"m{number}", 1_000, 20_000).beats(f"m{number}", 50_000, 60_000)
    told = story.silent(20_000, 50_000).play(60_000)
    assert [(t["rule"], t["transition"]) for t in told.transitions] == [
        ("telemetry-stalled", "opened"),
        ("telemetry-stalled", "closed"),
    ]

"""What tells a client that hangs for good from one that was closed, and how its polls were before."""

import pytest

from coordinator_model.replica.member import Member
from coordinator_model.replica.poll_times import FEW, note, poll_times
from coordinator_model.thresholds import Thresholds
from tests.support.story import POLL_MS, T0, Story, Who, rebalance, stable

STATIC = Who("m1", instance_id="i1", client_id="client-m1")
LEFT_MS = 70_500


def left(member="m1", reason=None, until_ms=100_000, leave_ms=LEFT_MS, other="m2"):
    story = stable(member, other, partitions=2).beats("m1", 1_000, leave_ms - 500).beats("m2", 1_000, until_ms)
    return story.leave(leave_ms, "m1", reason=reason)


# ------------------------------------------------------------------------------------------------ left without a reason


def test_who_left_without_a_reason_after_its_limit_may_have_stopped_polling():
    told = left().play(90_000)
    assert told.facts("left-without-reason", "member_id", "severity", "evidence", "cause", "at_ms", "opened_ms") == [
        ("m1", "info", "inferred", "unknown", 80_500, LEFT_MS)
    ]
    assert "it was closed, or it may have stopped polling" in told.of("left-without-reason")[0]["summary"]


def test_it_is_told_for_eleven_minutes_at_most():
    told = left(until_ms=740_000).play(740_000)
    assert told.closed("left-without-reason") == [("recovered", LEFT_MS + 660_000)]


def test_who_asks_for_its_coordinator_though_it_left_lives():
    """librdkafka does, every ten minutes; one that unsubscribed asks as one that hangs."""
    story = left(until_ms=1_400_000).asks(660_000, "m1")
    assert "it was closed" in story.play(665_000).of("left-without-reason")[0]["summary"]
    told = story.play(1_400_000)
    [opened] = told.of("left-without-reason")
    assert (opened["severity"], opened["deadline_ms"]) == ("info", None)
    [closed] = told.of("left-without-reason", "closed")
    assert "it has stopped polling or unsubscribed" in closed["summary"]
    assert (closed["deadline_ms"], closed["detail"]["lives_ms"]) == (T0 + LEFT_MS, T0 + 660_000)
    assert told.closed("left-without-reason") == [("recovered", 1_320_000)]


NOT_ALIVE = {
    "it asked before it left": left(until_ms=95_000).asks(60_000, "m1"),
    "it asked as it was closed": left(until_ms=95_000).asks(71_000, "m1"),
    "another asks": left(until_ms=95_000).asks(78_000, "m2"),
    "it asks from another host": left(until_ms=95_000).asks(
        78_000, "m1", connection="127.0.0.1:9092-10.0.0.8:5000-0-2"
    ),
    "another client of its id on its host is in": left(until_ms=95_000, other=Who("m2", client_id="client-m1")).asks(
        78_000, "m1"
    ),
    "it asks for another group": left(until_ms=95_000).asks(78_000, "m1", group="others"),
}


@pytest.mark.parametrize("name", NOT_ALIVE)
def test_nobody_else_s_question_tells_that_it_lives(name):
    [opened] = NOT_ALIVE[name].play(95_000).of("left-without-reason")
    assert "it was closed" in opened["summary"]


def test_who_pushes_though_it_left_lives_even_if_it_tells_nothing_of_polls():
    """As franz-go does."""
    told = left(until_ms=760_000).pushes(78_000, "m1", None).play(760_000)
    [closed] = told.of("left-without-reason", "closed")
    assert "and lives" in closed["summary"]
    assert told.closed("left-without-reason") == [("recovered", 738_000)]


def test_one_that_was_started_again_asks_and_joins_and_is_not_told():
    story = left().asks(76_000, "m1", connection="127.0.0.1:9092-10.0.0.7:6001-0-2")
    story.join(79_000, "m1", 2, listed=("m1", "m2"), connection="127.0.0.1:9092-10.0.0.7:6000-0-2")
    assert story.play(95_000).of("left-without-reason") == []


CLEAR = {
    "it gave a reason": left(reason="the consumer is being closed"),
    "it had joined less than its limit before": left(leave_ms=POLL_MS - 5_500),
    "its reporter told of a poll": left().reports(60_000, "m1", 100),
    "its pushes told of a poll": left().pushes(60_000, "m1", 2),
    "its pushes told that it polled": left().pushes(60_000, "m1", None, idle=(0.9, 5_000)),
}


@pytest.mark.parametrize("name", CLEAR)
def test_nothing_is_told_of_who_is_known_to_have_polled(name):
    assert CLEAR[name].play(100_000).of("left-without-reason") == []


def test_who_is_back_in_time_is_not_told():
    story = left().join(75_000, "m1", 2, listed=("m1", "m2"), connection="127.0.0.1:9092-10.0.0.7:6000-0-2")
    assert story.play(90_000).of("left-without-reason") == []


def test_who_was_back_and_left_again_is_told_once():
    again = Who("m3", client_id="client-m1", port=6_000)
    story = stable("m1", "m2", partitions=2).beats("m1", 1_000, 70_000).beats("m2", 1_000, 70_000).leave(LEFT_MS, "m1")
    rebalance(story, 75_000, 2, again, "m2").beats("m3", 76_000, 149_000, 2).beats("m2", 76_000, 149_000, 2)
    rebalance(story.leave(150_000, "m3"), 151_000, 3, "m2").beats("m2", 152_000, 170_000, 3)
    assert story.play(170_000).opened("left-without-reason") == ["m3"]


def test_a_proof_that_it_hangs_supersedes_it():
    story = left(leave_ms=99_500, until_ms=130_000)
    for at_ms in range(5_000, 130_000, 10_000):
        story.pushes(
            at_ms,
            "m1",
            None,
            idle=(0.9 if at_ms <= 46_000 else 0.0, 10_000),
            **{"member_id": None} if at_ms > 99_500 else {},
        )
    told = story.play(130_000)
    assert told.opened("poll-exceeded") == ["m1"]
    assert {reason for reason, _ in told.closed("left-without-reason")} <= {"superseded"}


# ------------------------------------------------------------------------------------------------ static members


def static(*pushes, beats_until_ms=60_000, until_ms=66_000, **how):
    story = stable(STATIC, "m2", partitions=2).beats("m1", 1_000, beats_until_ms).beats("m2", 1_000, until_ms)
    for at_ms, age_s in pushes:
        story.pushes(at_ms, "m1", age_s, **how)
    return story


def test_a_static_member_whose_heartbeats_stop_as_its_limit_passes_is_stuck():
    """It may not leave, and a Java client that does not poll pushes nothing more."""
    told = static((50_000, 49), (55_000, 54)).play(66_000)
    assert told.facts("static-member-stuck", "severity", "evidence", "cause", "opened_ms", "deadline_ms") == [
        ("warn", "inferred", "poll-interval", 61_000, 66_000)
    ]


STATIC_CLEARED = {
    "its heartbeats go on": static((50_000, 49), (55_000, 54), beats_until_ms=66_000),
    "they stopped before": static((50_000, 49), (55_000, 54), beats_until_ms=56_000),
    "it polled since, for all that is told": static((40_000, 39)),
    "no push": static(),
}


@pytest.mark.parametrize("name", STATIC_CLEARED)
def test_a_static_member_is_not_called_stuck_without_that(name):
    assert STATIC_CLEARED[name].play(66_000).of("static-member-stuck") == []


def test_it_is_stuck_no_more_once_it_is_heard():
    told = static((50_000, 49), (55_000, 54)).beat(65_500, "m1").play(67_000)
    assert told.closed("static-member-stuck") == [("recovered", 65_500)]


def test_a_static_librdkafka_member_is_told_likewise_by_whether_it_polled():
    story = static(until_ms=68_000, beats_until_ms=61_000)
    for at_ms in range(2_000, 68_000, 5_000):
        story.pushes(at_ms, "m1", None, idle=(0.9 if at_ms <= 2_000 else 0.0, 5_000))
    assert story.play(68_000).facts("static-member-stuck", "evidence", "cause") == [("inferred", "poll-interval")]


# ------------------------------------------------------------------------------------------------ sessions that end


def kip_848(last_beat_ms):
    """A KIP-848 member that cannot leave while it hangs; its pushes go on."""
    story = Story(poll_ms=POLL_MS)
    for member in ("m1", "m2"):
        story.member(100, member)
    story.epoch(100, 1).target(100, 1)
    for member in ("m1", "m2"):
        story.current(100, member, 1).hello(100, member, 0, 1)
    story.hellos("m1", 1_000, last_beat_ms, 1).hellos("m2", 1_000, 150_000, 1)
    expired_ms = last_beat_ms + 45_000
    story.gone(expired_ms, "m1").epoch(expired_ms, 2)
    for at_ms in range(4_000, 150_000, 5_000):
        story.pushes(at_ms, "m1", None, idle=(0.9 if at_ms <= 4_000 else 0.0, 5_000))
    return story


@pytest.mark.parametrize(("last_beat_ms", "cause"), [(62_000, "poll-interval"), (30_000, "session-timeout")])
def test_a_session_that_ends_since_its_client_could_not_leave_has_that_cause(last_beat_ms, cause):
    """Its heartbeats stop as its limit passes, and it lives on without a poll."""
    told = kip_848(last_beat_ms).play(150_000, Thresholds(consumer_session_timeout_ms=45_000))
    assert [t["cause"] for t in told.transitions if t["rule"] == "session-expired"][-1] == cause


# ------------------------------------------------------------------------------------------------ by way of a collector


def test_metrics_of_a_collector_tell_what_pushes_tell():
    story = stable("m1", partitions=2).beats("m1", 1_000, 75_000).exports(70_000, "m1", 48)
    assert story.play(75_000).facts("poll-at-risk", "at_ms", "deadline_ms") == [(70_000, 82_000)]


@pytest.mark.parametrize("off_ms", [-3_600_000, 3_600_000])
def test_a_collector_whose_clock_is_off_by_an_hour_accuses_nobody(off_ms):
    story = stable("m1", "m2", partitions=2).beats("m1", 1_000, 62_000).beats("m2", 1_000, 130_000)
    for at_ms in range(5_000, 125_000, 5_000):
        story.exports(at_ms, "m1", at_ms // 1_000)
        told_ms, rank, row = story.rows.pop()
        story.rows.append((told_ms, rank, row._replace(timestamp_ms=row.timestamp_ms + off_ms)))
    told = story.leave(62_500, "m1").play(130_000)
    assert {line["rule"] for line in told.transitions} <= {"left-without-reason", "timeouts-inconsistent"}


@pytest.mark.parametrize(("age_s", "rules"), [(63, ["poll-exceeded"]), (20, ["member-removed"])])
def test_without_a_request_log_they_tell_why_a_member_left(age_s, rules):
    """Who hangs exports on after its removal, of which only the records tell."""
    story = Story(poll_ms=POLL_MS)
    for member in ("m1", "m2"):
        story.member(100, member)
    story.epoch(100, 1).target(100, 1)
    for member in ("m1", "m2"):
        story.current(100, member, 1)
    story.gone(60_500, "m1").epoch(60_500, 2).exports(64_000, "m1", age_s).current(70_000, "m2", 2)
    story.brokers = {}  # nothing is probed
    told = story.play(80_000)
    assert [line["rule"] for line in told.transitions if line["transition"] == "opened"][-1:] == rules


def test_metrics_of_a_collector_about_nobody_who_is_known_are_not_believed():
    story = stable("m1", partitions=2).beats("m1", 1_000, 75_000).exports(70_000, "m1", 48, member_id="m9")
    assert story.play(75_000).of("poll-at-risk") == []


# ------------------------------------------------------------------------------------------------ recommendation


def often(interval_ms, times=40, until_ms=None):
    """A member whose reporter tells of polls that far apart, and then of none."""
    story = stable("m1", partitions=2, poll_ms=POLL_MS)
    at_ms = 1_000
    for _ in range(times):
        story.reports(at_ms, "m1", interval_ms).reports(at_ms + 100, "m1", 50)
        at_ms += interval_ms + 100
    end_ms = at_ms + 50_000
    story.reports(end_ms, "m1", 50_000).beats("m1", 1_000, end_ms + 2_000)
    return story.play(end_ms + 1_000)


@pytest.mark.parametrize(
    ("interval_ms", "said"),
    [
        (2_000, "p99.9 of this member's polls is 2 s, the limit 60 s: the limit leaves room, look for what held it up"),
        (
            40_000,
            "p99.9 of this member's polls is 45.3 s, the limit 60 s: raise max.poll.interval.ms or poll fewer records",
        ),
    ],
)
def test_the_alert_says_what_the_polls_before_were_like(interval_ms, said):
    [risk] = often(interval_ms).of("poll-at-risk")
    assert said in risk["summary"]
    assert risk["detail"]["polls_told"] == 41


def test_nothing_is_said_of_a_few_polls():
    [risk] = often(2_000, times=FEW - 2).of("poll-at-risk")
    assert "p99.9" not in risk["summary"]
    assert "polls_told" not in risk["detail"]


def test_the_same_longest_time_told_again_is_one():
    story = stable("m1", partitions=2).beats("m1", 1_000, 50_000)
    for at_ms in range(1_000, 40_000, 1_000):
        story.pushes(at_ms, "m1", 0)
    assert story.play(50_000).members["m1"]["polls"] == {}


@pytest.mark.parametrize("longest_ms", [1, 1_000, 1_189, 240_000, 2**31 - 1])
def test_a_quantile_is_never_below_what_was_told_and_at_most_a_fifth_above(longest_ms):
    member = Member("m1")
    for _ in range(FEW):
        note(member, longest_ms)
    assert max(longest_ms, 1_000) * 0.999 <= poll_times(member).p999_ms <= max(longest_ms * 1.19, 1_000)


def test_one_long_time_in_five_hundred_is_the_quantile():
    for times, expected in ((500, 100_000), (1_999, 1_000)):
        member = Member("m1")
        for _ in range(times):
            note(member, 500)
        note(member, 99_000)
        assert poll_times(member).p999_ms == pytest.approx(expected, rel=0.2)

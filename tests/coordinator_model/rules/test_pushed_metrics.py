"""What the metrics that a client pushes (KIP-714) tell of its polls: whole seconds, and nothing of its limit."""

import pytest

from tests.support.story import POLL_MS, Story, Who, stable

STATIC = Who("m1", instance_id="i1", client_id="client-m1")


def classic(*pushes, until_ms=100_000):
    story = stable("m1", partitions=2).beats("m1", 1_000, until_ms)
    for at_ms, age_s in pushes:
        story.pushes(at_ms, "m1", age_s)
    return story


def modern(*others, leave_ms=60_500, asked=-1):
    """A KIP-848 group; m1 joins at once, and leaves."""
    story = Story(poll_ms=POLL_MS)
    members = ("m1", *others)
    for member in members:
        story.member(100, member)
    story.epoch(100, 1).target(100, 1)
    for member in members:
        story.current(100, member, 1).hello(100, member, 0, 1)
        story.hellos(member, 1_000, leave_ms - 500 if member == "m1" else 100_000, 1)
    return story.hello(leave_ms, "m1", asked, asked).gone(leave_ms, "m1").epoch(leave_ms, 2)


# ------------------------------------------------------------------------------------------------ before the limit


@pytest.mark.parametrize(
    ("age_s", "told"), [(47, []), (48, [("info", 70_000, 82_000)]), (59, [("info", 70_000, 71_000)])]
)
def test_a_client_that_pushes_an_age_of_four_fifths_of_its_limit_is_at_risk(age_s, told):
    """The limit is its rebalance timeout: a push does not tell it."""
    facts = classic((70_000, age_s)).play(75_000).facts("poll-at-risk", "severity", "at_ms", "deadline_ms")
    assert facts == told


def test_the_time_that_a_push_was_under_way_is_added_to_its_age():
    story = stable("m1", partitions=2).beats("m1", 1_000, 70_000).pushes(66_000, "m1", 47, total_ms=1_000)
    assert story.play(75_000).members["m1"]["poll_age_ms"] == 48_000


def test_a_poll_that_is_late_but_in_time_ends_the_risk_and_nothing_else_is_told():
    told = classic((55_000, 50), (59_000, 54), (64_000, 2), (69_000, 0)).play(90_000)
    assert told.closed("poll-at-risk") == [("recovered", 64_000)]
    assert told.opened("poll-exceeded") == []


def test_a_push_is_taken_by_any_broker():
    story = classic((50_000, 44)).pushes(56_000, "m1", 50, broker="broker-2")
    assert story.play(60_000).opened("poll-at-risk") == ["m1"]


def test_an_age_past_the_limit_accuses_nobody_who_is_still_in():
    """One long poll() goes on within the limit, and its age is counted from its beginning."""
    told = classic(*((at_ms, at_ms // 1_000) for at_ms in range(5_000, 100_000, 5_000))).play(100_000)
    assert told.opened("poll-exceeded") == []
    assert told.opened("static-member-stuck") == []


def test_a_client_that_never_polled_says_so_and_nothing_is_known():
    assert classic((70_000, -1)).play(75_000).members["m1"]["poll_age_ms"] is None


# ------------------------------------------------------------------------------------------------ after it


def test_who_left_a_whole_interval_after_its_last_poll_has_exceeded_it():
    told = modern("m2").pushes(64_000, "m1", 63).play(70_000)
    assert told.facts("poll-exceeded", "member_id", "evidence", "cause", "deadline_ms", "at_ms") == [
        ("m1", "observed", "poll-interval", 60_500, 64_000)
    ]


def test_it_is_told_once_however_often_it_pushes():
    story = modern("m2")
    for at_ms in range(64_000, 90_000, 5_000):
        story.pushes(at_ms, "m1", at_ms // 1_000 - 1)
    assert story.play(90_000).opened("poll-exceeded") == ["m1"]


def test_who_unsubscribed_and_lives_on_has_not_exceeded_its_interval():
    """Its age goes on to grow; but it had polled within the interval before its leave."""
    story = modern("m2", leave_ms=40_500)
    for at_ms in range(45_000, 99_000, 5_000):
        story.pushes(at_ms, "m1", (at_ms - 30_000) // 1_000)
    told = story.play(100_000)
    assert told.opened("poll-exceeded") == []


@pytest.mark.parametrize(("age_s", "found"), [(1, False), (61, True)])
def test_a_young_poll_of_one_that_left_proves_that_it_lives(age_s, found):
    told = modern("m2").pushes(62_000, "m1", age_s).play(70_000)
    assert told.opened("poll-exceeded") == (["m1"] if found else [])


def test_a_push_from_before_its_join_accuses_nobody_who_left_soon():
    """It waited at a broker that paused, while the client polled, joined and was closed."""
    told = modern("m2", leave_ms=40_500).pushes(41_000, "m1", 63).play(45_000)
    assert told.opened("poll-exceeded") == []


@pytest.mark.parametrize(
    ("before", "paused", "age_s", "told"),
    [(((50_000, 49),), True, 63, ["m1"]), ((), True, 63, ["m1"]), (((50_000, 49),), False, 63, []),
     (((50_000, 49),), True, 70, [])],
    ids=["paused", "paused, first push", "not paused", "a wrong clock"],
)  # fmt: skip
def test_a_push_that_waited_at_a_paused_broker_does_not_contradict_the_next(before, paused, age_s, told):
    """It was sent at 52 s, so its last poll seems 4 s later than it was. Any broker may have taken it."""
    story = modern("m2")
    story.brokers["broker-2"] = 0
    if paused:
        story.silent(52_000, 56_000, "broker-2")
    for at_ms, pushed_age_s in (*before, (56_100, 51)):
        story.pushes(at_ms, "m1", pushed_age_s, broker="broker-2")
    assert story.pushes(64_000, "m1", age_s).play(70_000).opened("poll-exceeded") == told


def test_one_that_left_and_pushes_nothing_more_is_not_told():
    assert modern("m2").pushes(55_000, "m1", 54).play(70_000).opened("poll-exceeded") == []


# ------------------------------------------------------------------------------------------------ who is believed


@pytest.mark.parametrize(
    ("how", "believed"),
    [({}, True), ({"client": "somebody"}, False), ({"connection": "127.0.0.1:9092-10.0.0.8:5000-0-2"}, False),
     ({"member_id": "m2"}, False), ({"member_id": ""}, False), ({"error": 89}, False)],
    ids=str,
)  # fmt: skip
def test_a_push_is_believed_about_its_own_client_only(how, believed):
    """An error 89: the broker refused it, it came too soon."""
    told = classic().pushes(70_000, "m1", 50, **how).play(75_000)
    assert told.opened("poll-at-risk") == (["m1"] if believed else [])


def test_two_members_with_one_client_id_are_told_apart():
    twins = [Who("m1", client_id="twin", port=5_000), Who("m2", client_id="twin", port=5_001)]
    story = stable(*twins, partitions=2).beats("m1", 1_000, 70_000).beats("m2", 1_000, 70_000)
    story.pushes(60_000, "m1", 50).pushes(60_000, "m2", 3)
    told = story.play(65_000)
    assert told.opened("poll-at-risk") == ["m1"]
    assert [told.members[name]["poll_age_ms"] for name in ("m1", "m2")] == [50_000, 3_000]


def test_a_last_poll_before_one_that_was_told_is_not_believed():
    """As of ages in milliseconds, or of a clock that went back: the age grew by more than the time that passed."""
    told = classic((50_000, 2), (55_000, 50)).play(60_000)
    assert told.opened("poll-at-risk") == []
    assert told.members["m1"]["poll_age_ms"] == 2_000


def test_ages_in_milliseconds_accuse_nobody_who_is_closed():
    """As from a client whose unit is off by 1000; its last push is the one with which it closes."""
    story = modern("m2")
    for at_ms in range(5_000, 60_000, 5_000):
        story.pushes(at_ms, "m1", 200 + at_ms // 100)
    told = story.pushes(60_600, "m1", 800).play(70_000)
    assert told.opened("poll-exceeded") == []


def test_a_flood_of_pushes_leaves_one_age():
    told = classic(*((20_000 + n, 1) for n in range(5_000))).play(30_000)
    assert told.members["m1"]["poll_age_ms"] == 1_000
    assert told.of("poll-at-risk") == []


def test_a_push_makes_no_group_known():
    story = stable("m1").beats("m1", 1_000, 10_000)
    story.group = "others"
    story.pushes(5_000, "m1", 50)
    told = story.play(10_000)
    assert told.opened("poll-at-risk") == []


# ----------------------------------------------------------------------- who pushes whether it polled, as librdkafka


def whether_polled(
    *, polls_until_ms=40_000, leave_ms=99_500, pushes_until_ms=120_000, every_ms=5_000, skip=(), **after
):
    """A classic member whose limit is 60 s leaves without a reason; its pushes then name no member."""
    story = stable("m1", "m2", partitions=2).beats("m1", 1_000, leave_ms - 500).beats("m2", 1_000, 130_000)
    story.leave(leave_ms, "m1")
    for at_ms in range(5_000, pushes_until_ms, every_ms):
        if at_ms not in skip:
            ratio = 0.9 if at_ms <= polls_until_ms else 0.0
            how = {"member_id": None, **after} if at_ms > leave_ms else {}
            story.pushes(at_ms, "m1", None, **{"idle": (ratio, every_ms), **how})
    return story.play(130_000)


def test_who_left_at_its_limit_and_lives_on_without_a_poll_has_exceeded_it():
    told = whether_polled()
    assert told.facts("poll-exceeded", "member_id", "evidence", "cause", "deadline_ms", "at_ms") == [
        ("m1", "inferred", "poll-interval", 99_500, 105_000)
    ]


def test_what_only_absence_and_pushes_tell_warns_and_never_pages():
    """Another that unsubscribed at its limit looks the same, though nobody owns its partitions."""
    story = stable("m1", partitions=2).beats("m1", 1_000, 99_000).leave(99_500, "m1")
    for at_ms in range(5_000, 260_000, 5_000):
        story.pushes(
            at_ms,
            "m1",
            None,
            idle=(0.9 if at_ms <= 40_000 else 0.0, 5_000),
            **{"member_id": None} if at_ms > 99_500 else {},
        )
    told = story.play(260_000)
    assert told.facts("poll-exceeded", "member_id", "severity") == [("m1", "warn")]
    assert "page" not in {t["severity"] for t in told.transitions if t["rule"] == "poll-exceeded"}


CLEARED = {
    "closed: it falls silent": {"pushes_until_ms": 99_000},
    "unsubscribed in time": {"leave_ms": 80_500},
    "unsubscribed just in time": {"leave_ms": 94_000},
    "polls once it has left": {"idle": (0.9, 5_000)},
    "another client instance": {"instance": "another"},
    "another host": {"connection": "127.0.0.1:9092-10.0.0.8:5000-0-2"},
    "a push is missing": {"skip": (60_000,)},
    "it polled since, in a push that is missing": {"polls_until_ms": 55_000, "skip": (50_000, 55_000)},
    "pushes come too seldom": {"every_ms": 20_000, "pushes_until_ms": 128_000},
    "it never was seen to poll": {"polls_until_ms": 0},
}


@pytest.mark.parametrize("name", CLEARED)
def test_without_proof_of_a_poll_breach_nobody_is_accused(name):
    assert whether_polled(**CLEARED[name]).opened("poll-exceeded") == []


@pytest.mark.parametrize(
    ("polls_until_ms", "told"), [(40_000, ["m1"]), (95_000, [])], ids=["overslept", "unsubscribed"]
)
def test_a_poll_after_a_leave_is_none_in_time_before_it(polls_until_ms, told):
    """A client that overslept polls again, and then joins on the same connection. So does one that unsubscribed."""
    story = stable("m1", "m2", partitions=2).beats("m1", 1_000, 99_000).beats("m2", 1_000, 130_000).leave(99_500, "m1")
    for at_ms in range(5_000, 130_000, 5_000):
        polled = at_ms <= polls_until_ms or at_ms == 105_000
        how = {"member_id": None} if at_ms > 99_500 else {}
        story.pushes(at_ms, "m1", None, idle=(0.9 if polled else 0.0, 5_000), **how)
    story.join(112_000, "m1", 2, listed=("m2", "m1"), asked="").join(112_000, "m2", 2)
    assert story.play(130_000).opened("poll-exceeded") == told


def test_no_poll_accuses_nobody_who_is_still_in():
    """One long poll, or polls that never wait, push a ratio of 0 too."""
    assert whether_polled(leave_ms=128_000, pushes_until_ms=128_000).opened("poll-exceeded") == []


@pytest.mark.parametrize(("leave_ms", "told"), [(60_500, ["m1"]), (40_500, [])])
def test_a_kip_848_member_that_left_and_pushes_on_is_told_likewise(leave_ms, told):
    story = modern("m2", leave_ms=leave_ms)
    for at_ms in range(2_000, 90_000, 5_000):
        story.pushes(at_ms, "m1", None, idle=(0.9 if at_ms < 3_000 else 0.0, 5_000))
    assert story.play(95_000).opened("poll-exceeded") == told


@pytest.mark.parametrize("asked", [-1, -2], ids=["leaves", "leaves for a while"])
@pytest.mark.parametrize(
    ("beats_until_ms", "polls_ms", "told"),
    [(61_000, (86_000,), ["m1"]), (61_000, (56_000, 86_000), []), (90_000, (86_000,), [])],
    ids=["overslept", "polled in time, and its coordinator was away", "one long poll, and unsubscribed"],
)
def test_a_poll_after_the_heartbeats_stopped_at_the_limit_is_none_in_time(beats_until_ms, polls_ms, told, asked):
    """A KIP-848 client that overslept polls again, and then it leaves and rejoins under its id."""
    who = Who("m1", instance_id="i1" if asked == -2 else None, client_id="client-m1")
    story = Story(poll_ms=POLL_MS).member(100, who).member(100, "m2").epoch(100, 1).target(100, 1)
    for member, until_ms in (("m1", beats_until_ms), ("m2", 100_000)):
        story.current(100, member, 1).hello(100, member, 0, 1).hellos(member, 1_000, until_ms, 1)
    for at_ms in range(1_000, 90_000, 5_000):
        story.pushes(at_ms, "m1", None, idle=(0.9 if at_ms in (1_000, *polls_ms) else 0.0, 5_000))
    story.hello(90_500, "m1", asked, asked)
    if asked == -2:
        story.current(90_500, "m1", -2)
    story.gone(90_500 if asked == -1 else 90_600, "m1").member(90_600, who).current(90_600, "m1", 1)
    story.hello(90_601, "m1", 0, 1).hellos("m1", 91_000, 100_000, 1)
    assert story.play(100_000).opened("poll-exceeded") == (["i1"] if told and asked == -2 else told)

"""KIP-848 groups: what records 3 to 8 and the heartbeats of api 68 tell, and whom a removal accuses."""

import pytest

from coordinator_model.decode.parse import parse_row
from coordinator_model.replica.group import MAX_UNANSWERED_JOINS
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import POLL_MS, T0, Story, Who, consumers

SESSION = {"consumer_session_timeouts_ms": {"": 6_000}}


def play(story, until):
    return story.play(until, **SESSION)


def test_a_join_makes_a_member_with_its_epoch_and_timeouts():
    [member] = play(consumers("m1").hellos("m1", 1_000, 3_000, 2), 3_000).group["members"]
    assert (member["member_id"], member["client_host"], member["generation"]) == ("m1", "10.0.0.7", 2)
    assert (member["session_timeout_ms"], member["rebalance_timeout_ms"]) == (6_000, 60_000)
    assert (member["last_heartbeat_ms"], member["topics"]) == (T0 + 3_000, ["t"])


def test_partitions_are_shown_under_the_topics_id():
    story = consumers("m1").current(200, "m1", 2, partitions=(0, 3))
    assert play(story, 300).members["m1"]["assignment"] == [{"topic": "AQIDBAUGBwgJCgsMDQ4PEA", "partitions": [0, 3]}]


# ------------------------------------------------------------------------------------------------ state

# what follows a group stable at epoch 2 -> state
STATES = {
    "nothing": (lambda s: s, "Stable"),
    "4.3: the group epoch runs ahead of the assignment": (lambda s: s.epoch(500, 3), "Assigning"),
    "the assignment is made, the member is not there yet": (lambda s: s.epoch(500, 3).target(501, 3), "Reconciling"),
    "the member has to give up partitions": (
        lambda s: s.epoch(500, 3).target(501, 3).current(502, "m1", 2, state=1),
        "Reconciling",
    ),
    "the member waits for others' partitions": (
        lambda s: s.epoch(500, 3).target(501, 3).current(502, "m1", 3, state=2),
        "Reconciling",
    ),
    "the member is there": (lambda s: s.epoch(500, 3).target(501, 3).current(502, "m1", 3), "Stable"),
    "a static member that is away for a while is not at its target": (
        lambda s: s.current(500, "m1", -2),
        "Reconciling",
    ),
    "the last member is gone": (lambda s: s.gone(500, "m1").epoch(500, 3), "Empty"),
    "4.3: and the target assignment with it": (lambda s: s.gone(500, "m1").epoch(500, 3).target(500, None), "Empty"),
}


@pytest.mark.parametrize("name", STATES)
def test_the_state_follows_from_epochs_and_members(name):
    happens, state = STATES[name]
    group = play(happens(consumers("m1")), 600).group
    assert (group["state"], group["state_evidence"], group["type"]) == (state, "observed", "consumer")


def test_a_group_with_nothing_to_assign_is_stable_at_the_epoch_that_it_never_wrote():
    """From 4.3 on a group begins at epoch 1 without a record; a regular expression that matches nothing raises none."""
    story = Story().member(200, "m1").current(200, "m1", 1).hello(201, "m1", 0, 1).hellos("m1", 1_000, 3_000, 1)
    group = play(story, 3_500).group
    assert (group["state"], group["generation"]) == ("Stable", 1)
    assert play(story.epoch(4_000, 2).target(4_000, 2).current(4_000, "m1", 2), 4_500).group["incarnation"] == 0


def test_a_tombstone_of_the_epoch_deletes_the_group():
    story = consumers("m1").gone(500, "m1").epoch(500, 3).target(900, None).epoch(900, None)
    assert play(story, 1_000).history.groups == []


# ------------------------------------------------------------------------------------------------ removal


def removed(at_ms, *, last_ms=10_000, before=lambda s: s, after=lambda s: s, poll_ms=POLL_MS):
    """m1 goes on; m2 is heard until `last_ms` and removed by tombstones at `at_ms`."""
    story = consumers("m1", "m2", poll_ms=poll_ms).hellos("m1", 1_000, 30_000, 2).hellos("m2", 1_000, last_ms, 2)
    return after(before(story).gone(at_ms, "m2").epoch(at_ms, 3).target(at_ms, 3).current(at_ms + 100, "m1", 3))


def test_a_removal_whose_record_comes_late_waits_for_the_leave_that_comes_with_it():
    """A write that stalls is read when it is committed, and a leave behind it is answered 15 at the same time."""
    story = removed(11_000, after=lambda s: s.hello(16_000, "m2", -1, -1, error=15, parked_ms=5_000))
    rows = story.source_rows(20_000)
    early = [row for row in rows if row.timestamp_ms < T0 + (11_000 if row.source == "offsets" else 16_000)]
    settings = ShardSettings(cluster="c", partitions=1, live_from_ms=T0, view_refresh_ms=0, **SESSION)
    shard, told = Shard.restore(0, settings, None), []
    for batch in (early, [row for row in rows if row not in early]):
        told += shard.apply([event for row in batch for event in parse_row(row)])
    findings = [finding for output in told if output["kind"] == "report" for finding in output["findings"]]
    assert [finding for finding in findings if finding["rule"] == "session-expired"] == []


def test_who_was_removed_and_came_back_and_left_at_once_had_been_removed():
    story = removed(16_000).member(16_100, "m2").current(16_100, "m2", 4).hello(16_103, "m2", 0, 4)
    told = play(story.gone(16_300, "m2").epoch(16_300, 5).hello(16_302, "m2", -1, -1), 20_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 16_000)]


def test_a_return_under_its_own_id_ends_only_its_own_incident():
    """m1 and m2, clients of one host, have expired; m2 comes back."""
    story = consumers("m0", "m1", "m2").hellos("m0", 1_000, 30_000, 2)
    story.hellos("m1", 1_000, 10_000, 2).hellos("m2", 1_000, 11_000, 2)
    for at_ms, member, epoch in ((16_000, "m1", 3), (17_000, "m2", 4)):
        story.gone(at_ms, member).epoch(at_ms, epoch).target(at_ms, epoch)
    story.member(20_000, "m2").epoch(20_000, 5).target(20_000, 5).current(20_000, "m2", 5).hello(20_003, "m2", 0, 5)
    told = play(story, 21_000)
    assert [t["member_id"] for t in told.of("session-expired", "closed")] == ["m2"]


# what is special -> its rebalance timeout, when broker-1 wrote that it has to revoke, the rule
REVOKING_AT_A_LOAD = {
    "the rebalance timeout is shorter": (3_000, 11_200, "rebalance-timeout"),
    "the session timeout is shorter": (60_000, 11_200, "session-expired"),
    "broker-1's clock is ahead": (3_000, 14_500, "rebalance-timeout"),
}


@pytest.mark.parametrize("name", REVOKING_AT_A_LOAD)
def test_a_revoking_member_after_a_load_goes_by_its_shorter_timer(name):
    """Both timers started with the load, of which only is known that it came after 12,000 and by 15,000."""
    rebalance_ms, revoking_ms, rule = REVOKING_AT_A_LOAD[name]
    story = consumers("m1", "m2").hellos("m1", 1_000, 11_500, 2)
    story.poll_ms = rebalance_ms
    story.member(500, "m2")
    story.hellos("m2", 1_000, 11_000, 2).current(revoking_ms, "m2", 2, state=1)
    moved(story, 12_000).brokers["broker-2"] = 0
    removed_ms = 13_000 + min(rebalance_ms, 6_000)
    told = play(story.gone(removed_ms, "m2").epoch(removed_ms, 3), 25_000)
    assert [a for a in told.accusations if a[1] == "m2"] == [(rule, "m2")]


# when a living member that revokes nothing is removed -> the rule
NOT_REVOKED = {
    "soon after the earliest load": (14_500, "rebalance-timeout"),
    "soon before the latest load": (17_990, "rebalance-timeout"),
    "after all loads": (18_600, "member-removed"),
}


@pytest.mark.parametrize("name", NOT_REVOKED)
def test_a_load_within_an_interval_restarted_the_revocation_timer_within_it(name):
    """It came after 11,000, when broker-1 still coordinated, and by 15,000. Its timer of 3 s began at 11,200 or later.

    From 15,010 on m2 sends heartbeats again, so its session cannot have ended.
    """
    removed_ms, rule = NOT_REVOKED[name]
    story = consumers("m1", "m2").hellos("m1", 1_000, 11_500, 2)
    story.poll_ms = 3_000
    story.member(500, "m2").hellos("m2", 1_000, 11_000, 2).current(11_200, "m2", 2, state=1)
    moved(story, 12_000).brokers["broker-2"] = 0
    for at_ms in range(15_010, removed_ms, 500):
        story.hello(at_ms, "m2", 2, 2, broker="broker-2")
    told = play(story.gone(removed_ms, "m2").epoch(removed_ms, 3), 40_000)
    assert [t["rule"] for t in told.transitions if t["transition"] == "opened" and t["member_id"] == "m2"] == [rule]


def test_a_revocation_that_was_due_just_before_a_load_was_missed():
    """The load came after 11,500 and by 15,000. m2's session restarted with it, so it ended at 17,500 or later."""
    story = consumers("m1", "m2").hellos("m1", 1_000, 11_500, 2)
    story.poll_ms = 8_000
    story.member(500, "m2").hellos("m2", 1_000, 11_000, 2).current(6_600, "m2", 2, state=1)
    moved(story, 12_000).brokers["broker-2"] = 0
    told = play(story.gone(14_600, "m2").epoch(14_600, 3), 30_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m2", 14_600)]


def test_a_session_that_ends_in_a_dispute_is_no_late_revocation():
    """broker-2 loads the group at 12,300, so m2's session ends there at 18,300. Metadata names broker-2 at 22,000.

    By what broker-1 answered, m2's session ended at 17,000 and m2 had to revoke until 17,200, before a short pause.
    """
    story = consumers("m1", "m2").hellos("m1", 1_000, 11_500, 2)
    story.brokers["broker-2"], story.poll_ms = 0, 8_000
    story.leads(0, "broker-1", 5_000, 10_000, 15_000).member(500, "m2")
    story.hellos("m2", 1_000, 11_000, 2).current(9_200, "m2", 2, state=1)
    for at_ms in range(12_500, 30_000, 1_000):
        story.hello(at_ms, "m1", 2, 2, broker="broker-2")
    story.gone(18_300, "m2").epoch(18_300, 3).leads(22_000, "broker-2")
    assert play(story, 30_000).facts("session-expired", "subject", "deadline_ms") == [("m2", 18_300)]


def moved(story, at_ms):
    """Let broker-2 coordinate from an instant on, at which broker-1 refuses m1."""
    return story.hello(at_ms, "m1", 2, 2, error=16).hello(at_ms + 3_000, "m1", 2, 2, broker="broker-2")


# story, who is accused of what, the deadline
REMOVALS = {
    "when its session has ended": (removed(16_003), [("session-expired", "m2")], 16_000),
    "before its session has ended: a leave that nobody saw": (removed(13_000), [], None),
    "before its session seems to end, but its coordinator moved": (
        removed(13_000, before=lambda s: moved(s, 10_500)),
        [("session-expired", "m2")],
        13_000,
    ),
    "after a leave (-1) just before": (removed(11_000, before=lambda s: s.hello(10_995, "m2", -1, -1)), [], None),
    "after a leave (-1) just after": (removed(11_000, after=lambda s: s.hello(11_300, "m2", -1, -1)), [], None),
    "after a leave (-1) whose answer stalled": (
        removed(11_000, after=lambda s: s.hello(15_000, "m2", -1, -1, parked_ms=4_001)),
        [],
        None,
    ),
    "after a leave (-1) whose answer was lost behind the stalled write": (
        removed(11_000, after=lambda s: s.hello(16_000, "m2", -1, -1, error=15, parked_ms=5_001)),
        [],
        None,
    ),
    "after a leave (-1) that was refused at once, and its session has ended": (
        removed(16_003, after=lambda s: s.hello(16_010, "m2", -1, -1, error=15)),
        [("session-expired", "m2")],
        16_000,
    ),
    "after a leave (-1) that was lost with its coordinator, and its session has ended": (
        removed(16_003, before=lambda s: s.hello(15_999, "m2", -1, -1, error=15, parked_ms=5_000)),
        [("session-expired", "m2")],
        16_000,
    ),
    "while it had partitions to give up, long before that or its session ended": (
        removed(12_000, before=lambda s: s.current(11_000, "m2", 2, state=1)),
        [],
        None,
    ),
    "while it had partitions to give up, and its session ended": (
        removed(16_002, before=lambda s: s.current(11_000, "m2", 2, state=1)),
        [("session-expired", "m2")],
        16_000,
    ),
}


@pytest.mark.parametrize(("removed_ms", "told"), [(18_000, [18_000]), (18_900, [18_900]), (20_000, [])])
def test_a_removal_after_the_deadline_proves_an_unseen_heartbeat(removed_ms, told):
    """m2, with 6 s, was last seen at 10,000; who lives on unseen for longer may have left unseen."""
    story = consumers("m1", "m2").hellos("m1", 1_000, 30_000, 2).hello(10_000, "m2", 2, 2)
    story.gone(removed_ms, "m2").epoch(removed_ms, 3).target(removed_ms, 3).current(removed_ms + 100, "m1", 3)
    assert [at_ms for (at_ms,) in play(story, 27_000).facts("session-expired", "deadline_ms")] == told


@pytest.mark.parametrize("name", REMOVALS)
def test_a_removal_by_tombstones(name):
    story, accused, deadline_ms = REMOVALS[name]
    told = play(story, 25_000)
    assert [a for a in told.accusations if a[1] == "m2"] == accused
    if accused:
        [(rule, _)] = accused
        assert told.facts(rule, "deadline_ms", "evidence")[-1] in [(deadline_ms, "observed"), (deadline_ms, "inferred")]


def test_a_heartbeat_whose_line_trails_the_members_leave_brings_nobody_back():
    """Found by simulation: applied at 2,000, told at 2,004, after the records of the leave that followed at 2,002."""
    story = consumers("m1", "m2").hellos("m1", 1_000, 9_000, 2).hello(1_000, "m2", 2, 2)
    story.gone(2_002, "m2").epoch(2_002, 3).target(2_002, 3).hello(2_004, "m2", 1, 2, parked_ms=4)
    story.hello(2_005, "m2", -1, -1, parked_ms=3)
    told = play(story, 9_000)
    assert (list(told.members), told.accusations) == (["m1"], [])


def test_a_heartbeat_whose_line_trails_does_not_take_back_that_its_member_is_away():
    """Found by simulation: the static member's -2 was written before the line of the heartbeat before it came."""
    story = consumers("m1", Who("m2", instance_id="pod-1")).hello(1_000, "m2", 2, 2)
    story.current(2_002, "m2", -2).hello(2_004, "m2", 2, 2, parked_ms=4)
    told = play(story, 2_100)
    assert (told.members["m2"]["generation"], told.group["state"]) == (-2, "Reconciling")


def test_without_a_configured_timeout_the_removal_itself_is_the_deadline():
    told = removed(14_000).play(20_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 14_000)]


def test_a_slept_over_poll_shows_as_a_leave_and_a_join_under_the_same_id():
    story = removed(11_000, before=lambda s: s.hello(10_995, "m2", -1, -1), poll_ms=5_000)
    story.hello(13_000, "m2", 0, 4).member(13_000, "m2").epoch(13_000, 4).target(13_000, 4)
    told = play(story.current(13_000, "m2", 4).hellos("m2", 14_000, 18_000, 4), 18_000)
    assert told.facts("poll-exceeded", "subject", "evidence", "deadline_ms") == [("m2", "inferred", 10_995)]


@pytest.mark.parametrize(
    ("asked", "error", "took_ms"), [(-1, 16, 995), (-1, 16, 0), (-1, 15, 3), (-1, 14, 0), (-2, 16, 0)]
)
def test_a_slept_over_poll_shows_also_where_the_leave_was_refused(asked, error, took_ms):
    """The coordinator moved before the leave was written: the member stays in, and joins under its id at the next."""
    story = consumers("m1", "m2", poll_ms=5_000).hellos("m1", 1_000, 18_000, 2).hellos("m2", 1_000, 10_000, 2)
    story.hello(11_000, "m2", asked, -1, error=error, parked_ms=took_ms)
    told = play(story.hello(13_000, "m2", 0, 2).hellos("m2", 14_000, 18_000, 2), 18_000)
    assert told.accusations == [("poll-exceeded", "m2")]
    assert told.facts("poll-exceeded", "evidence", "deadline_ms") == [("inferred", 11_000 - took_ms)]
    assert [reason for reason, _ in told.closed("poll-exceeded")] == ["rejoined"]
    assert set(told.members) == {"m1", "m2"}


@pytest.mark.parametrize("error", [16, 0])
def test_who_leaves_again_has_slept_over_its_poll_once(error):
    """First to no coordinator; much later it joins anew without a leave, as one does that was fenced."""
    story = consumers("m1", "m2", poll_ms=5_000).hellos("m1", 1_000, 24_000, 2).hellos("m2", 1_000, 10_000, 2)
    story.hello(11_000, "m2", -1, -1, error=16).hello(11_200, "m2", -1, -1, error=error)
    story.hello(13_000, "m2", 0, 2).hellos("m2", 14_000, 20_000, 2).hello(21_000, "m2", 0, 2)
    told = play(story.hellos("m2", 22_000, 24_000, 2), 24_000)
    assert told.accusations == [("poll-exceeded", "m2")]


def test_a_leave_to_no_coordinator_that_is_told_after_the_return_is_over():
    """Two brokers' clocks: the 16 of 11,200 came before the join of 11,000. Later its session ends, and it is back."""
    story = consumers("m1", "m2").hellos("m1", 1_000, 60_000, 2).hellos("m2", 1_000, 10_000, 2)
    story.brokers["broker-2"] = 0
    story.hello(11_000, "m2", 0, 2).hello(11_200, "m2", -1, -1, error=16, broker="broker-2")
    story.hellos("m2", 12_000, 30_000, 2).gone(36_003, "m2").epoch(36_003, 3).target(36_003, 3).current(36_004, "m1", 3)
    story.member(50_000, "m2").epoch(50_000, 4).target(50_000, 4).current(50_000, "m2", 4).hello(50_001, "m2", 0, 4)
    told = play(story.current(50_100, "m1", 4).hellos("m2", 51_000, 60_000, 4), 60_000)
    assert told.accusations == [("session-expired", "m2")]


def test_a_leave_to_no_coordinator_ends_with_its_group():
    story = consumers("m1").hellos("m1", 1_000, 10_000, 2).hello(11_000, "m1", -1, -1, error=16)
    story.gone(16_003, "m1").epoch(16_003, 3).target(30_000, None).epoch(30_000, None)
    story.member(60_000, "m1").epoch(60_000, 1).target(60_000, 1).current(60_000, "m1", 1).hello(60_002, "m1", 0, 1)
    assert play(story.hellos("m1", 61_000, 66_000, 1), 66_000).opened("poll-exceeded") == []


def test_a_leave_to_no_coordinator_excuses_nobody_whose_session_ends():
    story = removed(16_003, before=lambda s: s.hello(15_999, "m2", -1, -1, error=16))
    assert ("session-expired", "m2") in play(story, 25_000).accusations


def test_leaves_to_no_coordinator_cost_bounded_memory():
    story = consumers("m1")
    for n in range(MAX_UNANSWERED_JOINS + 6):
        story.hello(1_000 + n, f"stranger-{n}", -1, -1, error=16).hello(2_000 + n, f"stranger-{n}", 0, 2)
    assert len(play(story, 9_000).of("poll-exceeded")) == MAX_UNANSWERED_JOINS


# when the records of its leave and of its return, and the lines of both (told, how long each took), come
AT_ONCE = {
    "its return is told to have arrived in the millisecond of the leave": (11_000, 11_003, (11_001, 1), (11_003, 3)),
    "its return is told to have arrived before the leave": (11_000, 11_002, (11_002, 0), (11_004, 4)),
    "its return is written in the millisecond in which the leave is told": (11_000, 11_001, (11_001, 0), (11_003, 2)),
}


@pytest.mark.parametrize("name", AT_ONCE)
def test_who_leaves_and_joins_within_a_millisecond_or_two_has_slept_over_its_poll(name):
    """librdkafka leaves when its application polls again, and joins with the answer; seen on a real broker."""
    left_ms, back_ms, (leave_ms, leave_took_ms), (join_ms, join_took_ms) = AT_ONCE[name]
    story = removed(left_ms, before=lambda s: s.hello(leave_ms, "m2", -1, -1, parked_ms=leave_took_ms), poll_ms=5_000)
    story.member(back_ms, "m2").epoch(back_ms, 4).target(back_ms, 4).current(back_ms, "m2", 4)
    story.current(back_ms + 200, "m1", 4).hello(join_ms, "m2", 0, 4, parked_ms=join_took_ms)
    told = play(story.hellos("m2", 12_000, 18_000, 4), 18_000)
    assert told.accusations == [("poll-exceeded", "m2")]
    assert told.facts("poll-exceeded", "evidence", "deadline_ms") == [("inferred", leave_ms - leave_took_ms)]
    assert [reason for reason, _ in told.closed("poll-exceeded")] == ["rejoined"]
    assert (set(told.members), told.members["m2"]["last_heartbeat_ms"]) == ({"m1", "m2"}, T0 + 18_000)


@pytest.mark.parametrize(("poll_ms", "accused"), [(10_000, ["m2"]), (30_000, []), (300_000, [])])
@pytest.mark.parametrize("error", [0, 16], ids=["", "said to no coordinator"])
def test_who_leaves_and_joins_within_a_poll_interval_of_its_join_has_polled_in_time(poll_ms, accused, error):
    """``unsubscribe()`` and ``subscribe()``, 11 s after it had joined."""
    story = consumers("m1", "m2", poll_ms=poll_ms).hellos("m1", 1_000, 18_000, 2).hellos("m2", 1_000, 10_000, 2)
    story.hello(11_000, "m2", -1, -1, error=error)
    if error == 0:
        story.gone(11_000, "m2").epoch(11_000, 3).target(11_000, 3).current(11_100, "m1", 3)
        story.member(13_000, "m2").epoch(13_000, 4).target(13_000, 4).current(13_000, "m2", 4)
    told = play(story.hello(13_000, "m2", 0, 4).hellos("m2", 14_000, 18_000, 4), 18_000)
    assert told.opened("poll-exceeded") == accused
    assert set(told.members) == {"m1", "m2"}


@pytest.mark.parametrize(("asked_ms", "accused"), [(None, []), (2_000, ["m2"])])
def test_who_was_refused_by_no_coordinators_has_not_polled_since_it_asked_first(asked_ms, accused):
    """It overslept its poll of 10 s while it asked to join, and left 4 s after it was let in."""
    story = consumers("m1", poll_ms=10_000).hellos("m1", 1_000, 24_000, 2)
    for at_ms in () if asked_ms is None else range(asked_ms, 10_000, 500):
        story.hello(at_ms, "m2", 0, 0, error=16)
    story.member(10_000, "m2").epoch(10_000, 3).target(10_000, 3).current(10_000, "m2", 3).hello(10_000, "m2", 0, 3)
    story.hellos("m2", 11_000, 13_000, 3).hello(14_000, "m2", -1, -1).gone(14_000, "m2").epoch(14_000, 4)
    story.target(14_000, 4).current(14_100, "m1", 4).member(17_000, "m2").epoch(17_000, 5).target(17_000, 5)
    told = play(story.current(17_000, "m2", 5).hello(17_000, "m2", 0, 5).hellos("m2", 18_000, 24_000, 5), 24_000)
    assert told.opened("poll-exceeded") == accused


@pytest.mark.parametrize(("early_ms", "told_as"), [(200, "session-expired"), (600, None)])
def test_a_removal_just_before_the_deadline_is_an_expiry(early_ms, told_as):
    """A busy broker applies a heartbeat a little earlier than its line says."""
    assert (play(removed(16_000 - early_ms), 20_000).accusations or [(None,)])[0][0] == told_as


def test_a_join_whose_line_trails_the_leave_after_it_is_no_return():
    """A consumer that closes right after it has joined, its first line late."""
    story = consumers("m1").hellos("m1", 1_000, 9_000, 2).member(3_000, "m2").epoch(3_000, 3).target(3_000, 3)
    story.current(3_000, "m2", 3).gone(3_100, "m2").epoch(3_100, 4).target(3_100, 4).current(3_200, "m1", 4)
    story.hello(3_100, "m2", -1, -1).hello(3_150, "m2", 0, 3, parked_ms=150)
    assert play(story, 9_000).accusations == []


def test_a_member_back_right_after_its_expiry_is_accused_once():
    """Kafka retries an expiry; the removal stays apart from the living member of the same id."""
    story = removed(16_003).hello(16_200, "m2", 0, 4).member(16_200, "m2").epoch(16_200, 4).target(16_200, 4)
    story.current(16_200, "m2", 4).current(16_300, "m1", 4)
    told = play(story.hellos("m2", 18_000, 30_000, 4), 30_000)
    assert told.accusations == [("session-expired", "m2")]
    assert [reason for reason, _ in told.closed("session-expired")] == ["rejoined"]


def test_whose_session_ended_just_before_its_groups_deletion_is_told():
    """Found by simulation: the group was deleted before the grace for a leave that trails had passed."""
    story = consumers("m1").hellos("m1", 1_000, 3_000, 2).gone(9_002, "m1").epoch(9_002, 3).target(9_002, 3)
    told = play(story.target(9_300, None).epoch(9_300, None), 12_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", 9_000)]
    assert [reason for reason, _ in told.closed("session-expired")] == ["group-deleted"]


def test_whose_leave_came_just_before_its_groups_deletion_is_not_accused():
    """Its answer waited for the replicas, and is told after the deletion."""
    story = consumers("m1").hellos("m1", 1_000, 3_000, 2).gone(4_000, "m1").epoch(4_000, 3).target(4_000, 3)
    story.target(4_300, None).epoch(4_300, None).hello(6_000, "m1", -1, -1, parked_ms=2_001)
    assert play(story, 12_000).accusations == []


def test_a_late_answer_to_a_member_whose_removal_is_forgotten_makes_it_no_member():
    """c2 joined behind a stalled write and was removed. Its host's next client ended the incident; then the line came.

    Nothing but the group's epoch shows that c2 is gone.
    """
    again = Who("c2", client_id="client-c2")
    story = consumers("c1", again).hellos("c1", 1_000, 20_000, 2).hellos("c2", 1_000, 2_000, 2).epoch(9_000, 3)
    story.gone(9_000, "c2").member(11_000, Who("c3", client_id="client-c2")).current(11_000, "c3", 3)
    story.hello(13_500, "c2", 0, 2, parked_ms=4_600)
    told = play(story, 20_000)
    assert set(told.members) == {"c1", "c3"}


# ------------------------------------------------------------------------------------------------ static members

POD = Who("pod", instance_id="pod-1", port=5_001)


@pytest.mark.parametrize(
    ("again", "accused"),
    [("pod", [("poll-exceeded", "pod-1")]), ("pod-2", [])],
    ids=["under its old id, so of the same process", "under a new id"],
)
def test_a_static_member_that_leaves_and_returns_has_not_expired(again, accused):
    """Under its old id it exceeded its poll interval; under a new one it was restarted."""
    story = consumers("m1", POD, poll_ms=5_000).hellos("m1", 1_000, 30_000, 2).hellos("pod", 1_000, 5_000, 2)
    story.hello(5_500, "pod", -2, -2).current(5_500, "pod", -2)
    back = Who(again, instance_id="pod-1", port=5_009)
    story.hello(8_001, again if again == "pod" else back.member_id, 0, 2)
    story.gone(8_000, "pod").member(8_000, back).current(8_000, again, 2).hellos(again, 9_000, 30_000, 2)
    told = play(story, 30_000)
    assert told.accusations == accused
    assert told.facts("poll-exceeded", "deadline_ms") == [(5_500,)] * len(accused)
    assert set(told.members) == {"m1", again}


def test_a_static_member_that_stays_away_has_its_session_end():
    story = consumers("m1", POD).hellos("m1", 1_000, 30_000, 2).hellos("pod", 1_000, 5_000, 2)
    story.hello(5_500, "pod", -2, -2).current(5_500, "pod", -2).gone(11_004, "pod").epoch(11_004, 3).target(11_004, 3)
    assert play(story.current(11_100, "m1", 3), 20_000).facts("session-expired", "subject", "deadline_ms") == [
        ("pod-1", 11_000)
    ]


def test_a_static_member_that_is_away_does_not_have_to_revoke():
    """It left for a while as it had to revoke: its epoch is another one, so that timer does nothing (11,002)."""
    story = consumers("m1", POD, poll_ms=5_502).hellos("m1", 1_000, 30_000, 2).hellos("pod", 1_000, 5_000, 2)
    story.current(5_400, "pod", 2, state=1).hello(5_500, "pod", -2, -2).current(5_500, "pod", -2, state=1)
    told = play(story.gone(11_004, "pod").epoch(11_004, 3).target(11_004, 3).current(11_100, "m1", 3), 20_000)
    assert told.accusations == [("session-expired", "pod-1")]


@pytest.mark.parametrize(("loads", "deadlines"), [(True, [("pod-1", 12_600)]), (False, [])])
def test_a_static_member_that_is_away_may_have_to_revoke_after_an_unseen_load(loads, deadlines):
    """Its session was due at 11,000, and it sends no heartbeats. A load at 9,600 gave it 3 s to revoke: 12,600."""
    story = consumers("m1", POD, poll_ms=3_000).hellos("m1", 1_000, 9_000, 2).hellos("pod", 1_000, 5_000, 2)
    story.current(5_400, "pod", 2, state=1).hello(5_500, "pod", -2, -2).current(5_500, "pod", -2, state=1)
    story.gone(12_600, "pod").epoch(12_600, 3)
    if loads:
        moved(story, 14_500).brokers["broker-2"] = 0
    told = play(story, 25_000)
    assert told.opened("member-removed") == ["pod-1"]
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == deadlines
    assert told.opened("session-expired") == []


def test_a_static_member_removed_as_its_successor_joins_has_expired():
    """Both happen in one millisecond: a removal raises the epoch, a replacement does not."""
    story = consumers("m1", POD).hellos("m1", 1_000, 30_000, 2).hellos("pod", 1_000, 5_000, 2)
    story.gone(11_004, "pod").epoch(11_004, 3).target(11_004, 3)
    story.member(11_004, Who("pod-2", instance_id="pod-1", port=5_009)).epoch(11_004, 4).current(11_004, "pod-2", 3)
    assert play(story.hello(11_005, "pod-2", 0, 3), 20_000).accusations == [("session-expired", "pod-1")]


def test_replacements_are_no_recurrences():
    """Three replacements in a row, then one true expiry: that is one violation, not four."""
    story = consumers("m1", POD).hellos("m1", 1_000, 30_000, 2).hellos("pod", 1_000, 2_000, 2)
    last = "pod"
    for n, at_ms in enumerate((3_000, 4_000, 5_000)):
        new = Who(f"pod{n}", instance_id="pod-1", port=5_010 + n)
        story.current(at_ms - 500, last, -2).gone(at_ms, last).member(at_ms, new)
        last = new.member_id
        story.current(at_ms, last, 2).hello(at_ms + 1 + n, last, 0, 2)
    story.hellos(last, 6_000, 8_000, 2).gone(14_003, last).epoch(14_003, 3).target(14_003, 3).current(14_100, "m1", 3)
    told = play(story, 20_000)
    assert told.accusations == [("session-expired", "pod-1")]
    assert [t["severity"] for t in told.transitions if t["rule"] == "session-expired"] == ["warn"]


# ------------------------------------------------------------------------------------------------ other kinds


def mixed():
    """A consumer group at epoch 2 with two KIP-848 members and one that still speaks the classic protocol."""
    story = consumers("m1", "m2").member(200, "old", classic_session_ms=9_000).current(210, "old", 2)
    return story.hellos("m1", 1_000, 10_000, 2).hellos("m2", 1_000, 3_000, 2).beats("old", 1_000, 10_000, 2)


def test_a_classic_heartbeat_in_a_consumer_group_revives_nobody():
    """m2 expires, the epoch moves on; the classic member is still told 27 in its old epoch."""
    story = mixed().gone(9_003, "m2").epoch(9_003, 3).target(9_003, 3).beat(9_500, "old", 2, error=27)
    group = play(story, 9_900).group
    assert {m["member_id"] for m in group["members"]} == {"m1", "old"}
    assert (group["state"], group["generation"]) == ("Reconciling", 3)


def test_an_answer_25_to_a_classic_member_of_a_consumer_group_begins_no_join_phase():
    assert play(mixed().beat(10_500, "old", 2, error=25), 10_900).group["state"] == "Stable"


def test_a_classic_members_join_does_not_move_the_epoch_of_a_consumer_group():
    story = mixed().epoch(9_003, 4).beat(9_500, "old", 2, error=27).join(9_800, "old", 3)
    group = play(story, 9_900).group
    assert (group["state"], group["generation"]) == ("Assigning", 4)
    assert {m["member_id"] for m in group["members"]} == {"m1", "m2", "old"}


# when the classic member's heartbeat was answered 27 as the coordinator woke, just before it joined again -> told
@pytest.mark.parametrize(("asked_ms", "rule"), [(17_002, "rebalance-timeout"), (None, "session-expired")])
def test_a_heartbeat_from_just_before_a_member_came_back_is_of_the_removed_one(asked_ms, rule):
    """Both timers were due in the pause until 17,000. A session that its heartbeat restarts had not ended before."""
    story = consumers("m1", poll_ms=10_000).hellos("m1", 1_000, 9_000, 2).silent(9_000, 17_000)
    story.member(200, "old", classic_session_ms=5_000).current(210, "old", 2).beats("old", 1_000, 4_000, 2)
    story.epoch(4_500, 3).target(4_500, 3).beats("old", 5_000, 9_000, 2, error=27)
    story.hello(17_001, "m1", 2, 3).gone(17_002, "old").epoch(17_002, 4)
    if asked_ms is not None:
        story.beat(asked_ms, "old", 2, error=27)
    story.member(17_002, "old", classic_session_ms=5_000).epoch(17_002, 5).target(17_002, 5)
    story.current(17_002, "old", 5).join(17_003, "old", 5, parked_ms=1).sync(17_010, "old", 5)
    story.beats("old", 18_000, 25_000, 5).hellos("m1", 18_000, 25_000, 5)
    assert play(story, 25_000).accusations == [(rule, "old")]


def test_stale_tombstones_of_another_kind_do_not_touch_a_living_classic_group():
    story = Story().record(100, 1, "m1").sync(150, "m1", 1, leader=True).gone(200, "m1").epoch(200, None)
    assert set(story.play(300).members) == {"m1"}


@pytest.mark.parametrize("error", [22, 25, 82, 110, 111, 113, 14, 16])
def test_a_refused_heartbeat_is_not_heard(error):
    story = consumers("m1", "m2").hellos("m2", 1_000, 3_000, 2).hello(4_000, "m2", 2, 0, error=error)
    assert play(story, 4_500).members["m2"]["last_heartbeat_ms"] == T0 + 3_000

"""Who waits for whom in a KIP-848 group, what regular expressions resolve to, and the timeout of a revocation."""

import pytest

from tests.support import records
from tests.support.records import key
from tests.support.story import T0, TOPIC_ID, TOPIC_ID_TEXT, consumers

SESSION = {"consumer_session_timeouts_ms": {"": 6_000}}
STATES = {"stable": 0, "unrevoked": 1, "unreleased": 2}


def play(story, until):
    return story.play(until, **SESSION)


def owns(story, at_ms, member, epoch, *partitions, state="stable", revoking=()):
    """Write record 8 with what the member keeps and what it has to give up."""
    value = records.current(epoch, epoch - 1, STATES[state], {TOPIC_ID: partitions}, {TOPIC_ID: revoking})
    return story.write(at_ms, key(8, story.group, member), value)


def wants(story, at_ms, member, *partitions):
    """Write record 7."""
    return story.write(at_ms, key(7, story.group, member), records.target({TOPIC_ID: partitions}))


def handover():
    """m1 owns all four partitions at epoch 2; m2 joins at 500 and is to get 2 and 3."""
    story = wants(owns(consumers("m1"), 120, "m1", 2, 0, 1, 2, 3), 120, "m1", 0, 1, 2, 3)
    story.member(500, "m2").epoch(500, 3)
    wants(wants(story, 600, "m1", 0, 1), 600, "m2", 2, 3).target(600, 3)
    owns(story, 600, "m2", 3, state="unreleased")
    return owns(story, 700, "m1", 2, 0, 1, state="unrevoked", revoking=(2, 3))


def test_a_member_that_has_to_give_up_blocks_who_is_to_get_it():
    told = play(handover(), 800)
    m1, m2 = told.members["m1"], told.members["m2"]
    assert (told.group["state"], told.group["generation"], told.group["assignment_epoch"]) == ("Reconciling", 3, 3)
    assert (m1["state"], m1["generation"], m1["waits_for"]) == ("unrevoked", 2, [])
    assert m1["assignment"] == [{"topic": TOPIC_ID_TEXT, "partitions": [0, 1, 2, 3]}]
    assert m1["revoking"] == [{"topic": TOPIC_ID_TEXT, "partitions": [2, 3]}]
    assert (m2["state"], m2["generation"]) == ("unreleased", 3)
    assert m2["target"] == [{"topic": TOPIC_ID_TEXT, "partitions": [2, 3]}]
    assert m2["waits_for"] == [{"member_id": "m1", "partitions": [[TOPIC_ID_TEXT, 2], [TOPIC_ID_TEXT, 3]]}]


def test_nobody_waits_once_what_was_revoked_has_been_taken():
    story = owns(owns(handover(), 900, "m1", 3, 0, 1), 1_000, "m2", 3, 2, 3)
    told = play(story, 1_100)
    assert (told.group["state"], told.members["m2"]["waits_for"]) == ("Stable", [])
    assert (told.members["m1"]["revoking"], told.members["m1"]["revoke_deadline_ms"]) == ([], None)


def test_of_two_records_that_claim_a_partition_the_larger_epoch_owns_it():
    """Compaction has dropped the record in which m1 gave up partition 2; m2's came later, in a later epoch."""
    story = owns(consumers("m1", "m2"), 200, "m1", 2, 0, 2)
    story.member(300, "m3").epoch(300, 4).target(300, 4)
    owns(wants(story, 300, "m3", 2), 300, "m3", 4, state="unreleased")
    assert play(owns(story, 400, "m2", 3, 2), 500).members["m3"]["waits_for"] == [
        {"member_id": "m2", "partitions": [[TOPIC_ID_TEXT, 2]]}
    ]


def test_a_revocation_has_the_members_rebalance_timeout():
    assert play(handover(), 800).members["m1"]["revoke_deadline_ms"] == T0 + 700 + 60_000


def test_the_same_state_written_again_does_not_start_the_revocation_anew():
    story = owns(handover(), 5_000, "m1", 2, 0, 1, state="unrevoked", revoking=(2, 3))
    assert play(story, 5_100).members["m1"]["revoke_deadline_ms"] == T0 + 700 + 60_000


def test_more_to_give_up_starts_the_revocation_anew():
    """The coordinator sets its timer with each such record (`GroupMetadataManager.maybeReconcile`)."""
    story = owns(handover(), 5_000, "m1", 2, 0, state="unrevoked", revoking=(1, 2, 3))
    assert play(story, 5_100).members["m1"]["revoke_deadline_ms"] == T0 + 5_000 + 60_000


def test_a_member_that_never_gives_up_is_removed_at_its_rebalance_timeout():
    story = handover().hellos("m1", 1_000, 60_000, 2).hellos("m2", 1_000, 70_000, 3)
    told = play(owns(story.gone(60_703, "m1").epoch(60_703, 4).target(60_703, 4), 60_800, "m2", 4, 2, 3), 70_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m1", 60_700)]


def test_a_revocation_whose_timer_ran_late_in_a_short_pause_was_missed():
    """The coordinator stands still from 60,100 to 61,600, too short a time to be told from a busy one."""
    story = handover().hellos("m1", 1_000, 60_000, 2).hellos("m2", 1_000, 70_000, 3)
    told = play(owns(story.gone(61_600, "m1").epoch(61_600, 4).target(61_600, 4), 61_700, "m2", 4, 2, 3), 70_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m1", 60_700)]


# when m1 is gone, 6 s after it was heard last, and its session timeout is not known -> the rule, the deadline; it had
# to give up partitions until 60,700
OF_AN_UNKNOWN_SESSION = {
    "right at its rebalance timeout": (60_703, "rebalance-timeout", 60_700),
    "late, in a short pause": (61_600, "rebalance-timeout", 60_700),
    "just before: no timer runs early": (60_698, "session-expired", 60_698),
    "long before": (50_000, "session-expired", 50_000),
}


@pytest.mark.parametrize("name", OF_AN_UNKNOWN_SESSION)
def test_without_a_known_session_timeout_a_missed_revocation_is_told(name):
    gone_ms, rule, deadline_ms = OF_AN_UNKNOWN_SESSION[name]
    story = handover().hellos("m1", gone_ms % 1_000, gone_ms - 6_000, 2).hellos("m2", 1_000, 70_000, 3)
    story.gone(gone_ms, "m1").epoch(gone_ms, 4).target(gone_ms, 4)
    told = owns(story, gone_ms + 100, "m2", 4, 2, 3).play(70_000)
    assert told.accusations == [(rule, "m1")]
    assert told.facts(rule, "subject", "deadline_ms", "evidence") == [("m1", deadline_ms, "observed")]


# when m1 was heard last, when it is gone; the timer of its revocation was not due before 60,700
GONE_BEFORE = {"by 20 ms": (54_640, 60_680), "by 2 ms, seen on a real broker": (54_693, 60_698)}


@pytest.mark.parametrize("name", GONE_BEFORE)
def test_a_session_that_ended_just_before_its_member_had_to_give_up_is_told(name):
    """``scheduleConsumerGroupRebalanceTimeout`` runs a timer at its time, or later: so the session's has run."""
    last_ms, gone_ms = GONE_BEFORE[name]
    story = handover().hellos("m1", last_ms % 1_000, last_ms, 2).hellos("m2", 1_000, 70_000, 3)
    told = play(owns(story.gone(gone_ms, "m1").epoch(gone_ms, 4).target(gone_ms, 4), 60_800, "m2", 4, 2, 3), 70_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m1", last_ms + 6_000)]
    assert told.opened("rebalance-timeout") == []


@pytest.mark.parametrize(("last_ms", "rule"), [(59_000, "rebalance-timeout"), (54_000, "session-expired")])
def test_a_revocation_and_a_session_due_in_one_pause_run_in_order(last_ms, rule):
    """The coordinator pauses from 59,500 to 70,000; m1 had until 60,700, and 6 s of session from its heartbeat."""
    story = handover().hellos("m1", 1_000, last_ms, 2).hellos("m2", 1_000, 59_000, 3).silent(59_500, 70_000)
    story.hellos("m2", 70_100, 74_100, 4).gone(70_003, "m1").epoch(70_003, 4).target(70_003, 4)
    assert play(owns(story, 70_200, "m2", 4, 2, 3), 74_500).facts(rule, "subject", "deadline_ms") == [("m1", 70_000)]


# when m1 was heard last, when its record shows that it is gone -> the rule; the coordinator pauses after that
BEFORE_A_PAUSE = {
    "its revocation": (59_000, 60_700, "rebalance-timeout"),
    "its session": (54_640, 60_640, "session-expired"),
}


@pytest.mark.parametrize("name", BEFORE_A_PAUSE)
def test_a_timer_that_ran_between_the_last_line_and_the_pause_is_told_by_its_record(name):
    """The last line before the pause, which ends at 70,000, is of 60,500."""
    last_ms, gone_ms, rule = BEFORE_A_PAUSE[name]
    story = handover().hellos("m1", last_ms % 1_000, last_ms, 2).hellos("m2", 1_000, 60_000, 3).silent(60_501, 70_000)
    story.gone(gone_ms, "m1").epoch(gone_ms, 4).target(70_003, 4).hellos("m2", 70_100, 74_100, 4)
    told = play(owns(story, 70_200, "m2", 4, 2, 3), 74_500)
    assert told.facts(rule, "subject", "deadline_ms") == [("m1", gone_ms)]
    assert told.accusations == [(rule, "m1")]


# ------------------------------------------------------------------------------------------------ why it did not


def never_gives_up():
    """m1 does not give up what it has to, and is removed at 60,700; its heartbeats go on until then."""
    story = handover().hellos("m1", 1_000, 60_000, 2).hellos("m2", 1_000, 150_000, 3)
    story.gone(60_703, "m1").epoch(60_703, 4).target(60_703, 4)
    return owns(story, 60_800, "m2", 4, 2, 3)


def pushing(*, polls=(4_000,), until_ms=150_000):
    """It pushes whether it polled, and names no member once it is out."""
    story = never_gives_up()
    for at_ms in range(4_000, until_ms, 5_000):
        out = {"member_id": None} if at_ms > 60_703 else {}
        story.pushes(at_ms, "m1", None, idle=(0.9 if at_ms in polls else 0.0, 5_000), **out)
    return story


WHY = {
    "it did not poll while it was waited for": (pushing(), "poll-interval"),
    "it did not, and polls once it is out": (pushing(polls=(4_000, 79_000)), "poll-interval"),
    "it polled meanwhile": (pushing(polls=(4_000, 29_000)), "rebalance-timeout"),
    "it was never seen to poll": (pushing(polls=()), "rebalance-timeout"),
    "its pushes ended long before": (pushing(until_ms=40_000), "rebalance-timeout"),
    "it reports that it did not": (never_gives_up().reports(63_000, "m1", 62_500), "poll-interval"),
    "it reports a poll meanwhile": (never_gives_up().reports(99_000, "m1", 70_000), "rebalance-timeout"),
    "it pushes an age that tells it": (never_gives_up().pushes(62_000, "m1", 62), "poll-interval"),
    "it pushes an age of a poll meanwhile": (never_gives_up().pushes(99_000, "m1", 70), "rebalance-timeout"),
}


@pytest.mark.parametrize("name", WHY)
def test_who_misses_a_rebalance_since_it_does_not_poll_has_that_cause(name):
    story, cause = WHY[name]
    told = [line for line in play(story, 150_000).transitions if line["rule"] == "rebalance-timeout"]
    assert (told[0]["transition"], told[-1]["cause"]) == ("opened", cause)
    assert ("it did not poll" in told[-1]["summary"]) == (cause == "poll-interval")


# ------------------------------------------------------------------------------------------------ subscriptions


def subscribes(story, at_ms, member, *topics, regex=None):
    """Write record 5 with topics and a regular expression."""
    value = records.member_metadata("c", "/10.0.0.7", topics, 60_000, regex=regex)
    return story.write(at_ms, key(5, story.group, member), value)


def resolves(story, at_ms, regex, *topics):
    """Write record 16; without topics its tombstone."""
    return story.write(at_ms, key(16, story.group, regex), records.resolved_regex(topics) if topics else None)


@pytest.mark.parametrize("first", ["the member", "the resolution"], ids=lambda first: f"{first} first")
def test_a_regular_expression_counts_as_the_topics_it_was_resolved_to(first):
    """The coordinator resolves it after the join; compaction may leave the records in either order."""
    story = consumers("m1")
    if first == "the member":
        resolves(subscribes(story, 500, "m1", "also", regex="a.*"), 600, "a.*", "alpha", "aleph")
    else:
        subscribes(resolves(story, 500, "a.*", "alpha", "aleph"), 600, "m1", "also", regex="a.*")
    member = play(story, 700).members["m1"]
    assert (member["topics"], member["topic_regex"]) == (["aleph", "alpha", "also"], "a.*")


def test_topics_that_come_and_go_resolve_anew():
    story = resolves(subscribes(consumers("m1"), 500, "m1", regex="a.*"), 600, "a.*", "alpha", "aleph")
    assert play(resolves(story, 700, "a.*", "alpha"), 800).members["m1"]["topics"] == ["alpha"]


def test_the_last_subscriber_takes_its_regular_expression_along():
    story = resolves(subscribes(consumers("m1"), 500, "m1", regex="a.*"), 600, "a.*", "alpha")
    resolves(subscribes(story, 700, "m1", "t"), 700, "a.*")
    assert play(story, 800).members["m1"]["topics"] == ["t"]


def test_no_timer_is_due_of_a_member_whose_own_record_is_not_known():
    """A shipper cuts dates to seconds, so the leave of m2 seems older than the record by which it has to revoke."""
    story = consumers("m1", "m2").hellos("m1", 1_000, 30_000, 2).hellos("m2", 1_000, 8_000, 2)
    story.hello(9_000, "m2", -1, -1)
    owns(story, 9_600, "m2", 2, 0, state="unrevoked", revoking=(1,)).gone(9_610, "m2")
    told = play(story, 30_000)
    assert told.of("rebalance-timeout") == []
    assert told.facts("member-removed", "subject") == [("m2",)]

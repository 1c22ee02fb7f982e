"""What a member's client is doing by the protocol, why it joined, and what it is."""

from tests.support.story import T0, Story, consumers, stable


def phases(story, until_ms):
    return {name: m["client_phase"] for name, m in story.play(until_ms).members.items()}


def test_in_a_stable_group_all_are_stable():
    assert phases(stable("m1", "m2").beats("m1", 1_000, 3_000), 3_000) == {"m1": "stable", "m2": "stable"}


def test_told_to_rejoin_a_client_is_joining_once_its_heartbeats_stop():
    """m1 goes on with them, so it has not polled yet; m2's JoinGroup waits for its answer."""
    story = stable("m1", "m2").beats("m1", 1_000, 9_000).beats("m2", 1_000, 9_000)
    story.beats("m1", 10_000, 14_000, error=27).beat(10_000, "m2", error=27)
    assert phases(story, 14_000) == {"m1": "stable", "m2": "joining"}


def test_who_joined_waits_for_its_assignment_until_its_sync_is_answered():
    story = stable("m1", "m2").join(5_000, "m1", 2, listed=("m1", "m2")).join(5_000, "m2", 2)
    assert phases(story, 6_000) == {"m1": "awaiting-assignment", "m2": "awaiting-assignment"}
    story.sync(6_100, "m1", 2, leader=True)
    assert phases(story, 6_500) == {"m1": "stable", "m2": "awaiting-assignment"}


def test_a_kip848_client_is_stable_at_its_target_and_unjoined_while_it_is_away():
    story = consumers("m1", "m2", "m3").current(500, "m2", 2, 2).current(600, "m3", -2)
    assert phases(story, 1_000) == {"m1": "stable", "m2": "awaiting-assignment", "m3": "unjoined"}


def test_what_the_log_alone_tells_is_not_made_up():
    told = Story().record(100, 1, "m1").beat(1_000, "m1").play(2_000)
    member = told.members["m1"]
    assert [member[name] for name in ("listener", "principal", "client_software", "rejoin_reason")] == [None] * 4
    assert member["heartbeat_interval_ms"] is None


def test_a_join_tells_who_the_client_is_and_its_limits():
    member = stable("m1").beats("m1", 1_000, 3_000, every_ms=700).play(3_000).members["m1"]
    assert member["listener"] == "PLAINTEXT"
    assert member["principal"] == "User:ANONYMOUS"
    assert member["client_software"] == "apache-kafka-java 4.3.1"
    assert member["max_poll_interval_ms"] == 60_000
    assert member["heartbeat_interval_ms"] == 700


def test_why_a_client_joined_is_told_in_its_own_words():
    story = stable("m1")
    [row] = [r for _, _, r in story.rows if r.value and b"JOIN_GROUP" in r.value]
    said = row._replace(value=row.value.replace(b'"reason":""', b'"reason":"cached metadata has changed"'))
    story.rows = [(at, rank, said if r is row else r) for at, rank, r in story.rows]
    assert story.play(1_000).members["m1"]["rejoin_reason"] == "cached metadata has changed"


def test_a_settled_group_tells_when_its_rebalance_began_and_when_all_had_joined():
    """m2 asks again at 5,000; m1 is told with its next heartbeat and comes at 7,000; the leader's sync ends it."""
    story = stable("m1", "m2").beats("m1", 1_000, 4_000).beats("m2", 1_000, 4_000)
    story.join(7_000, "m2", 2, parked_ms=2_000).join(7_000, "m1", 2, listed=("m1", "m2"))
    assert story.play(7_100).group["rebalanced"] is None
    story.sync(7_200, "m1", 2, leader=True).record(7_190, 2, "m1", "m2")
    assert story.play(8_000).group["rebalanced"] == {"began_ms": T0 + 5_000, "joined_ms": T0 + 7_000}


def test_when_a_rebalance_began_is_not_made_up_from_records_alone():
    assert Story().record(100, 1, "m1").record(9_000, 2, "m1").play(10_000).group["rebalanced"] is None


def test_a_kip848_group_rebalances_from_its_epoch_on():
    assert consumers("m1").play(1_000).group["rebalanced"]["joined_ms"] is None

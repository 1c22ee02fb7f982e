"""Share and streams groups: states, epochs, assignments and tasks from their records, life from their heartbeats."""

import pytest

from tests.support import records
from tests.support.records import key
from tests.support.request_log import line
from tests.support.story import T0, TOPIC_ID, TOPIC_ID_TEXT, Story

TIMEOUTS = {"share_session_timeouts_ms": {"": 6_000}, "streams_session_timeouts_ms": {"": 6_000}}
SHARE_MEMBER, SHARE_EPOCH, SHARE_TARGET, SHARE_WANTED, SHARE_CURRENT = 10, 11, 12, 13, 14
EPOCH, MEMBER, TARGET, WANTED, CURRENT, TOPOLOGY = 17, 19, 20, 21, 22, 23
STABLE, UNREVOKED, UNRELEASED = 1, 2, 3
READ = {TOPIC_ID: (0, 1)}


def play(story, until):
    return story.play(until, **TIMEOUTS)


def beats(story, api, member, start_ms, end_ms, epoch, *, asked=None):
    """Answer heartbeats of an API once a second."""
    [who] = story.know(member)
    for at_ms in range(start_ms, end_ms + 1, 1_000):
        request = {"groupId": story.group, "memberId": member, "memberEpoch": epoch if asked is None else asked}
        answer = {"throttleTimeMs": 0, "errorCode": 0, "memberId": member, "memberEpoch": epoch}
        story.tell(at_ms, line(api, request, answer, client=who.client_id, port=who.port))
    return story


# ------------------------------------------------------------------------------------------------ share groups


def share(*members, epoch=2):
    """Begin a share group in which every member reads partitions 0 and 1."""
    story = Story()
    for member in members:
        beats(story, "SHARE_GROUP_HEARTBEAT", member, 100, 100, epoch, asked=0)
        value = records.share_member(f"client-{member}", "/10.0.0.7", ["t"])
        story.write(105, key(SHARE_MEMBER, story.group, member), value)
    share_epoch(story, 105, epoch)
    story.write(106, key(SHARE_TARGET, story.group), records.target_epoch(epoch))
    for member in members:
        story.write(106, key(SHARE_WANTED, story.group, member), records.target(READ))
        story.write(110, key(SHARE_CURRENT, story.group, member), records.share_current(epoch, epoch - 1, 0, READ))
    return story


def share_epoch(story, at_ms, epoch):
    return story.write(at_ms, key(SHARE_EPOCH, story.group), None if epoch is None else records.hashed_epoch(epoch))


def share_gone(story, at_ms, member):
    for type_ in (SHARE_CURRENT, SHARE_WANTED, SHARE_MEMBER):
        story.write(at_ms, key(type_, story.group, member), None)
    return story


def test_a_share_groups_members_read_the_same_partitions():
    told = play(share("m1", "m2"), 200)
    group = told.group
    assert (group["type"], group["state"], group["protocol_type"]) == ("share", "Stable", "share")
    assert (group["generation"], group["assignment_epoch"]) == (2, 2)
    for member in told.members.values():
        assert member["assignment"] == member["target"] == [{"topic": TOPIC_ID_TEXT, "partitions": [0, 1]}]
        assert (member["state"], member["topics"], member["generation"]) == ("stable", ["t"], 2)


def test_a_share_group_with_members_is_stable_whatever_its_epochs_say():
    """It waits for nobody: no partition has to be given up before another member reads it."""
    assert play(share_epoch(share("m1"), 500, 3), 600).group["state"] == "Stable"


def test_a_share_group_without_members_is_empty():
    assert play(share_epoch(share_gone(share("m1"), 500, "m1"), 500, 3), 600).group["state"] == "Empty"


def test_a_share_members_heartbeats_show_that_it_lives():
    story = beats(share("m1"), "SHARE_GROUP_HEARTBEAT", "m1", 1_000, 5_000, 2)
    member = play(story, 5_000).members["m1"]
    assert (member["liveness"], member["last_heartbeat_ms"]) == ("alive", T0 + 5_000)
    assert member["session_timeout_ms"] == 6_000


def test_a_share_member_that_is_removed_without_a_leave_has_expired():
    story = beats(share("m1", "m2"), "SHARE_GROUP_HEARTBEAT", "m1", 1_000, 20_000, 2)
    beats(story, "SHARE_GROUP_HEARTBEAT", "m2", 1_000, 5_000, 2)
    told = play(share_epoch(share_gone(story, 11_003, "m2"), 11_003, 3), 20_000)
    assert told.facts("session-expired", "subject", "deadline_ms", "evidence")[-1][:2] == ("m2", 11_000)
    assert told.accusations == [("session-expired", "m2")]


def test_a_share_member_that_leaves_is_nobodys_incident():
    story = beats(share("m1", "m2"), "SHARE_GROUP_HEARTBEAT", "m1", 1_000, 20_000, 2)
    beats(story, "SHARE_GROUP_HEARTBEAT", "m2", 1_000, 5_000, 2)
    beats(story, "SHARE_GROUP_HEARTBEAT", "m2", 5_400, 5_400, -1)
    assert play(share_epoch(share_gone(story, 5_401, "m2"), 5_401, 3), 20_000).accusations == []


def test_a_deleted_share_group_is_gone():
    assert play(share_epoch(share_gone(share("m1"), 500, "m1"), 900, None), 1_000).history.groups == []


# ------------------------------------------------------------------------------------------------ streams groups


def has(story, at_ms, member, epoch, *active, standby=(), revoking=(), state=STABLE):
    """Write record 22."""
    value = records.streams_current(epoch, epoch - 1, state, active, standby, revoking)
    return story.write(at_ms, key(CURRENT, story.group, member), value)


def wants(story, at_ms, member, *active):
    """Write record 21."""
    return story.write(at_ms, key(WANTED, story.group, member), records.streams_target(active))


def streams_epoch(story, at_ms, epoch, *, validated=None):
    """Write record 17; `validated` is the topology epoch that the broker has found to fit its topics (4.2)."""
    value = None if epoch is None else records.hashed_epoch(epoch, validated=validated)
    return story.write(at_ms, key(EPOCH, story.group), value)


def target(story, at_ms, epoch):
    return story.write(at_ms, key(TARGET, story.group), records.target_epoch(epoch))


def topology(story, at_ms, epoch):
    """Write record 23 without subtopologies."""
    return story.write(at_ms, key(TOPOLOGY, story.group), records.topology(epoch))


def joins(story, at_ms, member):
    """Write record 19."""
    value = records.streams_member(f"client-{member}", "/10.0.0.7", 60_000, "process")
    return story.write(at_ms, key(MEMBER, story.group, member), value)


def streams(*members, validated=1):
    """Begin a streams group stable at epoch 3; each member runs one task of subtopology 0."""
    story = topology(Story(), 100, 1)
    for member in members:
        beats(story, "STREAMS_GROUP_HEARTBEAT", member, 100, 100, 3, asked=0)
        joins(story, 105, member)
    streams_epoch(story, 105, 3, validated=validated)
    for n, member in enumerate(members):
        has(wants(story, 105, member, n), 110, member, 3, n)
    return target(story, 105, 3)


def test_a_streams_groups_members_run_tasks():
    told = play(has(streams("m1", "m2"), 200, "m1", 3, 0, standby=(1,)), 300)
    group, member = told.group, told.members["m1"]
    assert (group["type"], group["state"], group["protocol_type"]) == ("streams", "Stable", "streams")
    assert (group["generation"], group["assignment_epoch"], group["topology_epoch"]) == (3, 3, 1)
    assert member["tasks"] == {"active": {"0": [0]}, "standby": {"0": [1]}}
    assert (member["assignment"], member["target"]) == ([{"topic": "0", "partitions": [0]}],) * 2
    assert (member["rebalance_timeout_ms"], member["state"]) == (60_000, "stable")


def assigned_anew(story):
    """Move the group and its assignment on to epoch 4."""
    return target(streams_epoch(story, 500, 4, validated=1), 500, 4)


# what follows a streams group stable at epoch 3 -> state
STREAMS_STATES = {
    "nothing": (lambda s: s, "Stable"),
    "a new topology that is not validated yet": (lambda s: topology(s, 500, 2), "NotReady"),
    "a new topology, validated": (
        lambda s: streams_epoch(topology(s, 500, 2), 501, 3, validated=2),
        "Stable",
    ),
    "the group epoch runs ahead": (lambda s: streams_epoch(s, 500, 4, validated=1), "Assigning"),
    "the member has tasks to give up": (
        lambda s: has(
            target(streams_epoch(s, 500, 4, validated=1), 500, 4), 510, "m1", 3, revoking=(0,), state=UNREVOKED
        ),
        "Reconciling",
    ),
    "the member waits for tasks": (
        lambda s: has(assigned_anew(s), 510, "m1", 4, state=UNRELEASED),
        "Reconciling",
    ),
    "the last member is gone": (lambda s: streams_gone(s, 500, "m1"), "Empty"),
}


def streams_gone(story, at_ms, member):
    for type_ in (CURRENT, WANTED, MEMBER):
        story.write(at_ms, key(type_, story.group, member), None)
    return story


@pytest.mark.parametrize("name", STREAMS_STATES)
def test_a_streams_groups_state_follows_from_topology_epochs_and_members(name):
    happens, state = STREAMS_STATES[name]
    assert play(happens(streams("m1")), 600).group["state"] == state


def test_a_broker_that_does_not_say_what_it_validated_has_where_tasks_are_out():
    """4.1 writes no validated epoch: a group with tasks is ready, one without is not."""
    assert play(streams("m1", validated=None), 200).group["state"] == "Stable"
    waiting = streams_epoch(joins(topology(Story(), 100, 1), 105, "m1"), 105, 2)
    assert play(target(has(waiting, 110, "m1", 2), 110, 2), 200).group["state"] == "NotReady"


def test_a_streams_member_that_has_to_give_up_a_task_blocks_who_is_to_get_it():
    story = assigned_anew(streams("m1", "m2"))
    has(wants(story, 500, "m2", 0, 1), 510, "m2", 4, 1, state=UNRELEASED)
    told = play(has(wants(story, 500, "m1"), 510, "m1", 3, revoking=(0,), state=UNREVOKED), 600)
    assert told.members["m2"]["waits_for"] == [{"member_id": "m1", "partitions": [["0", 0]]}]
    assert told.members["m1"]["revoke_deadline_ms"] == T0 + 510 + 60_000


def test_a_streams_members_heartbeats_show_that_it_lives():
    story = beats(streams("m1"), "STREAMS_GROUP_HEARTBEAT", "m1", 1_000, 5_000, 3)
    member = play(story, 5_000).members["m1"]
    assert (member["liveness"], member["session_timeout_ms"]) == ("alive", 6_000)


def test_a_streams_member_that_is_removed_without_a_leave_has_expired():
    story = beats(streams("m1", "m2"), "STREAMS_GROUP_HEARTBEAT", "m1", 1_000, 20_000, 3)
    beats(story, "STREAMS_GROUP_HEARTBEAT", "m2", 1_000, 5_000, 3)
    told = play(streams_epoch(streams_gone(story, 11_003, "m2"), 11_003, 4, validated=1), 20_000)
    assert told.accusations == [("session-expired", "m2")]


def test_a_streams_member_that_leaves_is_nobodys_incident():
    story = beats(streams("m1", "m2"), "STREAMS_GROUP_HEARTBEAT", "m1", 1_000, 20_000, 3)
    beats(story, "STREAMS_GROUP_HEARTBEAT", "m2", 1_000, 5_000, 3)
    beats(story, "STREAMS_GROUP_HEARTBEAT", "m2", 5_400, 5_400, -1)
    assert play(streams_epoch(streams_gone(story, 5_401, "m2"), 5_401, 4, validated=1), 20_000).accusations == []


def test_a_groups_own_session_timeout_counts_more_than_the_brokers():
    told = share("m1").play(200, share_session_timeouts_ms={"": 45_000, "orders": 50_000})
    assert told.members["m1"]["session_timeout_ms"] == 50_000


def test_the_default_of_kip_848_groups_is_not_taken_for_share_groups():
    told = share("m1").play(200, consumer_session_timeouts_ms={"": 45_000})
    assert told.members["m1"]["session_timeout_ms"] is None

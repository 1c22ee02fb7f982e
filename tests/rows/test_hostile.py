"""Bad input: contradictions and sheer size. Never a crash, never a silent repair, and memory has documented bounds."""

import time
from uuid import UUID

import pytest

from coordinator_model.replica.member_blobs import MAX_PARTITIONS_SHOWN
from coordinator_model.shard import view
from coordinator_model.shard.view import MAX_MEMBERS_SHOWN
from tests.coordinator_model.rules.test_setup_rules import CONTEXT
from tests.rows.witness import Witness
from tests.rows.world import T0_MS, World
from tests.support import records as encoder
from tests.support.records import ListedMember

TOPIC_ID = UUID(bytes=bytes(range(1, 17)))
SUBSCRIBED = encoder.subscription(["t"])


def member(member_id, partitions=(), subscription=SUBSCRIBED):
    assigned = encoder.assignment({"t": list(partitions)})
    return ListedMember(member_id, None, "c", "/10.0.0.7", 60_000, 10_000, subscription, assigned)


def group_record(world, group, generation, *members, leader="m0"):
    value = encoder.group_metadata("consumer", generation, "range", leader, world.now_ms, members)
    world.record(encoder.key(2, group), value)
    world.run(10)


def consumer_record(world, type_, value, member_id=None):
    world.record(encoder.key(type_, "g", member_id), value)
    world.run(1)


@pytest.fixture
def world():
    return World()


def replica_of(world, group="g"):
    witness = Witness()
    world.run(1_000)
    witness.feed(world.take())
    [shown] = [view for view in witness.shard.views() if view["group"] == group]
    return witness.replica(group), shown


def test_a_partition_that_two_classic_members_own_is_shown_with_both(world):
    group_record(world, "g", 1, member("m0", [0, 1]), member("m1", [1, 2]))
    _, shown = replica_of(world)
    assert [m["assignment"][0]["partitions"] for m in shown["members"]] == [[0, 1], [1, 2]]


def test_a_partition_that_two_kip_848_members_own_is_shown_with_both(world):
    """The record in which the old owner gave it up may have been compacted away."""
    for member_id in ("m0", "m1"):
        consumer_record(world, 5, encoder.member_metadata("c", "/10.0.0.7", ["t"], 60_000), member_id)
        consumer_record(world, 8, encoder.current(3, 2, 0, {TOPIC_ID: [0]}, {}), member_id)
    consumer_record(world, 3, encoder.group_epoch(3))
    consumer_record(world, 6, encoder.target_epoch(3))
    replica, shown = replica_of(world)
    assert [m["assignment"][0]["partitions"] for m in shown["members"]] == [[0], [0]]
    assert replica.state == "Stable"


def test_a_member_listed_twice_is_one_member_as_the_last_entry_says(world):
    """The broker's own map of members does the same."""
    group_record(world, "g", 1, member("m0", [0]), member("m0", [1]))
    _, shown = replica_of(world)
    assert [(m["member_id"], m["assignment"][0]["partitions"]) for m in shown["members"]] == [("m0", [1])]


def test_a_generation_that_goes_back_is_adopted(world):
    """After a failover a generation that was never written is used again: the group is what the last record says."""
    group_record(world, "g", 7, member("m0"), member("m1"))
    group_record(world, "g", 5, member("m2"), leader="m2")
    replica, _ = replica_of(world)
    assert (replica.generation, replica.leader, list(replica.members)) == (5, "m2", ["m2"])


def test_a_generation_that_begins_anew_is_another_life_of_the_group(world):
    group_record(world, "g", 7, member("m0"))
    group_record(world, "g", 1, member("m2"), leader="m2")
    replica, _ = replica_of(world)
    assert (replica.generation, replica.incarnation) == (1, 1)


def test_an_epoch_that_goes_back_is_adopted(world):
    consumer_record(world, 5, encoder.member_metadata("c", "/10.0.0.7", ["t"], 60_000), "m0")
    for epoch in (9, 4):
        consumer_record(world, 3, encoder.group_epoch(epoch))
        consumer_record(world, 6, encoder.target_epoch(epoch))
    consumer_record(world, 8, encoder.current(4, 3, 0, {}, {}), "m0")
    replica, _ = replica_of(world)
    assert (replica.generation, replica.state) == (4, "Stable")


def test_a_leader_that_is_no_member_is_shown_as_recorded(world):
    """So is a member that owns nothing."""
    group_record(world, "g", 1, member("m0"), leader="nobody")
    replica, shown = replica_of(world)
    assert (replica.leader, shown["members"][0]["assignment"]) == ("nobody", [{"topic": "t", "partitions": []}])


def test_records_of_both_protocols_for_one_group_follow_the_newest(world):
    """After a downgrade of brokers stale KIP-848 records lie beside a live classic group."""
    consumer_record(world, 3, encoder.group_epoch(4))
    consumer_record(world, 5, encoder.member_metadata("c", "/10.0.0.7", ["t"], 60_000), "stale")
    group_record(world, "g", 5, member("m0"))
    replica, shown = replica_of(world)
    assert (replica.type, list(replica.members)) == ("classic", ["m0"])
    assert shown["type"] == "classic"


@pytest.mark.parametrize("count", [5_000, 6_000])
def test_a_group_of_thousands_is_known_whole_and_shown_up_to_a_bound_that_is_told(world, count):
    group_record(world, "g", 1, *(member(f"m{n}", [n]) for n in range(count)))
    started_s = time.process_time()
    replica, shown = replica_of(world)
    assert len(replica.members) == shown["members_total"] == count
    assert len(shown["members"]) == min(count, MAX_MEMBERS_SHOWN)
    assert time.process_time() - started_s < 30, "quadratic in members"


def test_of_thousands_of_members_those_violated_are_shown_and_the_unknown_counted(world, monkeypatch):
    monkeypatch.setattr(view, "MAX_MEMBERS_SHOWN", 2)
    group_record(world, "g", 1, *(member(f"m{n}", [n]) for n in range(5)))
    replica, _ = replica_of(world)
    shown = view.view(replica, CONTEXT, "c", 0, {"m4"})
    assert [(one["member_id"], one["liveness"]) for one in shown["members"]] == [("m0", "unknown"), ("m4", "violated")]
    assert (shown["members_total"], shown["unknown_left_out"]) == (5, 3)


def test_a_record_of_a_megabyte_keeps_a_bounded_part_of_an_assignment(world):
    group_record(world, "g", 1, member("m0", range(250_000)))
    replica, shown = replica_of(world)
    assert replica.members["m0"].assignment == {"t": list(range(MAX_PARTITIONS_SHOWN))}
    assert shown["members"][0]["partitions_left_out"] == 250_000 - MAX_PARTITIONS_SHOWN


def test_a_subscription_of_a_megabyte_breaks_nothing(world):
    """Its group is Stable, and another group beside it goes on."""
    group_record(world, "g", 1, member("m0", subscription=b"\0\0\x7f\xff\xff\xff" + bytes(1_000_000)))
    group_record(world, "h", 1, member("m0", [3]))
    replica, _ = replica_of(world)
    assert replica.state == "Stable"
    assert replica_of_again(world, "h").members["m0"].assignment == {"t": [3]}


def replica_of_again(world, group):
    witness = Witness()
    witness.feed([row for row in world.rows if row.timestamp_ms <= world.now_ms])
    return witness.replica(group)


@pytest.mark.parametrize("groups", [10_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_groups_by_the_hundred_thousand_cost_a_bounded_slice_each(world, groups):
    """Groups that nobody is in: offsets of a stranger's tool, one group id a run."""
    witness, step = Witness(), 10_000
    for begin in range(0, groups, step):
        for n in range(begin, begin + step):
            world.record(encoder.key(2, f"group-{n}"), encoder.group_metadata("", 0, None, None, T0_MS, []))
        world.run(500)
        witness.feed(world.take())
        witness.rows.clear()
        witness.outputs.clear()
    _, *parts = witness.shard.dump()
    assert len(witness.shard.groups()) == groups
    assert sum(map(len, parts)) <= 400 * groups

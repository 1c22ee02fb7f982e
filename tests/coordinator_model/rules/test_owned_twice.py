"""Two members that own one partition: when that is told, and when it is none of our business."""

import pytest

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.rules import partition_owned_twice
from coordinator_model.rules.findings import NOTHING
from coordinator_model.states import GroupState, GroupType
from tests.coordinator_model.rules.test_setup_rules import CONTEXT
from tests.support.story import TOPIC_ID_TEXT, Who, consumers, rebalance, stable

LATER_MS = 1_000_000


def context(progress_ms=LATER_MS):
    """What the rule looks at, at an instant."""
    return CONTEXT._replace(progress_ms=progress_ms)


def group(*held, type_=GroupType.CLASSIC, state=GroupState.STABLE, revoking=()):
    """A group whose members hold these partitions of t; the last is to give up `revoking`."""
    replica = GroupReplica("g", type=type_, state=state)
    for n, partitions in enumerate(held):
        replica.members[f"m{n}"] = Member(
            f"m{n}", rebalance_timeout_ms=300_000, assignment={"t": list(partitions)} if partitions else {}
        )
    if revoking:
        replica.members[f"m{len(held) - 1}"].revoking = {"t": list(revoking)}
    return replica


# group -> the partitions that are told
GROUPS = {
    "each has its own": (group([0, 1], [2]), []),
    "one in common": (group([0, 1], [1, 2]), [("t", 1)]),
    "all in common": (group([0, 1], [0, 1], [0, 1]), [("t", 0), ("t", 1)]),
    "nothing to own": (group([], []), []),
    "one member's list names it twice": (group([0, 0], [1]), []),
    "two consumers of KIP-848": (group([0], [0, 1], type_=GroupType.CONSUMER), [("t", 0)]),
    "one of them has been told to give it up": (group([0], [0, 1], type_=GroupType.CONSUMER, revoking=[0]), []),
    "a share group": (group([0], [0], type_=GroupType.SHARE), []),
    "a streams group": (group([0], [0], type_=GroupType.STREAMS), []),
    "a rebalance is on": (group([0], [0], state=GroupState.PREPARING_REBALANCE), []),
    "a reconciliation is on": (group([0], [0], type_=GroupType.CONSUMER, state=GroupState.RECONCILING), []),
}


@pytest.mark.parametrize("name", GROUPS)
def test_a_partition_with_two_owners(name):
    replica, partitions = GROUPS[name]
    verdict = partition_owned_twice.judge(replica, context())
    assert (verdict.finding.partitions if verdict.finding else []) == partitions


def test_its_owners_are_named():
    finding = partition_owned_twice.judge(group([0, 1], [1]), context()).finding
    assert finding.summary == "g is stable, and more than one member owns 1 partition: t-1 (m0 and m1)"
    assert finding.detail == {"owned_twice": 1, "owners": {"t-1": ["m0", "m1"]}}
    assert finding.severity == "warn"


def test_a_group_that_has_not_settled_is_not_looked_at():
    assert partition_owned_twice.judge(group([0], [0]), context(1_000)) == NOTHING


SHARED = (Who("m1", port=1, partitions=(0, 1)), Who("m2", port=2, partitions=(1, 2)))
STABLE_MS = 140
POLL_MS = 150_000


def both(until_ms, generation=1, story=None):
    story = story or stable(*SHARED, poll_ms=POLL_MS, session_ms=10_000)
    start_ms = 1_000 if generation == 1 else 190_000
    return story.beats("m1", start_ms, until_ms, generation).beats("m2", start_ms, until_ms, generation)


def test_it_is_told_after_a_rebalance_timeout():
    told = both(200_000).play(200_000)
    assert told.facts("partition-owned-twice", "severity", "subject", "at_ms") == [
        ("warn", "orders", STABLE_MS + POLL_MS)
    ]


def test_a_short_double_ownership_is_not_reported():
    story = rebalance(
        both(140_000), 141_000, 2, Who("m1", port=1, partitions=(0, 1)), Who("m2", port=2, partitions=(2,))
    )
    assert both(300_000, 2, story).play(300_000).of("partition-owned-twice") == []


def test_it_ends_with_an_assignment_that_gives_each_partition_to_one():
    story = rebalance(
        both(180_000), 189_000, 2, Who("m1", port=1, partitions=(0, 1)), Who("m2", port=2, partitions=(2,))
    )
    assert both(300_000, 2, story).play(300_000).closed("partition-owned-twice") == [("recovered", 189_000)]


def test_two_records_of_kip_848_that_claim_one_partition_are_told():
    story = consumers("m1", "m2").current(120, "m1", 2, partitions=(0, 1)).current(130, "m2", 2, partitions=(1,))
    story.hellos("m1", 1_000, 130_000, 2).hellos("m2", 1_000, 130_000, 2)
    [told] = story.play(130_000, consumer_session_timeouts_ms={"": 10_000}).of("partition-owned-twice")
    assert told["detail"]["owners"] == {f"{TOPIC_ID_TEXT}-1": ["m1", "m2"]}

"""Who owns which partition since when, as views tell it."""

from dataclasses import replace

from coordinator_model.lag.ownership import facts_of, owners_of
from tests.support.lags import T0, Life, Partition, never

LIFE = {0: Partition(never, member="m1"), 1: Partition(never, member="m2")}


def told(at_ms, **how):
    return Life(LIFE, **{name: how.pop(name) for name in ("type",) if name in how}).view(at_ms, **how).reports[0]


def view(at_ms, **how):
    return told(at_ms, **how).view


def since(owners):
    return {partition: (owner.member_id, owner.since_ms - T0) for (_, partition), owner in owners.items()}


def test_who_goes_on_with_a_partition_keeps_its_instant_and_who_is_new_does_not():
    first = owners_of(view(100), T0 + 105, {})
    assert since(first) == {0: ("m1", 100), 1: ("m2", 100)}
    second = owners_of(view(900, generation=2, m2="m3"), T0 + 905, first)
    assert since(second) == {0: ("m1", 100), 1: ("m3", 900)}
    assert {owner.generation for owner in second.values()} == {2}


def test_while_a_group_is_not_stable_a_partition_is_owned_since_it_is_shown():
    assert since(owners_of(view(100, state="Reconciling"), T0 + 105, {}))[0] == ("m1", 105)


def test_members_of_a_streams_group_hold_no_partitions():
    assert owners_of(view(100, type="streams"), T0 + 105, {}) == {}


def test_the_facts_of_a_group_are_its_views():
    report = replace(told(100), at_ms=T0 + 105, shard=7)
    facts = facts_of(report, report.view)
    assert (facts.group, facts.type, facts.state, facts.broker) == ("g", "classic", "Stable", "broker-1")
    assert (facts.view_ms, facts.stable_since_ms, facts.shard, facts.outage_end_ms) == (T0 + 105, T0 + 100, 7, 0)

"""The replica of a KIP-848 group equals its coordinator after every step: all of it is in the log (kafka-facts 4)."""

from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from coordinator_model.shard import ShardSettings
from tests.simulation.modern import ConsumerGroup, shown
from tests.simulation.modern_clients import ModernClient
from tests.simulation.play import GROUP, INSTANCE, MAX_CLIENTS, POLL_MS, TOPICS, Play
from tests.simulation.world import T0_MS, Connection, World

SESSION_MS = 45_000
SETTLED_MS = 1_500
SETTINGS = ShardSettings(
    cluster="sim",
    partitions=1,
    live_from_ms=T0_MS,
    view_refresh_ms=0,
    consumer_session_timeouts_ms={"": SESSION_MS},
)
MEMBER_STATES = ("stable", "unrevoked", "unreleased")
HOW = st.tuples(INSTANCE, TOPICS, POLL_MS, st.booleans())


class ConsumerGroupMachine(Play):
    @initialize(
        seed=st.integers(0, 2**16),
        delay_ms=st.sampled_from([0, 0, 3, 40]),
        interval_ms=st.sampled_from([0, 1_000]),
        clients=st.lists(HOW, max_size=3),
    )
    def begin(self, seed, delay_ms, interval_ms, clients):
        self.random = Random(seed)
        world = World(line_delay_ms=delay_ms)
        self.begin_with(world, ConsumerGroup(world, GROUP, SESSION_MS, interval_ms), SETTINGS, clients)

    def add(self, instance, topics, poll_ms, minds_polls):
        n = len(self.clients)
        who = Connection(f"c{n}", f"10.0.0.{n % 250}", 5_000 + n)
        client = ModernClient(self.group, who, self.random, f"member-{n}", topics, instance, poll_ms)
        client.minds_polls = minds_polls
        self.clients.append(client)

    @precondition(lambda self: sum(c.alive for c in self.clients) < MAX_CLIENTS)
    @rule(how=HOW)
    def start(self, how):
        self.add(*how)

    def compare(self):
        self.same_group()
        self.same_incidents()

    def same_group(self):
        group, replica = self.group, self.witness.replica(GROUP)
        if not group.known:
            assert replica.deleted or replica.state == "Unknown"
            return
        assert (replica.state, replica.generation) == (group.state, group.epoch)
        if group.assignment_written:
            assert replica.assignment_epoch == group.assignment_epoch
        assert set(replica.members) == set(group.members)
        for member in group.members.values():
            seen = replica.members[member.member_id]
            assert seen.instance_id == member.instance_id
            assert (seen.client_id, seen.client_host) == (member.who.client_id, member.who.host)
            assert seen.rebalance_timeout_ms == member.rebalance_timeout_ms
            assert tuple(seen.topics) == tuple(sorted(member.topics))
            assert seen.assignment == shown(member.assigned | member.revoking), "owned until record 8 drops it"
            assert (seen.generation, seen.state) == (member.epoch, MEMBER_STATES[member.state])
            assert seen.revoking == shown(member.revoking)
            if group.assignment_written:
                assert seen.target == shown(member.target)
            if self.is_told(member.deadline_ms, SESSION_MS):
                assert self.witness.deadline_ms(GROUP, member.member_id) == member.deadline_ms

    def same_incidents(self):
        told = self.witness.incidents()
        assert [t for t in told if t.get("reason") == "refuted"] == []
        opened = [t for t in told if t["transition"] == "opened" and t["rule"] != "poll-exceeded"]
        known = [(r.rule, r.member_id, r.deadline_ms) for r in self.group.removals]
        found = [(t["rule"], t["member_id"], t["deadline_ms"]) for t in opened]
        judged = [k for k in known if k[2] <= self.world.now_ms - SETTLED_MS]
        assert len(found) == len(set(found))
        assert set(found) <= set(known)
        assert set(judged) <= set(found)


FAST = settings(
    max_examples=25, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
LONG = settings(FAST, max_examples=3_000, stateful_step_count=60, derandomize=False)


def test_the_replica_of_a_consumer_group_equals_its_coordinator_after_every_step():
    run_state_machine_as_test(ConsumerGroupMachine, settings=FAST)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_the_replica_of_a_consumer_group_equals_its_coordinator_over_long_lives():
    run_state_machine_as_test(ConsumerGroupMachine, settings=LONG)

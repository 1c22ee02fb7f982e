"""The replica of a classic group equals its coordinator in everything that the two logs can tell, after every step.

A Hypothesis state machine plays the clients of one group on a simulated coordinator (kafka-facts 3 and 5) while the
monitor reads the records and lines that it writes. ``make soak`` plays longer.
"""

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from coordinator_model.replica.group import LEAVE_MEMORY_MS
from tests.simulation.classic import ClassicGroup, State
from tests.simulation.clients import POLL_REASON, Client, parse_assignment
from tests.simulation.play import CLIENT, GROUP, INSTANCE, MAX_CLIENTS, POLL_MS, TOPICS, Play, somebody
from tests.simulation.witness import SETTINGS
from tests.simulation.world import Connection, World

GRACE_MS = 500
SETTLED_MS = 1_500
"""Longer than a grace and a probe: by then what is told has been judged."""
SESSION_MS = st.sampled_from([6_000, 10_000])
VERSION = st.sampled_from([9, 9, 5, 3])
HOW = st.tuples(INSTANCE, TOPICS, SESSION_MS, POLL_MS, VERSION, st.booleans(), st.booleans())


def owns(client):
    return bool(client.owned)


class ClassicGroupMachine(Play):
    @initialize(
        seed=st.integers(0, 2**16),
        delay_ms=st.sampled_from([0, 0, 3, 40]),
        append_ms=st.sampled_from([0, 0, 2, 30]),
        initial_ms=st.sampled_from([0, 0, 3_000]),
        clients=st.lists(HOW, max_size=3),
    )
    def begin(self, seed, delay_ms, append_ms, initial_ms, clients):
        self.random = Random(seed)
        world = World(line_delay_ms=delay_ms)
        group = ClassicGroup(world, GROUP, initial_delay_ms=initial_ms, append_ms=append_ms)
        self.begin_with(world, group, SETTINGS, clients)

    def add(self, instance, topics, session_ms, poll_ms, version, says_why, minds_polls):
        n = len(self.clients)
        who = Connection(f"c{n}", f"10.0.0.{n % 250}", 5_000 + n)
        times = (session_ms, poll_ms, 2_000)
        self.clients.append(
            Client(self.group, who, self.random, topics, instance, *times, version, says_why, minds_polls)
        )

    @precondition(lambda self: sum(c.alive for c in self.clients) < MAX_CLIENTS)
    @rule(how=HOW)
    def start(self, how):
        self.add(*how)

    @somebody(owns)
    @rule(n=CLIENT)
    def commit(self, n):
        self.pick(n, owns).commit()

    # -------------------------------------------------------------- what must be true

    def compare(self):
        group, replica = self.group, self.witness.replica(GROUP)
        if (
            group.told
            and self.world.now_ms - group.told_ms > self.world.line_delay_ms
            and (group.known or group.generation)
        ):
            self.same_state(group, replica)
        self.no_false_accusation()

    def same_state(self, group, replica):
        assert replica.state == group.state
        if group.state is State.PREPARING:
            return
        assert replica.generation == group.generation
        assert set(replica.members) == set(group.members)
        assert (replica.leader or None) == group.leader
        assert replica.protocol == group.protocol
        for member in group.members.values():
            shown = replica.members[member.member_id]
            assert shown.instance_id == member.instance_id
            assert (shown.session_timeout_ms, shown.rebalance_timeout_ms) == (
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
            )
            assert (shown.client_id, shown.client_host) == (member.who.client_id, member.who.host)
            if group.state is State.STABLE:
                assert shown.assignment == parse_assignment(member.assignment)
            if group.state is State.STABLE and self.is_told(member.deadline_ms, member.session_timeout_ms):
                deadline_ms = self.witness.deadline_ms(GROUP, member.member_id)
                assert deadline_ms is not None
                late_ms = deadline_ms - member.deadline_ms
                assert abs(late_ms) <= self.blur_ms, f"{member.member_id}: session ends {late_ms} ms too late"

    @property
    def blur_ms(self):
        """A sync that comes while the record is being stored is parked, which no line tells from one just after it."""
        return 2 * self.group.append_ms + 20 if self.group.append_ms else 0

    def no_false_accusation(self):
        told = self.witness.incidents()
        assert [t for t in told if t.get("reason") == "refuted"] == []
        opened = [t for t in told if t["transition"] == "opened"]
        self.compare_removals([t for t in opened if t["rule"] != "poll-exceeded"], complete=self.is_settled())
        self.compare_polls([t for t in opened if t["rule"] == "poll-exceeded"])

    def compare_polls(self, opened):
        """A leave that says why is one; a silent leave is one if the same connection joins the same group again."""
        expected = {}
        for bye in self.group.goodbyes:
            ends_ms = min((ms for ms in self.group.deleted_ms if ms > bye.at_ms), default=bye.at_ms + LEAVE_MEMORY_MS)
            ends_ms = min(ends_ms, bye.at_ms + LEAVE_MEMORY_MS)  # by then nobody knows the goodbye any more
            soon = any(bye.at_ms < ms < ends_ms for ms in self.group.joined_ms.get(bye.who, []))
            if bye.reason == POLL_REASON or (bye.reason is None and soon):
                expected[bye.member_id] = bye.at_ms
        assert {t["member_id"]: t["deadline_ms"] for t in opened}.items() <= expected.items()
        if self.is_settled():
            assert len(opened) == len(expected)

    def is_settled(self):
        group = self.group
        quiet = self.world.now_ms - group.told_ms > SETTLED_MS and group.told
        return quiet and group.state in (State.STABLE, State.EMPTY) and group.known

    def compare_removals(self, opened, *, complete):
        removals = {r.member_id: r for r in self.group.removals}
        assert max(Counter(t["member_id"] for t in opened).values(), default=1) == 1, "accused twice"
        for incident in opened:
            removal = removals.get(incident["member_id"])
            assert removal is not None, f"accused falsely: {incident['summary']}"
            ends_ms = removal.session_deadline_ms
            both = ends_ms is not None and ends_ms <= removal.deadline_ms + GRACE_MS
            if removal.rule == "session-expired":
                assert incident["rule"] == removal.rule
                assert abs(incident["deadline_ms"] - removal.deadline_ms) <= self.blur_ms
            elif incident["rule"] == "rebalance-timeout":
                assert not removal.exact or incident["deadline_ms"] == removal.deadline_ms
            else:
                assert both or not removal.exact
        if complete:
            assert {t["member_id"] for t in opened} == set(removals)


FAST = settings(
    max_examples=25, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
LONG = settings(FAST, max_examples=3_000, stateful_step_count=60, derandomize=False)


def test_the_replica_of_a_classic_group_equals_its_coordinator_after_every_step():
    run_state_machine_as_test(ClassicGroupMachine, settings=FAST)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_the_replica_of_a_classic_group_equals_its_coordinator_over_long_lives():
    run_state_machine_as_test(ClassicGroupMachine, settings=LONG)

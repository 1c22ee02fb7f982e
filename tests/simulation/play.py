"""What can happen to the clients of a simulated group, of either protocol; a machine adds what must be true."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.simulation.witness import Witness, plain
from tests.simulation.world import PROBE_EVERY_MS, T0_MS

GROUP = "orders"
MAX_CLIENTS = 5
CLIENT = st.integers(0, MAX_CLIENTS - 1)
TOPICS = st.sampled_from([("t",), ("t", "u"), ("u",)])
INSTANCE = st.sampled_from([None, None, None, "i1", "i2"])
POLL_MS = st.sampled_from([12_000, 30_000, 400_000])
ROWS_SHOWN = 80


def any_client(_client):
    return True


def awake(client):
    return not client.frozen


def frozen(client):
    return client.frozen


def polls(client):
    return client.polling and not client.frozen


def polls_no_more(client):
    return not client.polling and not client.frozen


def somebody(suits):
    """A rule is only for when there is a client that it suits."""
    return precondition(lambda self: self.able(suits))


class Play(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.clients = []
        self.world = None
        self.failed = False

    def begin_with(self, world, group, settings, clients):
        self.world, self.group, self.witness = world, group, Witness(settings)
        for how in clients:
            self.add(*how)
            world.run(1_000)

    def is_told(self, deadline_ms, timeout_ms):
        """Tell whether the line of what last restarted a session timer can have been read."""
        return deadline_ms is not None and deadline_ms - timeout_ms + self.world.line_delay_ms <= self.world.now_ms

    def able(self, suits):
        return [c for c in self.clients if c.alive and suits(c)]

    def pick(self, n, suits):
        able = self.able(suits)
        return able[n % len(able)]

    @somebody(any_client)
    @rule(n=CLIENT)
    def kill(self, n):
        self.pick(n, any_client).kill()

    @somebody(awake)
    @rule(n=CLIENT)
    def freeze(self, n):
        self.pick(n, awake).freeze()

    @somebody(frozen)
    @rule(n=CLIENT)
    def thaw(self, n):
        self.pick(n, frozen).thaw()

    @somebody(polls)
    @rule(n=CLIENT)
    def stall(self, n):
        self.pick(n, polls).stall()

    @somebody(polls_no_more)
    @rule(n=CLIENT)
    def wake(self, n):
        self.pick(n, polls_no_more).wake()

    @somebody(awake)
    @rule(n=CLIENT)
    def close(self, n):
        self.pick(n, awake).close()

    @somebody(awake)
    @rule(n=CLIENT, topics=TOPICS)
    def subscribe(self, n, topics):
        self.pick(n, awake).subscribe(topics)

    @precondition(lambda self: self.world and self.group.known and not self.group.members)
    @rule()
    def delete(self):
        self.group.delete()

    @rule(ms=st.sampled_from([1, 50, 500, 2_500, 7_000, 13_000, 31_000, 46_000, 310_000]))
    def wait(self, ms):
        self.world.run(ms)

    @invariant()
    def the_replica_equals_the_coordinator(self):
        """Let the monitor read up to the next probe, so that nothing is still on its way; then compare."""
        if self.world is None:
            return
        past_ms = (self.world.now_ms - T0_MS - self.world.line_delay_ms) % PROBE_EVERY_MS
        self.world.run(PROBE_EVERY_MS - past_ms)
        self.witness.feed(self.world.take())
        try:
            self.compare()
        except AssertionError as error:
            self.failed = True
            error.add_note(plain(self.witness.rows[-ROWS_SHOWN:]))
            raise

    def teardown(self):
        if self.world is not None and not self.failed:
            self.world.run(90_000)
            self.the_replica_equals_the_coordinator()

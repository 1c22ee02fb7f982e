"""A broker with two listeners whose lines have no record key: two addresses, and one broker."""

import pytest

from coordinator_model.brokers.coordinator_check import Proof
from coordinator_model.brokers.listeners import TURN_MS, TURNS, is_address
from coordinator_model.brokers.one_clock import PROBE_DUE_MS
from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.parse import parse_row
from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.events import Tick
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.states import Cause
from coordinator_model.thresholds import Thresholds
from tests.coordinator_model.brokers.test_coordinator_tracker import clock
from tests.support.story import T0, stable

SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=0)
A, B, C = "10.0.0.1:9092", "10.0.0.1:9094", "10.0.0.2:9092"
YES, NO = Proof.COORDINATES, Proof.REFUSES
HOLD_MS = Thresholds().hold_ms


def turns(*names, every_ms=2_000, start_ms=1_000):
    """Answers that only a coordinator gives, by one name after the other."""
    return [(name, start_ms + n * every_ms, YES) for n, name in enumerate(names)]


# what is answered -> the coordinator, whether the two addresses are one broker
ANSWERS = {
    "they take turns": (turns(*[A, B] * 5), A, True),
    "not for long yet": (turns(*[A, B] * 2), B, False),
    "often, but within less time than a deposed coordinator goes on": (turns(*[A, B] * 9, every_ms=500), B, False),
    "one took over and keeps it": (turns(A, *[B] * 9), B, False),
    "one refuses": ([*turns(*[A, B] * 3), (A, 12_500, NO), *turns(A, B, start_ms=13_000)], B, False),
    "a third has answered": ([*turns(*[A, B] * 3), *turns(C, A, B, start_ms=13_000)], B, False),
    "hours lie between": (turns(*[A, B] * 5, every_ms=TURN_MS + 1), B, False),
    "they have keys": (turns(*["broker-1", "broker-2"] * 5), "broker-2", False),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_two_addresses_that_take_turns_as_the_coordinator_are_one_broker(name):
    steps, coordinator, one = ANSWERS[name]
    made = clock(*steps)
    assert (made.coordinator, bool(made.listeners.names)) == (coordinator, one)
    moves = [r for r in made.timer_resets if r.cause is Cause.COORDINATOR_MOVED]
    assert bool(moves) != one


FAR = "10.0.0.3:9092"
LATER_MS = 1_000 + PROBE_DUE_MS
# which addresses are probed, first the coordinator's and then the other; both -> whether they are one broker
PROBED = {
    "the coordinator's": ((A, B), [A], LATER_MS, {B: A}),
    "the other one": ((A, B), [B], LATER_MS, {A: B}),
    "both": ((A, B), [A, B], LATER_MS, {}),
    "none": ((A, B), [], LATER_MS, {}),
    "the coordinator's, but the other one's may follow": ((A, B), [A], LATER_MS - 1, {}),
    "the coordinator's, on another host": ((A, FAR), [A], LATER_MS, {}),
    "the coordinator's, which has a key": (("broker-1", A), ["broker-1"], LATER_MS, {}),
}


@pytest.mark.parametrize("name", PROBED)
def test_an_unprobed_address_on_a_probed_brokers_host_is_its_listener(name):
    (here, other), probed, at_ms, names = PROBED[name]
    made = clock((here, 900, YES))
    for broker in probed:
        made.probed(broker, 1, 1_000, 900, Thresholds(), "p")
    made.advance(other, 1_000, Thresholds())
    made.join_listener(other, at_ms)
    assert made.listeners.names == names
    assert made.coordinator == names.get(here, here)


def test_the_probe_of_an_address_that_has_just_been_heard_may_follow():
    made = clock((A, 900, YES))
    made.probed(A, 1, 1_000, 900, Thresholds(), "p")
    made.join_listener(B, 60_000)
    made.advance(B, 60_000, Thresholds())
    made.join_listener(B, 60_000 + PROBE_DUE_MS - 1)
    assert made.listeners.names == {}
    made.join_listener(B, 60_000 + PROBE_DUE_MS)
    assert made.listeners.names == {B: A}


# the nodes that the probe asks at the two addresses -> whether they are two brokers
NODES = {"two brokers": (1, 2, True), "one broker, which is probed at its other listener from now on": (1, 1, False)}


@pytest.mark.parametrize("name", NODES)
def test_a_second_broker_on_a_host_is_one_once_it_is_probed(name):
    """The probe found it 10 s after its first line, and its lines counted as the first broker's for ever."""
    node, other, two = NODES[name]
    ticks = [(A, node, at_ms) for at_ms in range(500, 30_001, 500)]
    ticks += [(B, None, at_ms) for at_ms in range(5_000, 15_001, 500)]
    ticks += [(B, other, at_ms) for at_ms in range(15_500, 30_001, 500)]
    shard, events = Shard.restore(0, SETTINGS, None), []
    for n, (address, asked, at_ms) in enumerate(sorted(ticks, key=lambda tick: tick[2])):
        probe = None if asked is None else at_ms // 500
        of = "" if asked is None else f"nonce-{asked}"
        events.append(Tick(T0 + at_ms, 1, "lines", 0, n, "", address, probe, connection=f"{address}-1", asked=of))
    shard.clock.answered(A, YES, T0, Thresholds())
    shard.apply([event for event in events if event.order_ms < T0 + 15_500], final=True)
    assert shard.clock.listeners.names == {B: A}
    shard = Shard.restore(0, SETTINGS, shard.dump())
    shard.apply([event for event in events if event.order_ms >= T0 + 15_500], final=True)
    assert shard.clock.listeners.names == ({} if two else {B: A})
    assert shard.clock.brokers[B].silent_to_ms == 0


def test_an_address_that_is_known_to_be_a_listener_delays_nobody():
    made = clock((A, 900, YES))
    made.probed(A, 1, 1_000, 900, Thresholds(), "p")
    made.read(A, "t/0", 9_000)
    made.read(B, "t/0", 5_000)
    assert made.watermark_ms(HOLD_MS) == 5_000
    made.advance(B, 5_000, Thresholds())
    made.join_listener(B, 9_000)
    assert made.watermark_ms(HOLD_MS) == 9_000


# what is answered, and which brokers are probed -> whether the last move is surely one
MOVES = {
    "two addresses": (turns(A, C), [], False),
    "two addresses, and only one is probed": (turns(A, C), [C], False),
    "two addresses that are probed": (turns(A, C), [A, C], True),
    "the first one has refused": ([*turns(A), (A, 2_000, NO), *turns(C, start_ms=3_000)], [], True),
    "keys": (turns("broker-1", "broker-2"), [], True),
}


@pytest.mark.parametrize("name", MOVES)
def test_no_broker_is_blamed_for_a_move_that_may_be_to_its_other_listener(name):
    steps, probed, sure = MOVES[name]
    made = clock()
    for broker in probed:
        made.probed(broker, 1, 500, 500, Thresholds(), "p")
    for broker, at_ms, proof in steps:
        made.answered(broker, proof, at_ms, Thresholds())
    assert (made.timer_resets[-1].cause, made.timer_resets[-1].sure) == (Cause.COORDINATOR_MOVED, sure)
    assert (made.timer_resets[-1].blamed_cause is None) != sure


def test_a_pause_while_the_groups_may_load_makes_no_move_sure():
    """Both were one open reset, and the probed pause made it say that another broker surely took over."""
    made = clock((A, 1_000, YES))
    made.answered(C, Proof.LEADS, 2_000, Thresholds())
    made.probed(C, 1, 3_000, 2_000, Thresholds(), "p")
    made.advance(C, 3_000, Thresholds())
    made.advance(C, 8_000, Thresholds())
    [move] = made.timer_resets
    assert (move.cause, move.high_ms, move.blamed_cause) == (Cause.COORDINATOR_MOVED, None, None)


def test_the_one_that_is_probed_names_the_broker():
    made = clock(*turns(B, A, B, A, B, A))
    made.probed(B, 7, 11_500, 11_000, Thresholds(), "p")
    for name, at_ms, proof in turns(B, A, B, A, start_ms=13_000):
        made.answered(name, proof, at_ms, Thresholds())
    assert (made.coordinator, made.listeners.names) == (B, {A: B})
    assert TURNS <= 6


# ------------------------------------------------------------------------------------------------ a group


def without_keys(rows):
    """The same lines without a key; every second client's connection is to the other listener."""
    for row in rows:
        if row.source == TELEMETRY:
            text = row.value
            for port in range(5_001, 5_020, 2):
                text = text.replace(b"127.0.0.1:9092-10.0.0.7:%d-" % port, b"127.0.0.1:9094-10.0.0.7:%d-" % port)
            yield row._replace(key=None, value=text)
        else:
            yield row


def story(until_ms=60_000):
    """m2 and m4, on the other listener, and m3 die one after the other."""
    made = stable("m1", "m2", "m3", "m4", session_ms=10_000)
    for member, end_ms in (("m1", until_ms), ("m2", 25_000), ("m3", 27_000), ("m4", 29_000)):
        made.beats(member, 1_000, end_ms)
    return made.beats("m1", until_ms + 1_000, until_ms + 5_000)


def expired(told):
    found = [t.incident for t in told.transitions if t.incident.rule == "session-expired" and t.kind == "opened"]
    return [(i.member_id, i.deadline_ms - T0, i.cause) for i in found]


def test_deaths_are_told_whichever_listener_a_client_uses():
    """Of two brokers that take turns each answer was a move, which began all sessions anew."""
    rows = story().source_rows(60_000)
    expected = [
        (m, end_ms + 10_000, "session-timeout") for m, end_ms in (("m2", 25_000), ("m3", 27_000), ("m4", 29_000))
    ]
    assert expired(replay_rows(rows, SETTINGS)) == expected
    told = replay_rows(list(without_keys(rows)), SETTINGS)
    assert expired(told) == expected
    assert not [t for t in told.transitions if t.incident.rule == "coordinator-paused"]


def test_what_is_known_of_listeners_is_kept():
    events = [event for row in without_keys(story().source_rows(60_000)) for event in parse_row(row)]
    whole = Shard.restore(0, SETTINGS, None)
    expected = whole.apply(events, final=True)
    shard, told = Shard.restore(0, SETTINGS, None), []
    for start_ms in range(0, 60_001, 5_000):
        batch = [event for event in events if start_ms <= event[0] - T0 < start_ms + 5_000]
        told += shard.apply(batch, final=start_ms == 60_000)
        shard = Shard.restore(0, SETTINGS, shard.dump())
    found = [[f["rule"], f["member_id"], f["deadline_ms"]] for o in told for f in o.get("findings", ())]
    wanted = [[f["rule"], f["member_id"], f["deadline_ms"]] for o in expected for f in o.get("findings", ())]
    assert {tuple(f) for f in found if f[0] == "session-expired"} == {
        tuple(f) for f in wanted if f[0] == "session-expired"
    }
    assert shard.clock.listeners.names == {"127.0.0.1:9094": "127.0.0.1:9092"}


def at_addresses(rows):
    """The same lines without a key; each broker has a host, and every second client uses its second listener."""
    for row in rows:
        if row.source == TELEMETRY:
            host, text = b"10.0.0." + row.key[-1:], row.value.replace(b"127.0.0.1:9092", b"HOST:9092")
            for port in range(5_001, 5_020, 2):
                text = text.replace(b"HOST:9092-10.0.0.7:%d-" % port, b"HOST:9192-10.0.0.7:%d-" % port)
            yield row._replace(key=None, value=text.replace(b"HOST", host))
        else:
            yield row


# who is heard in turn by the broker that takes over: m1 is at its probed listener, and m2 at the other one
HEARD = {
    "its probed listener is heard first": ("m1", "m2"),
    "its other listener is heard first": ("m2", "m1"),
    "only its probed listener is heard": ("m1", "m1"),
    "only its other listener is heard": ("m2", "m2"),
}


@pytest.mark.parametrize("name", HEARD)
@pytest.mark.parametrize("known", [False, True], ids=["a new listener", "a listener that was heard before"])
def test_a_failover_to_a_broker_with_two_listeners_restarts_all_sessions(name, known):
    """Each line of its second listener dropped the move to it, so m3, which comes back last, was told as expired."""
    made = stable("m1", "m2", "m3", session_ms=10_000).silent(10_000, 99_000)
    made.brokers["broker-2"] = 0
    for member in ("m1", "m2", "m3"):
        made.beats(member, 1_000, 10_000)
    for at_ms in (5_000, 15_000) if known else ():
        made.asks(at_ms, "m2", broker="broker-2")
    for turn in range(10):
        made.beat(19_000 + 200 * turn, HEARD[name][turn % 2], broker="broker-2")
    made.record(20_650, 1, "m1", "m2", "m3")  # all members are judged then
    events = [event for row in at_addresses(made.source_rows(21_000)) for event in parse_row(row)]
    shard, outputs = Shard.restore(0, SETTINGS, None), []
    for until_ms in range(500, 21_001, 500):
        batch = [event for event in events if until_ms - 500 < event[0] - T0 <= until_ms]
        outputs += shard.apply(batch, wall_ms=T0 + until_ms)
    assert [f for o in outputs for f in o.get("findings", ()) if f["rule"] == "session-expired"] == []


@pytest.mark.parametrize("name", ["1", "broker:1x", "broker-1", ":9092", ""])
def test_a_key_is_no_address(name):
    assert not is_address(name)

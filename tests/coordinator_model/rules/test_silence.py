"""While telemetry stands still nobody is known to live; once it is back everybody is again."""

import pytest

from coordinator_model.decode.cluster_row import read_cluster_row
from coordinator_model.decode.parse import parse_row
from coordinator_model.decode.source_row import CLUSTER
from coordinator_model.events import TELEMETRY_RANK, LeaderNamed, Tick
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import T0, stable

LAST_LINE_MS, BACK_MS = 20_000, 50_000
NO_SKEW: dict[str, int] = {}


def liveness(outputs):
    """How the members were shown, one entry a view."""
    views = [output["view"] for output in outputs if output["kind"] == "report" and output["view"]]
    return [[member["liveness"] for member in view["members"]] for view in views]


def test_members_are_unknown_while_telemetry_is_stalled():
    """All become unknown at once, 15 s after the last line and a batch later, and alive again with the next one."""
    _, play = watched()

    assert liveness(play(0, LAST_LINE_MS))[-1] == ["alive", "alive"]
    assert liveness(play(LAST_LINE_MS + 1, LAST_LINE_MS + 15_000)) == []
    assert liveness(play(LAST_LINE_MS + 15_001, LAST_LINE_MS + 15_500)) == []
    assert liveness(play(LAST_LINE_MS + 15_501, LAST_LINE_MS + 16_300)) == [["unknown", "unknown"]]
    assert liveness(play(BACK_MS, BACK_MS + 5_000))[-1] == ["alive", "alive"]


def test_a_batch_that_begins_late_is_no_silence():
    """Its instant is 20 s later than what it has read; the next one reads on."""
    _, play = watched()
    late = play(0, LAST_LINE_MS - 5_000, wall_ms=LAST_LINE_MS + 15_000)
    after = play(LAST_LINE_MS - 4_999, LAST_LINE_MS, wall_ms=LAST_LINE_MS + 15_001)
    reports = [output for output in (*late, *after) if output["kind"] == "report"]
    assert not [finding for report in reports for finding in report["findings"]]


def test_a_shard_without_groups_misses_no_line():
    """It is given lines only together with something else for it, such as who leads its partition."""
    shard, outputs = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=0), None), []
    for number, at_ms in ((1, T0 + 1_000), (40, T0 + 20_500), (41, T0 + 21_000)):
        leader = LeaderNamed(at_ms, TELEMETRY_RANK, "", 0, at_ms, "", 1, "broker-1", ())
        tick = Tick(at_ms, TELEMETRY_RANK, "lines", 0, number, "", "broker-1", number)
        outputs += shard.apply([leader, tick], wall_ms=at_ms + 100)
    assert shard.clock.coordinator == "broker-1"
    assert not [output for output in outputs if output["kind"] in ("report", "blind")]


FAST_CLOCKS = {
    "20 s ahead": lambda at_ms: 20_000,
    "100 s ahead": lambda at_ms: 100_000,
    "faster, up to 18 s ahead": lambda at_ms: min(at_ms, 72_000) // 4,
}


@pytest.mark.parametrize("ahead_ms", FAST_CLOCKS.values(), ids=FAST_CLOCKS)
@pytest.mark.parametrize("dies_ms", [None, 60_000])
def test_a_fast_clock_of_another_broker_is_no_silence_of_the_coordinator(ahead_ms, dies_ms):
    """Broker-2's clock is wrong, and it may die, too. From 80 s on broker-1 is silent: that is noticed after 15 s."""
    story = stable("m1", "m2").beats("m1", 1_000, 80_000).beats("m2", 1_000, 80_000).silent(80_000, 999_000)
    story.brokers["broker-2"] = 0
    if dies_ms is not None:
        story.silent(dies_ms, 999_000, "broker-2")
    config, state = ShardSettings(cluster="c", partitions=1, live_from_ms=T0), None

    def play(from_ms, until_ms):
        nonlocal state
        opened = []
        for at_ms in range(from_ms, until_ms, 1_000):
            rows = [row for row in story.source_rows(at_ms) if row.timestamp_ms > T0 + at_ms - 1_000]
            events = [event for row in rows for event in parse_row(shifted(row, ahead_ms))]
            shard = Shard.restore(0, config, state)
            outputs, state = shard.apply(events, wall_ms=T0 + at_ms + 200), shard.dump()
            told = [f for o in outputs if o["kind"] == "report" and not o["group"] for f in o["findings"]]
            opened += [(finding["opened_ms"] - T0, finding["subject"]) for finding in told]
        return set(opened)

    assert play(1_000, 95_000) == set()
    assert play(95_000, 99_000) == {(80_000, "broker-1")}


def test_a_peer_that_is_read_further_is_no_silence_of_the_coordinator():
    """All clocks are right. After a downtime, broker-2's lines are read evenly and those of broker-1 more slowly."""

    def arrival_ms(row, at_ms):
        part = min(1, max(0, at_ms - 40_000) / 160_000)
        slow = part**0.5 if row.topic == "lines-of-broker-1" else part
        return max(at_ms, 200_000) + 2_000 * int(slow * 4) if part else at_ms

    assert told_of_brokers(two_brokers(240_000), 240_000, arrival_ms=arrival_ms) == []


@pytest.mark.parametrize("ahead_ms", [20_000, -20_000])
def test_a_long_batch_of_a_peer_with_another_clock_is_no_silence(ahead_ms):
    """The job is away from 40 s to 100 s, and reads that minute at once."""

    def arrival_ms(_row, at_ms):
        return 100_000 if 40_000 <= at_ms <= 100_000 else at_ms

    ahead = {"broker-2": ahead_ms}
    assert told_of_brokers(two_brokers(120_000), 120_000, arrival_ms=arrival_ms, ahead_ms=ahead) == []


@pytest.mark.parametrize("ahead_ms", [0, -60_000, 60_000])
def test_a_coordinator_that_is_read_further_than_the_next_one_is_not_silent(ahead_ms):
    """It died at 60 s. After a downtime, its lines are read at once, and those of the next one take half a minute."""

    def arrival_ms(row, at_ms):
        late_ms = 0 if row.topic == "lines-of-broker-1" else 2 * (at_ms - 50_000)
        return at_ms if at_ms <= 50_000 else 200_000 + late_ms

    story = failover(100_000)
    story.rows = [row for row in story.rows if row[2].source != CLUSTER]
    assert told_of_brokers(story, 300_000, arrival_ms=arrival_ms, ahead_ms={"broker-2": ahead_ms}) == []


PEERS = {
    "its clock is a minute behind": ({"broker-2": -60_000}, 0, 0),
    "its clock is ten minutes behind": ({"broker-2": -600_000}, 0, 0),
    "its shipper is two minutes late": (NO_SKEW, 120_000, 0),
    "its shipper becomes late, and that of broker-3 does not": (NO_SKEW, 120_000, 100_000),
}


@pytest.mark.parametrize(("ahead_ms", "late_ms", "since_ms"), PEERS.values(), ids=PEERS)
def test_a_peer_that_is_behind_delays_no_report_of_a_silence(ahead_ms, late_ms, since_ms):
    """Broker-1 is silent from 160 s on. Broker-2 is behind in one way or another."""

    def arrival_ms(row, at_ms):
        return at_ms + late_ms if row.topic == "lines-of-broker-2" and at_ms >= since_ms else at_ms

    story = two_brokers(160_000).silent(160_000, 999_000)
    if since_ms:
        story.brokers["broker-3"] = 0
    ((told_ms, subject),) = told_of_brokers(story, 182_000, arrival_ms=arrival_ms, ahead_ms=ahead_ms)
    assert subject == ["broker-1"]
    assert 160_000 + 15_000 < told_ms <= 160_000 + 20_000


@pytest.mark.parametrize("ahead_ms", [-20_000, -40_000, 40_000])
def test_a_coordinator_with_another_clock_that_takes_over_is_not_silent(ahead_ms):
    assert told_of_brokers(failover(200_000), 200_000, ahead_ms={"broker-2": ahead_ms}) == []


@pytest.mark.parametrize("ahead_ms", [0, -40_000])
def test_a_silence_ends_with_the_next_line_whatever_its_date(ahead_ms):
    """Broker-2 takes over at 64 s, is silent from 66 s to 130 s, and then goes on."""
    story = failover(200_000)
    story.rows = [row for row in story.rows if not (row[2].key == b"broker-2" and 66_000 < row[0] < 130_000)]
    told = told_of_brokers(story.silent(66_000, 130_000, "broker-2"), 200_000, ahead_ms={"broker-2": ahead_ms})
    assert [subject for _, subject in told] == [["broker-2"], []]
    assert 66_000 + 15_000 < told[0][0] < told[1][0] == 130_000


def two_brokers(until_ms):
    """Broker-1 coordinates two members, broker-2 coordinates nothing here."""
    story = stable("m1", "m2").beats("m1", 1_000, until_ms).beats("m2", 1_000, until_ms)
    story.brokers["broker-2"] = 0
    return story


def failover(until_ms):
    """Broker-1 dies at 60 s, and broker-2 takes over, as metadata says at 64 s."""
    story = stable("m1", "m2").silent(60_000, 999_000)
    story.brokers |= {"broker-2": 0, "broker-3": 0}
    for member in ("m1", "m2"):
        story.beats(member, 1_000, 60_000).beats(member, 63_000, until_ms, broker="broker-2")
    story.leads(500, "broker-1", *range(5_000, 61_000, 5_000))
    return story.leads(64_000, "broker-2", *range(69_000, until_ms, 5_000))


def told_of_brokers(story, until_ms, *, arrival_ms=lambda _row, at_ms: at_ms, ahead_ms=NO_SKEW):
    """Return what a live run says about its brokers, in batches of 2 s: when it came, and about whom.

    While no row is read, there is no batch.
    ``arrival_ms``: when a row of an instant is read. ``ahead_ms``: how far a broker's clock is ahead.
    """
    config, state, told = ShardSettings(cluster="c", partitions=1, live_from_ms=T0), None, []
    came = [(arrival_ms(row, row.timestamp_ms - T0), row) for row in story.source_rows(until_ms)]
    for at_ms in range(2_000, until_ms + 1, 2_000):
        events = []
        for row in [row for arrived_ms, row in came if at_ms - 2_000 < arrived_ms <= at_ms]:
            if row.source == CLUSTER:
                events.append(read_cluster_row(row.value).named(0))
                continue
            skew_ms = ahead_ms.get((row.key or b"").decode(errors="replace"), 0)
            events += parse_row(row._replace(timestamp_ms=row.timestamp_ms + skew_ms))
        if not events:
            continue
        shard = Shard.restore(0, config, state)
        outputs, state = shard.apply(events, wall_ms=T0 + at_ms + 200), shard.dump()
        of_brokers = [o["findings"] for o in outputs if o["kind"] == "report" and not o["group"]]
        told += [(at_ms, [finding["subject"] for finding in findings]) for findings in of_brokers]
    return told


def shifted(row, ahead_ms):
    """A line of broker-2 as its fast clock dates it."""
    if row.topic != "lines-of-broker-2":
        return row
    return row._replace(timestamp_ms=row.timestamp_ms + ahead_ms(row.timestamp_ms - T0))


def watched():
    """A shard, and what plays the rows between two instants to it."""
    story = stable("m1", "m2")
    for member in ("m1", "m2"):
        story.beats(member, 1_000, LAST_LINE_MS).beats(member, BACK_MS, BACK_MS + 5_000)
    story.silent(LAST_LINE_MS + 1, BACK_MS - 1)
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=T0), None)

    def play(from_ms, until_ms, wall_ms=None):
        rows = [row for row in story.source_rows(until_ms) if row.timestamp_ms >= T0 + from_ms]
        events = [event for row in rows for event in parse_row(row)]
        return shard.apply(events, wall_ms=T0 + (until_ms if wall_ms is None else wall_ms))

    return shard, play

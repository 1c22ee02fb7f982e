"""Lines from the future, and clocks that really step: what is told of them, and that nobody is accused for them."""

from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator_model.capture_replay import _transitions, replay_rows
from coordinator_model.decode.cluster_row import read_cluster_row
from coordinator_model.decode.parse import parse_row
from coordinator_model.decode.source_row import CLUSTER
from coordinator_model.group_report import read_outputs
from coordinator_model.incidents import Kind
from coordinator_model.shard import group_judgement
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.request_log import heartbeat_line, probe_line
from tests.support.story import T0, rebalance, stable, telemetry

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
DAY_MS = 24 * HOUR_MS
SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=0)
DELAY_MS = 200
ACCUSING = ("session-expired", "rebalance-timeout", "poll-exceeded")


class Lived:
    """A story as a live run reads it, a batch a second, or as a replay does, in one."""

    def __init__(
        self,
        story,
        until_ms,
        *,
        wall=True,
        clocks=None,
        extra=(),
        batch_ms=SECOND_MS,
        restore=False,
        one_partition=False,
    ):
        """`clocks`: broker -> what its clock shows more at an instant. `extra`: (arrival, row) of misdated lines.

        `one_partition`: all brokers' lines lie in one, as they came.
        """
        self.outputs, self.rows, arrivals, offsets = [], [], [], {}
        for row in story.source_rows(until_ms):
            at_ms, shift_ms = row.timestamp_ms - T0, 0
            broker = row.key_text if row.source == "telemetry" else story.broker
            if clocks and broker in clocks and row.source != CLUSTER:
                shift_ms = clocks[broker](at_ms)
            arrivals.append((at_ms, row._replace(timestamp_ms=row.timestamp_ms + shift_ms)))
        for at_ms, came in sorted([*arrivals, *extra], key=lambda pair: pair[0]):
            row = came._replace(topic="lines") if one_partition and came.source == "telemetry" else came
            offsets[row.topic] = offsets.get(row.topic, -1) + 1
            self.rows.append((at_ms, row._replace(offset=offsets[row.topic])))
        self._play(until_ms, wall, batch_ms, restore)

    def _play(self, until_ms, wall, batch_ms, restore):
        shard = Shard.restore(0, SETTINGS, None)
        for end_ms in range(batch_ms, until_ms + batch_ms, batch_ms):
            rows = [row for at_ms, row in self.rows if end_ms - batch_ms <= at_ms < end_ms]
            events = [event for row in rows if row.source != CLUSTER for event in parse_row(row)]
            events += [read_cluster_row(row.value).named(0) for row in rows if row.source == CLUSTER]
            wall_ms = T0 + end_ms + DELAY_MS if wall else None
            self.outputs += [
                {**o, "seq": len(self.outputs) + n} for n, o in enumerate(shard.apply(events, wall_ms=wall_ms))
            ]
            if restore:
                shard = Shard.restore(0, SETTINGS, shard.dump())
        self.shard = shard

    @property
    def transitions(self):
        return _transitions(read_outputs(self.outputs), SETTINGS)

    def opened(self, *rules):
        found = [t.incident for t in self.transitions if t.kind is Kind.OPENED and t.incident.rule in rules]
        return [(incident.rule, incident.subject) for incident in found]

    @property
    def accusations(self):
        return self.opened(*ACCUSING)

    def of(self, rule, kind=Kind.OPENED):
        return [t.incident for t in self.transitions if t.incident.rule == rule and t.kind is kind]

    @property
    def quarantined(self):
        return {(o["offset"], o["reason"]) for o in self.outputs if o["kind"] == "quarantine"}


def well(until_ms=120_000, *, m2_until_ms=None):
    """Two members of a group, heartbeats every second; m2 dies if an instant is given."""
    story = stable("m1", "m2").beats("m1", 1_000, until_ms)
    return story.beats("m2", 1_400, until_ms if m2_until_ms is None else m2_until_ms)


def misdated(at_ms, ahead_ms, line=None, broker="broker-1"):
    row = well().tell(at_ms, line or probe_line(77, port=6_000), broker).rows[-1][2]
    return at_ms, row._replace(timestamp_ms=T0 + at_ms + ahead_ms)


AHEAD = {"50 minutes": 50 * MINUTE_MS, "a day": DAY_MS, "a year": 365 * DAY_MS, "20 seconds": 20 * SECOND_MS}
LINES = {
    "a probe's": None,
    "a heartbeat's": heartbeat_line("orders", "m1"),
    "of another group": heartbeat_line("payments", "p1"),
}


@pytest.fixture
def looks(monkeypatch):
    seen, evaluate = [], group_judgement.evaluate

    def counted(replica, context):
        seen.append(context.progress_ms)
        assert len(seen) < 2_000, "one batch costs more than all others"
        return evaluate(replica, context)

    monkeypatch.setattr(group_judgement, "evaluate", counted)
    return seen


@pytest.mark.parametrize("wall", [True, False], ids=["live", "without a wall clock"])
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("ahead", AHEAD)
def test_a_line_from_the_future_accuses_nobody_costs_nothing_and_is_quarantined(ahead, line, wall, looks):
    lived = Lived(well(), 60_000, wall=wall, extra=[misdated(20_300, AHEAD[ahead], LINES[line])])
    assert lived.accusations == []
    assert [reason for _, reason in lived.quarantined] == ["line from the future"]
    assert lived.opened("coordinator-paused", "telemetry-stalled", "broker-clock") == []
    assert len(looks) < 200


def fenced_deploy(ahead_ms):
    """m2 leaves, then m3 joins. The record between is dated ahead; return it beside the story."""
    story = stable("m1", "m2").beats("m1", 1_000, 10_000).beats("m2", 1_000, 10_000).leave(10_500, "m2")
    story.beat(10_600, "m1", error=27).join(11_000, "m1", 2, listed=["m1"]).record(11_040, 2, "m1")
    at_ms, _, row = story.rows.pop()
    story.sync(11_050, "m1", 2, leader=True).beats("m1", 12_000, 20_000, generation=2).beat(20_500, "m1", 2, error=27)
    rebalance(story, 21_000, 3, "m1", "m3")
    for member in ("m1", "m3"):
        story.beats(member, 22_000, 150_000, generation=3)
    return story, (at_ms, row._replace(timestamp_ms=row.timestamp_ms + ahead_ms))


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("ahead_ms", [12_000, 100_000, DAY_MS])
def test_a_record_from_the_future_counts_as_written_when_it_was_read(ahead_ms, restore):
    """By its own instant it would be applied after the record of generation 3, and take out m3."""
    story, record = fenced_deploy(ahead_ms)
    lived = Lived(story, 150_000, extra=[record], restore=restore)
    assert lived.opened("member-removed", *ACCUSING) == []
    [group] = lived.shard.views()
    assert (group["generation"], [m["member_id"] for m in group["members"]]) == (3, ["m1", "m3"])
    counts = [o["counts"].get("records_from_the_future", 0) for o in lived.outputs if o["kind"] == "progress"]
    assert sum(counts) == 1


def test_a_line_from_the_future_each_second_makes_no_page(looks):
    """52 pages in 40 s is what 50 minutes once made."""
    extra = [misdated(at_ms + 300, 50 * MINUTE_MS) for at_ms in range(20_000, 60_000, 1_000)]
    lived = Lived(well(), 80_000, extra=extra)
    assert lived.accusations == []
    assert len(lived.quarantined) == 40


@pytest.mark.parametrize("restore", [False, True], ids=["", "with restarts"])
def test_a_death_is_told_beside_lines_from_the_future(restore):
    extra = [misdated(at_ms + 300, 50 * MINUTE_MS) for at_ms in range(20_000, 60_000, 5_000)]
    lived = Lived(well(60_000, m2_until_ms=25_000), 60_000, extra=extra, restore=restore)
    assert lived.accusations == [("session-expired", "m2")]
    [expired] = lived.of("session-expired")
    assert expired.deadline_ms == T0 + 24_400 + 6_000


@pytest.mark.parametrize("ahead", AHEAD)
def test_a_replay_quarantines_lines_from_the_future(ahead):
    story = well(60_000, m2_until_ms=25_000)
    at_ms, row = misdated(20_300, AHEAD[ahead])
    rows = Lived(story, 60_000, extra=[(at_ms, row)]).rows
    history = replay_rows([row for _, row in rows], SETTINGS)
    assert [t.incident.subject for t in history.transitions if t.incident.rule in ACCUSING] == ["m2"]
    assert history.undecodable == {"telemetry: line from the future": 1}


def test_a_peers_line_from_the_future_holds_and_advances_nobody():
    story = well(60_000, m2_until_ms=25_000)
    story.brokers["broker-2"] = 0
    lived = Lived(story, 60_000, extra=[misdated(20_300, HOUR_MS, broker="broker-2")])
    assert lived.accusations == [("session-expired", "m2")]
    assert lived.opened("broker-clock", "telemetry-stalled", "coordinator-paused") == []


# ------------------------------------------------------------------------------------------------ clocks that step


def stepped(from_ms, by_ms, until_ms=10**12):
    return lambda at_ms: by_ms if from_ms <= at_ms < until_ms else 0


BY = {"an hour ahead": HOUR_MS, "an hour back": -HOUR_MS, "30 seconds ahead": 30_000, "30 seconds back": -30_000}


@pytest.mark.parametrize("restore", [False, True], ids=["", "with restarts"])
@pytest.mark.parametrize("by", BY)
def test_a_clock_that_steps_is_told_and_accuses_nobody(by, restore):
    lived = Lived(well(), 100_000, clocks={"broker-1": stepped(30_000, BY[by])}, restore=restore)
    assert lived.accusations == []
    [told] = lived.of("broker-clock")
    assert (told.subject, told.severity, told.evidence) == ("broker-1", "warn", "observed")
    assert lived.of("broker-clock", Kind.CLOSED) == []
    assert lived.opened("coordinator-paused", "telemetry-stalled") == []
    assert lived.quarantined == set()


@pytest.mark.parametrize("by", BY)
def test_a_death_after_a_step_is_told_in_the_brokers_time(by):
    story = well(100_000, m2_until_ms=60_000)
    lived = Lived(story, 100_000, clocks={"broker-1": stepped(30_000, BY[by])})
    assert lived.accusations == [("session-expired", "m2")]
    [expired] = lived.of("session-expired")
    assert expired.deadline_ms == T0 + 59_400 + 6_000 + BY[by]


@pytest.mark.parametrize("batch_ms", [1_000, 2_000])
@pytest.mark.parametrize("by", BY)
def test_a_step_is_measured_by_the_brokers_own_lines(by, batch_ms):
    """Batches come too seldom to tell by this machine's clock. The lines before and after the step are 500 ms apart."""
    lived = Lived(well(), 100_000, clocks={"broker-1": stepped(30_000, BY[by])}, batch_ms=batch_ms)
    [told] = lived.of("broker-clock")
    assert 0 <= told.detail["apart_ms"] - BY[by] <= 500


@pytest.mark.parametrize("by", BY)
def test_a_clock_that_returns_is_forgiven(by):
    story = well(150_000, m2_until_ms=120_000)
    lived = Lived(story, 150_000, clocks={"broker-1": stepped(30_000, BY[by], 80_000)})
    assert lived.accusations == [("session-expired", "m2")]
    assert [incident.reason for incident in lived.of("broker-clock", Kind.CLOSED)] == ["recovered"]
    [expired] = lived.of("session-expired")
    assert expired.deadline_ms == T0 + 119_400 + 6_000


@pytest.mark.parametrize("by", BY)
def test_a_peer_whose_clock_steps_disturbs_nobody(by):
    story = well(100_000, m2_until_ms=60_000)
    story.brokers["broker-2"] = 0
    lived = Lived(story, 100_000, clocks={"broker-2": stepped(30_000, BY[by])})
    assert lived.accusations == [("session-expired", "m2")]
    [expired] = lived.of("session-expired")
    assert expired.at_ms == T0 + 59_400 + 6_500
    assert [incident.subject for incident in lived.of("broker-clock")] == ["broker-2"]
    assert lived.outputs[-1]["held"] < 50


@pytest.mark.parametrize("by", BY)
def test_a_move_between_skewed_clocks_is_judged_by_the_new_clock(by):
    """broker-1's clock steps at 30 s, broker-2 coordinates the shard from 60 s on, and m2 dies a minute later."""
    story = stable("m1", "m2").beats("m1", 1_000, 59_000).beats("m2", 1_400, 59_400)
    story.brokers["broker-2"] = 0
    story.beat(59_500, "m1", error=16).beat(60_200, "m1", error=27, broker="broker-2")
    story.broker = "broker-2"
    rebalance(story, 60_500, 2, "m1", "m2")
    story.beats("m1", 61_000, 140_000, generation=2).beats("m2", 61_400, 120_000, generation=2)
    lived = Lived(story, 140_000, clocks={"broker-1": stepped(30_000, BY[by])})
    assert lived.accusations == [("session-expired", "m2")]
    assert lived.of("session-expired")[0].deadline_ms == T0 + 119_400 + 6_000


def test_a_second_move_is_judged_by_the_newest_clock():
    """Broker-3's clock is an hour ahead. It takes over from broker-2 at 80 s, and m2 dies at 120 s."""
    story = stable("m1", "m2")
    story.brokers |= {"broker-2": 0, "broker-3": 0}
    for from_ms, until_ms, broker in ((1_000, 40_000, "broker-1"), (41_000, 80_000, "broker-2")):
        story.beats("m1", from_ms, until_ms, broker=broker).beats("m2", from_ms + 400, until_ms, broker=broker)
        story.beat(until_ms + 500, "m1", error=16, broker=broker)
    story.beats("m1", 81_000, 140_000, broker="broker-3").beats("m2", 81_400, 120_000, broker="broker-3")
    lived = Lived(story, 140_000, clocks={"broker-3": stepped(20_000, HOUR_MS)})
    assert lived.accusations == [("session-expired", "m2")]
    assert lived.shard.clock.progress_ms == lived.shard.clock.brokers["broker-3"].line_ms


def test_a_pause_of_a_minute_is_no_step():
    story = stable("m1", "m2").beats("m1", 1_000, 30_000).beats("m2", 1_400, 30_000)
    story.beats("m1", 90_500, 120_000).beats("m2", 90_600, 120_000).silent(30_500, 90_000)
    for wall in (True, False):
        assert Lived(story, 120_000, wall=wall).opened("broker-clock") == []


def test_the_first_broker_to_wake_is_believed_once_another_follows():
    """Both brokers of a partition paused; in a replay no other clock confirms the first one's few lines."""
    speaks_ms = {
        "broker-1": [0, 1_000, 2_000, *range(40_000, 40_500, 100), *range(45_000, 50_000, 500)],
        "broker-2": [0, 1_000, *range(40_300, 50_000, 500)],
    }
    spoken = sorted((at_ms, broker) for broker, instants in speaks_ms.items() for at_ms in instants)
    rows = [
        telemetry(heartbeat_line(), at_ms=T0 + at_ms, broker=broker, offset=offset)
        for offset, (at_ms, broker) in enumerate(spoken)
    ]
    assert replay_rows(rows, SETTINGS).undecodable == {}


def test_a_backlog_that_trickles_in_after_a_pause_makes_no_step():
    """The leader of the telemetry partition stood still for 12 s. Its own lines come before those that others kept."""
    spoken = [(at_ms, broker) for at_ms in range(0, 2_500, 500) for broker in ("broker-1", "broker-2")]
    for woke_ms, kept_ms in ((14_200, 2_500), (14_300, 3_000), (14_400, 3_500)):
        spoken += [(woke_ms, "broker-1"), (kept_ms, "broker-2")]
    spoken += [(at_ms, "broker-1") for at_ms in range(14_500, 17_500, 500)]
    spoken += [(at_ms, "broker-2") for at_ms in range(4_000, 17_500, 500)]
    spoken += [(at_ms, broker) for at_ms in range(17_500, 30_000, 500) for broker in ("broker-1", "broker-2")]
    numbers = {"broker-1": count(), "broker-2": count()}
    lines = [(at_ms, broker, probe_line(next(numbers[broker]))) for at_ms, broker in spoken]
    lines = [
        one for line in lines for one in (line, (*line[:2], heartbeat_line())) if one is line or line[1] == "broker-1"
    ]
    rows = [
        telemetry(line, at_ms=T0 + at_ms, broker=broker, offset=offset)
        for offset, (at_ms, broker, line) in enumerate(lines)
    ]
    history = replay_rows(rows, SETTINGS)
    assert [t.incident.rule for t in history.transitions if t.incident.rule == "broker-clock"] == []
    assert history.undecodable == {}


def test_lines_that_are_sent_again_an_hour_later_are_no_step():
    story = well(60_000)
    again = [(at_ms + 30_000, row) for at_ms, row in Lived(story, 30_000).rows if row.source == "telemetry"]
    lived = Lived(story, 60_000, extra=again)
    assert lived.accusations == []
    assert lived.opened("broker-clock") == []


# ------------------------------------------------------------------------------------------------ in any batches


@pytest.mark.parametrize("batch_ms", [300, 2_000, 7_000, 45_000, 200_000])
@pytest.mark.parametrize("by", BY)
def test_a_step_and_its_return_are_the_same_in_whatever_batches_they_come(by, batch_ms):
    story = well(150_000, m2_until_ms=120_000)
    story.brokers["broker-2"] = 0
    clocks = {"broker-1": stepped(30_000, BY[by], 80_000)}
    lived = Lived(story, 150_000, clocks=clocks, batch_ms=batch_ms, wall=batch_ms < 5_000, one_partition=True)
    assert lived.accusations == [("session-expired", "m2")]
    assert lived.of("session-expired")[0].deadline_ms == T0 + 119_400 + 6_000
    assert len(lived.of("broker-clock")) == len(lived.of("broker-clock", Kind.CLOSED)) == 1


@pytest.mark.parametrize("by", BY)
def test_a_clock_step_shows_against_the_other_broker_in_a_replay(by):
    """All lines lie in one partition; broker-1's clock steps and returns, and m2's death is reported once."""
    story = well(150_000, m2_until_ms=120_000)
    story.brokers["broker-2"] = 0
    lived = Lived(story, 150_000, clocks={"broker-1": stepped(30_000, BY[by], 80_000)}, one_partition=True)
    history = replay_rows([row for _, row in lived.rows], SETTINGS)
    told = [(t.kind, t.incident.rule) for t in history.transitions if t.incident.rule in (*ACCUSING, "broker-clock")]
    assert sorted(told) == [
        (Kind.CLOSED, "broker-clock"),
        (Kind.OPENED, "broker-clock"),
        (Kind.OPENED, "session-expired"),
    ]


@pytest.mark.parametrize("by", BY)
def test_a_replay_of_one_broker_alone_accuses_nobody_for_its_clock(by):
    lived = Lived(well(150_000), 150_000, clocks={"broker-1": stepped(30_000, BY[by], 80_000)})
    history = replay_rows([row for _, row in lived.rows], SETTINGS)
    assert [t.incident.rule for t in history.transitions if t.incident.rule in ACCUSING] == []
    assert "broker-clock" in {t.incident.rule for t in history.transitions}


def test_what_waits_and_what_is_in_doubt_survives_a_restart():
    story = well(60_000)
    clocks = {"broker-1": stepped(30_000, HOUR_MS)}
    assert Lived(story, 31_000, clocks=clocks).shard.memory.doubts
    lived = Lived(story, 60_000, clocks=clocks, batch_ms=500, restore=True)
    assert lived.shard.memory.doubts == {}
    assert len(lived.of("broker-clock")) == 1


STEP_MS = st.one_of(st.integers(12_000, 10 * DAY_MS), st.integers(-10 * DAY_MS, -12_000))


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(10_000, 90_000), STEP_MS), max_size=3),
    outliers=st.lists(st.tuples(st.integers(5_000, 118_000), st.integers(15_000, 400 * DAY_MS)), max_size=5),
    dies=st.booleans(),
    peer=st.booleans(),
    restore=st.booleans(),
)
def test_whatever_a_clock_does_the_living_are_not_accused_and_the_dead_are_told(steps, outliers, dies, peer, restore):
    story = well(140_000, m2_until_ms=120_000 if dies else None)
    if peer:
        story.brokers["broker-2"] = 0
    clocks = {"broker-1": lambda at_ms: sum(by_ms for from_ms, by_ms in steps if at_ms >= from_ms)}
    extra = [misdated(at_ms, clocks["broker-1"](at_ms) + ahead_ms) for at_ms, ahead_ms in outliers]
    lived = Lived(story, 140_000, clocks=clocks, extra=extra, restore=restore)
    assert lived.accusations == ([("session-expired", "m2")] if dies else [])


def a_failover(*, metadata, dies):
    """Broker-1 coordinates a stable group and dies, or resigns, at 60 s. Broker-2 goes on. At 120 s m2 dies."""
    story = stable("m1", "m2").beats("m1", 1_000, 60_000).beats("m2", 1_400, 59_400)
    story.brokers |= {"broker-2": 0, "broker-3": 0}
    if dies:
        story.silent(60_000, 999_000)
    else:
        story.beat(61_000, "m1", error=16)
    if metadata:
        story.leads(500, "broker-1", *range(5_000, 61_000, 5_000))
        story.leads(64_000, "broker-2", *range(69_000, 140_000, 5_000))
    story.beats("m1", 63_000, 140_000, broker="broker-2").beats("m2", 63_400, 120_000, broker="broker-2")
    return story


FIRST_STEPS = st.tuples(
    st.lists(st.tuples(st.integers(10_000, 25_000), STEP_MS), max_size=1),
    st.lists(st.tuples(st.integers(30_000, 45_000), STEP_MS), max_size=1),
).map(lambda steps: [*steps[0], *steps[1]])
"""At most one step at a time: two steps within two seconds look like one, and a hole."""


@settings(max_examples=15, deadline=None)
@given(old=FIRST_STEPS, new=FIRST_STEPS, metadata=st.booleans(), dies=st.booleans(), restore=st.booleans())
@example(old=[(20_000, HOUR_MS)], new=[], metadata=True, dies=True, restore=True)
@example(old=[(20_000, -HOUR_MS)], new=[], metadata=True, dies=True, restore=True)
@example(old=[(20_000, -MINUTE_MS)], new=[], metadata=False, dies=True, restore=True)
@example(old=[(20_000, -HOUR_MS)], new=[], metadata=False, dies=True, restore=True)
@example(old=[(20_000, -HOUR_MS)], new=[(20_000, -MINUTE_MS)], metadata=True, dies=True, restore=True)
@example(old=[], new=[(20_000, HOUR_MS)], metadata=False, dies=True, restore=True)
def test_a_failover_is_seen_and_judged_whatever_the_clocks_do(old, new, metadata, dies, restore):
    clocks = {
        "broker-1": lambda at_ms: sum(by_ms for from_ms, by_ms in old if at_ms >= from_ms),
        "broker-2": lambda at_ms: sum(by_ms for from_ms, by_ms in new if at_ms >= from_ms),
    }
    lived = Lived(a_failover(metadata=metadata, dies=dies), 140_000, clocks=clocks, restore=restore)
    assert lived.shard.clock.coordinator == "broker-2"
    assert lived.opened("telemetry-stalled", *ACCUSING) == [("session-expired", "m2")]
    assert lived.of("session-expired")[0].deadline_ms == T0 + 119_400 + 6_000 + clocks["broker-2"](120_000)
    assert lived.outputs[-1]["held"] < 50

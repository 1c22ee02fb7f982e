"""Findings about a broker: one page for what its pause or move has cost, one incident while its telemetry is silent."""

import sys

import pytest

from coordinator_model.decode.cluster_row import read_cluster_row
from coordinator_model.decode.parse import parse_row
from coordinator_model.decode.source_row import CLUSTER, TELEMETRY, SourceRow
from coordinator_model.group_report import read_outputs, reports_in
from coordinator_model.incidents import Incident, Kind, diff
from coordinator_model.rules.broker_watch import BrokerWatch
from coordinator_model.rules.findings import Finding
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.states import Cause, Evidence, Severity
from coordinator_model.thresholds import Thresholds
from tests.support.story import T0, Story, Who, rebalance, silent_until_moved, stable


def pages(told):
    """(rule, subject, severity, cause) of all that was opened, warnings before a verdict left out."""
    return [
        (t["rule"], t["subject"], t["severity"], t["cause"])
        for t in told.transitions
        if t["transition"] == "opened" and t["rule"] != "session-at-risk"
    ]


def after_a_pause(*survivors):
    """Ten members; the broker stands still from 5,000 to 12,000, and only the survivors come back at once."""
    everybody = [f"m{n}" for n in range(10)]
    story = stable(*everybody)
    for member in everybody:
        story.beats(member, 1_000, 5_000)
    story.silent(5_000, 12_000).beats(survivors[0], 12_050, 17_050)
    rebalance(story, 17_500, 2, *survivors)
    for member in survivors:
        story.beats(member, 18_000, 90_000, generation=2)
    return story


def test_what_a_pause_has_cost_is_one_page_that_names_them_all():
    told = after_a_pause("m0", "m1").play(25_000)
    gone = [f"m{n}" for n in range(2, 10)]
    opened = pages(told)
    assert [p for p in opened if p[2] == "page"] == [("coordinator-paused", "broker-1", "page", "coordinator-pause")]
    assert sorted(p[1] for p in opened if p[0] == "session-expired") == gone
    assert {p[3] for p in opened if p[0] == "session-expired"} == {"coordinator-pause"}


def test_the_page_ends_when_it_has_cost_nobody_anything_for_a_minute():
    assert [reason for reason, _ in after_a_pause("m0", "m1").play(90_000).closed("coordinator-paused")] == [
        "recovered"
    ]


def test_a_pause_that_cost_nobody_anything_is_no_page():
    story = stable("m1").beats("m1", 1_000, 5_000).silent(5_000, 9_000).beats("m1", 9_050, 30_000)
    assert pages(story.play(30_000)) == []


def test_an_expiry_long_after_a_pause_is_no_fault_of_it():
    story = stable("m1", "m2").beats("m1", 1_000, 5_000).beats("m2", 1_000, 5_000).silent(5_000, 9_000)
    story.beats("m1", 9_050, 60_000).beats("m2", 9_050, 30_000)
    assert pages(story.play(60_000)) == [("session-expired", "m2", "warn", "session-timeout")]


@pytest.mark.parametrize("back_ms", [70_000, 999_000], ids=["it comes back", "it stays away"])
def test_what_happens_while_nobody_probes_is_no_fault_of_a_broker(back_ms):
    """`run` is down from 20 s on. Then there is a line every 3 s only, which looks like one pause after the other."""
    story = stable("m1", "m2").silent(20_000, back_ms, restart=True)
    story.beats("m1", 1_000, 49_000, every_ms=3_000).beats("m2", 1_000, 40_000, every_ms=3_000)
    story.beat(52_000, "m1", error=27)
    rebalance(story, 53_000, 2, "m1").beats("m1", 55_000, 90_000, generation=2, every_ms=3_000)
    told = story.play(90_000)
    assert pages(told) == [("session-expired", "m2", "warn", "session-timeout")]
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m2", 46_000)]


def test_a_pause_right_after_the_probe_came_back_is_one():
    """While nobody probed, each gap looked like a pause, and the last one may still be open."""
    story = stable("m1", "m2").silent(20_000, 50_000, restart=True)
    story.beats("m1", 1_000, 55_000, every_ms=3_000).beats("m2", 1_000, 55_000, every_ms=3_000)
    story.silent(55_500, 62_000).beats("m1", 62_050, 66_000, every_ms=1_000)
    rebalance(story, 69_000, 2, "m1").beats("m1", 70_000, 90_000, generation=2)
    opened = pages(story.play(90_000))
    assert ("coordinator-paused", "broker-1", "page", "coordinator-pause") in opened
    assert ("session-expired", "m2", "warn", "coordinator-pause") in opened


def test_a_move_names_the_broker_that_took_over():
    story = stable("m1", "m2").beats("m1", 1_000, 5_000).beats("m2", 1_000, 5_000).silent(5_000, 99_000)
    story.brokers["broker-2"] = 0
    story.broker = "broker-2"
    told = story.beats("m1", 8_000, 40_000).commit(8_500, "t", 9).play(40_000)
    assert sorted(pages(told)) == [
        ("coordinator-paused", "broker-2", "page", "coordinator-moved"),
        ("session-expired", "m2", "warn", "coordinator-moved"),
    ]
    [page] = told.of("coordinator-paused")
    assert page["summary"] == (
        "broker-2 took over as coordinator, and removed at least 1 member within a session timeout after that"
    )


def test_a_pause_is_not_told_again_while_what_it_cost_stays_open():
    """The partitions of the dead stay unowned, so their incidents outlast the page by far."""
    everybody = [Who(f"m{n}", partitions=(n,)) for n in range(3)]
    story = stable(*everybody)
    for who in everybody:
        story.beats(who.member_id, 1_000, 5_000)
    story.silent(5_000, 12_000).beats("m0", 12_050, 17_050)
    rebalance(story, 17_500, 2, everybody[0]).beats("m0", 18_000, 160_000, generation=2)
    live = Live(story, topic_partitions={"t": 3})
    for at_ms in range(1_000, 160_000, 1_000):
        live.until(at_ms)
    assert [step[0] for step in live.told if step[1] == "coordinator-paused"] == ["opened", "closed"]
    assert sorted(i.subject for i in live.open.values() if i.rule == "session-expired") == ["m1", "m2"]


def test_a_broker_whose_log_has_no_key_is_named_by_what_it_leads():
    """Only the coordinator's own log is shipped, and the shipper sends no keys."""
    story = Story().record(1_000, 1, Who("a", partitions=(0,)), Who("b", partitions=(1,)))
    story.brokers = {}
    loaded = (
        "Finished loading of metadata from __consumer_offsets-0 with epoch 1 in 5ms where 0ms was spent in the"
        " scheduler. Loaded 3 records which total to 300 bytes."
    )
    lines = [(2_000, loaded), (8_000, "Member b in group orders has failed, removing it from the group.")]
    for at_ms, text in lines:
        value = f"[GroupCoordinator id=1 topic=__consumer_offsets partition=0] {text}".encode()
        story.rows.append((at_ms, 1, SourceRow(TELEMETRY, "lines", 0, -1, T0 + at_ms, None, value)))
    told = (
        story.record(9_000, 2, Who("a", partitions=(0, 1))).record(30_000, 2, Who("a", partitions=(0, 1))).play(60_000)
    )
    [opened] = told.of("coordinator-paused")
    assert opened["subject"] == "leader of __consumer_offsets-0"
    assert opened["summary"].startswith("leader of __consumer_offsets-0 took over as coordinator")


def test_a_page_about_a_pause_says_what_is_only_inferred_and_is_refuted_with_it():
    """M2 and m3 are silent after a pause, so their timers should have run out. Both are heard again, one by one."""
    story = stable("m1", "m2", "m3").silent(5_000, 9_000).beats("m1", 1_000, 5_000).beats("m1", 9_050, 60_000)
    story.beats("m2", 1_000, 5_000).beats("m2", 25_000, 60_000).beats("m3", 1_000, 5_000).beats("m3", 30_000, 60_000)
    told = story.play(60_000)
    assert [(t["subject"], t["severity"], t["evidence"]) for t in told.of("coordinator-paused")] == [
        ("broker-1", "page", "inferred")
    ]
    assert told.closed("coordinator-paused") == [("refuted", 30_000)]


def test_a_member_that_the_next_coordinator_has_again_refutes_nothing():
    """The session of m2 ended as broker-1 woke, and no record shows that. broker-2 has loaded m2 from the log."""
    story = stable("m1", "m2").silent(5_000, 9_000).beats("m1", 1_000, 5_000).beats("m1", 9_050, 14_850)
    story.beats("m2", 1_000, 5_000).beats("m1", 15_200, 18_200, error=27)
    story.brokers = {"broker-1": 0, "broker-2": 0}
    for at_ms in range(19_000, 90_000, 1_000):
        story.beat(at_ms, "m1", broker="broker-2").beat(at_ms + 1_500, "m2", broker="broker-2")
    live = Live(story)
    for at_ms in (18_000, 20_000, 90_000):
        live.until(at_ms)
    reasons = {rule: reason for step, rule, _, reason in live.told if step == "closed"}
    assert (reasons["session-expired"], reasons["coordinator-paused"]) == ("rejoined", "recovered")


def test_a_loss_that_is_inferred_first_is_observed_once_the_member_is_gone():
    story = stable("m1", "m2").silent(5_000, 9_000).beats("m1", 1_000, 5_000).beats("m1", 9_050, 20_050)
    rebalance(story.beats("m2", 1_000, 5_000), 21_000, 2, "m1").beats("m1", 22_000, 40_000, generation=2)
    live = Live(story)

    def evidence(at_ms):
        return [each.evidence for each in live.until(at_ms).open.values() if each.rule == "coordinator-paused"]

    assert evidence(5_000) == []
    assert evidence(20_000) == ["inferred"]
    assert evidence(40_000) == ["observed"]


def two_pauses():
    """Each costs a member its session. Between them, a minute passes without a loss."""
    story = stable("m1", "m2", "m3", partitions=1).silent(10_000, 14_000).silent(200_000, 204_000)
    story.beats("m1", 1_000, 10_000).beats("m2", 1_000, 9_000).beats("m3", 1_000, 10_000)
    story.beats("m1", 14_100, 18_100).beats("m3", 14_100, 18_100)
    rebalance(story, 19_000, 2, "m1", "m3")
    story.beats("m1", 20_000, 200_000, generation=2).beats("m3", 20_000, 199_000, generation=2)
    rebalance(story.beats("m1", 204_100, 208_100, generation=2), 209_000, 3, "m1")
    return story.beats("m1", 210_000, 300_000, generation=3)


@pytest.mark.parametrize(
    ("story", "until_ms", "rule", "expected"),
    [
        (two_pauses, 300_000, "coordinator-paused", ["opened", "closed", "opened", "closed"]),
        (silent_until_moved, 60_000, "telemetry-stalled", ["opened", "closed"]),
    ],
)
def test_one_batch_tells_of_brokers_what_many_batches_tell(story, until_ms, rule, expected):
    live = Live(story())
    for at_ms in range(2_000, until_ms + 1, 2_000):
        live.until(at_ms)
    in_one = [t["transition"] for t in story().play(until_ms).transitions if t["rule"] == rule]
    assert in_one == [step[0] for step in live.told if step[1] == rule] == expected


# ------------------------------------------------------------------------------------------------ telemetry-stalled


def test_a_silent_broker_is_one_incident_not_one_a_member_and_ends_when_it_is_back():
    """Found afterwards, as in a capture: silent from 20,000 to 50,000; everybody goes on as if nothing had been."""
    story = stable("m1", "m2", "m3")
    for member in ("m1", "m2", "m3"):
        story.beats(member, 1_000, 20_000).beats(member, 50_000, 60_000)
    told = story.silent(20_000, 50_000).play(60_000)
    assert told.facts("telemetry-stalled", "subject", "severity", "opened_ms", "at_ms") == [
        ("broker-1", "page", 20_000, 35_000)
    ]
    assert told.closed("telemetry-stalled") == [("telemetry-back", 50_000)]
    assert told.accusations == []


class Live:
    """A shard fed batch by batch with a wall clock, and the open incidents of its cluster."""

    def __init__(self, story, shards=(0,), partitions=1, **settings):
        self.story, self.open, self.told = story, {}, []
        self.config = ShardSettings(cluster="c", partitions=partitions, live_from_ms=T0, view_refresh_ms=0, **settings)
        self.shards = {n: Shard.restore(n, self.config, None) for n in shards}
        self.fed_ms = -1

    def until(self, at_ms, wall_ms=None):
        """Feed what lies before an instant; the wall clock may be elsewhere."""
        rows = [r for r in self.story.source_rows(at_ms) if self.fed_ms < r.timestamp_ms - T0]
        named = [read_cluster_row(row.value).named(0) for row in rows if row.source == CLUSTER]
        events = [event for row in rows if row.source != CLUSTER for event in parse_row(row)] + named
        self.fed_ms = at_ms
        wall = T0 + (at_ms if wall_ms is None else wall_ms)
        for number, shard in self.shards.items():
            outputs = shard.apply(events, wall_ms=wall)
            for report in reports_in(read_outputs(outputs)):
                self.take(report)
            self.shards[number] = Shard.restore(number, self.config, shard.dump())
        return self

    def take(self, report):
        """Do what the store does with a report."""
        held = [i for i in self.open.values() if i.group == report.group]
        for transition in diff(held, report):
            incident = Incident.from_dict(transition.incident.as_dict())
            self.open[incident.incident_id] = incident
            if transition.kind is Kind.CLOSED:
                del self.open[incident.incident_id]
            if transition.kind is not Kind.UPDATED:
                self.told.append((transition.kind.value, incident.rule, incident.subject, incident.reason))


def steady(until_ms=60_000):
    story = stable("m1", "m2")
    for member in ("m1", "m2"):
        story.beats(member, 1_000, until_ms)
    return story


def test_live_the_wall_clock_tells_that_nothing_comes_any_more():
    live = Live(steady(20_000).silent(20_000, 99_000)).until(20_000)
    live.until(20_001, wall_ms=34_000)
    assert live.told == []
    live.until(20_002, wall_ms=36_000).until(20_003, wall_ms=60_000)
    assert live.told == [("opened", "telemetry-stalled", "broker-1", None)]


def test_several_shards_of_a_broker_make_one_incident_and_the_last_to_let_go_ends_it():
    story = steady().silent(20_000, 40_000)
    story.rows = [r for r in story.rows if not 20_000 < r[0] < 40_000]
    live = Live(story, shards=(0, 1, 2))
    live.until(20_000).until(38_200).until(39_000).until(60_000)
    assert live.told == [
        ("opened", "telemetry-stalled", "broker-1", None),
        ("closed", "telemetry-stalled", "broker-1", "telemetry-back"),
    ]
    assert live.open == {}


def test_a_group_without_members_misses_no_telemetry():
    story = Story().record(100, 1).beat(200, "nobody", error=25)
    assert Live(story.silent(5_000, 99_000)).until(5_000).until(5_001, wall_ms=60_000).told == []


def test_who_took_over_is_not_blamed_for_the_silence_of_the_one_before():
    """broker-1 dies and is missed after 15 s; broker-2 takes over at 30,000, and m2 does not come back."""
    story = stable("m1", "m2").beats("m1", 1_000, 10_000).beats("m2", 1_000, 10_000).silent(10_000, 99_000)
    story.brokers["broker-2"] = 0
    story.broker = "broker-2"
    live = Live(story.beats("m1", 30_000, 60_000))
    for at_ms in range(1_000, 60_001, 1_000):
        live.until(at_ms)
    told = [t for t in live.told if t[1] == "telemetry-stalled"]
    assert told == [
        ("opened", "telemetry-stalled", "broker-1", None),
        ("closed", "telemetry-stalled", "broker-1", "superseded"),
    ]


def test_a_broker_that_coordinates_again_without_a_line_is_told_again():
    """It gets the groups back at 80 s."""
    told = silent_until_moved().leads(80_000, "broker-1", *range(85_000, 120_000, 5_000)).play(120_000)
    assert told.facts("telemetry-stalled", "subject", "opened_ms", "at_ms") == [
        ("broker-1", 10_000, 25_000),
        ("broker-1", 80_000, 95_000),
    ]
    assert told.closed("telemetry-stalled") == [("superseded", 40_000)]


@pytest.mark.parametrize("order", [("broker-1", "broker-2"), ("broker-2", "broker-1")])
def test_a_takeover_in_the_middle_of_a_verdict_blames_nobody_for_silence(order):
    """The first answer of the new coordinator makes verdicts due; the broker's report must not name the new one."""
    first, second = order
    story = Story(broker=first)
    story.brokers = {first: 0, second: 0}
    rebalance(story, 100, 1, "m1", "m2").beats("m1", 1_000, 10_000).beats("m2", 1_000, 10_000).silent(
        10_000, 99_000, first
    )
    story.broker = second
    story.record(31_000, 2, "m1").beats("m1", 30_000, 60_000)
    live = Live(story)
    for at_ms in range(1_000, 60_001, 1_000):
        live.until(at_ms)
    assert ("opened", "telemetry-stalled", second, None) not in live.told


def test_what_a_failover_has_cost_is_looked_up_not_searched():
    """Each rejoin evaluates its group again: with 2,000 members that must not compare each loss with each other one."""
    lost = [
        Finding(
            "session-expired", Severity.WARN, "g", f"m{n}", T0, T0, Evidence.OBSERVED, Cause.COORDINATOR_MOVED, "",
            broker="broker-1", deadline_ms=T0,
        )
        for n in range(2_000)
    ]  # fmt: skip
    watch, looked = BrokerWatch(), 0

    def count(frame, event, _):
        nonlocal looked
        looked += event == "call" and frame.f_code.co_filename.endswith("broker_watch.py")

    assert list(watch.attribute(lost, T0, Thresholds())) == [T0]
    assert len(watch.affected_members) == 2_000
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert list(watch.attribute(lost, T0, Thresholds())) == []
    finally:
        sys.setprofile(before)
    assert looked < 10 * len(lost)

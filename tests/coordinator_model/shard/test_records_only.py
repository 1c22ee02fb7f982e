"""Tier 0: only `__consumer_offsets` is read. What records tell is exact; who lives, and why one went, is unknown."""

import random

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.parse import OFFSETS, parse_row
from coordinator_model.events import TELEMETRY_RANK, LeaderNamed
from coordinator_model.group_report import read_outputs, reports_in
from coordinator_model.incidents import Kind, fold
from coordinator_model.rules.evaluate import evaluate
from coordinator_model.shard import group_judgement
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.records import key
from tests.support.story import T0, Story, Told, Who, consumers, rebalance, stable

SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=T0)
HOUR_MS = 3_600_000


def without_telemetry(story, until_ms):
    """What a cluster without telemetry has of a story: its records, and what clients report."""
    return Told(replay_rows(unlogged(story, until_ms), ShardSettings(cluster="c", partitions=1, live_from_ms=0)))


def unlogged(story, until_ms):
    story.brokers = {}  # nothing is probed
    return [row for row in story.source_rows(until_ms) if not row.topic.startswith("lines-of-")]


def flapping(times=6):
    """m2's client comes and goes each ten seconds, always under another id."""
    story = Story().record(0, 1, "m1")
    for n in range(times):
        again = Who(f"m2-{n}", client_id="flapping")
        story.record(10_000 * (2 * n + 1), 2 + 2 * n, "m1", again).record(10_000 * (2 * n + 2), 3 + 2 * n, "m1")
    return story


def deploying(members=6):
    """Each member goes once, and comes back once."""
    names, story = [f"old-{n}" for n in range(members)], Story().know
    story = Story()
    who = [Who(name, client_id=f"pod-{n}") for n, name in enumerate(names)]
    story.record(0, 1, *who)
    for n in range(members):
        story.record(10_000 * (n + 1), 2 + 2 * n, *who[:n], *who[n + 1 :])
        who[n] = Who(f"new-{n}", client_id=f"pod-{n}")
        story.record(10_000 * (n + 1) + 5_000, 3 + 2 * n, *who)
    return story


# ------------------------------------------------------------------------------------------------ who is gone


def test_a_removal_is_told_once_its_cause_unknown():
    told = without_telemetry(Story().record(0, 7, "m1", "m2").record(30_000, 8, "m1").commit(60_000, "t", 0), 60_000)
    assert told.facts("member-removed", "subject", "severity", "cause", "evidence", "at_ms") == [
        ("m2", "info", "unknown", "inferred", 30_000)
    ]
    [opened] = told.of("member-removed")
    assert "gone between generation 7 and 8, cause unknown" in opened["summary"]
    assert told.accusations == []


def test_a_removal_from_a_kip848_group_is_told_once():
    story = Story().epoch(0, 2).member(0, "m1").member(0, "m2").target(0, 2).current(0, "m1", 2).current(0, "m2", 2)
    story.gone(30_000, "m2").epoch(30_000, 3).target(30_001, 3).current(30_001, "m1", 3).commit(90_000, "t", 0)
    told = without_telemetry(story, 90_000)
    assert told.facts("member-removed", "subject", "severity") == [("m2", "info")]
    assert "between generation 2 and 3" in told.of("member-removed")[0]["summary"]


def test_who_comes_back_ends_it_and_a_group_that_is_well_without_does_too():
    story = Story().record(0, 1, Who("m1"), Who("a", client_id="pod-a"), Who("b", client_id="pod-b"))
    story.record(10_000, 2, "m1").record(15_000, 3, "m1", Who("a-2", client_id="pod-a")).commit(90_000, "t", 0)
    assert without_telemetry(story, 90_000).closed("member-removed") == [("rejoined", 15_000), ("recovered", 75_000)]


def test_of_a_group_that_has_ended_nothing_stays_open():
    """Whether its last member was closed or crashed nobody can tell; nobody is left to miss it."""
    told = without_telemetry(Story().record(0, 1, "m1").record(10_000, 2).commit(90_000, "t", 0), 90_000)
    assert told.facts("member-removed", "severity") == [("info",)]
    assert told.closed("member-removed") == [("recovered", 70_000)]


def test_a_static_member_that_is_replaced_is_not_gone():
    first, second = Who("i-1", instance_id="i"), Who("i-2", instance_id="i")
    assert without_telemetry(Story().record(0, 1, first).record(9_000, 1, second), 9_000).transitions == []


def test_a_change_of_protocol_removes_nobody():
    """Downgrade: the tombstones of a KIP-848 group and the classic record that follows are one write."""
    story = Story().epoch(0, 2).member(0, "m1").target(0, 2).current(0, "m1", 2)
    story.gone(5_000, "m1").write(5_000, key(6, "orders"), None).epoch(5_000, None).record(5_000, 3, "m1")
    assert without_telemetry(story.commit(9_000, "t", 0), 9_000).transitions == []


def test_nothing_is_told_of_before_the_capture_was_begun():
    story = Story().record(-HOUR_MS, 1, "m1", "m2").record(-5_000, 2, "m1").record(30_000, 2, "m1")
    assert without_telemetry(story.leads(0, None), 30_000).transitions == []


# ------------------------------------------------------------------------------------------------ what is unknown


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_who_lives_is_unknown_and_what_the_records_tell_is_not(kind):
    group = {"classic": stable("m1", partitions=2), "consumer": consumers("m1")}[kind]
    told = without_telemetry(group.commit(300_000, "t", 0), 300_000)
    [member] = told.members.values()
    assert [member[name] for name in ("liveness", "client_phase", "heartbeat_headroom")] == ["unknown", None, None]
    assert (told.group["state"], told.group["type"]) == ("Stable", kind)
    assert told.group["state_evidence"] == {"classic": "inferred", "consumer": "observed"}[kind]
    assert told.group["generation"] == {"classic": 1, "consumer": 2}[kind]
    assert {t["rule"] for t in told.transitions} <= {"timeouts-inconsistent"}  # which the records tell too


def test_a_kip848_member_that_has_not_reached_its_target_is_shown_so():
    story = consumers("m1").epoch(500, 3).target(500, 3).current(500, "m1", 3, 2)
    assert without_telemetry(story, 500).members["m1"]["client_phase"] == "awaiting-assignment"


# ------------------------------------------------------------------------------------------------ time goes on


def test_a_storm_is_told_and_ends_with_the_records_of_others():
    """The group's own last record is of 120 s; another group's, in the same shard, tell of the time since."""
    story = flapping()
    told = without_telemetry(story, 130_000)
    assert told.facts("rebalance-storm", "severity", "cause") == [("page", "unknown")]
    assert "flapping" in told.of("rebalance-storm")[0]["summary"]
    assert told.closed("rebalance-storm") == []
    [(reason, at_ms)] = without_telemetry(story.commit(HOUR_MS, "t", 0), HOUR_MS).closed("rebalance-storm")
    assert (reason, at_ms) == ("recovered", 80_000 + 600_000)


def test_a_rolling_deploy_pages_nobody():
    told = without_telemetry(deploying().commit(HOUR_MS, "t", 0), HOUR_MS)
    assert {t["severity"] for t in told.transitions} == {"info"}
    assert sorted(told.opened("member-removed")) == [f"old-{n}" for n in range(6)]
    assert {reason for reason, _ in told.closed("member-removed")} == {"rejoined"}
    assert told.of("rebalance-storm")[0]["detail"]["rolling_deploy"]


def test_a_reconciliation_that_lasts_is_told_and_ends():
    story = consumers("m1", "m2").epoch(500, 3).target(500, 3).current(500, "m1", 3).current(500, "m2", 2, 1)
    story.commit(70_000, "t", 0).current(80_000, "m2", 3).commit(81_000, "t", 0)
    told = without_telemetry(story, 81_000)
    assert told.facts("rebalance-stuck", "at_ms") == [(48_500,)]
    assert told.closed("rebalance-stuck") == [("recovered", 80_000)]


def unowned(until_ms):
    """Partition 2 of t is nobody's."""
    story = Story().record(0, 1, Who("m1", partitions=(0, 1)))
    for at_ms in range(1_000, until_ms + 1, 1_000):
        story.commit(at_ms, "t", 0)
    return story


def test_a_partition_that_nobody_owns_is_told_and_ends():
    story = unowned(70_000).record(80_000, 2, Who("m1", partitions=(0, 1, 2))).commit(81_000, "t", 0)
    rows = [row for row in story.source_rows(81_000) if row.source == OFFSETS]
    settings = ShardSettings(cluster="c", partitions=1, live_from_ms=0, topic_partitions={"t": 3})
    told = Told(replay_rows(rows, settings))
    steps = [(t["transition"], t["severity"], t["at_ms"] - T0) for t in told.transitions]
    assert steps == [("opened", "warn", 10_000), ("escalated", "page", 60_000), ("closed", "page", 80_000)]


@pytest.mark.parametrize("late_ms", [2 * HOUR_MS, 10_000 * 24 * HOUR_MS])
def test_a_record_from_the_future_ends_and_begins_nothing(late_ms):
    """Its clock was wrong: the storm goes on, and nobody has been without an owner for years."""
    told = without_telemetry(flapping().commit(late_ms, "t", 9), late_ms)
    assert told.closed("rebalance-storm") == []


# ------------------------------------------------------------------------------------------------ live: the wall clock


class Live:
    """A shard fed batch by batch, beside this machine's clock."""

    def __init__(self, **settings):
        self.settings = ShardSettings(cluster="c", partitions=1, live_from_ms=T0, **settings)
        self.state, self.open, self.transitions = None, {}, []

    def batch(self, story, from_ms, until_ms, wall_ms, ahead_ms=0):
        """Apply what was written in a time; its dates are ``ahead_ms`` ahead."""
        rows = [row for row in unlogged(story, until_ms) if row.timestamp_ms > T0 + from_ms]
        dated = [row._replace(timestamp_ms=row.timestamp_ms + ahead_ms) for row in rows]
        events = [event for row in dated for event in parse_row(row)]
        shard = Shard.restore(0, self.settings, self.state)
        said = shard.apply(events, wall_ms=T0 + wall_ms)
        self.state = shard.dump()
        told, changed = fold(self.open, reports_in(read_outputs(said)), lambda _: 60_000)
        self.open |= changed
        self.transitions += [
            (t.kind.value, t.incident.rule, t.incident.severity, t.at_ms - T0)
            for t in told
            if t.kind is not Kind.UPDATED
        ]
        return self

    def of(self, rule):
        return [(kind, severity, at_ms) for kind, of, severity, at_ms in self.transitions if of == rule]


def test_the_wall_clock_ends_what_no_record_does():
    live = Live().batch(flapping(), -1, 120_000, 121_000)
    assert [step[:2] for step in live.of("rebalance-storm")] == [("opened", "page")]
    live.batch(flapping(), 120_000, 120_000, 300_000)
    assert len(live.of("rebalance-storm")) == 1
    live.batch(flapping(), 120_000, 120_000, 700_000)
    assert live.of("rebalance-storm")[1:] == [("closed", "page", 680_000)]
    assert [step[0] for step in live.of("member-removed")].count("closed") == 6


def test_the_wall_clock_begins_nothing_and_makes_nothing_worse():
    live = Live(topic_partitions={"t": 3}).batch(unowned(5_000), -1, 5_000, 5_500)
    live.batch(unowned(5_000), 5_000, 5_000, HOUR_MS)
    assert live.transitions == []
    live = Live(topic_partitions={"t": 3}).batch(unowned(15_000), -1, 15_000, 15_500)
    live.batch(unowned(15_000), 15_000, 15_000, HOUR_MS)
    assert live.transitions == [("opened", "partition-unowned", "warn", 10_000)]


def test_a_removal_that_is_not_judged_yet_lets_other_findings_end(monkeypatch):
    """m2 is removed just before the shard is known by its records only, and no record comes any more."""
    looks = []
    monkeypatch.setattr(group_judgement, "evaluate", lambda *seen: looks.append(seen) or evaluate(*seen))
    story = stable("m1", "m2", Who("m3", partitions=())).beats("m1", 1_000, 9_000).beats("m2", 1_000, 9_000)
    rebalance(story.beats("m3", 1_000, 2_000), 8_500, 2, "m1", "m2").silent(10_000, HOUR_MS)
    story.record(25_800, 3, "m1").commit(26_050, "t", 0)
    shard, open_, ended = Shard.restore(0, SETTINGS, None), {}, []
    events = [event for row in story.source_rows(26_050) for event in parse_row(row)]
    for wall_ms in (*range(1_000, 40_000, 1_000), HOUR_MS):
        now = [event for event in events if wall_ms - 1_000 <= event.order_ms - T0 < wall_ms]
        leads = (1, "broker-1", ()) if wall_ms < 12_000 else (2, "", ("broker-1",))  # the second one's key is unknown
        named = LeaderNamed(T0 + wall_ms, TELEMETRY_RANK, "", 0, T0 + wall_ms, "", *leads)
        said = shard.apply([*now, named], wall_ms=T0 + wall_ms)
        told, changed = fold(open_, reports_in(read_outputs(said)), lambda _: 60_000)
        open_ |= changed
        ended += [(t.incident.subject, t.incident.reason, t.at_ms - T0) for t in told if t.kind is Kind.CLOSED]
    assert shard.clock.by_records
    assert ("m3", "recovered", 85_800) in ended
    assert len(looks) < 100


def test_a_quiet_shard_is_not_behind():
    """How far it has been read only lines tell; the age of its newest record is no delay of this monitor."""
    shard = Shard.restore(0, SETTINGS, None)
    rows = unlogged(Story().record(0, 1, "m1"), 0)
    said = shard.apply([event for row in rows for event in parse_row(row)], wall_ms=T0 + HOUR_MS)
    assert [output["at_ms"] for output in said if output["kind"] == "progress"] == [0]


def test_catching_up_ends_nothing_early():
    """The records of an hour ago are read in pieces: the wall clock is ahead of all that is not read yet."""
    live = Live().batch(flapping(), -1, 120_000, HOUR_MS)
    assert [step[0] for step in live.of("rebalance-storm")] == ["opened"]


def test_a_record_from_the_future_moves_no_time_beside_this_machines_clock():
    story = unowned(5_000).commit(HOUR_MS, "t", 7)
    live = Live(topic_partitions={"t": 3}).batch(story, -1, HOUR_MS, 5_500)
    assert live.of("partition-unowned") in ([], [("opened", "warn", 10_000)])
    live.batch(story, HOUR_MS, HOUR_MS, 6_500)
    assert ("escalated", "page", 60_000) not in live.of("partition-unowned")


@pytest.mark.parametrize("ahead_ms", [60_000, 24 * HOUR_MS])
def test_who_is_listed_after_a_record_from_the_future_has_returned(ahead_ms):
    story = Story().record(1_000, 1, "m1", "m2").record(10_000, 2, "m1").record(30_000, 3, "m1", "m2")
    live = Live().batch(story, -1, 1_000, 1_500)
    live.batch(story, 1_000, 10_000, 10_500, ahead_ms=ahead_ms).batch(story, 10_000, 30_000, 30_500)
    assert live.of("member-removed") == [("opened", "info", 10_500), ("closed", "info", 30_000)]


@pytest.mark.parametrize("story", [flapping, deploying], ids=["a storm", "a deploy"])
def test_any_cut_into_batches_tells_the_same(story):
    whole = Live().batch(story(), -1, 150_000, 151_000).transitions
    cut = random.Random(7)
    live, read_ms = Live(), -1
    while read_ms < 150_000:
        until_ms = min(150_000, read_ms + cut.randrange(1, 40_000))
        live.batch(story(), read_ms, until_ms, until_ms + 1_000)
        read_ms = until_ms
    assert sorted(live.transitions) == sorted(whole)


def test_the_first_line_of_a_broker_takes_over_and_accuses_nobody():
    """Telemetry is switched on, and its lines come 30 s late: what records told of the time since is no silence."""
    story = stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_500, 20_000)
    rows = story.commit(50_000, "t", 0).source_rows(50_000)
    shard = Shard.restore(0, SETTINGS, None)
    first = [event for row in rows if row.source == OFFSETS for event in parse_row(row)]
    late = [e for row in rows if row.source != OFFSETS and row.timestamp_ms <= T0 + 20_000 for e in parse_row(row)]
    said = shard.apply(first, wall_ms=T0 + 50_100) + shard.apply(late, wall_ms=T0 + 51_000)
    told, _ = fold({}, reports_in(read_outputs(said)), lambda _: 60_000)
    assert told == []
    assert shard.clock.progress_ms == T0 + 20_000


# ------------------------------------------------------------------------------------------------ what clients report


def test_a_client_that_tells_of_its_overdue_poll_and_goes_has_broken_it():
    """kafka-python leaves by itself, and reports its age with the id that it had."""
    story = Story().record(0, 1, "m1", "m2").reports(50_000, "m2", 49_000).record(61_500, 2, "m1")
    told = without_telemetry(story.reports(62_000, "m2", 61_000).reports(63_000, "m2", 62_000), 64_000)
    assert told.facts("poll-exceeded", "subject", "cause", "evidence", "deadline_ms") == [
        ("m2", "poll-interval", "observed", 61_000)
    ]
    assert told.closed("member-removed") == [("superseded", 62_000)]
    assert told.closed("poll-at-risk")[0][0] == "superseded"


def test_a_client_that_tells_before_its_removal_is_known_is_told_once():
    """While the others rejoin no record tells that it is gone."""
    story = Story().record(0, 1, "m1", "m2").reports(61_000, "m2", 60_500).record(70_000, 2, "m1")
    told = without_telemetry(story.reports(71_000, "m2", 70_500), 72_000)
    assert told.facts("poll-exceeded", "subject", "deadline_ms") == [("m2", 60_500)]
    assert told.of("member-removed") == []
    assert told.of("poll-exceeded", "closed") == []


def test_a_client_whose_poll_was_not_overdue_when_it_went_has_not_broken_it():
    """It was frozen: its session ended long before, and only then its poll interval."""
    story = Story().record(0, 1, "m1", "m2").reports(1_000, "m2", 500).record(10_000, 2, "m1")
    told = without_telemetry(story.reports(70_000, "m2", 69_500), 71_000)
    assert told.of("poll-exceeded") == []
    assert told.opened("member-removed") == ["m2"]


def test_a_risk_that_no_report_renews_ends():
    told = without_telemetry(Story().record(0, 1, "m1").reports(50_000, "m1", 49_000).commit(90_000, "t", 0), 90_000)
    assert told.closed("poll-at-risk") == [("recovered", 71_000)]


# ------------------------------------------------------------------------------------------------ sources


def test_each_member_names_the_sources_that_show_it_and_the_group_counts_them():
    """m3 has joined the next generation, which is not written; m1's client reports."""
    story = stable("m1", "m2").beats("m1", 1_000, 3_000).beats("m2", 1_000, 3_000).reports(2_500, "m1", 100)
    told = story.join(3_500, "m3", 2, listed=("m3", "m1", "m2")).play(4_000)
    assert {name: member["sources"] for name, member in told.members.items()} == {
        "m1": ["records", "request-log", "client-report"],
        "m2": ["records", "request-log"],
        "m3": ["request-log"],
    }
    assert told.group["sources"] == {"records": 2, "request-log": 3, "client-report": 1, "client-push": 0}


def test_a_member_whose_client_pushes_names_that_source_until_it_is_silent():
    story = stable("m1", "m2").beats("m1", 1_000, 610_000).beats("m2", 1_000, 610_000)
    story.pushes(2_000, "m1", 1).pushes(3_000, "m2", None, idle=(0.9, 5_000))
    assert story.play(10_000).group["sources"] == {"records": 2, "request-log": 2, "client-report": 0, "client-push": 2}
    assert story.play(602_500).group["sources"]["client-push"] == 1


def test_where_only_records_are_read_they_and_reports_show_a_member():
    told = without_telemetry(Story().record(0, 1, "m1", "m2").reports(500, "m1", 100).commit(900, "t", 0), 900)
    assert told.group["sources"] == {"records": 2, "request-log": 0, "client-report": 1, "client-push": 0}
    told = without_telemetry(Story().record(0, 1, "m1").reports(500, "m1", 100).commit(90_000, "t", 0), 90_000)
    assert told.members["m1"]["sources"] == ["records"]  # its reporter is silent

"""The coordinator's own log as the only source: it names causes, and only of what the records show."""

import random
import struct

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.parse import TELEMETRY, parse_row
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.story import T0, Story, Told, Who, rebalance, stable

SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=0)
M1, M2, M3 = (f"app-{n}-86ec5d8f-035e-4908-be22-8c2dc6c7196{n}" for n in (1, 2, 3))
HEAD = "[GroupCoordinator id=1 topic=__consumer_offsets partition=0] "
FAILED = "Member {} in group orders has failed, removing it from the group."
FENCED = "[GroupId orders] Member {} fenced from the group because the member session expired."
NOT_JOINED = "Group orders removed dynamic members who haven't joined: [{}]"
LEFT = "[Group orders] Member {} has left group through explicit `LeaveGroup` request; client reason: {}"
STABILIZED = "Stabilized group orders generation 1 with 2 members."


class LogStory(Story):
    """A story that only the coordinator's own log tells, beside the records."""

    def log(self, at_ms, text):
        return self.tell(at_ms, HEAD + text)

    def record(self, at_ms, generation, *members):
        """As Kafka does: with the instant at which the generation began, here that of its record."""
        super().record(at_ms, generation, *members)
        at, rank, row = self.rows.pop()
        value = row.value.replace(struct.pack(">q", T0), struct.pack(">q", T0 + at_ms))
        self.rows.append((at, rank, row._replace(value=value)))
        return self


def of_two(*members):
    """A classic group of two, stable since the log began."""
    return LogStory(brokers={}).log(0, STABILIZED).record(10, 1, *(members or (M1, M2)))


def of_consumers():
    story = LogStory(brokers={}).log(0, "[GroupId orders] Bumped group epoch to 2 with metadata hash 1.")
    story.log(1, "[GroupId orders] Member m1 joins the consumer group using the consumer protocol.").epoch(10, 2)
    for member in ("m1", "m2"):
        story.member(10, member).current(10, member, 2)
    return story.target(10, 2)


def accused(told):
    return told.facts("session-expired", "member_id", "deadline_ms", "evidence", "cause")


def test_a_classic_member_s_expiry_is_told_at_the_instant_of_its_line():
    told = of_two().log(7_000, FAILED.format(M1)).record(9_000, 2, M2).play(10_000)
    assert accused(told) == [(M1, 7_000, "observed", "session-timeout")]
    assert told.accusations == [("session-expired", M1)]


def test_the_finding_names_its_source():
    told = of_two().log(7_000, FAILED.format(M1)).record(9_000, 2, M2).play(10_000)
    [detail] = [t["detail"] for t in told.of("session-expired")]
    assert detail["source"] == "coordinator-log"


def test_a_consumer_s_expiry_is_told_whichever_comes_first_the_line_or_its_record():
    for line_ms in (6_999, 7_003):
        told = of_consumers().gone(7_000, "m1").epoch(7_000, 3).log(line_ms, FENCED.format("m1")).play(10_000)
        assert accused(told) == [("m1", line_ms, "observed", "session-timeout")]


def test_members_that_did_not_join_in_time_are_told_all_of_them():
    story = of_two(M1, M2, M3).log(7_000, NOT_JOINED.format(f"{M1}, {M2}")).record(7_010, 2, M3)
    told = story.play(10_000)
    assert sorted(told.facts("rebalance-timeout", "member_id", "cause")) == [
        (M1, "rebalance-timeout"),
        (M2, "rebalance-timeout"),
    ]


JOINS = "Pending dynamic member with id {} joins group orders in PreparingRebalance state. Adding to the group now."


def test_who_joined_and_expired_before_any_record_had_it_is_told_by_the_next():
    story = of_two().log(5_000, JOINS.format(M3)).log(12_000, FAILED.format(M3))
    assert story.play(13_000).accusations == []
    assert accused(story.record(13_000, 2, M1, M2).play(14_000)) == [(M3, 12_000, "observed", "session-timeout")]


def test_who_joined_a_coordinator_that_another_followed_may_live_on_there():
    story = of_two().log(5_000, JOINS.format(M3)).tell(8_000, LOADED, "broker-2").log(12_000, FAILED.format(M3))
    assert story.record(13_000, 2, M1, M2).play(14_000).accusations == []


def test_who_joined_and_is_in_the_next_record_is_a_member_like_others():
    story = of_two().log(5_000, JOINS.format(M3)).record(6_000, 2, M1, M2, M3).log(20_000, FAILED.format(M3))
    assert accused(story.record(21_000, 3, M1, M2).play(22_000)) == [(M3, 20_000, "observed", "session-timeout")]


def test_a_static_members_expiry_is_reported_despite_its_successor():
    """The next record has the same instance under another member id."""
    before, after = Who(M1, instance_id="i-1"), Who(M3, instance_id="i-1")
    told = of_two(before, M2).log(7_000, FAILED.format(M1)).record(9_000, 2, after, M2).play(10_000)
    assert told.facts("session-expired", "member_id", "instance_id", "deadline_ms") == [(M1, "i-1", 7_000)]


def test_a_static_member_that_was_only_replaced_is_not_accused():
    before, after = Who(M1, instance_id="i-1"), Who(M3, instance_id="i-1")
    assert of_two(before, M2).record(9_000, 1, after, M2).log(9_001, STABILIZED).play(10_000).accusations == []


LOADED = (
    "[GroupCoordinator id=1] Finished loading of metadata from __consumer_offsets-0 with epoch 1 in 5ms where 1ms was"
    " spent in the scheduler. Loaded 9 records which total to 900 bytes."
)


REPLACING = (
    "Static member with groupInstanceId=app-1 and unknown member id joins group orders in CompletingRebalance state."
    " Replacing previously mapped member {} with this groupInstanceId."
)


@pytest.mark.parametrize(
    "more", [(), (M3.replace("app-3", "app-1"),)], ids=["it came again once", "and once more, of which no line tells"]
)
def test_a_static_member_s_next_self_is_told_though_no_record_ever_had_it(more):
    """In the middle of a rebalance it is recorded only as that ends, and no line names its new id."""
    before, after = Who(M1, instance_id="app-1"), M2.replace("app-2", "app-1")
    story = of_two(before, M2).log(5_000, REPLACING.format(M1))
    for at_ms, member_id in enumerate(more, 6_000):
        story.log(at_ms, REPLACING.format(member_id))
    told = story.log(12_000, FAILED.format(after)).record(13_000, 2, M2).play(14_000)
    assert told.facts("session-expired", "member_id", "instance_id", "deadline_ms") == [(after, "app-1", 12_000)]
    assert told.opened("member-removed") == []


def test_a_removal_under_the_former_id_after_that_is_of_another_coordinator():
    """It never knew the next self, which was not recorded."""
    before = Who(M1, instance_id="app-1")
    story = of_two(before, M2).log(5_000, REPLACING.format(M1)).tell(8_000, LOADED, "broker-2")
    told = story.tell(12_000, HEAD + FAILED.format(M1), "broker-2").record(13_000, 2, M2).play(14_000)
    assert told.facts("session-expired", "member_id", "instance_id", "deadline_ms") == [(M1, "app-1", 12_000)]


def test_of_a_deposed_coordinator_s_line_and_the_next_one_s_the_latter_tells():
    """The first woke from a pause, let sessions end and could not write that; the second removed the member later."""
    story = of_consumers().log(7_000, FENCED.format("m1")).tell(7_200, LOADED, "broker-2")
    story.gone(14_000, "m1").epoch(14_000, 3).tell(14_000, HEAD + FENCED.format("m1"), "broker-2")
    assert accused(story.play(20_000))[0][:2] == ("m1", 14_000)


def test_a_line_that_a_deposed_coordinator_writes_later_tells_nothing():
    story = of_consumers().tell(6_000, LOADED, "broker-2").log(7_000, FENCED.format("m1"))
    assert story.gone(14_000, "m1").epoch(14_000, 3).play(20_000).accusations == []


def test_who_expired_of_a_deposed_coordinator_only_and_came_again_is_not_accused():
    before, after = Who(M1, instance_id="app-1"), Who(M3, instance_id="app-1")
    story = of_two(before, M2).log(7_000, FAILED.format(M1)).tell(7_200, LOADED, "broker-2")
    story.tell(8_000, HEAD + REPLACING.format(M1), "broker-2").record(9_000, 1, after, M2)
    assert story.log(9_001, STABILIZED).play(10_000).accusations == []


def test_who_expires_within_a_session_of_a_load_is_laid_to_the_coordinator():
    """As of a broker that failed: its members found no coordinator in time, which makes one page and not one each."""
    story = of_two(M1, M2, M3).tell(5_000, LOADED).log(11_000, FAILED.format(M1)).log(11_000, FAILED.format(M2))
    told = story.record(12_000, 2, M3).play(13_000)
    assert sorted(told.facts("session-expired", "member_id", "cause", "severity")) == [
        (M1, "coordinator-moved", "warn"),
        (M2, "coordinator-moved", "warn"),
    ]
    assert told.facts("coordinator-paused", "severity") == [("page",)]


def test_a_load_long_before_an_expiry_has_no_part_in_it():
    told = of_two().tell(5_000, LOADED).log(50_000, FAILED.format(M1)).record(52_000, 2, M2).play(53_000)
    assert told.facts("session-expired", "cause") == [("session-timeout",)]


def test_who_left_is_accused_of_nothing():
    told = of_two().log(7_000, LEFT.format(M1, "not provided")).record(7_010, 2, M2).play(10_000)
    assert told.accusations == []


def test_who_left_because_it_did_not_poll_is_told():
    reason = "consumer poll timeout has expired."
    told = of_two().log(7_000, LEFT.format(M1, reason)).record(7_010, 2, M2).play(10_000)
    assert told.facts("poll-exceeded", "member_id", "deadline_ms", "cause") == [(M1, 7_000, "poll-interval")]


def test_a_line_without_its_record_removes_nobody():
    """A coordinator that was deposed and does not know it logs expiries whose records are never written."""
    told = of_two().log(7_000, FAILED.format(M1)).play(60_000)
    assert told.accusations == []
    assert M1 in told.members


def test_a_record_that_still_lists_the_member_refutes_the_line():
    story = of_two().log(7_000, FAILED.format(M1)).record(8_000, 2, M1, M2)
    assert story.record(20_000, 3, M2).play(30_000).accusations == []


def test_a_removal_that_no_line_explains_accuses_nobody():
    assert of_two().record(9_000, 2, M2).log(30_000, STABILIZED).play(60_000).accusations == []
    story = of_consumers().gone(7_000, "m1").epoch(7_000, 3).log(30_000, STABILIZED)
    assert story.play(60_000).accusations == []


def test_a_line_that_names_a_stranger_too_counts_for_nobody():
    """A client id may hold another's member id and a comma: the text then reads as if it named both."""
    story = of_two(M1, M2, M3).log(7_000, NOT_JOINED.format(f"{M1}, stranger-{M2}")).record(7_010, 2, M3)
    assert story.play(10_000).accusations == []


def test_a_line_of_another_group_s_partition_is_left_out():
    line = HEAD.replace("partition=0", "partition=7") + FAILED.format(M1)
    told = of_two().tell(7_000, line).record(9_000, 2, M2).play(10_000)
    assert told.accusations == []


def test_a_line_about_a_group_that_is_not_known_makes_none():
    told = LogStory(brokers={}).log(0, FAILED.format(M1)).play(1_000)
    assert told.history.groups == []


def test_an_incident_ends_when_the_member_is_back():
    story = of_consumers().gone(7_000, "m1").epoch(7_000, 3).log(6_999, FENCED.format("m1")).target(7_100, 3)
    story.current(7_100, "m2", 3).member(9_000, "m1").epoch(9_000, 4).target(9_100, 4)
    told = story.current(9_100, "m1", 4).current(9_100, "m2", 4).log(12_000, STABILIZED).play(12_000)
    assert told.closed("session-expired") == [("rejoined", 9_000)]


def test_time_goes_on_by_records_and_lines_alone():
    """The group does well without it for a minute: the incident closes with the first row after that."""
    story = of_two().log(7_000, FAILED.format(M1)).record(9_000, 2, M2)
    assert story.play(68_000).closed("session-expired") == []
    assert story.commit(70_000, "t", 0).play(71_000).closed("session-expired") == [("recovered", 69_000)]


def test_the_request_log_decides_where_there_is_one():
    """Its replica judges as ever, and a line of the coordinator's own log neither adds nor takes."""
    story = stable(M1, M2).beats(M1, 1_000, 3_000).beats(M2, 1_000, 40_000)
    before = story.play(40_000).transitions
    logged = story.tell(3_500, HEAD + FAILED.format(M2)).tell(3_600, HEAD + LEFT.format(M1, "x")).play(40_000)
    assert logged.transitions == before != []


# --------------------------------------------------------------------------------------------- beside the request log


def unheard(*, lost_ms=(), log=None):
    """m1's heartbeats end at 3 s, and the record of the next generation lacks it."""
    story = stable(M1, M2).beats(M1, 1_000, 3_000).beats(M2, 1_000, 9_000)
    for at_ms in lost_ms:
        story.lose(at_ms)
    rebalance(story, 9_900, 2, M2).beats(M2, 10_500, 30_000, 2)
    for at_ms, text in log or ():
        story.tell(at_ms, HEAD + text)
    return story.play(30_000)


def test_a_line_tells_the_cause_that_the_request_log_cannot_tell():
    """Lines are missing, so its leave may be among them; the coordinator's own log has it that its session expired."""
    lost = range(3_200, 10_000, 500)
    assert unheard(lost_ms=lost).opened("member-removed") == [M1]
    told = unheard(lost_ms=lost, log=[(9_000, FAILED.format(M1))])
    assert accused(told) == [(M1, 9_000, "observed", "session-timeout")]
    assert told.of("session-expired")[0]["detail"]["source"] == "coordinator-log"
    assert told.opened("member-removed") == []


def test_a_line_refutes_what_the_timer_said_of_one_that_had_left():
    """Its leave is missing."""
    assert unheard().closed("session-expired") == []
    told = unheard(log=[(9_100, LEFT.format(M1, "the consumer is being closed"))])
    assert [reason for reason, _ in told.closed("session-expired")] == ["refuted"]


def test_a_leave_line_that_comes_late_refutes_the_incident():
    shard = Shard.restore(0, SETTINGS, None)
    story = stable(M1, M2).beats(M1, 1_000, 3_000).beats(M2, 1_000, 9_000)
    rebalance(story, 9_900, 2, M2).beats(M2, 10_500, 30_000, 2)
    late = Story().tell(9_100, HEAD + LEFT.format(M1, "the consumer is being closed"))
    rows = [story.source_rows(30_000), late.source_rows(9_200)[-1:]]
    outputs = []
    for batch in rows:
        events = [event for row in batch for event in parse_row(row._replace(topic=f"{row.topic}-{len(outputs)}"))]
        outputs += shard.apply(events)
    reasons = [f["closed_reason"] for o in outputs if o["kind"] == "report" for f in o["findings"]]
    assert reasons[-1] == "refuted"


def test_members_stay_unknown_where_only_the_log_tells():
    told = of_two().log(60_000, STABILIZED).commit(120_000, "t", 0).play(120_000)
    assert {m["liveness"] for m in told.members.values()} == {"unknown"}


def test_the_coverage_tells_the_log_apart():
    coverage = of_two().log(7_000, FAILED.format(M1)).play(10_000).history.coverage
    assert coverage["brokers"] == {}
    assert coverage["coordinator_log"]["broker-1"] == {"lines": 2, "first_ms": T0, "last_ms": T0 + 7_000}


def test_order_and_duplicates_of_rows_do_not_matter():
    story = of_two(M1, M2, M3).log(7_000, FAILED.format(M1)).record(9_000, 2, M2, M3)
    rows = story.log(20_000, LEFT.format(M2, "x")).record(21_000, 3, M3).source_rows(30_000)
    shuffled = rows * 2
    random.Random(3).shuffle(shuffled)
    first, second = Told(replay_rows(rows, SETTINGS)), Told(replay_rows(shuffled, SETTINGS))
    assert first.transitions == second.transitions != []


@pytest.mark.parametrize("lines_first", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
def test_lines_and_records_may_come_in_batches_of_their_own(lines_first, restarted):
    """As in the live run, where one topic may be read before the other; the state is written in between."""
    story = of_consumers().gone(7_000, "m1").epoch(7_000, 3).log(6_999, FENCED.format("m1"))
    events = [(row.source, event) for row in story.source_rows(10_000) for event in parse_row(row)]
    early = [event for _, event in events if event.order_ms < T0 + 5_000]
    late = [[e for source, e in events if e not in early and (source == TELEMETRY) == lines] for lines in (True, False)]
    shard, rules = Shard.restore(0, SETTINGS, None), []
    for batch in (early, *(late if lines_first else late[::-1]), []):
        said = shard.apply(batch, final=not batch)
        rules += [f["rule"] for output in said if output["kind"] == "report" for f in output["findings"]]
        shard = Shard.restore(0, SETTINGS, shard.dump()) if restarted else shard
    assert set(rules) == {"session-expired"}


def test_a_line_that_is_read_before_the_join_of_its_member_waits_for_it():
    """A job that catches up may read the lines of a minute before the records of the minute before."""
    story = of_consumers().member(6_000, "m3").current(6_000, "m3", 3).gone(7_000, "m3").log(6_999, FENCED.format("m3"))
    events = [(row.source, event) for row in story.source_rows(10_000) for event in parse_row(row)]
    early = [event for _, event in events if event.order_ms < T0 + 5_000]
    late = [[e for source, e in events if e not in early and (source == TELEMETRY) == lines] for lines in (True, False)]
    shard = Shard.restore(0, SETTINGS, None)
    outputs = [output for batch in (early, *late, []) for output in shard.apply(batch, final=not batch)]
    said = [output for output in outputs if output["kind"] == "report"]
    assert {f["member_id"] for output in said for f in output["findings"]} == {"m3"}


def test_a_static_member_s_expiry_is_its_instance_s():
    static = Who(M1, instance_id="i-1")
    told = of_two(static, M2).log(7_000, FAILED.format(M1)).record(9_000, 2, M2).play(10_000)
    assert told.facts("session-expired", "instance_id") == [("i-1",)]


def test_the_coordinators_log_gives_causes_once_request_lines_stop():
    """The request log is switched off while the coordinator's log goes on."""
    story = LogStory(rows=stable(M1, M2).beats(M1, 1_000, 20_000).beats(M2, 1_000, 20_000).rows).silent(20_500, 200_000)
    story.log(40_000, FAILED.format(M2)).log(100_000, FAILED.format(M1)).record(101_000, 2, M2)
    assert accused(story.play(150_000)) == [(M1, 100_000, "observed", "session-timeout")]


def test_a_gap_before_a_coordinator_line_still_makes_a_blind_window():
    """Such a line moves no clock: the next line of the request log reports that lines were lost."""
    story = stable(M1, M2).beats(M1, 1_000, 30_000).beats(M2, 1_000, 30_000).lose(10_200)
    windows = [(story.play(30_000).history.blind), story.tell(10_250, HEAD + STABILIZED).play(30_000).history.blind]
    assert windows[0] == windows[1] != []

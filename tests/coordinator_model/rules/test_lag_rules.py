"""The rules about topics, columns and totals, and how reports of lag and of shards go side by side."""

import json
from dataclasses import replace
from itertools import accumulate

import pytest

from coordinator_model.group_report import GroupReport, JudgedBy, instant_ms, of_kind
from coordinator_model.incidents import Incident, diff
from coordinator_model.lag.columns import MAX_HISTORY, MAX_ROWS
from coordinator_model.lag.partition import WINDOW, Commit, GroupFacts, Owner, PartitionLag
from coordinator_model.rules.about_lag import two_digits
from coordinator_model.rules.group_lag import judge_group
from coordinator_model.rules.registry import LAG_RULES
from coordinator_model.states import GroupState
from coordinator_model.thresholds import Thresholds
from tests.support.lags import T0, Life, Partition, keeps_up, listed, played, slow

MINUTE_MS = 60_000
FACTS = GroupFacts("c", "g", "classic", "Stable", 3, 1, "broker-1", 1, 1)
OWNER = Owner("m1", None, "client", "host", "alive", 3, 1)


def one(consumer, **how):
    return Life({0: Partition(consumer, **how)}).view(100)


def openings(told, rule):
    return [opening for opening in told.openings if opening[0] == rule]


# ------------------------------------------------------------------ lag-growing


def test_a_group_that_falls_behind_for_minutes_is_told_once_a_topic():
    life = Life({0: Partition(slow()), 1: Partition(slow()), 2: Partition(keeps_up())}).view(100)
    told = life.play(10 * MINUTE_MS)
    assert told.openings == [("lag-growing", "t")]
    assert 300_000 <= told.opened_at["lag-growing", "t"] <= 320_000
    incident = told.transitions[0].incident
    assert (incident.partitions, incident.opened_ms - T0) == ([["t", 0], ["t", 1]], 10_000)
    assert "falls behind on t" in incident.summary


def test_it_has_recovered_once_the_lag_falls():
    def catches_up(end_ms, log):
        late = [(at_ms, int(log(at_ms) * 0.5)) for at_ms in range(1_000, min(end_ms, 400_000), 5_000)]
        return late + [(at_ms, log(at_ms)) for at_ms in range(400_000, end_ms, 5_000)]

    told = one(catches_up).play(10 * MINUTE_MS)
    assert told.closings == [("lag-growing", "t", "recovered", 400_000)]


def test_it_does_not_end_where_a_few_commits_are_faster():
    """What has ended does not begin again under its id, so it must not flicker."""

    def uneven(end_ms, log):
        shares = [(at_ms, 0.52 if at_ms // 50_000 % 2 else 0.5) for at_ms in range(1_000, end_ms, 5_000)]
        return zip(
            [at_ms for at_ms, _ in shares], accumulate((int(log(t) * share) for t, share in shares), max), strict=True
        )

    told = one(uneven).play(15 * MINUTE_MS)
    assert (openings(told, "lag-growing"), told.closings) == ([("lag-growing", "t")], [])


@pytest.mark.parametrize(
    "consumer",
    [keeps_up(), keeps_up(60_000), lambda end, log: [(t, log(t // 240_000 * 240_000)) for t in range(0, end, 5_000)]],
    ids=["keeps up", "a batch each minute", "a batch each four minutes"],
)
def test_a_lag_that_comes_and_goes_is_not_growing(consumer):
    assert openings(one(consumer).play(20 * MINUTE_MS), "lag-growing") == []


def test_a_topic_that_was_caught_up_with_has_recovered_though_another_grows():
    def catches_up(end_ms, log):
        return [(at_ms, int(log(at_ms) * (0.5 if at_ms < 400_000 else 1))) for at_ms in range(1_000, end_ms, 5_000)]

    told = Life({0: Partition(slow(), topic="a"), 1: Partition(catches_up, topic="b")}).view(100).play(10 * MINUTE_MS)
    assert (told.openings, told.closings) == (
        [("lag-growing", "a"), ("lag-growing", "b")],
        [("lag-growing", "b", "recovered", 410_000)],
    )


def test_a_topic_that_nobody_reads_any_more_makes_no_group_slow():
    """The group's lag grows for ever by it; a moment in which another falls behind is none."""

    def hesitates(end_ms, log):
        return [
            (at_ms, log(at_ms - (at_ms - 600_000 if 600_000 < at_ms < 680_000 else 0) // 2))
            for at_ms in range(1_000, end_ms, 2_000)
        ]

    left = Partition(keeps_up(until_ms=50_000), topic="left", member=None, rate=100)
    told = Life({0: left, 1: Partition(hesitates, rate=1_000)}).view(100).play(13 * MINUTE_MS)
    assert "slow" in told.every_note(1)
    assert openings(told, "lag-growing") == []


def test_a_lag_that_is_lower_than_it_was_is_not_growing():
    commits = tuple(Commit(100 * n, 200_000 + 10_000 * n, 110 * n + 50) for n in range(WINDOW))
    slower = at(0)._replace(commits=commits, end_offset=1_200, asked_ms=350_000, waits_since_ms=1)
    for history, rules in (([(1, 500)], []), ([(1, 100)], ["lag-growing"])):
        _, report = judged(slower, now_ms=350_000, history=history)
        assert [finding["rule"] for finding in report.findings] == rules


def test_without_a_history_nobody_says_that_it_has_ended():
    life = one(slow())
    first = life.play(400_000)
    assert first.openings == [("lag-growing", "t")]
    rows = life.rows(800_000)
    second = played(life, life.events(800_000), rows[41:60], opened=first.opened)
    assert (second.openings, second.closings) == ([], [])


def test_an_empty_group_is_not_growing_and_one_that_was_is_superseded():
    told = one(lambda end, log: slow()(min(end, 400_000), log)).view(400_000, state="Empty").play(10 * MINUTE_MS)
    assert told.closings == [("lag-growing", "t", "superseded", 400_000)]


# ------------------------------------------------------------------ offset-rewound


def rewinds(to, until_ms=10**9):
    """Keep up; at 100 s go back, and read on at twice the rate."""

    def commits(end_ms, log):
        before = [(at_ms, log(at_ms)) for at_ms in range(0, min(end_ms, 100_000), 5_000)]
        after = range(100_000, min(end_ms, until_ms), 5_000)
        return before + [(at_ms, min(log(at_ms), to + (at_ms - 100_000) // 50)) for at_ms in after]

    return commits


def test_an_offset_that_went_back_is_told_until_it_is_there_again():
    told = one(rewinds(400)).play(5 * MINUTE_MS)
    assert openings(told, "offset-rewound") == [("offset-rewound", "t")]
    incident = told.transitions[0].incident
    assert (incident.opened_ms - T0, told.opened_at["offset-rewound", "t"]) == (100_000, 120_000)
    assert incident.detail["committed_offset"] == 400
    assert [closing[:3] for closing in told.closings] == [("offset-rewound", "t", "recovered")]


def test_a_few_messages_that_are_read_again_are_no_rewind():
    assert openings(one(rewinds(900)).play(5 * MINUTE_MS), "offset-rewound") == []


def test_a_rewind_of_many_partitions_is_one_finding_and_an_empty_group_has_it_too():
    life = Life({n: Partition(rewinds(0, until_ms=101_000)) for n in range(20)})
    life.view(100).view(98_000, state="Empty")
    told = life.play(4 * MINUTE_MS)
    assert told.openings == [("offset-rewound", "t")]
    assert len(told.transitions[0].incident.partitions) == 20


# ------------------------------------------------------------------ offsets-lost


def test_messages_that_were_deleted_before_they_were_committed_are_lost():
    told = one(keeps_up(until_ms=100_000), start=lambda at_ms: max(0, at_ms - 150_000) // 100).play(5 * MINUTE_MS)
    assert openings(told, "offsets-lost") == [("offsets-lost", "t")]
    assert told.opened_at["offsets-lost", "t"] == 250_000
    incident = next(t.incident for t in told.transitions if t.incident.rule == "offsets-lost")
    assert incident.opened_ms - T0 == 96_000
    assert told.columns()["lag"][0] == told.columns()["end_offset"][0] - told.columns()["committed_offset"][0]
    assert incident.detail["beyond_end"] == 0


def test_it_has_recovered_once_an_offset_is_committed_that_the_log_holds():
    def resumes(end_ms, log):
        return [c for c in keeps_up()(end_ms, log) if not 100_000 < c[0] < 300_000]

    told = one(resumes, start=lambda at_ms: max(0, at_ms - 150_000) // 100).play(6 * MINUTE_MS)
    assert [c for c in told.closings if c[0] == "offsets-lost"] == [("offsets-lost", "t", "recovered", 310_000)]


@pytest.mark.parametrize("from_ms", [0, 270_000])
def test_a_partition_that_is_chased_by_retention_hides_no_lost_offsets_of_another(from_ms):
    """It commits every 5 s, always below the log start, so it may be reading on: only the other one is told."""
    quiet = Partition(keeps_up(until_ms=100_000), start=lambda at_ms: max(0, at_ms - 150_000) // 100)
    chased = Partition(keeps_up(late_ms=5_000), start=lambda at_ms: at_ms // 100 - 10 if at_ms >= from_ms else 0)
    told = Life({0: quiet, 1: chased}).view(100).play(5 * MINUTE_MS)
    assert openings(told, "offsets-lost") == [("offsets-lost", "t")]
    assert [closing for closing in told.closings if closing[0] == "offsets-lost"] == []
    incident = next(t.incident for t in told.transitions if t.incident.rule == "offsets-lost")
    assert (incident.opened_ms - T0, incident.partitions) == (96_000, [["t", 0]])


def test_a_commit_that_the_log_does_not_hold_either_does_not_end_it():
    """It stops at 100,000. From 250,000 on it commits every 5 s, and until 280,000 what the log has deleted."""

    def commits(end_ms, log):
        before = [(at_ms, log(at_ms - 100)) for at_ms in range(1_000, 100_000, 5_000)]
        late_ms = ((at_ms, 60_000 if at_ms < 280_000 else 0) for at_ms in range(250_000, end_ms, 5_000))
        return before + [(at_ms, log(at_ms - late)) for at_ms, late in late_ms]

    told = one(commits, start=lambda at_ms: max(0, at_ms - 50_000) // 100).play(5 * MINUTE_MS)
    assert openings(told, "offsets-lost") == [("offsets-lost", "t")]
    assert [c for c in told.closings if c[0] == "offsets-lost"] == [("offsets-lost", "t", "recovered", 280_000)]


def test_it_begins_with_the_first_partition_that_was_lost():
    """A later one joins the same incident, which is the same after a restart in between."""
    first, second = (
        Partition(keeps_up(until_ms=end_ms), start=lambda at_ms, end_ms=end_ms: max(0, at_ms - end_ms - 50_000) // 100)
        for end_ms in (100_000, 200_000)
    )
    told = Life({0: first, 1: second}).view(100).play(10 * MINUTE_MS)
    assert openings(told, "offsets-lost") == [("offsets-lost", "t")]
    incident = [t.incident for t in told.transitions if t.incident.rule == "offsets-lost"][-1]
    assert (incident.opened_ms - T0, incident.partitions) == (96_000, [["t", 0], ["t", 1]])
    assert incident.detail["lost"] == 2


def test_a_commit_beyond_the_end_is_of_a_topic_that_was_cut_or_recreated():
    def recreated(at_ms):
        return at_ms // 100 if at_ms < 100_000 else (at_ms - 100_000) // 100

    told = one(keeps_up(until_ms=99_000), log=recreated).play(130_000)
    assert openings(told, "offsets-lost") == [("offsets-lost", "t")]
    assert "truncated or recreated" in told.transitions[0].incident.summary
    assert (told.columns()["lag"], told.columns()["status"]) == ([None], ["unknown"])


@pytest.mark.parametrize("resumes", [False, True])
def test_a_recreated_log_that_grows_past_the_commit_has_not_recovered(resumes):
    """It holds that offset again from 200,000 on."""

    def recreated(at_ms):
        return at_ms // 100 if at_ms < 100_000 else (at_ms - 100_000) // 100

    def commits(end_ms, log):
        return [c for c in keeps_up()(end_ms, log) if c[0] < 99_000 or (resumes and c[0] > 250_000)]

    told = one(commits, log=recreated).play(5 * MINUTE_MS)
    assert openings(told, "offsets-lost") == [("offsets-lost", "t")]
    closings = [c[2] for c in told.closings if c[0] == "offsets-lost"]
    assert closings == (["recovered"] if resumes else [])


def test_end_offsets_of_another_topic_of_the_name_tell_nothing():
    life = one(keeps_up(), topic_id="old-topic")
    life.topic_names = {"new-topic": "t"}
    assert (life.play(30_000).columns()["lag"], life.play(30_000).columns()["end_offset"]) == ([None], [None])
    life.topic_names = {"new-topic": "t", "old-topic": "t"}
    assert life.play(30_000).columns()["lag"] == [41]


# ------------------------------------------------------------------ totals and columns


def judged(*partitions, facts=FACTS, now_ms=100_000, history=()):
    told, report = judge_group(facts, partitions, now_ms, Thresholds(), history, commits=7)
    return told, report


def at(partition, offset=5, end=10, *, topic="t", asked_ms=100_000, owner=OWNER):
    return PartitionLag(
        topic, "id", partition, (Commit(offset, 90_000, offset),), 0, end, asked_ms, None, 95_000, owner
    )


def test_totals_are_of_the_lags_that_are_known():
    told, _ = judged(at(0), at(1, 10), at(2, end=None))
    assert (told["lag"], told["status"], told["complete"]) == (5, "ok", False)
    told, _ = judged(at(0, 10))
    assert (told["lag"], told["status"], told["complete"]) == (0, "ok", True)
    told, _ = judged(at(0, end=None), at(1, asked_ms=69_999))
    assert (told["lag"], told["status"], told["complete"]) == (None, "unknown", False)
    told, _ = judged()
    assert (told["lag"], told["status"], told["complete"]) == (None, "unknown", False)


@pytest.mark.parametrize("state", GroupState)
def test_lag_is_told_whatever_the_state_of_the_group(state):
    """Others lose the lag just when the group rebalances or its consumers are down."""
    owner = OWNER if state == GroupState.STABLE else None
    told, _ = judged(at(0, owner=owner), at(1, owner=owner), facts=FACTS._replace(state=state))
    assert (told["lag"], told["complete"], told["columns"]["lag"]) == (10, True, [5, 5])


def test_a_group_is_complete_if_the_lag_of_what_it_committed_is_known():
    """A status may still be unknown, and a partition never committed to."""
    short = at(0)._replace(commits=(Commit(5, 90_000, 5 + 1), Commit(6, 91_000, 8)), waits_since_ms=99_000)
    never = at(1)._replace(commits=())
    told, _ = judged(short, never)
    assert (told["columns"]["status"], told["complete"]) == (["unknown", "unknown"], True)
    told, _ = judged(short, at(1, end=None))
    assert not told["complete"]
    told, _ = judged(never, facts=FACTS._replace(type="share"))
    assert not told["complete"]


def test_columns_are_of_one_length_sorted_and_json():
    rows = [at(1), at(0), at(0, topic="a", owner=OWNER._replace(member_id="m0")), at(3, owner=None)]
    told, _ = judged(*rows)
    columns = json.loads(json.dumps(told))["columns"]
    assert columns["topics"] == [["a", "id", 1], ["t", "id", 3]]
    assert columns["partition"] == [0, 0, 1, 3]
    lists = {name: len(column) for name, column in columns.items() if isinstance(column, list)}
    for name in ("topics", "owners", "history"):
        del lists[name]
    assert set(lists.values()) == {4}
    assert set(lists) == {
        "partition", "committed_offset", "committed_ms", "start_offset", "end_offset", "lag", "lag_ms", "status",
        "rate", "owner", "owned_since_ms", "leader_epoch",
    }  # fmt: skip
    assert columns["owner"] == [0, 1, 1, None]
    assert columns["owners"] == [["m0", None, "client", "host", 3], ["m1", None, "client", "host", 3]]
    assert (columns["lag_ms"], columns["leader_epoch"], columns["asked_ms"]) == ([5_000] * 4, [None] * 4, 100_000)
    assert (columns["commits"], "left_out" in columns) == (7, False)


def test_the_order_of_partitions_does_not_matter():
    rows = [at(n, n, topic=f"t{n % 3}") for n in range(9)]
    assert judged(*rows) == judged(*reversed(rows))


def test_of_very_many_partitions_the_worst_are_kept_and_all_are_counted():
    rows = [at(n, 10) for n in range(MAX_ROWS)] + [at(MAX_ROWS + n, 5) for n in range(10)]
    told, _ = judged(*rows)
    columns = told["columns"]
    assert (len(columns["partition"]), columns["left_out"], told["lag"]) == (MAX_ROWS, 10, 50)
    assert columns["lag"].count(5) == 10
    rows = [at(n, 10) for n in range(MAX_ROWS)]
    stopped = Commit(0, 100_000, 1)
    rows += [at(MAX_ROWS, 0)._replace(commits=tuple(stopped._replace(offset=n) for n in range(WINDOW)))]
    columns = judged(*rows)[0]["columns"]
    assert columns["partition"][-1] == MAX_ROWS
    assert columns["partition"] == sorted(columns["partition"])


def test_history_goes_on_from_the_one_before_and_is_bounded():
    told, _ = judged(at(0), history=[(n, n) for n in range(99)])
    history = told["columns"]["history"]
    assert (len(history), history[0], history[-1]) == (MAX_HISTORY, [40, 40], [100_000, 5])
    again, _ = judged(at(0), history=[tuple(point) for point in history])
    assert again["columns"]["history"] == history
    told, _ = judged(at(0, end=None), history=[(1, 2)])
    assert told["columns"]["history"] == [[1, 2]]


def test_metadata_and_rate_are_told():
    commits = tuple(Commit(100 * n, 10_000 * n, None) for n in range(WINDOW))
    told, _ = judged(at(0)._replace(commits=commits, metadata="<b>", leader_epoch=4, end_offset=2_000))
    columns = told["columns"]
    assert (columns["rate"], columns["metadata"], columns["leader_epoch"]) == ([9.0], {"0": "<b>"}, [4])
    told, _ = judged(at(0)._replace(commits=(Commit(9, 1, None), Commit(3, 5_000, None))))
    assert told["columns"]["rate"] == [None]


@pytest.mark.parametrize(
    ("number", "told"), [(0, 0), (7, 7), (99, 99), (100, 100), (1_299, 1_200), (2**63, 92 * 10**17)]
)
def test_numbers_in_findings_have_two_digits(number, told):
    assert two_digits(number) == told


def test_a_negative_offset_is_none():
    told, _ = judged(at(0, -1))
    assert (told["lag"], told["columns"]["committed_offset"]) == (None, [None])


# ------------------------------------------------------------------ incidents


def incident(rule, subject="t", **changes):
    values = dict.fromkeys(("cluster", "group", "incarnation", "connection", "broker", "cause", "summary"), "")
    base = Incident(
        incident_id=rule, rule=rule, subject=subject, severity="warn", member_id=None, instance_id=None, client_id=None,
        client_host=None, generation=1, evidence="observed", deadline_ms=None, opened_ms=5, at_ms=5, **values,
    )  # fmt: skip
    return replace(base, **changes)


def lag_report(**changes):
    values = {"pending": [], "owners": []} | changes
    return GroupReport(cluster="c", group="g", at_ms=9, judged=JudgedBy.LAG, **values)


ABSENT = {
    "lag knows nothing": (lag_report(pending=None), None),
    "its owner has gone": (lag_report(owners=["m2"]), "superseded"),
    "its owner is there, and nothing waits": (lag_report(owners=["m1"]), "recovered"),
    "it may still be so": (lag_report(owners=["m1"], pending=[["partition-stalled", "t-0", 5]]), None),
    "it was committed since": (lag_report(owners=["m1"], pending=[["partition-stalled", "t-0", 6]]), "recovered"),
    "another may be so": (lag_report(owners=["m1"], pending=[["partition-stalled", "t-1", 5]]), "recovered"),
    "the group is simple": (lag_report(owners=None), "recovered"),
}


@pytest.mark.parametrize("case", ABSENT)
def test_a_stall_that_is_not_found_any_more_ends_only_if_something_says_so(case):
    report, reason = ABSENT[case]
    stalled = incident("partition-stalled", "t-0", member_id="m1")
    assert [t.incident.reason for t in diff([stalled], report)] == ([] if reason is None else [reason])


def test_reports_of_lag_and_of_shards_leave_each_others_incidents_alone():
    known = [incident("lag-growing"), incident("rebalance-stuck")]
    shards = GroupReport(cluster="c", group="g", at_ms=9)
    assert [t.incident.rule for t in diff(known, shards)] == ["rebalance-stuck"]
    assert [t.incident.rule for t in diff(known, lag_report(owners=None))] == ["lag-growing"]
    assert {(t.incident.rule, t.incident.reason) for t in diff(known, replace(shards, deleted=True))} == {
        ("lag-growing", "group-deleted"),
        ("rebalance-stuck", "group-deleted"),
    }


def test_the_rules_of_lag_are_the_four():
    assert {"partition-stalled", "lag-growing", "offset-rewound", "offsets-lost"} == LAG_RULES


def test_a_partition_whose_end_is_not_known_ends_nothing_of_its_topic():
    _, report = judged(at(0, end=None), at(1))
    assert ("offsets-lost", "t", 0) in report.pending
    assert ("partition-stalled", "t-0", 90_000) in report.pending
    _, report = judged(at(0, 10))
    assert report.pending == []


def test_names_of_strangers_are_kept_as_they_are():
    """They are escaped where they are shown."""
    topic = "<script>{}\\"
    life = Life({0: Partition(keeps_up(until_ms=100_000), topic=topic), 1: Partition(keeps_up(), topic=topic)}).view(
        100
    )
    told = life.play(3 * MINUTE_MS)
    assert told.openings == [("partition-stalled", f"{topic}-0")]


def test_a_tombstone_ends_a_partition():
    told = Life({0: Partition(listed((1_000, 5), (2_000, -1))), 1: Partition(keeps_up())}, type="simple").play(30_000)
    assert told.columns()["partition"] == [1]


def test_the_newest_record_counts_whatever_its_instant():
    """After a failover a coordinator's clock may be behind that of the former one."""
    life = Life({0: Partition(listed((1_000, 10), (2_000, 20), (3_000, 30)))}, type="simple")
    events = life.events(30_000)
    events[2] = events[2]._replace(order_ms=T0 + 1_500)
    assert played(life, events, life.rows(30_000)).columns()["committed_offset"] == [30]


def test_a_topic_that_is_cut_lets_messages_wait_since_then_at_the_most():
    def cut(at_ms):
        return at_ms // 100 if at_ms < 100_000 else (at_ms - 100_000) // 100

    life = one(listed((1_000, 5), (120_000, 5)), log=cut)
    assert life.play(130_000).columns()["lag_ms"] == [20_000]


def test_a_recreated_topic_begins_a_new_window():
    life = one(listed((1_000, 50), (5_000, 60), (12_000, 3)), topic_id="old")
    events = life.events(30_000)
    events[2] = events[2]._replace(topic_id="new")
    columns = played(life, events, life.rows(30_000)).columns()
    assert (columns["topics"], columns["status"], columns["rate"]) == ([["t", "new", 1]], ["unknown"], [None])


def test_tombstones_of_a_group_that_is_gone_make_none():
    life = Life({0: Partition(listed((1_000, 5), (9_000, -1)))}).view(100).delete(8_000)
    assert {output["at_ms"] - T0 for output in of_kind(life.play(30_000).outputs, "partitions")} == set()
    life = Life({0: Partition(listed((1_000, 5), (12_000, -1)))}, type="simple")
    assert {instant_ms(output) - T0 for output in life.play(30_000).outputs} == {10_000}

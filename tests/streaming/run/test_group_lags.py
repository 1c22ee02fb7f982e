"""Lags of groups from what batches say and rounds of end offsets, without a broker."""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator_model.brokers.blindness import (
    CLOCK_STEPPED,
    COARSE_INSTANTS,
    LINES_LOST,
    NO_LINES,
    NO_REQUEST_LOG,
)
from coordinator_model.commit_block import NO_OFFSET
from coordinator_model.decode.topic_ids import text_of
from coordinator_model.group_report import of_kind, reports_in
from coordinator_model.lag.columns import MAX_ROWS
from coordinator_model.thresholds import Thresholds
from streaming.run.lag import group_lags, kept
from streaming.run.lag.commit_table import CommitTable
from streaming.run.lag.kept import BrokenError
from tests.streaming.run.lag_story import T0, Lags, commits, member, report, round_of, rows_of

OWNED = report("pay", member("m1", partitions=(0, 1)), member("m2", partitions=(2,)))
COMMITTED = commits(("pay", "orders", 0, 40, 0), ("pay", "orders", 1, 7, 1), ("pay", "orders", 2, 3, 2))
ENDS = {"orders": [50, 7, 3]}


@pytest.fixture
def lags(tmp_path):
    return Lags(tmp_path)


def columns(lags, group="pay"):
    return next(output for output in of_kind(lags.said, "partitions") if output["group"] == group)["columns"]


def test_a_partitions_lag_is_its_end_less_what_was_committed(lags):
    lags.apply(commits(("pay", "orders", 0, 40), ("pay", "orders", 1, 7, 1)), OWNED)
    [partitions, judged] = lags.round(T0 + 10_000, ENDS)
    assert rows_of(partitions) == [("orders", 0, 40, 50, 10), ("orders", 1, 7, 7, 0), ("orders", 2, None, 3, None)]
    assert (partitions["lag"], partitions["complete"], judged.judged, judged.findings) == (10, True, "lag", [])
    assert columns(lags)["owner"] == [0, 0, 1]


def test_a_round_counts_only_when_a_batch_that_began_after_it_was_applied(lags):
    lags.apply(COMMITTED, OWNED)
    lags.lags.read_until(T0)
    lags.ask(T0 + 10_000, ENDS)
    assert lags.apply() == []
    lags.lags.read_until(T0 + 9_999)
    assert lags.apply() == []
    lags.lags.read_until(T0 + 10_000)
    assert lags.rows_after(lags.apply()) == [("orders", 0, 40, 50, 10), ("orders", 1, 7, 7, 0), ("orders", 2, 3, 3, 0)]
    assert lags.apply() == []  # once a round


def test_of_rounds_that_wait_the_newest_that_counts_is_judged(lags):
    lags.apply(COMMITTED, OWNED)
    for number in range(1, 4):
        lags.ask(T0 + number * 10_000, {"orders": [50 + number, 7, 3]})
    lags.lags.read_until(T0 + 25_000)
    assert lags.rows_after(lags.apply())[0] == ("orders", 0, 40, 52, 12)
    lags.lags.read_until(T0 + 30_000)
    assert lags.rows_after(lags.apply())[0] == ("orders", 0, 40, 53, 13)


def test_until_all_was_read_nothing_is_judged(lags):
    lags.apply(COMMITTED, OWNED, judge=False)
    lags.ask(T0 + 10_000, ENDS)
    lags.lags.read_until(T0 + 20_000)
    assert lags.apply(judge=False) == []
    assert lags.apply() != []


def test_a_round_from_before_the_first_batch_is_judged_with_it(lags):
    """The log's end is of now, the commits are older: how far behind they were then nobody knows."""
    lags.lags.add_first_round(round_of(T0 + 10_000, ENDS))
    lags.lags.read_first(T0 + 10_000)
    assert lags.rows_after(lags.apply(COMMITTED, OWNED)) == [
        ("orders", 0, 40, 50, 10),
        ("orders", 1, 7, 7, 0),
        ("orders", 2, 3, 3, 0),
    ]
    table = lags.lags._table
    assert (table.windows(table.slots_of("pay")).ends == NO_OFFSET).all()
    lags.ask(T0 + 20_000, ENDS)
    lags.lags.read_until(T0 + 20_000)
    assert lags.rows_after(lags.apply())[0] == ("orders", 0, 40, 50, 10)


@pytest.mark.parametrize("is_first", [True, False])
def test_the_first_batch_judges_all_groups_however_long_that_takes(lags, monkeypatch, is_first):
    monkeypatch.setattr(group_lags, "FIRST_S", 0.0)
    lags.lags.add_first_round(round_of(T0 + 10_000, ENDS))
    (lags.lags.read_first if is_first else lags.lags.read_until)(T0 + 10_000)
    assert bool(lags.apply(COMMITTED, OWNED)) is is_first


def test_commits_never_reach_the_store(lags):
    told = lags.lags.apply(1, [COMMITTED, OWNED], lambda _: None, judge=False)
    assert told == [OWNED]


def test_what_was_committed_after_the_round_waits_for_the_next(lags):
    lags.apply(commits(("pay", "orders", 0, 40, 0, T0)), report("pay"))
    lags.ask(T0 + 10_000, {"orders": [50]})
    lags.apply(commits(("pay", "orders", 0, 60, 1, T0 + 15_000)))
    lags.lags.read_until(T0 + 16_000)
    assert lags.rows_after(lags.apply()) == [("orders", 0, 40, 50, 10)]
    lags.round(T0 + 20_000, {"orders": [60]})
    assert lags.rows("pay") == [("orders", 0, 60, 60, 0)]


def test_where_all_commits_seem_to_be_later_a_clock_is_ahead_and_they_count(lags):
    lags.apply(commits(("pay", "orders", 0, 40, 0, T0 + 3_600_000)), report("pay"))
    lags.round(T0 + 10_000, {"orders": [50]})
    assert lags.rows("pay") == [("orders", 0, 40, 50, 10)]


def test_a_group_that_is_deleted_is_gone_with_its_commits(lags):
    lags.apply(COMMITTED, OWNED)
    lags.round(T0 + 10_000, ENDS)
    lags.apply(report("pay", at_ms=T0 + 15_000, deleted=True))
    assert lags.round(T0 + 20_000, ENDS) == []
    assert lags.lags.topics() == []


def test_tombstones_take_their_partitions_away(lags):
    lags.apply(COMMITTED, report("pay"))
    lags.round(T0 + 10_000, ENDS)
    lags.apply(commits(("pay", "orders", 0, None, 10), ("pay", "orders", 1, None, 11)))
    lags.round(T0 + 20_000, ENDS)
    assert lags.rows("pay") == [("orders", 2, 3, 3, 0)]
    lags.apply(commits(("pay", "orders", 2, None, 12)))
    lags.round(T0 + 30_000, ENDS)
    assert lags.rows("pay") == []  # said once
    assert lags.round(T0 + 40_000, ENDS) == []


def test_a_topic_that_is_gone_and_partitions_that_a_topic_does_not_have_are_left_out(lags):
    lags.apply(commits(("pay", "orders", 0, 40), ("pay", "orders", 5, 7, 1), ("pay", "bills", 0, 3, 2)), report("pay"))
    lags.round(T0 + 10_000, {"orders": [50, 7]}, gone=["bills"])
    assert lags.rows("pay") == [("orders", 0, 40, 50, 10)]


def test_a_topic_that_nobody_may_describe_is_unknown(lags):
    lags.apply(commits(("pay", "orders", 0, 40), ("pay", "secret", 0, 3, 2)), report("pay"))
    lags.round(T0 + 10_000, {"orders": [50]})
    assert lags.rows("pay") == [("orders", 0, 40, 50, 10), ("secret", 0, 3, None, None)]


def test_topics_with_commits_come_before_those_that_members_only_claim(lags):
    """Of too many topics the first ones are asked for, and anybody may claim topics that do not exist."""
    claimed = [member(f"m{number}", topic=f"claimed-{number}") for number in range(3)]
    lags.apply(report("evil", *claimed), judge=False)
    lags.apply(commits(("pay", "orders", 0, 40), ("pay", "bills", 0, 40, 1)), judge=False)
    assert {*lags.lags.topics()[:2]} == {"orders", "bills"}
    lags.apply(commits(("pay", "orders", 0, None, 2), ("evil", "claimed-2", 0, 7, 3)), judge=False)
    assert {*lags.lags.topics()[:2]} == {"bills", "claimed-2"}
    assert {*lags.lags.topics()} == {"bills", "claimed-0", "claimed-1", "claimed-2"}


@pytest.mark.parametrize(
    ("kind", "owned", "told"),
    [
        ("classic", (0, 1), {"orders"}),
        ("classic", (0, 1, 2), set()),
        ("classic", (), set()),
        ("consumer", (0, 1), set()),
    ],
)
def test_topics_that_a_classic_group_owns_in_part_are_known_from_the_rounds(lags, kind, owned, told):
    """`partition-unowned` does not judge groups of the new protocol, nor topics of which nobody owns a partition."""
    lags.apply(COMMITTED, report("pay", member("m1", partitions=owned), type=kind), judge=False)
    assert lags.lags.topics_partly_owned() == set()
    lags.ask(T0 + 10_000, ENDS)
    assert lags.lags.topics_partly_owned() == told


def test_what_brokers_did_not_tell_is_counted_once_a_round(lags):
    lags.apply(COMMITTED, OWNED)
    lags.lags.add_round(replace(round_of(T0 + 10_000, ENDS), unanswered={"NotLeaderForPartitionError": 3}))
    lags.lags.read_until(T0 + 10_000)
    said = [lags.lags.apply(number, [], lambda _: Thresholds(), judge=True) for number in (1, 2)]
    counted = [[output["counts"] for output in of_kind(outputs, "counted")] for outputs in said]
    assert counted == [[{"end-offsets:NotLeaderForPartitionError": 3}], []]


def test_commits_of_a_topic_are_not_measured_by_a_later_one_of_its_name(lags):
    old, new = uuid.UUID(int=7), uuid.UUID(int=8)
    lags.apply(commits(("pay", "orders", 0, 40, 0, T0, 1, old.bytes)), report("pay"))
    lags.round(T0 + 10_000, {"orders": [50]}, ids={"orders": text_of(old)})
    assert lags.rows("pay") == [("orders", 0, 40, 50, 10)]
    lags.round(T0 + 20_000, {"orders": [60]}, ids={"orders": text_of(new)})
    assert lags.rows("pay") == [("orders", 0, 40, None, None)]
    lags.apply(commits(("pay", "orders", 0, 1, 1, T0 + 21_000, 1, new.bytes)))
    lags.round(T0 + 30_000, {"orders": [60]}, ids={"orders": text_of(new)})
    assert lags.rows("pay") == [("orders", 0, 1, 60, 59)]


def test_a_message_has_waited_since_the_first_round_that_saw_it(lags):
    lags.apply(commits(("pay", "orders", 0, 40)), report("pay"))
    for number, end in enumerate([40, 40, 45, 50], start=1):
        lags.round(T0 + number * 10_000, {"orders": [end]})
    assert columns(lags)["lag_ms"] == [10_000]


def test_who_goes_on_with_a_partition_has_it_since_before(lags):
    lags.apply(COMMITTED, OWNED)
    after = report(
        "pay",
        member("m0", partitions=(2,)),
        member("m1", partitions=(0, 1)),
        at_ms=T0 + 5_000,
        stable_since_ms=T0 + 4_000,
    )
    lags.apply(after)
    lags.round(T0 + 10_000, ENDS)
    assert columns(lags)["owned_since_ms"] == [T0 - 60_000, T0 - 60_000, T0 + 4_000]
    assert [columns(lags)["owners"][number][0] for number in columns(lags)["owner"]] == ["m1", "m1", "m0"]


def test_a_share_groups_partitions_have_no_owner_and_no_lag(lags):
    lags.apply(report("pay", member("m1"), member("m2"), type="share"))
    lags.round(T0 + 10_000, {"orders": [50]})
    assert lags.rows("pay") == [("orders", 0, None, None, None)]
    assert (columns(lags)["owner"], columns(lags)["note"]) == ([None], {"0": "share-group"})


def test_members_of_a_streams_group_own_no_partitions(lags):
    """What they hold are parts of its topology, not topics."""
    lags.apply(commits(("pay", "orders", 0, 40)), report("pay", member("m-1", topic="subtopology-0"), type="streams"))
    [partitions, _] = lags.round(T0 + 10_000, ENDS)
    assert rows_of(partitions) == [("orders", 0, 40, 50, 10)]
    assert partitions["columns"]["owner"] == [None]


def test_nobody_is_alive_by_a_coordinator_that_is_not_heard(lags):
    progress = {"kind": "progress", "brokers": {"broker-1": {"progress_ms": T0 + 1_000}}}
    lags.apply(COMMITTED, OWNED, progress)
    lags.round(T0 + 10_000, ENDS)
    assert columns(lags)["note"] == {}
    lags.round(T0 + 20_000, ENDS)
    assert columns(lags)["note"] == {"0": "starved"}


def test_groups_of_which_nothing_is_new_are_judged_once_a_minute(lags):
    lags.apply(commits(("pay", "orders", 0, 50), ("ship", "orders", 0, 40, 1)), report("pay"), report("ship"))
    judged = [
        {report.group for report in reports_in(lags.round(T0 + number * 10_000, {"orders": [50]}))}
        for number in range(1, 9)
    ]
    assert [number for number, groups in enumerate(judged, start=1) if "pay" in groups] == [1, 7]
    assert all("ship" in groups for groups in judged)


def test_a_clock_that_is_set_back_by_an_hour_stops_no_judging(lags):
    """With a round that still waited, whose answer now seems to lie in the future."""
    lags.apply(commits(("pay", "orders", 0, 40)), report("pay"))
    assert lags.round(T0 + 10_000, {"orders": [50]}) != []
    lags.ask(T0 + 20_000, {"orders": [55]})
    back_ms = T0 - 3_600_000
    for number in range(group_lags.MAX_PENDING):
        lags.round(back_ms + number * 10_000, {"orders": [60]})
    assert lags.rows("pay") == [("orders", 0, 40, 60, 20)]


def test_who_is_behind_is_judged_first_and_the_rest_as_time_allows(lags, monkeypatch):
    monkeypatch.setattr(group_lags, "AT_ONCE", 1)
    monkeypatch.setattr(group_lags.time, "monotonic", iter(range(1_000)).__next__)
    monkeypatch.setattr(group_lags, "JUDGE_S", 1.5)  # the clock goes on by 1 each time that it is read: one group
    names = ["a", "b", "late"]
    lags.apply(
        commits(*((name, "orders", 0, 40 if name == "late" else 50, at) for at, name in enumerate(names))),
        *map(report, names),
    )
    first = lags.round(T0 + 10_000, {"orders": [50]})
    order = [first, lags.apply(), lags.apply(), lags.apply()]
    assert [[output["group"] for output in of_kind(said, "partitions")] for said in order] == [
        ["late"],
        ["a"],
        ["b"],
        [],
    ]


def test_a_group_whose_judging_takes_long_is_judged_less_often(lags, monkeypatch):
    seconds = iter(range(0, 10_000, 2))
    monkeypatch.setattr(group_lags.time, "perf_counter", seconds.__next__)  # two seconds a group
    lags.apply(commits(("pay", "orders", 0, 40)), report("pay"))
    judged = [bool(lags.round(T0 + number * 10_000, {"orders": [50]})) for number in range(1, 10)]
    assert [number for number, was in enumerate(judged, start=1) if was] == [1, 5, 9]


def test_a_group_of_a_hundred_thousand_partitions_is_whole_in_its_sums(lags):
    """Only the worst partitions have rows; all count."""
    many = 100_000
    lags.apply(commits(*(("pay", "orders", n, n % 7, n) for n in range(many))), report("pay"))
    [partitions, _] = lags.round(T0 + 10_000, {"orders": [7] * many})
    columns = partitions["columns"]
    assert partitions["lag"] == sum(7 - n % 7 for n in range(many))
    assert (len(columns["lag"]), columns["left_out"]) == (MAX_ROWS, many - MAX_ROWS)
    assert columns["lag"] == [7] * MAX_ROWS
    assert columns["sums"][0][:2] == ["orders", many]


def test_a_partition_that_its_owner_leaves_behind_is_named(lags):
    lags.apply(report("pay", member("m1", partitions=(0, 1)), stable_since_ms=T0 - 600_000))
    record = 0
    for number in range(40):
        at_ms = T0 + number * 5_000
        record += 2
        stuck = [("pay", "orders", 0, number * 10, record, at_ms)] if number < 15 else []
        lags.apply(commits(*stuck, ("pay", "orders", 1, number * 10, record + 1, at_ms)))
        if number % 2:
            lags.round(at_ms + 1, {"orders": [number * 10, number * 10]})
    [finding] = lags.said[-1].findings
    assert (finding["rule"], finding["member_id"], finding["partitions"]) == (
        "partition-stalled",
        "m1",
        [["orders", 0]],
    )
    assert finding["detail"]["note"] == "stuck"


# ------------------------------------------------------------------------------------------------ over a restart


def life(folder, kill=None):
    """Six batches and three rounds; `kill` is called at each batch and may end the process."""
    lags = Lags(folder)
    for number in range(6):
        at_ms = T0 + number * 5_000
        told = [
            commits(
                ("pay", "orders", 0, number, 2 * number, at_ms, 3),
                ("pay", "orders", 1, None if number == 3 else number, 2 * number + 1, at_ms),
            ),
            OWNED,
        ]
        ends = {"orders": [number // 2 + 10, number // 2 + 20, 5]}
        lags.ask(at_ms - 1, ends)
        before, lags = lags, kill(lags, number, told) if kill else lags
        if lags is not before:
            lags.ask(at_ms - 1, ends)  # a new process asks anew
        lags.apply(*told, batch=number)
    lags.round(T0 + 30_000, {"orders": [20, 20, 20]}, OWNED)
    return lags


def said_of(lags):
    """All that is said, but for when it was."""
    shown = [
        {**output, "columns": {**output["columns"], "history": None}} for output in of_kind(lags.said, "partitions")
    ]
    return [*shown, *reports_in(lags.said)]


@pytest.fixture
def undisturbed(tmp_path):
    return said_of(life(tmp_path / "undisturbed"))


def test_killed_before_any_batch_nothing_is_lost_or_doubled(tmp_path, undisturbed):
    assert said_of(life(tmp_path / "killed", lambda lags, number, told: Lags(lags.folder))) == undisturbed


def test_killed_between_journal_and_transaction_nothing_is_lost_or_doubled(tmp_path, undisturbed):
    def kill(lags, number, told):
        lags.apply(*told, batch=number)
        return Lags(lags.folder)  # the batch comes again

    assert said_of(life(tmp_path / "killed", kill)) == undisturbed


def test_killed_between_journal_and_memory_nothing_is_lost_or_doubled(tmp_path, undisturbed, monkeypatch):
    def kill(lags, number, told):
        with monkeypatch.context() as patch:
            patch.setattr(CommitTable, "apply", gone)
            with pytest.raises(KeyboardInterrupt):
                lags.apply(*told, batch=number)
        return Lags(lags.folder)

    assert said_of(life(tmp_path / "killed", kill)) == undisturbed


@pytest.mark.parametrize("before", ["replace", "truncate"])
def test_killed_while_the_snapshot_is_written_nothing_is_lost_or_doubled(tmp_path, undisturbed, monkeypatch, before):
    monkeypatch.setattr(kept, "JOURNAL_BATCHES", 2)

    def kill(lags, number, told):
        with monkeypatch.context() as patch:
            if before == "replace":
                patch.setattr(Path, "replace", gone)
            else:
                patch.setattr(kept.Kept, "_begin_journal", gone)
            try:
                lags.apply(*told, batch=number)
            except KeyboardInterrupt:
                return Lags(lags.folder)
        return lags

    assert said_of(life(tmp_path / "killed", kill)) == undisturbed


def gone(*_, **__):
    raise KeyboardInterrupt


def test_killed_it_still_knows_groups_that_no_view_shows_again(lags):
    """A shard shows groups again whose members are heard; those without members only when something happens."""
    lags.apply(commits(("pay", "orders", 0, 40), ("ship", "orders", 0, 30, 1)), report("pay"), report("ship"))
    lags.apply(report("ship", at_ms=T0 + 1_000, deleted=True))
    again = Lags(lags.folder, committed=1)
    again.round(T0 + 10_000, {"orders": [50]})
    assert again.rows("pay") == [("orders", 0, 40, 50, 10)]
    assert again.rows("ship") is None


def test_killed_it_knows_who_has_what_but_not_who_is_alive(lags):
    lags.apply(COMMITTED, OWNED)
    again = Lags(lags.folder, committed=0)
    again.round(T0 + 10_000, ENDS)
    assert [columns(again)["owners"][number][0] for number in columns(again)["owner"]] == ["m1", "m1", "m2"]
    assert columns(again)["note"] == {"0": "starved"}


def test_a_view_that_says_nothing_new_is_not_written_again(lags):
    lags.apply(COMMITTED, OWNED)
    size = (lags.folder / "journal").stat().st_size
    for number in range(1, 11):
        lags.apply(report("pay", *OWNED.view["members"], at_ms=T0 + number))
    assert (lags.folder / "journal").stat().st_size < size + 10 * 60


def test_ended_in_order_it_goes_on_with_owners_and_rounds(tmp_path):
    with Lags(tmp_path).lags:
        pass
    first = Lags(tmp_path)
    first.apply(commits(("pay", "orders", 0, 40)), OWNED, batch=0)
    first.round(T0 + 10_000, {"orders": [50, 0, 0]})
    with first.lags:
        pass
    second = Lags(tmp_path, committed=0)
    later = report("pay", member("m1", partitions=(0, 1)), at_ms=T0 + 50_000, stable_since_ms=T0 + 40_000)
    second.apply(later)
    second.round(T0 + 60_000, {"orders": [60, 0, 0]})
    assert columns(second)["owned_since_ms"][:2] == [T0 - 60_000, T0 - 60_000]
    assert columns(second)["lag_ms"][0] == 50_000
    assert [lag for _, lag in columns(second)["history"]] == [10, 20]


def test_what_cannot_be_read_is_said(tmp_path):
    with Lags(tmp_path).lags as lags:
        lags.apply(0, [COMMITTED], lambda _: None, judge=False)
    (tmp_path / "snapshot").write_bytes(b"lag2 and what nobody wrote")
    with pytest.raises(BrokenError, match="damaged"):
        Lags(tmp_path, committed=0)


def test_commits_from_the_future_count_as_of_when_they_are_read_and_are_counted(lags):
    owned, far_ms = report("pay", member("m1", partitions=(0, 1))), T0 + 365 * 86_400_000
    named, told = {}, []
    for number in range(1, 16):
        at_ms, offset = T0 + number * 10_000, number * 10
        rows = [("pay", "orders", 1, offset, 2 * number + 1, at_ms - 1_000)]
        if number < 7:
            rows.append(("pay", "orders", 0, offset, 2 * number, far_ms if number == 3 else at_ms - 1_000))
        lags.ask(at_ms, {"orders": [offset, offset]})
        batch = commits(*rows) | {"at_ms": at_ms}
        told += lags.lags.apply(2 * number - 2, [batch, owned], lambda _: Thresholds(), judge=True)
        lags.lags.read_until(at_ms)
        said = lags.lags.apply(2 * number - 1, [], lambda _: Thresholds(), judge=True)
        if number == 6:
            [row] = [output["columns"] for output in of_kind(said, "partitions")]
            assert (row["lag"], row["committed_ms"][0] - T0) == ([0, 0], 59_000)
        named |= {found["subject"]: found["opened_ms"] - T0 for report in reports_in(said) for found in report.findings}
    assert [output["counts"] for output in of_kind(told, "quarantined")] == [{"offsets:commit from the future": 1}]
    assert named == {"orders-0": 59_000}
    kept = lags.lags._table.windows(lags.lags._table.slots_of("pay")).at_ms.tolist()
    again = Lags(lags.folder)
    assert again.lags._table.windows(again.lags._table.slots_of("pay")).at_ms.tolist() == kept


# kind of a blind window, told in each batch -> whether the stuck partition is named all the same
KINDS = {NO_LINES: False, CLOCK_STEPPED: False, LINES_LOST: True, COARSE_INSTANTS: True, NO_REQUEST_LOG: True}


def left_behind(lags, turns, *more, kind="classic", **asked):
    """Play rounds; a partition is left behind after a minute, its owner keeps up with another. Return who is named."""
    named = set()
    for number in turns:
        at_ms, offset = T0 + number * 10_000, number * 10
        stuck = [("pay", "orders", 0, offset, 2 * number, at_ms - 1_000)] if number < 7 else []
        well = ("pay", "orders", 1, offset, 2 * number + 1, at_ms - 1_000)
        owned = report("pay", member("m1", partitions=(0, 1)), at_ms=at_ms, type=kind)
        outputs = [told(at_ms) for told in more]
        said = lags.round(at_ms, {"orders": [offset, offset]}, commits(*stuck, well), owned, *outputs, **asked)
        named |= {finding["subject"] for told in reports_in(said) for finding in told.findings}
    return named


def blind_until(until_ms, why=NO_LINES):
    return {"kind": "blind", "shard": 3, "broker": "broker-1", "until_ms": until_ms, "why": why}


@pytest.mark.parametrize("why", KINDS)
def test_only_blind_windows_in_which_nobody_can_commit_begin_the_count_anew(why, lags):
    named = left_behind(lags, range(1, 16), lambda at_ms: blind_until(at_ms, why))
    assert named == ({"orders-0"} if KINDS[why] else set())


def restarted(lags, *, killed):
    if not killed:
        with lags.lags:
            pass
    return Lags(lags.folder, committed=lags.batch)


@pytest.mark.parametrize("kind", ["classic", "simple"])
def test_what_waits_for_a_transaction_is_not_stalled_after_a_restart(lags, kind):
    """The last stable offset is asked for only after the first round."""
    stable = {("orders", 0): 60}
    assert left_behind(lags, range(1, 16), kind=kind, stable=stable) == set()
    again = restarted(lags, killed=True)
    assert left_behind(again, range(16, 20), kind=kind, stable=stable) == set()


def test_what_is_stalled_is_named_after_a_restart(lags):
    assert left_behind(lags, range(1, 10)) == set()
    assert left_behind(restarted(lags, killed=True), range(10, 16)) == {"orders-0"}


@pytest.mark.parametrize("killed", [True, False])
def test_an_outage_that_is_over_is_known_after_a_restart(lags, killed):
    assert left_behind(lags, range(1, 15), blind_until) == set()
    assert left_behind(restarted(lags, killed=killed), range(15, 18)) == set()


@pytest.mark.parametrize("killed", [True, False])
def test_an_outage_that_lasts_is_known_after_a_restart(lags, killed):
    assert left_behind(lags, range(1, 7)) == set()
    assert left_behind(lags, range(7, 8), lambda _: blind_until(None), kind="simple") == set()
    again = restarted(lags, killed=killed)
    assert left_behind(again, range(8, 20), kind="simple") == set()


def test_a_snapshot_of_an_older_version_tells_of_no_outage(lags):
    left_behind(lags, range(1, 15), blind_until)
    state = lags.lags._dump()
    del state["outages"]
    state["known"] = state["known"][:-1]
    lags.lags._kept.snapshot(state)
    assert left_behind(Lags(lags.folder, committed=lags.batch), range(15, 18)) == {"orders-0"}

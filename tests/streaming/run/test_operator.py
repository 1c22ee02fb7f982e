import base64
import gzip
import json
import marshal
from dataclasses import replace
from itertools import cycle, islice, repeat
from pathlib import Path

import pandas as pd
import pytest

from coordinator_model.commit_block import CommitBlock
from coordinator_model.decode.parse import RejectedRow, SourceRow, parse_row
from coordinator_model.shard import group_events, snapshot
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.shard.sharding import shard_of
from streaming.run import operator as operator_module
from streaming.run.operator import Operator
from streaming.run.packing import MAX_REJECTED, QUARANTINE_KEY, Packer, Routing, commit_block
from streaming.store.batch import gather
from tests.benchmarks import synthetic
from tests.benchmarks.synthetic import Member
from tests.support import records as encoder
from tests.support.memory_cell import MemoryCell

OTHER_GROUP = "payments"
OTHER_KEY = Routing(50).key_of(OTHER_GROUP)
START_MS = 1_790_000_000_000
GROUP = "orders"
KEY = Routing(50).key_of(GROUP)
MEMBERS = [Member(1), Member(2)]
SETTINGS = ShardSettings("prod", 50, START_MS)
STATES = Path(__file__).parents[2] / "fixtures" / "states"


def payloads(*rows):
    packer = Packer(Routing(50), ())
    for row in rows:
        events = parse_row(row)
        assert not isinstance(events, RejectedRow)
        if row.source == "offsets":
            packer.decoded.add(row, events)
        for event in events:
            packer.add(event)
    return [payload for _, payload in packer.rows()]


def line(offset, at_ms, value):
    return SourceRow("telemetry", "lines", 0, offset, at_ms, b"broker-1", value)


def other_payloads(number):
    """A group of another shard, with a heartbeat of its one member."""
    at_ms = START_MS + number * 1_000
    beat = line(10_000 + number, at_ms, synthetic.heartbeat_line(OTHER_GROUP, MEMBERS[0], 3))
    key, value = synthetic.group_record(OTHER_GROUP, 3, MEMBERS[:1], START_MS)
    record = SourceRow("offsets", "records", shard_of(OTHER_GROUP, 50), 0, START_MS, key, value)
    return payloads(*([beat] if number else [record, beat]))


def batches():
    """A group of two; the second member falls silent after 6 s, is removed at 16 s; one batch a second."""
    key, value = synthetic.group_record(GROUP, 3, MEMBERS, START_MS)
    shard, offset = shard_of(GROUP, 50), 0
    yield payloads(SourceRow("offsets", "records", shard, 0, START_MS, key, value))
    for second in range(1, 20):
        at_ms, rows = START_MS + second * 1_000, []
        for member in MEMBERS if second <= 6 else MEMBERS[:1]:
            error = 27 if second == 16 else 0
            rows.append(
                line(offset := offset + 1, at_ms, synthetic.heartbeat_line(GROUP, member, 3 + (second > 16), error))
            )
        if second == 16:
            alone = MEMBERS[:1]
            rows.append(line(offset := offset + 1, at_ms + 10, synthetic.join_line(GROUP, MEMBERS[0], 4, alone, 5)))
            rows.append(line(offset := offset + 1, at_ms + 15, synthetic.sync_line(GROUP, MEMBERS[0], 4, alone)))
            key, value = synthetic.group_record(GROUP, 4, alone, at_ms + 12)
            rows.append(SourceRow("offsets", "records", shard, 1, at_ms + 12, key, value))
        yield payloads(*rows)


LANE = "0"


def outputs(operator, cell, payloads, key=KEY):
    return outputs_by_key(operator, cell, {key: payloads}).get(key, [])


def outputs_by_key(operator, cell, payloads):
    rows = [(LANE, key, payload) for key, listed in payloads.items() for payload in listed]
    frames = operator((LANE,), iter([pd.DataFrame(rows, columns=["lane", "key", "payload"])]), cell)
    return {key: json.loads(text) for frame in frames for key, text in zip(frame["key"], frame["outputs"], strict=True)}


@pytest.fixture(autouse=True)
def empty_worker(monkeypatch):
    monkeypatch.setattr(operator_module, "_held", {})


ONE, TWO, EACH_NEW = "one worker", "two workers in turn", "a new worker each time"


def held_by(workers):
    """What the worker of each batch in turn holds."""
    return {ONE: repeat({}), TWO: cycle(({}, {})), EACH_NEW: iter(dict, None)}[workers]


def play(workers=ONE):
    operator, cell, said = Operator(SETTINGS, 1), MemoryCell(), []
    for batch, operator_module._held in zip(batches(), held_by(workers), strict=False):
        said += outputs(operator, cell, batch)
    return said


def test_a_member_that_fell_silent_is_reported_with_its_deadline():
    findings = [finding for output in play() if output["kind"] == "report" for finding in output["findings"]]
    expired = [finding for finding in findings if finding["rule"] == "session-expired"]
    assert {finding["member_id"] for finding in expired} == {MEMBERS[1].member_id}
    assert all(abs(finding["deadline_ms"] - (START_MS + 16_000)) < 5 for finding in expired)


@pytest.mark.parametrize("workers", [TWO, EACH_NEW])
def test_a_shard_decoded_from_its_state_says_the_same_as_one_kept_in_the_worker(workers):
    decoded, kept = ([o for o in play(each) if o["kind"] == "report"] for each in (workers, ONE))
    assert decoded == kept
    assert any(report["findings"] for report in kept)


def test_a_lane_without_state_first_applies_what_was_read_ahead(tmp_path):
    first, second, third, *_ = batches()
    (tmp_path / LANE).write_bytes(marshal.dumps({KEY: first, OTHER_KEY: other_payloads(0)}, 2))
    ahead, whole = Operator(SETTINGS, 1, tmp_path), Operator(SETTINGS, 1)
    cell, expected = MemoryCell(), MemoryCell()
    together = {KEY: first + second, OTHER_KEY: other_payloads(0)}
    assert outputs_by_key(ahead, cell, {KEY: second}) == outputs_by_key(whole, expected, together)
    assert outputs_by_key(ahead, cell, {KEY: third}) == outputs_by_key(whole, expected, {KEY: third})


def test_rows_that_were_read_ahead_and_are_gone_fail_the_batch(tmp_path):
    """Spark begins after them, so nobody would ever read them again."""
    first, *_ = batches()
    with pytest.raises(FileNotFoundError):
        outputs(Operator(SETTINGS, 1, tmp_path), MemoryCell(), first)


def test_the_workers_copy_is_not_used_when_another_batch_won():
    """A batch that failed leaves a copy that is ahead of the state; the retried batch must not build on it."""
    operator, cell = Operator(SETTINGS, 1), MemoryCell()
    first, second, *_ = batches()
    outputs(operator, cell, first)
    committed = cell.value
    failed = outputs(operator, MemoryCell(committed), second)
    assert outputs(operator, MemoryCell(committed), second) == failed
    assert not any(output["counts"].get("duplicates") for output in failed if output["kind"] == "progress")


def test_two_queries_in_one_worker_do_not_mix():
    first, second, *_ = batches()
    alone = outputs(Operator(SETTINGS, 2), MemoryCell(), second)
    outputs(Operator(SETTINGS, 1), MemoryCell(), first)
    assert outputs(Operator(SETTINGS, 2), MemoryCell(), second) == alone


def test_a_query_that_starts_again_judges_by_its_own_settings():
    """A reload goes on in the living workers, whose shards were made with the settings before it."""
    cell = MemoryCell()
    first, second, *_ = batches()
    outputs(Operator(SETTINGS, 1), cell, first)
    outputs(Operator(replace(SETTINGS, cluster="renamed"), 2), cell, second)
    assert operator_module._held[LANE].lane[KEY].shard.settings.cluster == "renamed"


def test_a_lane_of_the_format_before_is_written_anew_whole():
    """Also the shards for which nothing came: the state names one format for all of its lane."""
    [kept, *_] = json.loads(gzip.decompress((STATES / "format-27.json.gz").read_bytes()))
    old = " ".join(kept["state"])
    cell = MemoryCell((27, 1, json.dumps([KEY]), old))
    outputs(Operator(SETTINGS, 2), cell, other_payloads(0), key=OTHER_KEY)
    version, _, keys, texts = cell.value
    assert (version, json.loads(keys)) == (snapshot.VERSION, [KEY, OTHER_KEY])
    parts = [base64.b64decode(text) for text in texts.split(" ")[:6]]
    assert Shard.restore(0, SETTINGS, (version, *parts)).views()


@pytest.mark.parametrize("workers", [TWO, EACH_NEW])
def test_a_shard_that_moves_between_workers_says_the_same_in_the_same_way(workers):
    """Groups shown whole at each move would cost more than all else: Spark moves shards nearly every batch."""
    assert [o["kind"] for o in play(workers)] == [o["kind"] for o in play()]


def test_a_shard_that_comes_back_reads_only_what_has_changed_meanwhile(monkeypatch):
    """Nothing but heartbeats: neither who the members are nor the groups' slices are read again."""
    operator, cell, here = Operator(SETTINGS, 1), MemoryCell(), operator_module._held
    *quiet, elsewhere, back = islice(batches(), 6)
    for batch in quiet:
        outputs(operator, cell, batch)
    monkeypatch.setattr(operator_module, "_held", {})
    outputs(operator, cell, elsewhere)
    monkeypatch.setattr(operator_module, "_held", here)
    for name in ("load_index", "load_slices"):
        monkeypatch.setattr(snapshot, name, None)
    assert outputs(operator, cell, back)


def test_a_shard_that_is_woken_for_nothing_says_how_far_it_is():
    operator, cell = Operator(SETTINGS, 1), MemoryCell(wall_ms=START_MS)
    outputs(operator, cell, next(batches()))
    packer = Packer(Routing(50), (KEY,))
    packer.include_all_keys()
    cell.wall_ms = START_MS + 1_000
    assert [output["kind"] for output in outputs(operator, cell, [dict(packer.rows())[KEY]])] == ["progress"]


@pytest.mark.parametrize("workers", [ONE, TWO, EACH_NEW])
def test_a_shard_says_the_same_whoever_shares_its_lane(workers):
    """Also where the other shard is not called in every batch, and beside rows that cannot be read."""
    operator, cell, said = Operator(SETTINGS, 1), MemoryCell(), []
    packer = Packer(Routing(50), ())
    packer.reject(RejectedRow("telemetry", "lines", 2, 40, START_MS, "no value", b""))
    rejected = dict(packer.rows())
    for number, (batch, operator_module._held) in enumerate(zip(batches(), held_by(workers), strict=False)):
        beside = {} if number % 3 else {OTHER_KEY: other_payloads(number), QUARANTINE_KEY: [*rejected.values()]}
        told = outputs_by_key(operator, cell, {**beside, KEY: batch})
        assert [output["kind"] for output in told.get(QUARANTINE_KEY, ())] == ["quarantine"] * bool(beside)
        assert (OTHER_KEY in told) == bool(beside)
        said += told[KEY]
        assert {o["groups"] for o in told.get(OTHER_KEY, ()) if o["kind"] == "progress"} == ({1} if beside else set())
    alone = play()
    assert [o for o in said if o["kind"] == "report"] == [o for o in alone if o["kind"] == "report"]


@pytest.mark.parametrize("workers", [ONE, TWO, EACH_NEW])
def test_a_group_that_the_model_fails_on_is_set_aside_and_the_query_goes_on(workers, monkeypatch):
    """Beside it another group in the same lane, which says the same as ever."""
    whole = group_events.replay

    def fails(replica, event, context):
        if replica.group == GROUP and getattr(event, "error", 0) == 27:
            raise ZeroDivisionError("a mistake of ours")
        whole(replica, event, context)

    monkeypatch.setattr(group_events, "replay", fails)
    operator, cell, said, beside = Operator(SETTINGS, 1), MemoryCell(), [], []
    for number, (batch, operator_module._held) in enumerate(zip(batches(), held_by(workers), strict=False)):
        told = outputs_by_key(operator, cell, {KEY: batch, OTHER_KEY: other_payloads(number)})
        said += told[KEY]
        beside += told[OTHER_KEY]
    [row] = [output for output in said if output["kind"] == "quarantine"]
    assert (row["source"], row["reason"]) == ("group", "failed: ZeroDivisionError")
    rules = [finding["rule"] for output in said if output["kind"] == "report" for finding in output["findings"]]
    assert rules[0] == "session-at-risk"
    assert rules[-1] == "group-set-aside"
    assert {o["groups"] for o in beside if o["kind"] == "progress"} == {1}
    assert not any(output["findings"] for output in beside if output["kind"] == "report")
    views = [output["view"] for output in said if output["kind"] == "report"]
    assert [member["member_id"] for member in views[-1]["members"]] == [MEMBERS[0].member_id]


def test_unreadable_rows_become_quarantine_outputs_and_leave_no_state():
    packer, cell = Packer(Routing(50), ()), MemoryCell()
    packer.reject(RejectedRow("telemetry", "lines", 2, 40, START_MS, "no value", b"\x00\xff"))
    ((key, payload),) = packer.rows()
    (output,) = outputs(Operator(SETTINGS, 1), cell, [payload], QUARANTINE_KEY)
    assert (key, output["kind"], output["offset"], output["reason"]) == (QUARANTINE_KEY, "quarantine", 40, "no value")
    assert base64.b64decode(output["head"]) == b"\x00\xff"
    assert not cell.exists


def test_of_very_many_unreadable_rows_some_are_kept_and_all_are_counted():
    """An application that may write reports can write 400 rows of nonsense a second."""
    packer = Packer(Routing(50), ())
    for offset in range(1_000):
        for reason in ("no value", "line too long"):
            packer.reject(RejectedRow("telemetry", "lines", 2, offset, START_MS, reason, b"\x00" * 96))
    packer.reject(RejectedRow("offsets", "records", 2, 0, START_MS, "no value", b""))
    ((_, payload),) = packer.rows()
    assert len(payload) < 10_000
    said = outputs(Operator(SETTINGS, 1), MemoryCell(), [payload], QUARANTINE_KEY)
    counts = gather(said, "checkpoint").counters["prod"]
    assert [output["kind"] for output in said].count("quarantine") == 2 * MAX_REJECTED + 1
    assert counts == {
        "quarantined:telemetry:no value": 1_000,
        "quarantined:telemetry:line too long": 1_000,
        "quarantined:offsets:no value": 1,
    }
    assert not packer


@pytest.mark.parametrize("key", [KEY, QUARANTINE_KEY])
def test_the_counts_that_come_with_a_key_are_told_once(key):
    packer = Packer(Routing(50), ())
    packer.decoded.add(SourceRow("offsets", "records", 0, 0, START_MS, b"\0\x02\0\1g", None), [])
    payload = dict(packer.rows())[QUARANTINE_KEY]
    said = outputs(Operator(SETTINGS, 1), MemoryCell(), [payload, payload], key)
    told = [output for output in said if output["kind"] == "decoded"]
    assert told == [{"kind": "decoded", "cluster": "prod", "counts": {"GroupMetadata::tombstone": 2}}]


@pytest.mark.parametrize("workers", [ONE, TWO, EACH_NEW])
def test_commits_make_a_group_and_travel_on_to_the_sink_as_they_came(workers):
    operator, cell, sent, said = Operator(SETTINGS, 1), MemoryCell(wall_ms=START_MS), [], []
    shard = shard_of(GROUP, 50)
    for number, operator_module._held in zip(range(3), held_by(workers), strict=False):
        key, value = encoder.commit_key(GROUP, "t", number), encoder.commit_value(number, START_MS)
        row = SourceRow("offsets", "records", shard, number, START_MS, key, value)
        sent.append(CommitBlock.of_events(parse_row(row)))
        said += outputs(operator, cell, payloads(row))
    told = [output for output in said if output["kind"] == "commits"]
    assert [(o["cluster"], o["shard"], o["at_ms"]) for o in told] == [("prod", shard, START_MS)] * 3
    assert [commit_block(base64.b64decode(output["block"])) for output in told] == sent
    views = [output["view"] for output in said if output["kind"] == "report"]
    assert [(view["group"], view["type"]) for view in views] == [(GROUP, "simple")]
    assert sum(o["counts"].get("OffsetCommitted", 0) for o in said if o["kind"] == "progress") == 3

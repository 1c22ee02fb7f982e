import marshal
import time
from collections import Counter

import pyarrow as pa
import pytest

from coordinator_model.brokers.ticks import HOLE_MS
from coordinator_model.capture_replay import _read, _ticks
from coordinator_model.commit_block import CommitBlock
from coordinator_model.decode.parse import REPORTS, RejectedRow, RowParser, SourceRow, parse_row
from coordinator_model.events import ClientPoll, Heartbeat, MetricsPushed, RecordRead, Tick
from coordinator_model.shard import sharding
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.shard.sharding import shard_of
from streaming.client_metrics.otlp import read_metrics
from streaming.run.packing import (
    QUARANTINE_KEY,
    Packer,
    Routing,
    asked_in,
    commit_block,
    commits_in,
    decoded_in,
    heartbeats_in,
    rejected_in,
    shard_of_key,
    unpack,
)
from streaming.run.source import TRIGGER_TOPIC, PackRows
from tests.benchmarks import synthetic
from tests.benchmarks.synthetic import Member
from tests.streaming.run.events_of import unpacked
from tests.support import records as encoder
from tests.support.request_log import probe_line
from tests.support.story import stable

NOW_MS = 1_790_000_000_000
MEMBERS = [Member(1), Member(2)]


def line(offset, value, at_ms=NOW_MS, broker=b"broker-1", partition=0):
    return SourceRow("telemetry", "lines", partition, offset, at_ms, broker, value)


def record(group, offset=0, partition=None):
    key, value = synthetic.group_record(group, 3, MEMBERS, NOW_MS)
    return SourceRow(
        "offsets", "records", shard_of(group, 50) if partition is None else partition, offset, NOW_MS, key, value
    )


def arrow(*rows):
    names = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())
    columns = [pa.array([getattr(row, name) for row in rows], kind) for name, kind in zip(names, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


ROUTING = Routing(50)


def packed(tmp_path, *batches, routing=ROUTING, nonce=None, records="records", **readers):
    stage = PackRows(routing, records, tmp_path / "live-keys.json", nonce=nonce, **readers)
    return [
        (key, payload)
        for out in stage(iter(batches))
        for key, payload in zip(out.column("key").to_pylist(), out.column("payload").to_pylist(), strict=True)
    ]


ROWS = [
    record("orders"),
    line(0, synthetic.heartbeat_line("orders", MEMBERS[0], 3)),
    line(1, synthetic.join_line("orders", MEMBERS[0], 4, MEMBERS, 12)),
    line(2, synthetic.sync_line("orders", MEMBERS[0], 4, MEMBERS)),
    line(3, synthetic.probe_line(17)),
]


def test_events_arrive_as_they_were_read(tmp_path):
    expected = [event for row in ROWS for event in parse_row(row)]
    payloads = [payload for key, payload in packed(tmp_path, arrow(*ROWS)) if key == ROUTING.key_of("orders")]
    arrived = [event for event in unpacked(payloads) if not (isinstance(event, Tick) and event.probe is None)]
    assert sorted(arrived, key=lambda event: event[:5]) == sorted(expected, key=lambda event: event[:5])
    assert {type(event) for event in arrived} >= {RecordRead, Heartbeat, Tick}


def test_all_events_of_a_key_are_one_row(tmp_path):
    rows = [line(n, synthetic.heartbeat_line("orders", MEMBERS[n % 2], 3)) for n in range(500)]
    keys = [key for key, _ in packed(tmp_path, arrow(*rows), arrow(*[r._replace(offset=r.offset + 500) for r in rows]))]
    assert len(keys) == len(set(keys)) == 50


def test_a_tick_reaches_every_shard(tmp_path):
    ticks = {key: unpacked([payload]) for key, payload in packed(tmp_path, arrow(line(0, synthetic.probe_line(5))))}
    assert set(ticks) == set(ROUTING.all_keys())
    assert all([(tick.broker, tick.probe) for tick in events] == [("broker-1", 5)] for events in ticks.values())


@pytest.mark.parametrize(("nonce", "own"), [(None, True), ("ours", True), ("our", False), ("theirs", False)])
def test_a_probe_that_somebody_else_sent_is_a_line_like_any_other(tmp_path, nonce, own):
    """Whoever reaches a broker may number ListGroups as it likes: a number left out says that lines were lost."""
    asked = [synthetic.probe_line(n).replace(b'"]', b'","asked-ours-1"]') for n in (5, 900, 10**17)]
    rows = [line(n, value, NOW_MS + 10 * n) for n, value in enumerate(asked)]
    payloads = dict(packed(tmp_path, arrow(*rows), nonce=nonce))
    ticks = unpacked([payloads["017"]])
    assert [(t.order_ms - NOW_MS, t.probe) for t in ticks] == (
        [(0, 5), (10, 900), (20, 10**17)] if own else [(0, None), (20, None)]
    )
    told = asked_in(unpack(payloads.values()))
    assert told == ({"ours-1": "broker-1"} if own else {})


@pytest.mark.parametrize(("nonce", "told"), [("ours", {"m2"}), (None, set())])
def test_a_number_that_a_stranger_leaves_out_hides_no_death(tmp_path, nonce, told):
    """ListGroups on a connection of its own, once a second, says each time that lines were lost: all are unknown."""
    story = stable("m1", "m2").beats("m1", 1_000, 40_000).beats("m2", 1_000, 20_000)
    for second in range(1, 40):
        story.tell(1_000 * second + 100, probe_line(1_000 * second, port=6_000))
    shard = Shard.restore(0, ShardSettings("c", 1, 0), None)
    rows = arrow(*story.source_rows(40_000))
    [(_, payload)] = packed(tmp_path, rows, routing=Routing(1), nonce=nonce, records="__consumer_offsets")
    outputs = shard.apply(unpacked([payload]), heartbeats=heartbeats_in(unpack([payload])), final=True)
    found = [finding for output in outputs if output["kind"] == "report" for finding in output["findings"]]
    assert {finding["member_id"] for finding in found if finding["rule"] == "session-expired"} == told


def test_a_row_that_wakes_calls_every_shard_that_has_a_group_and_says_nothing(tmp_path):
    (tmp_path / "live-keys.json").write_text('["007", "031"]')
    waking = arrow(SourceRow("telemetry", TRIGGER_TOPIC, 0, 5, 0, b"", b""))
    assert {key: unpacked([payload]) for key, payload in packed(tmp_path, waking)} == {"007": [], "031": []}
    ticks = {
        key: len(unpacked([payload]))
        for key, payload in packed(tmp_path, arrow(line(0, synthetic.probe_line(5))), waking)
    }
    assert ticks == {"007": 1, "031": 1}


def test_a_broker_heard_while_no_shard_has_a_group_gives_no_rows(tmp_path):
    """A cluster whose offsets topic is there, and no group: nothing but probes."""
    (tmp_path / "live-keys.json").write_text("[]")
    assert packed(tmp_path, arrow(line(0, synthetic.probe_line(5)))) == []


def test_lines_of_a_broker_move_the_other_shards_twice_a_second_and_the_newest_does(tmp_path):
    rows = [line(n, synthetic.heartbeat_line("orders", MEMBERS[0], 3), NOW_MS + 10 * n) for n in range(100)]
    other = next(key for key in ROUTING.all_keys() if key != ROUTING.key_of("orders"))
    ticks = unpacked([dict(packed(tmp_path, arrow(*rows)))[other]])
    assert [tick.order_ms - NOW_MS for tick in ticks] == [0, 500, 990]


def test_a_gap_in_a_telemetry_partition_is_told_once_by_the_next_line(tmp_path):
    rows = [line(n, synthetic.heartbeat_line("orders", MEMBERS[0], 3), NOW_MS + n) for n in (0, 1, 7, 8)]
    ticks = [e for e in unpacked([dict(packed(tmp_path, arrow(*rows)))["000"]]) if isinstance(e, Tick)]
    assert sorted((tick.offset, tick.lost) for tick in ticks) == [(0, False), (7, True), (8, False)]


def a_hole(first_ms, then_ms, partition=0):
    """Heartbeats each 10 ms and a probe each half second, and nothing between two instants."""
    times = [*range(0, first_ms + 1, 10), *range(then_ms, then_ms + 1_000, 10)]
    heartbeat = synthetic.heartbeat_line("orders", MEMBERS[0], 3)
    return [
        line(n, synthetic.probe_line(n) if ms % 500 == 0 else heartbeat, NOW_MS + ms, partition=partition)
        for n, ms in enumerate(times)
    ]


@pytest.mark.parametrize("cut", [1, 150, 250, 300, 301, 310, 399])
def test_the_last_line_before_a_hole_moves_every_shard_wherever_a_batch_ends(tmp_path, cut):
    rows = a_hole(2_990, 23_500)
    events = [event for row in rows for event in parse_row(row)]
    other = next(key for key in ROUTING.all_keys() if key != ROUTING.key_of("orders"))
    read = [dict(packed(tmp_path, arrow(*part)))[other] for part in (rows[:cut], rows[cut:])]
    live, replayed = ([tick for tick in ticks if tick.broker] for ticks in (unpacked(read), _ticks(events, set())))
    for ticks in (live, replayed):
        assert max(tick.order_ms for tick in ticks if tick.order_ms < NOW_MS + 23_500) == NOW_MS + 2_990
        assert max(tick.order_ms for tick in ticks) == NOW_MS + 24_490
        assert len({tick.order_ms for tick in ticks}) == len(ticks) < 50


UNREADABLE = [b"", b"Completed request:{", synthetic.probe_line(1).replace(b"LIST_GROUPS", b"METADATA")]


def coordinator_line(offset, text, shard):
    return line(offset, f"[GroupCoordinator id=1 topic=__consumer_offsets partition={shard}] {text}".encode())


FAILED = "Member m-1 in group orders has failed, removing it from the group."


def test_a_line_of_the_coordinators_own_log_goes_to_its_group_and_moves_no_clock(tmp_path):
    row = coordinator_line(0, FAILED, shard_of("orders", 50))
    told = {key: unpacked([payload]) for key, payload in packed(tmp_path, arrow(row))}
    assert [event for events in told.values() for event in events] == parse_row(row)
    assert told[ROUTING.key_of("orders")] == parse_row(row)


def test_a_load_of_a_partition_goes_to_all_its_keys(tmp_path):
    row = line(0, b"[GroupCoordinator id=1] Finished unloading metadata for __consumer_offsets-7 with epoch 3.")
    payloads = packed(tmp_path, arrow(row), routing=Routing(50, split=2))
    assert {key for key, payload in payloads if unpacked([payload])} == {"007.0", "007.1"}


def test_a_gap_before_a_coordinator_line_is_told_by_the_next_tick(tmp_path):
    """The coordinator's line, of offset 7, moves no clock; the request log's next, of offset 8, tells of the loss."""
    heartbeats = [line(n, synthetic.heartbeat_line("orders", MEMBERS[0], 3), NOW_MS + n) for n in (0, 8, 9)]
    rows = [heartbeats[0], coordinator_line(7, FAILED, 3), *heartbeats[1:]]
    ticks = [e for e in unpacked([dict(packed(tmp_path, arrow(*rows)))["000"]]) if isinstance(e, Tick)]
    assert [tick.offset for tick in ticks if tick.lost] == [8]


@pytest.mark.parametrize("value", UNREADABLE, ids=["empty", "unreadable", "of no group"])
@pytest.mark.parametrize("others", [[], [30_000]], ids=["alone", "before a later line that is no heartbeat"])
def test_a_hole_ends_with_a_brokers_first_line_whatever_it_says(tmp_path, value, others):
    """Else a session that ran out in the hole is due later because of a line of another group (fuzz seed 1132)."""
    rows = a_hole(2_990, 23_500)
    rows[300] = rows[300]._replace(value=value, timestamp_ms=NOW_MS + 23_495)
    rows += [line(len(rows), synthetic.probe_line(99), NOW_MS + ms) for ms in others]
    other = next(key for key in ROUTING.all_keys() if key != ROUTING.key_of("orders"))
    live = [tick.order_ms - NOW_MS for tick in unpacked([dict(packed(tmp_path, arrow(*rows)))[other]])]
    reading = _read(rows)
    replayed = [tick.order_ms - NOW_MS for tick in _ticks(reading.events, set(), reading.mute)]
    for ticks in (live, replayed):
        assert min(ms for ms in ticks if ms > 2_990) == 23_495


@pytest.mark.parametrize("value", UNREADABLE, ids=["empty", "unreadable", "of no group"])
def test_a_broker_of_which_nothing_can_be_read_stands_still(tmp_path, value):
    """`telemetry-stalled` has to say that nobody can be judged by its lines."""
    rows = [*a_hole(2_990, 23_500)[:300], *(line(n, value, NOW_MS + 10 * n) for n in range(300, 900))]
    other = next(key for key in ROUTING.all_keys() if key != ROUTING.key_of("orders"))
    live = [tick.order_ms - NOW_MS for tick in unpacked([dict(packed(tmp_path, arrow(*rows)))[other]])]
    reading = _read(rows)
    replayed = [tick.order_ms - NOW_MS for tick in _ticks(reading.events, set(), reading.mute)]
    assert max(live) == max(replayed)
    assert 2_990 <= max(live) < 2_990 + HOLE_MS


def test_what_names_no_broker_or_is_no_brokers_line_moves_no_clock(tmp_path):
    (tmp_path / "live-keys.json").write_text('["007"]')
    report = b'{"group_monitor_reporter":1'
    silent = [line(0, b"x", broker=None), line(1, b"x", broker=b"b" * 300), line(2, None), line(3, report)]
    rows = dict(packed(tmp_path, arrow(*silent)))
    assert len(rejected_in(unpack([rows[QUARANTINE_KEY]]))) == 4
    assert unpacked([rows["007"]]) == []


@pytest.mark.parametrize("late", [False, True], ids=["in order", "late, behind newer lines"])
def test_both_ends_of_a_hole_are_ticks_beside_other_lines_of_its_broker(tmp_path, late):
    """Heartbeats are found first, by columns, and other lines one by one: neither may hide what the other tells."""
    beats = [(ms, synthetic.heartbeat_line("orders", MEMBERS[0], 3)) for ms in (0, 10, 2_990, 5_980, 6_000, 6_400)]
    joins = [(ms, synthetic.join_line("orders", MEMBERS[0], 4, MEMBERS, 12)) for ms in (8_000, 8_100)]
    told = [*joins, *beats] if late else sorted([*beats, *joins])
    rows = [line(0, beats[0][1]), *(line(n, value, NOW_MS + ms) for n, (ms, value) in enumerate(told, 1))]
    other = next(key for key in ROUTING.all_keys() if key != ROUTING.key_of("orders"))
    ticks = {tick.order_ms - NOW_MS for tick in unpacked([dict(packed(tmp_path, arrow(*rows)))[other]])}
    assert ticks == {0, 10, 2_990, 5_980, 6_400, 8_000, 8_100}


def test_the_newest_line_of_each_partition_moves_the_other_shards(tmp_path):
    rows = [*a_hole(500, 1_000), *a_hole(400, 1_000, partition=1)[:-3]]
    other = next(key for key in ROUTING.all_keys() if key != ROUTING.key_of("orders"))
    ticks = unpacked([dict(packed(tmp_path, arrow(*rows)))[other]])
    newest_ms = {n: max(tick.order_ms for tick in ticks if tick.partition == n) - NOW_MS for n in (0, 1)}
    assert newest_ms == {0: 1_990, 1: 1_960}


@pytest.mark.parametrize(
    "value", [b"", b"Completed request:{", b"\xff\xfe", b"Completed request:RequestHeader(apiKey=HEARTBEAT)"]
)
def test_what_cannot_be_read_travels_beside_the_rest(tmp_path, value):
    rows = dict(packed(tmp_path, arrow(line(0, value), ROWS[1]._replace(offset=1))))
    (rejected,) = rejected_in(unpack([rows[QUARANTINE_KEY]]))
    assert isinstance(rejected, RejectedRow)
    assert (rejected.topic, rejected.partition, rejected.offset, rejected.head) == ("lines", 0, 0, value)
    assert any(isinstance(event, Heartbeat) for event in unpacked([rows[ROUTING.key_of("orders")]]))


def test_a_record_belongs_to_the_shard_it_lies_in():
    """Partitions added later leave old records where they were."""
    packer = Packer(ROUTING, ())
    for event in parse_row(record("orders", partition=7)):
        packer.add(event)
    assert [key for key, _ in packer.rows()] == ["007"]


@pytest.mark.parametrize("group", ["a/b", "17", "17.2", "quarantine", "", "ü\x00\U0001f600", "x" * 300])
@pytest.mark.parametrize("routing", [Routing(50), Routing(50, split=4), Routing(50, "group")])
def test_a_key_tells_its_shard_whatever_the_group_is_called(group, routing):
    key = routing.key_of(group)
    assert shard_of_key(key) == shard_of(group, 50)
    assert key != QUARANTINE_KEY
    if routing.operator_key == "shard":
        assert key in routing.all_keys()


@pytest.mark.parametrize("split", [1, 4])
def test_shards_are_dealt_out_to_the_lanes_evenly(split):
    routing = Routing(50, split=split, lanes=("a", "b", "c"))
    lane_of = routing.lane_of_keys()
    assert lane_of.keys() == {*routing.all_keys(), QUARANTINE_KEY}
    dealt = Counter(lane_of[key] for key in routing.all_keys())
    assert dealt.keys() == {"a", "b", "c"}
    assert max(dealt.values()) - min(dealt.values()) <= 1


def test_a_row_names_its_lane_and_a_group_as_key_is_one_by_itself(tmp_path):
    for routing in (Routing(50, lanes=("a", "b")), Routing(50, "group", lanes=("a", "b"))):
        stage = PackRows(routing, "records", tmp_path / "live-keys.json")
        rows = [row for out in stage(iter([arrow(line(9, b"x"), *ROWS)])) for row in out.to_pylist()]
        lane_of = routing.lane_of_keys()
        assert {row["key"] for row in rows} >= {routing.key_of("orders"), QUARANTINE_KEY}
        assert all(row["lane"] == lane_of.get(row["key"], row["key"]) for row in rows)
        assert {row["lane"] for row in rows} <= ({"a", "b"} if lane_of else {row["key"] for row in rows})


def test_ticks_go_to_the_keys_that_hold_groups_once_these_are_known(tmp_path):
    (tmp_path / "live-keys.json").write_text('["3", "9"]')
    beat = line(1, synthetic.heartbeat_line("orders", MEMBERS[0], 3))
    rows = dict(packed(tmp_path, arrow(line(0, synthetic.probe_line(5)), beat)))
    assert set(rows) == {"3", "9", ROUTING.key_of("orders")}
    assert all(any(isinstance(event, Tick) for event in unpacked([payload])) for payload in rows.values())


def test_a_commit_that_was_parsed_travels_as_a_block_and_leaves_nothing_behind():
    packer = Packer(ROUTING, ())
    [event] = parse_row(SourceRow("offsets", "records", 7, 3, NOW_MS, encoder.commit_key("g", "t", 0), None))
    packer.add(event)
    assert packer
    [(key, payload)] = packer.rows()
    assert (key, unpacked([payload])) == ("007", [])
    assert [commit_block(block) for block in commits_in(unpack([payload]))] == [CommitBlock.of_events([event])]
    assert not packer


def test_payloads_hold_plain_values_only():
    """`marshal` cannot write a named tuple, and must never have to read one."""
    packer = Packer(ROUTING, ())
    for row in ROWS:
        for event in parse_row(row):
            packer.add(event)
    for _, payload in packer.rows():
        packed = marshal.loads(payload)  # noqa: S302 # written above
        assert {type(value) for rows in packed.values() for value in rows} <= {tuple, list, bytes, int}
        assert unpacked([payload])


def test_the_topic_decides_who_is_believed(tmp_path):
    """Every application may write into the topic of reports, and nobody but brokers into the others."""
    report = (
        b'{"group_monitor_reporter":1,"group":"orders","member_id":"m","instance_id":null,"client_id":"c",'
        b'"poll_age_ms":1,"max_poll_interval_ms":2}'
    )
    values = [synthetic.heartbeat_line("orders", MEMBERS[0], 3), report]
    rows = [line(n, value)._replace(topic=topic) for topic in ("lines", "reports") for n, value in enumerate(values)]
    stage = PackRows(ROUTING, "records", tmp_path / "live-keys.json", {"reports": REPORTS})
    read = {row["key"]: row["payload"] for out in stage(iter([arrow(*rows)])) for row in out.to_pylist()}
    kept = {(type(event), event.topic, event.offset) for event in unpacked([read[ROUTING.key_of("orders")]])}
    assert kept - {(Tick, "lines", 0)} == {(Heartbeat, "lines", 0), (ClientPoll, "reports", 1)}
    refused = [(bad.source, bad.topic, bad.offset) for bad in rejected_in(unpack([read[QUARANTINE_KEY]]))]
    assert sorted(refused) == [("reports", "reports", 0), ("telemetry", "lines", 1)]


def test_a_row_whose_event_cannot_be_packed_is_rejected_and_its_neighbours_are_not(tmp_path, monkeypatch):
    whole = Packer.add

    def fails(packer, event, *, lost=False):
        if event.group == "billing":
            raise KeyError("billing")
        whole(packer, event, lost=lost)

    monkeypatch.setattr(Packer, "add", fails)
    read = dict(packed(tmp_path, arrow(record("orders"), record("billing"), record("orders", 1))))
    [bad] = rejected_in(unpack([read[QUARANTINE_KEY]]))
    assert (bad.source, bad.partition, bad.reason) == ("offsets", shard_of("billing", 50), "failed: KeyError")
    assert len(unpacked([read[ROUTING.key_of("orders")]])) == 2


def test_every_record_is_counted_by_type_version_and_outcome(tmp_path):
    """Other monitors break at a new version of a record, or log it as noise without a count."""
    read = record("orders")
    rows = [
        read,
        read._replace(offset=1),
        read._replace(offset=2, value=None),
        read._replace(offset=3, value=b"\0\x63"),
        read._replace(offset=4, value=read.value[:-1]),
        read._replace(offset=5, key=b"\0\x63\0\1g"),
        read._replace(offset=6, key=b"\0\x64\0\1g"),
        read._replace(offset=7, key=None),
        line(0, b"not a record"),
    ]
    assert decoded_in(unpack(payload for _, payload in packed(tmp_path, arrow(*rows)))) == {
        "GroupMetadata:3:decoded": 2,
        "GroupMetadata::tombstone": 1,
        "GroupMetadata:unknown:unknown-version": 1,
        "GroupMetadata:3:malformed": 1,
        "unknown::unknown-type": 2,
        "::no-key": 1,
    }


def test_records_that_nobody_needs_are_counted_too(tmp_path):
    """A commit of the group "" is no event, so there is no row that could carry its count."""
    nameless = SourceRow("offsets", "records", 0, 0, NOW_MS, b"\0\1\0\0\0\1t\0\0\0\5", None)
    assert decoded_in(unpack(payload for _, payload in packed(tmp_path, arrow(nameless)))) == {
        "OffsetCommit::tombstone": 1
    }


@pytest.mark.parametrize("length", [0, 1, 256, 257, 1_000, 32_767, 40_000])
@pytest.mark.parametrize("character", ["x", "\u00e9", "\U0001f480", "\ud800", "\0", "\uffff"])
def test_a_long_id_lies_where_the_core_says(length, character):
    for group in (character * length, "g" + character * length, character * length + "x1"):
        assert Routing(50).key_of(group) == f"{shard_of(group, 50):03}"


def test_ids_of_32_kb_are_routed_as_fast_as_they_are_sent():
    """2,000 refused requests a second, each with another id: Python took 5 ms for each, and kept the id."""
    sharding._remembered.cache_clear()
    ids = [f"{number}" + "x" * 32_000 for number in range(500)]
    started_s = time.process_time()
    for group in ids:
        Routing(50).key_of(group)
    assert time.process_time() - started_s < 500 / 2_000
    assert sharding._remembered.cache_info().currsize == 0


def test_run_reads_what_clients_push_as_replay_does(tmp_path):
    """And a push moves its broker's clock."""
    pushes = [stable("m1").pushes(0, "m1", 7).rows[-1][2].value, stable("m1").pushes(0, "m1", -7).rows[-1][2].value]
    rows = [line(offset, value, NOW_MS + 1_000 * offset) for offset, value in enumerate(pushes)]
    reader = RowParser(read_metrics=read_metrics)
    [event], rejected = map(reader.read, rows)
    payloads = dict(packed(tmp_path, arrow(*rows), read_metrics=read_metrics))
    assert rejected_in(unpack([payloads.pop(QUARANTINE_KEY)])) == [rejected]
    events = unpacked([payloads[ROUTING.key_of(event.group)]])
    assert [told for told in events if isinstance(told, MetricsPushed)] == [event]
    assert [told.order_ms for told in events if isinstance(told, Tick)] == [NOW_MS]

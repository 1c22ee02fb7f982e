"""Who leads what, asked of brokers, and which telemetry key is which of them."""

import json

import pytest

from coordinator_model.decode.cluster_row import read_cluster_row
from coordinator_model.decode.parse import SourceRow, parse_row
from coordinator_model.decode.telemetry.fields import LATEST_MS
from coordinator_model.events import LeaderNamed
from coordinator_model.shard.shard import ShardSettings
from streaming.capture.file import open_text, read_rows
from streaming.capture.recorder import Recording
from streaming.config.kafka import Kafka
from streaming.config.settings import Settings
from streaming.run.cluster_file import ClusterFile
from streaming.run.cluster_watch import ClusterWatch, leaders_of
from streaming.run.operator import Operator
from streaming.run.packing import MAX_ASKED, Packer, Routing, asked_in, unpack
from streaming.run.probe import Probe, remembered_nonce
from streaming.run.sink import Sink
from streaming.run.source import PackRows
from tests.streaming.run.events_of import unpacked
from tests.streaming.run.test_packing import arrow
from tests.support.memory_cell import MemoryCell
from tests.support.request_log import line
from tests.support.waiting import await_true

NONCE = "0123456789abcdef"
ROUTING = Routing(3)


class Told:
    """Stands for the watch: what the sink hands on."""

    def __init__(self):
        self.keys, self.doubts = {}, 0

    def heard(self, asked, key):
        self.keys[asked] = key

    def doubt(self):
        self.doubts += 1


def probe_row(asked, broker=b"broker-2", number=7, client="group-monitor-probe"):
    states = [f"probe-{number}", f"asked-{asked}"]
    value = line("LIST_GROUPS", {"statesFilter": states}, {"errorCode": 0, "groups": []}, client=client)
    return SourceRow("telemetry", "lines", 0, number, 1_790_000_000_000, broker, value.encode())


def watch(**how):
    return ClusterWatch({}, "offsets", NONCE, print, **how)


def test_the_line_of_a_probe_names_the_broker_that_it_asked():
    known = watch()
    [tick] = parse_row(probe_row(f"{NONCE}-2"))
    known.heard(tick.asked, tick.broker)
    assert known._keys == {2: "broker-2"}


@pytest.mark.parametrize(
    "asked", ["", "2", "-2", "fedcba9876543210-2", f"{NONCE}-", f"{NONCE}-x", f"{NONCE}-²", f"{NONCE}-{'9' * 5_000}"]
)
def test_a_strangers_probe_names_nobody(asked):
    known = watch()
    known.heard(asked, "broker-2")
    assert known._keys == {}


def test_a_probes_question_is_read_up_to_a_bound():
    [tick] = parse_row(probe_row("x" * 10_000))
    assert (tick.asked, tick.probe) == ("", 7)


class Admin:
    """Answers as kafka-python's admin client does."""

    def describe_cluster(self):
        return {"brokers": [{"broker_id": node, "host": f"host-{node}", "port": 9092} for node in (1, 2, 3)]}

    def describe_topics(self, names):
        leaders = ((2, 3, 9), (0, 1, 7), (1, -1, -1))
        partitions = [{"partition_index": n, "leader_id": node, "leader_epoch": epoch} for n, node, epoch in leaders]
        return [{"name": names[0], "partitions": partitions}]


def test_a_row_is_one_that_the_core_reads():
    row = watch(keys={1: "broker-1"})._row(Admin())
    read = read_cluster_row(json.dumps(row).encode())
    assert (read.leaders, read.keys) == ((1, None, 3), {1: "broker-1", 2: None, 3: None})
    assert read.leader_epochs == (7, None, 9)


def test_a_key_that_two_nodes_share_names_neither():
    row = watch(keys={1: "kafka", 2: "kafka", 3: "broker-3"})._row(Admin())
    assert [row["brokers"][node]["key"] for node in ("1", "2", "3")] == [None, None, "broker-3"]


def test_a_topic_that_does_not_exist_has_no_leaders():
    assert leaders_of({"name": "offsets", "error_code": 3, "partitions": []}) == []


def test_the_file_keeps_keys_for_the_next_run_and_survives_whatever_lies_there(tmp_path):
    file = ClusterFile(tmp_path / "not yet" / "cluster.json")
    assert (file.read(), file.keys()) == (None, {})
    file.write(watch(keys={1: "broker-1"})._row(Admin()))
    assert file.keys() == {1: "broker-1"}
    for text in ("", "[]", '{"brokers": [1]}', '{"brokers": {"x": {"key": "a"}}}', '{"brokers": {"1": 7}}', "\x00"):
        (tmp_path / "not yet" / "cluster.json").write_text(text)
        assert file.keys() == {}


# ------------------------------------------------------------------------------------------------ through the job

ROW = {"timestamp_ms": 5, "leaders": [1, 2, None], "brokers": {"1": {"key": "a"}, "2": {"key": "b"}}}
WAKING = SourceRow("", "", 0, 0, 0, b"", b"")


def packed(tmp_path, text, *rows):
    file = tmp_path / "cluster.json"
    if text is not None:
        file.write_text(text)
    stage = PackRows(ROUTING, "records", tmp_path / "live-keys.json", cluster_file=file)
    columns = [
        pair
        for out in stage(iter([arrow(WAKING, *rows)]))
        for pair in zip(out.column("key").to_pylist(), out.column("payload").to_pylist(), strict=True)
    ]
    return {key: [event for event in unpacked([payload]) if isinstance(event, LeaderNamed)] for key, payload in columns}


def test_every_shard_is_told_its_leader_in_each_batch(tmp_path):
    told = packed(tmp_path, json.dumps(ROW))
    assert {key: [(e.node, e.key, e.others) for e in events] for key, events in told.items()} == {
        "000": [(1, "a", ("b",))],
        "001": [(2, "b", ("a",))],
        "002": [],
    }


@pytest.mark.parametrize("text", [None, "", "{}", '{"timestamp_ms": 5, "leaders": "x"}', "{" * 100_000])
def test_without_metadata_that_can_be_read_nobody_is_told_and_nothing_ends(tmp_path, text):
    assert set(map(tuple, packed(tmp_path, text).values())) == {()}


def test_what_probes_asked_travels_once_and_not_with_every_tick():
    packer = Packer(Routing(50), ())
    for number in range(200):
        [tick] = parse_row(probe_row(f"{NONCE}-{number}", number=number))
        packer.add(tick)
    rows = [unpack([payload]) for _, payload in packer.rows()]
    assert len(asked_in(rows[0])) == MAX_ASKED
    assert all(not event.asked for _, payload in packer.rows() for event in unpacked([payload]))


def ticks_of(packer):
    return [event for _, payload in packer.rows() for event in unpacked([payload])]


FORGED = ("", f"{'0' * 16}-1", f"{NONCE}", f"-{NONCE}", f"x{NONCE}-1", f"{NONCE}-1-1")


@pytest.mark.parametrize("asked", FORGED)
def test_a_strangers_probe_proves_no_lost_lines_and_is_no_tick_by_itself(asked):
    """Anybody may call itself as the probe does: a number that jumps would begin every session anew."""
    packer = Packer(Routing(50), ("001",), nonce=NONCE)
    for number in range(400):
        [tick] = parse_row(probe_row(asked, number=7_000 * number))
        packer.add(tick)
    ticks = ticks_of(packer)
    assert {tick.probe for tick in ticks} == {None}
    assert len(ticks) <= 2  # all within an instant: the first and the newest


def test_the_monitors_own_probe_counts_and_says_whom_it_asked():
    packer = Packer(Routing(50), ("001",), nonce=NONCE)
    [tick] = parse_row(probe_row(f"{NONCE}-2", number=17))
    packer.add(tick)
    rows = [unpack([payload]) for _, payload in packer.rows()]
    assert asked_in(rows[0]) == {f"{NONCE}-2": tick.broker}
    packer.add(tick)
    assert [tick.probe for tick in ticks_of(packer)] == [17]


def test_the_probes_nonce_outlives_a_restart_and_a_file_that_cannot_be_read_does_not(tmp_path):
    """Lines that a probe caused before the restart are read after it."""
    file = tmp_path / "probe-nonce"
    nonce = remembered_nonce(file)
    assert remembered_nonce(file) == Probe({}, nonce=nonce).nonce == nonce
    for text in ("", nonce.upper() + "G", nonce + nonce, "ü"):
        file.write_text(text, encoding="utf-8")
        assert remembered_nonce(file) not in {nonce, text}
    assert len(remembered_nonce(tmp_path / "nowhere" / "probe-nonce")) == len(nonce)


def test_the_operator_hands_on_what_probes_asked_and_the_sink_takes_it_out(tmp_path):
    packer = Packer(Routing(50), ("001",))
    packer.include_all_keys()
    [tick] = parse_row(probe_row(f"{NONCE}-2"))
    packer.add(tick)
    import pandas as pd

    rows = pd.DataFrame([(key, payload) for key, payload in packer.rows()], columns=["key", "payload"])
    [frame] = Operator(ShardSettings("c", 50, 0))(("lane",), [rows], MemoryCell())
    outputs = [output for text in frame["outputs"] for output in json.loads(text)]
    assert [output["keys"] for output in outputs if output["kind"] == "asked"] == [{f"{NONCE}-2": "broker-2"}]
    told = Told()
    sink = Sink(None, Settings(), "c", -1, None, None, told, None, None, None, None)
    assert [output["kind"] for output in outputs if not sink._of_metadata(output)] == ["progress"]
    assert (told.keys, told.doubts) == ({f"{NONCE}-2": "broker-2"}, 0)
    assert not sink._of_metadata({"kind": "progress", "counts": {"disputed": 1}})
    assert told.doubts == 1


# ------------------------------------------------------------------------------------------------ on brokers


@pytest.mark.e2e
def test_a_capture_learns_the_brokers_keys_and_new_leaders(three_brokers, tmp_path):
    """One of three brokers dies: the rows of the capture tell who leads, before and after."""
    three_brokers.create_topic("offsets", partitions=6)
    kafka = Kafka(bootstrap_servers=three_brokers.bootstrap_servers, offsets_topic="offsets")
    out = tmp_path / "capture.jsonl"

    def rows():
        with open_text(out) as lines:
            read = [row for row in read_rows(lines) if isinstance(row, SourceRow)]
        return [json.loads(row.value) for row in read if row.source == "cluster"]

    def keys(row):
        return {node: facts["key"] for node, facts in row["brokers"].items()}

    recording = Recording(kafka, out, from_beginning=False, probing=True)
    recording.start()
    expected = {"1": "broker-1", "2": "broker-2", "3": "broker-3"}
    await_true(out.exists, "no capture")
    await_true(lambda: rows() and keys(rows()[-1]) == expected, "the keys were not learned")
    first = rows()[0]
    assert set(first["leaders"]) == {1, 2, 3}
    assert first["session_timeouts_ms"]["consumer"] == {"": 45_000}
    assert first["topic_partitions"]["group-telemetry"] >= 1
    three_brokers.node(3).kill()
    try:
        await_true(lambda: set(rows()[-1]["leaders"]) == {1, 2}, "the new leaders were not asked for")
    finally:
        three_brokers.node(3).start()
    assert recording.finish()
    assert all(0 < row["timestamp_ms"] < LATEST_MS for row in rows())


@pytest.mark.e2e
def test_a_broker_that_stops_answering_the_probe_is_silent(broker):
    client = {"bootstrap_servers": [broker.bootstrap_servers]}
    with Probe(client, interval_ms=100) as probe:
        await_true(lambda: probe.brokers and probe.brokers[1].answers, "no answer")
        assert probe.silent() == frozenset()
        broker.node(1).pause()
        try:
            await_true(lambda: probe.silent() == {1}, "its silence was not noticed")
        finally:
            broker.node(1).resume()
        await_true(lambda: probe.silent() == frozenset(), "its return was not noticed")

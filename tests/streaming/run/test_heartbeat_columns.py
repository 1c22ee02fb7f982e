"""Heartbeats read by columns are what the parser reads, line by line; what is not plainly known is left to it."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_model.decode.parse import RejectedRow, parse_row
from coordinator_model.decode.source_row import TELEMETRY, SourceRow
from coordinator_model.decode.telemetry import heartbeats
from coordinator_model.events import Heartbeat, Tick
from streaming.run import source
from streaming.run.heartbeat_columns import HeartbeatColumns
from streaming.run.packing import QUARANTINE_KEY, Routing, heartbeats_in, rejected_in, unpack
from streaming.run.partition_rows import partition_rows_of
from streaming.run.source import PackRows
from tests.streaming.run.events_of import unpacked
from tests.support.request_log import heartbeat_line, line
from tests.support.story import T0

TOPIC = "group-telemetry"
ROUTING = Routing(50)
KIP848 = line(
    "CONSUMER_GROUP_HEARTBEAT",
    {"groupId": "modern", "memberId": "m8", "memberEpoch": 4, "instanceId": None, "rebalanceTimeoutMs": -1},
    {"throttleTimeMs": 0, "errorCode": 0, "memberId": "m8", "memberEpoch": 4, "heartbeatIntervalMs": 3000},
)


def row(value, offset=0, key=b"broker-1", at_ms=T0, partition=0):
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return SourceRow(TELEMETRY, TOPIC, partition, offset, at_ms, key, raw)


def arrow(rows):
    names = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp_ms": pa.int64(),
             "key": pa.binary(), "value": pa.binary()}  # fmt: skip
    columns = zip(*(each[1:] for each in rows), strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, names.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def by_columns(known, rows):
    """The heartbeats found in rows of one partition, by offset."""
    [run] = partition_rows_of(arrow(rows))
    return {beat.offset: beat for _, block in known.take([known.find(run)]).blocks for beat in block.rows()}


def learned(*rows):
    known = HeartbeatColumns(ROUTING)
    for each in rows:
        events = parse_row(each)
        if not isinstance(events, RejectedRow):
            known.learn(each, events)
    return known


def agree(known, rows):
    for each in by_columns(known, rows).values():
        assert [each] == parse_row(rows[each.offset])


@pytest.mark.parametrize("made", [heartbeat_line(group='a"b', member="é"), heartbeat_line(error=27), KIP848])
def test_a_known_heartbeat_is_read_by_columns_whatever_its_times(made):
    def later(n):
        changed = made.replace('"correlationId":7', f'"correlationId":{n}')
        return row(changed.replace('"totalTimeMs":0.5', f'"totalTimeMs":{n}.75'), offset=n, at_ms=T0 + 10 * n)

    first, later = row(made), [later(n) for n in range(20)]
    found = by_columns(learned(first), later)
    assert [[found[n]] for n in range(20)] == [parse_row(each) for each in later]


def test_what_the_record_key_says_is_part_of_what_is_known():
    made = heartbeat_line()
    known = learned(row(made))
    rows = [row(made, 0, b"broker-1"), row(made, 1, b"broker-2"), row(made, 2, None), row(made, 3, b"")]
    assert list(by_columns(known, rows)) == [0]
    known.learn(rows[2], parse_row(rows[2]))
    found = by_columns(known, rows)
    assert {n: beat.broker for n, beat in found.items()} == {2: "127.0.0.1:9092", 3: "127.0.0.1:9092"}


SPLICES = [b"", b'"', b"\\", b"{", b"}", b",", b"0", b"00", b"-", b".", b"E9", b"\xff", b"\n", b"\0", b" ", b"+1",
           "٣".encode(), b"[", b'"x":1,', b',"totalTimeMs":2.0', b',"sendTimeMs":9.0', b',"clientId":"x"',
           b'"correlationId":9,', b',"securityProtocol":""']  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_mutation_of_a_line_is_read_otherwise_than_by_the_parser(data):
    """Whatever line was learned, whatever line comes: by columns and by the parser it is the same heartbeat."""

    def mutated(raw):
        for _ in range(data.draw(st.integers(0, 3))):
            start = data.draw(st.integers(0, len(raw)))
            raw = raw[:start] + data.draw(st.sampled_from(SPLICES)) + raw[start + data.draw(st.integers(0, 3)) :]
        return raw

    plain = heartbeat_line(total_ms=9.5, remote_ms=2.25).encode()
    first = mutated(plain)
    later = first.replace(b"9.5", b"12.25").replace(b'Id":7', b'Id":8')
    rows = [row(value, n) for n, value in enumerate((first, later, mutated(later), mutated(first), plain, None))]
    agree(learned(rows[0], rows[4]), rows)


@pytest.mark.parametrize("at_ms", [-1, -(2**62), 2**53, 2**62])
def test_an_instant_out_of_range_is_left_to_the_parser(at_ms):
    made = heartbeat_line()
    assert by_columns(learned(row(made)), [row(made, at_ms=at_ms)]) == {}


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(heartbeats, "MAX_MEMBERS", 10)
    rows = [row(heartbeat_line(member=f"m{n}"), n) for n in range(25)]
    assert sorted(by_columns(learned(*rows), rows)) == [20, 21, 22, 23, 24]


def test_what_is_remembered_is_bounded_in_bytes_for_an_id_may_be_32_kb_long(monkeypatch):
    monkeypatch.setattr(heartbeats, "MAX_BYTES", 40_000)
    rows = [row(heartbeat_line(member=f"{n}" * 7_000), n) for n in range(8)]
    known = learned(*rows)
    assert 0 < len(by_columns(known, rows)) <= 40_000 // 7_000
    assert by_columns(learned(long := row(heartbeat_line(member="m" * 30_000))), [long]) == {}


@pytest.mark.parametrize("error", [14, 15, 16, 22, 25, 30, 82])
def test_a_refused_heartbeat_is_not_remembered(error):
    """A stranger can send as many as it likes."""
    refused = row(heartbeat_line(error=error))
    assert by_columns(learned(refused), [refused]) == {}


def dated(line, n):
    return f"[2026-11-21 01:00:{n:02},00{n % 10}] DEBUG {line} (kafka.request.logger)"


DATED_MS = 1_795_222_800_000


@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: json.dumps({"message": text})], ids=["", "wrapped"])
def test_shipped_lines_have_the_same_instants_by_columns_as_read_with_care(wrap, monkeypatch, tmp_path):
    """Their record's timestamp is the shipper's, three seconds later; one line is bare, one is in the wrong zone."""
    lines = [wrap(dated(heartbeat_line(member=f"m{n % 3}"), n)) for n in range(12)]
    rows = [row(line, n)._replace(timestamp_ms=DATED_MS + n * 1_000 + 3_000) for n, line in enumerate(lines)]
    rows[5] = row(heartbeat_line(member="m2"), 5)._replace(timestamp_ms=DATED_MS + 5_005)
    rows[7] = rows[7]._replace(timestamp_ms=DATED_MS + 3_600_000)
    pack = PackRows(ROUTING, "__consumer_offsets", tmp_path / "live-keys.json")
    monkeypatch.setattr(source, "_known", {})
    first, again = packed(pack, arrow(rows)), packed(pack, arrow(rows))
    expected = sorted(event for each in rows if isinstance(events := parse_row(each), list) for event in events)
    for made in (first, again):
        found = sorted(
            e for key in made if key != QUARANTINE_KEY for e in unpacked([made[key]]) if type(e) is Heartbeat
        )
        assert found == expected
        assert [each.offset for each in rejected_in(unpack([made[QUARANTINE_KEY]]))] == [7]
    assert [beat.order_ms - DATED_MS for beat in expected] == [n * 1_000 + n % 10 for n in range(12) if n != 7]
    assert sum(block.length for block in heartbeats_in(unpack(again.values()))) == 11


@pytest.mark.parametrize("fails", ["find", "take"])
def test_lines_that_cannot_be_read_by_columns_are_read_one_by_one(fails, monkeypatch, tmp_path):
    """A fault there costs time, not lines: the parser says of each row what is wrong with it, or nothing is."""
    batch = arrow([row(heartbeat_line(member=f"m{n % 3}"), n) for n in range(9)] + [row("noise", 9)])
    pack = PackRows(ROUTING, "__consumer_offsets", tmp_path / "live-keys.json")
    monkeypatch.setattr(source, "_known", {})
    packed(pack, batch)  # learns them
    known = packed(pack, batch)
    whole, calls = getattr(HeartbeatColumns, fails), []

    def once_broken(columns, what):
        calls.append(what)
        if len(calls) == 1:
            raise OverflowError
        return whole(columns, what)

    monkeypatch.setattr(HeartbeatColumns, fails, once_broken)
    read = packed(pack, batch)
    assert calls
    assert [sorted(unpacked([read[key]])) for key in read if key != QUARANTINE_KEY] == [
        sorted(unpacked([known[key]])) for key in known if key != QUARANTINE_KEY
    ]
    assert rejected_in(unpack([read[QUARANTINE_KEY]])) == rejected_in(unpack([known[QUARANTINE_KEY]]))


def packed(pack, *batches):
    return {row["key"]: row["payload"] for made in pack(iter(batches)) for row in made.to_pylist()}


def mixed_rows():
    """Heartbeats of many groups and brokers, probes, joins and garbage, in partitions and out of order."""
    chance = random.Random(5)
    rows = []
    for offset in range(400):
        broker, group = chance.randrange(3), f"g{chance.randrange(40)}"
        made = chance.choice([
            heartbeat_line(group, f"m{chance.randrange(5)}", error=chance.choice([0, 0, 0, 27])),
            heartbeat_line(group, "m1", total_ms=chance.random() * 9_000),
            line("LEAVE_GROUP", {"groupId": group, "members": [{"memberId": "m", "groupInstanceId": None}]},
                 {"errorCode": 0, "members": []}),
            "garbage",
        ])  # fmt: skip
        rows.append(row(made, offset + (offset > 300), f"b{broker}".encode(), T0 + offset * 7, partition=broker))
    rows.sort(key=lambda each: (each.partition, each.offset))
    return rows


def test_a_mixed_batch_is_packed_alike_whether_its_heartbeats_are_known_or_not(tmp_path: Path):
    pack = PackRows(Routing(50, split=2), "__consumer_offsets", tmp_path / "live-keys.json")
    unknown, known = (packed(pack, arrow(mixed_rows())) for _ in range(2))
    assert unknown.keys() == known.keys()
    assert rejected_in(unpack([unknown[QUARANTINE_KEY]])) == rejected_in(unpack([known.pop(QUARANTINE_KEY)]))
    for key, payload in known.items():
        told = [sorted(e for e in unpacked([each]) if not isinstance(e, Tick)) for each in (unknown[key], payload)]
        assert told[0] == told[1]
    assert sum(isinstance(e, Heartbeat) for payload in known.values() for e in unpacked([payload])) > 100


@pytest.mark.parametrize("size", [1, 7, 150, 394])
def test_lines_that_come_in_pieces_are_packed_as_if_they_had_come_at_once(tmp_path: Path, monkeypatch, size):
    """Also those before which lines are missing, or after which a broker was silent, at the end of a piece."""
    rows = mixed_rows()
    del rows[70:75]
    rows = [each._replace(timestamp_ms=each.timestamp_ms + 9_000 * (each.offset > 140)) for each in rows]
    whole, pieces = [arrow(rows)], [arrow(rows[start : start + size]) for start in range(0, len(rows), size)]
    told = []
    for batches in (whole, pieces):
        monkeypatch.setattr(source, "_known", {})
        pack = PackRows(Routing(50), "__consumer_offsets", tmp_path / "live-keys.json")
        packed(pack, *whole)  # so that heartbeats are known
        told.append(packed(pack, *batches))
    assert told[0] == told[1]


def test_no_more_lines_are_held_than_bytes_allow_and_none_is_lost(tmp_path: Path, monkeypatch):
    rows = mixed_rows()
    batches = [arrow(rows[start : start + 50]) for start in range(0, len(rows), 50)]
    told, held = [], []
    take = HeartbeatColumns.take
    monkeypatch.setattr(HeartbeatColumns, "take", lambda known, pieces: held.append(len(pieces)) or take(known, pieces))
    for allowed_bytes in (2**30, 1):
        monkeypatch.setattr(source, "_known", {})
        monkeypatch.setattr(source, "JOINED_BYTES", allowed_bytes)
        found = packed(PackRows(Routing(50), "__consumer_offsets", tmp_path / "live-keys.json"), *batches)
        found.pop(QUARANTINE_KEY)
        events = {key: [e for e in unpacked([row]) if not isinstance(e, Tick)] for key, row in found.items()}
        told.append({key: sorted(map(repr, listed)) for key, listed in events.items()})
    assert told[0] == told[1]
    assert (max(held[:3]), max(held[3:])) == (4, 1)

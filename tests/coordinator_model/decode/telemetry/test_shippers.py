"""What Fluent Bit, Vector, Filebeat and rsyslog send, by their documentation, and what their restarts do to a group.

The samples in `deploy/shippers` send bare lines. The JSON here is what each sends where its encoding is left as it is.
"""

import json

import pytest

from coordinator_model.capture_replay import _read, _route, _ticks, _transitions, replay_rows
from coordinator_model.decode.parse import RejectedRow, parse_row
from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.decode.telemetry.shipped import LATE, SEVERAL
from coordinator_model.group_report import read_outputs
from coordinator_model.incidents import to_contract
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.request_log import heartbeat_line
from tests.support.story import T0, stable, telemetry

LINE = heartbeat_line(total_ms=3.0, remote_ms=1.0)
FILE = f"[2023-11-14T22:13:20,000+00:00] DEBUG {LINE} (kafka.request.logger)"
"""As the file of `group-monitor log4j2 --file` has it."""
NO_ZONE = f"[2023-11-14 22:13:20,000] DEBUG {LINE} (kafka.request.logger)"
"""As a broker's own request log has it."""
PATH = "/var/log/kafka/group-telemetry.log"
READ_MS = T0 + 1_700
TRACE = "\njava.io.IOException: Connection reset by peer\n\tat sun.nio.ch.SocketDispatcher.read0(Native Method)"
SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=0)


def fluent_bit(line, stamp):
    return {"@timestamp": stamp, "log": line, "filename": PATH}


def vector(line):
    return {
        "file": PATH,
        "host": "kafka-1",
        "message": line,
        "source_type": "file",
        "timestamp": "2023-11-14T22:13:21.700123456Z",
    }


def filebeat(line, **more):
    return {
        "@timestamp": "2023-11-14T22:13:21.700Z",
        "@metadata": {"beat": "filebeat", "type": "_doc", "version": "8.15.0"},
        "log": {"offset": 51_234, "file": {"path": PATH, "inode": "13", "device_id": "2049"}, "flags": ["multiline"]},
        "message": line,
        "input": {"type": "filestream"},
        "ecs": {"version": "8.0.0"},
        "host": {"name": "kafka-1"},
        "agent": {"type": "filebeat", "name": "kafka-1"},
        **more,
    }


FORMS = {
    "Fluent Bit, timestamp_format double": fluent_bit(FILE, 1_700_000_001.7),
    "Fluent Bit, timestamp_format iso8601": fluent_bit(FILE, "2023-11-14T22:13:21.700Z"),
    "Fluent Bit, from a container's log": {
        "@timestamp": 1_700_000_001.7,
        "stream": "stdout",
        "log": FILE + "\n",
        "time": "2023-11-14T22:13:21.5Z",
    },
    "Vector, codec json": vector(FILE),
    "Filebeat, codec json": filebeat(FILE),
    "Filebeat, the original kept": filebeat(LINE, event={"original": FILE}),
    "Filebeat, a trace joined to the line": filebeat(FILE + TRACE),
    "Vector, a trace joined to the line": vector(FILE + TRACE),
    "Filebeat, a line joined to the one before it": filebeat(
        "[2023-11-14T22:13:19,000+00:00] WARN disk is slow (kafka.log.LogCleaner)\n" + FILE
    ),
    "Logstash, between Filebeat and Kafka": {"@version": "1", **filebeat(FILE, event={"original": FILE})},
}


def read(value, at_ms=READ_MS, **how):
    text = value if isinstance(value, str) else json.dumps(value)
    return parse_row(telemetry(text, at_ms=at_ms), **how)


@pytest.mark.parametrize("name", FORMS)
def test_a_shippers_form_is_read_like_the_line_that_it_holds(name):
    [beat] = read(FORMS[name])
    assert [beat] == read(FILE)
    assert (beat.order_ms, beat.broker, beat.group) == (T0, "broker-1", "g")


@pytest.mark.parametrize("made", [vector, filebeat, lambda line: fluent_bit(line, 1_700_000_001.7)])
def test_the_clock_of_a_brokers_own_request_log_is_read_in_the_zone_that_is_set(made):
    """The shipper's own timestamp is UTC, and says when the line was read."""
    in_berlin = made(NO_ZONE.replace("22:13", "23:13"))

    def berlin(local_ms):
        return (local_ms - 3_600_000,)

    assert read(in_berlin, zone=berlin) == read(FILE)
    assert "telemetry_zone" in read(in_berlin).reason


@pytest.mark.parametrize("made", [str, vector, filebeat])
def test_of_lines_joined_into_one_record_none_is_lost_in_silence(made):
    """A multi-line pattern that does not fit: the second line would vanish uncounted."""
    rejected = read(made(f"{FILE}\n{FILE}"))
    assert isinstance(rejected, RejectedRow)
    assert rejected.reason == SEVERAL


def test_a_line_that_was_cut_off_is_rejected():
    """Longer than `max_line_bytes`, `Buffer_Max_Size` or `message_max_bytes`."""
    assert isinstance(read(vector(FILE[:300])), RejectedRow)


# ------------------------------------------------------------------------- whole files: brokers, restarts, rotation


def dated(row, late_ms):
    """A line as a file has it, read so much later."""
    seconds, ms = divmod(row.timestamp_ms - T0, 1_000)
    minutes, second = divmod(seconds + 20, 60)
    date = f"2023-11-14T22:{13 + minutes:02}:{second:02},{ms:03}+00:00"
    text = f"[{date}] DEBUG {row.value.decode()} (kafka.request.logger)"
    return row._replace(value=json.dumps(vector(text)).encode(), timestamp_ms=row.timestamp_ms + late_ms)


def partition_of(arrivals):
    """Rows as one partition of the telemetry topic holds them, in the order in which they came."""
    rows = [row for row in arrivals if row.source != TELEMETRY]
    lines = sorted((row for row in arrivals if row.source == TELEMETRY), key=lambda row: row.timestamp_ms)
    return rows + [row._replace(topic="group-telemetry", offset=n) for n, row in enumerate(lines)]


def story():
    """Two groups' worth of life on two brokers: m2 dies after 6,000."""
    told = stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_000, 6_000)
    told.brokers["broker-2"] = 0
    return told


def whole(rows):
    history = replay_rows(rows, SETTINGS)
    return [to_contract(t) for t in history.transitions], history.groups


def live(rows, every_ms=1_000):
    """The same, as the job gets it: in batches of what has come, by the record's timestamp."""
    stamps = {row[1:4]: row.timestamp_ms for row in rows}
    reading = _read(rows)
    lines = [event for event in reading.events if hasattr(event, "broker")]
    events = [*_route(reading.events, 1)[0], *_ticks(lines, set())]
    shard, outputs = Shard.restore(0, SETTINGS, None), []
    last_ms = max(stamps.values())
    for until_ms in range(T0, last_ms + every_ms, every_ms):
        batch = [e for e in events if until_ms - every_ms < stamps.get(e[2:5], e.order_ms) <= until_ms]
        told = shard.apply(batch, records_read_ms=until_ms, final=until_ms >= last_ms)
        outputs += [{**output, "seq": len(outputs) + output["seq"]} for output in told]
    return [to_contract(t) for t in _transitions(read_outputs(outputs), SETTINGS)]


def without_key(row):
    """A line whose shipper sends no key: its broker is known by its listener."""
    own = (row.key or b"").replace(b"broker-", b"127.0.0.1:909")
    return row._replace(key=None, value=row.value.replace(b"127.0.0.1:9092-", own + b"-"))


def named(transitions):
    """Who was told of, and when; a broker has another name where lines have no key."""
    facts = ("at_ms", "rule", "transition", "subject", "deadline_ms", "cause", "reason")
    return sorted(tuple(str(t.get(fact)) for fact in facts) for t in transitions)


def members(groups):
    """Who is in, and how; but for what names the broker."""
    return [[{**member, "connection": ""} for member in group["members"]] for group in groups]


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "without a key"])
def test_several_brokers_in_one_partition_are_told_apart(keyed):
    """One shipper is four seconds later than the other, so the partition is in nobody's order."""
    rows = story().source_rows(20_000)
    late_ms = {b"broker-1": 4_300, b"broker-2": 100}
    lines = [row if keyed else without_key(row) for row in rows if row.source == TELEMETRY]
    shipped = [
        dated(line, late_ms[row.key])
        for line, row in zip(lines, (row for row in rows if row.source == TELEMETRY), strict=True)
    ]
    mixed = partition_of([row for row in rows if row.source != TELEMETRY] + shipped)
    expected, groups = whole(rows)
    told, shown = whole(mixed)
    assert named(told) == named(expected) != []
    assert members(shown) == members(groups)
    assert named(live(mixed)) == named(expected)


@pytest.mark.parametrize("after_ms", [3_000, 30_000], ids=["at once", "much later"])
def test_a_file_that_is_sent_again_tells_nothing_new(after_ms):
    """A shipper that lost its place begins at the head of the file: the same lines, at new offsets."""
    rows = story().source_rows(20_000)
    lines = [row for row in rows if row.source == TELEMETRY]
    restart_ms = T0 + 9_000 + after_ms
    again = [
        dated(row, restart_ms - row.timestamp_ms + n) for n, row in enumerate(lines) if row.timestamp_ms < T0 + 9_000
    ]
    mixed = partition_of([row for row in rows if row.source != TELEMETRY] + [dated(row, 200) for row in lines] + again)
    expected, groups = whole(rows)
    told, shown = whole(mixed)
    assert named(told) == named(expected) != []
    assert members(shown) == members(groups)
    assert named(live(mixed)) == named(expected)


def test_of_an_old_file_that_is_sent_again_the_lines_are_quarantined():
    """Older than ten minutes: rejected, with the reason, and nobody is judged by them."""
    rows = story().source_rows(20_000)
    lines = [row for row in rows if row.source == TELEMETRY]
    again = [dated(row, 601_000) for row in lines]
    mixed = partition_of([row for row in rows if row.source != TELEMETRY] + [dated(row, 200) for row in lines] + again)
    history = replay_rows(mixed, SETTINGS)
    assert named(to_contract(t) for t in history.transitions) == named(whole(rows)[0])
    assert history.undecodable == {f"telemetry: {LATE}": len(again)}

"""Lines as a shipper sends them: from the broker's log file, with a date, perhaps wrapped into JSON."""

import json

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.parse import RejectedRow, RowParser, parse_row
from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.decode.telemetry.shipped import AHEAD, LATE, MAX_WRAPS, NO_DATE, bare, needs_zone
from coordinator_model.events import Heartbeat
from coordinator_model.shard.shard import ShardSettings
from tests.support.request_log import heartbeat_line, probe_line
from tests.support.story import T0, stable, telemetry

LINE = heartbeat_line(total_ms=3.0, remote_ms=1.0)
SHIPPED_MS = T0 + 4_000
"""When it was shipped: four seconds after it had been written."""
FILE = f"[2023-11-14 22:13:20,000] DEBUG {LINE} (kafka.request.logger)"
SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=0)


def read(value, at_ms=SHIPPED_MS, **how):
    [event] = parse_row(telemetry(value, at_ms=at_ms), **how)
    return event


def two_hours_ahead(local_ms):
    return (local_ms - 7_200_000,)


# what stands before the line -> its instant, by the clock that the story begins with
DATES = {
    "Kafka's own layout": ("[2023-11-14 22:13:20,250] DEBUG ", T0 + 250),
    "with a T": ("[2023-11-14T22:13:20,250] DEBUG ", T0 + 250),
    "with a point": ("[2023-11-14 22:13:20.250] DEBUG ", T0 + 250),
    "whole seconds": ("[2023-11-14 22:13:20] DEBUG ", T0),
    "tenths": ("2023-11-14 22:13:20.2 DEBUG ", T0 + 200),
    "nanoseconds": ("2023-11-14T22:13:20.250999999 DEBUG ", T0 + 250),
    "a zone of its own": ("[2023-11-15T00:13:20,250+0200] DEBUG ", T0 + 250),
    "a zone with a colon": ("[2023-11-14T17:43:20,250-04:30] DEBUG ", T0 + 250),
    "a zone in hours": ("[2023-11-15T00:13:20,250+02] DEBUG ", T0 + 250),
    "a zone after a space": ("[2023-11-14 17:43:20,250 -0430] DEBUG ", T0 + 250),
    "a zone with a colon after a space": ("[2023-11-15 00:13:20 +02:00] DEBUG ", T0),
    "hours after a space": ("2023-11-15 00:13:20,250 +02 DEBUG ", T0 + 250),
    "UTC by name": ("[2023-11-14T22:13:20,250Z] DEBUG ", T0 + 250),
    "a container runtime's before it": (
        "2023-11-14T22:13:23.999999999Z stdout F [2023-11-14 22:13:20,250] DEBUG ",
        T0 + 250,
    ),
    "none": ("DEBUG ", SHIPPED_MS),
    "none that is near": ("[2023-11-14 22:13:20,250]" + " " * 300, SHIPPED_MS),
    "some other number": ("[12023-11-14 22:13:20,2500000000] ", SHIPPED_MS),
}


@pytest.mark.parametrize("name", DATES)
def test_the_instant_of_a_line_is_its_own_date_where_it_has_one(name):
    head, at_ms = DATES[name]
    beat = read(f"{head}{LINE} (kafka.request.logger)")
    assert (beat.order_ms, beat.arrival_ms, beat.applied_ms) == (at_ms, at_ms - 3, at_ms - 1)


def test_a_date_without_a_zone_is_read_in_the_brokers():
    ahead = FILE.replace("2023-11-14 22", "2023-11-15 00")
    assert read(ahead, zone=two_hours_ahead).order_ms == T0


def test_of_two_instants_that_a_clock_shows_the_one_nearest_to_its_records_is_meant():
    """In the hour in which clocks are set back."""

    def set_back(local_ms):
        return (local_ms - 7_200_000, local_ms - 3_600_000)

    for hours, at_ms in (("15 00", T0), ("14 23", T0)):
        assert read(FILE.replace("14 22", hours), zone=set_back).order_ms == at_ms


def test_leap_days_are_days():
    for date, at_ms in (("2024-02-29 00:00:00", 1_709_164_800_000), ("2000-02-29 12:00:00", 951_825_600_000)):
        assert read(FILE.replace("2023-11-14 22:13:20,000", date), at_ms=at_ms).order_ms == at_ms


WRAPS = {
    "Filebeat": {"@timestamp": "2023-11-14T22:13:24.000Z", "message": FILE, "log": {"file": {"path": "/kafka.log"}}},
    "Fluent Bit": {"@timestamp": 1_700_000_004.0, "log": FILE},
    "Vector": {"message": FILE, "source_type": "file", "timestamp": "2023-11-14T22:13:24Z"},
    "Docker": {"log": FILE + "\n", "stream": "stdout", "time": "2023-11-14T22:13:24Z"},
    "Logstash": {"event": {"original": FILE}, "message": FILE},
    "a message that was taken apart": {"event": {"original": FILE}, "message": LINE},
    "a flat name": {"event.original": FILE},
    "twice": {"message": json.dumps({"log": FILE + "\n"})},
}


@pytest.mark.parametrize("name", WRAPS)
def test_a_line_in_a_shippers_json_is_read_like_the_line(name):
    assert read(json.dumps(WRAPS[name])) == read(FILE)


# the wrapper of a line without a date -> the instant of the line
WRAPPER_DATES = {
    "Filebeat": ({"@timestamp": "2023-11-14T22:13:21.500Z", "message": LINE}, T0 + 1_500),
    "Docker": ({"log": LINE + "\n", "time": "2023-11-14T22:13:20.750999999Z"}, T0 + 750),
    "Vector": ({"message": f"DEBUG {LINE}", "timestamp": "2023-11-15T00:13:20.250+02:00"}, T0 + 250),
    "one that cannot be read": (
        {"@timestamp": "2023-11-14T22:13:21", "time": 1_700_000_001, "timestamp": "2023-11-14T22:13:22Z", "log": LINE},
        T0 + 2_000,
    ),
    "twice": (
        {"@timestamp": "2023-11-14T22:13:23Z", "message": json.dumps({"time": "2023-11-14T22:13:20Z", "log": LINE})},
        T0,
    ),
    "twice, the inner without": (
        {"@timestamp": "2023-11-14T22:13:23Z", "message": json.dumps({"log": LINE})},
        T0 + 3_000,
    ),
}


@pytest.mark.parametrize("name", WRAPPER_DATES)
def test_a_wrapped_line_without_a_date_has_the_date_of_its_wrapper(name):
    wrapper, at_ms = WRAPPER_DATES[name]
    assert read(json.dumps(wrapper), zone=two_hours_ahead).order_ms == at_ms


def test_the_date_of_a_wrapper_is_checked_against_the_records_timestamp():
    wrapped = json.dumps({"@timestamp": "2023-11-14T21:13:20Z", "message": LINE})
    assert parse_row(telemetry(wrapped, at_ms=T0)).reason == LATE


TAILS = {
    "Kafka's own layout": " (kafka.request.logger)",
    "another logger": " (kafka.network.RequestChannel)\n",
    "a context": " {} [data-plane-kafka-request-handler-1]",
    "nothing": "",
}


@pytest.mark.parametrize("name", TAILS)
def test_what_a_layout_writes_after_the_line_is_cut_off(name):
    row = telemetry(FILE.replace(TAILS["Kafka's own layout"], TAILS[name]), at_ms=SHIPPED_MS)
    assert bare(row) == telemetry(LINE)


BAD = {
    "JSON of something else": (json.dumps({"message": "hello"}), "not a line of the request log"),
    "JSON without a line": (json.dumps({"level": "DEBUG"}), "not a line of the request log"),
    "a line that is no text": (json.dumps({"message": {"a": 1}}), "not a line of the request log"),
    "broken JSON": ('{"message": "Completed', "not JSON: JSONDecodeError"),
    "no such day": (FILE.replace("11-14", "02-30"), "date: there is no such day or time"),
    "no such month": (FILE.replace("11-14", "13-01"), "date: there is no such day or time"),
    "no such time": (FILE.replace(" 22:", " 25:"), "date: there is no such day or time"),
    "no such year": (FILE.replace("2023-", "0000-"), "date: there is no such day or time"),
    "no leap day": (FILE.replace("11-14", "02-29"), "date: there is no such day or time"),
    "no such zone": (FILE.replace(",000]", ",000+25:00]"), "date: there is no such day or time"),
    "before 1970": (FILE.replace("2023-", "1969-"), LATE),
    "no date anywhere": (json.dumps({"message": LINE}), NO_DATE),
    "a wrapper's date without a zone": (json.dumps({"@timestamp": "2023-11-14T22:13:20", "log": LINE}), NO_DATE),
    "a wrapper's date that is no text": (json.dumps({"timestamp": 1_700_000_000, "message": LINE}), NO_DATE),
    "no such day in a wrapper": (
        json.dumps({"time": "2023-02-30T22:13:20Z", "log": LINE}),
        "date: there is no such day or time",
    ),
    "a dated line of a broker before Kafka 2.8": (
        "[2023-11-14 22:13:20,000] DEBUG Completed request:RequestHeader(apiKey=HEARTBEAT) (kafka.request.logger)",
        "text format of a broker before Kafka 2.8",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_rejected_with_a_reason(name):
    value, reason = BAD[name]
    rejected = parse_row(telemetry(value, at_ms=SHIPPED_MS))
    assert isinstance(rejected, RejectedRow)
    assert (rejected.reason, rejected.timestamp_ms) == (reason, SHIPPED_MS)
    assert RowParser().read(telemetry(value, at_ms=SHIPPED_MS)) == rejected


def test_json_in_json_is_unwrapped_a_few_times_only():
    value = FILE
    for _ in range(MAX_WRAPS + 1):
        value = json.dumps({"message": value})
    assert isinstance(parse_row(telemetry(value, at_ms=SHIPPED_MS)), RejectedRow)
    assert isinstance(parse_row(telemetry('{"message":' * 10_000, at_ms=SHIPPED_MS)), RejectedRow)


@pytest.mark.parametrize("hours", [-14, -2, -1, 1, 12])
def test_a_line_in_the_wrong_zone_is_not_judged_and_its_reason_names_the_setting(hours):
    rejected = parse_row(telemetry(FILE, at_ms=SHIPPED_MS + hours * 3_600_000))
    assert isinstance(rejected, RejectedRow)
    assert "telemetry_zone" in rejected.reason


def test_a_shipper_may_be_some_minutes_late():
    assert read(FILE, at_ms=T0 + 600_000).order_ms == T0
    assert isinstance(parse_row(telemetry(FILE, at_ms=T0 + 600_001)), RejectedRow)


def test_a_line_is_not_shipped_before_it_was_written_but_for_the_skew_of_clocks():
    assert read(FILE, at_ms=T0 - 5_000).order_ms == T0
    assert parse_row(telemetry(FILE, at_ms=T0 - 5_001)).reason == AHEAD


def test_who_needs_the_zone():
    told = {name: needs_zone(telemetry(value)) for name, value in {
        "bare": LINE, "dated": FILE, "wrapped": json.dumps({"log": FILE}), "undated": f"DEBUG {LINE}",
        "with a zone": FILE.replace(",000]", ",000 +02]"), "the wrapper's": json.dumps(WRAPPER_DATES["Filebeat"][0]),
        "broken": '{"message', "something else": "2023-11-14 22:13:20",
    }.items()}  # fmt: skip
    assert [name for name, needs in told.items() if needs] == ["dated", "wrapped"]


def shipped(rows, late_ms=0, *, wrap=False):
    """The same rows, as a shipper sends the brokers' files: the broker's own instant is the line's date."""
    made = []
    for bare_row in rows:
        row = bare_row
        if row.source == TELEMETRY:
            seconds, ms = divmod(row.timestamp_ms - T0, 1_000)
            minutes, second = divmod(seconds + 20, 60)
            date = f"2023-11-14 22:{13 + minutes:02}:{second:02},{ms:03}"
            text = f"[{date}] DEBUG {row.value.decode()} (kafka.request.logger)"
            value = json.dumps({"message": text}) if wrap else text
            row = row._replace(value=value.encode(), timestamp_ms=row.timestamp_ms + late_ms)
        made.append(row)
    return made


def story():
    return stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_000, 6_000)


@pytest.mark.parametrize("wrap", [False, True], ids=["as in the file", "wrapped"])
@pytest.mark.parametrize("late_ms", [0, 7_300])
def test_a_group_is_judged_alike_however_its_lines_come(wrap, late_ms):
    """Taken for the brokers' clock, the shipper's would move each deadline by as much as it is late."""
    rows = story().source_rows(20_000)
    expected, told = (replay_rows(made, SETTINGS) for made in (rows, shipped(rows, late_ms, wrap=wrap)))
    assert told.transitions == expected.transitions != []
    assert told.groups == expected.groups
    assert not told.undecodable


def test_a_known_heartbeat_is_read_as_the_full_parser_reads_it():
    reader = RowParser()
    for n in range(1, 6):
        row = telemetry(FILE.replace(":20,000", f":2{n},00{n}"), at_ms=SHIPPED_MS + n, offset=n)
        [beat] = reader.read(row)
        assert isinstance(beat, Heartbeat)
        assert [beat] == parse_row(row)
        assert beat.order_ms == T0 + n * 1_001


def test_a_line_that_is_bare_is_left_as_it_is():
    for value in (LINE, probe_line(1)):
        row = telemetry(value, at_ms=SHIPPED_MS)
        assert bare(row) is row
    assert bare(bare(telemetry(FILE, at_ms=SHIPPED_MS))) == telemetry(LINE)

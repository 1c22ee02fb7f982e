"""What clients push, read from the request log: any compression, any input, within bounds."""

import base64
import gzip
import json
import struct
import tracemalloc

import cramjam
import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from coordinator_model.decode.parse import REPORTS, RejectedRow, SourceRow, parse_row
from coordinator_model.decode.telemetry.fields import BadField
from coordinator_model.decode.telemetry.pushed_metrics import MAX_EXPORTED, TOO_MANY
from coordinator_model.events import ClientSeen, MetricsExported, MetricsPushed
from streaming.client_metrics.compression import MAX_BYTES, decompress
from streaming.client_metrics.otlp import read_metrics
from streaming.client_metrics.plugin import ASSIGNED_PARTITIONS, HEARTBEAT_AGE, LAST_POLL, POLL_INTERVAL, REBALANCE
from tests.support.pushes import metrics_data
from tests.support.request_log import line
from tests.support.story import T0, telemetry

PUSHED = metrics_data("g", "m1", 7.0)
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


def xerial(*blocks):
    """As snappy-java frames them, and so Java clients."""
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return head + b"".join(struct.pack(">i", len(block)) + block for block in packed)


COMPRESSED = {
    "none": (NONE, bytes),
    "gzip": (GZIP, gzip.compress),
    "snappy, Java": (SNAPPY, lambda data: xerial(data[:40], data[40:])),
    "snappy, librdkafka": (SNAPPY, cramjam.snappy.compress_raw),
    "lz4": (LZ4, cramjam.lz4.compress),
    "zstd": (ZSTD, cramjam.zstd.compress),
}
BOMB = bytes(50_000_000)


def push_line(metrics=PUSHED, compression=NONE, text=None, **changes):
    request = {
        "clientInstanceId": "YqZmXnBkTvWJRVC_XQ1WtA",
        "subscriptionId": 7,
        "terminating": False,
        "compressionType": compression,
        "metrics": base64.b64encode(metrics).decode() if text is None else text,
    }
    return line("PUSH_TELEMETRY", request, {"throttleTimeMs": 0, "errorCode": 0}, version=0, **changes)


def read(value):
    return parse_row(telemetry(value), read_metrics=read_metrics)


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_push_is_read_whatever_it_is_compressed_with(name):
    compression, compress = COMPRESSED[name]
    [event] = read(push_line(bytes(compress(PUSHED)), compression))
    assert isinstance(event, MetricsPushed)
    told = (event.order_ms, event.group, event.member_id, event.client_id, event.client_host, event.broker)
    assert told == (T0, "g", "m1", "client", "10.0.0.7", "broker-1")
    assert event.poll_age_ms == 7_000


def test_each_metric_in_a_resource_of_its_own_as_of_a_java_client_is_read():
    apart = metrics_data("g", "m1", None, idle=(0.5, 5_000)) + metrics_data("g", "m1", 7.0)
    [event] = read(push_line(apart))
    assert (event.member_id, event.poll_age_ms) == ("m1", 7_000)


def test_of_several_consumers_in_one_push_the_first_is_read():
    both = metrics_data("g", "m1", None, idle=(0.5, 5_000)) + metrics_data("g", "m2", 7.0)
    [event] = read(push_line(both))
    assert (event.member_id, event.poll_age_ms, event.polled, event.interval_ms) == ("m1", None, True, 5_000)


@pytest.mark.parametrize("ratio", [float("nan"), float("inf")])
def test_a_ratio_that_is_no_number_tells_nothing_of_polls(ratio):
    [event] = read(push_line(metrics_data("g", "m1", None, idle=(ratio, 5_000))))
    assert isinstance(event, ClientSeen)


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_decompression_bomb_is_refused_in_bounded_memory(name):
    compression, compress = COMPRESSED[name]
    bomb = bytes(compress(BOMB))
    tracemalloc.start()
    with pytest.raises(BadField, match="too large when decompressed"):
        decompress(bomb, compression)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 3 * MAX_BYTES


@pytest.mark.parametrize("name", COMPRESSED)
def test_what_has_the_greatest_size_is_still_read(name):
    compression, compress = COMPRESSED[name]
    assert decompress(bytes(compress(bytes(MAX_BYTES))), compression) == bytes(MAX_BYTES)


REJECTED = {
    "half a protobuf": (push_line(PUSHED[: len(PUSHED) // 2]), "pushed metrics: not OTLP"),
    "another schema": (push_line(b"\x0a\x05hello"), "pushed metrics: not OTLP"),
    "a bomb": (push_line(bytes(cramjam.zstd.compress(BOMB)), ZSTD), "pushed metrics: too large when decompressed"),
    "unknown compression": (push_line(compression=5), "pushed metrics: unknown compression"),
    "another compression": (push_line(gzip.compress(PUSHED), ZSTD), "pushed metrics: cannot be decompressed"),
    "half a gzip": (push_line(gzip.compress(PUSHED)[:-12], GZIP), "pushed metrics: cannot be decompressed"),
    "half a block": (push_line(xerial(PUSHED)[:-3], SNAPPY), "pushed metrics: cannot be decompressed"),
    "half a length": (push_line(xerial(PUSHED) + b"\0", SNAPPY), "pushed metrics: cannot be decompressed"),
    "not base64": (push_line(text="%%%"), "pushed metrics: not base64"),
    "no text": (push_line(text=7), "metrics: not a string"),
    "a negative age": (push_line(metrics_data("g", "m1", -2.0)), "pushed metrics: poll age out of range"),
    "a month": (push_line(metrics_data("g", "m1", 2.6e6)), "pushed metrics: poll age out of range"),
    "no number": (push_line(metrics_data("g", "m1", float("nan"))), "pushed metrics: poll age out of range"),
    "endless": (push_line(metrics_data("g", "m1", float("inf"))), "pushed metrics: poll age out of range"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_cannot_be_read_costs_its_own_line_and_says_why(name):
    value, reason = REJECTED[name]
    rejected = read(value)
    assert isinstance(rejected, RejectedRow)
    assert rejected.reason == reason


SILENT = {
    "nothing": b"",
    "no group, as a producer": metrics_data(None, None, 7.0),
    "an id that Kafka cannot carry": metrics_data("g" * 40_000, "m1", 7.0),
    "no metrics at all": TracesData().SerializeToString(),
}
ALIVE = {
    "no member, as librdkafka once it has left": metrics_data("g", None, 7.0),
    "no poll age, as librdkafka": metrics_data("g", "m1", None, member_label="member_id"),
    "it never polled": metrics_data("g", "m1", -1.0),
}


@pytest.mark.parametrize("name", SILENT)
def test_a_push_that_tells_nothing_is_a_line_like_any_other(name):
    assert read(push_line(SILENT[name])) == []


@pytest.mark.parametrize("name", ALIVE)
def test_a_push_that_tells_of_no_poll_tells_that_its_client_lives(name):
    [event] = read(push_line(ALIVE[name]))
    assert isinstance(event, ClientSeen)
    assert (event.group, event.client_id, event.client_host) == ("g", "client", "10.0.0.7")


def test_a_client_that_is_about_to_end_says_no_more():
    body = json.loads(push_line(ALIVE["it never polled"]).removeprefix("Completed request:"))
    body["request"]["terminating"] = True
    assert read("Completed request:" + json.dumps(body)) == []


def test_an_empty_push_is_no_broken_one_whatever_compression_it_names():
    """librdkafka has no metric of the subscription, and pushes all the same."""
    assert [read(push_line(b"", compression)) for compression in range(5)] == [[]] * 5


def test_without_a_reader_a_push_says_nothing():
    assert parse_row(telemetry(push_line())) == []


def test_a_push_that_its_broker_refused_is_not_read():
    body = json.loads(push_line(b"half").removeprefix("Completed request:"))
    for response in ({"throttleTimeMs": 0, "errorCode": 89}, ""):
        assert read("Completed request:" + json.dumps(body | {"response": response})) == []


# ------------------------------------------------------------------------------- by way of an OpenTelemetry collector


def exported(*consumers, **resource):
    """A record of a collector's Kafka exporter; `consumers` are (group, member, age), each of a resource of its own."""
    data = MetricsData()
    for group, member, age_s in consumers:
        data.MergeFromString(metrics_data(group, member, age_s))
        for name, text in resource.items():
            data.resource_metrics[-1].resource.attributes.add(key=name.replace("__", ".")).value.string_value = text
    return data


def read_export(value):
    row = SourceRow(REPORTS, "otlp_metrics", 0, 7, T0, None, value)
    return parse_row(row, read_metrics=read_metrics)


FORMS = {"otlp_proto": lambda data: data.SerializeToString(), "otlp_json": lambda data: MessageToJson(data).encode()}


@pytest.mark.parametrize("form", FORMS)
def test_all_consumers_in_a_record_of_a_collector_are_read(form):
    data = exported(("g", "m1", 7.0), ("g", "m2", 9.0), client_id="c", client__instance__id="i")
    first, second = read_export(FORMS[form](data))
    assert isinstance(first, MetricsExported)
    told = (first.order_ms, first.group, first.member_id, first.poll_age_ms, first.client_id, first.client_instance_id)
    assert told == (T0, "g", "m1", 7_000, "c", "i")
    assert (second.member_id, second.poll_age_ms) == ("m2", 9_000)


def test_json_as_a_collector_writes_it_is_read():
    """Numbers of 64 bits are texts in it; of what this version of OTLP does not know nothing is said."""
    point = {"timeUnixNano": "1795576000000000000", "asDouble": 48, "flags": 0}
    metric = {"name": LAST_POLL, "unit": "1", "gauge": {"dataPoints": [point]}, "newInALaterVersion": {}}
    labels = {"group.id": "g", "group_member_id": "m1", "client_id": "c"}
    attributes = [{"key": key, "value": {"stringValue": text}} for key, text in labels.items()]
    scope = {"scope": {"name": "org.apache.kafka"}, "metrics": [metric]}
    body = {"resourceMetrics": [{"resource": {"attributes": attributes}, "scopeMetrics": [scope]}]}
    [event] = read_export(json.dumps(body).encode())
    assert (event.group, event.member_id, event.client_id, event.poll_age_ms) == ("g", "m1", "c", 48_000)


def test_a_consumer_whose_metrics_are_none_costs_its_neighbours_nothing():
    data = exported(("g", "m1", -7.0), ("g", "m2", 9.0))
    assert [event.member_id for event in read_export(data.SerializeToString())] == ["m2"]


def test_what_a_collector_exports_beside_consumers_says_nothing():
    assert read_export(exported((None, None, 7.0)).SerializeToString()) == []


NO_EXPORT = {
    "half of one": exported(("g", "m1", 7.0)).SerializeToString()[:20],
    "half a JSON": MessageToJson(exported(("g", "m1", 7.0))).encode()[:-9],
    "another schema": TracesData().SerializeToString(),
    "traces": b'{"resourceSpans":[]}',
    "deep JSON": b'{"resourceMetrics":' + b"[" * 10_000,
    "a text": b"hello",
    "too large": bytes(MAX_BYTES + 1),
}


@pytest.mark.parametrize("name", NO_EXPORT)
def test_what_is_no_report_and_no_export_is_rejected(name):
    rejected = read_export(NO_EXPORT[name])
    assert isinstance(rejected, RejectedRow)
    assert rejected.reason == "not a client's report, in a topic of reports"


def test_a_record_of_too_many_consumers_is_rejected():
    rejected = read_export(exported(*(("g", f"m{n}", 1.0) for n in range(MAX_EXPORTED + 1))).SerializeToString())
    assert isinstance(rejected, RejectedRow)
    assert rejected.reason == TOO_MANY


# --------------------------------------------------------------------------------------------- what else a client tells


def test_what_else_a_java_client_pushes_is_shown():
    data = MetricsData.FromString(metrics_data("g", "m1", 7.0))
    for name, number in ((POLL_INTERVAL, 1_500.4), (HEARTBEAT_AGE, 2.0), (ASSIGNED_PARTITIONS, 3.0)):
        data.resource_metrics[0].scope_metrics[0].metrics.add(name=name).gauge.data_points.add(as_double=number)
    data.resource_metrics[0].scope_metrics[0].metrics.add(name=f"{REBALANCE}.total").sum.data_points.add(as_double=2.0)
    data.resource_metrics[0].resource.attributes.add(key="group_instance_id").value.string_value = "i1"
    [event] = read(push_line(data.SerializeToString()))
    assert (event.instance_id, event.poll_interval_ms) == ("i1", 1_500)
    assert dict(event.shown) == {
        "poll_idle_ratio": 0.5,
        "longest_poll_interval_ms": 1_500.4,
        "heartbeat_age_s": 2.0,
        "assigned_partitions": 3.0,
        "rebalances": 2.0,
    }


@pytest.mark.parametrize(("longest_ms", "told"), [(float("nan"), None), (-1.0, "bad"), (3e9, "bad"), (0.0, 0)])
def test_a_time_between_polls_is_a_number_of_milliseconds_or_none(longest_ms, told):
    """A client that has not polled twice of late tells none."""
    data = MetricsData.FromString(metrics_data("g", "m1", 7.0))
    point = {"as_double": longest_ms}
    data.resource_metrics[0].scope_metrics[0].metrics.add(name=POLL_INTERVAL).gauge.data_points.add(**point)
    answer = read(push_line(data.SerializeToString()))
    if told == "bad":
        assert answer.reason == "pushed metrics: time between polls out of range"
    else:
        assert answer[0].poll_interval_ms == told

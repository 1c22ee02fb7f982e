"""What clients push, read from the request log: any compression, any input, within bounds."""

import base64
import gzip
import json
import struct
import tracemalloc

import cramjam
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from coordinator_model.decode.parse import RejectedRow, parse_row
from coordinator_model.decode.telemetry.fields import BadField
from coordinator_model.events import MetricsPushed
from streaming.client_metrics.compression import MAX_BYTES, decompress
from streaming.client_metrics.otlp import read_metrics
from tests.builders import T0, line, telemetry
from tests.pushes import metrics_data

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
def test_a_ratio_that_is_no_number_tells_nothing(ratio):
    assert read(push_line(metrics_data("g", "m1", None, idle=(ratio, 5_000)))) == []


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_bomb_is_refused_without_being_written(name):
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
    "no member, as librdkafka once it has left": metrics_data("g", None, 7.0),
    "no poll age, as librdkafka": metrics_data("g", "m1", None, member_label="member_id"),
    "it never polled": metrics_data("g", "m1", -1.0),
    "an id that Kafka cannot carry": metrics_data("g" * 40_000, "m1", 7.0),
    "no metrics at all": TracesData().SerializeToString(),
}


@pytest.mark.parametrize("name", SILENT)
def test_a_push_that_tells_of_no_poll_is_a_line_like_any_other(name):
    assert read(push_line(SILENT[name])) == []


def test_an_empty_push_is_no_broken_one_whatever_compression_it_names():
    """librdkafka has no metric of the subscription, and pushes all the same."""
    assert [read(push_line(b"", compression)) for compression in range(5)] == [[]] * 5


def test_without_a_reader_a_push_says_nothing():
    assert parse_row(telemetry(push_line())) == []


def test_a_push_that_its_broker_refused_is_not_read():
    body = json.loads(push_line(b"half").removeprefix("Completed request:"))
    for response in ({"throttleTimeMs": 0, "errorCode": 89}, ""):
        assert read("Completed request:" + json.dumps(body | {"response": response})) == []

"""The metrics that a client pushes: OTLP ``MetricsData`` as in KIP-714, or as exported by an OpenTelemetry collector.

A collector's Kafka exporter writes an ``ExportMetricsServiceRequest``, the same message under another name, as protobuf
(`otlp_proto`) or as JSON (`otlp_json`). The broker's plugin that sends to the collector names the client in attributes
of the resource or of the data point. It chooses the names of these attributes, so several spellings are tried.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, NumberDataPoint, ResourceMetrics

from coordinator_model.decode.telemetry.fields import BadField
from coordinator_model.decode.telemetry.pushed_metrics import ClientMetrics
from streaming.client_metrics.compression import MAX_BYTES, decompress
from streaming.client_metrics.plugin import (
    ASSIGNED_PARTITIONS,
    HEARTBEAT_AGE,
    LAST_POLL,
    POLL_IDLE_RATIO,
    POLL_INTERVAL,
    REBALANCE,
)

MAX_ID_BYTES: Final = 32_767
"""The longest string in Kafka's protocol; a longer id is not valid."""
MAX_INTERVAL_MS: Final = 7_200_000
"""Twice the longest that a subscription may ask for (KIP-714)."""
_GROUP: Final = ("group_id", "group.id")
_MEMBER: Final = ("group_member_id", "group.member.id", "member_id")
"""The name in Java clients, its spelling in a collector, and the name in librdkafka."""
_INSTANCE: Final = ("group_instance_id", "group.instance.id")
_CLIENT: Final = ("client_id", "client.id", "client-id")
_CLIENT_INSTANCE: Final = ("client_instance_id", "client.instance.id")
_HOST: Final = ("client_source_address", "client_address", "client.address")
_IDENTITY: Final = (_GROUP, _MEMBER, _INSTANCE, _CLIENT, _CLIENT_INSTANCE, _HOST)
_SHOWN: Final[Mapping[str, str]] = {
    POLL_IDLE_RATIO: "poll_idle_ratio",
    POLL_INTERVAL: "longest_poll_interval_ms",
    HEARTBEAT_AGE: "heartbeat_age_s",
    ASSIGNED_PARTITIONS: "assigned_partitions",
    f"{REBALANCE}.total": "rebalances",
    f"{REBALANCE}.latency.max": "longest_rebalance_ms",
}
_NOT_OTLP: Final = "pushed metrics: not OTLP"
_Values = dict[str, tuple[float, NumberDataPoint]]


def read_metrics(data: bytes, compression: int | None) -> list[ClientMetrics]:
    """Return metrics of consumers: of one for a client's push, of all for a collector's. Raise only ``BadField``."""
    if compression is not None:
        return _told(_parse(decompress(data, compression)))[:1]
    if len(data) > MAX_BYTES:
        raise BadField("exported metrics: too large")
    metrics = _parse_json(data) if data.startswith(b"{") else _parse(data)
    if not metrics.resource_metrics:  # almost any bytes can be parsed as a message without known fields
        raise BadField("exported metrics: none")
    return _told(metrics)


def _parse(data: bytes) -> MetricsData:
    metrics = MetricsData()
    try:
        metrics.ParseFromString(data)
    except DecodeError:
        raise BadField(_NOT_OTLP) from None
    return metrics


def _parse_json(data: bytes) -> MetricsData:
    metrics = MetricsData()
    try:
        json_format.Parse(data, metrics, ignore_unknown_fields=True, max_recursion_depth=20)
    except (json_format.ParseError, ValueError, RecursionError):
        raise BadField(_NOT_OTLP) from None
    return metrics


def _told(metrics: MetricsData) -> list[ClientMetrics]:
    """Collect the metrics of each consumer: a Java client sends a resource for each metric."""
    found: dict[tuple[str, ...], _Values] = {}
    for resource in metrics.resource_metrics:
        labels = dict(_texts(resource.resource.attributes))
        for name, value, point in _numbers(resource):
            whose = labels | dict(_texts(point.attributes))
            identity = tuple(next((whose[key] for key in keys if key in whose), "") for keys in _IDENTITY)
            if identity[0]:
                found.setdefault(identity, {}).setdefault(name, (value, point))
    return [_metrics(identity, values) for identity, values in found.items()]


def _metrics(identity: tuple[str, ...], values: _Values) -> ClientMetrics:
    group, member_id, instance_id, client_id, client_instance_id, host = identity
    polled, interval_ms = _polled(*values[POLL_IDLE_RATIO]) if POLL_IDLE_RATIO in values else (None, 0)
    return ClientMetrics(
        group,
        member_id,
        values[LAST_POLL][0] if LAST_POLL in values else None,
        polled,
        interval_ms,
        instance_id or None,
        values[POLL_INTERVAL][0] if POLL_INTERVAL in values else None,
        tuple((word, values[name][0]) for name, word in _SHOWN.items() if name in values and _is_told(values[name][0])),
        client_id,
        host,
        client_instance_id,
    )


def _is_told(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _polled(ratio: float, point: NumberDataPoint) -> tuple[bool | None, int]:
    """Return whether polls began in the interval of a point, and its length; (None, 0) if it has no valid interval."""
    length_ms = (point.time_unix_nano - point.start_time_unix_nano) // 1_000_000
    if not math.isfinite(ratio) or not point.start_time_unix_nano or not 0 < length_ms <= MAX_INTERVAL_MS:
        return None, 0
    return ratio != 0, length_ms


def _texts(attributes: Iterable[KeyValue]) -> Iterator[tuple[str, str]]:
    for attribute in attributes:
        if attribute.value.HasField("string_value") and len(attribute.value.string_value) <= MAX_ID_BYTES:
            yield attribute.key, attribute.value.string_value


def _numbers(resource: ResourceMetrics) -> Iterator[tuple[str, float, NumberDataPoint]]:
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            for point in _points(metric):
                kind = point.WhichOneof("value")
                if kind is not None:
                    yield metric.name, float(getattr(point, kind)), point


def _points(metric: Metric) -> Iterator[NumberDataPoint]:
    """Yield the points of a gauge or a sum; a sum counts since the last push."""
    yield from metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points

"""The metrics that a client pushes: OTLP ``MetricsData``, as KIP-714 has it."""

import math
from collections.abc import Iterable, Iterator
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, NumberDataPoint, ResourceMetrics

from coordinator_model.decode.telemetry.fields import BadField
from coordinator_model.decode.telemetry.pushed_metrics import PolledMetrics
from streaming.client_metrics.compression import decompress
from streaming.client_metrics.plugin import LAST_POLL, POLL_IDLE_RATIO

MEMBER_ID: Final = ("group_member_id", "member_id")
"""Java's and librdkafka's name for it."""
MAX_ID_BYTES: Final = 32_767
"""Of a string in Kafka's protocol: a longer id is none."""
MAX_INTERVAL_MS: Final = 7_200_000
"""Twice the longest that a subscription may ask for (KIP-714)."""


def read_metrics(data: bytes, compression: int) -> PolledMetrics | None:
    """Read the first consumer that a push tells of; None where it tells of none. Raises ``BadField``, nothing else."""
    try:
        metrics = MetricsData.FromString(decompress(data, compression))
    except DecodeError:
        raise BadField("pushed metrics: not OTLP") from None
    found = [one for resource in metrics.resource_metrics if (one := _consumer(resource)) is not None]
    return _together([one for one in found if one[:2] == found[0][:2]]) if found else None


def _together(found: list[PolledMetrics]) -> PolledMetrics:
    """Put together what is told of one consumer: a Java client makes a resource of each metric."""
    age_s = next((one.poll_age_s for one in found if one.poll_age_s is not None), None)
    polled = next((one for one in found if one.polled is not None), found[0])
    return polled._replace(poll_age_s=age_s)


def _consumer(resource: ResourceMetrics) -> PolledMetrics | None:
    labels = dict(_texts(resource.resource.attributes))
    group = labels.get("group_id")
    if not group:
        return None
    member_id = next((labels[name] for name in MEMBER_ID if name in labels), "")
    age_s = next((value for value, _ in _values(resource, LAST_POLL)), None)
    polled, interval_ms = next((_polled(*told) for told in _values(resource, POLL_IDLE_RATIO)), (None, 0))
    return PolledMetrics(group, member_id, age_s, polled, interval_ms)


def _polled(ratio: float, point: NumberDataPoint) -> tuple[bool | None, int]:
    """Tell whether polls began in the interval of a point; one without a beginning tells of no interval."""
    length_ms = (point.time_unix_nano - point.start_time_unix_nano) // 1_000_000
    if not math.isfinite(ratio) or not point.start_time_unix_nano or not 0 < length_ms <= MAX_INTERVAL_MS:
        return None, 0
    return ratio != 0, length_ms


def _texts(attributes: Iterable[KeyValue]) -> Iterator[tuple[str, str]]:
    for attribute in attributes:
        if attribute.value.HasField("string_value") and len(attribute.value.string_value) <= MAX_ID_BYTES:
            yield attribute.key, attribute.value.string_value


def _values(resource: ResourceMetrics, name: str) -> Iterator[tuple[float, NumberDataPoint]]:
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            if metric.name == name:
                yield from _points(metric)


def _points(metric: Metric) -> Iterator[tuple[float, NumberDataPoint]]:
    for point in metric.gauge.data_points:
        kind = point.WhichOneof("value")
        if kind is not None:
            yield float(getattr(point, kind)), point

"""The metrics that clients push: OTLP as a Java consumer writes it (tried on 4.3.1)."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from streaming.client_metrics.plugin import LAST_POLL, POLL_IDLE_RATIO

T0_NS = 1_700_000_000 * 10**9


def metrics_data(
    group: str | None,
    member_id: str | None,
    poll_age_s: float | None,
    member_label: str = "group_member_id",
    idle: tuple[float, int] | None = None,
) -> bytes:
    """Return a push; None leaves a field out. `idle`: a ratio, and the milliseconds that it covers."""
    data = MetricsData()
    resource = data.resource_metrics.add()
    for name, text in (("group_id", group), (member_label, member_id)):
        if text is not None:
            resource.resource.attributes.add(key=name).value.string_value = text
    scope = resource.scope_metrics.add()
    ratio, interval_ms = idle or (0.5, 0)
    start_ns = T0_NS if interval_ms else 0
    point = {"as_double": ratio, "start_time_unix_nano": start_ns, "time_unix_nano": T0_NS + interval_ms * 1_000_000}
    scope.metrics.add(name=POLL_IDLE_RATIO).gauge.data_points.add(**point)
    if poll_age_s is not None:
        scope.metrics.add(name=LAST_POLL).gauge.data_points.add(as_double=poll_age_s)
    return data.SerializeToString()

"""A client's polls as its own metrics (KIP-714) show them: pushed to a broker, or exported by OpenTelemetry.

The metrics are protobuf, which the standard library cannot read. So the caller passes in a ``MetricsReader``, as it
passes a ``Zone``. Without one, nothing is learned from metrics.
"""

import base64
import binascii
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from coordinator_model.decode.source_row import SourceRow
from coordinator_model.decode.telemetry.fields import BadField
from coordinator_model.events import TELEMETRY_RANK, MetricsExported

MAX_MS = 2**31
"""Some 24 days. A greater age is in another unit, or not an age."""
NEVER_POLLED = -1
MAX_EXPORTED = 1_000
"""Consumers in one record of a collector. It batches some thousand data points."""
TOO_MANY = "exported metrics: of too many consumers in one record"


class ClientMetrics(NamedTuple):
    """What is read from one consumer's metrics: whose they are, and how many whole seconds ago the client polled.

    ``poll_age_s`` None: the metrics do not have it, such as librdkafka's. Those show instead whether the client
    ``polled`` in the ``interval_ms`` before; None: they do not show it. ``longest_ms``: the longest recent time between
    two polls. ``shown``: other metrics, by name. Only a collector's record has the client id, the host and the client
    instance id.
    """

    group: str
    member_id: str
    poll_age_s: float | None
    polled: bool | None = None
    interval_ms: int = 0
    instance_id: str | None = None
    longest_ms: float | None = None
    shown: tuple[tuple[str, float], ...] = ()
    client_id: str = ""
    client_host: str = ""
    client_instance_id: str = ""


MetricsReader = Callable[[bytes, int | None], list[ClientMetrics]]
"""Reads bytes into the metrics of each consumer in them.

The second argument is the id of a push's compression; None: the bytes are a collector's record, as protobuf or JSON.
Raises ``BadField`` if they cannot be read.
"""


def unread(_metrics: bytes, compression: int | None) -> list[ClientMetrics]:
    """Read nothing from metrics. A push still counts as a line. Another record is rejected: it may be anything."""
    if compression is None:
        raise BadField("exported metrics: no reader")
    return []


def metrics_bytes(text: str) -> bytes:
    """Decode the base64 that the request log writes for bytes."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadField("pushed metrics: not base64") from None


def poll_age_ms(said: ClientMetrics) -> int | None:
    """Return a poll age; None: there is none, or the client never polled. Clients round down to whole seconds."""
    age_s = said.poll_age_s
    if age_s is None or age_s == NEVER_POLLED:
        return None
    if not math.isfinite(age_s) or not 0 <= age_s * 1_000 < MAX_MS:
        raise BadField("pushed metrics: poll age out of range")
    return round(age_s * 1_000)


def poll_interval_ms(said: ClientMetrics) -> int | None:
    """Return the longest time between polls. A Java client that has not polled twice recently sends NaN."""
    if said.longest_ms is None or not math.isfinite(said.longest_ms):
        return None
    if not 0 <= said.longest_ms < MAX_MS:
        raise BadField("pushed metrics: time between polls out of range")
    return round(said.longest_ms)


def tells_of_polls(said: ClientMetrics, age_ms: int | None) -> bool:
    """Tell whether metrics show a member's poll age or, if the client sends no ages, whether it polled."""
    if age_ms is not None:
        return bool(said.member_id)
    return said.polled is not None and said.poll_age_s is None


def exported(place: SourceRow, consumers: Iterable[ClientMetrics]) -> list[MetricsExported]:
    """Return the events of a collector's record. The clients' clocks are not used, so each age is a lower bound.

    A consumer whose metrics cannot be read is skipped. If no other consumer makes an event, the record is rejected.
    """
    events, bad = [], None
    for said in consumers:
        try:
            age_ms = poll_age_ms(said)
            if said.group and tells_of_polls(said, age_ms):
                events.append(_exported(place, said, age_ms))
        except BadField as error:
            bad = error
    if len(events) > MAX_EXPORTED:
        raise BadField(TOO_MANY)
    if bad is not None and not events:
        raise bad
    return events


def _exported(place: SourceRow, said: ClientMetrics, age_ms: int | None) -> MetricsExported:
    return MetricsExported(
        place.timestamp_ms,
        TELEMETRY_RANK,
        place.topic,
        place.partition,
        place.offset,
        said.group,
        said.member_id,
        said.client_id,
        said.client_host,
        age_ms,
        said.client_instance_id,
        said.polled,
        said.interval_ms,
        said.instance_id,
        poll_interval_ms(said),
        said.shown,
    )

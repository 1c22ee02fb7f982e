"""What a client's pushed metrics (PUSH_TELEMETRY, KIP-714) tell of its polls.

Their bytes are compressed protobuf, which takes more than the standard library. So whoever owns the outside world gives
a ``MetricsReader``, as it gives a ``Zone``; without one, pushes say nothing.
"""

import base64
import binascii
import math
from collections.abc import Callable
from typing import NamedTuple

from coordinator_model.decode.telemetry.fields import BadField

MAX_AGE_S = 2**31 / 1_000
"""Some 24 days: an older poll is another unit, or no poll."""
NEVER_POLLED = -1


class PolledMetrics(NamedTuple):
    """What is read of one push: whose it is, and how many whole seconds ago its client polled.

    ``poll_age_s`` None: the client does not push it, as librdkafka. That one pushes whether it ``polled`` in the
    ``interval_ms`` before; None: it does not say.
    """

    group: str
    member_id: str
    poll_age_s: float | None
    polled: bool | None = None
    interval_ms: int = 0


MetricsReader = Callable[[bytes, int], PolledMetrics | None]
"""Maps the bytes of a push and the id of their compression to what they say; None: nothing of a group.

Raises ``BadField`` where they cannot be read.
"""


def unread(_metrics: bytes, _compression: int) -> None:
    """Read nothing of pushed metrics."""


def metrics_bytes(text: str) -> bytes:
    """Return the bytes that the request log writes as base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadField("pushed metrics: not base64") from None


def poll_age_ms(age_s: float) -> int | None:
    """Return a poll age; None: it never polled. A client tells whole seconds, rounded down."""
    if age_s == NEVER_POLLED:
        return None
    if not math.isfinite(age_s) or not 0 <= age_s < MAX_AGE_S:
        raise BadField("pushed metrics: poll age out of range")
    return round(age_s * 1_000)

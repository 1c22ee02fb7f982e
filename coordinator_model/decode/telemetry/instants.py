"""The instants of a request in the broker's clock, from when its line was written and the times that the line tells.

The line is written when the answer has been sent, so with T its instant: answer = T - responseQueueTimeMs - sendTimeMs,
arrival = T - totalTimeMs, and the coordinator applied a heartbeat or a leave at answer - remoteTimeMs, before a stalled
write let the answer go.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Instants(NamedTuple):
    """Of one request, or columns of many."""

    arrival_ms: Any
    answer_ms: Any
    applied_ms: Any
    remote_ms: Any
    """How long the answer waited in purgatory: a duration."""


def instants(written_ms: Any, times_ms: Iterable[Any], rounded: Callable[[Any], Any] = round) -> Instants:
    """Return the instants of a request whose times are total, remote, response queue and send.

    They are numbers or columns, as ``rounded`` takes them, which returns whole milliseconds, a half to the even one.
    The times behind the answer are added up before they are rounded.
    """
    total, remote, queued, sending = times_ms
    remote_ms, answer_ms = rounded(remote), written_ms - rounded(queued + sending)
    return Instants(written_ms - rounded(total), answer_ms, answer_ms - remote_ms, remote_ms)

"""The instants of a request by the broker's clock, from the instant of its line and the times in the line.

The line is written when the answer has been sent. Let T be the instant of the line. Then answer = T -
responseQueueTimeMs - sendTimeMs, and arrival = T - totalTimeMs. The coordinator applied a heartbeat or a leave at
answer - remoteTimeMs: a stalled write delays only the answer.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Instants(NamedTuple):
    """The instants of one request, or columns for many."""

    arrival_ms: Any
    answer_ms: Any
    applied_ms: Any
    remote_ms: Any
    """How long the answer waited in purgatory: a duration."""


def instants(written_ms: Any, times_ms: Iterable[Any], rounded: Callable[[Any], Any] = round) -> Instants:
    """Return the instants of a request whose times are total, remote, response queue and send.

    They are numbers or columns. ``rounded`` must take the same, and round to whole milliseconds, a half to the even
    one. The times after the answer are added up before they are rounded.
    """
    total, remote, queued, sending = times_ms
    remote_ms, answer_ms = rounded(remote), written_ms - rounded(queued + sending)
    return Instants(written_ms - rounded(total), answer_ms, answer_ms - remote_ms, remote_ms)

"""Blind windows: times for which lines of a broker are missing.

A removal is explained by one line: a LeaveGroup, a heartbeat with epoch -1, or a JoinGroup that came in time. If that
line may be missing, the cause is unknown (``replica.removals.uncertain``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LINES_LOST = "lines lost"
NO_LINES = "no lines"
NO_REQUEST_LOG = "no request log"
COARSE_INSTANTS = "coarse instants"
"""No line is missing, but the dates are those of a shipper's buffer: the true times and the order are unknown."""
CLOCK_STEPPED = "clock stepped"
MISDATED = "misdated lines"
"""No line is missing, but the broker's records contradict the dates of its lines (``line_dates``)."""
MAX_WINDOWS = 64
"""At most this many windows are kept per shard. The oldest is dropped first."""
MEMORY_MS = 3_600_000
"""Twice the default of ``group.max.session.timeout.ms``. No older line can explain a removal."""
APART_MS = 1_000
"""Windows at most this far apart are merged."""


@dataclass(slots=True)
class BlindWindow:
    """Lines of a broker between these two instants are missing; ``why`` says how that is known."""

    broker: str
    from_ms: int
    until_ms: int
    why: str


def add_window(windows: list[BlindWindow], new: BlindWindow) -> BlindWindow:
    """Add a window and drop old ones. A window next to the newest one of the same broker and ``why`` extends that one.

    Return the window that was added or extended.
    """
    for known in reversed(windows):
        if (known.broker, known.why) == (new.broker, new.why):
            if known.from_ms <= new.until_ms and new.from_ms <= known.until_ms + APART_MS:
                known.from_ms, known.until_ms = min(known.from_ms, new.from_ms), max(known.until_ms, new.until_ms)
                return known
            break
    horizon_ms = new.until_ms - MEMORY_MS
    windows[:] = [known for known in windows if known.until_ms >= horizon_ms][-(MAX_WINDOWS - 1) :]
    windows.append(new)
    return new


def may_have_lived_until_ms(windows: Iterable[BlindWindow], heard_ms: int, interval_ms: int, until_ms: int) -> int:
    """Return the latest instant up to which a member may have been alive without being seen, at most ``until_ms``.

    It was last heard at ``heard_ms`` and sends a heartbeat at least every ``interval_ms``. If it was still alive, each
    of its heartbeats since then must fall into a window.
    """
    for window in sorted(windows, key=lambda window: window.from_ms):
        if window.until_ms > heard_ms and window.from_ms < until_ms:
            if window.from_ms > heard_ms + interval_ms:
                break
            heard_ms = window.until_ms
    return min(heard_ms, until_ms)


def may_miss_lines(windows: Iterable[BlindWindow], from_ms: int, until_ms: int) -> bool:
    """Tell whether lines between these two instants may be missing."""
    return any(window.from_ms < until_ms and from_ms < window.until_ms for window in windows)


def blind_windows(reported: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merge the windows that the shards reported, per broker.

    ``until_ms`` None: the window is still open. A window has ended if a shard reported its end, or if a later window of
    the same broker has ended, because the broker was heard in between.
    """
    by_broker: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for window in reported:
        by_broker.setdefault((window["cluster"], window["broker"]), []).append(window)
    return [merged for key in sorted(by_broker) for merged in _merged(*key, by_broker[key])]


def _merged(cluster: str, broker: str, windows: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    ends_ms = sorted(window["until_ms"] for window in windows if window["until_ms"] is not None)
    merged: list[dict[str, Any]] = []
    for window in sorted(windows, key=lambda window: int(window["from_ms"])):
        from_ms, until_ms = window["from_ms"], window["until_ms"]
        if until_ms is None:
            until_ms = next((end_ms for end_ms in ends_ms if end_ms > from_ms), None)
        last = merged[-1] if merged else None
        if last is None or (last["until_ms"] is not None and last["until_ms"] < from_ms):
            head = {"cluster": cluster, "broker": broker, "from_ms": from_ms}
            merged.append({**head, "until_ms": until_ms, "why": window["why"]})
        elif last["until_ms"] is not None:
            last["until_ms"] = None if until_ms is None else max(last["until_ms"], until_ms)
    return merged

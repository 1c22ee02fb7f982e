"""Blind windows: when lines of a broker are missing, so that what they said is not known.

A removal is explained by a line: a LeaveGroup, a heartbeat with epoch -1, a JoinGroup that came in time. Where that
line may be among the missing ones, nobody can say why the member was removed: see ``replica.unexplained``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LINES_LOST = "lines lost"
NO_LINES = "no lines"
NO_REQUEST_LOG = "no request log"
MAX_WINDOWS = 64
"""Windows remembered a shard; the oldest give way."""
MEMORY_MS = 3_600_000
"""Twice the longest session timeout: no removal is explained by a line of before then."""
APART_MS = 1_000
"""Windows no further apart are one: of a telemetry that loses lines every moment."""


@dataclass(slots=True)
class BlindWindow:
    """Lines of a broker between these two instants are missing; ``why`` says how that is known."""

    broker: str
    from_ms: int
    until_ms: int
    why: str


def note(windows: list[BlindWindow], new: BlindWindow) -> BlindWindow:
    """Add a window, or extend the newest of its broker that it adjoins, and forget old ones. Return what it became."""
    for known in reversed(windows):
        if known.broker == new.broker:
            if known.from_ms <= new.until_ms and new.from_ms <= known.until_ms + APART_MS:
                known.until_ms = max(known.until_ms, new.until_ms)
                return known
            break
    horizon_ms = new.until_ms - MEMORY_MS
    windows[:] = [known for known in windows if known.until_ms >= horizon_ms][-(MAX_WINDOWS - 1) :]
    windows.append(new)
    return new


def unseen_until_ms(windows: Iterable[BlindWindow], heard_ms: int, interval_ms: int, until_ms: int) -> int:
    """Return up to when a member may have lived unseen that was heard last at ``heard_ms``, at most ``until_ms``.

    Each of its heartbeats fell into a window: it sends one at least every ``interval_ms``.
    """
    for window in sorted(windows, key=lambda window: window.from_ms):
        if window.until_ms > heard_ms and window.from_ms < until_ms:
            if window.from_ms > heard_ms + interval_ms:
                break
            heard_ms = window.until_ms
    return min(heard_ms, until_ms)


def is_blind(windows: Iterable[BlindWindow], from_ms: int, until_ms: int) -> bool:
    """Tell whether lines of between these two instants may be missing."""
    return any(window.from_ms < until_ms and from_ms < window.until_ms for window in windows)


def blind_windows(told: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put together what shards told of blind windows, by broker and beginning; what overlaps becomes one.

    One that is told with its end and without has ended. ``until_ms`` None: lines are still missing.
    """
    ends: dict[tuple[str, str, int], tuple[int | None, str]] = {}
    for window in told:
        key, until_ms = (window["cluster"], window["broker"], window["from_ms"]), window["until_ms"]
        known_ms, _ = ends.get(key, (None, ""))
        later_ms = max((at_ms for at_ms in (known_ms, until_ms) if at_ms is not None), default=None)
        ends[key] = (later_ms, window["why"])
    merged: list[dict[str, Any]] = []
    for (cluster, broker, from_ms), (until_ms, why) in sorted(ends.items()):
        last = merged[-1] if merged and (merged[-1]["cluster"], merged[-1]["broker"]) == (cluster, broker) else None
        if last is not None and (last["until_ms"] is None or from_ms <= last["until_ms"]):
            ended = last["until_ms"] is not None and until_ms is not None
            last["until_ms"] = max(last["until_ms"], until_ms) if ended else None
        else:
            merged.append({"cluster": cluster, "broker": broker, "from_ms": from_ms, "until_ms": until_ms, "why": why})
    return merged

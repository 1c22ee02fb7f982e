"""The end of a session that was due while its broker was paused."""

from collections.abc import Iterable

TOLERANCE_MS = 1_000


def ended_at_a_pause(at_ms: int, from_ms: int, until_ms: int, pauses_ms: Iterable[tuple[int, int]]) -> bool:
    """Tell whether a reported interval is a pause of a broker, and the session ended when it began or ended.

    No other instant is possible: the timer ran just before the pause began, or when it was over.
    """
    stated = any(max(abs(from_ms - a), abs(until_ms - b)) <= TOLERANCE_MS for a, b in pauses_ms)
    return stated and min(abs(at_ms - from_ms), abs(at_ms - until_ms)) <= TOLERANCE_MS

"""When a session ended that was due while its broker was paused."""

from collections.abc import Iterable

TOLERANCE_MS = 1_000


def ended_at_a_pause(at_ms: int, from_ms: int, until_ms: int, pauses_ms: Iterable[tuple[int, int]]) -> bool:
    """Tell whether a stated interval is a pause of a broker, and the session ended at one of its ends.

    Only these two instants are possible: the timer ran just before the pause began, or when it was over.
    """
    stated = any(max(abs(from_ms - a), abs(until_ms - b)) <= TOLERANCE_MS for a, b in pauses_ms)
    return stated and min(abs(at_ms - from_ms), abs(at_ms - until_ms)) <= TOLERANCE_MS

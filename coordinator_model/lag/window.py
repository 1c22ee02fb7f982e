"""The window of commits of a ``PartitionLag``, and since when messages wait."""

from bisect import bisect_right
from collections.abc import Sequence

from coordinator_model.lag.partition import MIN_DISTANCE_MS, WINDOW, Commit

AHEAD_MS = 15_000
"""How much later than the instant of its reading a record's instant may be, because clocks differ. A later one is
wrong."""


def is_misdated(record_ms: int, read_ms: int) -> bool:
    """Tell whether a record's instant is wrong: it is far later than the instant at which the record was read.

    The record then counts as written when it was read. Otherwise no later commit would be newer until the wrong instant
    had passed, and the partition could not be found stalled until then.
    """
    return record_ms > read_ms + AHEAD_MS


def extended(commits: tuple[Commit, ...], commit: Commit) -> tuple[Commit, ...]:
    """Return the window with a newer commit.

    All commits but the last are at least ``MIN_DISTANCE_MS`` apart. The last is always the newest commit. Its instant
    is never earlier than that of the commit before it, although the clock of a new coordinator may be behind that of
    the former one.
    """
    if not commits:
        return (commit,)
    commit = commit._replace(at_ms=max(commit.at_ms, commits[-1].at_ms))
    if len(commits) > 1 and commits[-1].at_ms - commits[-2].at_ms < MIN_DISTANCE_MS:
        return (*commits[:-1], commit)
    return (*commits, commit)[-WINDOW:]


def waits_since_ms(ends: Sequence[tuple[int, int]], committed: int) -> int | None:
    """Return when a message at or after an offset was first seen in the log; None: there is none.

    ``ends``: end offsets and when they were asked, as ``(end_offset, asked_ms)``, oldest first. They never fall.
    """
    at = bisect_right(ends, committed, key=lambda end: end[0])
    return ends[at][1] if at < len(ends) else None

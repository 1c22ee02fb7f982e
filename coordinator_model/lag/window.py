"""What ``PartitionLag`` is made of: the window of commits, and since when a message waits. Small and pure."""

from bisect import bisect_right
from collections.abc import Sequence

from coordinator_model.lag.partition import MIN_DISTANCE_MS, WINDOW, Commit

AHEAD_MS = 15_000
"""A record may be so much later than the instant at which it was read: clocks differ. A later instant is wrong."""


def is_misdated(record_ms: int, read_ms: int) -> bool:
    """Tell whether a record's instant is wrong, for it was read long before it.

    Its offset counts, at the instant at which it was read. Else nothing that is committed before that far instant would
    be newer, and its partition could not stall until then.
    """
    return record_ms > read_ms + AHEAD_MS


def extended(commits: tuple[Commit, ...], commit: Commit) -> tuple[Commit, ...]:
    """Return the window with a newer commit.

    All but the last are ``MIN_DISTANCE_MS`` apart; the last is always the newest, at its own instant. Its instant is
    never before the one of the commit before it: a coordinator's clock may be behind that of the former one.
    """
    if not commits:
        return (commit,)
    commit = commit._replace(at_ms=max(commit.at_ms, commits[-1].at_ms))
    if len(commits) > 1 and commits[-1].at_ms - commits[-2].at_ms < MIN_DISTANCE_MS:
        return (*commits[:-1], commit)
    return (*commits, commit)[-WINDOW:]


def waits_since_ms(ends: Sequence[tuple[int, int]], committed: int) -> int | None:
    """Return when a message at or behind an offset was first seen to be in the log; None: there is none.

    ``ends``: end offsets and when they were asked, as ``(end_offset, asked_ms)``, oldest first, none below the one
    before it.
    """
    at = bisect_right(ends, committed, key=lambda end: end[0])
    return ends[at][1] if at < len(ends) else None

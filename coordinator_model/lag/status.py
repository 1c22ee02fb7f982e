"""A partition's status by Burrow's rules, which have no lag threshold.

Burrow judges a window of commits, each with the lag that was known when it was read. Unlike Burrow, we say ``unknown``
if a rule needs more commits than the window has, or a lag that was not known.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise

from coordinator_model.lag.partition import WINDOW, Commit, PartitionLag

ASKED_AFTER_MS = 5_000
"""An end offset that was asked this long after a commit is newer than the commit, even if clocks differ."""
RECENT_MS = 100_000
"""A partition that had no lag within this time has not stopped. Burrow looks back as far: ten end offsets in 100 s."""
SHORT_WINDOW_MS = 600_000
"""The span of a window that is not full: as if it had one commit a minute."""


class Status(StrEnum):
    """The statuses from best to worst. A group has the worst known status of its partitions."""

    UNKNOWN = "unknown"
    OK = "ok"
    WARN = "warn"
    """The group commits, and the lag never falls."""
    REWIND = "rewind"
    """The committed offset went back, and no later commit has reached the earlier offset."""
    STALL = "stall"
    """The same offset is committed again and again, although messages wait."""
    STOP = "stop"
    """No commit for longer than the window of commits spans, although messages wait."""

    @property
    def rank(self) -> int:
        """Its place in the order from best to worst, from 0."""
        return _RANKS[self]


_RANKS = {status: rank for rank, status in enumerate(Status)}


def committed_offset_of(p: PartitionLag) -> int | None:
    """Return the committed offset; None: nothing was committed, or a negative offset."""
    return p.commits[-1].offset if p.commits and p.commits[-1].offset >= 0 else None


def lag_of(p: PartitionLag) -> int | None:
    """Return how many messages wait, never less than 0; None: an offset is not known.

    If the commit is newer than the end offset, the lag is 0. If it is beyond an end offset that was asked after it, the
    topic was truncated or recreated.
    """
    end_offset, commits = p.end_offset, p.commits
    if end_offset is None or end_offset < 0 or not commits or commits[-1].offset < 0:
        return None
    lag = end_offset - commits[-1].offset
    if lag >= 0:
        return lag
    return None if is_beyond_end(p) else 0


def is_beyond_end(p: PartitionLag) -> bool:
    """Tell whether the committed offset lies beyond an end offset that was asked after it."""
    if not p.commits or p.end_offset is None or p.asked_ms is None:
        return False
    newest = p.commits[-1]
    return newest.offset > p.end_offset >= 0 and p.asked_ms > newest.at_ms + ASKED_AFTER_MS


def lag_ms_of(p: PartitionLag, now_ms: int) -> int | None:
    """Return for how long, at least, the oldest uncommitted message has waited; None: not known."""
    return lag_ms_by(p, lag_of(p), now_ms)


def lag_ms_by(p: PartitionLag, lag: int | None, now_ms: int) -> int | None:
    """Return the same for a partition whose lag is known already."""
    if not lag:
        return lag
    return None if p.waits_since_ms is None else max(0, now_ms - p.waits_since_ms)


def status_of(p: PartitionLag, now_ms: int) -> Status:
    """Judge a partition at an instant."""
    return status_by(p, lag_of(p), now_ms)


def status_by(p: PartitionLag, lag: int | None, now_ms: int) -> Status:
    """Judge a partition whose lag is known already. A round judges a hundred thousand partitions."""
    if not lag:
        return Status.OK if lag == 0 else Status.UNKNOWN
    if has_stopped(p, now_ms):
        return Status.UNKNOWN if p.waits_since_ms is None else Status.STOP
    if rewound_by(p.commits) is not None:
        return Status.REWIND
    if had_no_lag(p.commits) or _falls(p.commits, lag):
        return Status.OK
    if len(p.commits) < WINDOW or any(commit.end_offset is None for commit in p.commits):
        return Status.UNKNOWN
    return Status.STALL if _stands(p.commits) else Status.WARN


def has_stopped(p: PartitionLag, now_ms: int) -> bool:
    """Tell whether nothing was committed for longer than the window spans, and messages have waited for a while."""
    first_ms, last_ms = p.commits[0].at_ms, p.commits[-1].at_ms
    span_ms = last_ms - first_ms
    if len(p.commits) < WINDOW:
        span_ms = max(span_ms, SHORT_WINDOW_MS)
    waits_recently = p.waits_since_ms is not None and now_ms - p.waits_since_ms <= RECENT_MS
    return now_ms - last_ms > span_ms and not waits_recently


def had_no_lag(commits: tuple[Commit, ...]) -> bool:
    """Tell whether the lag was 0 at some commit."""
    for offset, _, end_offset in commits:  # noqa: SIM110 # a generator costs more than the loop
        if end_offset is not None and end_offset <= offset:
            return True
    return False


def rewound_by(commits: tuple[Commit, ...]) -> Commit | None:
    """Return the commit that went back, if no later commit has reached the earlier offset."""
    for at in range(1, len(commits)):
        before = commits[at - 1].offset
        if commits[at].offset < before > max(commit.offset for commit in commits[at:]):
            return commits[at]
    return None


def _falls(commits: tuple[Commit, ...], lag: int) -> bool:
    """Tell whether the lag fell at any time."""
    return any(after < before for before, after in pairwise([*lags_of(commits), lag]))


def lags_of(commits: tuple[Commit, ...]) -> Iterator[int]:
    """Yield the lags in the window, one for each end offset that was known.

    Only the first of several commits with the same end offset counts: at the others, the outdated end offset makes the
    lag seem to fall.
    """
    seen: int | None = None
    for commit in commits:
        if commit.end_offset is not None and commit.end_offset != seen:
            seen = commit.end_offset
            yield max(0, commit.end_offset - commit.offset)


def _stands(commits: tuple[Commit, ...]) -> bool:
    return all(commit.offset == commits[0].offset for commit in commits)

"""Why a partition with waiting messages is not committed: it is stalled, or one of several other reasons.

A partition is stalled if it was not committed for three of its usual intervals between commits. There are two
exceptions. An owner that commits nothing at all may still be processing the records of one poll, for up to its
``max.poll.interval.ms``. An owner that is behind on several partitions may process them in turn, which no timeout
bounds. So ``stuck`` needs an owner that kept up with another of its partitions in the same time, and after it began to
work off the backlog of any other.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

from coordinator_model.lag.partition import Commit, GroupFacts, PartitionLag
from coordinator_model.lag.status import Status
from coordinator_model.states import GroupType
from coordinator_model.thresholds import Thresholds

ALIVE = "alive"
BACKLOG_MS = 5_000
"""A commit leaves a backlog if a message still waits that was first seen in the log this long before it."""


class Note(StrEnum):
    """The reason why a partition is behind, or why its lag is not known."""

    STUCK = "stuck"
    """Stalled: its owner commits other partitions, but not this one. Or its client has paused it."""
    SILENT = "silent"
    """Stalled: its owner is alive and commits nothing at all."""
    SLOW = "slow"
    """Its owner commits, but falls behind."""
    PAUSED = "paused"
    """The same offset is committed again and again."""
    NOT_COMMITTING = "not-committing"
    """Its owner has committed nothing since it has owned its partitions. That may be intended."""
    STARVED = "starved"
    """It has no owner, or its owner is not known to be alive. Other rules report that."""
    WAITS_FOR_TRANSACTION = "waits-for-transaction"
    """All messages up to the last stable offset are committed. The rest belongs to an open transaction."""
    LAST_MESSAGE = "last-message"
    """It would be stalled, but fewer than ``stall_lag`` messages wait, and the last may be a transaction marker."""
    SHARE_GROUP = "share-group"
    """Share groups do not commit to the offsets topic, so their lag is not known."""


STALLED = (Note.STUCK, Note.SILENT)


class Work(NamedTuple):
    """What an owner has committed in all its partitions since it has owned them."""

    newest_ms: int = 0
    """When its newest commit was; 0: it has committed nothing."""
    kept_up_ms: int = 0
    """The last instant at which it is known to have kept up with one of its partitions."""
    backlog_ms: int = 0
    """When its newest commit of a partition with a backlog was; 0: it has committed none."""
    backlog_from_ms: int = 0
    """When the first known commit of that partition was."""

    def works_off_a_backlog(self, since_ms: int) -> bool:
        """Tell whether it has worked off a backlog since an instant, and kept up with no other partition meanwhile."""
        return self.backlog_ms > since_ms and self.kept_up_ms < self.backlog_from_ms


class Stall(NamedTuple):
    """Why a partition is not committed. ``since_ms``: when that began, if the partition is or may become stalled."""

    note: Note | None = None
    since_ms: int = 0
    due_ms: int = 0
    """When the partition counts as stalled."""
    interval_ms: int = 0
    """Its usual interval between commits."""
    waits: bool = False
    """Whether it may be stalled: its last commit is older than usual, or something is not known."""


NOTHING = Stall()
NO_WORK = Work()


class Instant(NamedTuple):
    """What is needed to judge any partition of a group: facts, time and thresholds."""

    facts: GroupFacts
    now_ms: int
    thresholds: Thresholds

    @property
    def is_simple(self) -> bool:
        """Whether it is a simple group: its consumers assign partitions themselves, so it has no members."""
        return self.facts.type == GroupType.SIMPLE


def owner_key(p: PartitionLag) -> Hashable:
    """Return what identifies a partition's owner. All partitions of a simple group count as those of one owner."""
    return None if p.owner is None else p.owner.member_id


def works_of(judged: Iterable[tuple[PartitionLag, int | None]]) -> Mapping[Hashable, Work]:
    """Return what each owner has committed, from its partitions and their lags."""
    works: dict[Hashable, Work] = defaultdict(Work)
    for p, lag in judged:
        since_ms = 0 if p.owner is None else p.owner.since_ms
        if not p.commits or p.commits[-1].at_ms < since_ms:
            continue
        owner, last_ms, waits_ms = owner_key(p), p.commits[-1].at_ms, p.waits_since_ms or 0
        work = works[owner]._replace(newest_ms=max(works[owner].newest_ms, last_ms))
        if lag == 0 or waits_ms >= last_ms - BACKLOG_MS:
            # before the oldest waiting message came, the owner had read everything
            work = work._replace(kept_up_ms=max(work.kept_up_ms, min(last_ms, waits_ms or last_ms)))
        elif lag is not None and last_ms > work.backlog_ms:
            from_ms = next(commit.at_ms for commit in p.commits if commit.at_ms >= since_ms)
            work = work._replace(backlog_ms=last_ms, backlog_from_ms=from_ms)
        works[owner] = work
    return works


def interval_ms(commits: tuple[Commit, ...], least: int) -> int | None:
    """Return the usual interval between commits; None: fewer than ``least`` intervals are known."""
    intervals = [after.at_ms - before.at_ms for before, after in pairwise(commits)]
    return median_low(intervals) if len(intervals) >= least else None


def stall_of(p: PartitionLag, lag: int | None, status: Status, work: Work, instant: Instant) -> Stall:
    """Return why a partition is not committed."""
    kind = instant.facts.type
    if kind == GroupType.SHARE:
        return Stall(Note.SHARE_GROUP)
    if lag == 0:
        return NOTHING
    alive = p.owner is not None and p.owner.liveness == ALIVE
    if not p.commits:
        has_messages = p.end_offset is not None and p.end_offset > (p.start_offset or 0)
        return Stall(Note.NOT_COMMITTING) if alive and has_messages else NOTHING
    if lag is None:
        return NOTHING
    if kind != GroupType.SIMPLE and not alive:
        # The view of a streams group does not show which member reads which topic.
        return Stall(None if kind == GroupType.STREAMS else Note.STARVED, waits=p.owner is not None)
    if p.stable_offset is not None and p.commits[-1].offset >= p.stable_offset:
        return Stall(Note.WAITS_FOR_TRANSACTION, waits=True)
    if not work.newest_ms:
        return Stall(Note.NOT_COMMITTING, waits=True)
    return _by_usual_interval(p, lag, status, work, instant)


def _by_usual_interval(p: PartitionLag, lag: int, status: Status, work: Work, instant: Instant) -> Stall:
    """Judge a partition by its usual interval between commits. It has an owner, and messages wait."""
    thresholds, now_ms, last_ms = instant.thresholds, instant.now_ms, p.commits[-1].at_ms
    if now_ms < last_ms + thresholds.stall_margin_ms:
        return Stall(_note_unless_stalled(p, status, instant))
    usual_ms = interval_ms(p.commits, thresholds.stall_intervals)
    if usual_ms is None or p.waits_since_ms is None:
        return Stall(_note_unless_stalled(p, status, instant), waits=True)
    usual_limit_ms = thresholds.stall_intervals * usual_ms
    limit_ms = usual_limit_ms + thresholds.stall_margin_ms
    since_ms = max(last_ms, p.owner.since_ms if p.owner else 0, instant.facts.stable_since_ms or 0)
    from_ms = max(since_ms, instant.facts.outage_end_ms)
    # The arrival of a message is known only to within a round of end offsets. The margin allows for that.
    due_ms = max(from_ms + limit_ms, p.waits_since_ms + usual_limit_ms)
    told = Stall(None, since_ms, due_ms, usual_ms, now_ms >= last_ms + limit_ms)
    if now_ms < due_ms:
        return told._replace(note=_note_unless_stalled(p, status, instant))
    middle_ms = (max(from_ms, p.waits_since_ms) + now_ms) // 2
    if work.kept_up_ms <= middle_ms < work.newest_ms or work.works_off_a_backlog(middle_ms):
        return told._replace(note=Note.SLOW)
    if work.kept_up_ms <= middle_ms:
        told = told._replace(due_ms=max(due_ms, from_ms + _busy_ms(p, thresholds) + thresholds.stall_margin_ms))
        if now_ms < told.due_ms:
            return told
    if lag < thresholds.stall_lag:
        return told._replace(note=Note.LAST_MESSAGE)
    if p.stable_offset is None:
        return told  # it may wait for a transaction: the next round asks
    return told._replace(note=Note.STUCK if work.newest_ms > middle_ms else Note.SILENT)


def _busy_ms(p: PartitionLag, thresholds: Thresholds) -> int:
    """Return how long a partition's owner may work without a commit."""
    told_ms = None if p.owner is None else p.owner.max_poll_interval_ms
    return thresholds.stall_silence_ms if told_ms is None else told_ms


def _note_unless_stalled(p: PartitionLag, status: Status, instant: Instant) -> Note | None:
    """Return the note of a partition that is not stalled."""
    newest = p.commits[-(instant.thresholds.stall_intervals + 1) :]
    if len(newest) > instant.thresholds.stall_intervals and len({commit.offset for commit in newest}) == 1:
        return Note.PAUSED
    return Note.SLOW if status is Status.WARN else None

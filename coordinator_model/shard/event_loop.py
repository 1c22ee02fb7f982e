"""Applies a part of a batch, event by event, in the order of the coordinator's time.

Three sequences are merged here, each in order: heartbeats as the rows of a block, nearly all of which take the fast
path; offset commits as the rows of another block; and all other events.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter

from coordinator_model.commit_block import group_in, head_of
from coordinator_model.events import (
    FAR_MS,
    RECORD_RANK,
    ClientWord,
    CoordinatorLine,
    Event,
    LeaderNamed,
    OffsetCommitted,
    RecordRead,
)
from coordinator_model.heartbeat_block import FastRow, HeartbeatBlock, order
from coordinator_model.shard.batch import Part, applied_at
from coordinator_model.shard.broker_lines import BrokerLines
from coordinator_model.shard.commit_times import COMMIT_MEMORY_MS, CommitQueue, CommitRow
from coordinator_model.shard.fast_path import FastPath
from coordinator_model.shard.group_events import GroupEvents
from coordinator_model.shard.groups import Groups
from coordinator_model.shard.schedule import Schedule


class EventLoop:
    """The loop over one shard's events."""

    def __init__(
        self, groups: Groups, *, events: GroupEvents, lines: BrokerLines, schedule: Schedule, fast_path: FastPath
    ) -> None:
        self._groups, self._events, self._lines = groups, events, lines
        self._schedule, self._fast_path = schedule, fast_path
        self._commits = CommitQueue()

    def apply_part(self, part: Part) -> None:
        """Apply a part. It is the whole batch, unless the coordinator's clock stepped during the batch."""
        if part.step is not None:
            self._lines.stepped(part.step)
        beats, self._commits = part.heartbeats, CommitQueue(self._commits_that_tell(part))
        rows, done = beats.fast_rows(), 0
        for event in part.events:
            place = applied_at(event, part.moved_ahead)
            done = self._take_heartbeats(beats, rows, done, beats.up_to(place))
            self._take_commits(place)
            self._apply_alone(event)
        self._take_heartbeats(beats, rows, done, beats.length)
        self._note_commits(self._commits.before((FAR_MS,)))

    def _commits_that_tell(self, part: Part) -> Sequence[CommitRow]:
        """Return the commits without those old ones that change nothing.

        The first start reads hundreds of thousands of such commits. They are too old to be signs of life, and do not
        begin a simple group, because their groups have other records, in this part or before it. The newest old commit
        stays, because it moves the time.
        """
        old = bisect_right(part.commits, self._groups.settings.live_from_ms - COMMIT_MEMORY_MS, key=itemgetter(0)) - 1
        if old <= 0:
            return part.commits
        records = [event for event in part.events if type(event) is RecordRead]
        ended = {record.group for record in records if record.value is None}
        ended |= {group_in(key) for _, _, key, gone in part.commits[: old + 1] if gone}
        unaffected = self._with_records({record.group for record in records}) - ended
        heads = [head_of(key) for _, _, key, _ in part.commits[:old]]
        unaffected_heads = {head for head in set(heads) if group_in(head) in unaffected}
        telling = [row for row, head in zip(part.commits[:old], heads, strict=True) if head not in unaffected_heads]
        return telling + part.commits[old:]

    def _with_records(self, read: set[str]) -> set[str]:
        """Return the groups that have records other than commits: those that begin in a part, and those known before.

        ``read``: the groups that have records in the part.
        """
        groups, known = self._groups, {*self._groups.group_store.names()}
        return (read - known) | (known - groups.commit_times.simple.keys() - groups.memory.deleted.keys())

    def _take_heartbeats(self, beats: HeartbeatBlock, rows: Iterator[FastRow], start: int, end: int) -> int:
        """Apply the heartbeats from ``start`` up to, but not including, ``end``, and return ``end``.

        ``rows`` yields them next.
        """
        while start < end:
            start += self._fast_path.take(islice(rows, end - start))
            if start < end:
                beat = beats.row(start)
                self._take_commits(order(beat))
                self._apply_alone(beat)
                start += 1
        return end

    def _take_commits(self, place: tuple[int, int, str, int, int]) -> None:
        """Apply the commits that come before an event at a place. At one instant, records come before lines."""
        at_ms, rank, *_, offset = place
        if rows := self._commits.before((at_ms, offset) if rank == RECORD_RANK else (at_ms + 1,)):
            self._note_commits(rows)

    def _note_commits(self, rows: Sequence[CommitRow]) -> None:
        """Note commits as signs of life.

        If records tell the time, or a timer reset is open, each commit also moves the schedule.
        """
        times = self._groups.commit_times
        if not self._groups.clock.waiting and not self._groups.clock.by_records:
            for row in times.take(rows):
                self._events.committed(row)
            return
        for at_ms, of_one_instant in groupby(rows, itemgetter(0)):
            try:
                self._schedule.record(at_ms)
            except Exception as error:  # noqa: BLE001 # whatever it is, the other commits are applied
                self._groups.outputs.quarantine(at_ms, None, error)
            for row in times.take(of_one_instant):
                self._events.committed(row)

    def _apply_alone(self, event: Event) -> None:
        """Apply one event.

        An event that fails before it reaches its group goes to the quarantine, and the other events are applied.
        """
        try:
            self._apply(event)
        except Exception as error:  # noqa: BLE001 # whatever it is, the other events are applied
            self._groups.outputs.quarantine(event[0], event, error)

    def _apply(self, event: Event) -> None:
        """Apply one event by its kind."""
        if isinstance(event, RecordRead | ClientWord):
            if isinstance(event, RecordRead):
                self._schedule.record(event.order_ms)
            self._events.apply(event)
        elif isinstance(event, CoordinatorLine):
            self._events.logged(event)
        elif isinstance(event, LeaderNamed):
            self._lines.named(event)
        elif not isinstance(event, OffsetCommitted):  # the batch's commits are applied as rows
            self._lines.line(event)
